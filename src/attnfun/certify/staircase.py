"""One step of a composition that jumps: a head whose keys form a partition, against a function g of one variable that
is constant between its jumps, or nearly so.

Statement. Let the keys of the head be a partition in u with the breakpoints t_1 < t_2 < … (`cells.walls`), λ > 0, d
and shift what rounding does to logits and to the query (`cell_rounding`), r_j = (λ + 2d)/(k_{j+1} − k_j) + shift, and
|û − U| ≤ δ for the argument û that the head sees. Call W_j = [t_j − r_j − δ, t_j + r_j + δ] the *walls*, and let U lie
in the range [low, high] but in no wall, between W_{j−1} and W_j. Then û is in the core of cell j, and

    |head(û) + b − g(U)| ≤ max |g − v_j − b| over [low, high] between these walls + e^{2d} leak·spread + rounding,

leak = 2 e^{−λ}/(1 − e^{−g}) of `cells`. What g does inside the walls does not matter: a jump of g that lies in one
costs nothing, and one that lies in none leaves an error of half its height at least, which is then proved.

g between walls is enclosed in balls, halved where they are too wide. An interval as thin as a wall on which a sign of g
stays open, as at 0 for sin(u) on [0, 1], becomes one of the walls: the above is about U off all of them.
Failure modes: keys that are no partition; more than one head, or a slope left to the stream.
"""

import math
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnfun.certify.cells import leak, walls
from attnfun.certify.rounding import cell_rounding
from attnfun.certify.view import HeadView, LineAxis, View, provided
from attnfun.language import Box, Graph, precision
from attnfun.language.enclosures import ball_ends, lower, upper, upper_at
from attnfun.language.graph import JUMPS, reached
from attnfun.language.mean_value import enclosures
from attnfun.language.ranges import range_of
from attnfun.network import Label

_MARGIN = 2e4  # of eps, by which the leak is to be below it: λ grows by ln of it, and a wall with λ
_LEAST = 28.0  # of λ: what reads a step may be large beside eps
_MOST_ROUGH = 250.0
_INTERVALS = 20_000


@dataclass(frozen=True)
class Staircase:
    """What is proved of one step: its walls in U, the error off them in real arithmetic, what rounding adds, and the
    ends of what head and g can give anywhere, as computed too; whether g was proved to be constant between the walls.
    """

    walls: tuple[tuple[float, float], ...]
    own: float
    rounding: float
    ends: tuple[float, float]
    constant: bool


@dataclass(frozen=True)
class Jump:
    """A coordinate that jumps: φ = g(U), what is proved of it, and the variable that stands for it in the relaxed
    program (`Reading.release`). `reads`: those of the jumps that U depends on, however indirectly.
    """

    variable: str
    label: Label
    unary: Graph
    stairs: Staircase
    reads: frozenset[str]


def jumps(graph: Graph) -> bool:
    """Is there an operation in it that is not continuous?"""
    return any(node.op in JUMPS for node in graph.nodes)


def wall_exponent(spread: float, eps: float) -> float:
    """λ for a head of values that spread so far in a network for `eps`; every λ is sound."""
    return max(_LEAST, math.log(max(_MARGIN * spread, 1e-300) / eps)) if 0 < eps < math.inf else _LEAST


def prove_staircase(
    line: LineAxis,
    head: HeadView,
    g: Graph,
    offset: float,
    ends: tuple[float, float],
    delta: float,
    dtype: str,
    eps: float,
) -> Staircase:
    """See the module's statement; `ends` is the range of U, `offset` is b."""
    low, high = ends
    left, right = math.nextafter(low - delta, -math.inf), math.nextafter(high + delta, math.inf)
    values = head.values[:, 0]
    seen = View(np.array([left]), np.array([right]), np.zeros((1, 1)), np.zeros(1), (head,))
    d, (shift,), lost = cell_rounding(seen, head, dtype)
    provided(d < _MOST_ROUGH and np.isfinite(lost).all(), f"composition: head {head.name} may overflow in {dtype}")
    spread = float(head.spread[0])
    with precision(64):
        structure = walls(line)
        lam = wall_exponent(spread, eps)
        reach = [(arb(lam) + 2 * arb(d)) / gap + arb(shift) + arb(delta) for gap in structure.gaps]
        found = [(lower(t - r), upper(t + r)) for t, r in zip(structure.points, reach, strict=True)]
        strays = leak(structure, lam) * spread
        lost_more = upper_at("expm1", 2 * d) * strays + float(lost[0])
        ((bottom, top),) = range_of(g, Box(("u",), (low,), (high,)), budget=1)
        thin = max(map(upper, reach), default=0.0)
    inner = [(a, b) for a, b in found if b >= low and a <= high]
    edges = [-math.inf, *(e for wall in found for e in wall), math.inf]
    own, constant = 0.0, _only_signs(g)
    for j, (a, b) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
        a, b = max(a, low), min(b, high)
        if a <= b:
            off, still, open_ = _off(g, float(values[j]), offset, a, b, eps, thin)
            own, constant, inner = max(own, off), constant and still, inner + open_
    own, rounding = (own + strays) * (1 + 1e-12), lost_more * (1 + 1e-12)
    near = rounding + 4 * np.spacing(float(np.abs(values).max()) + abs(offset))
    least, most = min(bottom, float(values.min()) + offset - near), max(top, float(values.max()) + offset + near)
    provided(math.isfinite(own + rounding + most - least), f"composition: head {head.name} is no staircase of its step")
    ends = math.nextafter(least, -math.inf), math.nextafter(most, math.inf)
    return Staircase(tuple(inner), own, rounding, ends, constant)


def signs_of(g: Graph) -> Graph:
    """All its signs, as outputs."""
    return Graph(g.nodes, tuple(i for i, node in enumerate(g.nodes) if node.op == "sign"))


def _only_signs(g: Graph) -> bool:
    """Does g read u through signs alone, so that it is constant where none of them changes?"""
    free = reached(g.outputs, lambda i: () if g.nodes[i].op == "sign" else g.nodes[i].args)
    return all(g.nodes[i].op != "var" for i in free)


def _off(
    g: Graph, value: float, offset: float, low: float, high: float, eps: float, thin: float
) -> tuple[float, bool, list[tuple[float, float]]]:
    """max |g − value − offset| on [low, high], and whether all its signs are proved to be constant there, but for
    intervals as thin as walls on which a sign is open.
    """
    lows, highs = np.array([low]), np.array([high])
    worst, spent, enough = 0.0, 0, 1e-3 * eps if math.isfinite(eps) else 1e-12
    graph = Graph(g.nodes, (*g.outputs, *signs_of(g).outputs))
    levels: set[tuple[float, ...]] = set()
    left_open: list[tuple[float, float]] = []
    while True:
        found, *signs = enclosures(graph, ("u",), lows[:, None], highs[:, None])
        below, above = (np.stack(e) for e in zip(*(ball_ends(v, len(lows)) for v in signs), strict=True))
        least, most = ball_ends(found - arb(value) - arb(offset), len(lows))
        size = np.maximum(np.abs(least), np.abs(most))
        size = np.where(np.isnan(size), math.inf, size)
        middle = lows + (highs - lows) / 2
        spent += len(lows)
        decided = (below == above).all(axis=0)
        wall = ~decided & (highs - lows <= thin)
        left_open += zip(lows[wall].tolist(), highs[wall].tolist(), strict=True)
        split = ~wall & ~(decided & (most - least <= enough)) & (lows < middle) & (middle < highs)
        split &= spent < _INTERVALS
        done = ~wall & ~split
        worst = max(worst, float(size[done].max(initial=0.0)))
        levels |= {tuple(column) for ends in (below, above) for column in ends[:, done].T.tolist()}
        if not split.any():
            return worst, len(levels) <= 1, left_open
        left, right = (lows[split], middle[split]), (middle[split], highs[split])
        lows, highs = np.concatenate(left), np.concatenate(right)
