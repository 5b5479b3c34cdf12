"""`range_of` contains every value, is tight, and says infinity where nothing is proved."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from attnfun.language import ArrayAlgebra, BallAlgebra, Builder, Graph, parse, precision, run
from attnfun.language.definedness import natural_domain
from attnfun.language.domain import Box
from attnfun.language.ranges import range_of
from expressions.random_graphs import graphs
from products import drawn

CASES = {
    "affine": ("3*x - 2*y + 1", "x=-1:1;y=0:2", -6.0, 4.0),
    "square": ("x**2", "x=-1:2", 0.0, 4.0),
    "difference of squares": ("(x - y)**2 + (y - z)**2", "x=0:1;y=0:1;z=0:1", 0.0, 2.0),
    "dependency": ("x*(1 - x)", "x=0:1", 0.0, 0.25),
    "two variables": ("x*y - x*x", "x=0:1;y=0:1", -1.0, 0.25),
    "wave": ("sin(x)*cos(y)", "x=-4:4;y=-1:1", -1.0, 1.0),
    "root": ("sqrt(x)", "x=0:1", 0.0, 1.0),
    "root of a sum of squares": ("sqrt(x**2 + y**2)", "x=-3:1;y=-4:4", 0.0, 5.0),
    "kinks": ("max(x, -2*x) - abs(x - 1)", "x=-1:2", -1.0, 1.0),
    "logarithm": ("log(x)", "x=1e-6:1", math.log(1e-6), 0.0),
    "far from 0": ("x - y", "x=1e6:1000001;y=1e6:1000001", -1.0, 1.0),
    "nine variables": (
        "G*m1*m2/((x2-x1)**2+(y2-y1)**2+(z2-z1)**2)",
        "m1=1:2;m2=1:2;G=1:2;x1=3:4;x2=1:2;y1=3:4;y2=1:2;z1=3:4;z2=1:2",
        1 / 27,
        8 / 3,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_ranges_contain_the_true_one_and_little_more(name: str) -> None:
    text, domain, low, high = CASES[name]
    box = Box.parse(domain)
    ((a, b),) = range_of(parse(text, box.names), box)
    slack = 0.03 * (high - low)
    assert low - slack <= a <= low + 1e-15 * abs(low)
    assert high - 1e-15 * abs(high) <= b <= high + slack


@pytest.mark.parametrize("tolerance", [0.3, 1e-3])
@pytest.mark.parametrize("budget", [1, 40, 4000])
def test_any_budget_gives_a_valid_range(tolerance: float, budget: int) -> None:
    box = Box.parse("x=-2:2;y=-1:3")
    graph = parse("x*y*sin(x*y) - x*x*exp(-y)", box.names)
    X = box.probe(20_000, np.random.default_rng(1))
    values = run(graph, ArrayAlgebra(), {"x": X[:, 0], "y": X[:, 1]})[0]
    ((a, b),) = range_of(graph, box, tolerance, budget)
    assert a <= float(np.min(values)) and float(np.max(values)) <= b
    assert math.isfinite(a) and math.isfinite(b)


@pytest.mark.parametrize(("text", "value"), [("3", 3.0), ("pi", math.pi), ("sqrt(2)", math.sqrt(2)), ("1/3", 1 / 3)])
def test_constants(text: str, value: float) -> None:
    box = Box.parse("x=0:1;y=0:1")
    ((a, b),) = range_of(parse(text, box.names), box)
    assert a <= value <= b and b - a <= 4 * math.ulp(value)


def test_a_constant_among_other_outputs_and_variables_nobody_uses() -> None:
    box = Box.parse("x=0:1;unused=-1e9:1e9;y=2:3")
    (_, (low, high), (a, b)) = range_of(parse(["x + y", "pi", "y*y"], box.names), box)
    assert low <= math.pi <= high and high - low < 1e-14
    assert 3.9 <= a <= 4 and 9 <= b <= 9.1


def test_a_function_that_only_looks_as_if_it_varied() -> None:
    box = Box.parse("x=0:1")
    ((a, b),) = range_of(parse("sin(x)**2 + cos(x)**2", box.names), box, budget=200)
    assert a <= 1 <= b and b - a < 0.5


@pytest.mark.parametrize(
    ("text", "domain", "low", "high"),
    [
        ("1/x", "x=-1:1", False, False),
        ("log(x)", "x=0:1", False, None),
        ("1/(x*x)", "x=0:1", None, False),
        ("tan(x)", "x=0:2", False, False),
    ],
)
def test_where_nothing_is_proved_the_end_is_infinite(
    text: str, domain: str, low: bool | None, high: bool | None
) -> None:
    box = Box.parse(domain)
    ((a, b),) = range_of(parse(text, box.names), box)
    assert low is None or math.isfinite(a) is low
    assert high is None or math.isfinite(b) is high


def test_a_spike_that_samples_do_not_see_is_in_the_range() -> None:
    box = Box.parse("x=-1:1")
    ((a, b),) = range_of(parse("exp(-((x - 0.123456)*10000)**2)", box.names), box)
    assert a <= 0 and b >= 1


def test_the_domain_of_a_root_is_taken_for_granted_but_not_of_a_logarithm() -> None:
    """Arguments of roots are known to be nonnegative (the target is proved defined first); the ball may dip below."""
    box = Box.parse("x=0:1;y=0:1")
    ((a, b),) = range_of(parse("sqrt(x*x - 2*x*y + y*y)", box.names), box)
    assert a <= 0 and 1 <= b < 1.5


@drawn(60)
@given(graphs(("x", "y"), depth=4), st.integers(0, 1000))
def test_random_expressions_stay_in_their_ranges(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(-2, 2, 2)
    size = 10.0 ** rng.uniform(-3, 0.5, 2)
    box = Box(("x", "y"), tuple(corner), tuple(corner + size))
    ((a, b),) = range_of(graph, box, budget=200)
    assert a <= b
    X = box.probe(30, rng)
    point = np.frompyfunc(arb, 1, 1)
    with precision(128):
        values = run(graph, BallAlgebra(), {"x": point(X[:, 0]), "y": point(X[:, 1])})[0]
        for value in np.ravel(np.asarray(values, dtype=object)):
            if value.is_finite():
                assert value >= a or value.overlaps(arb(a)) or a == -math.inf
                assert value <= b or value.overlaps(arb(b)) or b == math.inf


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("sqrt(u)", 0.0, math.inf),
        ("sqrt(2*u)", 0.0, math.inf),
        ("asin(1 - 4*u)", 0.0, 0.5),
        ("log(3 - u/2)", -math.inf, 6.0),
        ("sqrt(u) + acos(u)", 0.0, 1.0),
        ("sqrt(u**2) + 1/u", -math.inf, math.inf),
    ],
)
def test_the_natural_domain_holds_every_point_where_the_function_is_defined(text: str, low: float, high: float) -> None:
    assert natural_domain(parse(text, ["u"])) == (low, high)


def test_the_natural_domain_of_shared_sums_is_read_in_one_pass() -> None:
    builder = Builder()
    u = builder.var("u")
    for _ in range(60):
        u = builder.apply("add", u, u)
    assert natural_domain(builder.graph([builder.apply("sqrt", u)])) == (0.0, math.inf)


def test_an_end_past_every_double() -> None:
    """The root ends at u = −1e400, which no double is: rounded outward it is no end at all."""
    assert natural_domain(parse("sqrt(1e-200*u + 1e200)", ["u"])) == (-math.inf, math.inf)
    assert natural_domain(parse("sqrt(1e200 - 1e-200*u)", ["u"])) == (-math.inf, math.inf)
