"""Keys of one axis of a head that follows numbers on a grid: a few keys a piece, and a sharp hand-over between pieces.

| symbol | meaning |
| --- | --- |
| piece | an interval between knots, a few of them, or a part of one; middle c, half its length h, u = (x − c)/h |
| θ, g_i | the spread of a piece's keys: logits θ g_i u + β_i, g_i from −1 to 1 in equal steps |
| λ_j | the steepness at edge j: piece j + 1 gains e^{λ_j (x − t_j)} on piece j |

Within one piece softmax over M keys is p(u)·V, and V is chosen so that it is f at M Chebyshev points: V = A f with
one matrix A for all pieces of the same M and θ. For θ → 0 this tends to the interpolating polynomial of degree M − 1:
two keys of nearly one slope and large opposite values are a line. So small θ is accurate and its values are large,
about θ^{1−M}; the largest θ that is accurate enough is taken. All keys of a piece have the piece's own slope K_j
besides, K_{j+1} − K_j = λ_j: away from edges one piece rules. At an edge the other piece's continuation weighs
1/(1 + e^{λ|x − t|}), and it leaves f like |Δ slope||x − t| (a line), (x − t)² or (x − t)³: λ_j is the least with which
that stays small. So one head of rank 2 holds any number of pieces, kinks between them included.

Pieces are halved, at a knot or within one, until each can be fitted: where data are smooth a piece spans many knots.
Failure mode: λ grows like the change of slope over eps, and logits round like their size: noisy data of thousands of
points at a small eps are refused by the rounding that the proof finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import Infeasible, feasible
from attnfun.network import rounded
from attnfun.network.groups import chebyshev, chebyshev_points, group_weights

Array = NDArray[np.float64]
Columns = Callable[[Array], Array]  # (n,) → (n, C)
_SPREADS = tuple(np.geomspace(6.0, 1e-4, 18))
_SIZES = (2, 3, 4, 5, 6)
_TOGETHER = 20_000  # points that are looked at together
_HOPELESS = 30.0  # rounding over eps
_ROUNDS = 0.2  # of eps
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_MOST_PIECES = 30_000
_TAILS = np.geomspace(0.02, 42.0, 28)  # λ|x − t| at which hand-overs are looked at
_APART = 5.0  # λ times the shorter neighbour, at least


@dataclass(frozen=True)
class AxisKeys:
    """Keys of an axis, logits slopes (w x + offset) + biases, piece by piece, `size` of them each; pieces have the ends
    `edges`.
    """

    w: float
    offset: float
    slopes: Array
    biases: Array
    edges: Array
    size: int

    @property
    def nodes(self) -> Array:
        """(pieces, size) the points of each piece at which the head is fitted."""
        return chebyshev_points(self.edges, self.size)

    def near(self, x: Array, reach: int = 3) -> tuple[NDArray[np.intp], Array]:
        """(n, keys) indices of the keys of the pieces around each point, and their softmax weights."""
        pieces = len(self.edges) - 1
        at = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, pieces - 1)
        first = np.clip(at - reach, 0, max(0, pieces - 2 * reach - 1))
        index = first[:, None] * self.size + np.arange(min(pieces, 2 * reach + 1) * self.size)
        q = self.w * x + self.offset
        k, b = self.slopes[index], self.biases[index]
        top = np.argmax(k * q[:, None] + b, axis=1)[:, None]
        logits = (k - np.take_along_axis(k, top, 1)) * q[:, None] + (b - np.take_along_axis(b, top, 1))
        terms = np.exp(np.minimum(logits, 50.0))
        return index, terms / terms.sum(axis=1, keepdims=True)

    def rounding(self, columns: Columns, dtype: str) -> float:
        """What rounding costs, about: logits move by u (|k q| + |l|), and a key counts as far as its value is off."""
        worst = 0.0
        values = self.values(columns(self.nodes.ravel()).reshape(*self.nodes.shape, -1))
        half = np.diff(self.edges) / 2
        inner = self.edges[1:-1]
        x = np.concatenate([self.nodes.ravel(), inner, inner + 0.05 * half[1:], inner - 0.05 * half[:-1]])
        for i in range(0, len(x), _TOGETHER):
            index, p = self.near(x[i : i + _TOGETHER], 1)
            q = np.abs(self.w * x[i : i + _TOGETHER] + self.offset)[:, None]
            moved = 2 * np.abs(self.slopes[index]) * q + np.abs(self.biases[index]) + 20
            moved = np.minimum(_ROUNDOFF[dtype] * moved, 1.0)
            own = values[index]
            off = np.abs(own - np.einsum("ni,nic->nc", p, own)[:, None, :])
            worst = max(worst, float(np.einsum("ni,ni,nic->nc", p, moved, off).max()))
        return worst

    def values(self, at_nodes: Array) -> Array:
        """(keys, C) from f at the nodes, (pieces, size, C): each piece alone, by the stored slopes and biases."""
        weights = group_weights(self.w, self.offset, self.slopes, self.biases, self.nodes)
        try:
            return np.asarray(np.linalg.solve(weights, at_nodes).reshape(-1, at_nodes.shape[-1]))
        except np.linalg.LinAlgError:
            raise Infeasible("table: keys of one piece that the dtype cannot tell apart") from None


def fit_axis(columns: Columns, knots: Array, low: float, high: float, eps: float, dtype: str, most: float) -> AxisKeys:
    """The keys of an axis on [low, high] for all columns, piecewise smooth between the knots, about eps off at most;
    the fewest of those whose logits `dtype` can hold. values at most about `most` times the columns.
    """
    inner = knots[(knots > low) & (knots < high)]
    edges = np.concatenate([[low], inner, [high]])
    best: AxisKeys | None = None
    lost = math.inf
    for size in _SIZES:
        if lost > _HOPELESS * eps and best is not None:
            break  # the slopes' changes are what rounds, whatever the size
        fewer = len(best.slopes) if best is not None and lost <= _ROUNDS * eps else None
        found = _cut(columns, edges, size, 0.4 * eps, fewer, most)
        if found is None:
            continue
        try:
            made = _assembled(columns, *found, size, 0.45 * eps, dtype)
            rounding = made.rounding(columns, dtype)
        except Infeasible:
            continue
        if best is None or rounding < lost or len(made.slopes) < len(best.slopes):
            best, lost = made, rounding
    why = f"table: the logits of {0 if best is None else len(best.slopes):,} keys round by more than eps={eps:.3g}"
    feasible(best is not None and lost <= eps, why)
    assert best is not None
    return best


@lru_cache(maxsize=512)
def _logits(size: int, theta: float) -> tuple[Array, Array]:
    """θ g_i and β_i of a piece: neighbours meet at equal steps of u, so that every key leads somewhere."""
    slopes = theta * np.linspace(-1, 1, size)
    meet = -1 + 2 * np.arange(1, size) / size
    biases = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * meet)])
    return slopes, biases - biases.mean()


def _softmax(size: int, theta: float, u: Array) -> Array:
    slopes, biases = _logits(size, theta)
    logits = u[..., None] * slopes + biases
    terms = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=-1, keepdims=True))


@lru_cache(maxsize=512)
def _solver(size: int, theta: float) -> Array:
    """A: from f at the nodes to the values of the keys."""
    try:
        return np.asarray(np.linalg.inv(_softmax(size, theta, chebyshev(size))))
    except np.linalg.LinAlgError:
        return np.full((size, size), np.inf)


@lru_cache(maxsize=512)
def _row(size: int, theta: float) -> float:
    """How much larger than f the values of a piece may be."""
    return float(np.abs(_solver(size, theta)).sum(axis=1).max())


def _grid(size: int) -> Array:
    """Where a piece is looked at, in u."""
    return np.concatenate([[-1.0], chebyshev(4 * size + 1), [1.0]])


@lru_cache(maxsize=512)
def _rows(size: int, theta: float) -> Array:
    """From f at the nodes to the head at the grid."""
    return np.asarray(_softmax(size, theta, _grid(size)) @ _solver(size, theta))


def _cut(
    columns: Columns, edges: Array, size: int, eps: float, fewer: int | None, most: float
) -> tuple[Array, Array] | None:
    """Edges of pieces that `size` keys can fit, and their spreads θ; None where they are not fewer keys."""
    left, right = edges[:1], edges[-1:]
    done: list[tuple[Array, Array, Array]] = []
    total = 0
    while len(left):
        theta = _spreads(columns, edges, left, right, size, eps, most)
        good = theta > 0
        done.append((left[good], right[good], theta[good]))
        total += int(good.sum())
        if total + 2 * int((~good).sum()) > (_MOST_PIECES if fewer is None else (fewer - 1) // size):
            return None
        left, right = left[~good], right[~good]
        first = np.searchsorted(edges, left, side="right")
        last = np.searchsorted(edges, right, side="left") - 1
        centre = left + (right - left) / 2
        at = np.clip((first + last) // 2, 0, len(edges) - 1)
        middle = np.where(first <= last, edges[at], centre)
        if not np.all((left < middle) & (middle < right)):
            return None
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    left, right, theta = (np.concatenate(parts) for parts in zip(*done, strict=True))
    order = np.argsort(left)
    return np.append(left[order], right[order][-1]), theta[order]


def _spreads(columns: Columns, edges: Array, left: Array, right: Array, size: int, eps: float, most: float) -> Array:
    """(pieces,) the largest θ with which `size` keys are within eps of every column at some points; 0 if none is."""
    middle, half = (left + right) / 2, (right - left) / 2
    at_nodes = columns((middle[:, None] + half[:, None] * chebyshev(size)).ravel())
    at_nodes = at_nodes.reshape(len(left), size, -1)
    wanted = columns((middle[:, None] + half[:, None] * _grid(size)).ravel()).reshape(len(left), -1, at_nodes.shape[2])
    order = np.argsort(left)
    some = edges[(edges > left.min()) & (edges < right.max())]
    inner = np.concatenate([some, (some[1:] + some[:-1]) / 2])  # knots within pieces, and between them
    owner = order[np.clip(np.searchsorted(left[order], inner, side="right") - 1, 0, len(left) - 1)]
    within = (inner > left[owner]) & (inner < right[owner])
    inner, owner = inner[within], owner[within]
    u, there = (inner - middle[owner]) / half[owner], columns(inner)

    def off(theta: float, open_: NDArray[np.bool_]) -> Array:
        """(pieces,) the largest error seen of the open ones."""
        worst = np.zeros(len(left))
        worst[open_] = np.abs(_rows(size, theta) @ at_nodes[open_] - wanted[open_]).max(axis=(1, 2))
        use = open_[owner]
        rows = _softmax(size, theta, u[use]) @ _solver(size, theta)
        gap = np.abs(np.einsum("ni,nic->nc", rows, at_nodes[owner[use]]) - there[use]).max(axis=1)
        np.maximum.at(worst, owner[use], gap)
        return worst

    found, spreads = np.zeros(len(left)), [t for t in _SPREADS if _row(size, t) <= most]
    if not spreads:
        return found
    open_ = off(spreads[-1], np.ones(len(left), dtype=bool)) <= eps  # what the least cannot fit, none can
    for theta in spreads:
        if not open_.any():
            break
        good = open_ & (off(theta, open_) <= eps)
        found[good], open_ = theta, open_ & ~good
    return found


def _assembled(columns: Columns, edges: Array, theta: Array, size: int, eps: float, dtype: str) -> AxisKeys:
    """All pieces in one row of keys, with the steepness that every hand-over needs."""
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    steep = _steepness(columns, edges, theta, size, eps)
    spreads, which = np.unique(theta, return_inverse=True)
    groups = [_logits(size, float(t)) for t in spreads]
    masses = [[float(np.log(np.exp(k * u + b).sum())) for u in (-1.0, 1.0)] for k, b in groups]
    own, base = (np.array([one[i] for one in groups])[which] for i in (0, 1))
    mass = np.array(masses)[which]
    # in x: logits K_j x + B_j + θ g (x − c)/h + β; K and B by what hands over at every edge, from the middle one out
    centre = len(steep) // 2
    K = np.concatenate([[0.0], np.cumsum(steep)])
    K = K - K[centre]
    w = 2.0 ** -round(math.log2((edges[-1] - edges[0]) / 2))
    zero = float(rounded(np.array((edges[0] + edges[-1]) / 2 * w), dtype)) / w
    jump = -np.diff(K) * (edges[1:-1] - zero) + mass[:-1, 1] - mass[1:, 0]
    B = np.concatenate([[0.0], np.cumsum(jump)])
    B = B - B[centre]
    k = (K[:, None] + own / half[:, None]) / w
    b = B[:, None] + base - own * ((middle - zero) / half)[:, None]
    keys = AxisKeys(w, -zero * w, rounded(k.ravel(), dtype), rounded(b.ravel(), dtype), edges, size)
    feasible(bool((np.diff(keys.slopes) > 0).all()), f"table: {dtype} cannot tell the slopes of the keys apart")
    return keys


def _steepness(columns: Columns, edges: Array, theta: Array, size: int, eps: float) -> Array:
    """(pieces − 1,) the least λ at which each edge hands over within eps."""
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    if len(half) < 2:
        return np.zeros(0)
    at_nodes = columns((middle[:, None] + half[:, None] * chebyshev(size)).ravel()).reshape(len(half), size, -1)
    slopes, biases, values = np.empty((len(half), size)), np.empty((len(half), size)), np.empty_like(at_nodes)
    for t in set(theta.tolist()):
        use = theta == t
        slopes[use], biases[use] = _logits(size, t)
        values[use] = _solver(size, t) @ at_nodes[use]

    def fitted(piece: NDArray[np.intp], x: Array) -> Array:
        """The continuation of pieces (n,) at their points (n, m)."""
        u = (x - middle[piece, None]) / half[piece, None]
        logits = u[..., None] * slopes[piece, None] + biases[piece, None]
        terms = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray((terms / terms.sum(axis=-1, keepdims=True)) @ values[piece])

    def off(lam: Array, edge: NDArray[np.intp]) -> Array:
        s = _TAILS / lam[:, None]
        worst = np.zeros(len(lam))
        for sign in (-1, 1):
            own, other = (edge, edge + 1) if sign < 0 else (edge + 1, edge)
            reach = np.minimum(s, 2 * half[own][:, None])
            x = edges[edge + 1][:, None] + sign * reach
            gap = np.abs(fitted(own, x) - fitted(other, x)).max(axis=2)
            worst = np.maximum(worst, (gap / (1 + np.exp(reach * lam[:, None]))).max(axis=1))
        return worst

    inner = np.arange(len(half) - 1)
    shorter = np.minimum(half[:-1], half[1:])
    slope = theta / half
    least = np.maximum(_APART / (2 * shorter), 1.3 * (slope[:-1] + slope[1:]))
    low, high = np.log(least), np.log(least) + 60.0
    fine = off(least, inner) <= eps
    high[fine] = low[fine]
    for _ in range(14):
        open_ = high - low > 0.05
        if not open_.any():
            break
        trial = np.where(high - low > 8, low + 2, (low + high) / 2)[open_]
        good = off(np.exp(trial), inner[open_]) <= eps
        high[open_] = np.where(good, trial, high[open_])
        low[open_] = np.where(good, low[open_], trial)
    return np.asarray(np.exp(high))
