"""Fewer dimensions, and wider margins: which methods are tried, in which order, with how many steps.

Vectors here are floats and their margins measured. The number of steps depends on the size of the relation alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnfun.limits.embedding import curve
from attnfun.limits.embedding.circulant import frequency_search
from attnfun.limits.embedding.descent import MOST_ENTRIES, free, refine, widen
from attnfun.limits.embedding.integers import to_integers
from attnfun.limits.embedding.orders import sign_changes
from attnfun.limits.embedding.relevance import Array, Core, Indices
from attnfun.limits.embedding.separate import best_queries, best_query, gaps, margin

_POLISHED = 4_000_000
"""Queries × documents up to which every query is made the best for its documents."""
_LARGE = 2_000_000
"""Queries × documents up to which fewer dimensions are looked for at all."""
_THIN = 1e-5
"""A measured margin below which refinement is not tried: its steps are longer than that."""


@dataclass(frozen=True)
class Found:
    """Float vectors of a core and where they came from; `exact` are integers that are known to rank it."""

    dimension: int
    queries: Array
    documents: Array
    method: str
    exact: tuple[Any, Any] | None = None


def smaller(core: Core, known: Found, lower: int, seed: int, say: Callable[[str], None]) -> Found:
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
        found = _mended(core, Found(dim, Q, D / np.linalg.norm(D, axis=1).max(), "descent"))
        if found is not None and to_integers(core, found.queries, found.documents) is not None:
            return found
    return None


def _mended(core: Core, found: Found) -> Found | None:
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
        return _padded(best_at(core, core.n, known, order, seed), dim)
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
            candidates.append(Found(dim, best_queries(core, around[0], start), around[0], "torus"))
        if not here:
            Q, D, least = widen(core, dim, _steps(core), seed)
            if least > 0:
                candidates.append(Found(dim, Q, D, "descent"))
    candidates.sort(key=lambda c: -margin(core, c.queries, c.documents))
    scored = [_polished(core, c) for c in candidates[:3]]
    scored.sort(key=lambda pair: -pair[0])
    if core.m * core.n <= MOST_ENTRIES:
        for reached, from_here in scored[: 2 if core.m * core.n <= 20_000 else 1]:
            if reached > _THIN:
                Q, D, _ = refine(core, from_here.queries, from_here.documents, _steps(core) // 2, reached)
                name = f"refined {from_here.method.removeprefix('refined ')}"
                scored.append(_polished(core, Found(dim, Q, D, name)))
    return replace(max(scored, key=lambda pair: pair[0])[1], exact=padded.exact)


def _padded(known: Found, dim: int) -> Found:
    queries, documents = (np.pad(a, ((0, 0), (0, dim - a.shape[1]))) for a in (known.queries, known.documents))
    return replace(known, dimension=dim, queries=queries, documents=documents)


def _polished(core: Core, found: Found) -> tuple[float, Found]:
    length = np.linalg.norm(found.documents, axis=1).max()
    documents = found.documents / length
    start = found.queries / np.maximum(np.linalg.norm(found.queries, axis=1, keepdims=True), 1e-300)
    better = replace(found, queries=best_queries(core, documents, start), documents=documents)
    return margin(core, better.queries, better.documents), better
