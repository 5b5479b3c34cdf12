"""arctan2 by the sides of the box: 2 atan(y/(sqrt(x² + y²) + x)), as `operations` writes it, where a sign is known.

    x > 0: atan(y/x)        y > 0: π/2 − atan(x/y)        y < 0: −π/2 − atan(x/y)

All are the angle of (x, y) in (−π, π), off the cut {x ≤ 0, y = 0}: it is twice the angle of (sqrt(x² + y²) + x, y),
which lies in the right half plane, and those of the last three are in the half plane of their condition. So a quotient
that may cancel (x near −|y|) and a root become one quotient. Signs are proved by ranges (`range_of`).
"""

from __future__ import annotations

from attnfun.language.domain import Box
from attnfun.language.graph import Builder, Graph, Node
from attnfun.language.ranges import range_of


def by_quadrant(graph: Graph, box: Box) -> Graph:
    """The same function on the box, angles written by the half plane that proves to hold them; else as they were."""
    if not any(node.op == "atan" for node in graph.nodes):
        return graph
    builder = Builder()

    def rule(node: Node, args: list[int]) -> int | None:
        return _angle(builder, args, box) if node.op == "mul" else None

    at = builder.copy(graph.nodes, rule)
    return builder.graph([at[o] for o in graph.outputs])


def _angle(builder: Builder, args: list[int], box: Box) -> int | None:
    sides = _sides(builder, *args)
    if sides is None:
        return None
    y, x = sides
    apply = builder.apply
    if _range(builder, x, box)[0] > 0:
        return apply("atan", apply("div", y, x))
    low, high = _range(builder, y, box)
    if not (low > 0 or high < 0):
        return None
    quarter = apply("div", apply("pi"), builder.const(2))
    turned = apply("atan", apply("div", x, y))
    return apply("sub", quarter if low > 0 else apply("neg", quarter), turned)


def _range(builder: Builder, n: int, box: Box) -> tuple[float, float]:
    (found,) = range_of(builder.graph([n]), box)
    return found


def _sides(builder: Builder, two: int, half: int) -> tuple[int, int] | None:
    """(y, x) of 2·atan(y/(sqrt(x² + y²) + x))."""
    node = builder.node
    if two != builder.const(2) or node(half).op != "atan":
        return None
    quotient = node(node(half).args[0])
    if quotient.op != "div" or node(quotient.args[1]).op != "add":
        return None
    y, (root, x) = quotient.args[0], node(quotient.args[1]).args
    squares = [builder.apply("pow", side, builder.const(2)) for side in (x, y)]
    return (y, x) if builder.apply("sqrt", builder.apply("add", *squares)) == root else None
