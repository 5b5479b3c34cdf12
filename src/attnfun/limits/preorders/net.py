"""A utility for a comparison callable: ranks on a net of keys for each query of a net, interpolated in all variables.

Statement. On a product grid of N keys (and of queries) let u(q, k) = the mean rank of k among the N keys for q,
divided by N − 1: ties have equal ranks, and a ≻ b iff u(q, a) > u(q, b) for all keys and queries of the net, if the
callable is a complete transitive preorder. Multilinear interpolation in queries and keys makes u continuous on the
boxes, with values in [0, 1]. u(q, k) = Σ_ij h_i(q) T_ij g_j(k) with hat functions h, g ≥ 0 that sum to 1, so that a
matrix of rank r within e of T in every entry gives towers of rank r within e of u: `rank_of(net.table, e)`.
Source: G. Debreu 1954 for the existence of a continuous utility; ranks on a sample are its finite form.
Size: N log2 N comparisons per query by merge sort.
Bound: none between the points of the net. What is known there is the agreement with the callable on fresh pairs: a
measured share with its Clopper–Pearson interval.
Failure mode: ranks on a net coarser than the preorder's detail; the agreement shows it.
"""

import itertools
import math
from dataclasses import dataclass, field
from functools import cmp_to_key

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.brief import Brief
from attnfun.language.domain import Array, Box
from attnfun.limits.preorders.target import Preorder
from attnfun.search import Say

_MOST = {1: 129, 2: 41, 3: 13, 4: 7, 5: 5, 6: 4}
"""Keys per axis, unless the budget is less."""


@dataclass(frozen=True, eq=False)
class NetUtility(Brief):
    """`table` (query points, key points) of ranks in [0, 1], interpolated between the points of two grids."""

    queries: Box | None
    keys: Box
    query_points: int
    key_points: int
    table: Array = field(repr=False)
    comparisons: int

    def __call__(self, query: Array | None, K: Array) -> Array:
        """One query, (n, keys) → (n,) utilities."""
        row = self.table[0]
        if query is not None and self.queries is not None:
            places, weights = _corners(self.queries, self.query_points, query[None])
            row = weights[:, 0] @ self.table[places[:, 0]]
        places, weights = _corners(self.keys, self.key_points, K)
        return np.asarray((weights * row[places]).sum(axis=0))


def build_net(preorder: Preorder, budget: int, say: Say, points: tuple[int, int] | None = None) -> NetUtility:
    """Sort a net of keys for each query of a net in about `budget` comparisons; `points`: (queries, keys) an axis."""
    count, per_axis = points or _sizes(preorder, budget)
    grid = product_grid(preorder.keys, per_axis)
    nodes = [None] if preorder.queries is None else list(product_grid(preorder.queries, count))
    rows, asked = [], 0
    for number, query in enumerate(nodes):
        say(f"ranking {len(grid)} keys for query {number + 1} of {len(nodes)}")
        row, spent = ranked(preorder, query, grid)
        rows.append(row)
        asked += spent
    return NetUtility(preorder.queries, preorder.keys, count, per_axis, np.stack(rows), asked)


def ranked(preorder: Preorder, query: Array | None, K: Array) -> tuple[Array, int]:
    """(n,) mean ranks over n − 1, and the number of comparisons."""
    asked = 0

    def compare(i: int, j: int) -> int:
        nonlocal asked
        asked += 2
        return preorder.compare(query, K[i], K[j])

    order = sorted(range(len(K)), key=cmp_to_key(compare))
    ranks = np.empty(len(K))
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or compare(order[end], order[start]) != 0:
            ranks[order[start:end]] = (start + end - 1) / 2
            start = end
    return ranks / max(1, len(K) - 1), asked


def product_grid(box: Box, points: int) -> Array:
    """(points^d, d), the last axis fastest."""
    axes = [np.linspace(a, b, points) for a, b in zip(box.low, box.high, strict=True)]
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=1)


def _sizes(preorder: Preorder, budget: int) -> tuple[int, int]:
    """Points an axis of queries and of keys."""
    dim = preorder.keys.dim
    asks = 0 if preorder.queries is None else preorder.queries.dim
    if dim > max(_MOST) or asks > max(_MOST):
        raise InvalidRequest(f"a net of {dim} key and {asks} query variables is too large; at most {max(_MOST)} a side")

    def work(n: int) -> float:
        return 2 * n * (math.log2(max(2, n)) + 1)

    best = None
    for count in range(2, 10) if asks else (1,):
        queries = count**asks
        points = next((p for p in range(_MOST[dim], 1, -1) if queries * work(p**dim) <= budget), None)
        if points is not None and (best is None or min(points, 3 * count) > min(best[1], 3 * best[0])):
            best = count, points
    if best is None:
        raise InvalidRequest(f"budget={budget}: too few comparisons for a net of {dim} key and {asks} query variables")
    return best


def _corners(box: Box, points: int, X: Array) -> tuple[NDArray[np.int64], Array]:
    """(2^d, n) places in the grid of the corners of each point's cell, and their weights, which sum to 1."""
    width = box.high_array - box.low_array
    t = np.clip((X - box.low_array) / width * (points - 1), 0, points - 1)
    cell = np.minimum(t.astype(np.int64), points - 2)
    part = t - cell
    strides = points ** np.arange(box.dim - 1, -1, -1)
    corners = np.array(list(itertools.product((0, 1), repeat=box.dim)))
    places = ((cell[None] + corners[:, None]) * strides).sum(axis=2)
    return places, np.prod(np.where(corners[:, None] == 1, part, 1 - part), axis=2)
