"""Requests, files and data at the ends of what numbers can hold: a refusal in words, no crash and no wrong verdict."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.certify.view import Undecided
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.kinds.in_context.build import build
from attnfun.kinds.in_context.exact import doubt, exact_predictions, example_prompts
from attnfun.kinds.in_context.prove import measured, predictions, prove
from attnfun.kinds.in_context.prove_linear import prove_by_in_context
from attnfun.kinds.in_context.prove_pattern import read_pattern
from attnfun.kinds.in_context.target import InContextTask
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.network.claim import Claim
from in_context.prompts import judge, with_layers, write

SMALL = InContextTask.make("ridge", 2, 4, alpha=1.0, spectrum=(2, 6))


def solved(X: np.ndarray, y: np.ndarray, q: np.ndarray, alpha: float) -> Fraction:
    """qᵀ(XᵀX + αI)⁻¹Xᵀy, exactly."""
    rows = [[Fraction(float(v)) for v in row] for row in X]
    d = X.shape[1]
    A = [[sum(r[i] * r[j] for r in rows) + (Fraction(alpha) if i == j else 0) for j in range(d)] for i in range(d)]
    b = [sum((r[i] * Fraction(float(t)) for r, t in zip(rows, y, strict=True)), Fraction(0)) for i in range(d)]
    for i in range(d):
        for k in range(i + 1, d):
            share = A[k][i] / A[i][i]
            A[k] = [x - share * z for x, z in zip(A[k], A[i], strict=True)]
            b[k] -= share * b[i]
    w = [Fraction(0)] * d
    for i in reversed(range(d)):
        w[i] = (b[i] - sum(A[i][k] * w[k] for k in range(i + 1, d))) / A[i][i]
    return sum((Fraction(float(v)) * x for v, x in zip(q, w, strict=True)), Fraction(0))


def scaled(network: TokenNetwork, layer: int, head: int, factor: float) -> TokenNetwork:
    """One head with its logits times `factor` and its output divided by it."""
    one, layers = network.coordinates.index("one"), list(network.layers)
    heads = list(layers[layer].heads)
    old = heads[head]
    query = old.query * factor
    query[one, -1] = 1.0
    heads[head] = TokenHead(old.name, query, old.key, old.value, old.output / factor)
    layers[layer] = TokenLayer(tuple(heads), layers[layer].carry)
    return with_layers(network, layers)


@pytest.mark.parametrize("kind", ["one value", "too wide"])
def test_a_depth_at_which_nothing_is_proved_is_refused_in_words(kind: str) -> None:
    spectrum = (1.0, 1.0) if kind == "one value" else (1.0, 1e12)
    with pytest.raises(Infeasible, match="nothing can be proved of 3 layers"):
        af.in_context("ridge", 2, 3, alpha=1.0, spectrum=spectrum, layers=3)


@pytest.mark.parametrize(
    "numbers",
    [
        {"y_range": 1e-258, "query_range": 1e52},
        {"spectrum": (1e-153, 1e-151), "query_range": 1e-237},
        {"spectrum": (1e7, 1e7), "query_range": 1e-308},
        {"spectrum": (1e-168, 1e-166), "query_range": 1e86},
        {"spectrum": (1e33, 2e33), "y_range": 1e11, "query_range": 1e-206},
        {"spectrum": 5},
    ],
)
def test_classes_that_no_weights_can_serve_are_refused(numbers: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        af.in_context("linear", 2, 3, **{"spectrum": (10, 20), "layers": 4, **numbers})
    with pytest.raises(InvalidRequest, match="eps"):
        af.in_context("linear", 2, 3, spectrum=(10, 20), eps=10**400)


@pytest.mark.parametrize("factor", [1e60, 1e200, 1e-200])
def test_heads_of_wild_scales_are_undecided_or_bounded_but_no_crash(factor: float) -> None:
    """A moment Σ a ρ^61 of such heads is past every double; `ratio` is taken of the largest head, so at most 1."""
    network = build(SMALL, 4, "chebyshev", heads=3)
    for layer in (0, 1, 3):
        for head in (0, 1):
            forged = scaled(network, layer, head, factor)
            steps = read_pattern(forged, 2, SMALL.examples).steps
            assert all(abs(ratio) <= 1 for step in steps for ratio, _ in step.to_v.heads)
            verdict = judge(forged, SMALL, 1e-3)
            assert verdict.status != "proved" or verdict.error[1] <= 1e-3
    carry = np.array(network.layers[1].carry)
    carry[np.arange(4, 6), np.arange(4, 6)] = 1e308
    layers = [network.layers[0], TokenLayer(network.layers[1].heads, carry), *network.layers[2:]]
    with pytest.raises(Undecided):
        prove(with_layers(network, layers), SMALL)


def test_the_order_of_heads_does_not_matter() -> None:
    network = build(SMALL, 5, "chebyshev", heads=3)
    turned = with_layers(network, [TokenLayer(layer.heads[::-1], layer.carry) for layer in network.layers])
    assert prove_by_in_context(turned, SMALL).total == pytest.approx(prove_by_in_context(network, SMALL).total, 1e-9)


def test_nothing_is_refuted_by_the_rounding_of_the_exact_prediction() -> None:
    """Predictions of 1e10, where solving is off by 1e-5: eps between the true and the measured error."""
    task = InContextTask.make("linear", 4, 8, spectrum=(1, 60), x_range=1e9, y_range=1.0, query_range=1e10)
    network = build(task, 40, "chebyshev", heads=4)
    true = seen = 0.0
    for X, y, queries in example_prompts(task, 5):
        got, near = predictions(network, task, X, y, queries), exact_predictions(task, X, y, queries)
        exact = [solved(X, y, q, 0.0) for q in queries]
        off = [float(abs(Fraction(float(a)) - b)) for a, b in zip(near, exact, strict=True)]
        assert (np.array(off) <= doubt(task, X, y, queries)).all()
        true = max(true, max(float(abs(Fraction(float(a)) - b)) for a, b in zip(got, exact, strict=True)))
        seen = max(seen, float(np.abs(got - near).max()))
    worst, sure, _ = measured(network, task, 5, math.inf, search=False)
    assert worst == seen and true / 2 < sure <= true  # eps is refuted below `sure` only
    verdict = judge(network, task, true / 2)
    assert verdict.status == "refuted" and true / 2 < verdict.error[0]


def test_linearly_dependent_examples_are_outside_every_linear_class() -> None:
    """1e-9 of the largest eigenvalue is more than the least one here: no room for rounding reaches 0."""
    task = InContextTask.make("linear", 3, 2, spectrum=(1, 1e10), x_range=1e6)
    assert not task.covers(np.array([[1e4, 0.0, 0.0], [0.0, 1e4, 0.0]]))
    with pytest.raises(InvalidRequest):
        af.in_context("linear", 3, 2, spectrum=(1, 1e10), layers=3, accept="sampled", x_range=1e6)
    wide = InContextTask.make("linear", 2, 4, spectrum=(1, 1e10), x_range=1e6)
    assert wide.covers(np.diag([1.0, 1e5])) and not wide.covers(np.diag([0.5, 1e5]))


@pytest.mark.parametrize("X", [[[2.3e-162]], [[1e-155]], [[10**400]], np.array([[1 + 2j]])])
def test_data_that_are_too_small_too_large_or_not_real_are_refused(X: Any) -> None:
    solver = af.in_context("linear", 1, 2, spectrum=(1.0, 2.0), layers=3)
    with pytest.raises(InvalidRequest):
        solver.predict(X, [1], [[1]])


@pytest.mark.parametrize("claim", [{"eps": 10**400}, [1], "ab"])
def test_a_stored_claim_that_is_none_is_damage(claim: Any, tmp_path: Path) -> None:
    path, network = tmp_path / "x.safetensors", build(SMALL, 3, "gd")
    own = Claim.made({}, math.inf).to_json()
    own = own | claim if isinstance(claim, dict) else claim
    write(path, network, SMALL.to_json(), claim=own)
    with pytest.raises(DamagedFile, match="asked for"):
        af.verify(path)
    write(path, network, SMALL.to_json(), claim=Claim.made({}, math.inf).to_json(), request=claim)
    assert af.verify(path).eps is None  # the rest of a request decides nothing
