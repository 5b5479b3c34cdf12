"""The compiled kernel of attention: networks on tokens, gathers and tables, against long doubles and NumPy's routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun import fast
from attnfun.certify.rounding import kernel_move
from attnfun.fast import tokens
from attnfun.kinds import NAMES
from attnfun.kinds.in_context.exact import exact_predictions, example_prompts, hard_prompts
from attnfun.kinds.sequence.network import GatherHead
from attnfun.network import Network, TokenHead, TokenLayer, TokenNetwork, TokenTransformer, rounded
from attnfun.network.playing import playing
from attnfun.network.tokens import FeedForward
from attnfun.search import one_thread
from house.requests import model
from network.test_evaluate import UNIT

DTYPES = ("float64", "float32")


def softmax_of(logits: Any, V: Any) -> Any:
    """Long doubles: (..., J) logits, (..., J, p) values."""
    terms = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (terms / terms.sum(axis=-1, keepdims=True)) @ V


def random_tokens(seed: int, dtype: str, width: int = 7, units: bool = False) -> TokenNetwork | TokenTransformer:
    """Two layers of heads of several sizes, with a carry and without, and constant tokens or none."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return rounded(rng.normal(size=shape) / np.sqrt(width), dtype)

    layers = []
    for number in range(2):
        heads = []
        for place, (r, p) in enumerate(((1, 2), (4, 1), (3, 5))[: 2 + number]):
            heads.append(TokenHead(f"h{number}{place}", draw(width, r), draw(width, r), draw(width, p), draw(p, width)))
        layers.append(TokenLayer(tuple(heads), draw(width, width) if (seed + number) % 2 else None))
    names = tuple(f"c{k}" for k in range(width))
    network = TokenNetwork(names, tuple(layers), draw(seed % 3, width), draw(width, 2), ("a", "b"), dtype)
    if not units:
        return network
    return TokenTransformer(network, (FeedForward(draw(width, 3), draw(3), draw(3, width)), None))


def in_long_doubles(network: Any, given: Any) -> Any:
    plain, wide = network.attention, np.longdouble
    Z = np.concatenate([given, np.broadcast_to(plain.constants, (len(given), *plain.constants.shape))], 1).astype(wide)
    for layer, block in zip(plain.layers, network.blocks, strict=True):
        new = Z if layer.carry is None else Z @ layer.carry.astype(wide)
        for head in layer.heads:
            W_Q, W_K, W_V, W_O = (array.astype(wide) for array in head.arrays.values())
            new = new + softmax_of((Z @ W_Q) @ np.swapaxes(Z @ W_K, 1, 2), Z @ W_V) @ W_O
        if block is not None:
            inner, bias, outer = (array.astype(wide) for array in block.arrays.values())
            new = new + np.maximum(new @ inner + bias, 0) @ outer
        Z = new
    return Z[:, : given.shape[1]] @ plain.readout.astype(wide)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 23, 24, 65, 300])
def test_random_networks_on_tokens(n: int, dtype: str) -> None:
    network = random_tokens(n, dtype, units=n % 2 == 1)
    batch = 1 if n > 24 else 3 if n == 24 else 131
    given = np.random.default_rng(n).normal(size=(batch, n, 7)).astype(dtype)
    found = tokens.tokens(network, given, 1)
    assert found.dtype == np.dtype(dtype)
    # a softmax moves by its logits' errors, which are a few u of logits of a few units; sums lose n u at most
    assert np.abs(found - in_long_doubles(network, given)).max() <= (200 + 4 * n) * UNIT[dtype]
    assert (tokens.tokens(network, given, 2) == found).all(), "lanes and sequences are independent"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("case", ["rising", "falling", "large", "equal", "far apart"])
def test_hard_logits(case: str, own: bool, dtype: str) -> None:
    """Against what is counted: d = u (gap + logit) and exps move the terms, sums are as long as the keys."""
    rng, n, lanes = np.random.default_rng(0), 400, 9
    size = {"rising": 40.0, "falling": -40.0, "large": 1e4, "equal": 0.0, "far apart": 600.0}[case]
    keys = np.linspace(0, 1, n) if case in ("rising", "falling") else rng.uniform(-1, 1, n)
    K, V = rounded(size * keys[:, None], dtype).astype(dtype), rng.normal(size=(n, 3)).astype(dtype)
    Q = np.stack([np.linspace(0.5, 1.0, lanes)])[None].astype(dtype)
    given = [np.repeat(array[:, :, None], lanes, axis=2) for array in (K, V)] if own else [K, V]
    found = tokens.averages(Q, *given)[0].T
    logits = Q[0].T.astype(np.longdouble) @ K.T
    u, gap = UNIT[dtype], np.abs(logits).max(axis=1)[:, None] * 2
    d = kernel_move(n, dtype) + 4 * u * gap
    bound = np.ptp(V) * np.tanh(d / 2) + 2 * (n + 8) * u * np.abs(V).max()
    assert (np.abs(found - softmax_of(logits, V)) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_of_the_best_key_count_alike_and_far_ones_not_at_all(dtype: str) -> None:
    """exp(0) is 1 and a term that is far away 0, exactly, in every group of keys."""
    n, far = 300, {"float64": 1024.0, "float32": 128.0}[dtype]
    K, V = np.zeros((n, 1), dtype), np.full((n, 1), 1e30, dtype)
    best = [0, 1, 63, 64, 130, 299]
    K[best], V[best, 0] = far, np.arange(6)
    for Q in (np.ones((1, 1, 40), dtype), np.ones((1, 1, 3), dtype)):
        assert (tokens.averages(Q, K, V) == 2.5).all()


@dataclass(frozen=True, eq=False)
class Table:
    vectors: Any
    values: Any


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [1, 10, 256, 5000])
@pytest.mark.parametrize("queries", [1, 5, 40])
def test_tables(queries: int, keys: int, dtype: str) -> None:
    rng = np.random.default_rng(keys)
    table = Table(rng.normal(size=(keys, 3)).astype(dtype) * 20, rng.normal(size=(keys, 2)).astype(dtype))
    Q = rng.normal(size=(queries, 3)).astype(dtype)
    logits = Q.astype(np.longdouble) @ table.vectors.T
    d = kernel_move(keys, dtype) + 8 * UNIT[dtype] * np.abs(logits).max()
    bound = np.ptp(table.values) * np.tanh(d / 2) + 2 * (keys + 24) * UNIT[dtype] * np.abs(table.values).max()
    for threads in (1, 3):
        found = tokens.table(table, lambda: Q, threads)
        assert found.shape == (queries, 2)
        assert np.abs(found - softmax_of(logits, table.values.astype(np.longdouble))).max() <= bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scores", [False, True])
def test_gathers(scores: bool, dtype: str) -> None:
    rng, n = np.random.default_rng(1), 70
    S = rounded(rng.normal(size=(n, n)) * 5, dtype) if scores else None
    head = GatherHead("g", ("a", "b"), S, *(rounded(rng.normal(size=s), dtype) for s in ((3,), (3, 2), (2,))))
    Z = rng.normal(size=(150, n, 3)).astype(dtype)
    with playing(lambda name, _work, given: tokens.gather(*given, 1) if name == "gather" else None):
        found = head.run(Z)
    logits = (Z.astype(np.longdouble) @ head.key)[:, None, :] + (0 if S is None else S)
    logits = np.broadcast_to(logits, (150, n, n))
    exact = softmax_of(logits, Z.astype(np.longdouble) @ head.value) + head.offset
    assert np.abs(found - exact).max() <= 300 * UNIT[dtype]


@pytest.mark.parametrize("draw", [example_prompts, hard_prompts])
def test_a_prompt_of_512_examples_is_within_its_certificate(draw: Any) -> None:
    solver = af.in_context("ridge", 3, 512, eps=1e-4)
    assert solver.certificate.status == "proved"
    for X, y, queries in draw(solver.target, 2):
        taken: list[Any] = []
        with playing(lambda *asked, taken=taken: taken.append(asked) or tokens.tokens(*asked[2], 1)):
            (given,), how = solver.target.written(solver.weights, X, y, queries)
            found = solver.target.decode(solver.weights.run(given), how)
        ((name, work, _),) = taken
        assert name == "tokens"
        assert work >= fast.WORTH, "a call of its own takes the kernels"
        assert np.abs(found - exact_predictions(solver.target, X, y, queries)).max() <= solver.certificate.error[1]


@pytest.mark.parametrize("kind", [name for name in NAMES if name != "function"])
def test_every_kind_is_played_within_its_certificate(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both routes are within the bound of the same target, so they are within twice the bound of each other."""
    net = model(kind, 1)
    inputs = net.target.draw(np.random.default_rng(3), 40)
    monkeypatch.setenv("ATTNFUN_FAST", "0")
    numpy = net(*inputs)
    monkeypatch.setenv("ATTNFUN_FAST", "1")
    parts: list[float] = []
    monkeypatch.setattr(fast, "_large", lambda work: parts.append(work) is None)
    played = net(*inputs)
    assert parts or kind == "ternary", "of forms without networks nothing is played"
    bound = net.certificate.error[1]
    slack = 1e-5 if net.dtype == "float32" else 1e-9
    assert np.abs(np.asarray(played) - numpy).max() <= (min(slack, 2 * bound) if np.isfinite(bound) else slack)


def test_what_is_played_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    net = af.sequence("sin(x*mean(x))", 6, {"x": (-1, 1)}, 1e-2)
    X = np.random.default_rng(0).uniform(-1, 1, (40, 6, 1))
    seen: list[str] = []
    players = {name: "fast.test_tokens:noted" for name in fast.PLAYERS}
    monkeypatch.setattr(fast, "PLAYERS", players)
    monkeypatch.setattr(fast, "import_module", lambda _name: _Noting(seen))
    usual = net(X)
    assert seen == [], "small calls are NumPy's"
    monkeypatch.setenv("ATTNFUN_FAST", "1")
    assert (net(X) == usual).all()
    assert seen == ["gather", "network"]
    with one_thread():
        net(X)
    with fast.off():
        net(X)
    net.weights.run(X)
    assert len(seen) == 2, "searches, proofs and weights themselves do not ask"
    monkeypatch.setenv("ATTNFUN_FAST", "0")
    net(X)
    assert len(seen) == 2


class _Noting:
    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def noted(self, first: Any, *_rest: Any) -> None:
        self.seen.append("network" if isinstance(first, Network) else "gather")


def test_a_network_without_layers_has_a_tape() -> None:
    identity = Network(("x", "y"), (), np.array([[1.0, 2.0]]), np.array([3.0]), ("f",), (-np.ones(2), np.ones(2)))
    X = np.random.default_rng(0).uniform(-1, 1, (700, 2))
    assert np.abs(fast.fused(identity, X)[:, 0] - (X @ [1.0, 2.0] + 3.0)).max() < 1e-15
