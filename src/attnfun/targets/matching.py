"""Matches mod M: which of given residues sum to 0 with one or two others, by counting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_TOKENS = {2: 4096, 3: 64}
"""By order: attention over more products than these make is not run here."""


def matched(r: NDArray[np.int64], modulus: int, order: int, self_allowed: bool) -> NDArray[np.bool_]:
    """[∃ j (, k): x_i + x_j (+ x_k) ≡ 0 mod M] for every i of residues (..., N), by brute force."""
    n = r.shape[-1]
    sums = (r[..., :, None] + r[..., None, :]) % modulus
    if order == 2:
        hit = sums == 0
        return np.asarray((hit if self_allowed else hit & ~np.eye(n, dtype=bool)).any(axis=-1))
    wanted = (modulus - r) % modulus
    flat = sums.reshape((*r.shape[:-1], n * n))
    found = [np.isin(w, s) for w, s in zip(wanted.reshape(-1, n), flat.reshape(-1, n * n), strict=True)]
    return np.asarray(found).reshape(r.shape)
