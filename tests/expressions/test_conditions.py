"""Comparisons, where, floor and what is made of them: Python's and NumPy's values, whichever way they come in."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnfun.errors import InvalidRequest
from attnfun.language import BallAlgebra, Kink, SeriesAlgebra, parse, precision, run, trace
from attnfun.language.arrays import values_at
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box
from attnfun.language.enclosures import arb, ball
from attnfun.language.graph import Graph
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.series import series_length

NAMES = ("x", "y")
# every ordering of x and y, zeros, halves and whole numbers among them
GRID = np.array([(x, y) for x in np.arange(-3, 3.1, 0.5) for y in (-1.0, -0.5, 0.0, 0.25, 1.0, 2.0)])
CONDITIONS = [
    "x > 0",
    "x < y",
    "x >= y",
    "0 <= x",
    "x == y",
    "x != 0.5",
    "-1 < x <= 1",
    "x < y < 2 < x + 3",
    "x == y == 0",
]


def python(text: str) -> np.ndarray[Any, Any]:
    """Python's own value of the text at every point."""
    return np.array([float(eval(text, {"__builtins__": {}}, {"x": x, "y": y})) for x, y in GRID.tolist()])


def ours(text: str) -> np.ndarray[Any, Any]:
    return values_at(parse(text, NAMES), NAMES, GRID)[:, 0]


def combined(depth: int) -> Any:
    """Random conditions as text."""
    leaf = st.sampled_from(CONDITIONS).map(lambda c: f"({c})")
    if not depth:
        return leaf
    inner = combined(depth - 1)
    pairs = st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({' '.join(p)})")
    return st.one_of(leaf, pairs, inner.map(lambda c: f"(not {c})"))


@given(combined(3))
def test_conditions_have_pythons_values(text: str) -> None:
    assert np.array_equal(ours(text), python(text))
    assert np.array_equal(ours(f"x*y if {text} else x - 2"), python(f"x*y if {text} else x - 2"))
    assert np.array_equal(ours(f"where({text}, x, 7)"), python(f"x if {text} else 7"))


@given(combined(3))
def test_signs_of_logic_mean_the_words(text: str) -> None:
    signs = text.replace(" and ", " & ").replace(" or ", " | ").replace("not ", "~")
    assert parse(signs, NAMES) == parse(text, NAMES)


@given(combined(3))
def test_text_and_json_give_the_graph_back(text: str) -> None:
    graph = parse(f"where({text}, sqrt(x), floor(y)) + {text}", NAMES)
    if len(graph.texts[0]) < 200:
        assert parse(graph.texts[0], NAMES) == graph
    assert Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("floor(x)", np.floor), ("ceil(x)", np.ceil), ("round(x)", np.round),
        ("trunc(x)", np.trunc),
        ("x % 1", lambda x: x % 1), ("x % 0.75", lambda x: x % 0.75), ("-x % 2", lambda x: -x % 2),
        ("x // 2", lambda x: x // 2), ("x % -2", lambda x: x % -2),
        ("heaviside(x, 0.5)", lambda x: np.heaviside(x, 0.5)), ("sign(x)", np.sign),
        ("1 if x < 0 else 2 if x < 1 else 3", lambda x: np.where(x < 0, 1, np.where(x < 1, 2, 3))),
    ],
)  # fmt: skip
def test_values_are_numpys_at_jumps_too(text: str, function: Callable[..., Any]) -> None:
    x = np.unique(GRID[:, 0])
    graph = parse(text, ["x"])
    assert np.array_equal(values_at(graph, ["x"], x[:, None])[:, 0], function(x))
    traced = trace(function, ["x"])
    assert np.array_equal(values_at(traced, ["x"], x[:, None])[:, 0], function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: np.where((x > 0.3) & (y > 0) | ~(x < 1), x, y),
        lambda x, y: np.piecewise(x, [x < 0, x >= 1], [lambda t: -t, lambda t: t**2]),
        lambda x, y: np.piecewise(x, [x < 0, x < 1], [1, 2, 3]),
        lambda x, y: np.select([x < 0, x < 1], [x, y * 2], default=5.0),
        lambda x, y: np.select([x == y], [3]),
        lambda x, y: np.logical_xor(x > 0, y > 0) * 2 + np.logical_not(x > y) * 3,
        lambda x, y: ((x > 0) ^ (y > 0)) * 1.0 + (x >= 0).astype(float) - (x != y) * 1.0,
        lambda x, y: np.round(x, 1) + np.around(y) + np.rint(x) + np.fix(y) + np.fmod(x, 2) + np.floor_divide(x, 2),
        lambda x, y: np.where(np.greater(x, y), np.ceil(x), np.mod(y, 2)),
        lambda x, y: (x > 0) * (y > 0) * 1.0,
        lambda x, y: y < 0.25,
    ],
)  # fmt: skip
def test_numpys_functions_are_traced(function: Callable[..., Any]) -> None:
    seen = np.asarray(function(GRID[:, 0], GRID[:, 1]), dtype=np.float64)
    assert np.allclose(values_at(trace(function, NAMES), NAMES, GRID)[:, 0], seen, rtol=1e-15, atol=0)


def test_a_vector_is_compared_entry_by_entry() -> None:
    graph = trace(lambda v: np.where(v > 0.5, v, 0).sum(), NAMES)
    assert graph == parse("where(x > 0.5, x, 0) + where(y > 0.5, y, 0)", NAMES)


@pytest.mark.parametrize("text", ["where(1 > 0, x, log(-1))", "where(2 <= 1, 1/0.0001, x)", "x if not 1 == 2 else 5"])
def test_a_branch_that_is_never_taken_is_gone(text: str) -> None:
    assert parse(text, ["x"]) == parse("x", ["x"])


def test_nothing_leaks_from_the_branch_that_is_not_taken() -> None:
    graph = parse("where(x > 0, log(x), 1/x)", ["x"])
    values = values_at(graph, ["x"], np.array([[-2.0], [1.0], [np.nan]]))[:, 0]
    assert values[0] == -0.5 and values[1] == 0 and np.isnan(values[2])
    with precision(64):
        (right,), (left,), (open_,) = (
            run(graph, BallAlgebra(), {"x": ball(*ends)}) for ends in ((1, 2), (-2, -1), (-1, 1))
        )
    assert right.contains(arb(0)) and left.contains(arb("-0.75")) and not open_.is_finite()
    (interval,) = run(
        graph, IntervalAlgebra(), {"x": Interval(np.array([1.0, -2.0, -1.0]), np.array([2.0, -1.0, 1.0]))}
    )
    assert interval.defined.tolist() == [True, True, False]


@given(st.fractions(-5, 5, max_denominator=16), st.fractions(0, 3, max_denominator=16), st.fractions(0, 1))
def test_steps_of_balls_hold_every_value(low: Fraction, width: Fraction, part: Fraction) -> None:
    """Ends that are whole numbers, or halves, among them."""
    inside = low + part * width
    with precision(64):
        x = ball(float(low), float(low + width))
        for op in ("floor", "round", "sign"):
            exact = {"floor": inside // 1, "round": round(inside), "sign": (inside > 0) - (inside < 0)}[op]
            (value,) = run(parse(f"{op}(x)", ["x"]), BallAlgebra(), {"x": x})
            assert value.contains(arb(int(exact)))


def test_series_take_a_branch_that_is_proved_and_raise_a_kink_at_a_jump() -> None:
    with precision(64), series_length(3):
        algebra = SeriesAlgebra(3)
        for text, at, expected in [
            ("where(x > 1, x**2, 5)", 2, [4, 4, 1]),
            ("floor(x)*x", 2.5, [5, 2, 0]),
            ("round(x)", 2.25, [2, 0, 0]),
        ]:
            (series,) = run(parse(text, ["x"]), algebra, {"x": algebra.variable(arb(at))})
            assert [float(c.mid()) for c in algebra.coefficients(series)] == expected
        for text, at in [("where(x > 1, x**2, 5)", 1), ("floor(x)", 2), ("round(x)", 2.5)]:
            with pytest.raises(Kink):
                run(parse(text, ["x"]), algebra, {"x": algebra.variable(arb(at))})


@pytest.mark.parametrize(
    ("text", "defined"),
    [
        ("where(x > 0.5, log(x), 0)", True), ("where(x > -0.5, log(x), 0)", False),
        ("where(x < 2, x, log(-1 - x**2))", True),
        ("where(x > 0.5, log(x), 0) + log(x)", False), ("where(x > 0.1 and x < 0.9, 1/(x*(x - 1)), 2)", True),
        ("where(x > 0.1 or x < -0.2, 1/x, 2)", True), ("where(x > 0.1 or x < 0.2, 1/x, 2)", False),
    ],
)  # fmt: skip
def test_a_branch_is_asked_to_be_defined_where_it_is_taken(text: str, defined: bool) -> None:
    graph, box = parse(text, ["x"]), Box(("x",), (-1.0,), (1.0,))
    if defined:
        require_defined(graph, box, continuous=False)
    else:
        with pytest.raises(InvalidRequest):
            require_defined(graph, box, continuous=False)
