"""Margins, and the best query for fixed documents.

Definition. The margin of an embedding is

    min over queries i of ( min_{j ∈ R_i} q_i·D_j − max_{j ∉ R_i} q_i·D_j ) / (‖q_i‖ · max_j ‖D_j‖):

queries are scaled to length 1 each, documents by one common factor into the unit ball, so that ranking never changes.
Trivial queries do not count.

Best query. For fixed D the largest margin of a row is the distance between the hulls of its relevant and of its
irrelevant documents, and the query is the shortest difference of the two. It solves a nonnegative least squares
problem in the weights of the documents. Only few documents matter: start with those nearest the present boundary and
add those that violate the answer.

Ceiling [proved]. Let B have rows 1/k on the relevant and −1/(n−k) on the irrelevant documents. A margin ε has
ε ≤ q_i·Σ_j B_ij D_j for every i, so ε² ≤ (1/m) Σ_i ‖Σ_j B_ij D_j‖² ≤ (1/m) ‖B‖² Σ_j ‖D_j‖² ≤ ‖B‖² n/m in the unit
ball, whatever the dimension. For all k-subsets of n documents it is n/√(k (n−1)(n−k)) (arXiv 2601.20844).
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.limits.embedding.relevance import Array, Core, Indices
from attnfun.limits.singular import spectral_norm_bound

_BLOCK = 1 << 22
_SUMS = 1e3
"""Weight of “the weights of each side add up to 1”: thin margins show through it at 10, and are lost at 1e6."""


def gaps(core: Core, queries: Array, documents: Array) -> Array:
    """min relevant − max irrelevant score for every row, as floats."""
    out = np.empty(core.m)
    step = max(1, _BLOCK // core.n)
    for start in range(0, core.m, step):
        scores = queries[start : start + step] @ documents.T
        for s, i in zip(scores, range(start, start + len(scores))):
            low = s[core.rows[i]].min()
            s[core.rows[i]] = -np.inf
            out[i] = low - s.max()
    return out


def margin(core: Core, queries: Any, documents: Any) -> float:
    """The margin of the definition above in floating point: measured, and no bound."""
    Q, D = np.asarray(queries, np.float64), np.asarray(documents, np.float64)
    if core.m == 0:
        return math.inf
    widest = float(np.linalg.norm(D, axis=1).max())
    length = np.linalg.norm(Q, axis=1)
    if not (widest > 0 and (length > 0).all()):
        return 0.0
    return float((gaps(core, Q / length[:, None], D / widest)).min())


def best_query(documents: Array, row: Indices, start: Array, near: int = 64) -> tuple[Array, float]:
    """A unit query of the largest margin for these documents, and that margin; at worst what `start` had."""
    from scipy.optimize import nnls

    n, dim = documents.shape
    relevant = np.zeros(n, np.bool_)
    relevant[row] = True
    best, best_gap = start, _gap(documents @ start, relevant)
    scores = documents @ start
    active = np.zeros(n, np.bool_)
    centre = documents[row].mean(axis=0)  # a shift changes no difference, and small numbers lose less
    for _ in range(8):
        for side, order in ((relevant, scores), (~relevant, -scores)):
            inside = np.flatnonzero(side & ~active)
            take = inside[np.argsort(order[inside])[: near if not active.any() else dim]]
            active[take] = True
        X, Y = documents[active & relevant] - centre, documents[active & ~relevant] - centre
        A = np.zeros((dim + 2, len(X) + len(Y)))
        A[:dim, : len(X)], A[:dim, len(X) :] = X.T, -Y.T
        A[dim, : len(X)] = A[dim + 1, len(X) :] = _SUMS
        b = np.zeros(dim + 2)
        b[dim:] = _SUMS
        try:
            weights = nnls(A, b)[0]
        except (RuntimeError, ValueError):
            break
        p, q = weights[: len(X)], weights[len(X) :]
        if not (p.sum() > 0 and q.sum() > 0):
            break
        query = p @ X / p.sum() - q @ Y / q.sum()
        length = float(np.linalg.norm(query))
        if not length > 1e-13:
            break
        scores = documents @ (query / length)
        gap = _gap(scores, relevant)
        if gap > best_gap:
            best, best_gap = query / length, gap
        if active.all() or gap > length * (1 - 1e-6):
            break
    return best, best_gap


def best_queries(core: Core, documents: Array, start: Array) -> Array:
    """The best query for every row."""
    return np.array([best_query(documents, row, q)[0] for row, q in zip(core.rows, start)])


def _gap(scores: Array, relevant: NDArray[np.bool_]) -> float:
    return float(scores[relevant].min() - scores[~relevant].max())


def ceiling(core: Core) -> float | None:
    """The proved bound on every margin in every dimension; None for relations too large to look at."""
    if core.m == 0 or core.m * core.n > 2_000_000:
        return None
    lengths = core.dense.sum(axis=1, keepdims=True)
    weights = np.where(core.dense, 1.0 / lengths, -1.0 / (core.n - lengths))
    # the stored weights are off by u relative: in the norm by at most u ‖B‖_F
    slack = 2.0**-52 * float(np.linalg.norm(weights))
    bound = (spectral_norm_bound(weights) + slack) * math.sqrt(core.n / core.m) * (1 + 2.0**-48)
    return min(bound, 2.0)
