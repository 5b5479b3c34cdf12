"""Sequence maps as targets: the language, what it means, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.kinds.sequence.target import SequenceMap, meaning, source_name
from attnfun.language import ArrayAlgebra, run
from attnfun.network import store
from attnfun.network.claim import Claim

LINE = {"x": (-1.0, 1.0)}
PLANE = {"x": (0.5, 2.0), "y": (-1.0, 1.0)}


def sequences(target: SequenceMap, count: int = 50, seed: int = 0) -> np.ndarray:
    n, d = target.tokens, target.box.dim
    return target.box.sample(count * n, np.random.default_rng(seed)).reshape(count, n, d)


def test_aggregates_and_entries_mean_what_numpy_says() -> None:
    text = ["x*mean(y) - sum(x)", "max(x*y) + min(y) + y_2", "softmax_mean(2*x, y**2)/x_1", "max(x, y, 1)"]
    target = SequenceMap.read(text, PLANE, 4)
    X = sequences(target)
    x, y = X[..., 0], X[..., 1]
    w = np.exp(2 * x)
    expected = [
        x * y.mean(1, keepdims=True) - x.sum(1, keepdims=True),
        np.broadcast_to((x * y).max(1, keepdims=True) + y.min(1, keepdims=True) + y[:, 1:2], x.shape),
        np.broadcast_to((w * y**2).sum(1, keepdims=True) / w.sum(1, keepdims=True) / x[:, :1], x.shape),
        np.maximum(np.maximum(x, y), 1.0),
    ]
    assert np.abs(target.values(X) - np.stack(expected, axis=2)).max() < 1e-12
    assert not target.equivariant


def test_nested_aggregates_are_a_variance() -> None:
    target = SequenceMap.read("mean((x - mean(x))**2)", LINE, 5)
    X = sequences(target)
    assert np.abs(target.values(X)[..., 0] - X[..., 0].var(axis=1, keepdims=True)).max() < 1e-14


@pytest.mark.parametrize(
    "text", ["sin(x*mean(x))", "x - max(x)", "softmax_mean(x, x**2) - min(x)*x", "mean(x*mean(x))"]
)
def test_a_map_that_is_called_equivariant_is(text: str) -> None:
    target = SequenceMap.read(text, LINE, 5)
    assert target.equivariant
    X = sequences(target)
    order = np.random.default_rng(1).permutation(5)
    assert np.abs(target.values(X[:, order]) - target.values(X)[:, order]).max() < 1e-14


def test_one_row_a_token() -> None:
    target = SequenceMap.read([["x_2", "x"], ["x_1", "2*x"]], LINE, 2)
    X = sequences(target)
    x = X[..., 0]
    assert np.array_equal(target.values(X)[..., 0], x[:, ::-1])
    assert np.array_equal(target.values(X)[..., 1], x * [1.0, 2.0])


def test_a_target_comes_back_from_json_and_names_its_parts() -> None:
    target = SequenceMap.read("sin(x*mean(x)) + max(x**2) + x_3", LINE, 4)
    assert SequenceMap.from_json(target.to_json()) == target
    assert target.text == "sin(x*mean(x)) + max(x**2) + x_3"


@pytest.mark.parametrize("gathered", [True, False])
def test_the_meaning_at_a_token_is_the_row(gathered: bool) -> None:
    """With aggregates as variables, and written out over all tokens."""
    target = SequenceMap.read("sin(x*mean(x)) - softmax_mean(x, x**2) + x_2*max(x)", LINE, 4)
    X = sequences(target)
    names = [d.name for d in target.definitions if d.graph is None] if gathered else []
    values = target.values(X)
    for token in range(4):
        sources = [(token + k) % 4 for k in range(1, 4)]
        graph = meaning(target, token, sources, names)
        env = {"x": X[:, token, 0]}
        env |= {source_name("x", k): X[:, j, 0] for k, j in enumerate(sources)}
        if gathered:
            x, w = X[..., 0], np.exp(X[..., 0])
            env |= dict(zip(names, (x.mean(1), (w * x**2).sum(1) / w.sum(1), x.max(1)), strict=True))
        assert np.abs(run(graph, ArrayAlgebra(), env)[0] - values[:, token, 0]).max() < 1e-14


def test_an_equivariant_map_is_one_expression_for_all_tokens() -> None:
    target = SequenceMap.read("sin(x*mean(x)) - max(x)", LINE, 5)
    graphs = {meaning(target, i, [(i + k) % 5 for k in range(1, 5)], []) for i in range(5)}
    assert len(graphs) == 1


def test_a_meaning_without_its_tokens_is_refused() -> None:
    target = SequenceMap.read("mean(x)*x_3", LINE, 4)
    with pytest.raises(InvalidRequest):
        meaning(target, 0, [1], [])
    with pytest.raises(InvalidRequest):
        meaning(target, 0, [1], ["mean_of_1"])


@pytest.mark.parametrize(
    ("text", "domain", "tokens", "says"),
    [
        ("mean(2)", LINE, 3, "constant"),
        ("mean(x, x)", LINE, 3, "1 argument"),
        ("softmax_mean(x)", LINE, 3, "a score and a value"),
        ("x_4", LINE, 3, "unknown name"),
        ("means(x)", LINE, 3, "unknown function"),
        ("x", LINE, 0, "whole number"),
        ("x", LINE, 2.5, "whole number"),
        ("x", LINE, True, "whole number"),
        ([["x"], ["x"]], LINE, 3, "2 rows"),
        ([["x"], ["x", "x"]], LINE, 2, "same number of outputs"),
        (3, LINE, 3, "give an expression"),
        ([], LINE, 3, "give an expression"),
        ("x", {"x": (0, 1), "x_1": (0, 1)}, 2, "clash"),
        ("x", {"x": (0, 1), "x_source1": (0, 1)}, 2, "kept for tokens"),
        ("mean(x)", {"x": (0, 1), "mean_of_1": (0, 1)}, 2, "used twice"),
        ("__import__('os')", LINE, 2, "no meaning"),
    ],
)
def test_bad_requests_are_one_line(text: object, domain: dict, tokens: object, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as found:
        SequenceMap.read(text, domain, tokens)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("key", ["domain", "tokens", "definitions", "rows"])
def test_damaged_json_is_noticed(key: str, tmp_path: Path) -> None:
    net, claim = af.sequence("x + mean(x)", 3, LINE, 0.1), Claim.made({}, math.inf).to_json()
    for bad in (None, 0, [["var", "q"]], [{"name": "a"}]):
        meta = {"target": {**net.target.to_json(), key: bad}, "claim": claim}
        store.write(tmp_path / "bad.safetensors", "sequence", net.weights, meta)
        with pytest.raises(DamagedFile):
            af.load(tmp_path / "bad.safetensors")
