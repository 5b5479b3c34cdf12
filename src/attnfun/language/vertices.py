"""Broken lines: a function of one variable made of affine maps, abs, relu, max and min, by its vertices.

On [a, b] such a function is the broken line through finitely many points (x, f(x)). From those of the arguments the
vertices of a sum are their common places, those of a kink the places at which its argument, or the difference of its
two, is 0: linear equations, solved in rational numbers. With slopes s_0, s_1, … between the vertices a, t_1, t_2, …

    f(x) = f(a) + s_0 (x − a) + Σ_k (s_k − s_{k−1}) relu(x − t_k)      on all of [a, b],

which is f itself, by exact arithmetic. A chain of fifty max and min is seldom more than a few of its lines.
Failure mode: an operation that is not one of these, more than `_MOST` vertices, or numbers past `MAX_BITS`: None.
"""

from fractions import Fraction
from itertools import chain, pairwise

from attnfun.errors import InvalidRequest
from attnfun.language.domain import Box
from attnfun.language.graph import MAX_BITS, Builder, Graph, bits

_LEAST = 8  # kinks of an expression up to which it is left as it is
_MOST, _WORK = 400, 20_000  # vertices of one line, and of all lines together
_KINKS = frozenset({"abs", "relu", "max", "min"})

Line = list[tuple[Fraction, Fraction]]


def broken_line(graph: Graph, box: Box) -> Graph | None:
    """The same functions on the box as sums of relu, where that takes fewer operations; None where it does not."""
    if box.dim != 1 or sum(node.op in _KINKS for node in graph.nodes) <= _LEAST:
        return None
    low, high = Fraction(box.low[0]), Fraction(box.high[0])
    lines: list[Line] = []
    work = 0
    for node in graph.nodes:
        args = [lines[a] for a in node.args]
        if node.op == "var":
            found: Line | None = [(low, low), (high, high)]
        elif node.op == "const" and isinstance(node.value, Fraction):
            found = [(low, node.value), (high, node.value)]
        else:
            found = _applied(node.op, args)
        work += len(found or ())
        if found is None or len(found) > _MOST or work > _WORK or max(map(bits, chain(*found))) > MAX_BITS:
            return None
        lines.append(found)
    builder = Builder()
    try:
        written = builder.graph([_write(builder, box.names[0], lines[o]) for o in graph.outputs])
    except InvalidRequest:  # constants past their limits
        return None
    return written if len(written.nodes) < len(graph.nodes) else None


def _applied(op: str, args: list[Line]) -> Line | None:
    """The line of one operation; None for one that does not give a broken line."""
    if op == "neg":
        return _scaled(args[0], Fraction(-1))
    if op in ("abs", "relu"):
        return _straight([(x, abs(y) if op == "abs" else max(y, Fraction(0))) for x, y in _with_roots(args[0])])
    if op in ("add", "sub"):
        return _sum(args[0], args[1], 1 if op == "add" else -1)
    if op in ("max", "min"):  # max(a, b) = b + relu(a − b), min(a, b) = a − relu(a − b)
        kink = _applied("relu", [_sum(args[0], args[1], -1)])
        assert kink is not None
        return _sum(args[1], kink, 1) if op == "max" else _sum(args[0], kink, -1)
    if op == "mul" and any(_constant(line) for line in args):
        fixed, other = args if _constant(args[0]) else args[::-1]
        return _scaled(other, fixed[0][1])
    if op == "div" and _constant(args[1]) and args[1][0][1]:
        return _scaled(args[0], 1 / args[1][0][1])
    return None


def _constant(line: Line) -> bool:
    return all(y == line[0][1] for _, y in line)


def _scaled(line: Line, factor: Fraction) -> Line:
    return [(x, factor * y) for x, y in line] if factor else [(x, factor) for x, _ in (line[0], line[-1])]


def _sum(first: Line, second: Line, sign: int) -> Line:
    places = sorted({x for x, _ in (*first, *second)})
    both = zip(places, _at(first, places), _at(second, places), strict=True)
    return _straight([(x, y + sign * z) for x, y, z in both])


def _at(line: Line, places: list[Fraction]) -> list[Fraction]:
    """The values at increasing places of the interval."""
    out, i = [], 0
    for x in places:
        while line[i + 1][0] < x:
            i += 1
        (a, f), (b, g) = line[i], line[i + 1]
        out.append(f + (g - f) * (x - a) / (b - a))
    return out


def _with_roots(line: Line) -> Line:
    """The same line with a vertex wherever it changes its sign."""
    out = line[:1]
    for (a, f), (b, g) in pairwise(line):
        if f * g < 0:
            out.append((a + (b - a) * f / (f - g), Fraction(0)))
        out.append((b, g))
    return out


def _straight(line: Line) -> Line:
    """The same line without vertices at which it does not bend."""
    slopes = [(g - f) / (b - a) for (a, f), (b, g) in pairwise(line)]
    bends = [vertex for vertex, (s, t) in zip(line[1:-1], pairwise(slopes), strict=True) if s != t]
    return [line[0], *bends, line[-1]]


def _write(builder: Builder, name: str, line: Line) -> int:
    x, slope = builder.var(name), Fraction(0)
    total = builder.const(line[0][1])
    for (a, f), (b, g) in pairwise(line):
        before, slope = slope, (g - f) / (b - a)
        from_here = builder.apply("sub", x, builder.const(a))
        kink = from_here if a == line[0][0] else builder.apply("relu", from_here)
        total = builder.apply("add", total, builder.apply("mul", builder.const(slope - before), kink))
    return total
