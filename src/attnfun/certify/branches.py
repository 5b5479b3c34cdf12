"""Kinks that are none: abs, max, min, relu and sign whose branch is decided on the whole box.

Exact rewrites with a side condition proved in balls, e.g. |g| = g where g ≥ 0 on the box. They turn a target that only
looks kinked into an analytic one; what stays undecided stays in the graph.
"""

import numpy as np

from attnfun.language import Array, BallAlgebra, Builder, Graph, Node, run_all
from attnfun.language.domain import sub_boxes
from attnfun.language.enclosures import balls, lowers, uppers
from attnfun.language.graph import NOT_ANALYTIC


def has_kinks(graph: Graph) -> bool:
    return any(n.op in NOT_ANALYTIC for n in graph.nodes)


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

    def branch(node: Node, args: list[int]) -> int | None:
        if node.op not in NOT_ANALYTIC or node.op in ("floor", "round", "table"):
            return None
        difference = values[node.args[0]] - values[node.args[1]] if len(args) == 2 else values[node.args[0]]
        column = np.atleast_1d(np.asarray(difference, dtype=object))
        least, most, jumps = lowers(column).min(), uppers(column).max(), node.op == "sign"
        above, below = least > 0 or (least == 0 and not jumps), most < 0 or (most == 0 and not jumps)
        if node.op == "where":
            return args[1] if least > 0 else args[2] if most <= 0 else None
        if not (above or below):
            return None
        if node.op == "abs":
            return args[0] if above else builder.apply("neg", args[0])
        if node.op == "relu":
            return args[0] if above else builder.const(0)
        return builder.const(1 if above else -1) if jumps else args[0 if above == (node.op == "max") else 1]

    at = builder.copy(graph.nodes, branch)
    return builder.graph([at[o] for o in graph.outputs])
