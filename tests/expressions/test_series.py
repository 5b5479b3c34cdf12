"""Series coefficients: against mpmath at points, over fat centres against points, and as Taylor sums with remainder."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.errors import AttnfunError
from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import ball, precision
from attnfun.language.interpret import run
from attnfun.language.series import Kink, SeriesAlgebra, series_length
from expressions.random_graphs import graphs, intervals
from products import drawn

arb = flint.arb
ORDER = 8
S, A = SeriesAlgebra(ORDER), BallAlgebra()
FAST = drawn(150)
NAMES = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "expm1", "sqrt", "erf"]
REFERENCE: dict[str, Any] = {
    **{name: getattr(mpmath, name) for name in NAMES},
    "log1p": lambda t: mpmath.log(1 + t),
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "softplus": lambda t: mpmath.log(1 + mpmath.exp(t)),
    "powi": lambda t: t**-3,
    "powr": lambda t: t ** (mpmath.mpf(1) / 3),
}
SLACK = {"tan": 2, "asin": 2, "acos": 2, "atan": 5, "tanh": 15, "erf": 20, "sigmoid": 15, "softplus": 15}
EXTRA = {"powi": (-3,), "powr": (Fraction(1, 3),)}


def coefficients(g: Any, x: Any, y: Any, order: int = ORDER) -> list[Any]:
    algebra = SeriesAlgebra(order)
    with series_length(order):
        return algebra.coefficients(run(g, algebra, {"x": algebra.variable(x), "y": algebra.polynomial([y])})[0])


@pytest.mark.parametrize("name", sorted(REFERENCE))
@pytest.mark.parametrize("c", [0.25, 0.7, 0.9375])
def test_coefficients_at_a_point_agree_with_mpmath(name: str, c: float) -> None:
    with precision(160), mpmath.workprec(600), series_length(ORDER):
        row = S.coefficients(getattr(S, name)(S.variable(arb(c)), *EXTRA.get(name, ())))
        for ours, truth in zip(row, mpmath.taylor(REFERENCE[name], mpmath.mpf(c), ORDER - 1)):
            assert abs(ours - arb(mpmath.nstr(truth, 45))).abs_upper() < 1e-30 * (1 + abs(float(truth)))


@pytest.mark.parametrize("name", sorted(REFERENCE))
@pytest.mark.parametrize("box", [(0.2, 0.3), (0.5, 0.9), (0.125, 0.126)])
def test_coefficients_over_a_fat_centre_contain_those_at_points_and_stay_near(name: str, box: Any) -> None:
    with precision(96), series_length(ORDER):
        fat = S.coefficients(getattr(S, name)(S.variable(ball(*box)), *EXTRA.get(name, ())))
        rows = []
        for i in range(11):
            t = box[0] + (box[1] - box[0]) * i / 10
            thin = S.coefficients(getattr(S, name)(S.variable(arb(min(t, box[1]))), *EXTRA.get(name, ())))
            assert all(f.overlaps(s) for f, s in zip(fat, thin))
            rows.append([float(a) for a in thin])
        for k, f in enumerate(fat):
            column = [row[k] for row in rows]
            spread, size = max(column) - min(column), max(map(abs, column))
            assert float(f.rad()) <= SLACK.get(name, 1.01) * (spread / 2 + 0.02 * size) + 1e-7, k


@FAST
@given(graphs(), intervals(), intervals(), st.floats(0, 1), st.floats(0, 1))
def test_taylor_polynomial_with_remainder_contains_the_value(g: Any, bx: Any, by: Any, s: float, t: float) -> None:
    lo, hi = bx
    x0, x1 = min(hi, lo + s * (hi - lo)), min(hi, lo + t * (hi - lo))
    with precision(128):
        y = arb(by[0])
        try:
            fat, thin = coefficients(g, ball(lo, hi), y), coefficients(g, arb(x0), y)
        except Kink:
            return
        h = arb(x1) - arb(x0)
        total = sum((a * h**k for k, a in enumerate(thin[:-1])), arb(0)) + fat[-1] * h ** (ORDER - 1)
    with precision(300):
        value = run(g, A, {"x": arb(x1), "y": y})[0]
        assert value.is_finite() and total.overlaps(value)
        assert fat[0].overlaps(value) and all(f.overlaps(a) for f, a in zip(fat, thin))


@FAST
@given(graphs(), intervals(), st.floats(-2, 2))
def test_first_coefficient_is_the_slope(g: Any, bx: Any, yv: float) -> None:
    with precision(400):
        y, x, h = arb(yv), arb(bx[0]), arb(2) ** -80
        try:
            row, near = coefficients(g, x, y, 4), coefficients(g, x + arb(0, 2 * h), y, 4)
        except Kink:
            return
        up, down = (run(g, A, {"x": x + d, "y": y})[0] for d in (h, -h))
        assert up.is_finite() and down.is_finite()
        assert ((up - down) / (2 * h) - row[1]).overlaps(near[3] * h**2)  # central difference, third-order remainder


@pytest.mark.parametrize("centre", [arb(0), arb(0, 1), ball(0, 1)])
@pytest.mark.parametrize(
    "op",
    [
        lambda x: S.abs(x),
        lambda x: S.relu(x),
        lambda x: S.sign(x),
        lambda x: S.sqrt(x),
        lambda x: S.log(x),
        lambda x: S.powi(x, -1),
        lambda x: S.powr(x, Fraction(5, 2)),
        lambda x: S.div(x, x),
        lambda x: S.div(S.sin(x), x),
        lambda x: S.max(x, S.constant(Fraction(0))),
        lambda x: S.min(x, S.neg(x)),
        lambda x: S.pow(x, x),
        lambda x: S.asin(S.add(x, S.constant(Fraction(1)))),
        lambda x: S.acos(S.sub(x, S.constant(Fraction(1)))),
        lambda x: S.log1p(S.sub(x, S.constant(Fraction(1)))),
        lambda x: S.tan(S.add(x, S.div(S.pi(), S.constant(Fraction(2))))),
        lambda x: S.mul(S.sqrt(x), S.constant(Fraction(0))),
        lambda x: S.sqrt(S.powi(x, 20)),
        lambda x: S.abs(S.powi(x, 20)),
    ],
)
def test_no_expansion_is_given_where_none_exists(op: Any, centre: Any) -> None:
    with precision(96), series_length(ORDER), pytest.raises(Kink):
        op(S.variable(centre))


def test_integer_powers_are_entire() -> None:
    with precision(96), series_length(ORDER):
        row = S.coefficients(S.powi(S.variable(arb(0)), 3))
        assert [float(a) for a in row] == [0, 0, 0, 1, 0, 0, 0, 0]
        row = S.coefficients(S.powi(S.variable(ball(-1, 1)), 2))
        assert row[0] >= 0 and row[2] == 1 and row[3] == 0
        assert S.coefficients(S.powi(S.variable(arb(0)), 0))[0] == 1


def test_branches_are_taken_when_proved() -> None:
    with precision(96), series_length(ORDER):
        x = S.variable(ball(-2, -1))
        assert S.coefficients(S.abs(x))[1] == -1 and S.coefficients(S.sign(x))[0] == -1
        assert S.coefficients(S.relu(x))[1] == 0 and S.coefficients(S.max(x, S.neg(x)))[1] == -1
        assert S.coefficients(S.min(x, S.neg(x)))[1] == 1


def test_a_cap_that_cuts_is_noticed_and_restored() -> None:
    before = flint.ctx.cap
    with series_length(3):
        assert flint.ctx.cap == 3
        with pytest.raises(AttnfunError):
            S.coefficients(S.exp(S.variable(arb(1))))
    assert flint.ctx.cap == before
    with series_length(50):
        assert len(S.coefficients(S.exp(S.variable(arb(1))))) == ORDER
    with pytest.raises(Kink):
        S.variable(arb("nan"))
    with pytest.raises(AttnfunError), series_length(0):
        pass
    with pytest.raises(AttnfunError):
        SeriesAlgebra(0)


def test_one_coefficient_is_the_value() -> None:
    one = SeriesAlgebra(1)
    with precision(96), series_length(1):
        for name in REFERENCE:
            value = one.coefficients(getattr(one, name)(one.variable(arb(0.5)), *EXTRA.get(name, ())))
            assert len(value) == 1 and value[0].overlaps(getattr(A, name)(arb(0.5), *EXTRA.get(name, ())))
