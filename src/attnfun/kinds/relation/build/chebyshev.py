"""Features by the eigenvectors or singular vectors of a relation's Chebyshev coefficients.

Statement: g(x, y) ≈ T(x)ᵀ C T(y) with C the matrix of Chebyshev coefficients. C = Σ_i σ_i a_i b_iᵀ gives the features
φ_i = sqrt(σ_i) a_iᵀ T, ψ_i = sqrt(σ_i) b_iᵀ T; for a symmetric C = Σ_i λ_i a_i a_iᵀ one tower φ_i = sqrt|λ_i| a_iᵀ T
and the signs of λ.
Source: Mercer 1909 and Schmidt 1907 for integral operators; here the operator is the table itself. Altabaa and
Lafferty, arXiv 2402.08856, for the use: relations as inner products of two feature maps.
Derivation: |T_j| ≤ 1, so dropping terms costs at most the sum of the coefficients that they take along; C is positive
semidefinite if the polynomial kernel is (congruence with the invertible matrix of the T_j at the nodes).
Size: one feature per singular value that is kept. Bound: see `prove_features`.
Failure mode: a kink gives slowly decaying coefficients, and ranks of hundreds.
"""

import numpy as np

from attnfun.network.head import Array

_FALLEN = 1e-2


def eigen_columns(C: Array, keep_negative: bool) -> tuple[Array, Array]:
    """(n, n) → P (n, m), signs (m,): C = Σ_i signs_i P_i P_iᵀ, largest first; negatives left out unless wanted."""
    values, vectors = np.linalg.eigh((C + C.T) / 2)
    order = np.argsort(-np.abs(values))
    values, vectors = values[order], vectors[:, order]
    noise = 4 * len(C) * np.finfo(np.float64).eps * float(np.abs(values[0]))
    kept = (values > 0) | ((values < -noise) & keep_negative)
    kept[0] = kept[0] or not kept.any()
    values, vectors = values[kept], vectors[:, kept]
    return vectors * np.sqrt(np.abs(values)), np.where(values < 0, -1.0, 1.0)


def leading_columns(
    C: Array, symmetric: bool, keep_negative: bool, most: int
) -> tuple[Array, Array, Array | None] | None:
    """(P, Q, signs): the first of the columns of `eigen_columns` (Q = P · signs) or `singular_columns`, at most `most`.

    By subspace iteration on twice as many columns: what is left out of the subspace, of size σ, costs the column of a
    value λ an error of about (σ/λ)^5. So only values above σ/`_FALLEN` have theirs here; None where there are none, or
    where decomposing all of C is no more work.
    """
    if 8 * most > min(C.shape):
        return None
    C = (C + C.T) / 2 if symmetric else C
    Y = C @ np.random.default_rng(0).standard_normal((C.shape[1], 2 * most))
    for _ in range(2):
        Y = C @ (C.T @ np.linalg.qr(Y)[0])
    basis = np.linalg.qr(Y)[0]
    if symmetric:
        values, turned = np.linalg.eigh(basis.T @ (C @ basis))
        order = np.argsort(-np.abs(values))
        values, left = values[order], basis @ turned[:, order]
        right = left * np.where(values < 0, -1.0, 1.0)
    else:
        turned, values, b = np.linalg.svd(basis.T @ C, full_matrices=False)
        left, right = basis @ turned, b.T
    sizes = np.abs(values)
    kept = np.flatnonzero((sizes[:most] * _FALLEN > sizes[-1]) & ((values[:most] > 0) | keep_negative))
    if not len(kept):
        return None
    root = np.sqrt(sizes[kept])
    signs = np.where(values[kept] < 0, -1.0, 1.0) if symmetric else None
    return left[:, kept] * root, right[:, kept] * root, signs


def singular_columns(C: Array) -> tuple[Array, Array]:
    """(n, n') → P (n, m), Q (n', m): C = P Qᵀ, largest first."""
    a, values, b = np.linalg.svd(C, full_matrices=False)
    return a * np.sqrt(values), b.T * np.sqrt(values)
