"""Kinks that are none: abs, max, min, relu and sign whose branch is decided on the whole box.

Exact rewrites with a side condition proved in balls, e.g. |g| = g where g ≥ 0 on the box. They turn a target that only
looks kinked into an analytic one; what stays undecided stays in the graph.
"""

from __future__ import annotations

import numpy as np

from attnfun.certify.view import Array
from attnfun.language import BallAlgebra, Builder, Graph, run_all
from attnfun.language.domain import sub_boxes
from attnfun.language.enclosures import balls, lowers, uppers

KINKS = frozenset({"abs", "max", "min", "relu", "sign"})


def has_kinks(graph: Graph) -> bool:
    return any(n.op in KINKS for n in graph.nodes)


def decide_branches(graph: Graph, names: tuple[str, ...], low: Array, high: Array) -> Graph:
    """The graph with every decided kink replaced by its branch; equal to the given one at every point of the box."""
    if not has_kinks(graph):
        return graph
    pieces = max(1, int(256 ** (1 / len(names))))
    edges = [np.linspace(a, b, pieces + 1) for a, b in zip(low, high, strict=True)]
    lows, highs = sub_boxes(edges)
    env = {n: balls(a, b) for n, a, b in zip(names, lows.T, highs.T, strict=True)}
    values = run_all(graph, BallAlgebra(clip_sqrt=True), env)
    builder = Builder()
    at: list[int] = []
    for node in graph.nodes:
        args = [at[a] for a in node.args]
        sign = 0
        if node.op in KINKS:
            difference = values[node.args[0]]
            if node.op in ("max", "min"):
                difference = difference - values[node.args[1]]
            column = np.atleast_1d(np.asarray(difference, dtype=object))
            above, below = bool((lowers(column) >= 0).all()), bool((uppers(column) <= 0).all())
            if node.op == "sign":
                above, below = bool((lowers(column) > 0).all()), bool((uppers(column) < 0).all())
            sign = 1 if above else -1 if below else 0
        if sign == 0:
            at.append(builder.apply(node.op, *args, value=node.value))
        elif node.op == "abs":
            at.append(args[0] if sign > 0 else builder.apply("neg", args[0]))
        elif node.op == "relu":
            at.append(args[0] if sign > 0 else builder.const(0))
        elif node.op == "sign":
            at.append(builder.const(sign))
        else:
            first = (sign > 0) == (node.op == "max")
            at.append(args[0] if first else args[1])
    return builder.graph([at[o] for o in graph.outputs])
