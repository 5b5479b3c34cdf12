"""The geometry of keys: which cells they cut the query space into, and which keys are doubled.

Logits of an axis are k_j·q + b_j. If b_j = −α|k_j|² + a·k_j + const for one α > 0, they are −R|q − v_j|²/2 up to what
all keys share, with R = 1/(2α) and the centres v_j = k_j/R − a: softmax weights are then Gaussians around centres, the
form of max-affine partitions (Liu, Hu, Song, Liu, arXiv 2504.19901). The fit is by least squares and counts where its
residual moves no wall by more than a fiftieth of a cell. Of one query coordinate the cells are there whatever the
biases: pieces of the upper envelope of the lines k_j q + b_j. Other heads have no such cells, and that is said.
"""

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis.record import AxisCells
from attnfun.network import Axis
from attnfun.network.head import Array

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
