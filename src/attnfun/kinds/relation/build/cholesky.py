"""Features by pivoted Cholesky: greedy interpolation of a positive semidefinite kernel.

Statement: with K the kernel at the Chebyshev nodes and d its diagonal, take i = argmax d, column
(K_·i − G Gᵀ_·i)/sqrt(d_i), subtract its square from d, and repeat. After r steps K − G Gᵀ is positive semidefinite, so
its largest entry is on the diagonal. The columns of G are values of functions at the nodes; their Chebyshev
coefficients are the features.
Source: Fine and Scheinberg 2001; Harbrecht, Peters and Schneider 2012 for the trace bound.
Size: one feature per pivot. Bound: the diagonal, proved off the nodes too (`prove_features`, *diagonal*).
Failure mode: a kernel that is not positive semidefinite ends the recursion early.
"""

import numpy as np

from attnfun.network.head import Array


def pivoted_columns(C: Array, shape: tuple[int, ...]) -> Array:
    """Coefficients (n, n) of a kernel on a tensor grid of `shape`, n = Π shape → P (n, m) with C ≈ P Pᵀ."""
    values, back = np.ones((1, 1)), np.ones((1, 1))
    for n in shape:
        theta = (2 * np.arange(n) + 1) * np.pi / (2 * n)
        T = np.cos(np.outer(theta, np.arange(n)))
        D = T.T * (2.0 / n)
        D[0] /= 2
        values, back = np.kron(values, T), np.kron(back, D)
    K = values @ ((C + C.T) / 2) @ values.T
    rest = np.diag(K).copy()
    floor = 8 * len(K) * np.finfo(np.float64).eps * float(rest.max())
    columns: list[Array] = []
    while len(columns) < len(K):
        i = int(np.argmax(rest))
        if not rest[i] > floor:
            break
        column = K[:, i].copy()
        for g in columns:
            column -= g * g[i]
        column /= np.sqrt(rest[i])
        rest = rest - column**2
        columns.append(column)
    return np.asarray(back @ np.stack(columns, axis=1)) if columns else np.zeros((len(K), 1))
