"""Ternary relations as trilinear forms: sup |r(x, y, z) − Σ_i a_i(x) b_i(y) c_i(z)| from stored coefficients.

Statement. With C the enclosed Chebyshev coefficients of r (`coefficients`), sup |r − C| ≤ e, and A, B, G the stored
coefficients of a, b, c: |T_j| ≤ 1 gives sup |r − Σ a b c| ≤ e + Σ |C − Σ_i A_i ⊗ B_i ⊗ G_i|. In float64 the triple
products of r terms are off by at most γ_{r+3} Σ_i ‖A_i‖₁‖B_i‖₁‖G_i‖₁. Failure modes: those of `coefficients`.
"""

from __future__ import annotations

import math

import numpy as np

from attnfun.certify.coefficients import expansion
from attnfun.certify.view import Array, Undecided
from attnfun.expressions import Graph, precision

_U = 2.0**-53


def trilinear_table(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, tolerance: float
) -> tuple[Array, float]:
    """(C (N_1, N_2, N_3), e); raises Undecided."""
    with precision(128):
        found = expansion(graph, names, low, high, tolerance)
    return found.table, found.error


def trilinear_error(table: Array, error: float, stored: tuple[Array, Array, Array]) -> float:
    """A bound of sup |r − Σ_i a_i b_i c_i| for stored coefficients (N, rank) a side, padded to the table's shape."""
    shape = tuple(max(n, len(s)) for n, s in zip(table.shape, stored, strict=True))
    C = np.pad(table, [(0, n - m) for n, m in zip(shape, table.shape, strict=True)])
    A, B, G = (np.pad(s, [(0, n - len(s)), (0, 0)]) for n, s in zip(shape, stored, strict=True))
    if not all(np.isfinite(s).all() for s in (A, B, G)):
        raise Undecided("trilinear: a coefficient is not finite")
    weight = float((np.abs(A).sum(axis=0) * np.abs(B).sum(axis=0) * np.abs(G).sum(axis=0)).sum())
    pairs = (A[:, None, :] * B[None]).reshape(-1, A.shape[1])
    gap = float(np.abs(C.reshape(-1, shape[2]) - pairs @ G.T).sum())
    lost = 1.01 * _U * ((A.shape[1] + 6) * weight + float(np.abs(C).sum()))
    total = (gap + lost) * (1 + (C.size + 8) * _U) + error
    return math.nextafter(total, math.inf) if math.isfinite(total) else math.inf
