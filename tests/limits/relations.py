"""Relations that the tests of `limits/` share, by name."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from attnfun.limits.embedding import Relevance


def of_rows(rows: list[tuple[int, ...]], n: int) -> Relevance:
    ids = tuple(f"q{i}" for i in range(len(rows)))
    return Relevance(ids, tuple(f"d{j}" for j in range(n)), tuple(np.array(sorted(r), np.int64) for r in rows))


def subsets(n: int, k: int) -> Relevance:
    return of_rows(list(itertools.combinations(range(n), k)), n)


def random_sets(m: int, n: int, k: int, seed: int) -> Relevance:
    rng = np.random.default_rng(seed)
    return of_rows([tuple(rng.choice(n, k, replace=False).tolist()) for _ in range(m)], n)


def planted(dim: int, seed: int, m: int = 100, n: int = 60, k: int = 3, decades: float = 0.0) -> NDArray[np.bool_]:
    """The k documents of the largest products with each query, all normal in R^dim: `dim` dimensions are enough.

    `decades` > 0: documents of lengths 10^−decades to 1, the first of them at the origin.
    """
    rng = np.random.default_rng(seed)
    documents, queries = rng.standard_normal((n, dim)), rng.standard_normal((m, dim))
    if decades:
        documents *= 10.0 ** -rng.uniform(0, decades, (n, 1)) / np.linalg.norm(documents, axis=1, keepdims=True)
        documents[0] = 0.0
    scores = queries @ documents.T
    return scores >= np.sort(scores, axis=1)[:, -k, None]


def intervals(m: int, n: int, seed: int) -> NDArray[np.bool_]:
    """Random intervals of a hidden order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    table = np.zeros((m, n), np.bool_)
    for row in table:
        a, b = sorted(rng.choice(n + 1, 2, replace=False))
        row[order[a:b]] = True
    return table


def random_table(rng: np.random.Generator) -> NDArray[np.bool_]:
    """Small tables of many kinds: dense, sparse, intervals, end pieces, with duplicate and trivial rows."""
    m, n = int(rng.integers(1, 7)), int(rng.integers(2, 7))
    kind = int(rng.integers(4))
    table = rng.random((m, n)) < rng.choice([0.2, 0.5, 0.8])
    if kind:
        order = rng.permutation(n)
        for row in table:
            a, b = (0, int(rng.integers(n + 1))) if kind == 1 else sorted(rng.integers(0, n + 1, 2))
            row[:] = False
            row[order[a:b]] = True
        if kind == 3:
            table[rng.integers(m), rng.integers(n)] ^= True
    return table
