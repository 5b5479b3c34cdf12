"""Pairs of pieces: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| for towers of ReLU units of one variable a side, kinks and all.

Statement. Let φ, ψ be broken lines with stored breakpoints z_k, w_l (`network.cells` with lines; units relu(x − z)). On
[z_k, z_{k+1}] × [w_l, w_{l+1}] the score is *bilinear*, with the corner values M_kl = ⟨φ(z_k), ψ(w_l)⟩. So

    sup |r − ⟨φ, ψ⟩| = max_kl sup |r − B_kl| over the pair of pieces, B_kl the bilinear function of its four corners,

rank, truncation and interpolation all in one. Each supremum is bounded by float64 intervals rounded outward: the range
of r − B, and the mean-value form r(c) − B(c) + Σ (∂r − ∂B)(x − c) with Clarke's gradients of r over the box and those
of B, which are linear in the other variable; boxes above the goal are halved along both axes.
Rounding: M is computed in float64: φ at the breakpoints is off by γ_{n+6} Σ(sizes of its terms), inner products carry
it on and add γ_{k+2}|F||G|; a bilinear function is moved by no more than its corners. The units computed in float64:
`pieces.block_rounding`, carried to the score by `towers.score_error`.
Failure modes: units that do not read the variable itself with slope 1; several variables; more than 10^7 pairs.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attnfun.certify.pieces import BrokenLine, block_fits, block_rounding
from attnfun.certify.rounding import gamma
from attnfun.certify.view import Array, Undecided
from attnfun.kinds.relation.cells import Cells
from attnfun.kinds.relation.features import Ends, Index
from attnfun.kinds.relation.target import Relation
from attnfun.language import GradientAlgebra, Graph, run
from attnfun.language.domain import Box
from attnfun.language.intervals import Interval, IntervalAlgebra

_U = 2.0**-53
CHUNK = 250_000  # boxes enclosed at once
_PAIRS = 10_000_000
_HALVINGS = 8
_BOXES = 3_000_000


def pieces_bound(relation: Relation, cells: Cells, goal: float | None) -> tuple[float, Ends, dict[str, Any]]:
    """(proved sup of |r − score| in real arithmetic, ends of the pair of pieces where it is, details)."""
    (zx, F, dF), (zy, G, dG) = (
        _knots(cells, side, box) for side, box in (("left", relation.left), ("right", relation.right))
    )
    if (len(zx) - 1) * (len(zy) - 1) > _PAIRS:
        raise Undecided(f"{len(zx) - 1} × {len(zy) - 1} pairs of pieces are out of reach")
    M = F @ G.T
    off = dF @ np.abs(G).T + np.abs(F) @ dG.T + dF @ dG.T + gamma(cells.rank + 4, _U) * (np.abs(F) @ np.abs(G).T)
    slack = float(off.max()) * (1 + 1e-9) + (cells.rank + 4) * 1e-300
    if not (math.isfinite(slack) and np.isfinite(M).all()):
        raise Undecided("the values of the units are not finite")
    names = relation.joint.names
    k, l = (v.ravel() for v in np.meshgrid(np.arange(len(zx) - 1), np.arange(len(zy) - 1), indexing="ij"))
    low, high = np.stack([zx[k], zy[l]], axis=1), np.stack([zx[k + 1], zy[l + 1]], axis=1)
    corners = np.stack([M[k, l], M[k, l + 1], M[k + 1, l], M[k + 1, l + 1]], axis=1)
    seen = _seen(relation, low, high, corners)
    aim = max(1.01 * seen, -math.inf if goal is None else goal - slack)
    bound = partial(_range, relation.graph, names, low, high, corners)
    found = suprema(bound, low, high, aim, _HALVINGS, _BOXES)[0]
    where = int(np.argmax(found))
    if not found[where] < math.inf:
        raise Undecided("the range of the relation over a pair of pieces is not finite")
    details = {"pieces": list(cells.counts)}
    return (float(found[where]) + slack) * (1 + 4 * _U), (low[where], high[where]), details


def _knots(cells: Cells, side: str, box: Box) -> tuple[Array, Array, Array]:
    """(n,) ends of the pieces, (n, rank) the broken lines there in float64, (n, rank) bounds of their error."""
    own = cells.left if side == "left" else cells.right
    keys, V, lines = own.keys, own.values, own.lines
    if lines is None or len(keys) != 1:
        raise Undecided("pieces: towers of ReLU units of one variable a side are proved")
    (key,) = keys
    if key.w != 1.0 or key.c != 0.0 or not (key.slopes == 1.0).all():
        raise Undecided("pieces: ReLU units must read the variable itself, with slope 1")
    t = -key.biases
    inside = np.unique(t[(t > box.low[0]) & (t < box.high[0])])
    z = np.concatenate([[box.low[0]], inside, [box.high[0]]])
    relu = np.maximum(z[:, None] - t[None, :], 0.0)
    value = z[:, None] * lines[0] + lines[1] + relu @ V
    size = np.abs(z)[:, None] * np.abs(lines[0]) + np.abs(lines[1]) + relu @ np.abs(V)
    return z, value, gamma(len(t) + 6, _U) * size * (1 + 1e-9) + (len(t) + 4) * 1e-300


def _seen(relation: Relation, low: Array, high: Array, corners: Array) -> float:
    """The largest |r − B| at corners and centres, in plain floats: it steers."""
    best = 0.0
    for s, t in ((0.5, 0.5), (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
        Z = low + (high - low) * np.array([s, t])
        B = corners @ np.array([(1 - s) * (1 - t), (1 - s) * t, s * (1 - t), s * t])
        with np.errstate(all="ignore"):
            gap = np.abs(relation.at(Z) - B)
        best = max(best, float(np.max(np.where(np.isfinite(gap), gap, 0.0))))
    return best


def suprema(
    bound: Callable[[Index, Array, Array], Array], low: Array, high: Array, goal: float, halvings: int, budget: int
) -> tuple[Array, int]:
    """(n,) bounds over the boxes [low, high], and the boxes that it took: `bound(owners, a, b)` bounds parts [a, b] of
    them; boxes above `goal` are halved along all axes while the budget lasts."""
    out, owner, spent = np.zeros(len(low)), np.arange(len(low), dtype=np.int64), 0
    corners = (np.arange(2 ** low.shape[1])[:, None] >> np.arange(low.shape[1])) & 1
    for level in range(halvings + 1):
        parts = [slice(i, i + CHUNK) for i in range(0, len(owner), CHUNK)]
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


def _range(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, corners: Array, owner: Index, a: Array, b: Array
) -> Array:
    """sup |r − B| over the boxes [a, b] of the pieces `owner`, infinite where r is not enclosed."""
    low, high, corners = low[owner], high[owner], corners[owner]
    base = IntervalAlgebra(clip_sqrt=True)
    sub, add, mul, div = base.sub, base.add, base.mul, base.div
    z, w = _at(low[:, 0]), _at(low[:, 1])
    M00, M01, M10, M11 = (_at(corners[:, i]) for i in range(4))
    h, g = sub(_at(high[:, 0]), z), sub(_at(high[:, 1]), w)
    top, bottom, whole = sub(M01, M00), sub(M11, M10), sub(M10, M00)

    def bilinear(x: Interval, y: Interval) -> tuple[Interval, Interval, Interval]:
        """(B, ∂_x B, ∂_y B) over x × y."""
        s, t = div(sub(x, z), h), div(sub(y, w), g)
        twist = sub(bottom, top)
        along = add(whole, mul(t, twist))  # h ∂_x B
        return add(add(M00, mul(t, top)), mul(s, along)), div(along, h), div(add(top, mul(s, twist)), g)

    X, Y = Interval(a[:, 0], b[:, 0]), Interval(a[:, 1], b[:, 1])
    c = np.clip(a + (b - a) / 2, a, b)
    cx, cy = _at(c[:, 0]), _at(c[:, 1])
    algebra = GradientAlgebra(base, 2)
    dual = run(graph, algebra, algebra.variables(names, {names[0]: X, names[1]: Y}))[0]
    B, Bx, By = bilinear(X, Y)
    zero = _at(np.zeros(len(a)))
    rx, ry = (p if p is not None else zero for p in (*dual.partials, None, None)[:2])
    form = sub(run(graph, base, {names[0]: cx, names[1]: cy})[0], bilinear(cx, cy)[0])
    form = add(form, add(mul(sub(rx, Bx), sub(X, cx)), mul(sub(ry, By), sub(Y, cy))))
    return np.minimum(_size(form, len(a)), _size(sub(dual.value, B), len(a)))


def _at(x: Array) -> Interval:
    return Interval(x, x)


def _size(x: Interval, n: int) -> Array:
    e = np.maximum(np.abs(x.lo), np.abs(x.hi))
    return np.asarray(np.broadcast_to(np.where(np.isnan(e), np.inf, e), (n,)))


def units_lost(cells: Cells, side: str, box: Box) -> tuple[Array, Array]:
    """(rank,) how far the units computed in float64 are from the stored ones, and how large they are."""
    _, value, error = _knots(cells, side, box)
    own = cells.left if side == "left" else cells.right
    (key,), V, lines = own.keys, own.values, own.lines
    assert lines is not None
    far = max(abs(box.low[0]), abs(box.high[0]))
    lost = []
    for i in range(cells.rank):
        if not block_fits(key.slopes, key.biases, V[:, i], far, "float64"):
            raise Undecided("ReLU units may overflow")
        line = BrokenLine(float(lines[0, i]), float(lines[1, i]), 1.0, 0.0, key.slopes, key.biases, V[:, i])
        one, size = block_rounding(line, box.low[0], box.high[0], "float64")
        carried = size + one + abs(line.slope) * far + abs(line.offset)
        lost.append((one + gamma(cells.rank + 6, _U) * carried + (cells.rank + 8) * 2.0**-1074) * (1 + 1e-12))
    return np.array(lost), (np.abs(value) + error).max(axis=0) * (1 + 1e-12)
