"""Operations × algebras: every entry of the registry is put to every test, so a new one is tested unasked.

Values are those of Arb at 200 bits, compared with NumPy's and SciPy's. Intervals to test on are found by asking where
the operation is defined.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any

import flint
import numpy as np
import pytest
import scipy.special

import attnfun as af
from attnfun.errors import AttnfunError
from attnfun.language import (
    ArrayAlgebra,
    BallAlgebra,
    Box,
    Builder,
    ComplexBallAlgebra,
    GradientAlgebra,
    Graph,
    Kink,
    SeriesAlgebra,
    Untraceable,
    parse,
    precision,
    run,
    trace,
)
from attnfun.language.definedness import require_defined
from attnfun.language.enclosures import Ball, ball
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.operations import CALLED, DERIVED, OPERATIONS
from attnfun.language.operations.entry import Derived, Operation
from attnfun.language.series import series_length
from products import few

arb, acb = flint.arb, flint.acb
CANDIDATES = ((0.3, 0.9), (0.55, 1.45), (1.25, 2.75), (-0.75, 0.6), (-3.0, 3.0), (4.0, 15.0), (-0.9, -0.2))
SPECIAL = [entry for entry in OPERATIONS.values() if entry.arity == 1]
ANALYTIC = [entry for entry in SPECIAL if entry.rectangle is not None]
BALLS = {
    "plain": BallAlgebra(),
    "cut": BallAlgebra(clip_sqrt=True),
    "sharp": BallAlgebra(sharp=True),
}

each = pytest.mark.parametrize("entry", SPECIAL, ids=lambda entry: entry.name)
each_analytic = pytest.mark.parametrize("entry", ANALYTIC, ids=lambda entry: entry.name)


def dice(entry: Operation | Derived) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(entry.name.encode()))


@lru_cache
def graph_of(name: str, whole: int = 2) -> Graph:
    entry, builder = OPERATIONS[name], Builder()
    return builder.graph([builder.apply(name, builder.var("x"), value=whole if entry.whole else None)])


@lru_cache
def defined_on(name: str) -> tuple[tuple[float, float], ...]:
    """Intervals of the candidates on which the operation is defined and continuous."""
    found = []
    for low, high in CANDIDATES:
        try:
            require_defined(graph_of(name), Box(("x",), (low,), (high,)))
        except AttnfunError:
            continue
        found.append((low, high))
    return tuple(found)


def value(entry: Operation, x: Ball, algebra: Any = BALLS["plain"]) -> Ball:
    return run(graph_of(entry.name), algebra, {"x": x})[0]


def pieces(entry: Operation, count: int) -> list[tuple[float, float]]:
    """Random subintervals, wide and narrow, of where the operation is defined; the ends are among their ends."""
    rng, found = dice(entry), []
    for low, high in defined_on(entry.name):
        found.append((low, high))
        for _ in range(count):
            at, width = rng.uniform(low, high), 10.0 ** rng.uniform(-6, 0)
            found.append((max(low, at - width), min(high, at + width)))
    return found


def inside(entry: Operation, a: float, b: float, count: int = 4) -> list[float]:
    return [a, b, *dice(entry).uniform(a, b, count).tolist()]


@each
def test_every_operation_is_defined_somewhere(entry: Operation) -> None:
    assert defined_on(entry.name)


@each
def test_values_at_points_are_those_of_numpy_and_scipy(entry: Operation) -> None:
    for low, high in defined_on(entry.name):
        x = dice(entry).uniform(low, high, 12)
        floats = run(graph_of(entry.name), ArrayAlgebra(), {"x": x})[0]
        with precision(200):
            exact = np.array([float(value(entry, arb(t))) for t in x.tolist()])
        assert np.abs(exact - floats).max() <= 1e-12 * (1 + np.abs(exact).max())


@each
@pytest.mark.parametrize("algebra", BALLS)
def test_balls_hold_every_value(entry: Operation, algebra: str) -> None:
    sharp = []
    for a, b in pieces(entry, 20):
        with precision(128):
            around = value(entry, ball(a, b), BALLS[algebra])
        with precision(200):
            values = [value(entry, arb(t)) for t in inside(entry, a, b)]
        if around.is_finite():
            assert all(around.overlaps(v) for v in values), (a, b)
            span = float(max(values, key=float)) - float(min(values, key=float))
            sharp.append(float(2 * around.rad()) <= 3 * span + 1e-9)
    assert np.mean(sharp) > 0.6 and len(sharp) > 20


@each
def test_intervals_hold_every_value(entry: Operation) -> None:
    for a, b in pieces(entry, 10):
        found = run(graph_of(entry.name), IntervalAlgebra(), {"x": Interval(np.array(a), np.array(b))})[0]
        with precision(200):
            values = [value(entry, arb(t)) for t in inside(entry, a, b)]
        if found.defined:
            assert all(arb(float(found.lo)) <= v.upper() and v.lower() <= arb(float(found.hi)) for v in values)
        else:
            assert not value(entry, ball(a, b)).is_finite()


@each_analytic
def test_rectangles_hold_their_points_and_the_mean_of_a_circle_is_the_middle(entry: Operation) -> None:
    """A pole or a cut inside a circle would show in the mean of an analytic function over it."""
    rng, seen, turns = dice(entry), 0, np.exp(2j * np.pi * np.arange(64) / 64)
    low, high = min(CANDIDATES)[0] - 1, 4.0
    for _ in range(60):
        middle = complex(rng.uniform(low, high), rng.uniform(-1, 1) * 10.0 ** rng.uniform(-4, 0.3))
        r = 10.0 ** rng.uniform(-4, 0.3)
        with precision(128):
            around = value(entry, acb(arb(middle.real, r), arb(middle.imag, r)), ComplexBallAlgebra())
            if not around.is_finite():
                continue
            values = [value(entry, acb(middle + r / 2 * t), ComplexBallAlgebra()) for t in turns]
            centre = value(entry, acb(middle), ComplexBallAlgebra())
        assert all(v.is_finite() and around.overlaps(v) for v in (*values, centre)), (middle, r)
        size = max(abs(complex(v)) for v in values)
        assert abs(sum(map(complex, values)) / 64 - complex(centre)) <= 1e-9 * size + 1e-300, (middle, r)
        seen += 1
    assert seen >= 5


@each_analytic
def test_rectangles_on_the_real_axis_agree_with_balls(entry: Operation) -> None:
    for a, b in pieces(entry, 5):
        with precision(128):
            real, both = value(entry, ball(a, b)), value(entry, acb(ball(a, b)), ComplexBallAlgebra())
        assert not (real.is_finite() and both.is_finite()) or both.overlaps(acb(real))


@each_analytic
def test_rectangles_around_a_singular_point_are_not_finite(entry: Operation) -> None:
    x = np.linspace(-4, 4, 8001)
    with np.errstate(all="ignore"):
        lost = x[~np.isfinite(run(graph_of(entry.name), ArrayAlgebra(), {"x": x})[0])]
        ends = [] if entry.singular is None else x[np.flatnonzero(entry.singular(x) == 0)]
    rng = dice(entry)
    for at in [*lost[:: max(1, len(lost) // 20)], *ends]:
        r, right, up = 10.0 ** rng.uniform(-3, 0), rng.uniform(-0.9, 0.9), rng.uniform(-0.9, 0.9)
        around = acb(arb(at + right * r, r), arb(up * r, r))
        with precision(128):
            assert not value(entry, around, ComplexBallAlgebra()).is_finite(), (at, r)


@each
def test_taylor_coefficients_over_a_ball_hold_those_at_its_points(entry: Operation) -> None:
    order, expanded, tried = 8, 0, 0
    algebra = SeriesAlgebra(order)

    def row(c: Ball) -> list[Ball] | None:
        try:
            return algebra.coefficients(run(graph_of(entry.name), algebra, {"x": algebra.variable(c)})[0])
        except Kink:
            return None

    for a, b in pieces(entry, 12):
        with precision(128), series_length(order):
            over = row(ball(a, b))
            tried, expanded = tried + 1, expanded + (over is not None)
            for t in inside(entry, a, b, 2):
                at = row(arb(t))
                if over is not None and at is not None:
                    assert all(x.overlaps(y) for x, y in zip(over, at, strict=True)), (a, b, t)
                    gradient = GradientAlgebra(BallAlgebra(), 1)
                    dual = run(graph_of(entry.name), gradient, gradient.variables(["x"], {"x": arb(t)}))[0]
                    slope = gradient.gradient(dual)[0]
                    assert not slope.is_finite() or slope.overlaps(at[1])
    assert expanded >= tried / 3


@each_analytic
def test_taylor_polynomials_are_near_the_function(entry: Operation) -> None:
    order = 10
    algebra = SeriesAlgebra(order)
    for low, high in defined_on(entry.name):
        for t in dice(entry).uniform(low, high, 3).tolist():
            h = arb(1e-5 * min(1.0, abs(t))) * (1 if t < (low + high) / 2 else -1)
            with precision(256), series_length(order):
                found = run(graph_of(entry.name), algebra, {"x": algebra.variable(arb(t))})[0]
                row = algebra.coefficients(found)
                total = sum((c * h**k for k, c in enumerate(row)), arb(0))
                gap = abs(total - value(entry, arb(t) + h))
            assert gap <= 1e-30 * (1 + abs(value(entry, arb(t))))


@each
def test_gradients_over_a_ball_hold_difference_quotients(entry: Operation) -> None:
    for a, b in pieces(entry, 8):
        gradient = GradientAlgebra(BallAlgebra(), 1)
        with precision(128):
            dual = run(graph_of(entry.name), gradient, gradient.variables(["x"], {"x": ball(a, b)}))[0]
            slope = gradient.gradient(dual)[0]
            if slope.is_finite() and b > a:
                rise = value(entry, arb(b)) - value(entry, arb(a))
                assert (slope * (arb(b) - arb(a))).overlaps(rise)


@pytest.mark.parametrize("name", [e.name for e in SPECIAL if e.needs is not None and e.needs.of == "x"])
def test_ends_of_the_domain_are_kept_or_refused(name: str) -> None:
    needs = OPERATIONS[name].needs
    assert needs is not None
    if needs.range.off_zero:
        with pytest.raises(AttnfunError, match=name):
            require_defined(graph_of(name), Box(("x",), (-1.0,), (1.0,)))
        return
    for end, inward in ((needs.range.least, 1), (needs.range.most, -1)):
        if end is None:
            continue
        other = float(end) + 0.25 * inward
        far = Box(("x",), *[(t,) for t in sorted((float(end) - inward * 0.125, other))])
        with pytest.raises(AttnfunError, match=f"the argument of {name} x must"):
            require_defined(graph_of(name), far)
        box = Box(("x",), *[(t,) for t in sorted((float(end), other))])
        if needs.range.closed:
            require_defined(graph_of(name), box)
        else:
            with pytest.raises(AttnfunError, match="must"):
                require_defined(graph_of(name), box)


@each
def test_where_floats_are_lost_the_operation_is_not_defined(entry: Operation) -> None:
    x = np.linspace(-4, 4, 65)
    with np.errstate(all="ignore"):
        lost = x[~np.isfinite(run(graph_of(entry.name), ArrayAlgebra(), {"x": x})[0])]
    for at in lost[:: max(1, len(lost) // 8)]:
        with pytest.raises(AttnfunError):
            require_defined(graph_of(entry.name), Box(("x",), (at - 0.125,), (at + 0.125,)))


# --- names ------------------------------------------------------------------------------------------------------------


def call(name: str) -> tuple[str, list[str]]:
    """The call of a function in text, and its variables."""
    entry = CALLED[name]
    count = len(entry.arguments) if isinstance(entry, Derived) else entry.arity
    names = ["x", "y", "z"][:count]
    whole = ["2"] if isinstance(entry, Operation) and entry.whole else []
    return f"{name}({', '.join([*whole, *names])})", names


@pytest.mark.parametrize("name", CALLED)
def test_text_and_json_come_back(name: str) -> None:
    text, names = call(name)
    text = text.replace("(x", "(x > 0", 1) if name == "where" else text  # a condition is made of comparisons
    graph = parse(text, names)
    assert graph == parse(text.replace(name, CALLED[name].name, 1), names)
    assert parse(graph.texts, names) == graph
    assert Graph.from_json(graph.to_json()) == graph


def ufunc(name: str) -> Callable[..., Any] | None:
    found = [getattr(room, name, None) for room in (scipy.special, scipy.special._ufuncs, np)]
    return next((one for one in found if isinstance(one, np.ufunc)), None)


@pytest.mark.parametrize(("name", "own"), [(own, e.name) for e in CALLED.values() for own in e.ufuncs if ufunc(own)])
def test_ufuncs_are_traced(name: str, own: str) -> None:
    (text, names), function, entry = call(own), ufunc(name), CALLED[own]
    assert function is not None
    takes: dict[int, Callable[..., Any]] = {1: lambda x: function(x), 2: lambda x, y: function(x, y)}
    if isinstance(entry, Operation) and entry.whole:
        takes[1] = lambda x: function(2, x)
    assert trace(takes[len(names)], names) == parse(text, names)


def test_scipy_functions_that_are_no_ufuncs_of_one_value_are_traced() -> None:
    assert trace(lambda x: scipy.special.lambertw(x).real, ["x"]) == parse("lambertw(x)", ["x"])
    assert trace(lambda x: scipy.special.airy(x)[0] + scipy.special.airy(x)[2], ["x"]) == parse(
        "airyai(x) + airybi(x)", ["x"]
    )
    assert trace(scipy.special.zeta, ["x"]) == parse("zeta(x)", ["x"])
    assert trace(lambda x: np.sinc(x) * np.i0(x), ["x"]) == parse("sinc(x)*i0(x)", ["x"])
    with pytest.raises(Untraceable, match="branch"):
        trace(lambda x: scipy.special.lambertw(x, k=-1).real, ["x"])


def test_a_name_before_a_bracket_is_a_function_and_any_other_a_variable() -> None:
    assert parse("gamma*gamma(gamma)", ["gamma"]).variables == ("gamma",)
    with pytest.raises(AttnfunError, match="write zeta"):
        parse("zeta + 1", ["x"])
    with pytest.raises(AttnfunError, match="a variable and cannot be called"):
        parse("x(2)", ["x"])


@pytest.mark.parametrize("text", ["jv(x, 2)", "jv(0.5, x)", "jv(x)", "polygamma(-1, x)", "jv(5000, x)"])
def test_what_is_no_whole_number_is_refused_where_one_is_wanted(text: str) -> None:
    with pytest.raises(AttnfunError, match=r"whole number|arguments"):
        parse(text, ["x"])


# --- whole functions --------------------------------------------------------------------------------------------------

REFERENCES: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("log2", "log10", "exp2", "hypot", "sinc", "logaddexp", "arctan2")},
    **{name: getattr(scipy.special, name) for name in ("digamma", "beta", "ndtr", "ndtri", "gammaln", "zeta")},
    **{f"{c}{n}": getattr(scipy.special, f"{c}{n}") for c in "jyik" for n in (0, 1)},
    "lambertw": lambda x: scipy.special.lambertw(x).real,
    "airyai": lambda x: scipy.special.airy(x)[0],
    "airybi": lambda x: scipy.special.airy(x)[2],
}


@pytest.mark.parametrize("name", REFERENCES)
def test_formulas_are_the_functions_of_their_names(name: str) -> None:
    text, names = call(name)
    x = dict(zip(names, np.random.default_rng(3).uniform(0.1, 0.9, (len(names), 200)), strict=True))
    if name == "zeta":
        x = {"x": x["x"] + 1.2}
    wanted = REFERENCES[name](*x.values())
    assert np.abs(run(parse(text, names), ArrayAlgebra(), x)[0] - wanted).max() <= 3e-14 * np.abs(wanted).max()


@pytest.mark.parametrize("name", few([e.name for e in SPECIAL] + list(DERIVED), 24))
def test_networks_of_every_function_are_proved_and_stand_an_attack(name: str) -> None:
    text, names = call(name)
    places = defined_on(name) if name in OPERATIONS else ((0.3, 0.9),)
    low, high = places[0]
    net = af.compile(text, domain={n: (low, high) for n in names}, eps=1e-3, relative=True)
    assert str(net.certificate.status) == "proved"
    X = np.random.default_rng(5).uniform(low, high, (2000, len(names)))
    wanted = run(parse(text, names), ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(names)})[0]
    bound = net.certificate.error[1]
    assert isfinite(bound) and np.abs(net(X).reshape(-1) - wanted).max() <= bound + 1e-12 * (1 + np.abs(wanted).max())
