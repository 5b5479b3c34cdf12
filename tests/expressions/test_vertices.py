"""Broken lines by their vertices: the same function, at every rational point that is tried, in exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

from attnfun.language.domain import Box
from attnfun.language.graph import Builder, Graph
from attnfun.language.vertices import broken_line

EXACT: dict[str, Callable[..., Fraction]] = {
    "neg": lambda u: -u,
    "abs": abs,
    "relu": lambda u: max(u, Fraction(0)),
    "add": lambda u, v: u + v,
    "sub": lambda u, v: u - v,
    "mul": lambda u, v: u * v,
    "div": lambda u, v: u / v,
    "max": max,
    "min": min,
}


def exactly(graph: Graph, x: Fraction) -> list[Fraction]:
    values: list[Fraction] = []
    for node in graph.nodes:
        given = {"var": x, "const": node.value}.get(node.op)
        values.append(EXACT[node.op](*(values[a] for a in node.args)) if given is None else given)
    return [values[o] for o in graph.outputs]


def drawn(rng: random.Random) -> Graph:
    """Kinks of kinks, with nodes that are shared."""
    b = Builder()
    nodes = [b.var("x")]
    for _ in range(rng.randint(14, 45)):
        op = rng.choice(["abs", "relu", "max", "min", "add", "sub", "mul", "div"])
        u, v = rng.choice(nodes[-4:]), rng.choice(nodes[-6:])
        c = b.const(Fraction(rng.randint(1, 9) * rng.choice([-1, 1]), rng.randint(1, 7)))
        if op in ("abs", "relu"):
            nodes.append(b.apply(op, b.apply("sub", u, c)))
        else:
            nodes.append(b.apply(op, u, c if op in ("mul", "div") or rng.random() < 0.3 else v))
    return b.graph([nodes[-1], rng.choice(nodes)])


def test_a_broken_line_is_the_function_itself() -> None:
    lines = 0
    for seed in range(150):
        rng = random.Random(seed)
        graph, box = drawn(rng), Box(("x",), (rng.uniform(-5, 0),), (rng.uniform(0.1, 5),))
        line = broken_line(graph, box)
        if line is None:  # not shorter
            continue
        lines += 1
        low, high = Fraction(box.low[0]), Fraction(box.high[0])
        for k in range(20):
            x = low + (high - low) * (Fraction(k) if k < 2 else Fraction(rng.random()))
            assert exactly(line, x) == exactly(graph, x), (seed, x)
    assert lines > 30
