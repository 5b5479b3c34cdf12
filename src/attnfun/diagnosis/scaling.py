"""One head at another temperature, or with other values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attnfun.network import Head
from attnfun.network.head import Array

RIDGE = 1e-12


def scaled_head(head: Head, factor: float) -> Head:
    """Keys and biases times `factor`: the same cells, R times as much."""
    axes = tuple(replace(axis, slopes=axis.slopes * factor, biases=axis.biases * factor) for axis in head.axes)
    return replace(head, axes=axes)


def fit(weights: Array, wanted: Array) -> Array:
    """Values by least squares, with so little ridge that it only tames directions the weights do not reach."""
    gram = weights.T @ weights
    gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram)
    return np.asarray(np.linalg.solve(gram, weights.T @ wanted))
