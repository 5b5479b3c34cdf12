"""One head at another temperature, or with other values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnfun.network import Head
from attnfun.network.head import Array

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
