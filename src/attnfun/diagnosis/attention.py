"""What a head does with its keys at sampled inputs: entropies, largest weights, margins, sizes of logits.

The weights of a product head are products over its axes, so entropies add up and largest weights multiply, and no more
than one axis is ever looked at: (points, keys of the axis) numbers at a time.
Also the same head at another temperature, or with other values.

**The geometry of keys**: which cells they cut the query space into, and which keys are doubled.

Logits of an axis are k_j·q + b_j. If b_j = −α|k_j|² + a·k_j + const for one α > 0, they are −R|q − v_j|²/2 up to what
all keys share, with R = 1/(2α) and the centres v_j = k_j/R − a: softmax weights are then Gaussians around centres, the
form of max-affine partitions (Liu, Hu, Song, Liu, arXiv 2504.19901). The fit is by least squares and counts where its
residual moves no wall by more than a fiftieth of a cell. Of one query coordinate the cells are there whatever the
biases: pieces of the upper envelope of the lines k_j q + b_j. Other heads have no such cells, and that is said.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis.findings import AxisCells
from attnfun.network import Axis, Head
from attnfun.network.head import Array, softmax

_AT_ONCE = 1 << 22
_WORK = 1 << 27
_MATTERS = 1e-6


@dataclass(frozen=True)
class Attention:
    """(points,) effective keys, largest weights and margins; (keys of an axis,) the largest weight of every key."""

    effective: Array
    top: Array
    margin: Array
    logit_size: float
    logit_max: float
    peaks: tuple[Array, ...]
    points: int


def attend(head: Head, tokens: Array) -> Attention:
    """The statistics at these tokens, of which every so many are left out where the head has very many keys."""
    most = max(axis.keys for axis in head.axes)
    ranges = [tokens @ axis.query.T + axis.offset for axis in head.axes]
    step = max(1, len(tokens) * most // _WORK)
    tokens = tokens[::step]
    n = len(tokens)
    entropy, log_top, margin = np.zeros(n), np.zeros(n), np.full(n, np.inf)
    size, largest, peaks = np.zeros(n), np.zeros(n), []
    for axis, every in zip(head.axes, ranges, strict=True):
        peak = np.zeros(axis.keys)
        queries = tokens @ axis.query.T + axis.offset
        for start in range(0, n, _rows(axis)):
            part = slice(start, start + _rows(axis))
            q = queries[part]
            logits = q @ axis.slopes.T + axis.biases
            weights = softmax(logits)
            peak = np.maximum(peak, weights.max(axis=0))
            safe = np.where(weights > 0, weights, 1.0)
            entropy[part] -= np.sum(weights * np.log(safe), axis=1)
            log_top[part] += np.log(weights.max(axis=1))
            terms = np.abs(q) @ np.abs(axis.slopes).T + np.abs(axis.biases)
            size[part] += np.where(weights > _MATTERS, terms, 0.0).max(axis=1)
            largest[part] += np.abs(logits).max(axis=1)
            if axis.keys > 1:
                two = np.partition(logits, axis.keys - 2, axis=1)[:, -2:]
                margin[part] = np.minimum(margin[part], two[:, 1] - two[:, 0])
        peaks.append(np.maximum(peak, _peaks(axis, every.min(axis=0), every.max(axis=0))))
    return Attention(np.exp(entropy), np.exp(log_top), margin, float(size.max()), float(largest.max()), tuple(peaks), n)


def softmax_of(axis: Axis, queries: Array) -> Array:
    """The weights (n, keys) of one axis."""
    return softmax(queries @ axis.slopes.T + axis.biases)


def weights_of(head: Head, tokens: Array) -> Array:
    """(n, keys) of all keys, product heads written out."""
    out = np.ones((len(tokens), 1))
    for axis in head.axes:
        own = softmax_of(axis, tokens @ axis.query.T + axis.offset)
        out = (out[:, :, None] * own[:, None, :]).reshape(len(own), -1)
    return out


def extended(head: Head, tokens: Array) -> Array:
    """(n, outputs) in long double, rounded to float64 at the end; one block of (n, keys) numbers."""
    weights = weights_of(head, tokens.astype(np.longdouble))
    return (weights @ head.values.reshape(-1, head.outputs).astype(np.longdouble)).astype(np.float64)


def hard(head: Head, tokens: Array) -> Array:
    """(n, outputs): the value of the key with the largest logit, the limit R → ∞ away from the walls."""
    return np.asarray(head.values[tuple(strongest(axis, tokens) for axis in head.axes)])


def strongest(axis: Axis, tokens: Array) -> NDArray[np.intp]:
    """(n,) the key of this axis with the largest logit at each token."""
    queries, rows = tokens @ axis.query.T + axis.offset, _rows(axis)
    starts = range(0, len(queries), rows)
    parts = [np.argmax(queries[start : start + rows] @ axis.slopes.T + axis.biases, axis=1) for start in starts]
    return np.concatenate(parts)


def alive(head: Head, peaks: tuple[Array, ...], allowed: float) -> list[NDArray[np.bool_]]:
    """Per axis a mask of the keys whose weight somewhere moves the output by a hundredth of the tolerance."""
    spread = float(head.spread.max())
    floor = min(0.5, 0.01 * allowed / spread) if spread > 0 and math.isfinite(allowed) else 0.0
    masks = []
    for peak in peaks:
        live = peak > floor
        live[np.argmax(peak)] = True
        masks.append(live)
    return masks


def _peaks(axis: Axis, low: Array, high: Array) -> Array:
    """(keys,) the largest weights at walls, cells' middles and centres within a range: samples miss narrow cells.

    Of keys too many for that, those that own a cell there count as 1.
    """
    if axis.dim == 1:
        owners, walls = envelope(axis)
        ends = np.clip(np.concatenate([low, walls, high]), low, high)
        inside = ends[1:] > ends[:-1]
        points = np.unique(np.concatenate([ends, (ends[1:] + ends[:-1]) / 2]))[:, None]
    else:
        form = gaussian_form(axis.slopes, axis.biases)
        if form is None:
            return np.zeros(axis.keys)
        owners, inside = np.arange(axis.keys), np.all((form[1] >= low) & (form[1] <= high), axis=1)
        points = form[1][inside]
    peak = np.zeros(axis.keys)
    if len(points) * axis.keys > 2 * _WORK:
        peak[owners[inside]] = 1.0
        return peak
    for start in range(0, len(points), _rows(axis)):
        peak = np.maximum(peak, softmax_of(axis, points[start : start + _rows(axis)]).max(axis=0))
    return peak


def _rows(axis: Axis) -> int:
    return max(1, _AT_ONCE // axis.keys)


RIDGES = (1e-13, 1e-10, 1e-7)
"""Shares of the trace that are added to the diagonal: more of it keeps values small and fits less."""


def scaled_head(head: Head, factor: float) -> Head:
    """Keys and biases times `factor`: the same cells, R times as much."""
    axes = tuple(replace(axis, slopes=axis.slopes * factor, biases=axis.biases * factor) for axis in head.axes)
    return replace(head, axes=axes)


def fit(weights: Array, wanted: Array, ridge: float) -> Array:
    """Values by least squares, tamed in the directions that the weights hardly reach."""
    gram = weights.T @ weights
    gram[np.diag_indices_from(gram)] += ridge * np.trace(gram)
    return np.asarray(np.linalg.solve(gram, weights.T @ wanted))


_CLOSE = 0.02
_MANY = 50_000  # centres in several coordinates whose neighbours are still looked for


def axis_cells(axis: Axis, queries: Array, slope: float | None) -> AxisCells:
    """The cells of one axis on the range of `queries` (n, r)."""
    low, high = queries.min(axis=0), queries.max(axis=0)
    if axis.dim == 1:
        return _intervals(axis, float(low[0]), float(high[0]), slope)
    form = gaussian_form(axis.slopes, axis.biases)
    if form is None or axis.keys > _MANY:
        return AxisCells("none", axis.keys, 0, slope=slope, dim=axis.dim)
    R, centres, residual = form
    from scipy.spatial import cKDTree

    reach = (high - low) * 1e-9 + np.median(high - low) * 1e-9
    inside = np.all((centres >= low - reach) & (centres <= high + reach), axis=1)
    distances = cKDTree(centres).query(centres, k=2)[0][:, 1]
    near = distances[inside] if inside.any() else distances
    width = float(np.median(near))
    c = R * width**2
    if not (width > 0 and residual <= _CLOSE * c):
        return AxisCells("none", axis.keys, 0, slope=slope, dim=axis.dim)
    return AxisCells("gaussian", axis.keys, int(inside.sum()), R, width, float(near.max()), c, slope, axis.dim)


def gaussian_form(slopes: Array, biases: Array) -> tuple[float, Array, float] | None:
    """(R, centres (keys, r), largest residual of a logit), or None where the keys do not determine an R > 0."""
    keys, r = slopes.shape
    if keys < r + 3:
        return None
    scale = float(np.abs(slopes).max())
    if not scale > 0:
        return None
    k = slopes / scale
    design = np.column_stack([-np.sum(k**2, axis=1), k, np.ones(keys)])
    if np.linalg.matrix_rank(design, tol=1e-10 * keys) < r + 2:
        return None
    found = np.linalg.lstsq(design, biases, rcond=None)[0]
    alpha = float(found[0]) / scale / scale
    if not 1e-300 < alpha < 1e300:
        return None
    residual = float(np.abs(design @ found - biases).max())
    R = 1 / (2 * alpha)
    return R, slopes / R - found[1 : 1 + r] / scale, residual


def envelope(axis: Axis) -> tuple[NDArray[np.intp], Array]:
    """Of one query coordinate: the keys that are largest somewhere, by slope, and the breakpoints between them."""
    k, b = axis.slopes[:, 0], axis.biases
    order = np.lexsort((b, k))
    last = np.append(np.diff(k[order]) != 0, True)  # of equal slopes only the largest bias counts
    hull: list[int] = []
    walls: list[float] = []
    for j in order[last]:
        while hull:
            wall = float((b[hull[-1]] - b[j]) / (k[j] - k[hull[-1]]))
            if walls and wall <= walls[-1]:
                hull.pop()
                walls.pop()
                continue
            walls.append(wall)
            break
        hull.append(int(j))
    return np.array(hull, dtype=np.intp), np.array(walls)


def _intervals(axis: Axis, low: float, high: float, slope: float | None) -> AxisCells:
    hull, walls = envelope(axis)
    ends = np.concatenate([[-np.inf], walls, [np.inf]])
    own = (ends[1:] > low) & (ends[:-1] < high) if high > low else np.zeros(len(hull), dtype=bool)
    own = own if own.any() else np.ones(len(hull), dtype=bool)
    owners = int(own.sum())
    if owners < 2 or not high > low:
        return AxisCells("none", axis.keys, owners, slope=slope)
    inner = np.flatnonzero(own)
    clipped = np.clip(ends, low, high)
    widths = clipped[inner + 1] - clipped[inner]
    k = axis.slopes[hull[inner], 0]
    form = gaussian_form(axis.slopes, axis.biases)
    if form is not None:
        R, centres, residual = form
        h = float(np.median(np.diff(np.sort(centres[hull[inner], 0]))))
        if residual <= _CLOSE * R * h**2:
            widest = max(float(widths.max()), h)
            return AxisCells("gaussian", axis.keys, owners, R, h, widest, R * h**2, slope)
    steps = np.diff(k)
    pairs = (widths[1:] + widths[:-1]) / 2
    sharpness, width = float(np.median(steps * pairs)), float(np.median(widths))
    R = float(np.median(steps / pairs))
    return AxisCells("max-affine", axis.keys, owners, R, width, float(widths.max()), sharpness, slope)


def doubled(axis: Axis, queries: Array, spread_of: Array, room: float) -> int:
    """How many keys could be merged into another: while the input moves, the ratio of the two weights changes by so
    little that, for values that differ by `spread_of` neighbours, the output moves by less than `room`.

    Neighbours are keys that follow each other in the order of their logits' slopes along the widest query direction.
    """
    reach = queries.max(axis=0) - queries.min(axis=0)
    order = np.lexsort((axis.slopes * reach).T)
    moved = np.abs(np.diff(axis.slopes[order], axis=0)) @ reach
    values = spread_of[order]
    gap = np.abs(np.diff(values, axis=0)).max(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        same = (moved <= 1e-3) & (moved * gap <= room)
    return int(same.sum())
