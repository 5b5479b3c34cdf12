"""The graph: sharing, exact folding, canonical order, text, JSON; the interpreter over it."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.language import ArrayAlgebra, Builder, Graph, Node, parse, run, run_all
from attnfun.language.graph import BINARY, FUNCTIONS, MAX_NODES, number_text
from attnfun.language.operations import OPERATIONS

NAMES = ("x", "y", "e")
rationals = st.one_of(
    st.integers(-20, 20).map(Fraction),
    st.fractions(min_value=-1000, max_value=1000, max_denominator=1000),
    st.floats(-1e6, 1e6, allow_subnormal=False)
    .filter(lambda value: value == 0 or abs(value) > 1e-100)
    .map(lambda value: Fraction(*value.as_integer_ratio())),
    st.sampled_from([Fraction(10) ** k for k in (-300, -5, 7, 21, 300)]),
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random graphs as a builder makes them, with shared nodes and every operation."""
    builder = Builder()
    nodes = [builder.var(name) for name in NAMES] + [builder.apply("pi"), builder.const(draw(rationals))]
    ops = [*FUNCTIONS, *sorted(BINARY), "neg", "powi", "powr", "const", *("add", "sub", "mul", "div", "neg", "pow") * 4]
    for _ in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(ops))
        pick = st.integers(0, len(nodes) - 1).map(lambda i: nodes[-1 - i])
        try:
            if op == "const":
                nodes.append(builder.const(draw(rationals)))
            elif op == "powi":
                nodes.append(builder.apply(op, draw(pick), value=draw(st.integers(-9, 9))))
            elif op == "powr":
                nodes.append(builder.apply(op, draw(pick), value=draw(st.fractions(-3, 3, max_denominator=12))))
            else:
                whole = draw(st.integers(0, 9)) if op in OPERATIONS and OPERATIONS[op].whole else None
                nodes.append(builder.apply(op, *(draw(pick) for _ in range(2 if op in BINARY else 1)), value=whole))
        except InvalidRequest:
            continue  # a division by zero, a constant out of range
    return builder.graph([nodes[-1], nodes[draw(st.integers(0, len(nodes) - 1))]])


def build(text: str) -> Graph:
    return parse(text, ["x", "y", "z", "a", "b", "c"])


def shown(text: str) -> str:
    graph = build(text)
    return graph.text(graph.outputs[0])


@settings(deadline=None)
@given(graphs())
def test_text_reads_back_as_the_same_graph(graph: Graph) -> None:
    texts = [graph.text(output, limit=20_000) for output in graph.outputs]
    if all("…" not in text for text in texts):
        # `e` is a variable here, so the constant of that name cannot occur
        assert parse(texts, NAMES) == graph


@settings(deadline=None)
@given(graphs())
def test_json_reads_back_as_the_same_graph(graph: Graph) -> None:
    assert Graph.from_json(json.loads(json.dumps(graph.to_json()))) == graph


@settings(deadline=None)
@given(graphs(), st.data())
def test_changed_json_is_refused_or_another_valid_graph(graph: Graph, data: st.DataObject) -> None:
    rows = graph.to_json()
    row = data.draw(st.integers(0, len(rows) - 1))
    junk = st.sampled_from([None, [], {}, "", "sin", -1, 10**9, True, 1.5, "1/0", "2/4", "x y", [0], [[0]], "9" * 700])
    if data.draw(st.booleans()):
        rows[row] = data.draw(junk)
    else:
        rows[row][data.draw(st.integers(0, len(rows[row]) - 1))] = data.draw(junk)
    try:
        again = Graph.from_json(rows)
    except DamagedFile as error:
        assert "\n" not in str(error)
    else:
        assert again.to_json() == rows


@settings(deadline=None)
@given(graphs())
def test_arguments_always_point_backwards_and_nothing_is_stored_twice(graph: Graph) -> None:
    assert all(arg < i for i, node in enumerate(graph.nodes) for arg in node.args)
    assert len(set(graph.nodes)) == len(graph.nodes)
    assert graph.reachable(graph.outputs) == graph


@settings(deadline=None)
@given(graphs(), st.floats(0.1, 2), st.floats(-2, 2))
def test_run_gives_the_outputs_of_run_all(graph: Graph, x: float, y: float) -> None:
    env = {"x": np.float64(x), "y": np.float64(y), "e": np.float64(0.5)}
    every = run_all(graph, ArrayAlgebra(), env)
    np.testing.assert_array_equal(run(graph, ArrayAlgebra(), env), [every[i] for i in graph.outputs])


@given(rationals)
def test_a_constant_prints_exactly(value: Fraction) -> None:
    text, _ = number_text(value)
    graph = build(text)
    assert graph.nodes == (Node("const", (), value),)


@pytest.mark.parametrize(
    "text",
    [
        "-x**2", "(-x)**2", "a - (b - c)", "a - b - c", "a + (b + c)", "a + b + c", "a/(b*c)", "a/b*c", "a*(b/c)",
        "a/b/c", "-(a*b)", "-a*b", "a*-b", "a - -b", "x**-2", "(x**2)**3", "x**y**z", "(x**y)**z", "x**-y", "(a + b)*c",
        "-3*x", "x*-3", "x - -3", "x**0.5", "x**(1/3)", "x**(-1/3)", "1/3*x", "x*(1/3)", "x + 1/3", "-1/3 - x",
        "exp(1/3*x)", "0.75*x", "-(a + b)", "max(x, -1)", "min(max(x, 0), 1)", "1e-7*x", "12345678.9*x", "2**x",
        "(-2)**x", "(1/3)**x", "-x", "--x", "0", "2.5e-8", "1e20", "sin(pi*x)*e", "1234567", "0.001*x",
    ],
)  # fmt: skip
def test_brackets_are_the_fewest_that_keep_the_structure(text: str) -> None:
    assert shown(text) == text


def test_a_rational_prints_as_a_decimal_only_where_that_is_exact_and_short() -> None:
    assert shown("3/4 + x") == "0.75 + x"
    assert shown("x*(2/6)") == "x*(1/3)"
    assert shown("x + 3602879701896397/36028797018963968") == "x + 3602879701896397/36028797018963968"


def test_long_text_is_cut_and_the_work_stays_linear_in_the_graph() -> None:
    builder = Builder()
    node = builder.var("x")
    for _ in range(3000):  # as a tree: 2^3000 leaves
        node = builder.apply("add", builder.apply("sin", node), node)
    graph = builder.graph([node])
    text = graph.text(graph.outputs[0], limit=80)
    assert len(text) == 80 and text.endswith("…")


def test_constants_fold_exactly() -> None:
    assert build("0.1 + 0.2").nodes == (Node("const", (), Fraction(3, 10)),)
    assert build("(1/3)**3*27 - 1").nodes == (Node("const", (), Fraction(0)),)
    assert build("x**(6/3)") == build("x**2")
    assert build("x*1 + 0") == build("x/1 - 0") == build("x**1") == build("x")
    assert [node.op for node in build("x*0").nodes] == ["var", "const", "mul"], "x may be undefined"


def test_folding_stops_before_a_constant_grows_without_bound() -> None:
    graph = build("1.23456789**900")
    assert [node.op for node in graph.nodes] == ["const", "powi"]
    with pytest.raises(InvalidRequest, match="1e300"):
        build("1e200*1e200")


def test_the_order_of_building_does_not_matter() -> None:
    one, two = Builder(), Builder()
    x, y = one.var("x"), one.var("y")
    first = one.graph([one.apply("add", one.apply("sin", x), y)])
    y = two.var("y")
    two.apply("cos", y)
    first_again = two.graph([two.apply("add", two.apply("sin", two.var("x")), y)])
    assert first == first_again and hash(first) == hash(first_again)
    assert first.variables == ("x", "y")


def test_shared_subexpressions_are_one_node() -> None:
    assert len(build("sin(x*y) + sin(x*y)**2").nodes) == 6


def test_json_is_the_documented_list() -> None:
    graph = build("3*x**2 + x**0.5")
    assert graph.to_json() == [
        ["const", "3"], ["var", "x"], ["powi", [1], 2], ["mul", [0, 2]], ["powr", [1], "1/2"], ["add", [3, 4]],
        ["out", [5]],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        None, {}, [], [[]], "x", [["var", "x"]], [["out", [0]]], [["var", "x"], ["out", []]],
        [["var", "x"], ["out", [1]]],
        [["var", "lambda"], ["out", [0]]], [["var", "x" * 101], ["out", [0]]], [["eval", "x"], ["out", [0]]],
        [["var", "x"], ["sin", [1]], ["out", [1]]], [["var", "x"], ["sin", [0, 0]], ["out", [1]]],
        [["var", "x"], ["sin", [True]], ["out", [1]]], [["var", "x"], ["powi", [0], 1001], ["out", [1]]],
        [["var", "x"], ["powi", [0], 2.0], ["out", [1]]], [["var", "x"], ["powi", [0], True], ["out", [1]]],
        [["var", "x"], ["powr", [0], "2"], ["out", [1]]], [["var", "x"], ["powr", [0], "2/4"], ["out", [1]]],
        [["const", "1" + "0" * 301], ["out", [0]]], [["const", "1/0"], ["out", [0]]], [["const", 3], ["out", [0]]],
        [["const", "9" * 10_000], ["out", [0]]], [["const", "1e5"], ["out", [0]]], [["const", "٣"], ["out", [0]]],
        [["var", "x"], ["var", "y"], ["out", [0]]], [["var", "x"], ["var", "x"], ["out", [0, 1]]],
        [["const", "1"], ["const", "2"], ["add", [0, 1]], ["out", [2]]], [["var", "x"]] * (MAX_NODES + 2),
        [["var", "x"], ["out", [0] * 1001]], [["pi", 3], ["out", [0]]], [[["pi"]], ["out", [0]]],
    ],
)  # fmt: skip
def test_json_that_was_not_written_here_is_damaged(data: object) -> None:
    with pytest.raises(DamagedFile):
        Graph.from_json(data)


def test_misuse_of_the_builder_is_an_error_at_once() -> None:
    builder = Builder()
    x = builder.var("x")
    for op, args, value in [("sin", (x, x), None), ("sin", (7,), None), ("foo", (x,), None), ("powi", (x,), None)]:
        with pytest.raises(ValueError):
            builder.apply(op, *args, value=value)
    for bad in ("", "1x", "a b", "λ", "lambda", "None"):
        with pytest.raises(InvalidRequest):
            builder.var(bad)


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(InvalidRequest, match="variable y"):
        run(build("x + y"), ArrayAlgebra(), {"x": np.ones(2)})


@pytest.mark.parametrize("seed", range(6))
def test_nests_of_max_and_min_keep_their_values_and_are_built_again_as_they_are(seed: int) -> None:
    """Nothing that may be undefined is lost: beside x, log(x) in min(x, max(x, log(x))) still asks for x > 0."""
    rng = random.Random(seed)
    parts = ["x", "y", "z", "log(x)", "1/3"]

    def nest(depth: int) -> str:
        if depth == 0 or rng.random() < 0.1:
            return rng.choice(parts)
        return f"{rng.choice(['max', 'min'])}({nest(depth - 1)}, {nest(depth - 1)})"

    for _ in range(60):
        text = nest(rng.randint(1, 6))
        graph, builder = parse(text, ["x", "y", "z"]), Builder()
        at = builder.copy(graph.nodes)
        assert builder.graph([at[o] for o in graph.outputs]) == graph == Graph.from_json(graph.to_json())
        assert ("log" in text) == any(node.op == "log" for node in graph.nodes)
        env = {name: np.array([rng.uniform(0.1, 2) for _ in range(20)]) for name in "xyz"}
        plain = eval_nest(text, env)
        assert np.array_equal(np.broadcast_to(run(graph, ArrayAlgebra(), env)[0], (20,)), plain)


def eval_nest(text: str, env: dict[str, np.ndarray]) -> np.ndarray:
    """max and min of the leaves, read from the text without any graph."""
    if not text.startswith(("max", "min")):
        leaves = {"log(x)": np.log(env["x"]), "1/3": np.full(20, 1 / 3), **env}
        return leaves[text]
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 1:
            one, other = eval_nest(text[4:i], env), eval_nest(text[i + 2 : -1], env)
            return np.maximum(one, other) if text.startswith("max") else np.minimum(one, other)
    raise AssertionError(text)
