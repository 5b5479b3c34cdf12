"""The dimension that a relevance relation needs: an interval, with an embedding above and an obstruction below.

| method of an embedding | dimension | from |
| --- | --- | --- |
| `line` | 1 | an order in which every row is a prefix or a suffix |
| `curve` | changes of sign of the worst row | an order: of arcs if there is one (2), else the best of several |
| `column curve` | changes of sign of the worst column, and one more | an order of the queries |
| `simplex`, `columns` | n − 1, m | every document, or every query, its own axis |
| `torus` | any | equispaced documents on several frequencies |
| `descent` | any | free optimisation, of all lengths and directions; `refined`: from another method's vectors |

All of them only propose. An upper bound is a set of integer vectors that check.py has ranked exactly on the whole
relation, a lower bound an obstruction that it has verified. Everything is deterministic: searches are bounded by steps,
not by seconds.

Searches: which methods are tried, in which order, with how many steps. Their vectors are floats and their margins
measured; the number of steps depends on the size of the relation alone.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, present
from attnfun.language.brief import Brief
from attnfun.language.numbers import whole_number
from attnfun.limits.embedding import Obstruction, check_embedding, check_obstruction, curve
from attnfun.limits.embedding.circulant import frequency_search
from attnfun.limits.embedding.descent import MOST_ENTRIES, free, refine, widen
from attnfun.limits.embedding.files import read_any, save
from attnfun.limits.embedding.obstructions import best_obstruction
from attnfun.limits.embedding.orders import document_order, query_orders, sign_changes
from attnfun.limits.embedding.relevance import Array, Core, Indices, Relevance
from attnfun.limits.embedding.separate import (
    Whole,
    best_queries,
    best_query,
    bits_of,
    ceiling,
    gaps,
    margin,
    proved,
    ranks_in_integers,
    to_integers,
)
from attnfun.limits.record import Record, plain
from attnfun.search import Say, one_thread

_MOST_DIMENSIONS = 10_000
_POLISHED = 4_000_000
"""Queries × documents up to which every query is made the best for its documents."""
_LARGE = 2_000_000
"""Queries × documents up to which fewer dimensions are looked for at all."""
_THIN = 1e-5
"""A measured margin below which refinement is not tried: its steps are longer than that."""


@dataclass(frozen=True)
class Row(Record):
    """One line of the table: at this dimension this margin is proved with so many bits per coordinate."""

    dimension: int
    margin: float
    bits: int
    least_bits: int
    method: str


@dataclass(frozen=True)
class EmbeddingDimension(Brief):
    """The answer: lower ≤ dimension needed ≤ upper, the embedding at `dimension`, and the table."""

    relation: Relevance = field(repr=False)
    lower: int
    upper: int
    dimension: int
    margin: float
    gap: int
    bits: int
    method: str
    obstruction: Obstruction
    ceiling: float | None
    table: tuple[Row, ...]
    queries: Any = field(repr=False)
    documents: Any = field(repr=False)
    seconds: float = 0.0

    @property
    def closed(self) -> bool:
        return self.lower == self.upper

    def record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        m, n = self.relation.shape
        names = ("lower", "upper", "dimension", "margin", "bits", "gap", "method", "ceiling")
        return {
            "status": "closed" if self.closed else "open",
            **{name: plain(getattr(self, name)) for name in names},
            "obstruction": {**self.obstruction.record(self.relation), "reason": self.obstruction.sentence},
            "table": plain(self.table),
            "queries": m,
            "documents": n,
            "relevant": self.relation.relevant,
            "trivial_queries": m - len(self.relation.nontrivial),
            "seconds": round(self.seconds, 3),
        }

    def save(self, path: str | os.PathLike[str]) -> list[str]:
        """Write the integer vectors and ids; the names of the files written. See files.py."""
        return save(path, self)


def embed_dim(
    relation: Any,
    *,
    dim: int | None = None,
    documents: Any = None,
    bits: int | None = None,
    table: Sequence[int] | None = None,
    seed: int = 0,
    progress: Say | None = None,
) -> EmbeddingDimension:
    """How many dimensions a relevance relation needs, from below and from above, with certificates for both.

    `relation`: a path (TSV, CSV matrix, TREC qrels, see files.py), {query: documents}, (query, document[, grade])
    pairs of names, or a matrix of queries × documents (relevant: above 0). `documents` declares the collection, by
    number or by ids. `dim` asks for the best margin at that dimension and raises Infeasible where it is impossible, or
    where no embedding was found. `bits` asks for so many bits per coordinate; left out, the fewest (from 7 on) that
    keep a third of the margin. `table`: further dimensions to try; left out, multiples of the upper bound.

    Needed is q_i·D_j > q_i·D_j' for every query i, relevant j and irrelevant j'. Queries for which no document is
    relevant, or every one, ask for nothing: they are counted as trivial and get the vector 0.
    """
    start = time.perf_counter()
    known = read_any(relation, documents)
    for name, value, most in (("dim", dim, _MOST_DIMENSIONS), *(("table", d, _MOST_DIMENSIONS) for d in table or ())):
        if value is not None:
            whole_number(name, value, 1, most)
    whole_number("seed", seed, 0)
    if bits is not None:
        whole_number("bits", bits, 2, 60)
    with one_thread():
        found = _answer(known, dim, bits, table, seed, progress or (lambda _: None))
    return replace(found, seconds=time.perf_counter() - start)


def _answer(
    relation: Relevance, dim: int | None, bits: int | None, table: Sequence[int] | None, seed: int, say: Say
) -> EmbeddingDimension:
    """The answer, but for the seconds it took."""
    core = relation.core
    if core.m == 0:
        Q, D = (np.zeros((count, dim or 0), np.int64) for count in relation.shape)
        none = Obstruction("none", 0)
        return EmbeddingDimension(relation, 0, 0, dim or 0, math.inf, 0, 1, "none", none, None, (), Q, D)
    say("orders of the documents")
    order = document_order(core)
    first = _upper(core, order)
    below = best_obstruction(relation, first.dimension, say)
    found = smaller(core, first, below.bound, seed, say)
    if check_obstruction(relation, below) < below.bound or below.bound > found.dimension:
        raise AssertionError("an obstruction and an embedding contradict each other")
    upper = found.dimension
    if dim is not None and dim < below.bound:
        raise Infeasible(f"dim={dim}: impossible, {below.bound} are needed: {below.sentence}", {"dim": upper})
    if dim is not None and dim < upper:
        say(f"free optimisation at dimension {dim}")
        found = next(filter(None, (free_at(core, dim, seed + 7 + attempt) for attempt in range(3))), found)
        upper = found.dimension
    if dim is not None and dim < upper:
        what = f"no embedding found in {dim} dimensions, and no proof that there is none; {upper} are enough"
        raise Infeasible(f"dim={dim}: {what}", {"dim": upper})
    if dim is not None:
        wanted = [dim]
    elif table is not None:
        wanted = [d for d in table if d > upper]
    else:
        cheap = upper > 1 and core.m * core.n <= 100_000
        wanted = [d for d in (upper + 2, 2 * upper, 3 * upper) if d < core.n] if cheap else []
    rows: list[tuple[Row, Whole]] = []
    best = found
    for d in sorted({upper, *wanted}):
        say(f"margin at dimension {d}")
        best = best_at(core, d, best, order, seed)
        try:
            whole = _integers(core, best, d, bits)
        except Infeasible:
            if d == (dim or upper):
                raise
            continue  # so few bits are not for this dimension, which was not the one asked for
        rows.append((Row(d, whole.margin, whole.bits, whole.least_bits, best.method), whole))
    chosen_row, chosen = next((r, w) for r, w in rows if r.dimension == (dim or upper))
    queries, vectors = core.widen(chosen.queries, chosen.documents)
    say("check of the whole relation")
    ranking = check_embedding(relation, queries, vectors)
    told = ranking.margin, ranking.gap, chosen.bits, chosen_row.method, below, ceiling(core), tuple(r for r, _ in rows)
    return EmbeddingDimension(relation, below.bound, upper, chosen_row.dimension, *told, queries, vectors)


def _upper(core: Core, order: Indices) -> Found:
    """The least dimension that an order gives, with integers that were checked or floats that round to such."""
    s = int(sign_changes(core, order)[0].max())
    if s > 2:
        turned = [(curve.column_changes(core, along), along) for along in query_orders(core)]
        changes, along = min(turned, key=lambda found: found[0])
        if changes + 1 < min(s, core.n - 1, core.m):
            Q, D = curve.columns_on_curve(core, along, changes)
            if ranks_in_integers(core, Q, D):
                return Found(changes + 1, Q, D, "column curve")
    exact = curve.moments(core, order, s)
    if s >= min(core.n - 1, core.m) > 1 or not proved(core, *exact) > 0:
        return _axes(core)
    if s == 1:
        return Found(1, exact[0].astype(np.float64), exact[1].astype(np.float64), "line", exact)
    better = curve.circle if s % 2 == 0 else curve.chebyshev  # the better conditioned of the two float curves
    return Found(s, *better(core, order, s), "curve", exact)


def _axes(core: Core) -> Found:
    """A document an axis, but for the last, which is the origin; or a query an axis."""
    if core.m * core.n > 50_000_000:
        raise Infeasible("no order of the documents gives fewer dimensions than there are documents or queries")
    table = core.dense.astype(np.int64)
    Q, D, name = np.eye(core.m, dtype=np.int64), table.T.copy(), "columns"
    if core.n - 1 <= core.m:
        Q, D, name = table[:, :-1] - table[:, -1:], np.eye(core.n, core.n - 1, dtype=np.int64), "simplex"
    return Found(Q.shape[1], Q.astype(np.float64), D.astype(np.float64), name, (Q, D))


def _integers(core: Core, best: Found, d: int, bits: int | None) -> Whole:
    """The float vectors rounded, or the exact integers that came with the upper bound where those are no worse."""
    whole = to_integers(core, best.queries, best.documents, bits)
    if best.exact is not None:
        queries, documents = (np.pad(a, ((0, 0), (0, d - a.shape[1]))) for a in best.exact)
        size = bits_of(queries, documents)
        if size <= 63:
            queries, documents = queries.astype(np.int64), documents.astype(np.int64)
        margin = proved(core, queries, documents)
        if (bits is None or size <= bits) and (whole is None or margin >= whole.margin):
            least = size if whole is None else min(size, whole.least_bits)
            return Whole(queries, documents, size, least, margin)
    return present(whole, Infeasible(f"no integers of at most {bits or 60} bits were found at dimension {d}"))


# --- fewer dimensions, and wider margins ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Float vectors of a core and where they came from; `exact` are integers that are known to rank it."""

    dimension: int
    queries: Array
    documents: Array
    method: str
    exact: tuple[Any, Any] | None = None


def smaller(core: Core, known: Found, lower: int, seed: int, say: Say) -> Found:
    """An embedding of fewer dimensions than `known` if free optimisation finds one, by bisection above `lower`."""
    large = core.m * core.n > MOST_ENTRIES
    if large and (core.m * core.n > _LARGE or known.dimension - lower < 2):
        return known
    low, best = max(lower, 1), known
    while low < best.dimension:
        middle = (low + best.dimension) // 2
        say(f"free optimisation at dimension {middle}")
        found = free_at(core, middle, seed)
        if found is None:
            low = middle + 1
        else:
            best = found
    if lower < best.dimension < known.dimension and not large:
        say(f"free optimisation at dimension {best.dimension - 1}")
        best = free_at(core, best.dimension - 1, seed + 1) or best
    return best


def free_at(core: Core, dim: int, seed: int) -> Found | None:
    """Vectors of free optimisation that round to integers which rank the core, or None; for cores that are not huge."""
    if core.m * core.n > _LARGE:
        return None
    starts = int(np.clip(40_000 / (core.m * core.n), 1, 8))
    for Q, D in free(core, dim, min(_steps(core), 1000), starts, seed):
        found = _with_best_queries(core, Found(dim, Q, D / np.linalg.norm(D, axis=1).max(), "descent"))
        if found is not None and ranks_in_integers(core, found.queries, found.documents):
            return found
    return None


def _with_best_queries(core: Core, found: Found) -> Found | None:
    """With the best query in every row that is not ranked, if that ranks them all: documents are what is hard to find.

    A start with more than a tenth of its rows wrong is left alone.
    """
    queries = found.queries.copy()
    wrong = np.flatnonzero(~(gaps(core, queries, found.documents) > 0))
    if len(wrong) > 1 + core.m // 10:
        return None
    for i in wrong:
        queries[i], gap = best_query(found.documents, core.rows[i], queries[i] / np.linalg.norm(queries[i]))
        if not gap > 0:
            return None
    return replace(found, queries=queries)


def _steps(core: Core) -> int:
    return int(np.clip(75_000_000 / (core.m * core.n), 300, 2000))


def best_at(core: Core, dim: int, known: Found, order: Indices, seed: int) -> Found:
    """The widest margin found at `dim`, at least that of `known` padded with zeros."""
    if dim > core.n:  # the documents of any embedding span no more than n dimensions
        return _padded(known if known.dimension > core.n else best_at(core, core.n, known, order, seed), dim)
    padded = _padded(known, dim)
    if dim == 1 or core.m * core.n > _POLISHED:
        return padded
    candidates = [padded]
    here = known.method == "curve" and known.dimension == dim  # a descent does not find what only a curve does
    if not here and dim % 2 == 0 and int(sign_changes(core, order)[1].max()) <= dim:
        candidates.append(Found(dim, *curve.circle(core, order, dim), "curve"))
    if core.m * core.n <= MOST_ENTRIES:
        around = frequency_search(core, order, dim, int(np.clip(20_000_000 / (core.m * core.n), 20, 300)), seed)
        if around is not None:
            start = around[0][[row[0] for row in core.rows]]
            candidates.append(Found(dim, best_queries(core, around[0], start)[0], around[0], "torus"))
        if not here:
            Q, D, least = widen(core, dim, _steps(core), seed)
            if least > 0:
                candidates.append(Found(dim, Q, D, "descent"))
    candidates.sort(key=lambda c: -margin(core, c.queries, c.documents))
    refined = (2 if core.m * core.n <= 20_000 else 1) if core.m * core.n <= MOST_ENTRIES else 0
    scored: list[tuple[float, Found]] = []
    for candidate in candidates[:3]:
        _polish(core, candidate, scored, max(refined, 1))
    for reached, from_here in scored[:refined]:
        if reached > _THIN:
            Q, D, _ = refine(core, from_here.queries, from_here.documents, _steps(core) // 2, reached)
            name = f"refined {from_here.method.removeprefix('refined ')}"
            _polish(core, Found(dim, Q, D, name), scored, 1)
    return replace(scored[0][1], exact=padded.exact)


def _padded(known: Found, dim: int) -> Found:
    queries, documents = (np.pad(a, ((0, 0), (0, dim - a.shape[1]))) for a in (known.queries, known.documents))
    return replace(known, dimension=dim, queries=queries, documents=documents)


def _polish(core: Core, found: Found, scored: list[tuple[float, Found]], places: int) -> None:
    """Put it, with its best queries, among those of the widest margins, if it is to be one of the first `places`."""
    above = scored[places - 1][0] if len(scored) >= places else -math.inf
    length = np.linalg.norm(found.documents, axis=1).max()
    documents = found.documents / length
    start = found.queries / np.maximum(np.linalg.norm(found.queries, axis=1, keepdims=True), 1e-300)
    queries, reached = best_queries(core, documents, start, above)
    if not scored or reached > above:
        scored.append((reached, replace(found, queries=queries, documents=documents)))
        scored.sort(key=lambda pair: -pair[0])
