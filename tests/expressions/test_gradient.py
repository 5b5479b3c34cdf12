"""Gradients: against series and finite differences at points, by the mean value inequality over boxes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given

from attnfun.language.arrays import ArrayAlgebra
from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import ball, balls, lower, precision, upper
from attnfun.language.gradient import Dual, GradientAlgebra
from attnfun.language.interpret import run
from attnfun.language.parse import parse
from attnfun.language.series import Kink, SeriesAlgebra, series_length
from expressions.random_graphs import graphs, intervals, points
from products import drawn

arb = flint.arb
A = BallAlgebra()
G: GradientAlgebra[Any] = GradientAlgebra(A, 2)
FAST = drawn(150)


def gradient(g: Any, x: Any, y: Any, algebra: Any = G) -> Dual[Any]:
    return run(g, algebra, algebra.variables(("x", "y"), {"x": x, "y": y}))[0]


def finite(x: Any) -> bool:
    return bool(x.is_finite())


@FAST
@given(graphs(), intervals(), intervals(), points((0.0, 1.0), 4))
def test_mean_value_inequality(g: Any, bx: Any, by: Any, s: Any) -> None:
    with precision(96):
        whole = gradient(g, ball(*bx), ball(*by))
        slopes = G.gradient(whole)
    if not (finite(whole.value) and all(map(finite, slopes))):
        return
    corner = [(min(b[1], b[0] + t * (b[1] - b[0])) for b in (bx, by)) for t in s]
    with precision(200):
        pts = [tuple(arb(v) for v in c) for c in corner]
        pts += [(pts[0][0], pts[1][1]), (pts[1][0], pts[0][1])]
        values = [run(g, A, {"x": x, "y": y})[0] for x, y in pts]
        for (ax, ay), va in zip(pts, values):
            for (bx_, by_), vb in zip(pts, values):
                assert finite(va) and whole.value.overlaps(va)
                assert (vb - va).overlaps(slopes[0] * (bx_ - ax) + slopes[1] * (by_ - ay))


@FAST
@given(graphs(), intervals(), intervals(), points((0.0, 1.0), 1))
def test_partials_over_a_box_contain_the_series_slope_at_points(g: Any, bx: Any, by: Any, s: Any) -> None:
    with precision(128), series_length(2):
        whole = gradient(g, ball(*bx), ball(*by))
        algebra = SeriesAlgebra(2)
        for t in s:
            x, y = (arb(min(b[1], b[0] + t * (b[1] - b[0]))) for b in (bx, by))
            for i, partial in enumerate(G.gradient(whole)):
                env = {"x": algebra.variable(x, arb(i == 0)), "y": algebra.variable(y, arb(i == 1))}
                try:
                    value, slope = algebra.coefficients(run(g, algebra, env)[0])
                except Kink:
                    continue
                assert not finite(partial) or partial.overlaps(slope)
                assert not finite(whole.value) or whole.value.overlaps(value)


CASES = [
    "sin(x*y)+cos(x)", "tan(x)*y", "asin(x/3)+acos(y/3)", "atan(x*y)", "sinh(x)-cosh(y)", "tanh(x+2*y)", "exp(x*y)",
    "log(x+y)", "log1p(x)*expm1(y)", "sqrt(x)*y**3", "abs(x-3)+relu(y-x)", "erf(x)*sigmoid(y)", "softplus(x-y)",
    "max(x,y**2)+min(x,y)", "x**y", "x**0.3/y**-2", "sign(x)*x", "x/(1+y)-3", "1-x", "2**x", "pi*x-e",
]  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_points_agree_with_finite_differences_in_balls_and_arrays(text: str) -> None:
    g = parse(text, ("x", "y"))
    x0, y0, h = 0.75, 0.5, 1e-6
    arrays: Any = ArrayAlgebra()
    over_arrays: GradientAlgebra[Any] = GradientAlgebra(arrays, 2)

    def value(x: float, y: float) -> float:
        return float(np.asarray(run(g, arrays, {"x": np.array(x), "y": np.array(y)})[0]))

    with precision(96):
        exactly = G.gradient(gradient(g, arb(x0), arb(y0)))
    floats = over_arrays.gradient(gradient(g, np.array(x0), np.array(y0), over_arrays))
    numeric = ((value(x0 + h, y0) - value(x0 - h, y0)) / (2 * h), (value(x0, y0 + h) - value(x0, y0 - h)) / (2 * h))
    for ours, plain, truth in zip(exactly, floats, numeric):
        assert abs(float(ours) - truth) < 1e-7 * (1 + abs(truth)) and abs(float(plain) - float(ours)) < 1e-12


@pytest.mark.parametrize(
    "text, low, high", [("abs(x)", -1, 1), ("relu(x)", 0, 1), ("max(x,2*x)", 1, 2), ("min(x,-x)", -1, 1)]
)
@pytest.mark.parametrize("x", [arb(0), arb(0, 1)])
def test_kinks_give_the_hull_of_the_branches(text: str, low: float, high: float, x: Any) -> None:
    with precision(96):
        partial = G.gradient(gradient(parse(text, ("x", "y")), x, arb(1)))[0]
        assert lower(partial) == pytest.approx(low, abs=1e-7) and upper(partial) == pytest.approx(high, abs=1e-7)
        assert partial.contains(arb(low)) and partial.contains(arb(high))


@pytest.mark.parametrize("text", ["sqrt(x)", "x**0.5", "sign(x)", "x**1.5/x", "asin(1-x)", "x**y"])
def test_no_finite_partial_where_none_exists(text: str) -> None:
    with precision(96):
        for x in (arb(0), ball(0, 1)):
            assert not finite(G.gradient(gradient(parse(text, ("x", "y")), x, arb(0.5)))[0])


def test_a_variable_that_is_absent_has_partial_none_and_arrays_broadcast() -> None:
    with precision(96):
        d = gradient(parse("sqrt(abs(x))", ("x", "y")), arb(0), arb(1))
        assert d.partials[1] is None and G.gradient(d)[1] == 0
        xs = balls(np.array([-1.0, -0.5, 1.0]), np.array([-0.5, 0.5, 2.0]))
        d = gradient(parse("abs(x)*max(x,y)", ("x", "y")), xs, arb(0))
        assert d.value.shape == (3,) and G.gradient(d)[0].shape == (3,)
        assert G.gradient(G.constant(Fraction(1, 3))) == (arb(0), arb(0))
