"""Keys of one axis in groups of equal number, each of which rules an interval: edges, points, weights within a group.

    logits k_i (w x + c) + b_i, keys i = M j, …, M j + M − 1 of group j

Groups j and j + 1 meet at the edge where Σ e^{logits} of the one is that of the other. Between its edges a group is met
by Chebyshev's points, M of them; its own softmax weights at these points are a matrix, whose inverse takes the values
of a function there to the values of the group's keys. Construction and proof of tables share this; all of it is in
floats, and no bound rests on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SIZES = range(2, 8)
_STEPS = 60


def possible_sizes(keys: int) -> list[int]:
    """The sizes of groups that keys can be cut into."""
    return [size for size in _SIZES if keys % size == 0]


def chebyshev(size: int) -> Array:
    """The points within [−1, 1]."""
    return np.asarray(-np.cos((np.arange(size) + 0.5) * np.pi / size))


def chebyshev_points(edges: Array, size: int) -> Array:
    """(groups, size) the points of each group."""
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return np.asarray(middle[:, None] + half[:, None] * chebyshev(size))


def group_weights(w: float, c: float, slopes: Array, biases: Array, nodes: Array) -> Array:
    """(groups, size, size) the softmax weights of every group alone at its points."""
    q = w * nodes + c
    k, b = slopes.reshape(nodes.shape), biases.reshape(nodes.shape)
    logits = (k - k[:, :1])[:, None, :] * q[:, :, None] + (b - b[:, :1])[:, None, :]
    terms = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.asarray(terms / terms.sum(axis=2, keepdims=True))


def group_edges(w: float, c: float, slopes: Array, biases: Array, size: int, low: float, high: float) -> Array | None:
    """The edges between low and high, by Newton's method; None where they do not increase."""
    k, b = slopes.reshape(-1, size), biases.reshape(-1, size)
    one, other = slice(0, -1), slice(1, None)
    rise = k[other].mean(axis=1) - k[one].mean(axis=1)
    if len(k) > 1 and not bool((rise > 0).all()):
        return None
    q = (b[one].mean(axis=1) - b[other].mean(axis=1)) / rise
    base_k, base_b = k[one, -1:], b[one, -1:]

    def sums(part: slice) -> tuple[Array, Array]:
        logits = (k[part] - base_k) * q[:, None] + (b[part] - base_b)
        top = logits.max(axis=1, keepdims=True)
        terms = np.exp(logits - top)
        mass = terms.sum(axis=1)
        return top[:, 0] + np.log(mass), (terms * (k[part] - base_k)).sum(axis=1) / mass

    for _ in range(_STEPS):
        (here, falls), (there, climbs) = sums(one), sums(other)
        move = (here - there) / np.maximum(climbs - falls, 1e-300)
        q = q + move
        if not np.any(np.abs(move) > 1e-15 * (1 + np.abs(q))):
            break
    edges = np.concatenate([[low], (q - c) / w, [high]])
    return edges if bool((np.diff(edges) > 0).all()) else None
