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


def singular_columns(C: Array) -> tuple[Array, Array]:
    """(n, n') → P (n, m), Q (n', m): C = P Qᵀ, largest first."""
    a, values, b = np.linalg.svd(C, full_matrices=False)
    return a * np.sqrt(values), b.T * np.sqrt(values)
