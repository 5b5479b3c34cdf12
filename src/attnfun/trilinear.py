"""`ternary`: a relation of three variables as a trilinear form Σ_i a_i(x) b_i(y) c_i(z), with a proved error.

The terms come from two singular value decompositions: of the coefficients as a matrix x | (y, z), then of every right
vector as a matrix y | z (and with y or z first); the largest are kept.
The rank of every unfolding bounds the number of terms from below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from attnfun.certify.trilinear import trilinear_error, trilinear_table
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.expressions import Graph, parse
from attnfun.limits.relation_rank import rank_lower
from attnfun.network.features import contracted
from attnfun.network.head import Array
from attnfun.targets import Box, require_defined
from attnfun.targets.relation import Relation

Sides = tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class TrilinearForm:
    """Σ_i a_i(x) b_i(y) c_i(z): Chebyshev coefficients (N, rank) a side; `error` is proved in real arithmetic."""

    graph: Graph
    box: Box
    coefficients: tuple[Array, Array, Array]
    error: float
    rank_lower: int

    @property
    def rank(self) -> int:
        return int(self.coefficients[0].shape[1])

    def __call__(self, X: ArrayLike, Y: ArrayLike, Z: ArrayLike) -> Array:
        """(n,) each → (n,)."""
        out = np.ones((np.size(X), self.rank))
        for k, (side, P) in enumerate(zip((X, Y, Z), self.coefficients, strict=True)):
            x, low, high = np.asarray(side, dtype=np.float64).ravel(), self.box.low[k], self.box.high[k]
            if not ((x >= low) & (x <= high)).all():
                raise InvalidRequest(f"a point lies outside {self.box.names[k]}={low:g}:{high:g}")
            out = out * contracted(P, [np.clip(((x - low) - (high - x)) / (high - low), -1.0, 1.0)])
        return np.asarray(out.sum(axis=1))


def ternary(target: str, domain: Mapping[str, Sequence[float]], eps: float) -> TrilinearForm:
    """The trilinear form of few terms with |target − form| ≤ eps on the box of three variables.

    Proved for the stored coefficients in real arithmetic; what evaluating the form in float64 loses comes on top.
    """
    from attnfun.verbs import check_request, one_thread

    check_request(eps, "float64", 0)
    box = Box.parse(domain)
    if box.dim != 3:
        raise InvalidRequest(f"a ternary relation has three variables, not {box.dim}")
    graph = parse(target, box.names)
    require_defined(graph, box)
    with one_thread():
        try:
            table, off = trilinear_table(graph, box.names, box.low_array, box.high_array, 1e-2 * float(eps))
        except Undecided as why:
            raise Infeasible(f"{target[:120]}: {why}") from None
        found = [_fewest(table, off, _terms(table, first), float(eps)) for first in range(3)]
        ways = [terms for terms in found if terms is not None]
        if not ways:
            raise Infeasible(f"eps={eps:.3g} for {target[:120]}: all terms together are not proved to reach it")
        stored = min(ways, key=lambda terms: terms[0].shape[1])
        least = 0
        for k in range(3):
            rest = [i for i in range(3) if i != k]
            sides = [
                Box(tuple(box.names[i] for i in s), tuple(box.low[i] for i in s), tuple(box.high[i] for i in s))
                for s in ([k], rest)
            ]
            least = max(least, rank_lower(Relation(graph, sides[0], sides[1]), float(eps)))
    error = trilinear_error(table, off, stored)
    if not least <= stored[0].shape[1]:
        raise AssertionError(f"a lower bound {least} above a proved rank {stored[0].shape[1]} must never be issued")
    return TrilinearForm(graph, box, stored, error, least)


def _fewest(table: Array, off: float, terms: Sides, eps: float) -> Sides | None:
    """The fewest of the terms, largest first, whose proved error is within eps; None if all of them are not."""

    def taken(count: int) -> Sides:
        a, b, c = (np.ascontiguousarray(t[:, :count]) for t in terms)
        return a, b, c

    few, many = 0, terms[0].shape[1]
    if not trilinear_error(table, off, terms) <= eps:
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if trilinear_error(table, off, taken(middle)) <= eps else (middle, many)
    return taken(many)


def _terms(table: Array, first: int) -> Sides:
    """All terms of the two decompositions, the first one cutting off variable `first`; largest first."""
    order = [first, *(k for k in range(3) if k != first)]
    sides = _nested(np.transpose(table, order))
    a, b, c = (sides[order.index(k)] for k in range(3))
    return a, b, c


def _nested(table: Array) -> Sides:
    n, m, p = table.shape
    U, s, W = np.linalg.svd(table.reshape(n, m * p), full_matrices=False)
    sides: list[list[Array]] = [[], [], []]
    sizes = []
    for i in range(len(s)):
        V, t, Z = np.linalg.svd(W[i].reshape(m, p), full_matrices=False)
        for j in range(len(t)):
            size = s[i] * t[j]
            root = size ** (1 / 3)
            for side, vector in zip(sides, (U[:, i], V[:, j], Z[j]), strict=True):
                side.append(root * vector)
            sizes.append(size)
    order = np.argsort(-np.array(sizes))
    kept = order[: max(1, int(np.count_nonzero(np.array(sizes) > 1e-17 * max(max(sizes), math.ulp(0.0)))))]
    a, b, c = (np.stack(side, axis=1)[:, kept] for side in sides)
    return a, b, c
