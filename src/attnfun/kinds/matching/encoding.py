"""Whole numbers as tokens: the look-up that stands before matching networks, of pairs and of triples.

And third-order attention on single encodings: a softmax over pairs of tokens, of a trilinear form.
"""

import numpy as np
from numpy.typing import NDArray

from attnfun.language.circle import circle
from attnfun.language.target import Array

PLAIN = ("cos", "sin", "one", "null", "found")
FLAGGED = ("cos", "sin", "one", "null", "zero", "half", "found")
TRIPLES = ("cos", "sin", "pair cos", "pair sin", "one", "pair", "null", "found")


def encode2(r: NDArray[np.int64], modulus: int, *, self_allowed: bool = True, dtype: str = "float64") -> Array:
    """(..., N) residues -> (..., N, width) tokens."""
    cos, sin = circle(r, modulus, dtype)
    one, zero = np.ones(r.shape), np.zeros(r.shape)
    if self_allowed:
        return np.stack([cos, sin, one, zero, zero], axis=-1)
    return np.stack([cos, sin, one, zero, r == 0, (r != 0) & (r == modulus - r), zero], axis=-1).astype(np.float64)


def encode3(r: NDArray[np.int64], modulus: int, dtype: str = "float64") -> Array:
    """(..., N) residues -> (..., N + N², 8) tokens, singles first."""
    n = r.shape[-1]
    pairs = ((r[..., :, None] + r[..., None, :]) % modulus).reshape((*r.shape[:-1], n * n))
    out = np.zeros((*r.shape[:-1], n + n * n, 8))
    out[..., :n, 0], out[..., :n, 1] = circle(r, modulus, dtype)
    out[..., n:, 2], out[..., n:, 3] = circle(pairs, modulus, dtype)
    out[..., 4] = 1.0
    out[..., n:, 5] = 1.0
    return out


def third_order(r: NDArray[np.int64], modulus: int, scale: float, null: float, dtype: str = "float64") -> Array:
    """(..., N) residues -> (..., N): exact softmax over pairs of the trilinear form, in the dtype."""
    c, s = (part.astype(dtype) for part in circle(r, modulus, dtype))
    a = np.dtype(dtype).type(scale)
    both = c[..., :, None] * c[..., None, :], s[..., :, None] * s[..., None, :]
    cross = s[..., :, None] * c[..., None, :], c[..., :, None] * s[..., None, :]
    left, right = c[..., :, None, None], s[..., :, None, None]
    form = (left * both[0][..., None, :, :] - left * both[1][..., None, :, :]) - (
        right * cross[0][..., None, :, :] + right * cross[1][..., None, :, :]
    )
    logits = (a * form).reshape((*r.shape, -1))
    top = np.maximum(logits.max(axis=-1, keepdims=True), np.dtype(dtype).type(null))
    weights = np.exp(logits - top).sum(axis=-1)
    rest = np.exp(np.dtype(dtype).type(null) - top[..., 0])
    return np.asarray(weights / (weights + rest), dtype=np.float64)
