"""Margins, the best query for fixed documents, and b-bit integers that still rank exactly.

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

From float vectors to b-bit integers, for the smallest b that is found. A b-bit coordinate is an integer of absolute
value below 2^(b−1). Documents are scaled by one factor and rounded; the queries are then chosen anew for the rounded
documents, each with a factor of its own (a query may be scaled at will, and the best of 49 is taken). Nothing is
believed before the exact check.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import AttnfunError
from attnfun.limits.embedding.check import check_embedding
from attnfun.limits.embedding.relevance import Array, Core, Indices, Relevance
from attnfun.limits.singular import spectral_norm_bound

_BLOCK = 1 << 22
_SUMS = 1e3
"""Weight of “the weights of each side add up to 1”: thin margins show through it at 10, and are lost at 1e6."""
MOST_BITS = 60
_SCALES = np.linspace(1.0, 0.5, 49)
LEAST_WRITTEN = 7
"""Bits below which nothing is written, though fewer may rank exactly: a sign and two decimal digits."""
_SMALL = 300_000


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
    """The margin of the definition above in floating point: measured, and not a bound."""
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


def best_queries(core: Core, documents: Array, start: Array, above: float = -math.inf) -> tuple[Array, float]:
    """Unit queries of the largest margin that these documents have, and that margin; `start`: unit queries.

    Rows are taken by their gap at the start. One whose gap is above the least of the best gaps so far does not decide
    the margin, and keeps its query. It ends early, with that least, once it is not above `above`.
    """
    queries, least = start.copy(), math.inf
    now = gaps(core, start, documents)
    for i in np.argsort(now, kind="stable").tolist():
        if now[i] >= least or not least > above:
            break
        queries[i], gap = best_query(documents, core.rows[i], start[i])
        least = min(least, gap)
    return queries, least


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


# --- integers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Whole:
    """Integers that rank the core exactly, their bits, and the fewest bits for which any were found."""

    queries: Any
    documents: Any
    bits: int
    least_bits: int
    margin: float


def bits_of(*arrays: Any) -> int:
    """The least b such that every entry is below 2^(b−1) in absolute value."""
    largest = max((max(abs(int(a.min())), abs(int(a.max()))) for a in arrays if a.size), default=0)
    return largest.bit_length() + 1


def proved(core: Core, queries: Any, documents: Any) -> float:
    """The proved margin of integers on the core, 0 if they do not rank it."""
    relation = Relevance(tuple(map(str, range(core.m))), tuple(map(str, range(core.n))), core.rows)
    try:
        return check_embedding(relation, queries, documents).margin
    except AttnfunError:
        return 0.0


def rounded(core: Core, queries: Array, documents: Array, bits: int, best: bool) -> tuple[Any, Any, float] | None:
    """Integers of so many bits that rank every row, and their proved margin, or None.

    `best`: choose queries anew, for the rounded documents, with the largest margin, in every row that decides it; else
    only where plain rounding fails, and for small relations.
    """
    top = float((1 << (bits - 1)) - 1)
    D = np.rint(documents * (top / np.abs(documents).max()))
    length = float(np.linalg.norm(D, axis=1).max())
    Q = np.rint(queries * (top / np.abs(queries).max(axis=1, keepdims=True)))
    now, least = gaps(core, Q, D) / np.maximum(np.linalg.norm(Q, axis=1), 0.5), math.inf
    order = np.argsort(now, kind="stable")
    for i in order[: None if best else np.count_nonzero(~(now > 0)) if core.m * core.n <= _SMALL else 0].tolist():
        if best and now[i] >= least:
            break
        relevant = core.dense[i]
        query = best_query(D / length, core.rows[i], queries[i])[0]
        starts = (query, queries[i])
        tries = np.concatenate([np.rint(np.outer(_SCALES, q * (top / np.abs(q).max()))) for q in starts])
        scores = tries @ D.T
        gap = scores[:, relevant].min(axis=1) - scores[:, ~relevant].max(axis=1)
        gap /= np.maximum(np.linalg.norm(tries, axis=1), 0.5)
        won = int(gap.argmax())
        if not gap[won] > 0:
            return None
        Q[i], least = tries[won], min(least, gap[won])
    found = Q.astype(np.int64), D.astype(np.int64)
    reached = proved(core, *found)
    return (*found, reached) if reached > 0 else None


def ranks_in_integers(core: Core, queries: Array, documents: Array) -> bool:
    """Whether `to_integers` finds any, without the search for the best."""
    return _least_bits(core, queries, documents, margin(core, queries, documents)) is not None


def _least_bits(core: Core, queries: Array, documents: Array, reach: float) -> int | None:
    """The fewest bits from `_first_bits` on whose integers rank every row, for vectors of margin `reach`."""
    if not reach > 0:
        return None
    tried = range(_first_bits(core, reach), MOST_BITS + 1, 1 if _small(core) else 2)
    return next((b for b in tried if rounded(core, queries, documents, b, best=False) is not None), None)


def _small(core: Core) -> bool:
    return core.m * core.n <= _SMALL


def _first_bits(core: Core, reach: float) -> int:
    """Where the search for the fewest bits begins: low for small relations, where fewer may do by another query."""
    needed = math.ceil(math.log2(1.0 / reach))
    return max(2, needed - 3) if _small(core) else needed + 2


def to_integers(core: Core, queries: Array, documents: Array, bits: int | None = None) -> Whole | None:
    """The fewest bits, from 7 on, that keep a third of the margin, or exactly `bits`; None if no 60 bits rank."""
    reach = margin(core, queries, documents)
    least, small = _least_bits(core, queries, documents, reach), _small(core)
    if least is None:
        return None
    if small and least == _first_bits(core, reach):
        while least > 2 and rounded(core, queries, documents, least - 1, best=False) is not None:
            least -= 1
    if bits is not None and bits < least:
        return None
    wanted = range(max(least, LEAST_WRITTEN), MOST_BITS + 1, 1 if small else 2) if bits is None else (bits,)
    kept: tuple[Any, Any, float] | None = None
    for b in wanted:
        found = rounded(core, queries, documents, b, best=small)
        if found is not None:
            kept = found
            if 3 * found[2] >= reach:
                break
    if kept is None:
        return None
    return Whole(kept[0], kept[1], bits_of(*kept[:2]), least, kept[2])
