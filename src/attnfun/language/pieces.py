"""Targets made of pieces: `where`, floor and their like written by max and min where they are continuous, by sign else.

Statement. `lowered(f, box)` is (g, gap, points): |f − g| ≤ gap at every point of the box at which f is defined and no
sign in g vanishes, but for `points`; g has no `where`, floor or round but those for which no form was found.

Let w be a node, s_1 < … < s_m rational numbers and f_0, …, f_m the expressions that f is for w < s_1, s_1 < w < s_2, …
(every condition that is a function of w alone decided). With c_i = min(max(w, s_i), s_{i+1}) and J_i = f_i − f_{i−1}
at w = s_i, where f(w := c) is f with c in the place of the node w,

    g = f_0(w := c_0) + Σ_{i≥1} [f_i(w := c_i) − f_i(w := s_i)] + Σ_i J_i (1 + sign(w − s_i))/2.

For s_k < w < s_{k+1} it is f_k: c_k = w, c_i = s_{i+1} for i < k, which telescopes, and c_i = s_i for i > k. Nothing
but arithmetic is used of f, so the same holds with one s that is an expression itself. Where J_i = 0 by exact algebra
(`vanishing`) the term is left out: f is continuous there. A J_i that is a number within `_TINY` of f's size by balls is
left out, too, and is a gap. Each f_i is now asked on its own piece alone, so log(x) for x > 1 need not be defined
elsewhere. Pieces that differ by a constant share one expression; then J_i is that constant. At w = s_i itself f is one
of its two neighbours, or compared with them; where that is not settled the place is in `points`.
The arguments of conditions are proved to be defined, each where it decides something.
The s_i are zeros of the conditions (`switches`). One that is no rational number lies in an interval of relative size
2^-48: there, for f of one variable, balls bound |f − f_i|, |f − f_{i−1}| and |J_i|; where their sum is within `_TINY`
of f's size it is a gap, and the term is left out. What leaves a gap is done to whole outputs alone.

Where a step is left, {w = s_i} has measure 0, and so do the open points. Places of steps that cancel are open points,
too: floor(x) + floor(−x) is −1, but 0 at whole numbers.

Tried are, for every node that holds a condition, from small to large, the nodes w on which that condition depends
alone, and the terms w of the condition's argument, which is w − s up to a factor.
Failure mode: branches that agree for another reason, and conditions with more than 256 switches, jump.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import chain
from typing import Final

import numpy as np

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.language.arrays import values_at
from attnfun.language.balls import BallAlgebra, values_at_point
from attnfun.language.canonical import canonical
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Array, Box
from attnfun.language.enclosures import Ball, abs_upper, exact, precision
from attnfun.language.graph import JUMPS, NOT_ANALYTIC, Builder, Graph, Node, arguments_first, reached
from attnfun.language.interpret import run
from attnfun.language.numbers import above, below
from attnfun.language.ranges import range_of
from attnfun.language.switches import Switch, sign_on, switches, value_at
from attnfun.language.vanishing import Form, rational

_TINY: Final = 1e-9
_MOST_NODES: Final = 3_000  # of a target that is looked at
_MOST_BUILT: Final = 100_000  # of all that are tried
_MOST_STEPS: Final = 64  # of one floor or round
_ATTEMPTS: Final = 200
_BITS: Final = 128
_KINKS: Final = frozenset({"abs", "relu", "max", "min"})
_ZERO: Final = Fraction(0)
_HALF: Final = Fraction(1, 2)


@dataclass(frozen=True)
class Point:
    """{coordinate = at}, where the target was not found to have the value of a neighbouring piece."""

    coordinate: Graph
    at: Fraction


@dataclass(frozen=True)
class Lowered:
    graph: Graph
    gap: float = 0.0
    points: tuple[Point, ...] = ()


def has_pieces(graph: Graph) -> bool:
    return any(node.op in JUMPS for node in graph.nodes)


@lru_cache(maxsize=64)
def lowered(graph: Graph, box: Box, slack: float = 0.0) -> Lowered:
    """See the module's statement; a J_i that is proved to be at most `slack` in size is left out, too, and is a gap."""
    if not has_pieces(graph) or len(graph.nodes) > _MOST_NODES:
        return Lowered(graph)
    divides = any(n.divides and graph.nodes[n.args[-1]].op != "const" for n in graph.nodes)
    tidy = (lambda g: g) if divides else canonical  # which cancels factors, and with them where they vanish
    try:
        work = _Lowering(tidy(graph), box, slack)
        outputs = [work.lowered(top) for top in work.outputs]
        found = tidy(work.build.graph(outputs))
    except AttnfunError:  # constants past their limits, an expression that grows too large
        return Lowered(graph)
    fewer = sum(n.op in JUMPS for n in found.nodes) < sum(n.op in JUMPS for n in graph.nodes)
    if not (work.changed or fewer):
        return Lowered(graph)
    hidden = (place for place in work.stepped if not _has_sign(found, place))
    return Lowered(found, work.gap, (*work.points, *hidden))


def _has_sign(graph: Graph, place: Point) -> bool:
    """Is there a sign that vanishes where the place is? Steps may cancel, and f have a value of its own there."""
    build = Builder()
    at = build.copy(graph.nodes)
    coordinate = build.copy(place.coordinate.nodes)[place.coordinate.outputs[0]]
    v = build.apply("sub", coordinate, build.const(place.at))
    arguments = [at[node.args[0]] for node in graph.nodes if node.op == "sign"]
    return any(rational(build, build.apply(op, u, v)) == 0 for u in arguments for op in ("sub", "add"))


def exactly_joined(graph: Graph, box: Box) -> Graph:
    """The same function, its pieces joined, but for its values at jumps; the graph where that leaves anything out."""
    found = lowered(graph, box)
    left = any(node.op in JUMPS - {"sign"} for node in found.graph.nodes)
    return graph if found.gap or found.points or left else found.graph


def at_rational(graph: Graph, at: Fraction) -> Graph:
    """A function of one variable at a rational number; a branch that is not taken there is not looked at."""
    build = Builder()
    made: dict[int, int] = {}

    def needs(i: int) -> tuple[int, ...]:
        node = graph.nodes[i]
        if node.op != "where":
            return node.args
        u = node.args[0]
        side = rational(build, made[u]) if u in made else None
        return (u,) if u not in made else node.args if side is None else (u, node.args[1 if side > 0 else 2])

    for output in graph.outputs:
        for i in arguments_first(output, needs, made):
            node, needed = graph.nodes[i], needs(i)
            if node.op == "var":
                made[i] = build.const(at)
            elif node.op == "where" and len(needed) == 2:
                made[i] = made[needed[1]]
            else:
                made[i] = build.apply(node.op, *(made[a] for a in node.args), value=node.value)
    return build.graph([made[o] for o in graph.outputs])


@dataclass(frozen=True)
class _Pieces:
    """f by pieces of w: `nodes[i]` between the switches i − 1 and i."""

    cuts: tuple[Switch, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class _Written:
    """The continuous part, the steps (w − s, J) that go with it, what it may be off, the points that are open, and the
    places s of the steps.
    """

    node: int
    steps: tuple[tuple[int, int], ...]
    gap: float
    points: tuple[Point, ...]
    places: tuple[Point, ...] = ()


class _Lowering:
    def __init__(self, graph: Graph, box: Box, slack: float) -> None:
        self.box, self.slack, self.build = box, slack, Builder()
        at = self.build.copy(graph.nodes)
        self.outputs = [at[o] for o in graph.outputs]
        self.gap, self.points, self.stepped = 0.0, list[Point](), list[Point]()
        self.changed = False
        self._attempts = 0
        self._forms: dict[int, Form | None] = {}
        self._cones: dict[int, list[int]] = {}
        self._defined: dict[tuple[int, int, Fraction, Fraction], bool] = {}
        self._continued: dict[int, list[_Written]] = {}
        self._ranges: dict[int, tuple[float, float]] = {}
        self._switches: dict[tuple[int, int, Fraction, Fraction], list[Switch] | None] = {}

    def lowered(self, top: int) -> int:
        while len(self.build) < _MOST_BUILT:
            found = self._decided(top)
            if found is None:
                found = self._continuous(top)
            if found is None:
                found = self._stepped(top)
            if found is None or found == top:
                return top
            top, self.changed = found, True
        return top

    # ------------------------------------------------------------ the graph

    def _rational(self, n: int) -> Fraction | None:
        return rational(self.build, n, self._forms)

    def _difference(self, a: int, b: int) -> tuple[int, Fraction | None]:
        """a − b, and the number that it is, if it is one: also where kinks are decided on the whole box."""
        n = self.build.apply("sub", a, b)
        known = self._rational(n)
        if known is not None or not any(self.build.node(m).op in _KINKS for m in self._cone(n)):
            return n, known
        settled = n
        for m in self._cone(n):
            settled = self._replaced(settled, {m: self._side(m)})
        return n, self._rational(settled)

    def _side(self, m: int) -> int:
        """What a kink is where its range decides it; itself else."""
        build, node = self.build, self.build.node(m)
        if node.op not in _KINKS:
            return m
        a, b = node.args if len(node.args) == 2 else (node.args[0], build.const(0))
        low, high = self._range(build.apply("sub", a, b))
        if not (low >= 0 or high <= 0):
            return m
        if node.op == "abs":
            return a if low >= 0 else build.apply("neg", a)
        return a if (low >= 0) == (node.op != "min") else b

    def _args(self, n: int) -> tuple[int, ...]:
        return self.build.node(n).args

    def _cone(self, n: int) -> list[int]:
        if n not in self._cones:
            self._cones[n] = sorted(reached([n], self._args))
        return self._cones[n]

    def _jumps(self, n: int) -> list[int]:
        return [m for m in self._cone(n) if self.build.node(m).op in JUMPS]

    def _replaced(self, top: int, places: dict[int, int]) -> int:
        """`top` with other nodes in the places of some."""
        made = dict(places)
        for m in arguments_first(top, self._args, made):
            node = self.build.node(m)
            made[m] = self.build.apply(node.op, *(made[a] for a in node.args), value=node.value)
        return made[top]

    def _depends_on(self, n: int, w: int) -> bool:
        """Is n a function of w alone?"""
        passed = reached([n], lambda m: () if m == w else self._args(m))
        return w in passed and all(m == w or self.build.node(m).op != "var" for m in passed)

    def _coordinates(self, argument: int) -> list[int]:
        """The nodes of which the argument is a function alone, variables first."""
        return [w for w in self._cone(argument) if self._varies(w) and self._depends_on(argument, w)]

    def _varies(self, n: int) -> bool:
        return any(self.build.node(m).op == "var" for m in self._cone(n))

    def _range(self, n: int) -> tuple[float, float]:
        if n not in self._ranges:
            graph, node = self.build.graph([n]), self.build.node(n)
            if node.op == "var":
                k = self.box.names.index(str(node.value))
                self._ranges[n] = self.box.low[k], self.box.high[k]
            else:
                self._ranges[n] = (-math.inf, math.inf) if has_pieces(graph) else range_of(graph, self.box)[0]
        return self._ranges[n]

    def _is_defined(self, n: int, w: int = -1, low: Fraction = _ZERO, high: Fraction = _ZERO) -> bool:
        """Is the node proved to be defined on the box, or on the part of it where the variable w lies in [low, high]?

        A comparison with what is not a number would be decided otherwise than NumPy does.
        """
        key = n, w, low, high
        if key not in self._defined:
            box = self.box
            if w >= 0 and self.build.node(w).op == "var":
                k = box.names.index(str(self.build.node(w).value))
                lows, highs = list(box.low), list(box.high)
                lows[k], highs[k] = max(below(low), lows[k]), min(above(high), highs[k])
                box = Box(box.names, tuple(lows), tuple(highs))
            try:
                require_defined(self.build.graph([n]), box, continuous=False)
                self._defined[key] = True
            except AttnfunError:
                self._defined[key] = False
        return self._defined[key]

    def _of(self, n: int, w: int) -> Graph:
        """n as a function of w, called u."""
        build = Builder()
        made = {w: build.var("u")}
        for m in arguments_first(n, self._args, made):
            node = self.build.node(m)
            made[m] = build.apply(node.op, *(made[a] for a in node.args), value=node.value)
        return build.graph([made[n]])

    # ------------------------------------------------------------ conditions that are decided

    def _decided(self, top: int) -> int | None:
        """`top` without the jumps whose arguments do not reach them on the box."""
        for j in self._jumps(top):
            argument = self._args(j)[0]
            low, high = self._range(argument)
            if not (math.isfinite(low) and math.isfinite(high) and self._is_defined(argument)):
                continue
            op = self.build.node(j).op
            side = 1 if low > 0 else -1 if high < 0 or (high <= 0 and op == "where") else 0
            if op in ("floor", "round"):
                a, b = (self._step(op, Fraction(end)) for end in (low, high))
                value = self.build.const(a) if a == b else None
            else:
                value = self._branch(j, side) if side else None
            if value is not None:
                return self._replaced(top, {j: value})
        return None

    def _branch(self, j: int, side: int) -> int:
        """What a `where` or sign is on one side of 0; on 0 itself for side 0."""
        node = self.build.node(j)
        if node.op == "sign":
            return self.build.const(side)
        return node.args[1 if side > 0 else 2]

    def _step(self, op: str, value: Fraction) -> int:
        return math.floor(value) if op == "floor" else round(value)

    # ------------------------------------------------------------ pieces

    def _pieces(self, t: int, w: int) -> _Pieces | None:
        low, high = self._range(w)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            return None
        return self._split(t, w, Fraction(low), Fraction(high))

    def _split(self, t: int, w: int, low: Fraction, high: Fraction) -> _Pieces | None:
        plain = [j for j in self._jumps(t) if not self._jumps(self._args(j)[0])]
        inner = [j for j in plain if self._depends_on(self._args(j)[0], w)]
        inner = [j for j in inner if self._is_defined(self._args(j)[0], w, low, high)]
        if not inner:
            return _Pieces((), (t,))
        cuts: list[Switch] = []
        for j in inner:
            own = self._cuts(j, w, low, high)
            if own is None:
                return None
            cuts += own
        cuts = _joined(iter(cuts))
        if any(a < b and not low < a <= b < high for a, b in cuts):  # beside an end nothing bounds what f is there
            return None
        cuts = [cut for cut in cuts if low < cut[0] <= cut[1] < high]  # at an end `_points` looks at f itself
        edges = [low, *(end for cut in cuts for end in cut), high]
        nodes: list[int] = []
        further: list[Switch] = []
        for i, (a, b) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            places: dict[int, int] = {}
            for j in inner:
                value = self._value(j, w, a + (b - a) / 2)
                if value is None:
                    return None
                places[j] = value
            part = self._split(self._replaced(t, places), w, a, b)
            if part is None:
                return None
            nodes += part.nodes
            further += [*part.cuts, *cuts[i : i + 1]]
        return _Pieces(tuple(further), tuple(nodes))

    def _cuts(self, j: int, w: int, low: Fraction, high: Fraction) -> list[Switch] | None:
        key = j, w, low, high
        if key not in self._switches:
            self._switches[key] = self._found_cuts(j, w, low, high)
        return self._switches[key]

    def _found_cuts(self, j: int, w: int, low: Fraction, high: Fraction) -> list[Switch] | None:
        node = self.build.node(j)
        graph = self._of(node.args[0], w)
        if not graph.variables:
            return None
        if node.op in ("where", "sign"):
            return switches(graph, low, high)
        ((a, b),) = range_of(graph, Box(("u",), (float(low),), (float(high),)))
        if not (math.isfinite(a) and math.isfinite(b) and b - a < _MOST_STEPS):
            return None
        shift = _HALF if node.op == "round" else Fraction(0)
        cuts: list[Switch] = []
        for k in range(math.floor(a) - 1, math.ceil(b) + 2):
            build = Builder()
            (u,) = build.substitute(graph, build.var("u"))
            own = switches(build.graph([build.apply("sub", u, build.const(k + shift))]), low, high)
            if own is None:
                return None
            cuts += own
        return cuts

    def _value(self, j: int, w: int, at: Fraction) -> int | None:
        """What the jump is at a value of w at which it does not jump."""
        node = self.build.node(j)
        graph = self._of(node.args[0], w)
        if node.op in ("where", "sign"):
            side = sign_on(graph, at, at)
            return self._branch(j, side) if side else None
        with precision(_BITS):
            (value,) = run(graph, BallAlgebra(clip_sqrt=True), {"u": _ball(at, at)})
            if not value.is_finite():
                return None
            steps = BallAlgebra().floor(value) if node.op == "floor" else BallAlgebra().round(value)
            return self.build.const(int(float(steps.mid()))) if steps.is_exact() else None

    def _at(self, f: int, w: int, s: int) -> int:
        """f with s in the place of w; InvalidRequest where that is no number."""
        return self._replaced(f, {w: s})

    def _decided_at(self, t: int, w: int, s: Fraction) -> int | None:
        """t with every jump that depends on w alone as it is where w is s; None where that is not found."""
        while True:
            jumps = [j for j in self._jumps(t) if self._depends_on(self._args(j)[0], w)]
            jumps = [j for j in jumps if not self._jumps(self._args(j)[0])]
            if not jumps:
                return t
            places: dict[int, int] = {}
            for j in jumps:
                op, exact = self.build.node(j).op, value_at(self._of(self._args(j)[0], w), s)
                if exact is None:
                    value = self._value(j, w, s)
                elif op in ("floor", "round"):
                    value = self.build.const(self._step(op, exact))
                else:
                    value = self._branch(j, (exact > 0) - (exact < 0))
                if value is None:
                    return None
                places[j] = value
            t = self._replaced(t, places)

    # ------------------------------------------------------------ writing

    def _written(self, t: int, w: int, pieces: _Pieces, jumping: bool) -> _Written | None:
        """g of the module's statement; None where it jumps (unless `jumping`), or may at a place not known exactly."""
        build, nodes = self.build, pieces.nodes
        gap, steps, places = 0.0, list[tuple[int, int]](), list[Point]()
        total: int | None = None
        start: int | None = None
        first = nodes[0]
        for i, (a, b) in enumerate(pieces.cuts):
            left, right = nodes[i : i + 2]
            s = build.const(a if a == b else Fraction(float((a + b) / 2)))
            off = 0.0 if a == b else self._loose(t, w, (a, b), (left, right))
            if off is None:
                return None
            gap += off
            size = build.apply("sub", right, left)
            known = self._rational(size)
            if known is None:
                total = self._with(total, first, w, start, s)
                first, start = right, s
                size, known = self._difference(self._at(right, w, s), self._at(left, w, s))
            if a != b or known == 0:
                continue
            tiny = self._tiny(t, size)
            if tiny is None and not jumping:
                return None
            if tiny is None:
                places.append(Point(build.graph([w]), a))
                steps.append((self._less(w, a), size if known is None else build.const(known)))
            gap += tiny or 0.0
        total = self._with(total, first, w, start, None)
        points = tuple(self._points(t, w, pieces))
        if not all(self._is_thin(w, point.at) for point in points):
            return None
        return _Written(total, tuple(steps), gap, points, tuple(places))

    def _with(self, total: int | None, f: int, w: int, start: int | None, stop: int | None) -> int:
        """What was written so far, and f from `start` to `stop`."""
        build, inside = self.build, w
        inside = inside if start is None else build.apply("max", inside, start)
        inside = inside if stop is None else build.apply("min", inside, stop)
        part = self._at(f, w, inside)
        if total is None or start is None:
            return part
        base = self._at(f, w, start)
        if part == base:
            return total
        known = self._rational(base)
        base = base if known is None else build.const(known)
        return build.apply("add", total, build.apply("sub", part, base))

    def _loose(self, t: int, w: int, cut: Switch, sides: Sequence[int]) -> float | None:
        """How far g may be off because the switch is only known to lie in an interval, if that is tiny."""
        if not self._depends_on(t, w):
            return None
        with precision(_BITS):
            f, left, right = (
                run(self._of(n, w), BallAlgebra(clip_sqrt=True), {"u": _ball(*cut)})[0] for n in (t, *sides)
            )
            off = abs_upper(f - left) + abs_upper(f - right) + abs_upper(left - right)
        return off if off <= max(_TINY * self._size(t), self.slack) else None

    def _tiny(self, t: int, jump: int) -> float | None:
        """The largest size of a jump, where it is within the slack, or a number and tiny beside t."""
        if self._varies(jump):
            low, high = self._range(jump) if self.slack else (-math.inf, math.inf)
            off = max(-low, high)
            return off if off <= self.slack else None
        with precision(_BITS):
            off = abs_upper(run(self.build.graph([jump]), BallAlgebra(), {})[0])
        return off if off <= max(_TINY * self._size(t), self.slack) else None

    def _size(self, t: int) -> float:
        """How much t varies, roughly."""
        values = values_at(self.build.graph([t]), self.box.names, self._samples)[:, 0]
        values = values[np.isfinite(values)]
        return float(np.ptp(values)) if len(values) else 0.0

    @cached_property
    def _samples(self) -> Array:
        return self.box.probe(128, np.random.default_rng(0))

    def _less(self, w: int, s: Fraction) -> int:
        """w − s."""
        return self.build.apply("sub" if s > 0 else "add", w, self.build.const(abs(s)))

    def _points(self, t: int, w: int, pieces: _Pieces) -> Iterator[Point]:
        """The places at which f may have a value that none of its neighbours has."""
        build = self.build
        ends = [Fraction(end) for end in self._range(w)]
        known = [(ends[0], pieces.nodes[:1]), (ends[1], pieces.nodes[-1:])]
        known += [(a, pieces.nodes[i : i + 2]) for i, (a, b) in enumerate(pieces.cuts) if a == b]
        for s, neighbours in known:
            here = self._decided_at(t, w, s)
            if here in neighbours:
                continue
            place = build.const(s)
            own = None if here is None else self._at(here, w, place)
            if own is None or not any(self._same(own, n, w, place) for n in neighbours):
                yield Point(build.graph([w]), s)

    def _same(self, own: int, other: int, w: int, s: int) -> bool:
        try:
            return self._difference(own, self._at(other, w, s))[1] == 0
        except InvalidRequest:
            return False

    # ------------------------------------------------------------ what is continuous

    def _continuous(self, top: int) -> int | None:
        """`top` with the smallest part of it that is continuous written without its jumps: one that leaves nothing
        open, if there is one.
        """
        kept: list[tuple[int, _Written]] = []
        for t in self._cone(top):
            for way in self._continuations(t):
                if not (way.points or way.gap):
                    return self._taken(top, t, way)
                if t == top or not way.gap:  # of an output itself alone is a gap that of the output
                    kept.append((t, way))
        best = min(kept, key=lambda pair: len(pair[1].points), default=None)
        return None if best is None else self._taken(top, *best)

    def _continuations(self, t: int) -> list[_Written]:
        """The ways in which t is continuous, those that hold at samples; the first that leaves nothing open ends it."""
        if t not in self._continued and self._attempts > _ATTEMPTS:
            return []
        if t not in self._continued:
            jumps = [j for j in self._jumps(t) if not self._jumps(self._args(j)[0])]
            ways = self._continued[t] = list[_Written]()
            for found in chain(self._by_pieces(t, jumps), self._by_terms(t, jumps)):
                if self._holds(t, found):
                    ways.append(found)
                    if not (found.points or found.gap):
                        return ways
        return self._continued[t]

    def _taken(self, top: int, t: int, found: _Written, node: int | None = None) -> int:
        self.gap += found.gap
        self.points += found.points
        return self._replaced(top, {t: found.node if node is None else node})

    def _tried(self) -> bool:
        self._attempts += 1
        return self._attempts <= _ATTEMPTS

    def _holds(self, t: int, found: _Written) -> bool:
        """Is what was found defined where t is, at samples off its open points?"""
        names, X = self.box.names, self._samples
        f, new = values_at(self.build.graph([t, found.node]), names, X).T
        worse = np.isfinite(f) & ~np.isfinite(new)
        for point in found.points:
            worse &= np.abs(values_at(point.coordinate, names, X)[:, 0] - float(point.at)) > 1e-12
        return not worse.any()

    def _by_pieces(self, t: int, jumps: Sequence[int]) -> Iterator[_Written]:
        for w in dict.fromkeys(w for j in jumps for w in self._coordinates(self._args(j)[0])):
            found = self._in_pieces(t, w, jumping=False) if self._tried() else None
            if found is not None:
                yield found

    def _in_pieces(self, t: int, w: int, jumping: bool) -> _Written | None:
        pieces = self._pieces(t, w)
        try:
            return None if pieces is None else self._written(t, w, pieces, jumping)
        except InvalidRequest:  # a piece that is no number at its end
            return None

    def _by_terms(self, t: int, jumps: Sequence[int]) -> Iterator[_Written]:
        """Two pieces, where the condition's argument is c (w − s) and s an expression."""
        for u in dict.fromkeys(self._args(j)[0] for j in jumps if self.build.node(j).op in ("where", "sign")):
            for w, c, s in self._terms(u) if self._is_defined(u) else ():
                with suppress(InvalidRequest):
                    found = self._in_two(t, u, w, c, s) if self._tried() else None
                    if found is not None:
                        yield found

    def _in_two(self, t: int, u: int, w: int, c: Fraction, s: int) -> _Written | None:
        build = self.build
        sides: dict[int, dict[int, int]] = {1: {}, -1: {}, 0: {}}
        for j in self._jumps(t):
            if build.node(j).op in ("where", "sign"):
                turn = self._turn(self._args(j)[0], u)
                for side in sides if turn else ():
                    sides[side][j] = self._branch(j, side * turn)
        up = 1 if c > 0 else -1
        below, above, on = (self._replaced(t, sides[side]) for side in (-up, up, 0))
        at_s = [self._at(f, w, s) for f in (below, above, on)]
        gap = 0.0
        for f in at_s[1:]:
            size, known = self._difference(f, at_s[0])
            off = 0.0 if known == 0 else self._tiny(t, size)
            if off is None:
                return None
            gap = max(gap, off)
        left = self._at(below, w, build.apply("min", w, s))
        right = self._at(above, w, build.apply("max", w, s))
        if left == at_s[0] or right == at_s[1]:
            return _Written(right if left == at_s[0] else left, (), gap, ())
        return _Written(build.apply("add", left, build.apply("sub", right, at_s[1])), (), gap, ())

    def _turn(self, argument: int, u: int) -> int:
        """1 where the argument is u, -1 where it is -u, else 0."""
        if argument == u:
            return 1
        build = self.build
        opposite = Node("neg", (u,)) == build.node(argument) or Node("neg", (argument,)) == build.node(u)
        return -1 if opposite or self._rational(build.apply("add", argument, u)) == 0 else 0

    def _terms(self, u: int) -> Iterator[tuple[int, Fraction, int]]:
        """(w, c, s) with u = c (w − s), w not in s: variables first."""
        build = self.build
        terms: dict[int, Fraction] = {}
        stack = [(Fraction(1), u)]
        while stack:
            c, n = stack.pop()
            node = build.node(n)
            factor = self._rational(node.args[0]) if node.op == "mul" else None
            if node.op in ("add", "sub"):
                stack += [(c, node.args[0]), (c if node.op == "add" else -c, node.args[1])]
            elif node.op == "neg":
                stack.append((-c, node.args[0]))
            elif factor is not None:
                stack.append((c * factor, node.args[1]))
            else:
                terms[n] = terms.get(n, Fraction(0)) + c
        cones = {n: set(self._cone(n)) for n in terms}
        for w in sorted(terms, key=lambda n: (build.node(n).op != "var", n)):
            others = [n for n in terms if n != w]
            if not terms[w] or not self._varies(w) or any(w in cones[n] for n in others):
                continue
            s = build.const(0)
            for n in others:
                factor = -terms[n] / terms[w]
                term = build.apply("mul", build.const(abs(factor)), n)
                s = build.apply("add" if factor > 0 else "sub", s, term)
            yield w, terms[w], s

    # ------------------------------------------------------------ what jumps

    def _stepped(self, top: int) -> int | None:
        """`top` with the first `where`, floor or round in it written by sign."""
        build = self.build
        for t in reversed(self._jumps(top)):
            if build.node(t).op == "sign":
                continue
            argument = self._args(t)[0]
            inner = next((j for j in self._jumps(argument) if not self._jumps(self._args(j)[0])), t)
            best: _Written | None = None
            for w in self._coordinates(self._args(inner)[0]):
                found = self._in_pieces(t, w, jumping=True) if self._depends_on(argument, w) else None
                if found is None or (found.gap and t != top) or not self._holds(t, found):
                    continue
                if not all(self._is_thin(w, place.at) for place in found.places):
                    continue
                if best is None or self._open(found) < self._open(best):
                    best = found
            if best is None:
                continue
            g = best.node
            self.stepped += best.places
            for v, size in best.steps:
                step = build.apply("mul", build.const(_HALF), size)
                g = build.apply("add", g, build.apply("add", step, build.apply("mul", step, build.apply("sign", v))))
            return self._taken(top, t, best, g)
        return None

    def _is_thin(self, n: int, s: Fraction) -> bool:
        """Has {n = s} no measure? There sign(n − s) is 0, and g not f.

        A real-analytic function that is not constant takes a value on a set of measure 0 only. max(a, b) = s only where
        a or b is, |a| = s only where a = ±s, relu(a) = s > 0 only where a = s.
        """
        build, node = self.build, self.build.node(n)
        known = self._rational(n)
        if known is not None:
            return known != s
        if not any(build.node(m).op in NOT_ANALYTIC for m in self._cone(n)):
            return self._varies_surely(n)
        if node.op in ("max", "min"):
            return all(self._is_thin(arg, s) for arg in node.args)
        if node.op == "abs":
            return s < 0 or (self._is_thin(node.args[0], s) and self._is_thin(node.args[0], -s))
        if node.op == "relu":
            return s < 0 or (s > 0 and self._is_thin(node.args[0], s))
        if node.op == "neg":
            return self._is_thin(node.args[0], -s)
        constants = [self._rational(arg) for arg in node.args]
        if (
            node.op in ("add", "sub", "mul")
            and len(constants) == 2
            and (constants[0] is None) != (constants[1] is None)
        ):
            return self._shifted_thin(node, constants, s)
        return False

    def _shifted_thin(self, node: Node, constants: list[Fraction | None], s: Fraction) -> bool:
        """`_is_thin` of a sum or product with one rational argument."""
        (k,) = [i for i, c in enumerate(constants) if c is None]
        c, other = constants[1 - k] or Fraction(0), node.args[k]
        if node.op == "mul":
            return s != 0 if c == 0 else self._is_thin(other, s / c)
        if node.op == "add":
            return self._is_thin(other, s - c)
        return self._is_thin(other, s + c if k == 0 else c - s)

    def _varies_surely(self, n: int) -> bool:
        """Are two values of n proved to differ?"""
        names, graph = self.box.names, self.build.graph([n])
        with precision(_BITS):
            values = [values_at_point(graph, names, x)[0] for x in (*self._samples[:3], *self._samples[-3:])]
            return any(a < b or a > b for a in values for b in values if a.is_finite() and b.is_finite())

    def _open(self, found: _Written) -> int:
        """Steps whose size is not constant."""
        return sum(self._varies(size) for _, size in found.steps)


def _joined(cuts: Iterator[Switch]) -> list[Switch]:
    """In order, and those that touch as one."""
    out: list[Switch] = []
    for a, b in sorted(cuts):
        if out and a <= out[-1][1]:
            out[-1] = out[-1][0], max(b, out[-1][1])
        else:
            out.append((a, b))
    return out


def _ball(low: Fraction, high: Fraction) -> Ball:
    return exact(low) if low == high else exact(low).union(exact(high))
