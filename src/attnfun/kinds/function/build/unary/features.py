"""Where a function of one variable is not smooth, read from its expression.

A **kink** is a root of the argument of abs or relu, or of the difference in max or min; a **root** is a point where the
argument of sqrt, log, a power or a quotient reaches the end of what the operation allows. Points inside the interval
and near it count: a logarithm on [1e-6, 1] is governed by its singular point at 0. Arguments are taken from the graph
and their roots found by sign changes on a grid and bisection to the last bit, so a place is never guessed from samples
of the function itself.

Failure mode: a root between two grid points with no sign change (a double root off the grid) is missed; the fit then
needs more keys, and the proof says what it reached.

Which graphs are A·op(w u + c) + B u + C, one operation under affine maps, and the heads that are exact.

    sigmoid(z) = e^{z/2}/(e^{z/2} + e^{−z/2}),      tanh(z) = 2 sigmoid(2z) − 1:      two keys, any steepness
    r/(s + t e^z), s t > 0:                          r/s · sigmoid(−z − ln(t/s))

Numbers are read as floats: whether a rewriting is exact is for the proof to say.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.kinds.function.build.unary.keys import Array, Keys
from attnfun.language import ArrayAlgebra, Graph, run, run_all
from attnfun.language.graph import FUNCTIONS, NOT_ANALYTIC
from attnfun.language.operations import OPERATIONS
from attnfun.language.ratio import opened

_GRID = 1500  # points a third of the scan: the interval itself and as much again on either side
_ROOTS: dict[str, Callable[[Any], Any]] = {
    name: entry.singular for name, entry in OPERATIONS.items() if entry.singular is not None
}
_ROOTS |= dict.fromkeys(("powr", "pow"), lambda g: g)
KINKS = NOT_ANALYTIC - {"sign"}


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


def jump_places(graph: Graph, low: float, high: float) -> list[float]:
    """Where a sign in the graph changes, inside [low, high], in order."""
    graph = opened(graph)
    guards = [i for i, node in enumerate(graph.nodes) if node.op == "sign"]
    u = np.linspace(low, high, 3 * _GRID + 1)
    table = np.array(_each(graph, guards, u), dtype=np.float64)
    return sorted({_snapped(v, low, high) for v in _roots(graph, guards, u, table)})


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

    All are bisected at once: the graph is walked once per step, however many guards it has.
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


_ONE = frozenset({"powi", "powr", *FUNCTIONS}) - {"sign"}


@dataclass(frozen=True)
class Known:
    """A·op(w u + c) + B u + C; `power` is the exponent of powi and powr. op "affine" has A = 0."""

    op: str
    power: Fraction
    w: float
    c: float
    scale: float
    slope: float
    offset: float


def known(graph: Graph) -> Known | None:
    """The one operation of the graph's first output, or None if there are more."""
    forms: list[Known | None] = []
    for node in graph.nodes:
        args = [forms[a] for a in node.args]
        forms.append(_form(node.op, node.value, args))
    return forms[graph.outputs[0]]


def _affine(slope: float, offset: float) -> Known:
    return Known("affine", Fraction(0), 0.0, 0.0, 0.0, slope, offset)


def _form(op: str, value: object, args: list[Known | None]) -> Known | None:
    if op == "const":
        assert isinstance(value, Fraction)
        return _affine(0.0, float(value))
    if op in ("pi", "e"):
        return _affine(0.0, math.pi if op == "pi" else math.e)
    if op == "var":
        return _affine(1.0, 0.0)
    if any(a is None for a in args):
        return None
    first, second = args[0], args[1] if len(args) > 1 else None
    assert first is not None
    if op == "neg":
        return _scaled(first, -1.0)
    if op in ("add", "sub") and second is not None:
        return _added(first, second if op == "add" else _scaled(second, -1.0))
    if op == "mul" and second is not None:
        if _constant(first):
            return _scaled(second, first.offset)
        if first == second and first.op == "affine":
            return Known("powi", Fraction(2), first.slope, first.offset, 1.0, 0.0, 0.0)
        return _scaled(first, second.offset) if _constant(second) else None
    if op == "div" and second is not None:
        return _quotient(first, second)
    if op in ("max", "min") and second is not None:
        return _larger(first, second, op)
    if op in _ONE and first.op == "affine":
        power = Fraction(value) if isinstance(value, Fraction | int) else Fraction(0)
        return Known(op, power, first.slope, first.offset, 1.0, 0.0, 0.0) if first.slope != 0 else None
    return None


def _constant(k: Known) -> bool:
    return k.op == "affine" and k.slope == 0


def _scaled(k: Known, factor: float) -> Known:
    return replace(k, scale=k.scale * factor, slope=k.slope * factor, offset=k.offset * factor)


def _added(a: Known, b: Known) -> Known | None:
    if a.op != "affine":
        a, b = b, a
    if a.op != "affine":
        return None
    return replace(b, slope=a.slope + b.slope, offset=a.offset + b.offset)


def _quotient(a: Known, b: Known) -> Known | None:
    if _constant(b):
        return _scaled(a, 1 / b.offset) if b.offset != 0 else None
    if not _constant(a):
        return None
    if b.op == "affine":
        return Known("powi", Fraction(-1), b.slope, b.offset, a.offset, 0.0, 0.0)
    if b.op == "exp" and b.slope == 0 and b.offset * b.scale > 0:  # r/(s + t e^z)
        return Known("sigmoid", Fraction(0), -b.w, -b.c - math.log(b.scale / b.offset), a.offset / b.offset, 0.0, 0.0)
    if b.op == "exp" and b.slope == 0 and b.offset == 0:
        return Known("exp", Fraction(0), -b.w, -b.c, a.offset / b.scale, 0.0, 0.0)
    return None


def _larger(a: Known, b: Known, op: str) -> Known | None:
    """max(a, b) = b + relu(a − b), min(a, b) = a − relu(a − b)."""
    difference = _added(a, _scaled(b, -1.0))
    if a.op != "affine" or b.op != "affine" or difference is None or difference.slope == 0:
        return None
    base, sign = (b, 1.0) if op == "max" else (a, -1.0)
    return Known("relu", Fraction(0), difference.slope, difference.offset, sign, base.slope, base.offset)


def exact(k: Known) -> tuple[Keys, ...] | None:
    """The keys that represent the operation with no error but rounding, or None."""
    if k.op == "affine":
        return ()
    if k.op not in ("tanh", "sigmoid"):
        return None
    half = 1.0 if k.op == "tanh" else 0.5
    # the query holds the offset of z in units of u: logits ±half·w (u + c/w)
    return (Keys(1.0, k.c / k.w, half * k.w * np.array([-1.0, 1.0]), np.zeros(2)),)
