"""Heads with which one query token looks at the others; how points become tokens is the target's (`target.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnfun.network import TokenHead
from attnfun.network.blocks import GAP, Stream

Array = NDArray[np.float64]

HARD = 1e8  # an inverse temperature at which a softmax of scores of order 1 is a choice


def looking(stream: Stream, name: str, of_query: Array, of_key: Array, value: Array, output: Array) -> TokenHead:
    """A head with logits (q A)(x B)ᵀ, A = `of_query` and B = `of_key` (d, r), that does not see the query itself."""
    d, r = of_query.shape
    query, key = np.zeros((2, stream.width, r + 1))
    at = stream.at("q1")
    query[at : at + d, :r] = of_query
    key[:d, :r] = of_key
    # no logit of unit vectors is larger
    largest = float(np.sum(np.linalg.norm(of_query, axis=0) * np.linalg.norm(of_key, axis=0)))
    query[stream.at("one"), r] = -(2 * largest + GAP)
    key[stream.at("query"), r] = 1.0
    return TokenHead(name, query, key, value, output)


def picked(stream: Stream) -> tuple[Array, Array]:
    """W_V, W_O that read a point and write it where the query's own point would be."""
    point = np.eye(stream.width, stream.d)
    return point, point.T


def answer(dim: int, nearest: bool) -> tuple[str, ...]:
    return tuple(f"{'nearest' if nearest else 'furthest'}{i + 1}" for i in range(dim))
