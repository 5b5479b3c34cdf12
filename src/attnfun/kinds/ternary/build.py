"""Trilinear forms from two singular value decompositions.

The terms are those of the coefficients as a matrix x | (y, z), then of every right vector as a matrix y | z (and with y
or z first); the largest are kept.
"""

import math

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, feasible
from attnfun.kinds.relation.prove_coefficients import Expansion
from attnfun.kinds.ternary.prove import trilinear_error, trilinear_rounding, trilinear_table
from attnfun.kinds.ternary.target import Coefficients, Ternary, Trilinear
from attnfun.language.numbers import bisected
from attnfun.network.head import Array
from attnfun.search import Proposal, Proposals, Say


def forms(asked: Ternary, eps: float, say: Say) -> Proposals:
    """The one with the fewest terms, whichever variable comes first."""
    say("coefficients of the relation")
    try:
        found = trilinear_table(asked.graph, asked.box, 1e-2 * eps)
    except Undecided as why:
        raise Infeasible(f"{asked.text[:120]}: {why}") from None
    tried = []
    for first in range(3):
        say(f"fewest terms, {asked.box.names[first]} first")
        tried.append(_fewest(found, _terms(found.table, first), eps))
    ways = [terms for terms in tried if terms is not None]
    feasible(ways, f"eps={eps:.3g} for {asked.text[:120]}: all terms together are not proved to reach it")
    yield Proposal(Trilinear(min(ways, key=lambda terms: terms[0].shape[1]), asked.box), "trilinear")


def _fewest(found: Expansion, terms: Coefficients, eps: float) -> Coefficients | None:
    """The fewest of the terms, largest first, whose proved error is within eps; None if all of them are not."""

    def taken(count: int) -> Coefficients:
        return tuple(np.ascontiguousarray(t[:, :count]) for t in terms)

    def good(count: int) -> bool:
        stored = taken(count)
        try:
            error = trilinear_error(found.table, found.error, stored)
        except Undecided:  # too many to be compared
            return False
        return error + trilinear_rounding(stored) <= eps * (1 - 1e-12)

    many = terms[0].shape[1]
    return taken(bisected(0, many, good)) if good(many) else None


def _terms(table: Array, first: int) -> Coefficients:
    """All terms of the two decompositions, the first one cutting off variable `first`; largest first."""
    order = [first, *(k for k in range(3) if k != first)]
    sides = _nested(np.transpose(table, order))
    return tuple(sides[order.index(k)] for k in range(3))


def _nested(table: Array) -> Coefficients:
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
    return tuple(np.stack(side, axis=1)[:, kept] for side in sides)
