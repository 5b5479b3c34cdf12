"""Intervals contain the exact value (balls, 200 bits, at the same doubles), are sharp, know where f is undefined."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import lower, precision, upper
from attnfun.language.gradient import GradientAlgebra
from attnfun.language.interpret import run
from attnfun.language.intervals import Interval, IntervalAlgebra
from expressions.random_graphs import graphs, intervals, points
from products import drawn

arb = flint.arb
A, V, CLIP = BallAlgebra(), IntervalAlgebra(), IntervalAlgebra(clip_sqrt=True)
FAST = drawn(200)
UNARY = [
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "log1p", "expm1", "sqrt", "abs",
    "sign", "erf", "sigmoid", "softplus", "relu",
]  # fmt: skip


def interval(lo: Any, hi: Any) -> Interval:
    return Interval(np.asarray(lo, dtype=float), np.asarray(hi, dtype=float))


def contains(image: Interval, value: Any) -> bool:
    """The ball of a point value, 200 bits, meets the interval (it is far thinner than an ulp)."""
    return arb(float(image.lo)) <= value.upper() and arb(float(image.hi)) >= value.lower()


@FAST
@given(graphs(), intervals(), intervals(), st.data())
def test_a_random_expression_over_a_box_contains_its_values_at_points(g: Any, bx: Any, by: Any, data: Any) -> None:
    env = {"x": interval(*bx), "y": interval(*by)}
    image, clipped = run(g, V, env)[0], run(g, CLIP, env)[0]
    xs, ys = data.draw(points(bx)), data.draw(points(by))
    with precision(200):
        for x in xs:
            for y in ys:
                value = run(g, A, {"x": arb(x), "y": arb(y)})[0]
                # at the very edge of a domain (asin of cos 1e-18) 200 bits may not decide that the point is inside
                assert not (image.defined and value.is_finite()) or contains(image, value)
                assert not (clipped.defined and value.is_finite()) or contains(clipped, value)


@pytest.mark.parametrize("name", UNARY)
def test_functions_at_many_points_are_within_the_stated_margin(name: str) -> None:
    rng = np.random.default_rng(7)
    t = np.concatenate([rng.uniform(-3, 3, 300), rng.uniform(-1, 1, 200), rng.uniform(-1e-8, 1e-8, 50),
                        rng.uniform(-300, 300, 50), 10.0 ** rng.uniform(-300, 2, 50), [0.0, 1.0, -1.0]])  # fmt: skip
    image = getattr(V, name)(interval(t, t))
    with precision(200):
        for i, x in enumerate(t):
            value = getattr(A, name)(arb(float(x)))
            assert value.is_finite() or not image.defined[i]
            if image.defined[i]:
                assert arb(float(image.lo[i])) <= value.upper() and arb(float(image.hi[i])) >= value.lower()
                width = image.hi[i] - image.lo[i]
                assert width <= 1e-14 * (abs(image.hi[i]) + 1e-300) or (name in ("sin", "cos") and width < 1e-14)
            else:
                assert not value.is_finite() or name == "tan"


@pytest.mark.parametrize("name", UNARY)
@given(box=st.tuples(st.floats(-20, 20), st.sampled_from([0.0, 1e-9, 0.1, 1.0, 3.0, 7.0])))
@drawn(40)
def test_ranges_agree_with_balls(name: str, box: tuple[float, float]) -> None:
    lo, hi = box[0], box[0] + box[1]
    image = getattr(V, name)(interval(lo, hi))
    values = []
    with precision(200):
        for t in np.linspace(lo, hi, 33):
            value = getattr(A, name)(arb(float(t)))
            assert not image.defined or (value.is_finite() and contains(image, value))
            if value.is_finite():
                values.append((lower(value), upper(value)))
    if image.defined:
        top, bottom = max(v[1] for v in values), min(v[0] for v in values)
        gap = 1e-12 * (1 + abs(top) + abs(bottom)) + (0.02 if name in ("sin", "cos") else 0)
        kink = {"abs": 0.3, "cosh": 1.0}.get(name, 0.0)
        assert image.hi <= top + gap and image.lo >= bottom - gap - kink


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@drawn(500)
def test_arithmetic_contains_the_exact_rational(a: float, b: float) -> None:
    x, y = interval(a, a), interval(b, b)
    p, q = Fraction(a), Fraction(b)
    for image, exact in [
        (V.add(x, y), p + q),
        (V.sub(x, y), p - q),
        (V.mul(x, y), p * q),
        (V.div(x, y), p / q if q else None),
        (V.powi(x, 3), p**3),
        (V.powi(x, 4), p**4),
        (V.powi(x, -2), 1 / p**2 if p else None),
    ]:
        if image.defined:
            assert exact is not None and Fraction(float(image.lo)) <= exact <= Fraction(float(image.hi))
    square = V.powi(x, 2)
    assert not square.defined or square.lo >= 0
    root = V.sqrt(x)
    assert not root.defined or Fraction(float(root.lo)) ** 2 <= p <= Fraction(float(root.hi)) ** 2
    assert bool(root.defined) == (a >= 0)


@given(st.fractions())
def test_constants_enclose(value: Fraction) -> None:
    c = V.constant(value)
    assert Fraction(float(c.lo)) <= value <= Fraction(float(c.hi))
    assert c.hi <= math.nextafter(float(c.lo), math.inf)


def test_pi_and_e() -> None:
    with precision(128):
        for ours, true in ((V.pi(), A.pi()), (V.e(), A.e())):
            assert arb(float(ours.lo)) < true < arb(float(ours.hi))


def test_undefined_is_sticky_and_complete() -> None:
    for bad in (interval(np.nan, np.nan), interval(-np.inf, np.inf), interval(0, np.inf), interval(1, 0)):
        assert not bad.defined
        for name in UNARY:
            assert not getattr(V, name)(bad).defined, name
        one = interval(1, 1)
        for name in ("add", "sub", "mul", "div", "pow", "max", "min", "hull"):
            assert not getattr(V, name)(bad, one).defined and not getattr(V, name)(one, bad).defined, name
        assert not V.mul(bad, interval(0, 0)).defined and not V.powi(bad, 0).defined
        assert not V.choose(bad, one, one, one).defined
    for text in (
        V.div(interval(1, 1), interval(-1, 1)), V.div(interval(0, 0), interval(0, 0)), V.log(interval(0, 1)),
        V.sqrt(interval(-1e-300, 1)), V.asin(interval(0, math.nextafter(1, 2))), V.tan(interval(1, 2)),
        V.exp(interval(0, 1000)), V.powi(interval(0, 1), -1), V.powr(interval(0, 1), Fraction(-1, 3)),
        V.powr(interval(-1, 1), Fraction(1, 3)), V.pow(interval(0, 1), interval(0, 1)), V.log1p(interval(-1, 0)),
        CLIP.sqrt(interval(-2, -1)), V.mul(interval(1e300, 1e300), interval(1e10, 1e10)), V.tan(interval(1e18, 1e18)),
    ):  # fmt: skip
        assert not text.defined


def test_exact_cases_stay_exact() -> None:
    x = V.sub(V.constant(Fraction(1)), interval(0, 1))
    assert (x.lo, x.hi) == (0, 1) and V.sqrt(x).defined
    assert V.mul(interval(0, 1), interval(0, 1)).lo == 0 and V.mul(interval(0, 1), interval(-1, 0)).hi == 0
    assert CLIP.sqrt(interval(-1e-16, 4)).lo == 0 and V.powr(interval(0, 4), Fraction(1, 3)).lo == 0
    assert (V.sign(interval(-1, 2)).lo, V.sign(interval(-1, 2)).hi) == (-1, 1)
    assert V.sin(interval(0, 10)).hi == 1 and V.cos(interval(-0.1, 0.1)).hi == 1 and V.sin(interval(1, 1.5)).hi < 1


def test_arrays_broadcast() -> None:
    x, y = interval(np.zeros((3, 1)), np.ones((3, 1))), interval(np.zeros(4), np.arange(4.0))
    for name in ("add", "sub", "mul", "max", "min", "hull"):
        assert getattr(V, name)(x, y).shape == (3, 4)
    assert V.choose(x, y, x, y).shape == (3, 4) and V.add(x, V.pi()).shape == (3, 1)
    half = V.sqrt(interval([-1.0, 0.0, 1.0], [1.0, 1.0, 4.0]))
    assert half.defined.tolist() == [False, True, True]


@FAST
@given(graphs(), intervals(), intervals(), points((0.0, 1.0), 3))
def test_mean_value_inequality_over_intervals(g: Any, bx: Any, by: Any, s: Any) -> None:
    over: GradientAlgebra[Any] = GradientAlgebra(V, 2)
    d = run(g, over, over.variables(("x", "y"), {"x": interval(*bx), "y": interval(*by)}))[0]
    px, py = over.gradient(d)
    if not (d.value.defined and px.defined and py.defined):
        return
    with precision(200):
        slopes = [arb(float(p.lo)).union(arb(float(p.hi))) for p in (px, py)]
        pts = [[arb(min(b[1], b[0] + t * (b[1] - b[0]))) for b in (bx, by)] for t in s]
        values = [run(g, A, {"x": x, "y": y})[0] for x, y in pts]
        for (ax, ay), va in zip(pts, values):
            for (cx, cy), vb in zip(pts, values):
                if va.is_finite() and vb.is_finite():  # 200 bits may not decide asin at an argument of 1 − 1e-100
                    assert (vb - va).overlaps(slopes[0] * (cx - ax) + slopes[1] * (cy - ay))
