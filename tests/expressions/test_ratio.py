"""Quotients continued to a common zero: every algebra contains the exact value, at that point, near it and away."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.language import (
    ArrayAlgebra,
    BallAlgebra,
    Builder,
    ComplexBallAlgebra,
    GradientAlgebra,
    Graph,
    SeriesAlgebra,
    parse,
    precision,
    run,
)
from attnfun.language.enclosures import ball, lower, upper
from attnfun.language.graph import Ratio
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.ratio import opened, taylor
from attnfun.language.series import Kink, series_length
from products import drawn

arb, acb = flint.arb, flint.acb
FAST = drawn(60)

KINDS: dict[str, tuple[str, str, int, int]] = {
    "sine": ("sin(u)", "u", 0, 1),
    "square of a sine": ("sin(u)**2", "u**2", 0, 2),
    "versed sine": ("1 - cos(u)", "u**2", 0, 2),
    "third order": ("u - sin(u)", "u**3", 0, 3),
    "exponential": ("exp(u) - 1", "u", 0, 1),
    "second order exponential": ("exp(u) - 1 - u", "u**2", 0, 2),
    "Bose": ("u", "exp(u) - 1", 0, 1),
    "reciprocal sine": ("u", "sin(u)", 0, 1),
    "tangent": ("tan(u)", "u", 0, 1),
    "hyperbolic tangent": ("u", "tanh(u)", 0, 1),
    "hyperbolic sine": ("sinh(u)", "u", 0, 1),
    "logarithm": ("log(u)", "u - 1", 1, 1),
    "log1p": ("log1p(u)", "u", 0, 1),
    "arc": ("atan(u)", "u", 0, 1),
    "arc sine": ("asin(u)", "u", 0, 1),
    "error function": ("erf(u)", "u", 0, 1),
    "zero left over": ("sin(u)**3", "u**2", 0, 2),
    "several factors": ("sin(3*u)*tanh(u)", "u*expm1(2*u)", 0, 2),
}
NEAR = [0.0, 1e-300, 1e-30, 1e-12, 1e-8, -1e-8, 1e-5, 1e-3, -0.03, 0.1, -0.4, 0.7]


def quotient(name: str) -> Ratio:
    top, bottom, point, order = KINDS[name]
    return Ratio(parse([top, bottom], ["u"]), Fraction(point), order)


def graph_of(ratio: Ratio, argument: str = "x") -> Graph:
    builder = Builder()
    at = builder.copy(parse(argument, ["x"]).nodes)
    return builder.graph([builder.apply("ratio", at[-1], value=ratio)])


def truth(name: str, x: Any) -> Any:
    """The value at the number x (real or complex), in mpmath, with digits enough for any cancellation above."""
    top, bottom, point, order = KINDS[name]
    names = {k: getattr(mpmath, k) for k in ("sin", "cos", "tan", "tanh", "sinh", "exp", "log", "atan", "asin", "erf")}
    ours = names | {"log1p": lambda t: mpmath.log(1 + t), "expm1": mpmath.expm1}

    def side(text: str) -> Any:
        builder = parse(text, ["u"])
        values: list[Any] = []
        for node in builder.nodes:
            args = [values[a] for a in node.args]
            if node.op == "const":
                assert isinstance(node.value, Fraction)
                values.append(mpmath.mpf(node.value.numerator) / node.value.denominator)
            elif node.op == "var":
                values.append(mpmath.mpmathify(x) if x != point else mpmath.mpf(point) + mpmath.mpf(10) ** -60)
            elif node.op == "powi":
                values.append(args[0] ** node.value)
            elif node.op in ("add", "sub", "mul"):
                a, b = args
                values.append(a + b if node.op == "add" else a - b if node.op == "sub" else a * b)
            else:
                values.append(ours[node.op](*args))
        return values[builder.outputs[0]]

    distance = max(float(abs(x - point)), 1e-300) if x != point else 1e-60
    with mpmath.workprec(400 + int(2 * order * -np.log2(min(distance, 1.0)))):
        return +(side(top) / side(bottom))


def exact(value: Any) -> Any:
    """A ball with the number: 60 digits of it were written down."""
    return arb(mpmath.nstr(value, 60)) + arb(0, 1e-50 * (1 + abs(float(value))))


@pytest.mark.parametrize("name", KINDS)
def test_arrays_are_accurate_at_the_point_near_it_and_away(name: str) -> None:
    x = KINDS[name][2] + np.array(NEAR)
    ours = run(graph_of(quotient(name)), ArrayAlgebra(), {"x": x})[0]
    for t, value in zip(x, ours, strict=True):
        expected = float(truth(name, float(t)))
        assert abs(value - expected) <= 2e-14 * max(abs(expected), 1e-3)
    on_complex = run(graph_of(quotient(name)), ArrayAlgebra(), {"x": x.astype(complex)})[0]
    assert np.abs(on_complex - ours).max() <= 1e-13 * np.abs(ours).max()


@pytest.mark.parametrize("name", KINDS)
def test_balls_at_points_contain_the_value_and_are_thin(name: str) -> None:
    with precision(128):
        for t in KINDS[name][2] + np.array(NEAR):
            value = run(graph_of(quotient(name)), BallAlgebra(), {"x": arb(float(t))})[0]
            assert value.overlaps(exact(truth(name, float(t))))
            assert upper(value.rad()) <= 1e-25


@pytest.mark.parametrize("name", KINDS)
@FAST
@given(st.floats(-0.9, 0.9), st.sampled_from([0.0, 1e-14, 1e-9, 1e-3, 0.1, 0.5, 1.0]), st.floats(0, 1))
def test_every_algebra_contains_the_value_at_every_point_of_a_ball(
    name: str, low: float, width: float, where: float
) -> None:
    ratio, point = quotient(name), KINDS[name][2]
    low, high = max(low, -0.95), min(low + width, 0.95)
    left, right = point + low, point + high
    if not right >= left:
        return
    t = min(max(left + where * (right - left), left), right)
    graph = graph_of(ratio)
    with precision(96):
        value, slope = exact(truth(name, t)), taylor(ratio, arb(t), 2)[1]
        for algebra in (BallAlgebra(), BallAlgebra(sharp=True, clip_sqrt=True)):
            found = run(graph, algebra, {"x": ball(left, right)})[0]
            assert found.overlaps(value) or not found.is_finite()
        over: GradientAlgebra[Any] = GradientAlgebra(BallAlgebra(sharp=True), 1)
        dual = run(graph, over, over.variables(["x"], {"x": ball(left, right)}))[0]
        assert dual.partials[0].overlaps(slope) or not dual.partials[0].is_finite()
        interval = run(graph, IntervalAlgebra(), {"x": Interval(np.array(left), np.array(right))})[0]
        if interval.defined:
            assert ball(float(interval.lo), float(interval.hi)).overlaps(value)
        with series_length(4):
            series = SeriesAlgebra(4)
            try:
                fat = series.coefficients(run(graph, series, {"x": series.variable(ball(left, right))})[0])
                thin = series.coefficients(run(graph, series, {"x": series.variable(arb(t))})[0])
            except Kink:
                return
            assert all(a.overlaps(b) for a, b in zip(fat, thin, strict=True))
        z = acb(t, 0.1 * where)
        inside = run(graph, ComplexBallAlgebra(), {"x": acb(ball(left, right), ball(-0.1, 0.1))})[0]
        if inside.is_finite():
            expected = truth(name, mpmath.mpc(t, 0.1 * where))
            assert inside.real.overlaps(exact(expected.real)) and inside.imag.overlaps(exact(expected.imag))
            assert inside.overlaps(run(graph, ComplexBallAlgebra(), {"x": z})[0])


@pytest.mark.parametrize("name", KINDS)
def test_balls_around_the_point_are_finite_and_shrink_with_their_argument(name: str) -> None:
    graph, point = graph_of(quotient(name)), KINDS[name][2]
    with precision(96):
        for r in (0.2, 1e-2, 1e-5, 1e-10):
            for left, right in ((point - r, point + r), (point, point + r), (point + r / 64, point + r)):
                value = run(graph, BallAlgebra(sharp=True), {"x": ball(left, right)})[0]
                assert upper(value) - lower(value) <= 25 * r + 1e-15


@FAST
@given(st.integers(-8, 8), st.integers(1, 4), st.floats(-1, 1), st.floats(0, 1), st.integers(0, 3))
def test_a_common_power_cancels(eighths: int, order: int, low: float, width: float, which: int) -> None:
    """(u-a)^k p / ((u-a)^k q) is p/q: the same numbers from a quotient that has nothing to cancel."""
    a = Fraction(eighths, 8)
    p, q = [("cos(u)", "2 + u"), ("exp(u)", "1 + u*u"), ("u", "cosh(u)"), ("2 + sin(u)", "3 - u")][which]
    factor = f"(u - {eighths}/8)**{order}"
    ratio = Ratio(parse([f"{factor}*({p})", f"{factor}*({q})"], ["u"]), a, order)
    plain = parse(f"({p})/({q})", ["u"])
    with precision(128):
        x = ball(low, low + width)
        value, reference = (
            run(graph_of(ratio), BallAlgebra(), {"x": x})[0],
            run(plain, BallAlgebra(), {"u": x.mid()})[0],
        )
        assert not value.is_finite() or value.overlaps(reference)
        at_point = run(graph_of(ratio), BallAlgebra(), {"x": x.mid()})[0]
        assert at_point.overlaps(reference) and upper(at_point.rad()) < 1e-25
        with series_length(5):
            series = SeriesAlgebra(5)
            ours = series.coefficients(run(graph_of(ratio), series, {"x": series.variable(x.mid())})[0])
            theirs = series.coefficients(run(plain, series, {"u": series.variable(x.mid())})[0])
            assert all(s.overlaps(t) for s, t in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("name", "centre"),
    [("reciprocal sine", acb(arb.pi())), ("Bose", acb(0, 2 * arb.pi())), ("hyperbolic tangent", acb(0, arb.pi()))],
)
def test_no_ball_that_holds_another_zero_of_the_denominator_is_finite(name: str, centre: Any) -> None:
    graph = graph_of(quotient(name))
    with precision(96):
        for r in (1e-9, 0.1, 4.0):
            z = acb(centre.real + arb(0, r), centre.imag + arb(0, r))
            assert not run(graph, ComplexBallAlgebra(), {"x": z})[0].is_finite()
            if centre.imag == 0:
                assert not run(graph, BallAlgebra(), {"x": z.real})[0].is_finite()


@pytest.mark.parametrize("name", ["log1p", "arc sine", "arc", "logarithm"])
def test_no_ball_that_leaves_the_domain_of_a_side_is_finite(name: str) -> None:
    graph, point = graph_of(quotient(name)), KINDS[name][2]
    edge = {"log1p": acb(-1), "arc sine": acb(1), "arc": acb(0, 1), "logarithm": acb(0)}[name]
    with precision(96):
        z = acb(edge.real + arb(0, 0.1), edge.imag + arb(0, 0.1))
        assert not run(graph, ComplexBallAlgebra(), {"x": z})[0].is_finite()
        if name != "arc":
            assert not run(graph, BallAlgebra(), {"x": edge.real + arb(0, 0.1)})[0].is_finite()
    assert point in (0, 1)


def test_gradients_of_arrays_know_the_slope_at_the_point_and_away() -> None:
    over: GradientAlgebra[Any] = GradientAlgebra(ArrayAlgebra(), 1)
    x = np.array([0.0, 1e-9, 0.25, -2.0, 5.0])
    dual = run(graph_of(quotient("sine")), over, over.variables(["x"], {"x": x}))[0]
    expected = [0.0, -1e-9 / 3, *(np.cos(t) / t - np.sin(t) / t**2 for t in x[2:])]
    assert dual.partials[0] == pytest.approx(expected, rel=1e-13)


def test_the_text_and_the_plain_graph_are_the_quotient_as_written() -> None:
    graph = graph_of(quotient("square of a sine"), "3*x - 1")
    plain, at = graph.plain()
    assert graph.text(graph.outputs[0]) == "sin(3*x - 1)**2/(3*x - 1)**2"
    assert plain.text(at[graph.outputs[0]]) == graph.text(graph.outputs[0])
    assert plain.reachable(plain.outputs) == parse("sin(3*x - 1)**2/(3*x - 1)**2", ["x"])
    assert {node.op for node in opened(graph).nodes} >= {"ratio", "sin", "div"}


def test_no_file_can_hold_a_ratio() -> None:
    from attnfun.errors import DamagedFile

    with pytest.raises(DamagedFile, match="no operation"):
        Graph.from_json([["var", "x"], ["ratio", [0]], ["out", [1]]])
