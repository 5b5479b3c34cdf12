"""Orders to put documents, or queries, on a curve with: the exact ones where they exist, and several guesses.

If every row can be an arc (PQ-tree), that order comes first and nothing else is tried. Otherwise: the order of the tree
without the rows that did not fit, the order in which documents were named, by the number of queries that want them, and
by the second singular vector of the scaled relation (correspondence analysis). The one with the fewest changes of
sign in its worst row comes first.
"""

from __future__ import annotations

import numpy as np

from attnfun.limits.embedding.consecutive import circular_order, end_order, interval_order, sign_changes
from attnfun.limits.embedding.relevance import Core, Indices

_TREE_WORK = 100_000_000
"""Rows × documents up to which a PQ-tree is built: its longest Q-node may be walked for every row."""


def document_orders(core: Core) -> list[tuple[str, Indices]]:
    """Named orders, the best first."""
    line = end_order(core)
    if line is not None:
        return [("line", line)]
    found: list[tuple[str, Indices]] = []
    if core.m * core.n <= _TREE_WORK:
        arcs, failed = circular_order(core)
        found.append(("arcs", arcs))
        if not failed:
            return found
    found += [("as named", np.arange(core.n)), ("counts", _by_length(core.columns))]
    found += [("spectral", _spectral(core.rows, core.n))]
    return sorted(found, key=lambda named: int(sign_changes(core, named[1])[0].max()))


def query_orders(core: Core) -> list[Indices]:
    """Orders of the queries, for documents that few queries want."""
    found = [np.arange(core.m), _spectral(core.columns, core.m), _by_length(core.rows)]
    if core.m * core.n <= _TREE_WORK:
        found.insert(0, interval_order(sorted(core.columns, key=len, reverse=True), core.m)[0])
    return found


def _by_length(lines: tuple[Indices, ...]) -> Indices:
    return np.argsort([len(line) for line in lines], kind="stable").astype(np.int64)


def _spectral(rows: tuple[Indices, ...], n: int) -> Indices:
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import ArpackError, svds

    lengths = np.array([len(row) for row in rows])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    A = csr_array((np.ones(starts[-1]), np.concatenate(rows), starts), shape=(len(rows), n))
    if min(A.shape) < 4:
        return np.arange(n)
    counts = np.maximum(A.sum(axis=0), 1.0)
    scaled = diags_array(1 / np.sqrt(np.maximum(lengths, 1.0))) @ A @ diags_array(1 / np.sqrt(counts))
    try:
        _, values, right = svds(scaled, k=2, v0=np.linspace(1.0, 2.0, min(A.shape)), maxiter=300)
    except ArpackError:
        return np.arange(n)
    second = right[int(np.argmin(values))] / np.sqrt(counts)
    return np.argsort(second, kind="stable").astype(np.int64)
