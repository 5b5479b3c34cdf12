"""Matches mod M: which of given residues sum to 0 with one or two others, by counting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 22  # comparisons at a time
MOST_TOKENS = {2: 4096, 3: 64}
"""By order: attention over more products than these make is not run here."""


def matched(r: NDArray[np.int64], modulus: int, order: int, self_allowed: bool) -> NDArray[np.bool_]:
    """[∃ j (, k): x_i + x_j (+ x_k) ≡ 0 mod M] for every i of residues (..., N), by brute force."""
    n = r.shape[-1]
    sums = (r[..., :, None] + r[..., None, :]) % modulus
    if order == 2:
        hit = sums == 0
        return np.asarray((hit if self_allowed else hit & ~np.eye(n, dtype=bool)).any(axis=-1))
    wanted, flat = ((modulus - r) % modulus).reshape(-1, n, 1), sums.reshape(-1, 1, n * n)
    step = max(1, _BLOCK // n**3)
    parts = [(wanted[k : k + step] == flat[k : k + step]).any(axis=2) for k in range(0, len(flat), step)]
    return np.concatenate(parts).reshape(r.shape) if parts else np.zeros(r.shape, dtype=bool)
