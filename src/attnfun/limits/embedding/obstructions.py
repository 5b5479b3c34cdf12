"""Searching for the reason why fewer dimensions are impossible. What is found is checked by check.py.

A set T of documents is *shattered* if every split of T into two nonempty sides is cut by a query: one side all
relevant, the other all irrelevant. Subsets of shattered sets are shattered, so sets are grown a document at a time,
depth first, and a set that is not shattered is never grown. Sets of queries are grown in the same way for `cells`.

Dimension 1 is decided exactly: if the splits fit on no line, two of them divide the documents into four cells, or three
documents are shattered (splits without such a pair are the edges of a tree, by P. Buneman 1971; a tree that is no path
has three edges that each cut one of three documents off). By N. Sauer and S. Shelah (1972) `counting` never finds more
than an exhaustive search for shattered sets; it is for relations that are too large for one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from attnfun.limits.embedding.check import MOST_SIGNS, Obstruction, check_obstruction, least_dimension, splits
from attnfun.limits.embedding.relevance import Indices, Relevance
from attnfun.limits.singular import spectral_norm_bound

_MOST_ELEMENTS = 400
"""Documents, or queries, among which a shattered set is looked for: those that take part most evenly."""


def radon(relation: Relevance, most: int, budget: int = 2_000_000) -> Obstruction | None:
    """The largest shattered set of documents found, up to `most` + 1 documents: that many dimensions less one."""
    core = relation.core
    documents = _shattered(core.columns, core.m, True, most + 1, budget)
    if len(documents) < 2:
        return None
    cuts: dict[int, int] = {}
    everything = (1 << len(documents)) - 1
    for i, row in enumerate(core.rows):
        members = set(row.tolist())
        pattern = sum(1 << bit for bit, j in enumerate(documents) if j in members)
        if 0 < pattern < everything:
            cuts.setdefault(min(pattern, everything ^ pattern), i)
    return _checked(relation, "radon", len(documents) - 1, documents, [i for _, i in sorted(cuts.items())])


def cells(relation: Relevance, most: int, budget: int = 2_000_000) -> Obstruction | None:
    """The largest set of queries found that divides the documents into all cells, up to `most` queries."""
    core = relation.core
    queries = _shattered(core.rows, core.n, False, most, budget)
    if not queries:
        return None
    members = [set(core.rows[i].tolist()) for i in queries]
    shown: dict[tuple[bool, ...], int] = {}
    for j in range(core.n):
        shown.setdefault(tuple(j in row for row in members), j)
    return _checked(relation, "cells", len(queries), list(shown.values()), queries)


def not_a_line(relation: Relevance) -> Obstruction | None:
    """Two crossing splits or three shattered documents; None only if dimension 1 is enough.

    Seen from a document p of the fewest rows, sides without p are two chains of nested sets on a line; the first that
    fits neither chain shows one of the two.
    """
    core = relation.core
    if core.n < 3:
        return None
    pivot = int(np.argmin([len(column) for column in core.columns]))
    everything = frozenset(range(core.n))
    away: dict[frozenset[int], int] = {}
    for i, row in enumerate(core.rows):
        side = frozenset(row.tolist())
        away.setdefault(everything - side if pivot in side else side, i)
    placed: list[frozenset[int]] = []
    children: dict[int, list[frozenset[int]]] = {}
    innermost = np.full(core.n, -1, np.int64)  # by falling size, so the last side that holds a document is the smallest
    for at, side in enumerate(sorted(away, key=len, reverse=True)):
        members = np.fromiter(side, np.int64)
        holders = innermost[members]
        if (holders != holders[0]).any():  # some earlier side holds a part of this one: they cross
            other = placed[int(holders.max())]
            found = [min(side & other), min(side - other), min(other - side), pivot]
            return _checked(relation, "cells", 2, found, [away[side], away[other]])
        children.setdefault(int(holders[0]), []).append(side)
        innermost[members] = at
        placed.append(side)
    # now sides are nested or disjoint: a tree, rooted at p; two below a third, or three below the root, branch
    for parent, below in children.items():
        if len(below) > (1 if parent >= 0 else 2):
            third = placed[parent] if parent >= 0 else below[2]
            T = [min(below[0]), min(below[1]), pivot if parent >= 0 else min(third)]
            return _checked(relation, "radon", 2, T, [away[s] for s in (below[0], below[1], third)])
    return None


def forster(relation: Relevance, above: int) -> Obstruction | None:
    """By the spectral norm of the sign matrix; not tried where it cannot exceed `above` or the matrix is too large."""
    core = relation.core
    entries = core.m * core.n
    balance = abs(2 * sum(len(row) for row in core.rows) / entries - 1) if entries else 1.0
    if not 0 < entries <= MOST_SIGNS or balance * (above + 1) > 1:  # √(mn)/‖±‖ ≤ 1/balance, tried on vectors of ones
        return None
    norm = spectral_norm_bound(np.where(core.dense, 1.0, -1.0))
    bound = check_obstruction(relation, Obstruction("forster", 0, value=norm))
    return Obstruction("forster", bound, value=norm) if bound > 0 else None


def counting(relation: Relevance) -> Obstruction | None:
    """By the number of splits and of kinds of documents."""
    core = relation.core
    by_splits, by_kinds = splits(core.rows, core.n) + 1, core.n
    bounds = least_dimension(by_splits, core.n - 1), least_dimension(by_kinds, core.m)
    bound = max(bounds)
    return Obstruction("counting", bound, value=float((by_splits, by_kinds)[int(np.argmax(bounds))])) if bound else None


def best_obstruction(relation: Relevance, upper: int, report: Callable[[str], None] = lambda _: None) -> Obstruction:
    """The strongest obstruction found; `upper` is a dimension that is known to do, and no more is looked for."""
    best = Obstruction("none", 0)
    if relation.core.m == 0:
        return best

    searches: list[tuple[str, Callable[[], Obstruction | None]]] = [
        ("shattered documents", lambda: radon(relation, upper, 20_000)),
        ("a line", lambda: not_a_line(relation)),
        ("cells", lambda: cells(relation, upper, 20_000)),
        ("Forster", lambda: forster(relation, best.bound)),
        ("counting", lambda: counting(relation)),
        ("shattered documents", lambda: radon(relation, upper)),
        ("cells", lambda: cells(relation, upper)),
    ]
    for name, search in searches:
        if best.bound >= upper:
            break
        report(f"lower bound: {name}")
        best = max(best, search() or best, key=lambda found: found.bound)
    return best


def _checked(
    relation: Relevance, kind: str, bound: int, documents: Sequence[int], queries: Sequence[int]
) -> Obstruction | None:
    """The obstruction of these documents and queries of the core, if it holds."""
    core = relation.core
    where, rows = (tuple(map(int, ids[list(at)])) for ids, at in ((core.documents, documents), (core.queries, queries)))
    claim = Obstruction(kind, bound, where, rows)
    return claim if check_obstruction(relation, claim) >= claim.bound > 0 else None


def _shattered(lines: Sequence[Indices], total: int, folded: bool, most: int, budget: int) -> list[int]:
    """The largest shattered set of lines found, up to `most`, among those that take part most evenly in `total`
    elements; `folded`: a pattern and its complement are one split.
    """
    counts = np.array([len(line) for line in lines])
    picked = np.argsort(-np.minimum(counts, total - counts), kind="stable")[:_MOST_ELEMENTS].tolist()
    masks = [sum(1 << i for i in lines[e].tolist()) for e in picked]  # the bit set of what each line holds
    best: tuple[int, ...] = ()

    def grow(chosen: tuple[int, ...], cells: list[int], start: int) -> None:
        nonlocal best, budget
        if len(chosen) > len(best):
            best = chosen
        full = len(cells) - 1
        for e in range(start, len(masks)):
            if len(best) >= most or len(chosen) + len(masks) - e <= len(best) or budget <= 0:
                return
            budget -= len(cells)
            mask = masks[e]
            if folded:
                good = all((cells[p] & ~mask) | (cells[full ^ p] & mask) for p in range(1, full + 1))
            else:
                good = all(cell & mask and cell & ~mask for cell in cells)
            if good:
                grow((*chosen, e), [c & ~mask for c in cells] + [c & mask for c in cells], e + 1)

    grow((), [(1 << total) - 1], 0)
    return [picked[e] for e in best]
