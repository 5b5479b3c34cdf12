"""The head rank that a real-valued score matrix needs: factors with a certified error, and ranks that are impossible.

Statement. M is m × n, ε > 0. Above: stored float64 factors L (m × r) and R (r × n) with |M − LR| ≤ ε in every entry, in
exact arithmetic for the stored numbers. Below: if some submatrix S of M, p × q, has √(Σ_{i>k} σ_i(S)²) > ε √(pq), no
matrix of rank k is within ε of M.

Source. C. Eckart, G. Young 1936; L. Mirsky 1960; E. Schmidt 1907.

Derivation. Below: if B has rank k, then ‖S − B_S‖_F² ≥ Σ_{i>k} σ_i(S)² and ‖S − B_S‖_F ≤ √(pq) max|S − B_S|. The
singular values are proved lower ends (singular.py). Above: |M − LR| ≤ |fl(M − fl(LR))|(1 + 2u) + γ_{r+2} |L||R|, all
of it computed and enlarged by its own rounding.

Size. The truncated SVD of the smallest rank that passes. It is the best in the mean, not entry by entry: a smaller rank
may exist, and the interval [lower, rank] says how much smaller.

Failure mode. ε near the rounding of the entries: Infeasible, with the error of the full factorisation. The claim is
about the float64 numbers that were read, not about decimals that they round.

Example. `rank_of([[1, 0], [0, 1]], 0.1)` has rank 2 and lower 2.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, feasible, require
from attnfun.files import write_whole
from attnfun.language.brief import Brief
from attnfun.language.domain import Array
from attnfun.language.numbers import at_most, positive
from attnfun.limits.singular import U, product_error, singular_values
from attnfun.search import one_thread

_MOST_ENTRIES = 30_000_000
_SUBMATRIX = 64
"""Pivots that are tried as submatrices for the lower bound."""


@dataclass(frozen=True)
class ScoreRank(Brief):
    """lower ≤ the least rank within eps ≤ rank; left @ right is within `error` ≤ eps of the matrix, entry by entry."""

    eps: float
    lower: int
    rank: int
    error: float
    shape: tuple[int, int]
    left: Array = field(repr=False)
    right: Array = field(repr=False)
    seconds: float

    def record(self) -> dict[str, Any]:
        told = {"status": "proved", "eps": self.eps, "rank": self.rank, "rank_lower": self.lower, "error": self.error}
        return told | {"rows": self.shape[0], "columns": self.shape[1], "seconds": round(self.seconds, 3)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """The factors `left` and `right` as float64 safetensors."""
        from safetensors.numpy import save as to_bytes

        write_whole(path, to_bytes({"left": self.left, "right": self.right}))


def rank_of(matrix: Any, eps: float, *, progress: Callable[[str], None] | None = None) -> ScoreRank:
    """The rank of a head whose scores are within `eps` of `matrix` (an array, or a path to CSV or .npy) everywhere."""
    start, say = time.perf_counter(), progress or (lambda _: None)
    M, eps = _matrix(matrix), positive("eps", eps)
    with one_thread():
        say("singular values")
        left, right, error = _factors(M, eps)
        say("lower bound")
        lower = rank_below(M, eps, len(right))
    return ScoreRank(eps, lower, len(right), error, (len(M), M.shape[1]), left, right, time.perf_counter() - start)


def max_entry_error(M: Array, left: Array, right: Array) -> float:
    """A proved upper bound on max |M − left·right|; ∞ where it cannot be told."""
    with np.errstate(all="ignore"):
        near = left @ right
        bound = np.abs(M - near) * (1 + 4 * U) + product_error(left, right) if len(right) else np.abs(M)
        worst = float((bound * (1 + 4 * U)).max())
    return worst if math.isfinite(worst) else math.inf


def rank_below(M: Array, eps: float, above: int) -> int:
    """A proved lower bound on the rank of any matrix within eps of M in every entry; `above` is a rank that does."""
    best = _tail_rank(M, eps)
    rows, columns = _pivots(M, min(_SUBMATRIX, above + 1))
    for size in range(1, len(rows) + 1):
        if best >= above:
            break
        if size > best:  # a matrix of `size` rows shows no more than that rank
            best = max(best, _tail_rank(M[np.ix_(rows[:size], columns[:size])], eps))
    return best


def _tail_rank(S: Array, eps: float) -> int:
    """The least k for which the singular values above k do not exclude rank k."""
    low = np.minimum(singular_values(S)[0], 1e150)  # squares must not overflow; less only lowers the bound
    tail = np.sqrt(np.cumsum((low * low)[::-1])[::-1] * (1 - (len(low) + 8) * 2 * U)) * (1 - 4 * U)
    excluded = tail > eps * math.sqrt(S.shape[0] * S.shape[1]) * (1 + 8 * U)  # tail[k] excludes rank k
    return int(np.argmin(excluded)) if not excluded.all() else len(low)


def _factors(M: Array, eps: float) -> tuple[Array, Array, float]:
    """The smallest truncated SVD whose proved error is at most eps."""
    try:
        U_, s, V = np.linalg.svd(M, full_matrices=False)
    except np.linalg.LinAlgError:
        raise Infeasible("the singular values of the matrix did not converge") from None
    root = np.sqrt(s)
    L, R = U_ * root, root[:, None] * V

    def error(k: int) -> float:
        return max_entry_error(M, L[:, :k], R[:k])

    low, high = 0, len(s)  # the error falls with k but for small steps; the smallest rank of the last descent is kept
    worst = error(high)
    feasible(
        worst <= eps, f"eps={eps:g}: the full factorisation is proved to {at_most(worst, 3)} only", {"eps": 2 * worst}
    )
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= eps else (middle + 1, high)
    while high > 0 and error(high - 1) <= eps:
        high -= 1
    return np.ascontiguousarray(L[:, :high]), np.ascontiguousarray(R[:high]), error(high)


def _pivots(M: Array, count: int) -> tuple[list[int], list[int]]:
    """Rows and columns of complete pivoting: submatrices that are far from low rank."""
    residual = M.copy()
    rows: list[int] = []
    columns: list[int] = []
    for _ in range(min(count, *M.shape)):
        i, j = np.unravel_index(int(np.abs(residual).argmax()), M.shape)
        pivot = residual[i, j]
        if not abs(pivot) > 0:
            break
        rows.append(int(i))
        columns.append(int(j))
        residual -= np.outer(residual[:, j], residual[i] / pivot)
        residual[i], residual[:, j] = 0.0, 0.0
    return rows, columns


def _matrix(matrix: Any) -> Array:
    from attnfun.limits.embedding.files import load_matrix
    from attnfun.limits.embedding.relevance import read_matrix

    M: Array = read_matrix(load_matrix(matrix) if isinstance(matrix, (str, os.PathLike)) else matrix, "score")
    require(M.size <= _MOST_ENTRIES, f"a score matrix of {M.size:,} entries: at most {_MOST_ENTRIES:,} are factorised")
    return np.array(M, dtype=np.float64)
