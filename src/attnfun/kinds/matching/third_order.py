"""Third-order attention: a softmax over pairs of tokens, of a trilinear form of their encodings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnfun.language.circle import circle
from attnfun.language.target import Array


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
