"""Method *cells*: partitions, by ranges of the target over inflated cells. Any number of variables, sup and L^p norms.

One axis. Logits l_j(q) = k_j q + b_j with increasing slopes; neighbours j, j+1 meet at t_j = (b_j − b_{j+1})/(k_{j+1} −
k_j). If the t_j increase, key j is the largest exactly on its cell [t_{j−1}, t_j]. Choose λ > 0 and *inflate* the cell
by λ/(k_{j+1} − k_j) on the right, λ/(k_j − k_{j−1}) on the left. At a q right of the inflated cell of j, key j weighs
at most e^−λ of key j+1, and each further key on the left e^−g less, g = min_j min(k_{j+1} − k_j, k_{j+2} −
k_{j+1})(t_{j+1} − t_j). So the keys whose inflated cell does not contain q weigh together at most  leak = 2 e^−λ/(1 −
e^−g).

A product head. Let e_j = sup |f − v_j| over the inflated cell j (cut with the box). At any x, Σ_j p_j |v_j − f(x)|:
keys whose inflated cell contains x give at most max e_j; the others are within (max V − min V) of a key that does.
Hence

    sup|f − net| ≤ max_j e_j + (Σ_axes leak)·(max V − min V),

and in L^p, normalised by the volume, with core cells (cells less the inflated walls of their neighbours, where only j
counts):

    ‖f − net‖_p ≤ ( Σ_j [ vol(core_j) e_core,j^p + (vol(inflated_j) − vol(core_j)) e_j^p ] / vol )^{1/p} + leak·(max V −
    min V).

As computed. Cells are inflated by λ/(k_{j+1} − k_j) + δ, and λ grows by 2d (δ, d: `cell_rounding`). If x is outside
the inflated cell of j, then the point x̂ whose query was computed is outside the one without δ, so such keys weigh
together at most e^{2d} leak, and

    sup|f − net computed| ≤ max_j e_j + e^{2d} (Σ_axes leak)·(max V − min V) + lost,

in L^p likewise. That logits round by d in the whole box costs the walls 2d/(k_{j+1} − k_j) of their width and no more:
how near the winner a key is decides, and not how large logits are, nor how far apart distant values.

λ is chosen by the checker, to make the bound small; a sharper head (larger slopes) allows thinner walls. Ranges: plain
balls, and where that is not below the goal the mean-value form, then halving of the cell. A black box with Lipschitz
constant L has e_j ≤ |f(c) − v_j| + L |half diagonal|, which is conditional on L.

Failure modes: breakpoints that do not increase (not a partition); targets whose ranges are not finite.
"""

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise, product
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from attnfun.certify.rounding import cell_rounding
from attnfun.certify.view import Array, Bound, HeadView, LineAxis, View, provided
from attnfun.certify.witness import best_witness
from attnfun.language import BallAlgebra, GradientAlgebra, precision, run
from attnfun.language.enclosures import abs_lower, ball_ends, balls, lower, lowers, point_balls, upper, upper_at, uppers
from attnfun.language.function import Function
from attnfun.language.outward import next_above, next_below

_CHUNK = 60_000
_PRODUCTS = (1.0, 2.0, 3.0, 4.0)
_ROUGH = 250.0  # e^{2d} is a double, with room
_LAMBDAS = (6.0, 8.0, 10.0, 12.0, 15.0, 18.0, 22.0, 27.0, 32.0, 38.0)


@dataclass(frozen=True)
class Cells:
    """Inflated cells of one axis, in the variable x, cut with the box: indices that meet it, their ends, core ends."""

    index: NDArray[np.intp]
    low: Array
    high: Array
    core_low: Array
    core_high: Array


@dataclass(frozen=True)
class Walls:
    """Exact data of one axis: breakpoints in x as balls, slope differences in x, and g of the module's statement."""

    points: list[arb]
    gaps: list[arb]
    least: float


def walls(axis: LineAxis) -> Walls:
    """Breakpoints of the axis in the variable x, proved to increase, or Undecided."""
    order = np.argsort(axis.slopes * np.sign(axis.w), kind="stable")
    provided(np.array_equal(order, np.arange(axis.size)), "cells: the slopes of an axis do not increase")
    w, c = arb(axis.w), arb(axis.c)
    k = [arb(float(v)) * w for v in axis.slopes]
    b = [arb(float(v)) + arb(float(s)) * c for v, s in zip(axis.biases, axis.slopes, strict=True)]
    gaps = [k2 - k1 for k1, k2 in pairwise(k)]
    provided(all(g > 0 for g in gaps), "cells: two keys of an axis have the same slope")
    points = [(b1 - b2) / g for (b1, b2), g in zip(pairwise(b), gaps, strict=True)]
    least = math.inf
    for (t1, t2), g1, g2 in zip(pairwise(points), gaps[:-1], gaps[1:], strict=True):
        least = min(least, lower((t2 - t1) * g1), lower((t2 - t1) * g2))
    provided(least > 0, "cells: the breakpoints of an axis do not increase, so its keys do not form a partition")
    return Walls(points, gaps, least)


def cells(w: Walls, low: float, high: float, lam: float, shift: float = 0.0) -> Cells:
    """Inflated and core cells at wall exponent λ, ends rounded outward (inward for cores), cut with [low, high].

    `shift`: how far the point may be from the one whose weights are meant.
    """
    reach = [arb(lam) / g + arb(shift) for g in w.gaps]
    below = [lower(t - r) for t, r in zip(w.points, reach, strict=True)]
    above = [upper(t + r) for t, r in zip(w.points, reach, strict=True)]
    left_in, right_in = np.array([-math.inf, *below]), np.array([*above, math.inf])
    left_core, right_core = np.array([-math.inf, *above]), np.array([*below, math.inf])
    meet = np.flatnonzero((left_in <= high) & (right_in >= low))
    a, b = np.maximum(left_in[meet], low), np.minimum(right_in[meet], high)
    ca, cb = np.maximum(left_core[meet], low), np.minimum(right_core[meet], high)
    return Cells(meet, a, b, ca, cb)


def leak(w: Walls, lam: float) -> float:
    """2 e^−λ/(1 − e^−g), rounded up."""
    if not w.gaps:
        return 0.0
    with precision(64):
        tail = -(-arb(w.least)).expm1()  # not 1 - exp: for a tiny g that is rounding error of either sign
        return upper(2 * (-arb(lam)).exp() / tail) if tail > 0 else math.inf


def prove_by_cells(view: View, function: Function, norm: float, eps: float, dtype: str = "float64") -> Bound:
    """Prove a bound of the sup or L^p norm of f − net for a single product head (plus nothing else)."""
    provided(len(view.heads) == 1 and not view.affine.any(), "cells: only for a single head without an affine part")
    head = view.heads[0]
    plain, variables = np.array_equal(head.mix, np.eye(len(head.mix))), sorted(a.variable for a in head.axes)
    provided(plain and not view.bias.any(), "cells: the head's values must be the outputs")
    provided(variables == list(range(view.dim)), "cells: every variable needs an axis of its own")
    with precision(64):
        structure = [walls(axis) for axis in head.axes]
        d, shifts, computed = cell_rounding(view, head, dtype)
        if not d < _ROUGH:  # nothing is proved here of the head as computed
            d, shifts, computed = 0.0, [0.0] * len(shifts), np.full(view.outputs, math.inf)
        lam = wall_exponent(structure, float(head.spread.max()), eps) + 2 * d
        leaks = sum(leak(w, lam) for w in structure)
        rounding = float(np.max(upper_at("expm1", 2 * d) * leaks * head.spread + computed)) * (1 + 1e-12)
        goal = eps - rounding if rounding < eps else eps
        strays = (upper_at("exp", 2 * d) * leaks * head.spread + computed) * (1 + 1e-12)
        grids = []
        for axis, w, shift in zip(head.axes, structure, shifts, strict=True):
            grids.append(cells(w, float(view.low[axis.variable]), float(view.high[axis.variable]), lam, shift))
        lost = leaks * head.spread
        details = {"cells": [len(g.index) for g in grids], "lambda": lam, "leak": float(lost.max())}
        bound = Bound("cells", 0.0, math.inf, None, details, rests_on(function, norm), rounding)
        if math.isfinite(norm):
            high, low = _lp_norm(head, function, grids, norm, lost, view, goal)
            bound = replace(bound, low=low, high=high)
        else:
            worst, place = _supremum(head, function, grids, max(goal - float(lost.max()), 0.0), core=False)
            bound = replace(bound, high=float(np.max(worst + lost)) * (1 + 4e-16))
            if function.graph is not None:
                low, witness = _lower_end(view, head, function, grids, place)
                firm = _firm_end(head, function, grids, place, strays)
                bound = replace(bound, low=low, witness=witness, firm=firm)
    provided(math.isfinite(bound.high), "cells: no finite bound (the target's range over a cell is not finite)")
    return bound


def wall_exponent(structure: list[Walls], spread: float, eps: float) -> float:
    """The λ with the best trade of leak against wall width; every λ is sound."""
    scores = []
    for lam in _LAMBDAS:
        lost = sum(leak(w, lam) for w in structure) * spread
        widths = [2 * lam / w.least if math.isfinite(w.least) else 0.0 for w in structure]
        scores.append(lost + eps * sum(widths) / max(1, len(widths)))
    return _LAMBDAS[int(np.argmin(scores))]


def rests_on(function: Function, p: float) -> tuple[str, ...]:
    powers = () if p in (*_PRODUCTS, math.inf) else ("NumPy: powers within 4 ulp",)
    if function.graph is not None:
        return powers
    constant = f"Lipschitz constant {function.lipschitz:g} (Euclidean)"
    return (*powers, f"the black box has {constant}, and its float64 values are exact")


# ---------------------------------------------------------------- ranges of |f − v| over cells


def _supremum(
    head: HeadView, function: Function, grids: list[Cells], goal: float, core: bool
) -> tuple[Array, list[tuple[int, ...]]]:
    """(outputs,) max_j e_j, and the positions of the worst cells, chunk by chunk along the first axis."""
    worst = np.zeros(head.values.shape[-1])
    places: list[tuple[float, tuple[int, ...]]] = []
    for rows in _row_chunks([len(g.index) for g in grids]):
        e = errors_over_cells(head, function, grids, rows, goal, core)
        worst = np.maximum(worst, e.reshape(-1, e.shape[-1]).max(axis=0))
        flat = e.max(axis=-1)
        top = np.unravel_index(int(np.argmax(flat)), flat.shape)
        places.append((float(flat[top]), (int(top[0]) + rows.start, *(int(v) for v in top[1:]))))
    places.sort(reverse=True)
    return worst, [p for _, p in places[:4]]


def _row_chunks(shape: list[int]) -> list[slice]:
    per_row = max(1, int(np.prod(shape[1:], dtype=np.int64)))
    step = max(1, _CHUNK // per_row)
    return [slice(i, min(i + step, shape[0])) for i in range(0, shape[0], step)]


def errors_over_cells(
    head: HeadView, function: Function, grids: list[Cells], rows: slice, goal: float, core: bool
) -> Array:
    """e_j for a block of cells, shape (rows, P_2, …, outputs); refined only where the plain range exceeds `goal`."""
    ends = [(g.core_low, g.core_high) if core else (g.low, g.high) for g in grids]
    ends[0] = (ends[0][0][rows], ends[0][1][rows])
    index = [g.index for g in grids]
    index[0] = index[0][rows]
    v = head.values[np.ix_(*index)]
    order = [a.variable for a in head.axes]
    if function.graph is None:
        return _black_box_errors(function, ends, order, v)
    lows, highs = _ranges(function, ends, order, v.shape[:-1])
    e = np.maximum(next_above(highs - v), next_above(v - lows))
    e = np.where(np.isnan(e), np.inf, e)
    bad = np.argwhere(e.max(axis=-1) > goal)
    if len(bad) and len(bad) <= 200_000:
        boxes_low = np.stack([ends[a][0][bad[:, a]] for a in range(len(ends))], axis=1)
        boxes_high = np.stack([ends[a][1][bad[:, a]] for a in range(len(ends))], axis=1)
        better = _refined(function, boxes_low, boxes_high, order, v[tuple(bad.T)])
        e[tuple(bad.T)] = np.minimum(e[tuple(bad.T)], better)
    if core:  # an empty core has no points
        e[reduce(np.logical_or, _along_axes([lo > hi for lo, hi in ends]))] = 0.0
    return e


def _ranges(
    function: Function, ends: list[tuple[Array, Array]], order: list[int], shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Lower and upper ends of f over the product cells, shape (*shape, outputs); axis-only parts cost one axis."""
    grid = _along_axes([balls(np.minimum(lo, hi), hi) for lo, hi in ends])
    env = {function.box.names[k]: values for k, values in zip(order, grid, strict=True)}
    values = run(function.formula, BallAlgebra(clip_sqrt=True), env)
    lows = [np.broadcast_to(lowers(np.asarray(f, dtype=object)), shape) for f in values]
    highs = [np.broadcast_to(uppers(np.asarray(f, dtype=object)), shape) for f in values]
    return np.stack(lows, axis=-1), np.stack(highs, axis=-1)


def _refined(function: Function, low: Array, high: Array, order: list[int], v: Array) -> Array:
    """e for listed cells by the mean-value form f(c) + f'(cell)(x − c), on the halves of each cell along every axis."""
    d = low.shape[1]
    e = np.zeros(v.shape)
    middle = low + (high - low) / 2
    for corner in range(2**d):
        a = np.where([(corner >> k) & 1 for k in range(d)], middle, low)
        b = np.where([(corner >> k) & 1 for k in range(d)], high, middle)
        e = np.maximum(e, _mean_value(function, a, b, order, v))
    return e


def _mean_value(function: Function, low: Array, high: Array, order: list[int], v: Array) -> Array:
    names = [function.box.names[k] for k in order]
    d = len(names)
    centre = low + (high - low) / 2
    boxes = [balls(low[:, k], high[:, k]) for k in range(d)]
    points = [point_balls(centre[:, k]) for k in range(d)]
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True), d)
    gradients = run(function.formula, algebra, algebra.variables(names, dict(zip(names, boxes, strict=True))))
    values = run(function.formula, BallAlgebra(clip_sqrt=True), dict(zip(names, points, strict=True)))
    plain = []
    for o, dual in enumerate(gradients):
        form = values[o]
        for k, partial in enumerate(dual.partials):
            if partial is not None:
                form = form + partial * (boxes[k] - points[k])
        (below, above), (least, most) = ball_ends(form, len(low)), ball_ends(dual.value, len(low))
        hi, lo = np.fmin(above, most), np.fmax(below, least)
        e = np.maximum(next_above(hi - v[:, o]), next_above(v[:, o] - lo))
        plain.append(np.where(np.isnan(e), np.inf, e))
    return np.stack(plain, axis=-1)


def _black_box_errors(function: Function, ends: list[tuple[Array, Array]], order: list[int], v: Array) -> Array:
    """|f(c) − v| + L |half diagonal| over every cell."""
    assert function.call is not None and function.lipschitz is not None
    box = function.box
    middles = [
        np.clip(lo + (hi - lo) / 2, box.low[k], box.high[k]) for (lo, hi), k in zip(ends, order, strict=True)
    ]  # empty cores may lie outside the box, where the function must not be asked
    mids = np.meshgrid(*middles, indexing="ij")
    X = np.empty((mids[0].size, len(ends)))
    for a, m in enumerate(mids):
        X[:, order[a]] = m.ravel()
    squares = [(np.maximum(hi - m, m - lo) * (1 + 1e-12)) ** 2 for (lo, hi), m in zip(ends, middles, strict=True)]
    radius = np.sqrt(sum(_along_axes(squares))) * (1 + 1e-12)
    f = function.call(X).reshape(v.shape)
    return np.asarray((np.abs(f - v) + function.lipschitz * radius[..., None]) * (1 + 1e-12))


# ---------------------------------------------------------------- lower ends and L^p


def _lower_end(
    view: View, head: HeadView, function: Function, grids: list[Cells], places: list[tuple[int, ...]]
) -> tuple[float, Array]:
    """A witness near the worst cells: their corners and centres, polished."""
    starts, steps = [], np.zeros(view.dim)
    for place in places:
        lo, hi = np.empty(view.dim), np.empty(view.dim)
        for a, axis in enumerate(head.axes):
            lo[axis.variable], hi[axis.variable] = grids[a].low[place[a]], grids[a].high[place[a]]
        steps = np.maximum(steps, (hi - lo) / 8)
        for corner in range(2 ** min(view.dim, 4)):
            bits = np.array([(corner >> k) & 1 for k in range(view.dim)], dtype=bool)
            starts.append(np.where(bits, hi - (hi - lo) * 0.01, lo + (hi - lo) * 0.01))
    return best_witness(view, function.formula, function.box.names, np.array(starts[:24]), steps, evaluations=24)


def _firm_end(
    head: HeadView, function: Function, grids: list[Cells], places: list[tuple[int, ...]], strays: Array
) -> float:
    """A lower end for the head as computed: at the corners of the worst cores it is within `strays` of v_j."""
    best = 0.0
    for place in places:
        ends = [(float(g.core_low[i]), float(g.core_high[i])) for g, i in zip(grids, place, strict=True)]
        if len(ends) > 4 or not all(a <= b for a, b in ends):
            continue
        value = head.values[tuple(g.index[i] for g, i in zip(grids, place, strict=True))]
        for corner in product(*ends):
            env = {function.box.names[axis.variable]: arb(x) for axis, x in zip(head.axes, corner, strict=True)}
            found = run(function.formula, BallAlgebra(clip_sqrt=True), env)
            gaps = [abs_lower(f - arb(float(v))) - s for f, v, s in zip(found, value, strays, strict=True)]
            best = max([best, *(math.nextafter(gap, -math.inf) for gap in gaps if gap > best)])
    return best


def _lp_norm(
    head: HeadView, function: Function, grids: list[Cells], p: float, lost: Array, view: View, eps: float
) -> tuple[float, float]:
    """(upper, lower) end of the volume-normalised L^p norm; the largest output counts."""
    sides = [float(view.high[a.variable] - view.low[a.variable]) for a in head.axes]  # volumes are fractions of the box
    total, scale, below, gaps = np.zeros((4, head.values.shape[-1]))
    inner = [np.maximum(g.core_high - g.core_low, 0.0) / w for g, w in zip(grids, sides, strict=True)]
    outer = [(g.high - g.low) / w for g, w in zip(grids, sides, strict=True)]
    for rows in _row_chunks([len(g.index) for g in grids]):
        e = errors_over_cells(head, function, grids, rows, eps, core=False)
        e_core = errors_over_cells(head, function, grids, rows, eps, core=True)
        vol_out, vol_in = _volumes(outer, rows), _volumes(inner, rows)
        rest = np.maximum(vol_out * (1 + 1e-12) - vol_in * (1 - 1e-12), 0.0)
        # e^p underflows for large p: powers of e/scale, scale the largest e so far; 1e-300 covers what still underflows
        before, unit, scale = _rescaled(scale, e, p)
        if not np.isfinite(scale).all():
            return math.inf, 0.0
        powers = vol_in[..., None] * power(e_core / unit, p) + rest[..., None] * power(e / unit, p)
        total = total * before + np.sum(powers + 1e-300, axis=tuple(range(e.ndim - 1)))
        found = _gaps(head, function, grids, sides, rows, lost)
        if found is not None:
            volume, gap = found
            before, unit, gaps = _rescaled(gaps, gap, p)
            powers = np.sum(volume[..., None] * power(gap / unit, p), axis=tuple(range(gap.ndim - 1))) * (1 - 1e-12)
            below = below * before * (1 - 1e-12) + powers
    count = float(np.prod([len(g.index) for g in grids]))
    doubt = (count + 64) * 2.0**-52 + p * 1e-15  # of sums, and of powers of quotients
    roots = [upper(root(float(t) * (1 + doubt), p)) for t in total]
    high = float(np.max(scale * roots * (1 + 1e-12) + lost))
    low = float(np.max(gaps * [lower(root(float(t) * (1 - doubt), p)) for t in below] * (1 - 1e-12)))
    return high, low if low > 0 and math.isfinite(low) else 0.0


def _rescaled(scale: Array, sizes: Array, p: float) -> tuple[Array, Array, Array]:
    """What powers of sizes/scale so far are worth in a new unit, the unit, and the largest size with these."""
    largest = np.maximum(scale, sizes.reshape(-1, sizes.shape[-1]).max(axis=0))
    unit = np.where(largest > 0, largest, 1.0)
    return power(scale / unit, p), unit, largest


def power(x: Array, p: float) -> Array:
    """x^p for 0 ≤ x ≤ 1: products for a small whole p, the mathematical library otherwise (`rests_on` says so)."""
    if p not in _PRODUCTS:
        return np.asarray(x**p)
    out = x
    for _ in range(int(p) - 1):
        out = out * x
    return out


def root(x: float, p: float) -> arb:
    return arb(x) ** (1 / arb(p)) if x > 0 else arb(0)


def _volumes(sides: list[Array], rows: slice) -> Array:
    return reduce(np.multiply, _along_axes([sides[0][rows], *sides[1:]]), np.ones(()))


def _along_axes(values: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Each array along an axis of its own, for broadcasting."""
    return list(np.meshgrid(*values, indexing="ij", sparse=True))


def _gaps(
    head: HeadView, function: Function, grids: list[Cells], sides: list[float], rows: slice, lost: Array
) -> tuple[Array, Array] | None:
    """Of quarter cells (per axis) inside the cores: their volumes, as fractions of the box, and lower bounds of
    |f − net| ≥ |f − v_j| − leak·spread. None for a black box, and where the cells are none or too many.
    """
    pieces = 4
    ends, index = [], []
    for a, g in enumerate(grids):
        cut = rows if a == 0 else slice(None)
        full = g.core_high[cut] > g.core_low[cut]  # an empty core has no points, and may lie outside the box
        low, width = g.core_low[cut][full], (g.core_high[cut] - g.core_low[cut])[full]
        edges = low[:, None] + width[:, None] * np.linspace(0, 1, pieces + 1)
        ends.append((edges[:, :-1].ravel(), edges[:, 1:].ravel()))
        index.append(np.repeat(g.index[cut][full], pieces))
    count = math.prod(len(i) for i in index)
    if function.graph is None or count == 0 or count > 400_000:
        return None
    v = head.values[np.ix_(*index)]
    lows, highs = _ranges(function, ends, [a.variable for a in head.axes], v.shape[:-1])
    gap = np.maximum(next_below(lows - v), next_below(v - highs)) - lost
    gap = np.where((gap > 0) & np.isfinite(gap), gap, 0.0)  # NaN counts as 0
    volume = _volumes([np.maximum(hi - lo, 0.0) / w for (lo, hi), w in zip(ends, sides, strict=True)], slice(None))
    return volume, gap
