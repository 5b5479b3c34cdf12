"""ReLU networks read off a graph: forms are exact, levels are right, other graphs are refused."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import pytest

from attnfun.language import Graph, parse
from attnfun.language.relu_units import read_units

NAMES = ("x", "y", "z")
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": lambda a, _: -a,
}


def exact(graph: Graph, point: dict[str, Fraction]) -> list[Fraction]:
    """Every node in rational arithmetic, written for this test alone."""
    values: list[Fraction] = []
    for node in graph.nodes:
        a = [values[i] for i in node.args]
        if node.op == "const":
            assert isinstance(node.value, Fraction)
            values.append(node.value)
        elif node.op == "var":
            values.append(point[str(node.value)])
        elif node.op == "relu":
            values.append(max(a[0], Fraction(0)))
        else:
            values.append(BINARY[node.op](a[0], a[-1]))
    return values


TARGETS = (
    "relu(x)",
    "3*relu(2*x - y/3 + 0.1) - relu(relu(x) - relu(-x) + z)/7 + x",
    "relu(-(relu(x + y)*2 - 1)) - relu(x + y)*0.25 + relu(-3) + relu(5)*x",
    "relu(relu(relu(x - y) - z/3) + relu(y)*(1/7)) - (x - (y - z))",
)


@pytest.mark.parametrize("text", TARGETS)
def test_forms_are_exact(text: str) -> None:
    graph = parse(text, NAMES)
    network = read_units(graph)
    assert network is not None
    rng = np.random.default_rng(0)
    for _ in range(30):
        point = {n: Fraction(float(rng.normal())) for n in NAMES}
        values = exact(graph, point)
        pairs = [(unit.form, unit.argument) for unit in network.units]
        for form, output in pairs + list(zip(network.outputs, graph.outputs, strict=True)):
            assert sum((w * values[i] for i, w in form.weights.items()), form.constant) == values[output]


@pytest.mark.parametrize("text", TARGETS)
def test_matrices_compute_the_same(text: str) -> None:
    network = read_units(parse(text, NAMES))
    assert network is not None
    dense = network.dense(NAMES)
    X = np.random.default_rng(1).normal(size=(50, 3))
    for x, value in zip(X, dense.values(X), strict=True):
        graph = parse(text, NAMES)
        true = exact(graph, {n: Fraction(float(v)) for n, v in zip(NAMES, x, strict=True)})[graph.outputs[0]]
        assert abs(float(true) - value[0]) <= 1e-13 * (1 + abs(value[0]))


def test_levels_are_the_hidden_layers() -> None:
    network = read_units(parse("relu(relu(x) + relu(y - x)) + relu(z)", NAMES))
    assert network is not None
    assert sorted(network.levels.values()) == [1, 1, 1, 2]


@pytest.mark.parametrize(
    "text", ["x + y", "relu(3)*x", "relu(x)*y", "relu(x)*relu(x)", "abs(x)", "relu(pi*x)", "x/relu(x)"]
)
def test_other_graphs_are_no_relu_networks(text: str) -> None:
    assert read_units(parse(text, NAMES)) is None


def test_a_long_chain_needs_no_recursion() -> None:
    text = "relu(x)"
    for k in range(180):
        text = f"relu({text} - {k}/1000)"
    network = read_units(parse(text, NAMES))
    assert network is not None
    assert max(network.levels.values()) == 181
