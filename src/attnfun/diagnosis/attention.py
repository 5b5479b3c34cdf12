"""What a head does with its keys at sampled inputs: entropies, largest weights, margins, sizes of logits.

The weights of a product head are products over its axes, so entropies add up and largest weights multiply, and no more
than one axis is ever looked at: (points, keys of the axis) numbers at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis.keys import envelope, gaussian_form
from attnfun.network import Axis, Head
from attnfun.network.head import Array

_AT_ONCE = 1 << 22
_WORK = 1 << 27
_MATTERS = 1e-6
_DENSE = 1 << 16  # keys looked at one by one


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


def attend(head: Head, tokens: Array, extra: tuple[Array, ...]) -> Attention:
    """`extra`: further queries (n, r) of every axis, at which only the peaks are looked for."""
    most = max(axis.keys for axis in head.axes)
    step = max(1, len(tokens) * most // _WORK)
    tokens = tokens[::step]
    n = len(tokens)
    entropy, log_top, margin = np.zeros(n), np.zeros(n), np.full(n, np.inf)
    size, largest, peaks = np.zeros(n), np.zeros(n), []
    for axis, more in zip(head.axes, extra, strict=True):
        peak = np.zeros(axis.keys)
        queries = tokens @ axis.query.T + axis.offset
        for start in range(0, n, _rows(axis)):
            part = slice(start, start + _rows(axis))
            q = queries[part]
            weights, logits = softmax(axis, q)
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
        for start in range(0, len(more), _rows(axis)):
            peak = np.maximum(peak, softmax(axis, more[start : start + _rows(axis)])[0].max(axis=0))
        peaks.append(peak)
    return Attention(np.exp(entropy), np.exp(log_top), margin, float(size.max()), float(largest.max()), tuple(peaks), n)


def softmax(axis: Axis, queries: Array) -> tuple[Array, Array]:
    """Weights and logits (n, keys) of one axis."""
    logits = queries @ axis.slopes.T + axis.biases
    terms = np.exp(logits - logits.max(axis=1, keepdims=True))
    return terms / terms.sum(axis=1, keepdims=True), logits


def weights_of(head: Head, tokens: Array) -> Array:
    """(n, keys) of all keys, product heads written out."""
    out: Array | None = None
    for axis in head.axes:
        own = softmax(axis, tokens @ axis.query.T + axis.offset)[0]
        out = own if out is None else (out[:, :, None] * own[:, None, :]).reshape(len(own), -1)
    assert out is not None
    return out


def hard(head: Head, tokens: Array) -> Array:
    """(n, outputs): the value of the key with the largest logit, the limit R → ∞ away from the walls."""
    index = []
    for axis in head.axes:
        queries = tokens @ axis.query.T + axis.offset
        rows = _rows(axis)
        parts = [
            np.argmax(queries[start : start + rows] @ axis.slopes.T + axis.biases, axis=1)
            for start in range(0, len(queries), rows)
        ]
        index.append(np.concatenate(parts))
    return np.asarray(head.values[tuple(index)])


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


def places(axis: Axis, queries: Array) -> Array:
    """Queries at which single keys peak, within the sampled range: the samples alone would miss narrow cells."""
    low, high = queries.min(axis=0), queries.max(axis=0)
    if axis.keys > _DENSE:
        return np.empty((0, axis.dim))
    if axis.dim == 1:
        walls = np.clip(np.concatenate([low, envelope(axis)[1], high]), low, high)
        return np.unique(np.concatenate([walls, (walls[1:] + walls[:-1]) / 2]))[:4096, None]
    form = gaussian_form(axis.slopes, axis.biases)
    if form is None:
        return np.empty((0, axis.dim))
    inside = np.all((form[1] >= low) & (form[1] <= high), axis=1)
    return form[1][inside][:4096]


def _rows(axis: Axis) -> int:
    return max(1, _AT_ONCE // axis.keys)
