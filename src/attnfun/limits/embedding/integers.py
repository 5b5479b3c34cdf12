"""From float vectors to b-bit integers that still rank exactly, for the smallest b that is found.

A b-bit coordinate is an integer of absolute value below 2^(b−1). Documents are scaled by one factor and rounded; the
queries are then chosen anew for the rounded documents, each with a factor of its own (a query may be scaled at will,
and the best of 49 is taken). Nothing is believed before the exact check.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import AttnfunError
from attnfun.limits.embedding.check import check_embedding
from attnfun.limits.embedding.relevance import Array, Core, Relevance
from attnfun.limits.embedding.separate import best_query, gaps
from attnfun.limits.embedding.separate import margin as margin_of

MOST_BITS = 60
_SCALES = np.linspace(1.0, 0.5, 49)
LEAST_WRITTEN = 7
"""Bits below which nothing is written, though fewer may rank exactly: a sign and two decimal digits."""
_SMALL = 300_000


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

    `best`: choose the query of every row anew, for the rounded documents, with the largest margin; else only where
    plain rounding fails, and for small relations.
    """
    top = float((1 << (bits - 1)) - 1)
    D = np.rint(documents * (top / np.abs(documents).max()))
    length = float(np.linalg.norm(D, axis=1).max())
    Q = np.rint(queries * (top / np.abs(queries).max(axis=1, keepdims=True)))
    again = list(range(core.m)) if best else []
    if not best and core.m * core.n <= _SMALL:
        again = np.flatnonzero(~(gaps(core, Q, D) > 0)).tolist()
    for i in again:
        relevant = np.zeros(core.n, np.bool_)
        relevant[core.rows[i]] = True
        query = best_query(D / length, core.rows[i], queries[i])[0]
        starts = (query, queries[i])
        tries = np.concatenate([np.rint(np.outer(_SCALES, q * (top / np.abs(q).max()))) for q in starts])
        scores = tries @ D.T
        gap = scores[:, relevant].min(axis=1) - scores[:, ~relevant].max(axis=1)
        gap /= np.maximum(np.linalg.norm(tries, axis=1), 0.5)
        won = int(gap.argmax())
        if not gap[won] > 0:
            return None
        Q[i] = tries[won]
    found = Q.astype(np.int64), D.astype(np.int64)
    margin = proved(core, *found)
    return (*found, margin) if margin > 0 else None


def to_integers(core: Core, queries: Array, documents: Array, bits: int | None = None) -> Whole | None:
    """The fewest bits, from 7 on, that keep a third of the margin, or exactly `bits`; None if no 60 bits rank."""
    reach = margin_of(core, queries, documents)
    if not reach > 0:
        return None
    small = core.m * core.n <= _SMALL
    first = max(2, math.ceil(math.log2(1.0 / reach)) - 3) if small else math.ceil(math.log2(1.0 / reach)) + 2
    tried = range(first, MOST_BITS + 1, 1 if small else 2)
    least = next((b for b in tried if rounded(core, queries, documents, b, best=False) is not None), None)
    if least is None:
        return None
    while small and least == first > 2 and rounded(core, queries, documents, least - 1, best=False) is not None:
        least = first = least - 1
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
