"""Sets of positions as queries, and tokens that hold a key code, a query code per head, z, and room for the average.

The query of a set is worked out here, by a linear solve (random keys) or a product (curve), not by the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.circle import circle
from attnfun.language.target import Array

KEYS = ("random", "curve")
Sets = tuple[tuple[int, ...], ...]


def least_norm_query(keys: Array, subset: NDArray[np.int64]) -> Array:
    """w of least norm with ⟨w, u_j⟩ = 1 on the subset (least squares where there is none)."""
    return np.asarray(np.linalg.lstsq(keys[subset], np.ones(len(subset)), rcond=None)[0], dtype=np.float64)


def curve_query(tokens: int, subset: NDArray[np.int64]) -> Array:
    """The coefficients of −Π(1 − cos(t − t_i)) but the constant, scaled so that the subset scores 1."""
    cos, sin = circle(subset % tokens, tokens, "float64")
    product = np.ones(1, dtype=np.complex128)
    for c, s in zip(cos, sin, strict=True):
        product = np.convolve(product, [-(c + 1j * s) / 2, 1.0, -(c - 1j * s) / 2])
    q = len(subset)
    upper, constant = product[q + 1 :], product[q].real
    return np.concatenate([-2 * upper.real, 2 * upper.imag]) / constant


def set_queries(codes: Array, keys: str, named: Sets, heads: int) -> Array:
    """(sets, heads, m): the query of every head's share of every set."""
    if keys == "curve":
        return np.array([[curve_query(len(codes), np.array(s[h::heads])) for h in range(heads)] for s in named])
    return np.array([[least_norm_query(codes, np.array(s[h::heads])) for h in range(heads)] for s in named])


def encode_average(keys: Array, queries: Array, z: Array) -> Array:
    """(N, m), (..., N, H, m), (..., N, dim) -> (..., N, m + H m + 2 dim) tokens."""
    codes = np.broadcast_to(keys, (*z.shape[:-1], keys.shape[1]))
    return np.concatenate([codes, queries.reshape((*z.shape[:-1], -1)), z, np.zeros_like(z)], axis=-1)


def positions(subsets: Any, tokens: int, q: int) -> NDArray[np.int64]:
    """(…, q) sorted positions of sets in any nesting; InvalidRequest for anything but sets of q of N positions."""
    if isinstance(subsets, np.ndarray) and subsets.dtype.kind in "iu" and subsets.ndim > 1 and subsets.shape[-1] == q:
        found = np.sort(subsets.astype(np.int64), axis=-1)
        if found.size and found.min() >= 0 and found.max() < tokens and (np.diff(found, axis=-1) > 0).all():
            return found
    return np.array(check_subsets(subsets, tokens, q))


def check_subsets(subsets: Any, tokens: int, q: int) -> Sets:
    """Sets of q different positions from 0 to N − 1, sorted; InvalidRequest for anything else."""
    if isinstance(subsets, (str, bytes)) or not isinstance(subsets, (Sequence, np.ndarray)) or len(subsets) == 0:
        raise InvalidRequest("subsets: a list of sets of positions is needed")
    out = []
    for one in subsets:
        try:
            members = sorted(one)
            whole = all(isinstance(j, (int, np.integer)) and not isinstance(j, bool) for j in members)
        except TypeError:
            raise InvalidRequest(f"a subset is a set of positions, and not {one!r:.40}") from None
        if not whole or len(members) != q or len(set(members)) != q or not 0 <= members[0] <= members[-1] < tokens:
            raise InvalidRequest(f"the subset {members!r:.60} is not {q} different positions from 0 to {tokens - 1}")
        out.append(tuple(int(j) for j in members))
    return tuple(out)
