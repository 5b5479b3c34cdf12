"""Pieces: what they are joined to is the same function, exactly, and what meets is found to be continuous."""

import math
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.language import Graph, parse
from attnfun.language.arrays import values_at
from attnfun.language.domain import Box
from attnfun.language.graph import JUMPS, Builder
from attnfun.language.pieces import at_rational, lowered
from attnfun.language.switches import switches, value_at
from attnfun.language.vanishing import rational
from products import drawn

NAMES = ("x", "y")
BOX = Box(NAMES, (-2.0, -2.0), (2.0, 2.0))
EIGHTHS = [Fraction(k, 8) for k in range(-16, 17)]
POINTS = [(x, y) for x, y in product(EIGHTHS[::2], EIGHTHS[1::4])]
POINTS += [(t, t) for t in EIGHTHS] + [(t, -t) for t in EIGHTHS] + [(t, t * t) for t in EIGHTHS[8:-8]]

SMOOTH = [
    "x",
    "y",
    "1",
    "x**2",
    "x*y",
    "1 - x",
    "x - y",
    "2*x + y",
    "x**2 + y**2",
    "(x - 1)*(y + 1)",
    "0",
    "abs(x)",
    "max(x, y)",
]
TESTS = [
    *("x > 0", "x < 1", "y >= -0.5", "x < y", "x + y > 0.5", "x**2 + y**2 < 1", "abs(x) < 1", "x*y > 0", "y > x**2"),
    *("x == 0.25", "x != y", "-1 < x <= 1", "x % 1 < 0.5", "floor(x) == 0", "2*x - y <= 0", "x == x", "x > 5"),
]
PARTS = [
    "floor(x)",
    "x % 1",
    "round(2*x)",
    "sign(x - y)",
    "floor(x + y)",
    "sign(x)",
    "ceil(y)",
    "y // 0.5",
    "heaviside(x, 1)",
]


def formulas(depth: int) -> Any:
    """Random targets made of pieces, as text; most of them jump."""
    leaf = st.sampled_from(SMOOTH + PARTS)
    if not depth:
        return leaf
    inner = formulas(depth - 1)
    tests = st.recursive(
        st.sampled_from(TESTS).map(lambda c: f"({c})"),
        lambda c: st.one_of(
            st.tuples(c, st.sampled_from("&|"), c).map(lambda p: f"({' '.join(p)})"), c.map(lambda c: f"(~{c})")
        ),
        max_leaves=3,
    )
    choices = st.tuples(tests, inner, inner).map(lambda p: f"where({p[0]}, {p[1]}, {p[2]})")
    joined = st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
    wrapped = st.tuples(st.sampled_from(["abs({})", "max({}, 0)", "min({}, x)", "({})**2"]), inner).map(
        lambda p: p[0].format(p[1])
    )
    return st.one_of(choices, choices, joined, wrapped)


def exactly(graph: Graph, x: Fraction, y: Fraction) -> tuple[Fraction, bool]:
    """The value in rational arithmetic, and whether a sign vanishes on the way."""
    values: list[Fraction] = []
    open_ = False
    for node in graph.nodes:
        args = [values[a] for a in node.args]
        op = node.op
        if op == "var":
            value = x if node.value == "x" else y
        elif op == "const":
            value = Fraction(node.value)  # type: ignore[arg-type]
        elif op == "powi":
            value = args[0] ** int(node.value)  # type: ignore[arg-type]
        elif op == "where":
            value = args[1] if args[0] > 0 else args[2]
        else:
            open_ |= op == "sign" and args[0] == 0
            value = Fraction(FUNCTIONS[op](*args))
        values.append(value)
    return values[graph.outputs[0]], open_


FUNCTIONS: dict[str, Any] = {
    "neg": lambda a: -a, "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "abs": abs, "max": max, "min": min, "floor": math.floor, "round": round,
    "sign": lambda a: (a > 0) - (a < 0), "relu": lambda a: max(a, 0),
}  # fmt: skip


@drawn(160)
@given(formulas(2), st.sampled_from([0.0, 0.0, 0.5, 4.0]))
def test_what_pieces_are_joined_to_is_the_same_function_exactly(text: str, slack: float) -> None:
    """Rational arithmetic at points that lie on the surfaces, too; where a sign is left it may have its own value."""
    asked = parse(text, NAMES)
    found = lowered(asked, BOX, slack)
    for x, y in POINTS:
        mine, jumping = exactly(found.graph, x, y)
        if jumping or any(at_place(point.coordinate, x, y) == point.at for point in found.points):
            continue
        assert abs(mine - exactly(asked, x, y)[0]) <= found.gap, (text, x, y)


def at_place(coordinate: Graph, x: Fraction, y: Fraction) -> Fraction:
    return exactly(coordinate, x, y)[0]


CONTINUOUS = [
    ("where(x < 0, 1 + x, 1 - x)", "x=-1:1"),
    ("where(abs(x) < 1, x**2/2, abs(x) - 0.5)", "x=-3:3"),
    ("where(x < 1, 0.1*x, where(x < 3, 0.1 + 0.2*(x - 1), 0.5 + 0.4*(x - 3)))", "x=0:5"),
    ("where(x < 0, 0, where(x > 1, 1, 3*x**2 - 2*x**3))", "x=-1:2"),
    ("where(x <= 0, exp(x), 1 + x)", "x=-1:1"),
    ("abs(x % 2 - 1)", "x=-3:7"),
    ("abs((x + y) % 2 - 1)", "x=0:2;y=0:3"),
    ("x*sign(x)", "x=-1:1"),
    ("(x - y)*sign(x - y)", "x=-1:1;y=-1:1"),
    ("(x - floor(x))*(1 - (x - floor(x)))", "x=0:3"),
    ("where(x < y, x**2, y**2)", "x=-1:1;y=-1:1"),
    ("where(x**2 + y**2 < 1, (x**2 + y**2)/2, sqrt(x**2 + y**2) - 0.5)", "x=-2:2;y=-2:2"),
    ("where(x**2 + y**2 <= 1, 1 - x**2 - y**2, 0)", "x=-2:2;y=-2:2"),
    ("where((abs(x) < 1) & (abs(y) < 1), (1 - abs(x))*(1 - abs(y)), 0)", "x=-2:2;y=-2:2"),
    ("where((x < -1) | (x > 1), x**2 - 1, 0)", "x=-2:2"),
    ("where(x*y > 0, x*y, -x*y)", "x=-1:1;y=-1:1"),
    ("where(y > sin(x), y, sin(x))", "x=-3:3;y=-1:1"),
    ("where(x > 1, log(x), 0)", "x=0:3"),
    ("where(x >= 0, sqrt(x), 0)*exp(y)", "x=-1:1;y=0:1"),
    ("where(sin(x) > 0.5, sin(x), 0.5)", "x=0:6"),
    ("where(x < 0.1, x/0.1, where(x < 0.3, 1, (1 - x)/0.7))", "x=0:1"),
    ("where(x % 1 < 0.5, x % 1, 1 - x % 1)", "x=0:3"),
    ("where(x > y + z, x, y + z)**2", "x=-1:1;y=-1:1;z=-1:1"),
    ("where(x < pi, cos(x), -1)", "x=0:5"),
    ("1.0507*where(x > 0, x, 1.67326*(exp(x) - 1))", "x=-4:3"),
]


@pytest.mark.parametrize(("text", "domain"), CONTINUOUS)
def test_what_meets_is_continuous(text: str, domain: str) -> None:
    box = Box.parse(domain)
    asked = parse(text, box.names)
    found = lowered(asked, box)
    assert not any(node.op in JUMPS for node in found.graph.nodes) and not found.points and found.gap < 1e-12
    X = box.probe(2000, np.random.default_rng(3))
    f, g = values_at(asked, box.names, X), values_at(found.graph, box.names, X)
    assert np.allclose(f, g, rtol=0, atol=1e-14 * (1 + np.abs(f)) + found.gap)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("where(x > 0.3, 1, 0)", "x=-1:1"), ("where(x < 0, 1 + x, 1.001 - x)", "x=-1:1"), ("x % 1", "x=0:3"),
        ("where(x > y, x, 2*y)", "x=-1:1;y=-1:1"), ("where(x**2 + y**2 < 1, 1, 0)", "x=-2:2;y=-2:2"),
        ("where(x < pi, cos(x), -0.999999)", "x=0:5"), ("where(x < 0.3, sin(x), 0.29552)", "x=-1:1"),
        ("where(x > 0, where(y > 0, x, 0), y)", "x=-1:1;y=-1:1"), ("abs(x % 2 - 0.9)", "x=0:7"),
        ("where(sin(x) > 0.5, 1, 0)", "x=0:6"), ("where(x*y > 0.5, x, y)", "x=-1:1;y=-1:1"), ("round(x)", "x=0:2"),
    ],
)  # fmt: skip
def test_what_jumps_keeps_a_sign_and_nothing_else(text: str, domain: str) -> None:
    box = Box.parse(domain)
    asked = parse(text, box.names)
    found = lowered(asked, box)
    assert {node.op for node in found.graph.nodes} & JUMPS == {"sign"}
    X = box.sample(2000, np.random.default_rng(3))
    f, g = values_at(asked, box.names, X), values_at(found.graph, box.names, X)
    assert np.allclose(f, g, rtol=0, atol=1e-13)


@pytest.mark.parametrize("low", [0.0, -0.5])
def test_a_place_that_is_not_known_exactly_is_never_passed_over(low: float) -> None:
    """The condition has a double zero, beside an end of the interval or inside; another sign may hide there."""
    box = Box(("x",), (low,), (1.0,))
    found = lowered(parse("where(exp(x) - 1 - x - x/1e31 > 0, x, 5)", ["x"]), box)
    assert any(node.op in JUMPS for node in found.graph.nodes)


@pytest.mark.parametrize(
    ("text", "thin"),
    [
        ("where(max(x, 0) > 0, 1, 0)", False), ("where(max(min(x, 0), x - 0.5) > 0, 1, 0)", False),
        ("where(clip(x, -1, 0.5) >= 0.5, 1, 0)", False), ("where(max(x, 0) == 0, 5, x)", False),
        ("floor(max(x, 0))", True), ("where(max(abs(x), 0.5) > 0.75, 1, 0)", True),
        ("where(2*relu(x) + 1 > 2, 1, 0)", True),
    ],
)  # fmt: skip
def test_a_sign_is_left_only_where_it_vanishes_on_no_measure(text: str, thin: bool) -> None:
    """Elsewhere its value 0 would be another function's on a whole interval."""
    box = Box(("x",), (-1.0,), (1.5,))
    asked = parse(text, ["x"])
    found = lowered(asked, box)
    assert thin == (not any(node.op in ("where", "floor") for node in found.graph.nodes))
    X = box.sample(500, np.random.default_rng(1))
    assert np.array_equal(values_at(asked, ["x"], X), values_at(found.graph, ["x"], X))


def test_steps_that_cancel_leave_their_places() -> None:
    found = lowered(parse("floor(x) + floor(-x)", ["x"]), Box(("x",), (-1.5,), (1.5,)))
    assert sorted(point.at for point in found.points) == [-1, 0, 1]


@pytest.mark.parametrize(
    "text", ["where(x == 0, 5, x)", "where(x >= 1, 3, x)", "x + (x == 0.25)", "where(x > -1, x, 0)"]
)
def test_a_point_with_a_value_of_its_own_is_told(text: str) -> None:
    box = Box(("x",), (-1.0,), (1.0,))
    found = lowered(parse(text, ["x"]), box)
    assert [float(point.at) in (0, 1, 0.25, -1) for point in found.points] == [True]
    assert rational_of(at_rational(parse(text, ["x"]), found.points[0].at)) != rational_of(
        at_rational(found.graph, found.points[0].at)
    )


def rational_of(graph: Graph) -> Fraction | None:
    build = Builder()
    return rational(build, build.copy(graph.nodes)[graph.outputs[0]])


@pytest.mark.parametrize(
    ("text", "roots"),
    [
        ("x - 0.3", ["3/10"]), ("abs(x) - 1", ["-1", "1"]), ("x**3 - x", ["-1", "0", "1"]), ("exp(x) - 1", ["0"]),
        ("(x - 0.1)*(x - 1/3)*(x - 2/7)", ["1/10", "2/7", "1/3"]), ("sqrt(x + 2) - 1.5", ["1/4"]), ("x**2 + 1", []),
        ("x**2", ["0"]), ("cos(pi*x)", ["-3/2", "-1/2", "1/2", "3/2"]),
        ("abs(x)*(x - 1)", ["0", "1"]), ("x/(x - 1)", ["0", "1"]),
    ],
)  # fmt: skip
def test_rational_switches_are_found_exactly(text: str, roots: list[str]) -> None:
    assert switches(parse(text, ["x"]), Fraction(-2), Fraction(2)) == [(Fraction(r), Fraction(r)) for r in roots]


@pytest.mark.parametrize(
    "text",
    [
        "x**2 - 2",
        "sin(5*x)",
        "exp(x) - 2",
        "x**3 - 3*x + 1",
        "tanh(x) - x/2",
        "x**4 - x**2",
        "(x**2 - 2)**2",
        "cos(x) - 1",
    ],
)
def test_between_switches_a_function_has_one_sign(text: str) -> None:
    graph = parse(text, ["x"])
    found = switches(graph, Fraction(-3), Fraction(3))
    assert found is not None and all(a <= b for a, b in found)
    assert all(b < c for (_, b), (c, _) in pairwise(found))
    assert all(float(b - a) < 1e-12 for a, b in found)
    assert all(value_at(graph, a) == 0 for a, b in found if a == b)
    ends = [-3.0, *(float(v) for pair in found for v in pair), 3.0]
    for a, b in zip(ends[::2], ends[1::2], strict=True):
        x = np.linspace(a, b, 1001)[1:-1]
        values = values_at(graph, ["x"], x[:, None])[:, 0]
        assert (values > -1e-15).all() or (values < 1e-15).all()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("exp(x - x)", 1), ("(1 - y**2) + y**2", 1), ("sqrt((1 - y**2) + y**2) - 1", 0),
        ("x/(y + 1) - 2*x/(2*y + 2)", 0),
        ("sin(3*pi/2)", -1), ("cos(7*pi)", -1), ("max(x, x - 1) - x", 0), ("abs(x - y) - abs(y - x)", 0),
        ("0.25**0.5", Fraction(1, 2)),
        ("log(1) + sigmoid(0) + tan(0)", Fraction(1, 2)), ("where(2 > 1, x, y) - x", 0), ("exp(y)*x - x*exp(y)", 0),
        ("x", None), ("sin(x)**2 + cos(x)**2", None), ("1/(x - x)", None), ("sqrt(-1)", None),
        ("log(0)", None), ("sin(1)", None),
    ],
)  # fmt: skip
def test_constants_by_exact_algebra(text: str, value: Any) -> None:
    assert rational_of(parse(text, NAMES)) == value
