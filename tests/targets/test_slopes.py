"""Slopes and changes over a box: never below what points show, and close to it."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.language import ArrayAlgebra, GradientAlgebra, parse, run
from attnfun.language.domain import Box
from attnfun.language.slopes import change_bound, slope_bounds

CASES = {
    "sine": ("sin(3*x)*y + abs(x)", "x=-1:1;y=0:2"),
    "kinks": ("max(x*y, x - y) + relu(y - 0.3)", "x=-1:1;y=-1:1"),
    "quotient": ("x/(1 + y**2)", "x=-2:3;y=-1:4"),
    "steep": ("tanh(20*x)*exp(y)", "x=-1:1;y=-1:1"),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes_hold_and_are_close(name: str) -> None:
    text, domain = CASES[name]
    box = Box.parse(domain)
    graph = parse(text, box.names)
    X = box.probe(4000, np.random.default_rng(0))
    algebra = GradientAlgebra(ArrayAlgebra(), box.dim)
    (dual,) = run(graph, algebra, algebra.variables(box.names, {n: X[:, k] for k, n in enumerate(box.names)}))
    seen = np.array([np.abs(np.broadcast_to(p, len(X))).max() for p in algebra.gradient(dual)])
    bound = slope_bounds(graph, box)[0]
    assert np.all(bound >= seen)
    assert np.all(bound <= 1.3 * seen + 1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("errors", [(1e-3, 0.0), (1e-6, 1e-2), (0.2, 0.2)])
def test_no_two_near_points_differ_by_more_than_the_change_bound(name: str, errors: tuple[float, float]) -> None:
    text, domain = CASES[name]
    box = Box.parse(domain)
    graph = parse(text, box.names)
    rng = np.random.default_rng(0)
    A = np.concatenate([box.probe(4000, rng)] * 2)
    B = np.clip(A + np.array(errors) * rng.choice([-1.0, 1.0, 0.3], A.shape), box.low_array, box.high_array)

    def values(X: np.ndarray) -> np.ndarray:
        return np.asarray(run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})[0])

    seen = float(np.abs(values(A) - values(B)).max())
    bound = change_bound(graph, box, np.array(errors))
    assert seen <= bound * (1 + 1e-9) + 1e-15
    assert bound <= 3 * seen


def test_a_root_at_zero_has_a_modulus_where_it_has_no_slope() -> None:
    graph, box = parse("sqrt(x)", ["x"]), Box.parse("x=0:2")
    assert np.isinf(slope_bounds(graph, box)).all()
    bound = change_bound(graph, box, np.array([1e-8]))
    assert 1e-4 <= bound <= 2e-4


def test_exact_variables_change_nothing() -> None:
    assert change_bound(parse("sqrt(x)", ["x"]), Box.parse("x=0:2"), np.array([0.0])) == 0.0
