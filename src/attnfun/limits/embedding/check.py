"""The small checkers: an integer embedding ranks as it must, an obstruction excludes what it says it does.

They read the relation and the certificate, and nothing of how either was found.

Embedding. Integer vectors q_i, D_j; for every query every relevant document must score above every irrelevant one. The
scores are computed in float64. If Σ_k max|q_k| max|D_k| < 2^53 every product and every partial sum is an integer that
float64 holds, in any order and fused or not, so the scores are exact. Otherwise a score is off by at most
e_i = (d + 4) 2^-53 (1 + 2^-20) Σ_k |q_ik| max_j |D_jk|: two conversions of integers and a sum of d products (Higham,
*Accuracy and Stability of Numerical Algorithms*, §3.1, any order of summation; d ≤ 2^20). Where the lowest relevant and
the highest irrelevant score are not 2e_i apart, all documents within 2e_i of either are compared again in Python's
integers; the true lowest and highest are among them.

Obstructions.

| kind | data | excludes |
| --- | --- | --- |
| `radon` | documents T; for each split of T into two nonempty sides a query that cuts it | dimension ≤ abs(T) − 2 |
| `cells` | queries K; for each of the 2^abs(K) patterns a document that shows it | dimension ≤ abs(K) − 1 |
| `forster` | a bound on the spectral norm of the sign matrix | dimension ≤ ⌈√(mn)/norm⌉ − 2 |
| `counting` | numbers of splits, of kinds of documents | d with Σ_{i≤d} C(n−1, i) or Σ_{i≤d} C(m, i) below them |

radon: d + 2 points of R^d have a partition into two sides whose hulls meet (J. Radon 1921), and a query that ranks one
side above the other separates the hulls. cells: k hyperplanes cut R^d into at most Σ_{i≤d} C(k, i) < 2^k cells if
d < k, and each query with a threshold between its relevant and its irrelevant documents is a hyperplane. forster: with
those thresholds the sign matrix ±1 is the sign of a matrix of rank d + 1, and that rank is at least √(mn)/‖±1‖
(J. Forster, *A linear lower bound on the unbounded error probabilistic communication complexity*, J. Comput. System
Sci. 65, 2002). counting: n points of R^d are split by hyperplanes in at most Σ_{i≤d} C(n−1, i) ways, the trivial one
included (L. Schläfli; T. M. Cover, IEEE Trans. Electronic Computers 14, 1965).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, Refuted, require
from attnfun.language.enclosures import check_rounding
from attnfun.limits.embedding.relevance import Relevance
from attnfun.limits.record import texts
from attnfun.limits.singular import spectral_norm_bound

MOST_SIGNS = 4_000_000
"""Entries of a sign matrix up to which its spectral norm is computed."""
_BLOCK = 1 << 22
"""Scores held at once: 32 MB."""


@dataclass(frozen=True)
class Obstruction:
    """Why no embedding has fewer than `bound` dimensions; indices are those of the relation."""

    kind: str
    bound: int
    documents: tuple[int, ...] = ()
    queries: tuple[int, ...] = ()
    value: float = math.nan

    def record(self, relation: Relevance) -> dict[str, Any]:
        out: dict[str, Any] = {"kind": self.kind, "bound": self.bound}
        out["documents"] = [relation.document_ids[j] for j in self.documents]
        out["queries"] = [relation.query_ids[i] for i in self.queries]
        if not math.isnan(self.value):
            out["value"] = self.value
        return out

    @property
    def sentence(self) -> str:
        sizes = {"t": len(self.documents), "k": len(self.queries), "d": self.bound, "less": self.bound - 1}
        told = texts("obstruction")
        return str(told.get(self.kind, told["none"])).format(**sizes, value=self.value)


@dataclass(frozen=True)
class Ranking:
    """What was proved of an embedding: every gap is at least `gap`, and the margin of separate.py at least `margin`."""

    gap: int
    margin: float


def check_embedding(relation: Relevance, queries: Any, documents: Any) -> Ranking:
    """The proved gap and margin; 0 and ∞ if no query asks for anything. Raises Refuted with the query that fails."""
    check_rounding()
    Q, D = _integers(queries), _integers(documents)
    m, n = relation.shape
    if Q.ndim != 2 or D.ndim != 2 or (len(Q), len(D)) != (m, n) or Q.shape[1] != D.shape[1]:
        raise InvalidRequest(f"vectors of shapes {Q.shape} and {D.shape} for {m} queries and {n} documents")
    dim = Q.shape[1]
    try:
        Qf, Df = Q.astype(np.float64), D.astype(np.float64)
    except OverflowError:
        raise InvalidRequest("the integers of the embedding are too large to be checked") from None
    widest = np.abs(Df).max(axis=0, initial=0.0)
    with np.errstate(over="ignore"):
        reach = np.abs(Qf) @ widest
    fine = bool((reach < 2.0**1020).all()) and dim <= 1 << 20
    require(fine, "the integers of the embedding are too large to be checked")
    error = (dim + 4) * 2.0**-53 * (1 + 2.0**-20) * reach
    error[reach < 2.0**52] = 0.0
    if error.any():
        Q, D = (np.frompyfunc(int, 1, 1)(a) for a in (Q, D))  # Python's integers: products and sums of any size
    smallest: int | None = None
    margin = math.inf
    short, document_by = _shrunk(Df.reshape(1, -1))
    longest = float((short * short).reshape(n, dim).sum(axis=1).max()) ** 0.5
    down = 1 - (dim + 16) * 2.0**-51  # lengths are off by (d + 4)u at most, with the conversion
    step = max(1, _BLOCK // n)
    wanted = np.array(relation.nontrivial, np.int64)
    small, query_by = _shrunk(Qf)
    for start in range(0, len(wanted), step):
        block = wanted[start : start + step]
        scores = Qf[block] @ Df.T
        for s, i in zip(scores, block.tolist()):
            gap = _gap(s, relation.rows[i], float(error[i]), Q[i], D)
            if not gap > 0:
                who = relation.query_ids[i]
                raise Refuted(f"query {who!r:.60}: an irrelevant document scores as high as a relevant one")
            smallest = gap if smallest is None else min(smallest, gap)
            scaled = gap / (1 << int(document_by[0] + query_by[i]))
            margin = min(margin, scaled / (float(np.linalg.norm(small[i])) * longest) * down)
    return Ranking(smallest or 0, margin)


def _shrunk(vectors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows divided by powers of two, so that no square overflows, and the powers; others stay as they are.

    What underflows is below 2^-1000 of the largest entry, and so in the slack of lengths.
    """
    powers = np.maximum(np.frexp(np.abs(vectors).max(axis=1, initial=0.0))[1].astype(np.int64) - 480, 0)
    return np.ldexp(vectors, -powers[:, None]), powers


def _gap(scores: NDArray[np.float64], row: NDArray[np.int64], error: float, q: Any, D: Any) -> int:
    """A positive lower bound on the true gap, or the true gap if it is not positive; exact where error is 0."""
    inside = scores[row]
    scores[row] = -np.inf
    low, high = float(inside.min()), float(scores.max())
    if error == 0.0:
        return int(low) - int(high)
    if low - high > 8 * error:
        return max(1, math.floor((low - high - 2 * error) * (1 - 2.0**-50)))
    near, far = D[row[inside <= low + 2 * error]] @ q, D[scores >= high - 2 * error] @ q
    return int(near.min()) - int(far.max())


def _integers(array: Any) -> Any:
    out = np.asarray(array)
    if out.dtype.kind in "iu" or (out.dtype.kind == "O" and all(isinstance(x, (int, np.integer)) for x in out.flat)):
        return out
    raise InvalidRequest("an embedding is checked in integers, and these are none")


def check_obstruction(relation: Relevance, obstruction: Obstruction) -> int:
    """The dimension that the obstruction really forces, computed anew; 0 if it shows nothing."""
    check = {"radon": _radon, "cells": _cells, "forster": _forster, "counting": _counting}.get(obstruction.kind)
    return 0 if check is None else check(relation, obstruction)


def _radon(relation: Relevance, claim: Obstruction) -> int:
    T = claim.documents
    t = len(T)
    if t < 2 or len(set(T)) < t:
        return 0
    everything, cut = (1 << t) - 1, set()
    for i in claim.queries:
        members = set(relation.rows[i].tolist())
        pattern = sum(1 << bit for bit, j in enumerate(T) if j in members)
        cut |= {pattern, everything ^ pattern}
    return t - 1 if all(pattern in cut for pattern in range(1, everything)) else 0


def _cells(relation: Relevance, claim: Obstruction) -> int:
    k = len(claim.queries)
    if len(set(claim.queries)) < k:
        return 0
    rows = [set(relation.rows[i].tolist()) for i in claim.queries]
    return k if len({tuple(j in row for row in rows) for j in claim.documents}) == 2**k else 0


def _forster(relation: Relevance, claim: Obstruction) -> int:
    core = relation.core
    if core.m * core.n > MOST_SIGNS:
        return 0
    return max(forster_rank(core.m, core.n, spectral_norm_bound(np.where(core.dense, 1.0, -1.0))) - 1, 0)


def forster_rank(m: int, n: int, norm: float) -> int:
    """The least integer r with r · norm ≥ √(mn), in exact arithmetic for the float `norm`; 0 for no finite norm."""
    if not (math.isfinite(norm) and norm > 0):
        return 0
    p, q = norm.as_integer_ratio()
    least = math.isqrt(m * n * q * q // (p * p))
    while (least * p) ** 2 < m * n * q * q:
        least += 1
    return least


def _counting(relation: Relevance, claim: Obstruction) -> int:
    core = relation.core
    return max(least_dimension(splits(core.rows, core.n) + 1, core.n - 1), least_dimension(core.n, core.m))


def splits(rows: Any, n: int) -> int:
    """How many different splits the rows make: a row and its complement are one."""
    everything = np.arange(n)
    sides = (np.setdiff1d(everything, row, assume_unique=True) if len(row) and row[0] == 0 else row for row in rows)
    return len({side.tobytes() for side in sides})


def least_dimension(count: int, n: int) -> int:
    """The least d with Σ_{i≤d} C(n, i) ≥ count."""
    d, total, term = 0, 1, 1
    while total < count and d < n:
        term = term * (n - d) // (d + 1)
        d += 1
        total += term
    return d
