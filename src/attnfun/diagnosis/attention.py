"""What a head does with its keys at sampled inputs: entropies, largest weights, margins, sizes of logits.

The weights of a product head are products over its axes, so entropies add up and largest weights multiply, and no more
than one axis is ever looked at: (points, keys of the axis) numbers at a time.
Also the same head at another temperature, or with other values.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis.keys import envelope, gaussian_form
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
