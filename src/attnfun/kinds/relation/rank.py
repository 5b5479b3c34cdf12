"""How many features any method needs: a certified lower bound on the rank of a relation at tolerance ε.

Statement (Schmidt 1907; Eckart and Young 1936). Let M_ij = a_i r(x_i, y_j) b_j for any points and weights with Σa² = A,
Σb² = B. If φ, ψ have n coordinates each then the table ⟨φ(x_i), ψ(y_j)⟩ has rank at most n, so

    sup |r − ⟨φ, ψ⟩| ≥ (AB)^{−1/2} ‖M − (rank n)‖_F ≥ (AB)^{−1/2} sqrt(Σ_{i>n} σ_i(M)²).

If the relation is Π_k g_k (factors without common variables) and the points are products, M is a Kronecker product and
its singular values are products of those of the factors.
Rounding: M is enclosed (balls), M̂ = U Σ Vᵀ + E in float64 with all three measured, and
σ_i(M) ≥ σ_min(U) Σ_i σ_min(V) − ‖M − M̂‖_F − ‖E‖_F,  σ_min(U) ≥ 1 − ‖UᵀU − I‖_F.
Failure mode: it is a bound in the mean square, so for the sup norm it is low by a factor that grows with dimension.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from attnfun.kinds.relation.core import factors_of, plain_core
from attnfun.kinds.relation.target import Relation
from attnfun.language import Array, BallAlgebra, Box, Graph, precision, run
from attnfun.language.enclosures import doubles, point_balls

_U = 2.0**-53
_PRODUCTS = 6_000_000
_PAIRS = {1: 40, 2: 11, 3: 5}  # Gauss nodes per variable, by the variables of the larger side of a factor


def rank_lower(relation: Relation, eps: float) -> int:
    """No features ⟨φ, ψ⟩ of fewer coordinates than this come within `eps` everywhere; at least 0."""
    return int(np.count_nonzero(_tails(relation) > eps))


def error_lower(relation: Relation, rank: int) -> float:
    """No features ⟨φ, ψ⟩ of `rank` coordinates come nearer than this everywhere; at least 0."""
    tails = _tails(relation)
    return float(tails[rank]) if 0 <= rank < len(tails) else 0.0


@lru_cache(maxsize=8)  # a search asks before and after it
@np.errstate(all="ignore")  # what overflows counts as nothing
def _tails(relation: Relation) -> Array:
    """Proved lower bounds of the sup error of n features, n = 0, 1, …; nothing is said past the last."""
    core = plain_core(relation)
    factors = factors_of(core, relation.symmetric)
    sizes = [max(len(f.left), len(f.right)) for f in factors]
    if max(sizes) > 3:
        X, Y = (box.probe(60, np.random.default_rng(0))[:120] for box in (relation.left, relation.right))
        ones = np.ones(len(X)), np.ones(len(Y))
        parts = [_singular(relation.graph, relation.left.names, relation.right.names, X, Y, *ones)]
    else:
        parts = []
        for factor, size in zip(factors, sizes, strict=True):
            both = ((core.left, factor.left), (core.right, factor.right))
            (X, a), (Y, b) = (gauss(box, places, _PAIRS[size]) for box, places in both)
            left = tuple(core.left.names[k] for k in factor.left)
            right = tuple(core.right.names[k] for k in factor.right)
            parts.append(_singular(factor.graph, left, right, X, Y, a, b))
    values = parts[0]
    for other in parts[1:]:
        other = other[other > 0]
        if not len(other):
            return np.zeros(0)
        if len(values) * len(other) > _PRODUCTS:  # leaving out small ones only lowers the bound
            values = np.sort(values)[::-1][: max(1, _PRODUCTS // len(other))]
        values = np.multiply.outer(values, other).ravel() * (1 - 4 * _U)
    values = np.minimum(np.sort(values)[::-1], 1e150)  # squares must not overflow; less only lowers the bound
    if not np.isfinite(values).all():
        return np.zeros(0)
    return np.asarray(np.sqrt(np.cumsum((values**2)[::-1])[::-1]) * (1 - (len(values) + 8) * _U))


def gauss(box: Box, places: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """(n, places) product points and (n,) square roots of their weights; exact doubles whatever they approximate."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    points, roots = np.zeros((1, 0)), np.ones(1)
    for k in places:
        line = np.clip((box.low[k] + box.high[k]) / 2 + (box.high[k] - box.low[k]) / 2 * nodes, box.low[k], box.high[k])
        points = np.column_stack([np.repeat(points, count, axis=0), np.tile(line, len(points))])
        roots = np.repeat(roots, count) * np.tile(np.sqrt(weights / 2), len(roots))
    return points, roots


def section_balls(graph: Graph, left: tuple[str, ...], right: tuple[str, ...], X: Array, Y: Array) -> Any:
    """(m, n) balls: the relation at all pairs of points."""
    env = {name: point_balls(X[:, k : k + 1]) for k, name in enumerate(left)}
    env |= {name: point_balls(Y[:, k : k + 1]).T for k, name in enumerate(right)}
    return np.broadcast_to(np.asarray(run(graph, BallAlgebra(), env)[0], dtype=object), (len(X), len(Y)))


def section(graph: Graph, left: tuple[str, ...], right: tuple[str, ...], X: Array, Y: Array) -> tuple[Array, Array]:
    """(mid, rad), each (m, n): the relation at all pairs of points, enclosed."""
    with precision(96):
        return doubles(section_balls(graph, left, right, X, Y))


def _singular(
    graph: Graph, left: tuple[str, ...], right: tuple[str, ...], X: Array, Y: Array, a: Array, b: Array
) -> Array:
    """Proved lower bounds of σ_i(M)/sqrt(AB), largest first, not below 0; zeros where the relation is not enclosed."""
    mid, rad = section(graph, left, right, X, Y)
    M = a[:, None] * mid * b[None, :]
    off = np.abs(M) * 4 * _U + a[:, None] * rad * b[None, :] * (1 + 4 * _U)
    if not (np.isfinite(M).all() and np.isfinite(off).all()):
        return np.zeros(min(M.shape))
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    n, p = max(M.shape), len(s)
    gap = _norm(M - (U * s) @ Vt) + 1.05 * (p + 4) * _U * float(s.sum()) + _norm(off)
    loss = 1.0
    for W in (U, Vt.T):
        tau = _norm(W.T @ W - np.eye(p)) + 1.01 * p * (n + 2) * _U
        loss *= 1 - tau if tau < 1 else 0.0
    room = math.sqrt(float(a @ a) * float(b @ b)) * (1 + 1e-12)
    found = (s * loss * (1 - 4 * _U) - gap * (1 + 1e-12)) / room * (1 - 4 * _U)
    return np.asarray(np.sort(np.maximum(np.where(np.isfinite(found), found, 0.0), 0.0))[::-1])


def _norm(M: Array) -> float:
    return math.sqrt(float(np.sum(M * M))) * (1 + (M.size + 4) * _U) + 1e-150
