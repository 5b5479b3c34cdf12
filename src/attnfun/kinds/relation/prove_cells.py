"""Method *pairs of cells*: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| for towers that are look-up tables, kinks and all.

Statement. Let φ(x) = Σ_i p_i(x) P_i and ψ(y) = Σ_j q_j(y) Q_j be softmax heads on product grids (`Cells`) and
M_ij = ⟨P_i, Q_j⟩. Then ⟨φ(x), ψ(y)⟩ = Σ_ij p_i(x) q_j(y) M_ij is *one* head over the keys of both sides, and what
*cells* proves of partitions holds for it: inflate the cells of every axis by a wall exponent λ, and let e_ij be the
supremum of |r − M_ij| over the pair of inflated cells; with the leaks of all axes, left and right,

    sup |r − ⟨φ, ψ⟩| ≤ max_ij e_ij + (Σ_axes leak)(max M − min M).

The rank does not enter: M_ij is what the stored, truncated P and Q make, so e_ij holds quantisation and truncation both
and never more than their sum, w_r(ρ_x, ρ_y) + max|R − M| (Altabaa and Lafferty's bound with the outside mass P_x, P_y
in place of the leaks).
Ranges of r: first r at the centre of every pair, computed by NumPy, with one gradient for a block of pairs
(`_by_blocks`). Pairs above the goal again by float64 intervals rounded outward and the mean-value form (`gradient`:
Clarke gradients, so kinks are allowed), then halved along all axes, a few times.
Rounding: M is formed in float64, off by γ_{k+2} max|P_i| max|Q_j|; the heads by `rounding`, carried to the score by
`towers.score_error`. Cells of a core g(u(x), v(y)) are judged as functions of u and v, given exactly: `conditional`.
Hypotheses: IEEE arithmetic, exp within 4 ulp, NumPy's functions within 4 ulp.
Failure modes: breakpoints that do not increase; a relation whose range over a pair is not finite; more than 10^7 pairs.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.cells import Cells as Grid
from attnfun.certify.cells import cells as inflated
from attnfun.certify.cells import leak, wall_exponent, walls
from attnfun.certify.numpy_rounding import numpy_rounding
from attnfun.certify.pieces import BrokenLine, block_fits, block_rounding
from attnfun.certify.rounding import gamma, product_bounds
from attnfun.certify.rounding import hypotheses as rounding_hypotheses
from attnfun.certify.verdict import Proof
from attnfun.certify.view import Array, Undecided, provided, view
from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.features import Ends, Index
from attnfun.kinds.relation.form import SIDES, Cells, CellSide
from attnfun.kinds.relation.prove_tower_products import require_fits
from attnfun.kinds.relation.prove_towers import score_loss
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.witness import Seen, bounded, require_one, seen_at, stored_box
from attnfun.language import ArrayAlgebra, Box, GradientAlgebra, Graph, precision, run
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.outward import next_above
from attnfun.search import Say

_U = 2.0**-53
_BASE = IntervalAlgebra(clip_sqrt=True)
_PAIRS = 10_000_000
_HALVINGS, _PIECE_HALVINGS = 4, 8
_BOXES, _PIECE_BOXES = 6_000_000, 3_000_000  # spent on halves
_CHUNK = 250_000  # boxes enclosed at once
_SIDE = 8  # cells of a block along every axis
GIVEN = "the inner functions u(x), v(y) are given exactly: the cells are certified as functions of them"
LIBM = "NumPy's elementary functions err by at most 4 units in the last place (ranges of the relation)"


def proof(relation: Relation, cells: Cells, eps: float | None, say: Say) -> Proof:
    """What is proved of stored soft cells for a stored relation."""
    core = cells.core(relation)
    given = core.composed  # what computing u and v loses is not in it
    inner = _judged(relation, core, cells)
    say("rounding of the towers")
    lost = _units_lost if cells.mlp else _head_lost
    sides = [lost(cells, side, box) for side, box in zip(SIDES[: 1 if cells.one else 2], inner.boxes, strict=False)]
    loss = score_loss(sides[0], sides[-1])
    say("ranges over pairs of cells")
    goal = None if eps is None else eps - loss
    high, ends, details = _pieces_bound(inner, cells, goal) if cells.mlp else _bound(inner, cells, goal)
    seen = (0.0, None) if given else _witness(relation, cells, ends, loss)
    hypotheses = (*rounding_hypotheses("float64", softmax=not cells.mlp), LIBM, *((GIVEN,) if given else ()))
    method = "pairs of pieces" if cells.mlp else cells.method
    return bounded(method, high, loss, seen, hypotheses, details, given)


def _judged(relation: Relation, core: Core, cells: Cells) -> Relation:
    """The core as a relation on the boxes of the cells, which must hold the proved ranges of u and v; or Undecided."""
    both = zip((core.left, core.right), cells.ends, strict=True)
    boxes = [stored_box(box, stored, core.composed, "cells lie in") for box, stored in both]
    require_one(relation, cells.signs, "cells")
    provided(math.prod(cells.counts) <= _PAIRS, f"{cells.counts[0]} × {cells.counts[1]} pairs of cells are too many")
    return Relation(core.graph, boxes[0], boxes[1])


# ---------------------------------------------------------------- the bound


def _bound(relation: Relation, cells: Cells, goal: float | None) -> tuple[float, Ends, dict[str, Any]]:
    """(bound of the construction, the ends of the worst pair of cells, details)."""
    joint = relation.joint
    with precision(64):
        structure = [walls(keys.line(v)) for v, keys in enumerate(cells.left.keys + cells.right.keys)]
        P, Q = (side.values.reshape(-1, cells.rank) for side in (cells.left, cells.right))
        M = P @ Q.T
        off = gamma(cells.rank + 4, _U) * _largest_row(P) * _largest_row(Q) * (1 + 1e-9) + (cells.rank + 4) * 1e-300
        spread = (float(M.max()) - float(M.min()) + 2 * off) * (1 + 1e-12)
        provided(math.isfinite(spread), "the values of the cells are not finite")
        lam = wall_exponent(structure, spread, goal or spread)
        lost = sum(leak(w, lam) for w in structure) * spread * (1 + 1e-12)
        grids = [inflated(w, a, b, lam) for w, a, b in zip(structure, joint.low, joint.high, strict=True)]
    M = M.reshape(cells.left.values.shape[:-1] + cells.right.values.shape[:-1])
    M = M[np.ix_(*(g.index for g in grids))]
    worst, place = _supremum(relation.graph, joint.names, grids, M, -math.inf if goal is None else goal - lost - off)
    high = (worst + off + lost) * (1 + 4 * _U)
    provided(math.isfinite(high), "the range of the relation over a pair of cells is not finite")
    details = {"cells": list(cells.counts), "lambda": lam, "leak": lost}
    low, far = (np.array([getattr(g, end)[i] for g, i in zip(grids, place, strict=True)]) for end in ("low", "high"))
    return high, (low, far), details


def _largest_row(V: Array) -> float:
    """max_i |V_i|, rounded up; scaled, so that no square underflows that counts."""
    top = max(float(np.abs(V).max()), 2.0**-1000)
    scaled = V / top
    return math.sqrt(float((scaled * scaled).sum(axis=1).max())) * top * (1 + (V.shape[1] + 8) * _U)


def _supremum(
    graph: Graph, names: tuple[str, ...], grids: list[Grid], M: Array, goal: float
) -> tuple[float, tuple[int, ...]]:
    """(max_ij e_ij, the pair where it is): pairs that a range leaves above `goal` and above what is seen are refined.

    `goal` steers the work and nothing else.
    """
    rows, budget = max(1, _CHUNK // max(1, M[0].size)), _BOXES
    parts = [slice(start, start + rows) for start in range(0, len(M), rows)]
    e = _by_blocks(graph, names, grids, M, parts)
    goal = max(goal, 1.02 * _seen(graph, names, grids, M, parts, ~(e <= goal)))
    ends = [[getattr(g, end) for g in grids] for end in ("low", "high")]
    for part in parts:
        if 2 * np.count_nonzero(e[part] <= goal) < e[part].size:
            both = zip(names, *(np.ix_(of[0][part], *of[1:]) for of in ends), strict=True)
            env = {name: Interval(low, high) for name, low, high in both}
            e[part] = np.minimum(e[part], _away(run(graph, _BASE, env)[0], M[part]))
    bad = np.argwhere(~(e <= goal))
    for start in range(0, len(bad), _CHUNK):
        pairs = tuple(bad[start : start + _CHUNK].T)
        low, high = (np.stack([end[i] for end, i in zip(of, pairs, strict=True)], axis=1) for of in ends)
        better, spent = _suprema(partial(_mean_value, graph, names, M[pairs]), low, high, goal, _HALVINGS, budget)
        budget = max(0, budget - spent)
        e[pairs] = np.minimum(e[pairs], better)
    place = np.unravel_index(int(np.argmax(e)), e.shape)
    return float(e[place]), tuple(map(int, place))


def _by_blocks(graph: Graph, names: tuple[str, ...], grids: list[Grid], M: Array, parts: list[slice]) -> Array:
    """Bounds of e_ij, part by part of the first axis: one gradient for a block of pairs, r at their centres by NumPy.

    Let S_k contain ∂_k r (Clarke's gradient) on the hull of the cells of a block, c be a point of a pair's cell x, and
    ρ bound what NumPy loses in r on the box. The hull is convex and contains x and c, so by the mean value theorem

        |r(x) − M_ij| ≤ |computed r(c) − M_ij| + ρ + Σ_k |S_k| max |x_k − c_k|.

    The sum is of at most 2 dim + 2 rounded numbers that are not negative, hence the factor. Infinite where ρ or S are
    not bounded. `numpy_rounding` proves ρ for the operations of `ArrayAlgebra`.
    """
    low, high = ([float(pick(getattr(g, end))) for g in grids] for end, pick in (("low", np.min), ("high", np.max)))
    try:
        lost = float(numpy_rounding(graph, Box(names, tuple(low), tuple(high)))[0])
    except Undecided:
        return np.full(M.shape, math.inf)
    starts = [np.arange(0, len(g.low), _SIDE) for g in grids]
    lows = np.ix_(*(np.minimum.reduceat(g.low, at) for g, at in zip(grids, starts, strict=True)))
    highs = np.ix_(*(np.maximum.reduceat(g.high, at) for g, at in zip(grids, starts, strict=True)))
    boxes = [Interval(a, b) for a, b in zip(lows, highs, strict=True)]
    algebra = GradientAlgebra(_BASE, len(names))
    with np.errstate(all="ignore"):
        dual = run(graph, algebra, algebra.variables(names, dict(zip(names, boxes, strict=True))))[0]
        shape = tuple(len(at) for at in starts)
        steep = [np.broadcast_to(np.maximum(np.abs(s.lo), np.abs(s.hi)), shape) for s in algebra.gradient(dual)]
    centres = [np.clip(g.low + (g.high - g.low) / 2, g.low, g.high) for g in grids]
    reach = [next_above(np.maximum(g.high - c, c - g.low)) for g, c in zip(grids, centres, strict=True)]
    own = [np.arange(len(c)) // _SIDE for c in centres]
    found = np.empty(M.shape)
    for part in parts:
        here = [slice(None) if k else part for k in range(len(grids))]
        with np.errstate(all="ignore"):
            at = dict(zip(names, np.ix_(*(c[one] for c, one in zip(centres, here, strict=True))), strict=True))
            e = np.abs(np.asarray(run(graph, ArrayAlgebra(), at)[0], dtype=np.float64) - M[part])
            pairs = np.ix_(*(o[one] for o, one in zip(own, here, strict=True)))
            wide = np.ix_(*(w[one] for w, one in zip(reach, here, strict=True)))
            for slope, width in zip(steep, wide, strict=True):
                e += slope[pairs] * width
            e = (e + lost) * (1 + (2 * len(grids) + 8) * _U) + 1e-300
        found[part] = np.where(np.isnan(e), np.inf, e)
    return found


def _seen(
    graph: Graph, names: tuple[str, ...], grids: list[Grid], M: Array, parts: list[slice], which: NDArray[np.bool_]
) -> float:
    """The largest |r − M_ij| at two or three corners of the pairs `which`; an estimate from below, which steers."""
    best = 0.0
    picks = ((0,) * len(names), (1,) * len(names), (0, 1) * (len(names) // 2) + (0,) * (len(names) % 2))
    for part in parts:
        pairs = np.nonzero(which[part])
        for pick in picks if len(pairs[0]) else ():
            lines = (
                (g.low, g.high)[p][part if g is grids[0] else slice(None)] for g, p in zip(grids, pick, strict=True)
            )
            env = {name: line[at] for name, line, at in zip(names, lines, pairs, strict=True)}
            with np.errstate(all="ignore"):
                gap = np.abs(np.asarray(run(graph, ArrayAlgebra(), env)[0], dtype=np.float64) - M[part][pairs])
            best = max(best, float(np.max(np.where(np.isfinite(gap), gap, 0.0))))
    return best


def _away(value: Interval, v: Array) -> Array:
    """sup |range − v|, infinite where the range is not defined."""
    shape = np.broadcast_shapes(value.shape, v.shape)
    low, high = np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape)
    e = np.maximum(next_above(high - v), next_above(v - low))
    return np.asarray(np.where(np.isnan(e), np.inf, e))


def _mean_value(graph: Graph, names: tuple[str, ...], v: Array, own: Index, low: Array, high: Array) -> Array:
    """sup |r − v[own]| over boxes: the better of the plain range and of r(c) + Σ_k ∂_k r(box) (x_k − c_k)."""
    boxes, points, whole, slopes, form = _enclosed(graph, names, low, high)
    for box, point, slope in zip(boxes, points, slopes, strict=True):
        form = _BASE.add(form, _BASE.mul(slope, _BASE.sub(box, point)))
    return np.minimum(_away(whole, v[own]), _away(form, v[own]))


def _enclosed(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array
) -> tuple[list[Interval], list[Interval], Interval, tuple[Interval, ...], Interval]:
    """Boxes and their centres, variable by variable; r and its gradient over the boxes, and r at the centres."""
    centre = np.clip(low + (high - low) / 2, low, high)
    boxes, points = [Interval(a, b) for a, b in zip(low.T, high.T, strict=True)], [_at(c) for c in centre.T]
    algebra = GradientAlgebra(_BASE, len(names))
    dual = run(graph, algebra, algebra.variables(names, dict(zip(names, boxes, strict=True))))[0]
    value = run(graph, _BASE, dict(zip(names, points, strict=True)))[0]
    return boxes, points, dual.value, algebra.gradient(dual), value


# ---------------------------------------------------------------- broken lines


def _pieces_bound(relation: Relation, cells: Cells, goal: float | None) -> tuple[float, Ends, dict[str, Any]]:
    """(proved sup of |r − score| in real arithmetic, ends of the pair of pieces where it is, details).

    Pairs of pieces: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| for towers of ReLU units of one variable per side, kinks and all.

    Statement. Let φ, ψ be broken lines with stored breakpoints z_k, w_l (`Cells` with lines; units relu(x − z)). On
    [z_k, z_{k+1}] × [w_l, w_{l+1}] the score is *bilinear*, with the corner values M_kl = ⟨φ(z_k), ψ(w_l)⟩. So

        sup |r − ⟨φ, ψ⟩| = max_kl sup |r − B_kl| over the pair of pieces, B_kl bilinear with its four corner values,

    rank, truncation and interpolation all in one. Each supremum is bounded by float64 intervals rounded outward: the
    range of r − B, and the mean-value form r(c) − B(c) + Σ (∂r − ∂B)(x − c) with Clarke's gradients of r over the box
    and those of B, which are linear in the other variable; boxes above the goal are halved along both axes.
    Rounding: M is computed in float64: φ at the breakpoints is off by γ_{n+6} Σ(sizes of its terms), inner products
    carry it on and add γ_{k+2}|F||G|; a bilinear function is moved by no more than its corners. The units computed in
    float64: `pieces.block_rounding`, carried to the score by `towers.score_error`.
    Failure modes: units that do not read the variable itself with slope 1; several variables; more than 10^7 pairs.
    """
    (zx, F, dF), (zy, G, dG) = _knots(cells.left, relation.left), _knots(cells.right, relation.right)
    M = F @ G.T
    off = dF @ np.abs(G).T + np.abs(F) @ dG.T + dF @ dG.T + gamma(cells.rank + 4, _U) * (np.abs(F) @ np.abs(G).T)
    slack = float(off.max()) * (1 + 1e-9) + (cells.rank + 4) * 1e-300
    provided(math.isfinite(slack) and np.isfinite(M).all(), "the values of the units are not finite")
    names = relation.joint.names
    k, l = (v.ravel() for v in np.meshgrid(np.arange(len(zx) - 1), np.arange(len(zy) - 1), indexing="ij"))
    low, high = np.stack([zx[k], zy[l]], axis=1), np.stack([zx[k + 1], zy[l + 1]], axis=1)
    corners = np.stack([M[k, l], M[k, l + 1], M[k + 1, l], M[k + 1, l + 1]], axis=1)
    seen = _seen_on_pieces(relation, low, high, corners)
    aim = max(1.01 * seen, -math.inf if goal is None else goal - slack)
    bound = partial(_range, relation.graph, names, low, high, corners)
    found = _suprema(bound, low, high, aim, _PIECE_HALVINGS, _PIECE_BOXES)[0]
    where = int(np.argmax(found))
    provided(found[where] < math.inf, "the range of the relation over a pair of pieces is not finite")
    details = {"pieces": list(cells.counts)}
    return (float(found[where]) + slack) * (1 + 4 * _U), (low[where], high[where]), details


def _knots(own: CellSide, box: Box) -> tuple[Array, Array, Array]:
    """(n,) ends of the pieces, (n, rank) the broken lines there in float64, (n, rank) bounds of their error."""
    (key,), V, lines = own.keys, own.values, own.lines
    assert lines is not None
    if key.w != 1.0 or key.c != 0.0 or not (key.slopes == 1.0).all():
        raise Undecided("pieces: ReLU units must read the variable itself, with slope 1")
    t = -key.biases
    inside = np.unique(t[(t > box.low[0]) & (t < box.high[0])])
    z = np.concatenate([[box.low[0]], inside, [box.high[0]]])
    relu = np.maximum(z[:, None] - t[None, :], 0.0)
    value = z[:, None] * lines[0] + lines[1] + relu @ V
    size = np.abs(z)[:, None] * np.abs(lines[0]) + np.abs(lines[1]) + relu @ np.abs(V)
    return z, value, gamma(len(t) + 6, _U) * size * (1 + 1e-9) + (len(t) + 4) * 1e-300


def _seen_on_pieces(relation: Relation, low: Array, high: Array, corners: Array) -> float:
    """The largest |r − B| at corners and centres, in plain floats: it steers."""
    best = 0.0
    for s, t in ((0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        Z = low + (high - low) * np.array([s, t])
        B = corners @ np.array([(1 - s) * (1 - t), (1 - s) * t, s * (1 - t), s * t])
        with np.errstate(all="ignore"):
            gap = np.abs(relation.at(Z) - B)
        best = max(best, float(np.max(np.where(np.isfinite(gap), gap, 0.0))))
    return best


def _range(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, corners: Array, owner: Index, a: Array, b: Array
) -> Array:
    """sup |r − B| over the boxes [a, b] of the pieces `owner`, infinite where r is not enclosed."""
    sub, add, mul, div = _BASE.sub, _BASE.add, _BASE.mul, _BASE.div
    z, w = (_at(end) for end in low[owner].T)
    M00, M01, M10, M11 = (_at(corner) for corner in corners[owner].T)
    h, g = (sub(_at(end), start) for end, start in zip(high[owner].T, (z, w), strict=True))
    top, bottom, whole = sub(M01, M00), sub(M11, M10), sub(M10, M00)

    def bilinear(x: Interval, y: Interval) -> tuple[Interval, Interval, Interval]:
        """(B, ∂_x B, ∂_y B) over x × y."""
        s, t = div(sub(x, z), h), div(sub(y, w), g)
        twist = sub(bottom, top)
        along = add(whole, mul(t, twist))  # h ∂_x B
        return add(add(M00, mul(t, top)), mul(s, along)), div(along, h), div(add(top, mul(s, twist)), g)

    (X, Y), (cx, cy), r, (rx, ry), middle = _enclosed(graph, names, a, b)
    B, Bx, By = bilinear(X, Y)
    form = sub(middle, bilinear(cx, cy)[0])
    form = add(form, add(mul(sub(rx, Bx), sub(X, cx)), mul(sub(ry, By), sub(Y, cy))))
    sizes = (np.maximum(np.abs(x.lo), np.abs(x.hi)) for x in (form, sub(r, B)))
    return np.minimum(*(np.where(np.isnan(e), np.inf, e) for e in sizes))


def _at(x: Array) -> Interval:
    return Interval(x, x)


def _suprema(
    bound: Callable[[Index, Array, Array], Array], low: Array, high: Array, goal: float, halvings: int, budget: int
) -> tuple[Array, int]:
    """(n,) bounds over the boxes [low, high], and the boxes that it took: `bound(owners, a, b)` bounds parts [a, b] of
    them; boxes above `goal` are halved along all axes while the budget lasts."""
    out, owner, spent = np.zeros(len(low)), np.arange(len(low), dtype=np.int64), 0
    corners = (np.arange(2 ** low.shape[1])[:, None] >> np.arange(low.shape[1])) & 1
    for level in range(halvings + 1):
        parts = [slice(i, i + _CHUNK) for i in range(0, len(owner), _CHUNK)]
        e = np.concatenate([bound(owner[part], low[part], high[part]) for part in parts])
        spent += len(owner) if level else 0
        more = ~(e <= goal)
        if level == halvings or spent + int(more.sum()) * len(corners) > budget:
            more[:] = False
        np.maximum.at(out, owner[~more], e[~more])
        if not more.any():
            break
        a, b = low[more], high[more]
        middle = a + (b - a) / 2
        low = np.concatenate([np.where(c, middle, a) for c in corners])
        high = np.concatenate([np.where(c, b, middle) for c in corners])
        owner = np.tile(owner[more], len(corners))
    return out, spent


# ---------------------------------------------------------------- rounding and witness


def _head_lost(cells: Cells, side: str, box: Box) -> tuple[Array, Array]:
    """(rank,) how far a head computed in float64 is from the stored one, and how large it is."""
    network = cells.network(side, box.names)
    seen = view(network, network.low, network.high)
    (head,) = seen.heads
    require_fits(head, seen.low, seen.high)
    errors, sizes = product_bounds(seen, head, "float64", envelope=False)
    errors = errors + gamma(4, _U) * (sizes + errors) + (cells.rank + 8) * 2.0**-1074  # the identity that reads it
    return np.asarray(errors), np.asarray(sizes)


def _units_lost(cells: Cells, side: str, box: Box) -> tuple[Array, Array]:
    """(rank,) how far the units computed in float64 are from the stored ones, and how large they are."""
    own = cells.left if side == "left" else cells.right
    _, value, error = _knots(own, box)
    (key,), V, lines = own.keys, own.values, own.lines
    assert lines is not None
    far = max(abs(box.low[0]), abs(box.high[0]))
    lost = []
    for i in range(cells.rank):
        provided(block_fits(key.slopes, key.biases, V[:, i], far, "float64"), "ReLU units may overflow")
        line = BrokenLine(float(lines[0, i]), float(lines[1, i]), 1.0, 0.0, key.slopes, key.biases, V[:, i])
        one, size = block_rounding(line, box.low[0], box.high[0], "float64")
        carried = size + one + abs(line.slope) * far + abs(line.offset)
        lost.append((one + gamma(cells.rank + 6, _U) * carried + (cells.rank + 8) * 2.0**-1074) * (1 + 1e-12))
    return np.array(lost), (np.abs(value) + error).max(axis=0) * (1 + 1e-12)


def _witness(relation: Relation, cells: Cells, ends: Ends, loss: float) -> Seen:
    """(low, point): a proved lower bound of the error of the score in real arithmetic, near the worst pair of cells."""
    joint = relation.joint
    low, high = ends
    rng = np.random.default_rng(0)
    share = rng.random((400, joint.dim))
    share = np.where(rng.random(share.shape) < 0.5, share, np.round(share))
    Z = np.concatenate([low + (high - low) * share, joint.probe(1500, rng)])
    Z = np.clip(Z, joint.low_array, joint.high_array)
    return seen_at(relation, Z, cells.run(*relation.of_columns(Z)), loss)
