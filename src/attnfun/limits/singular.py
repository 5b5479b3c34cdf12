"""Singular values of a float64 matrix with rounding counted, and its spectral norm.

Statement. Let Û, ŝ, V̂ be floats, whatever their origin, with ‖ÛᵀÛ − I‖ ≤ α, ‖V̂ᵀV̂ − I‖ ≤ β, ŝ ≥ 0 and
‖M − Û diag(ŝ) V̂ᵀ‖ ≤ δ. Then for every i

    ŝ_i √(1−α) √(1−β) − δ  ≤  σ_i(M)  ≤  ŝ_i √(1+α) √(1+β) + δ        (ŝ sorted; the left side needs α, β < 1).

Derivation. The eigenvalues of ÛᵀÛ lie in [1−α, 1+α], so the singular values of Û in their roots, and
σ_min(A) σ_i(B) ≤ σ_i(AB) ≤ ‖A‖ σ_i(B) for A with independent columns. Weyl: σ_i moves by at most ‖E‖. Norms are bounded
by Frobenius norms. α, β, δ are computed in float64 and enlarged by the rounding of the matrix products,
|fl(AB) − AB| ≤ γ_k |A||B| with γ_k = k u/(1 − k u) for inner dimension k, any order of summation (Higham, §3.5).

Failure mode. Overflow, NaN, or products so small that they underflow: the bounds are (0, ∞).
"""

import math
from typing import Any

import numpy as np

from attnfun.language.domain import Array

U = 2.0**-53


def gamma(k: int) -> float:
    """k u/(1 − k u), rounded up."""
    return k * U / (1 - k * U) * (1 + 4 * U)


def frobenius_above(A: Array) -> float:
    """‖A‖_F rounded up; ∞ if it cannot be told."""
    top = float(np.abs(A).max(initial=0.0))
    if top == 0.0 or not math.isfinite(top):
        return 0.0 if top == 0.0 else math.inf
    scaled = A / top  # quotients are relative to 1, and those that underflow weigh less than the slack below
    return top * math.sqrt(float((scaled * scaled).sum())) * (1 + gamma(A.size + 16)) + A.size * 1e-300


def product_error(A: Array, B: Array) -> Array:
    """An entrywise bound on |fl(A B) − A B|, itself rounded up: γ |A||B| and what underflow may add."""
    k = A.shape[1]
    return gamma(k + 2) * (np.abs(A) @ np.abs(B)) * (1 + gamma(k + 2)) + (k + 1) * 1e-300


def singular_values(matrix: Any) -> tuple[Array, Array]:
    """Proved lower and upper ends for all singular values, largest first."""
    M = np.ascontiguousarray(matrix, np.float64)
    size = min(M.shape)
    nothing = np.zeros(size), np.full(size, np.inf)
    if size == 0 or not np.isfinite(M).all():
        return nothing
    try:
        left, s, right = np.linalg.svd(M, full_matrices=False)
    except np.linalg.LinAlgError:
        return nothing
    alpha, beta = _defect(left), _defect(right.T)
    scaled = left * s
    with np.errstate(all="ignore"):
        near = scaled @ right
        residual = M - near
        slack = product_error(scaled, right) + 2 * U * np.abs(residual)
        # |fl(l s) − l s| ≤ u |l s|, summed over the inner dimension
        slack += 2 * U * (np.abs(scaled) @ np.abs(right)) * (1 + gamma(size + 2))
        delta = frobenius_above(np.abs(residual) + slack) * (1 + 8 * U)
    if not (math.isfinite(delta) and alpha < 1 and beta < 1):
        return nothing
    low = s * math.sqrt(1 - alpha) * math.sqrt(1 - beta) * (1 - 16 * U) - delta * (1 + 4 * U)
    high = s * math.sqrt(1 + alpha) * math.sqrt(1 + beta) * (1 + 16 * U) + delta
    return np.maximum(low - 8 * U * np.abs(low), 0.0), high * (1 + 8 * U)


def _defect(left: Array) -> float:
    """A bound on ‖LᵀL − I‖ for L with as many rows as columns or more."""
    transposed = np.ascontiguousarray(left.T)
    gram = transposed @ left
    slack = product_error(transposed, left) + 2 * U * (np.abs(gram) + 1)
    np.fill_diagonal(gram, gram.diagonal() - 1.0)
    return frobenius_above(np.abs(gram) + slack) * (1 + 8 * U)


def spectral_norm_bound(matrix: Any) -> float:
    """A proved upper bound on ‖M‖₂; ∞ if there is none."""
    high = singular_values(matrix)[1]
    return float(high[0]) if len(high) else 0.0
