"""Is the target defined, and continuous where it must be, on the whole box?

Each operation that is not defined everywhere sets a condition on its argument:
    a/b, b**-n: b ≠ 0;   log, x**y: > 0;   sqrt, x**p (p > 0 not an integer): ≥ 0;   asin, acos: in [-1, 1];
    tan: cos ≠ 0;   sup norm only: sign, where: ≠ 0;   floor: between two whole numbers;   round: the same of x + 1/2.
What only branches of `where` need is asked only where one of them may be taken: a *way* to an operation is the set of
all (u, side) that are passed between it and the outputs.
A condition is *violated* when balls prove so at float64 points (a value outside, or two points of opposite sign: the
argument is continuous, so it vanishes between them), *kept* when branch and bound over sub-boxes proves it, else open.
Enclosures are those of `language/mean_value.py`; sums of squares, the law of cosines among them, are known not to be
negative, and rational arguments that just reach their limit are settled in exact arithmetic.
Failure mode: other arguments that touch their limit through cancellation (sqrt(1 - sin(x)**2 - cos(x)**2)) stay open.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.language import BallAlgebra, Builder, Graph, Node, precision, run
from attnfun.language.arrays import values_at
from attnfun.language.domain import Array, Box, halved
from attnfun.language.enclosures import ball_ends, lower, point_balls, upper
from attnfun.language.graph import JUMPS, Ratio, rational
from attnfun.language.mean_value import enclosures
from attnfun.language.numbers import above, below
from attnfun.language.operations import OPERATIONS
from attnfun.language.operations.entry import BETWEEN, NONNEGATIVE, NONZERO, POSITIVE, Range
from attnfun.language.parse import parse
from attnfun.language.ranges import range_of
from attnfun.language.ratio import opened
from attnfun.language.squares import sum_of_squares

_BOXES = 6000
_FEW_BOXES = 64
_SERIES = 20  # what a node of a continued quotient costs, in nodes
_WORK = 600_000  # nodes × sub-boxes, above as few boxes as that
_PAIRS = _WORK // _FEW_BOXES  # conditions × nodes × continued quotients: the fewest boxes of all are within the work


Way = frozenset[tuple[int, bool]]
Ways = frozenset[Way]
_ALWAYS: Ways = frozenset({frozenset()})
_MOST_WAYS = 16
_LOOKS = 16  # places at which a jump is looked at


@dataclass(frozen=True)
class Condition:
    """`kind` of the node `argument`, needed by the node `at` of the target's graph."""

    at: int
    argument: int
    kind: Range
    ways: Ways = _ALWAYS  # needed where, on one of them, node > 0 (True) or node <= 0 (False) of all its nodes


def conditions(graph: Graph, continuous: bool) -> tuple[Graph, list[Condition]]:
    """The graph, with what operations need something of (the cosines of tan's arguments, …) and both sides of every
    ratio appended, and all its conditions.
    """
    graph = opened(graph)
    nodes = list(graph.nodes)
    ways = _ways(graph)
    found: list[Condition] = []
    for i, node in enumerate(graph.nodes):
        entry = OPERATIONS.get(node.op)
        if entry is not None and entry.needs is not None and (continuous or not entry.needs.continuity):
            found.append(Condition(i, _appended(nodes, entry.needs.of, node.args[0]), entry.needs.range, ways[i]))
        elif node.divides:
            found.append(Condition(i, node.args[-1], NONZERO, ways[i]))
        elif node.op == "powr" and isinstance(node.value, Fraction):
            found.append(Condition(i, node.args[0], NONNEGATIVE if node.value > 0 else POSITIVE, ways[i]))
        elif node.op == "pow":
            found.append(Condition(i, node.args[0], POSITIVE, ways[i]))
    return Graph(tuple(nodes), graph.outputs), found


def _appended(nodes: list[Node], formula: str, argument: int) -> int:
    """Where the formula in x of a node comes to lie among `nodes`."""
    at: list[int] = []
    for node in _formula(formula).nodes:
        if node.op == "var":
            at.append(argument)
        else:
            nodes.append(replace(node, args=tuple(at[a] for a in node.args)))
            at.append(len(nodes) - 1)
    return at[-1]


@lru_cache(maxsize=256)
def _formula(text: str) -> Graph:
    return parse(text, ["x"])


def _ways(graph: Graph) -> list[Ways]:
    """For every node: on which ways the outputs need it; past `_MOST_WAYS` what all of them have in common."""
    if not any(node.op == "where" for node in graph.nodes):
        return [_ALWAYS] * len(graph.nodes)
    known: list[Ways] = [frozenset()] * len(graph.nodes)

    def needed(i: int, ways: Ways) -> None:
        together = known[i] | ways
        least = frozenset(way for way in together if not any(other < way for other in together))
        known[i] = least if len(least) <= _MOST_WAYS else frozenset({frozenset.intersection(*least)})

    for o in graph.outputs:
        needed(o, _ALWAYS)
    for i in range(len(graph.nodes) - 1, -1, -1):  # what uses a node comes after it
        node = graph.nodes[i]
        for place, arg in enumerate(node.args):
            side = {(node.args[0], place == 1)} if node.op == "where" and place else set()
            needed(arg, frozenset(way | side for way in known[i]))
    return known


_RATIONAL = frozenset({"var", "const", "neg", "add", "sub", "mul", "div", "powi"})


def natural_domain(graph: Graph) -> tuple[float, float]:
    """An interval that holds the one variable u of `graph` wherever the graph is defined.

    Read off the conditions whose argument is a u + b with rational a, b, or comes from u by steps that can be taken
    back (exp, log, sqrt, affine ones); ends are rounded outward.
    """
    extended, found = conditions(graph, continuous=False)
    forms, owners = affine_forms(extended), extended.owners
    low, high = -math.inf, math.inf
    for c in found:
        least, most = c.kind.least, c.kind.most
        if least is None or c.ways != _ALWAYS:
            continue
        form = forms[c.argument]
        if form is None:
            inverse = _taken_back(extended, owners, c.argument, least, most)
            low, high = max(low, inverse[0]), min(high, inverse[1])
            continue
        if form[0] == 0:
            continue
        slope, offset = form
        sides = [None if end is None else (end - offset) / slope for end in (least, most)]
        bottom, top = sides if slope > 0 else reversed(sides)
        low = low if bottom is None else max(low, _outward(bottom, -math.inf))
        high = high if top is None else min(high, _outward(top, math.inf))
    return low, high


def _taken_back(
    graph: Graph, owners: Sequence[frozenset[str]], node: int, least: Fraction | None, most: Fraction | None
) -> tuple[float, float]:
    """Doubles around the u at which `node` lies in [least, most], by inverses of monotone steps; else infinite.
    `owners`: the variables of every node.
    """
    with precision(128):
        a = arb("-inf") if least is None else arb(least.numerator) / least.denominator
        b = arb("inf") if most is None else arb(most.numerator) / most.denominator
        while graph.nodes[node].op != "var":
            inner = graph.nodes[node]
            open_args = [n for n in inner.args if owners[n]]
            if len(open_args) != 1:
                return -math.inf, math.inf
            constants = [n for n in inner.args if n not in open_args]  # at most one
            fixed = [run(graph.reachable((n,)), BallAlgebra(), {})[0] for n in constants]
            first = inner.args[0] in open_args
            if inner.op == "exp":
                if not b > 0:
                    return -math.inf, math.inf
                a, b = a.log() if a > 0 else arb("-inf"), b.log()
            elif inner.op == "log":
                a, b = a.exp(), b.exp()
            elif inner.op == "sqrt":
                a, b = a * a if a > 0 else arb(0), b * b if b >= 0 else arb("inf")
            elif inner.op == "neg":
                a, b = -b, -a
            elif inner.op == "add" or (inner.op == "sub" and first):
                shift = fixed[0] if inner.op == "add" else -fixed[0]
                a, b = a - shift, b - shift
            elif inner.op == "sub":
                a, b = fixed[0] - b, fixed[0] - a
            elif inner.op == "mul" or (inner.op == "div" and first):
                scale = fixed[0] if inner.op == "mul" else 1 / fixed[0]
                if not (scale > 0 or scale < 0):
                    return -math.inf, math.inf
                a, b = (a / scale, b / scale) if scale > 0 else (b / scale, a / scale)
            else:
                return -math.inf, math.inf
            (node,) = open_args
        return lower(a), upper(b)


def _outward(value: Fraction, side: float) -> float:
    """The double nearest to the fraction, stepped towards `side` if it lies on the other side of it."""
    try:
        return above(value) if side > 0 else below(value)
    except OverflowError:  # past every double: the largest one, or infinity, whichever lies outward
        size = math.inf if (value > 0) == (side > 0) else sys.float_info.max
        return size if value > 0 else -size


def affine_forms(graph: Graph) -> list[tuple[Fraction, Fraction] | None]:
    """For every node (a, b) if it is a u + b with rational coefficients, else None."""
    forms: list[tuple[Fraction, Fraction] | None] = []
    for node in graph.nodes:
        args = [f for f in (forms[a] for a in node.args) if f is not None]
        form = None
        if node.op == "var":
            form = Fraction(1), Fraction(0)
        elif node.op == "const" and isinstance(node.value, Fraction):
            form = Fraction(0), node.value
        elif node.op in ("neg", "add", "sub") and len(args) == len(node.args):
            form = rational(node.op, [a for a, _ in args]), rational(node.op, [b for _, b in args])
        elif node.op in ("mul", "div") and len(args) == 2:
            (a, b), (c, d) = args
            if node.op == "mul" and (a == 0 or c == 0):
                form = a * d + b * c, b * d
            elif node.op == "div" and c == 0 and d != 0:
                form = a / d, b / d
        forms.append(form)
    return forms


def require_defined(graph: Graph, box: Box, continuous: bool = True) -> None:
    """Raise InvalidRequest (violated, with the subexpression and a point) or Infeasible (open) unless all are kept."""
    extended, found = conditions(graph, continuous)
    if not found:
        return
    guarded = sorted({u for c in found for way in c.ways for u, _ in way})
    arguments = Graph(extended.nodes, (*(c.argument for c in found), *guarded))
    with precision(128):
        _look_for_violations(extended, arguments, found, box)
        _prove(extended, arguments, found, box)


def require_conditions(graph: Graph, nodes: list[int], described: Graph, found: list[Condition], box: Box) -> None:
    """Raise Infeasible unless nodes[i] of the graph keeps the condition found[i], told in the words of `described`."""
    if found:
        with precision(128):
            _prove(described, Graph(graph.nodes, tuple(nodes)), found, box)


def _describe(extended: Graph, c: Condition) -> str:
    node = extended.nodes[c.at]
    entry = OPERATIONS.get(node.op)
    called = entry.needs.called if entry is not None and entry.needs is not None else ""
    name = {"div": "the denominator", "powi": "the base", "powr": "the base", "pow": "the base"}.get(
        node.op, called or f"the argument of {node.op}"
    )
    return f"{name} {extended.text(c.argument, limit=80)} {c.kind.words}"


def _at(box: Box, x: Array) -> str:
    return ", ".join(f"{n}={float(v):.6g}" for n, v in zip(box.names, x, strict=True))


def _look_for_violations(extended: Graph, arguments: Graph, found: list[Condition], box: Box) -> None:
    samples = X = box.probe(512, np.random.default_rng(1))
    picks: set[int] = set()
    seen = values_at(arguments, box.names, X).T
    for row in seen:
        picks |= {int(np.argmin(np.where(np.isfinite(r), r, np.inf))) for r in (row, -row, np.abs(row))}
    X = X[sorted(picks)]
    env = {n: point_balls(X[:, k]) for k, n in enumerate(box.names)}
    rows = [ball_ends(value, len(X)) for value in run(arguments, BallAlgebra(clip_sqrt=True), env)]
    for k, (c, (low, high)) in enumerate(zip(found, rows, strict=False)):
        needed = ~_off(arguments, c, rows, len(found), surely=False)
        low, high = np.where(needed, low, np.nan), np.where(needed, high, np.nan)
        if c.kind.off_zero and c.ways == _ALWAYS and (low > 0).any() and (high < 0).any():
            ends = [(X[int(np.argmax(low > 0))], X[int(np.argmax(high < 0))])]
            jumps = extended.nodes[c.at].op in JUMPS
            if jumps:  # the largest jump of a few that are looked at
                ends += zip(samples[seen[k] > 0][:_LOOKS], samples[seen[k] < 0][:_LOOKS], strict=False)
            crossings = [_crossing(arguments, k, box, *pair) for pair in ends]
            sizes = [_change(extended, box, *pair) if jumps else 0.0 for pair in crossings]
            x, size = crossings[int(np.argmax(sizes))][0], max(sizes)
            place = f"{_describe(extended, c)}, but it changes sign near {_at(box, x)}"
            raise InvalidRequest(place + (_jump(size) if jumps else _what(extended, c)))
        wrong = c.kind.fails(low, high)
        if wrong.any():
            x = X[int(np.argmax(wrong))]
            raise InvalidRequest(f"{_describe(extended, c)}, but at {_at(box, x)} it does not{_what(extended, c)}")
        steps = np.nanmax(np.floor(low), initial=-np.inf), np.nanmin(np.floor(high), initial=np.inf)
        if c.kind is BETWEEN and steps[0] > steps[1]:
            x = X[int(np.nanargmax(low))]
            raise InvalidRequest(f"{_describe(extended, c)}, but at {_at(box, x)} it does not{_what(extended, c)}")


def _change(graph: Graph, box: Box, a: Array, b: Array) -> float:
    """How much the outputs differ between two neighbours, seen from a little further away on both sides."""
    X = np.clip(np.stack([a + 16 * (a - b), b - 16 * (a - b)]), box.low_array, box.high_array)
    values = values_at(Graph(graph.nodes, graph.outputs), box.names, X)
    return float(np.nan_to_num(np.abs(values[0] - values[1])).max())


def _off(
    arguments: Graph, c: Condition, rows: Sequence[tuple[Array, Array]], count: int, surely: bool
) -> NDArray[np.bool_]:
    """Where the condition is not needed: every way to it is proved closed, or (not `surely`) none is proved open.

    The nodes of ways are the outputs of `arguments` from `count` on, with these ends; what is no such node is always
    passed.
    """
    places = {node: k for k, node in enumerate(arguments.outputs) if k >= count}
    out = np.ones(np.shape(rows[0][0]), dtype=bool)
    for way in c.ways:
        closed = np.zeros(out.shape, dtype=bool)
        for node, positive in way:
            if node in places:
                low, high = rows[places[node]]
                holds, fails = (low > 0, high <= 0) if positive else (high <= 0, low > 0)
                closed |= fails if surely else ~holds
        out &= closed
    return out


def _what(extended: Graph, c: Condition) -> str:
    """What the violation means for the user."""
    if extended.nodes[c.at].op in JUMPS:
        return _jump(math.nan)
    return ": a pole inside the domain" if c.kind.off_zero else ": the target is not defined on the whole domain"


def _jump(size: float) -> str:
    """What it means that a condition changes there, where the target was seen to change by `size`."""
    if size > 1e-9:
        how = f": a jump by {size:.3g}"
    else:
        how = ": a jump" if math.isnan(size) else ": a jump, unless the pieces meet there, which was not found"
    return f"{how}; no continuous network follows a jump in the sup norm; ask for norm=1 or norm=2, or for a band"


def _crossing(arguments: Graph, which: int, box: Box, a: Array, b: Array) -> tuple[Array, Array]:
    """Neighbours of a sign change on the segment from a (positive) to b (negative), by float bisection."""
    for _ in range(60):
        middle = (a + b) / 2
        value = values_at(arguments, box.names, middle[None])[0, which]
        a, b = (middle, b) if value > 0 else (a, middle)
    return a, b


def _prove(extended: Graph, arguments: Graph, found: list[Condition], box: Box) -> None:
    """Branch and bound: every condition on every sub-box, splitting the widest side (relative to the box)."""
    lows, highs = box.low_array[None], box.high_array[None]
    width = box.high_array - box.low_array
    names = list(box.names)
    ratios = sum(node.op == "ratio" for node in arguments.nodes)
    few = len(found) * _weight(arguments) * (1 + ratios) <= _PAIRS  # else it would take longer than the boxes
    work = _WORK // len(found)
    settled = [few and _settled(arguments, k, c.kind, box, work) for k, c in enumerate(found)]
    owners = arguments.owners
    done, most = 0, min(_BOXES, max(_FEW_BOXES, _WORK // _weight(arguments)))
    while len(lows):
        values = enclosures(arguments, names, lows, highs)
        kept = np.ones(len(lows), dtype=bool)
        worst: Condition | None = None
        matter: set[str] = set()
        rows = [ball_ends(value, len(lows)) for value in values]
        for k, (c, ends) in enumerate(zip(found, rows, strict=False)):
            if settled[k]:
                continue
            good = c.kind.holds(*ends) | _off(arguments, c, rows, len(found), surely=True)
            if not good.all() and c.kind.closed:
                good |= _holds_exactly(arguments, k, c.kind, names, lows, highs, ~good)
            if not good.all():
                worst = worst or c
                matter |= owners[arguments.outputs[k]]
            kept &= good
        done += len(lows)
        weight = np.array([n in matter for n in names]) / width
        lows, highs = lows[~kept], highs[~kept]
        if (
            len(lows)
            and worst is not None
            and (done + 2 * len(lows) > most or np.max((highs - lows) * weight) < 2.0**-40)
        ):
            x = (lows[0] + highs[0]) / 2
            raise Infeasible(f"could not prove that {_describe(extended, worst)} (open near {_at(box, x)})")
        lows, highs = halved(lows, highs, weight)


def _weight(graph: Graph) -> int:
    """What the graph costs on one box, in nodes."""
    inside = sum(len(node.value.graph.nodes) for node in graph.nodes if isinstance(node.value, Ratio))
    return len(graph.nodes) + _SERIES * inside


def _settled(arguments: Graph, k: int, kind: Range, box: Box, work: int) -> bool:
    """Is this argument a sum of squares, as it stands or by the law of cosines; or does its range settle it?

    Ranges know continued quotients as variables of their own, which saves many boxes.
    """
    alone = arguments.reachable((arguments.outputs[k],))
    if any(node.op == "ratio" for node in alone.nodes):
        boxes = max(_FEW_BOXES, min(_BOXES // 4, work // _weight(alone)))
        ((low, high),) = range_of(alone, box, budget=boxes)
        if bool(kind.holds(np.array(low), np.array(high))):
            return True
    if kind != NONNEGATIVE:
        return False
    build = Builder()
    at = build.copy(arguments.nodes)

    def not_negative(n: int) -> bool:
        return range_of(build.graph([n]), box)[0][0] >= 0

    return sum_of_squares(build, at[arguments.outputs[k]], not_negative) is not None


def _holds_exactly(
    arguments: Graph, k: int, kind: Range, names: list[str], lows: Array, highs: Array, which: np.ndarray[Any, Any]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The boxes of `which` on which rational interval arithmetic settles it: 2/(1·2) is 1 and not a little more."""
    graph = arguments.reachable((arguments.outputs[k],))
    good = np.zeros(len(lows), dtype=bool)
    if any(node.op not in _RATIONAL for node in graph.nodes):
        return good
    for i in np.flatnonzero(which)[:64]:
        sides = dict(zip(names, zip(map(Fraction, lows[i]), map(Fraction, highs[i]), strict=True), strict=True))
        found = _rational_range(graph, sides)
        if found is not None:
            low, high = found
            good[i] = kind.holds_exactly(low, high)
    return good


def _rational_range(graph: Graph, ends: Mapping[str, tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction] | None:
    """The plain interval extension in exact arithmetic; None where a denominator may vanish or numbers grow long."""
    out: list[tuple[Fraction, Fraction]] = []
    for node in graph.nodes:
        args = [out[a] for a in node.args]
        if node.op == "var":
            low, high = ends[str(node.value)]
        elif node.op == "const" and isinstance(node.value, Fraction):
            low = high = node.value
        elif node.op in ("neg", "add", "sub", "mul", "div"):
            if node.op == "div" and args[1][0] <= 0 <= args[1][1]:
                return None
            corners = [rational(node.op, corner) for corner in product(*args)]
            low, high = min(corners), max(corners)
        elif node.op == "powi" and isinstance(node.value, int) and 0 < node.value <= 16:
            a, b = args[0][0] ** node.value, args[0][1] ** node.value
            low, high = min(a, b), max(a, b)
            if node.value % 2 == 0 and args[0][0] <= 0 <= args[0][1]:
                low = Fraction(0)
        else:
            return None
        if max(n.bit_length() for end in (low, high) for n in end.as_integer_ratio()) > 4000:
            return None
        out.append((low, high))
    return out[graph.outputs[0]]
