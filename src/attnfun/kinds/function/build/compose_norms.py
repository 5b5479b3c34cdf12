"""Roots of sums that reach 0, before the walk: the sum is written as squares of what can be computed well.

√S with S = 0 somewhere has no slope there: an error δ of S costs √δ. But if S = Σ c_i p_i², errors of the p_i count
only once (a norm is Lipschitz in its components), provided the squares are pinned at 0 (`unary/square.py`). So every
argument of a root, or of a power below 1, whose range comes down to 0 is written as a sum of squares by
`language/squares.py`, the law of cosines included; the walk keeps these squares as steps of their own.
Failure mode: sums that are no squares by those rules stay as they are.
"""

from fractions import Fraction

from attnfun.language import Builder, Graph
from attnfun.language.domain import Box
from attnfun.language.ranges import range_of
from attnfun.language.squares import sum_of_squares

_NEAR = 1e-3  # least over largest value below which a root is taken to reach 0


def as_norms(graph: Graph, box: Box) -> tuple[Graph, frozenset[int]]:
    """The same function, and the nodes p² that are to stay as they are."""
    build = Builder()
    at: list[int] = []
    kept: set[int] = set()

    def not_negative(n: int) -> bool:
        return range_of(build.graph([n]), box)[0][0] >= 0

    for node in graph.nodes:
        args = [at[a] for a in node.args]
        root = node.op == "sqrt" or (node.op == "powr" and isinstance(node.value, Fraction) and 0 < node.value < 1)
        if root and len(build.graph(args).variables) > 1:
            low, high = range_of(build.graph(args), box)[0]
            found = sum_of_squares(build, args[0], not_negative) if low <= _NEAR * high else None
            if found is not None and len(found) > 1:
                total = None
                for c, p in found:
                    square = build.apply("powi", p, value=2)
                    kept.add(square)
                    term = square if c == 1 else build.apply("mul", build.const(c), square)
                    total = term if total is None else build.apply("add", total, term)
                assert total is not None
                args = [total]
        at.append(build.apply(node.op, *args, value=node.value))
    return Graph(build.nodes, tuple(at[o] for o in graph.outputs)), frozenset(kept)
