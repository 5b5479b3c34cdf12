"""Where a function of one variable is not smooth, read from its expression.

A **kink** is a root of the argument of abs or relu, or of the difference in max or min; a **root** is a point where the
argument of sqrt, log, a power or a quotient reaches the end of what the operation allows. Points inside the interval
and near it count: a logarithm on [1e-6, 1] is governed by its singular point at 0. Arguments are taken from the graph
and their roots found by sign changes on a grid and bisection to the last bit, so a place is never guessed from samples
of the function itself.

Failure mode: a root between two grid points with no sign change (a double root off the grid) is missed; the fit then
needs more keys, and the proof says what it reached.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.kinds.function.build.unary.keys import Array
from attnfun.language import ArrayAlgebra, Graph, run, run_all
from attnfun.language.ratio import opened

_GRID = 1500  # points a third of the scan: the interval itself and as much again on either side
_ROOTS: dict[str, Callable[[Any], Any]] = dict.fromkeys(("sqrt", "log", "powr", "pow"), lambda g: g)
_ROOTS |= dict.fromkeys(("asin", "acos"), lambda g: 1 - g * g) | {"log1p": lambda g: 1 + g, "tan": np.cos}
KINKS = frozenset({"abs", "relu", "max", "min"})


@dataclass(frozen=True)
class Feature:
    """A place where smoothness ends; `kink` if both sides are smooth up to it."""

    at: float
    kink: bool


def values(graph: Graph, u: Array) -> Array:
    """The first output at u; points that rounding puts out of its domain are moved inward until they are defined."""
    f = evaluated(graph, u)
    if np.isfinite(f).all():
        return f
    width = float(np.ptp(u)) if len(u) > 1 else 1.0
    middle = float(np.mean(u))
    for scale in (1e-13, 1e-10, 1e-7):
        bad = ~np.isfinite(f)
        inward = np.where(u > middle, -1.0, 1.0) * scale * max(width, float(np.abs(u).max()) * 1e-3)
        f[bad] = evaluated(graph, u + inward)[bad]
        if np.isfinite(f).all():
            break
    return f


def evaluated(graph: Graph, u: Array) -> Array:
    """The first output at u, whatever it is there."""
    name = graph.variables[0] if graph.variables else "u"
    with np.errstate(all="ignore"):
        out = run(graph, ArrayAlgebra(), {name: u})[0]
    return np.array(np.broadcast_to(np.asarray(out, dtype=np.float64), u.shape))


@lru_cache(maxsize=256)
def features(graph: Graph, low: float, high: float) -> tuple[Feature, ...]:
    """Kinks inside (low, high) and roots inside or within one width of it, in order."""
    graph = opened(graph)
    guards = [i for i, node in enumerate(graph.nodes) if _is_guard(node.op, node.value)]
    if not guards or not graph.variables:
        return ()
    width = high - low
    u = np.unique(np.concatenate([np.linspace(low - width, high + width, 3 * _GRID + 1), [low, high]]))
    table = np.array(_each(graph, guards, u), dtype=np.float64)
    inside, places = (u >= low) & (u <= high), _roots(graph, guards, u, table)
    found: list[Feature] = []
    small = 1e-11 * np.nanmax(np.where(inside, np.abs(table), 0.0), axis=1) + 1e-300
    at = np.array(sorted({_snapped(v, low, high) for v in places}))
    for s, near in zip(at.tolist(), (np.abs(_each(graph, guards, at)) <= small[:, None]).T, strict=True):
        kinks = [graph.nodes[i].op in KINKS for i, hit in zip(guards, near, strict=True) if hit]
        if kinks and (not all(kinks) or low < s < high):
            found.append(Feature(s, all(kinks)))
    return tuple(found)


def _is_guard(op: str, value: object) -> bool:
    return op in _ROOTS or op in KINKS or op == "div" or (op == "powi" and isinstance(value, int) and value < 0)


def _each(graph: Graph, guards: list[int], u: Array) -> list[Array]:
    """Of every guard what must not vanish, at the points u."""
    rows = []
    with np.errstate(all="ignore"):
        nodes = run_all(graph, ArrayAlgebra(), {graph.variables[0]: u})
        for i in guards:
            node = graph.nodes[i]
            first = np.asarray(nodes[node.args[0]], dtype=np.float64)
            if node.op in ("max", "min"):
                first = first - nodes[node.args[1]]
            elif node.op == "div":
                first = np.asarray(nodes[node.args[1]], dtype=np.float64)
            elif node.op in _ROOTS:
                first = _ROOTS[node.op](first)
            rows.append(np.broadcast_to(first, u.shape))
    return rows


def _roots(graph: Graph, guards: list[int], u: Array, table: Array) -> list[float]:
    """Sign changes of the guards' arguments, each bisected to neighbouring doubles; exact zeros on the grid.

    All are bisected at once: the graph is walked once a step, however many guards it has.
    """
    found: list[float] = []
    changes: list[tuple[int, NDArray[np.intp]]] = []
    for i, g in zip(guards, table, strict=True):
        if (g == 0).all():
            continue
        found += [float(v) for v in u[g == 0]] if int((g == 0).sum()) <= 64 else []
        change = np.flatnonzero((np.sign(g[:-1]) * np.sign(g[1:]) < 0) & np.isfinite(g[:-1] + g[1:]))
        if 0 < len(change) <= 400:
            changes.append((i, change))
    if not changes:
        return found
    own = [i for i, _ in changes]
    cuts = np.cumsum([0, *(len(change) for _, change in changes)])

    def argument(points: Array) -> Array:
        """At every point the argument of the guard that the point belongs to."""
        each = _each(graph, own, points)
        return np.concatenate([row[a:b] for row, a, b in zip(each, cuts[:-1], cuts[1:], strict=True)])

    at = np.concatenate([change for _, change in changes])
    rows = np.repeat([guards.index(i) for i in own], np.diff(cuts))
    left, right, sign = u[at], u[at + 1], np.sign(table[rows, at])
    for _ in range(70):
        middle = left + (right - left) / 2
        upper = argument(middle) * sign > 0
        left, right = np.where(upper, middle, left), np.where(upper, right, middle)
    ends = np.abs(np.array([argument(left), argument(right)]))
    best = np.where(ends[0] <= ends[1], left, right)
    small = ends.min(axis=0) <= np.maximum(np.abs(table[rows, at]), np.abs(table[rows, at + 1]))  # a pole grows instead
    return found + [float(v) for v in best[small]]


def _snapped(s: float, low: float, high: float) -> float:
    near = 4 * np.spacing(max(abs(low), abs(high)))
    if abs(s) <= near / 64:
        return 0.0
    return low if abs(s - low) <= near else high if abs(s - high) <= near else s
