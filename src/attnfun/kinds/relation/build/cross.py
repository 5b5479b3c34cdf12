"""Adaptive cross approximation: slices of the relation through pivots, where no grid of coefficients is in reach.

Statement: with pivots X, Y and M = r(X, Y) invertible, r_k(x, y) = r(x, Y) M⁻¹ r(X, y) has rank k and equals r wherever
x ∈ X or y ∈ Y. The next pivot is the largest residual on sets of candidates; where fresh points show more than ε their
worst ones become candidates, and pivoting goes on.
Source: Bebendorf 2000 (adaptive cross approximation), Goreinov, Tyrtyshnikov and Zamarashkin 1997 (skeletons); for a
symmetric positive relation this is pivoted Cholesky, with pivots on the diagonal.
Derivation: subtracting R[:, j] R[i, :]/R[i, j] from the table R makes row i and column j vanish and takes 1 off its
rank. M⁻¹ is split as A Bᵀ by the singular value decomposition of M (symmetric: by its eigenvalues), so that the two
sides are scaled alike.
Size: k pivots per side and two k × k matrices, whatever the number of variables. Bound: none. The error is measured
(`prove.measured`), never proved: a spike between the points is not seen.
Failure mode: kinks in many variables need thousands of pivots; past MOST_RANK it is refused with what was measured.
"""

import math

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.relation.build.search import Ask, near
from attnfun.kinds.relation.form import Cut, Slices
from attnfun.kinds.relation.prove import measured
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from attnfun.language.domain import Box
from attnfun.network.head import Array
from attnfun.search import Proposal, Proposals

MOST_RANK = 600
_CANDIDATES = 700  # a side
_ROUNDS = 12


def slices(ask: Ask) -> Proposals:
    """Slices, at least as many as any method needs, whose error at fresh points is within eps."""
    relation, eps, signed, say = ask.relation, ask.eps, ask.signed, ask.say
    say("cross approximation")
    least = rank_lower(relation, eps)
    X, Y = candidates(relation.left, 0), candidates(relation.right, 1)
    if relation.symmetric:
        Y = X
    goal, best = 0.5 * eps, math.inf
    for round_ in range(_ROUNDS):
        rows, columns = pivots(relation, X, Y, goal, least, signed)
        made = slices_of(relation, rows, columns, signed)
        say(f"{made.rank} slices, measured at fresh points")
        error, more_x, more_y, _ = measured(relation, made, round_ + 1)
        best = min(best, error)
        if error <= 0.9 * eps and made.rank >= least:
            certificate = yield Proposal(made, "cross")
            raise Infeasible(f"cross: eps={eps:.3g} for {ask.text} is not met: {certificate.reason}")
        if len(rows) >= MOST_RANK:
            break
        if relation.symmetric:
            more_x = more_y = np.concatenate([more_x, more_y])
        X, Y = np.concatenate([X, more_x]), np.concatenate([Y, more_y])
        goal *= 0.6
    text = f"cross: the error measured at rank {made.rank} is {best:.3g}, above eps={eps:.3g}"
    raise Infeasible(text, near(best * 1.3, method="cross"))


def candidates(box: Box, seed: int) -> Array:
    """(n, variables) Chebyshev-Lobatto points in few variables, corners, edges and random points."""
    rng = np.random.default_rng(seed)
    Z = box.probe(_CANDIDATES, rng)
    per = {1: 200, 2: 17, 3: 7}.get(box.dim, 0)
    if per:
        line = (1 - np.cos(np.arange(per) * np.pi / (per - 1))) / 2
        grid = np.stack([g.ravel() for g in np.meshgrid(*[line] * box.dim, indexing="ij")], axis=1)
        Z = np.concatenate([box.low_array + (box.high_array - box.low_array) * grid, Z])
    Z = np.clip(Z, box.low_array, box.high_array)
    return Z if len(Z) <= 2 * _CANDIDATES else Z[: 2 * _CANDIDATES]


def pivots(relation: Relation, X: Array, Y: Array, goal: float, least: int, signed: bool) -> tuple[Array, Array]:
    """Pivot points (k, left), (k, right): largest residuals of the table on the candidates, down to `goal`."""
    R = relation.table(X, Y)
    feasible(np.isfinite(R).all(), "cross: the relation is not finite at some of its candidates")
    floor = 64 * np.finfo(np.float64).eps * float(np.abs(R).max())
    diagonal = relation.symmetric and not signed
    rows: list[int] = []
    columns: list[int] = []
    while len(rows) < min(MOST_RANK, *R.shape):
        if diagonal:
            i = j = int(np.argmax(np.abs(np.diagonal(R))))
        else:
            i, j = (int(v) for v in np.unravel_index(int(np.argmax(np.abs(R))), R.shape))
        size = abs(float(R[i, j]))
        if not size > floor or (size <= goal and len(rows) >= least):
            break
        rows.append(i)
        columns.append(j)
        R = R - np.outer(R[:, j] / R[i, j], R[i])
    if not rows:
        rows, columns = [0], [0]
    if relation.symmetric:
        both = sorted({*rows, *columns})
        return X[both], X[both]
    return X[rows], Y[columns]


def slices_of(relation: Relation, rows: Array, columns: Array, signed: bool) -> Slices:
    """The features of given pivots: M⁻¹ = A Bᵀ, singular values below rounding left out."""
    M = relation.table(rows, columns)
    tiny = 16 * len(M) * np.finfo(np.float64).eps
    zero = np.zeros((len(M), 1))
    cuts: tuple[Cut, Cut | None]
    if relation.symmetric:
        values, vectors = np.linalg.eigh((M + M.T) / 2)
        kept = (np.abs(values) if signed else values) > tiny * np.abs(values).max()
        A = vectors[:, kept] / np.sqrt(np.abs(values[kept])) if kept.any() else zero
        signs = np.where(values[kept] < 0, -1.0, 1.0) if kept.any() else np.ones(1)
        cuts = Cut(rows, A), None
    else:
        a, s, b = np.linalg.svd(M)
        kept = s > tiny * s[0]
        root, signs = 1 / np.sqrt(s[kept]), None
        A, B = (b.T[:, kept] * root, a[:, kept] * root) if kept.any() else (zero, zero)
        cuts = Cut(columns, A), Cut(rows, B)
    left, right = ((box.low_array, box.high_array) for box in relation.boxes)
    return Slices(relation.graph, (relation.left.names, relation.right.names), cuts[0], cuts[1], left, right, signs)
