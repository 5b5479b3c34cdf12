"""Balls contain the exact value: at points against mpmath, over boxes against points, at the ends of every domain."""

from __future__ import annotations

import math
import threading
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.errors import AttnfunError
from attnfun.language.balls import BallAlgebra
from attnfun.language.complex_balls import ComplexBallAlgebra
from attnfun.language.enclosures import (
    abs_lower,
    abs_upper,
    ball,
    balls,
    lower,
    lowers,
    precision,
    span,
    upper,
    uppers,
)
from attnfun.language.interpret import NotAnalytic, run
from expressions.random_graphs import graphs, intervals, points
from products import drawn

arb, acb = flint.arb, flint.acb
A, SHARP, CLIP, C = BallAlgebra(), BallAlgebra(sharp=True), BallAlgebra(clip_sqrt=True), ComplexBallAlgebra()
FAST = drawn(150)

REFERENCE: dict[str, Any] = {
    **{
        name: getattr(mpmath, name)
        for name in [
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "exp",
            "log",
            "expm1",
            "sqrt",
            "erf",
        ]
    },
    "log1p": lambda t: mpmath.log(1 + t),
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "softplus": lambda t: mpmath.log(1 + mpmath.exp(t)),
}
REAL = {**REFERENCE, "abs": abs, "sign": mpmath.sign, "relu": lambda t: max(t, mpmath.mpf(0))}
DOMAIN = {
    "asin": lambda t: abs(t) <= 1,
    "acos": lambda t: abs(t) <= 1,
    "log": lambda t: t > 0,
    "sqrt": lambda t: t >= 0,
    "log1p": lambda t: t > -1,
}
CORNERS = [
    (0.0, 1.0),
    (-1.0, 1.0),
    (-1.0, 0.0),
    (0.0, 0.1),
    (-0.25, 0.75),
    (1.0, 3.0),
    (0.0, 0.0),
    (1.0, 1.0),
    (-1.0, -1.0),
    (1e-300, 2.0),
    (-5.0, 5.0),
    (0.3, 0.30000001),
    (-1e-12, 1e-12),
    (1.4, 1.7),
    (-40.0, 900.0),
    (3.0, 3.3),
    (6.1, 6.4),
]


def exact(text: Any) -> Any:
    return arb(mpmath.nstr(text, 60, strip_zeros=False))


def finite(x: Any) -> bool:
    return bool(x.is_finite())


@pytest.mark.parametrize("name", sorted(REAL))
@pytest.mark.parametrize("box", CORNERS)
def test_unary_range_contains_every_value_and_is_sharp(name: str, box: tuple[float, float]) -> None:
    lo, hi = box
    defined = DOMAIN.get(name, lambda t: True)
    with precision(128), mpmath.workprec(260):
        image = getattr(A, name)(ball(lo, hi))
        whole = defined(lo) and defined(hi) and not (name == "tan" and box in [(-5.0, 5.0), (1.4, 1.7), (-40.0, 900.0)])
        assert not (finite(image) and not whole)
        values = []
        for t in np.linspace(lo, hi, 41):
            if defined(t):
                value = REAL[name](mpmath.mpf(float(t)))
                values.append(float(value))
                if finite(image):
                    assert image.overlaps(arb(str(value), abs(float(value)) * 1e-50 + 1e-60))
        if finite(image) and name != "sign":
            slack = 2e-8 * (1 + max(map(abs, values)))
            grid = 0.02 * (max(values) - min(values)) + (1 if box == (-40.0, 900.0) else 0)
            assert upper(image) <= max(values) + slack + grid
            assert lower(image) >= min(values) - slack - grid
        if whole and name not in ("tan",):
            assert finite(image), "the range is bounded and must be found"


@pytest.mark.parametrize("name", sorted(REAL))
@given(t=st.one_of(st.floats(-3, 3), st.floats(-1e-9, 1e-9), st.floats(-700, 700)))
@drawn(25)
def test_point_values_agree_with_mpmath(name: str, t: float) -> None:
    with precision(128), mpmath.workprec(3000):
        value = getattr(A, name)(arb(t))
        if not DOMAIN.get(name, lambda t: True)(t):
            assert not finite(value)
            return
        truth = REAL[name](mpmath.mpf(t))
        assert (
            finite(value)
            and abs(mpmath.mpf(str(value.mid().str(80, radius=False))) - truth)
            <= mpmath.mpf(abs_upper(value.rad())) + abs(truth) * mpmath.mpf(2) ** -240
        )


@FAST
@given(graphs(), intervals(), intervals(), st.data())
def test_a_random_expression_over_a_box_contains_its_values_at_points(g: Any, bx: Any, by: Any, data: Any) -> None:
    xs, ys = data.draw(points(bx)), data.draw(points(by))
    with precision(96):
        env = {"x": ball(*bx), "y": ball(*by)}
        images = [run(g, algebra, env)[0] for algebra in (A, SHARP)]
        clipped = run(g, CLIP, env)[0]
    with precision(200):
        for x in xs:
            for y in ys:
                value = run(g, A, {"x": arb(x), "y": arb(y)})[0]
                for image in images:
                    assert not finite(image) or finite(value), (
                        "a finite range over a point where the value is undefined"
                    )
                    assert not finite(image) or image.contains(value.mid()) or image.overlaps(value)
                assert not (finite(clipped) and finite(value)) or clipped.overlaps(value)


@FAST
@given(graphs(kinks=False), intervals(), intervals(), st.data())
def test_a_complex_ball_contains_the_complex_and_the_real_values(g: Any, bx: Any, by: Any, data: Any) -> None:
    tall = data.draw(st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0]))
    with precision(96):
        image = run(g, C, {"x": acb(ball(*bx), ball(-tall, tall)), "y": acb(ball(*by))})[0]
    if not finite(image):
        return
    xs, ys = data.draw(points(bx)), data.draw(points(by))
    with precision(200):
        for x in xs:
            for y in ys:
                real = run(g, A, {"x": arb(x), "y": arb(y)})[0]
                assert finite(real) and image.overlaps(acb(real))
                for t in (-tall, 0.37 * tall, tall):
                    value = run(g, C, {"x": acb(x, t), "y": acb(y)})[0]
                    assert finite(value) and image.overlaps(value)


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_complex_points_agree_with_mpmath(name: str) -> None:
    with precision(128), mpmath.workprec(200):
        for x, y in [(0.3, 0.2), (-0.4, 0.7), (0.5, -0.25), (2.0, 1.5), (-2.5, -0.5)]:
            value = getattr(C, name)(acb(x, y))
            truth = REFERENCE[name](mpmath.mpc(x, y))
            assert finite(value)
            assert abs(complex(float(value.real), float(value.imag)) - complex(truth)) <= 1e-13 * (
                1 + abs(complex(truth))
            )


CUTS = [
    ("log", acb(arb(-1, 0.1), arb(0, 1))),
    ("log", acb(arb(0), arb(0))),
    ("log", acb(-1)),
    ("sqrt", acb(arb(-1, 0.1), arb(0, 1))),
    ("sqrt", acb(0)),
    ("log1p", acb(arb(-1, 0.5), arb(0, 0.5))),
    ("asin", acb(2, arb(0, 0.1))),
    ("asin", acb(1)),
    ("acos", acb(-1)),
    ("acos", acb(arb(-3, 1), arb(0, 0.1))),
    ("atan", acb(0, 1)),
    ("atan", acb(arb(0, 0.1), 2)),
    ("atan", acb(0, arb(0, 2))),
    ("tan", acb(arb(1.5, 0.2), arb(0, 0.1))),
    ("tanh", acb(arb(0, 0.1), arb(1.5, 0.2))),
    ("sigmoid", acb(arb(0, 0.1), arb(3, 0.5))),
    ("softplus", acb(arb(1, 0.1), arb(3, 0.5))),
]


@pytest.mark.parametrize("name, z", CUTS)
def test_no_finite_complex_ball_touches_a_cut_or_a_pole(name: str, z: Any) -> None:
    with precision(96):
        assert not finite(getattr(C, name)(z))


def test_square_root_of_a_square_is_not_analytic_across_the_imaginary_axis() -> None:
    with precision(96):
        z = acb(arb(0, 0.5), arb(1, 0.1))
        assert not finite(C.sqrt(C.powi(z, 2)))
        assert not finite(C.powr(C.powi(z, 2), Fraction(1, 3))) and not finite(C.pow(C.powi(z, 2), acb(0.3)))
        assert not finite(C.powi(acb(arb(0, 1), arb(0, 1)), -1)) and not finite(C.div(acb(1), acb(arb(0, 1))))


def test_complex_refuses_kinks() -> None:
    for name in ("abs", "sign", "relu"):
        with pytest.raises(NotAnalytic):
            getattr(C, name)(acb(1))
    for name in ("max", "min"):
        with pytest.raises(NotAnalytic):
            getattr(C, name)(acb(1), acb(2))


def test_undefined_is_sticky() -> None:
    with precision(96):
        for bad in (arb("nan"), arb("inf"), arb(0, "inf"), arb(-1).log()):
            for name in REAL:
                assert not finite(getattr(A, name)(bad)), name
                if name in REFERENCE:
                    assert not finite(getattr(C, name)(acb(bad))), name
            for name in ("max", "min", "pow", "add", "sub", "mul", "hull"):
                assert not finite(getattr(A, name)(bad, arb(1))) and not finite(getattr(A, name)(arb(1), bad)), name
            assert not finite(A.powi(bad, 0)) and not finite(A.powi(bad, 2)) and not finite(A.powr(bad, Fraction(1, 2)))
            assert not finite(SHARP.mul(bad, arb(0, 1))) and not finite(SHARP.div(arb(0, 1), bad))
            assert not finite(A.div(arb(1), bad)) and not finite(C.div(acb(1), acb(bad)))
            assert not finite(SHARP.mul(arb(0), bad)) and not finite(A.mul(arb(0), bad))
            assert not finite(A.choose(bad, arb(0), arb(1), arb(2)))
            for z in (acb(bad), acb(bad, bad), acb(1, bad), acb(0, bad)):
                for w in (acb(0), acb(1), acb(0, 1), acb(arb(0, 1), arb(0, 1))):
                    assert not finite(C.mul(z, w)) and not finite(C.mul(w, z)) and not finite(C.add(z, w))
                    assert not finite(C.div(z, acb(2))) and not finite(C.div(w, z)) and not finite(C.pow(z, w))
                assert not finite(C.powi(z, 0)) and not finite(C.powr(z, Fraction(1, 3)))


def test_powers() -> None:
    with precision(96):
        assert (lower(A.powi(ball(-1, 2), 2)), lower(A.powi(ball(0, 1), 4))) == (0.0, 0.0)
        assert upper(A.powi(ball(-1, 2), 2)) <= 4.0000001
        assert finite(A.powi(arb(0, 1), 2)) and A.powi(arb(0), 0) == 1 and A.powi(arb(0), 3) == 0
        assert not finite(A.powi(arb(0, 1), -2)) and not finite(A.powi(arb(0), -1))
        half, third = Fraction(1, 2), Fraction(1, 3)
        assert lower(A.powr(ball(0, 0.1), half)) == 0.0 and 0.316 < upper(A.powr(ball(0, 0.1), half)) < 0.317
        assert (
            A.powr(arb(0), third) == 0
            and not finite(A.powr(ball(0, 1), -half))
            and not finite(A.powr(ball(-1, 1), third))
        )
        assert lower(CLIP.powr(ball(-1, 1), third)) == 0.0 and not finite(CLIP.powr(ball(-2, -1), third))
        assert not finite(CLIP.powr(ball(-1, 1), -third))
        assert (
            lower(CLIP.sqrt(ball(-1, 4))) == 0.0
            and not finite(CLIP.sqrt(ball(-2, -1)))
            and not finite(A.sqrt(ball(-1, 4)))
        )
        assert lower(A.pow(ball(0, 2), ball(1, 2))) == 0.0 and not finite(A.pow(ball(0, 2), ball(0, 2)))
        assert not finite(A.pow(arb(0), arb(0))) and not finite(A.pow(ball(-1, 1), ball(1, 2)))


def test_kinks_give_hulls() -> None:
    with precision(96):
        assert (lower(A.sign(ball(-1, 2))), upper(A.sign(ball(-1, 2)))) == (-1.0, 1.0)
        assert A.sign(arb(0)) == 0 and A.sign(arb(3, 1)) == 1 and A.sign(arb(-3, 1)) == -1
        assert (lower(A.sign(ball(0, 1))), upper(A.sign(ball(0, 1)))) == (0.0, 1.0)
        assert lower(A.abs(ball(-3, 1))) == 0.0 and lower(A.relu(ball(-3, 1))) == 0.0 and A.relu(arb(-3, 1)) == 0
        assert lower(A.max(ball(-1, 1), ball(0, 0.5))) == 0.0 and upper(A.min(ball(-1, 1), ball(-0.5, 0))) == 0.0
        assert A.choose(arb(2), arb(1), arb(5), arb(7)) == 5 and A.choose(arb(1), arb(2), arb(5), arb(7)) == 7
        assert A.choose(arb(1), arb(1), arb(5), arb(7)).contains(6)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
@drawn(200)
def test_ball_contains_its_ends_and_keeps_its_sign(a: float, b: float) -> None:
    lo, hi = min(a, b), max(a, b)
    for bits in (53, 128):
        with precision(bits):
            x = ball(lo, hi)
            assert x.contains(arb(lo)) and x.contains(arb(hi))
            assert not lo > 0 or x > 0
            assert not hi < 0 or x < 0
            assert not lo >= 0 or x >= 0
            assert lower(x) <= lo and upper(x) >= hi
            if lo == hi:
                assert lower(x) == lo == upper(x)


def test_common_boxes_are_exact() -> None:
    for lo, hi in [(-1, 1), (0, 1), (0, 2), (-2, 2), (-3, 1), (-0.5, 0.5), (-1, 0), (1, 5)]:
        x = ball(lo, hi)
        assert (lower(x), upper(x)) == (lo, hi)


def test_bad_boxes_are_undefined() -> None:
    for lo, hi in [(1, 0), (math.nan, 1), (0, math.nan), (-math.inf, 0), (0, math.inf)]:
        assert not finite(ball(lo, hi))
    assert not finite(span(arb("nan"), arb(1)))


def test_end_points_round_outward() -> None:
    with precision(128):
        third = A.constant(Fraction(1, 3))
        assert Fraction(lower(third)) < Fraction(1, 3) < Fraction(upper(third))
        assert upper(third) == math.nextafter(lower(third), 1)
        assert (upper(arb("nan")), lower(arb("nan")), abs_upper(arb("nan")), abs_lower(arb("nan"))) == (
            math.inf,
            -math.inf,
            math.inf,
            0.0,
        )
        assert upper(arb("1e400")) == math.inf and lower(arb("1e400")) == np.finfo(float).max
        assert upper(arb("1e-400")) == 5e-324 and lower(arb("1e-400")) == 0.0 and lower(arb("-1e-400")) == -5e-324
        assert upper(arb(0, "inf")) == math.inf and lower(arb(0, "inf")) == -math.inf
        assert abs_upper(acb(3, 4)) == 5.0 == abs_lower(acb(3, 4)) and abs_lower(arb(0, 1)) == 0.0


def test_constants() -> None:
    with precision(128), mpmath.workprec(300):
        assert A.constant(Fraction(1, 3)).contains(arb(flint.fmpq(1, 3))) and A.constant(Fraction(2)) == 2
        assert C.constant(Fraction(1, 10)).real.overlaps(A.constant(Fraction(1, 10)))
        for algebra in (A, C):
            for name in ("pi", "e"):
                assert abs(acb(getattr(algebra, name)()).real - exact(getattr(mpmath, name) + 0)).abs_upper() < 1e-30


def test_object_arrays_broadcast_and_scalars_stay_scalars() -> None:
    with precision(96):
        x, y = balls(np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.5, 2.5])), np.array([[arb(1)], [arb(2)]], dtype=object)
        assert A.mul(x, y).shape == (2, 3) and A.max(x, y).shape == (2, 3) and SHARP.mul(x, y).shape == (2, 3)
        assert A.add(x, A.constant(Fraction(1, 3))).shape == (3,) and A.sub(A.pi(), x).shape == (3,)
        for name in REAL:
            assert getattr(A, name)(x).shape == (3,) and isinstance(getattr(A, name)(arb(0.5)), arb)
        assert A.powi(x, 2).shape == A.powr(x, Fraction(1, 2)).shape == A.pow(x, A.e()).shape == (3,)
        assert uppers(x).dtype == np.float64 and (uppers(x) >= [0.5, 1.5, 2.5]).all() and (lowers(x) <= [0, 1, 2]).all()
        assert A.choose(x, A.constant(Fraction(1)), x, y).shape == (2, 3)


def test_precision_is_restored_nested_and_held_by_one_thread() -> None:
    before = flint.ctx.prec
    with pytest.raises(ZeroDivisionError), precision(100):
        with precision(200):
            assert flint.ctx.prec == 200
        assert flint.ctx.prec == 100
        raise ZeroDivisionError
    assert flint.ctx.prec == before
    seen: list[int] = []

    def other() -> None:
        with precision(300):
            seen.append(flint.ctx.prec)

    with precision(90):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        assert seen == [] and flint.ctx.prec == 90
    thread.join()
    assert seen == [300] and flint.ctx.prec == before
    with pytest.raises(AttnfunError), precision(1):
        pass
