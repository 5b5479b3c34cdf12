"""`relation`: features ⟨φ(x), ψ(y)⟩ of a relation, with a proved error; what it returns, its file, and `verify` of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate, Status
from attnfun.certify.relation import (
    Parts,
    construction_error,
    core_points,
    factor_weights,
    prove_by_towers,
    rounding,
    take_apart,
)
from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest, NotPositive
from attnfun.network.features import Block, Features
from attnfun.network.head import Array
from attnfun.targets import Box, require_defined
from attnfun.targets.relation import Relation
from attnfun.targets.relation_core import Core, core_of, plain_core

METHODS = ("auto", "chebyshev", "tensor", "cholesky")
_SHARE = 0.999  # of eps for the construction


@dataclass(frozen=True, eq=False)
class Tower:
    """One side of a relation: points (n, variables) → features (n, rank) in float64 (or `dtype`)."""

    features: Features
    side: str
    box: Box
    core: Core

    def __call__(self, X: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        points = _points(X, self.box)
        return self.features.side(self.side, core_points(self.core, self.side, points, self.box.names), dtype)

    @property
    def coefficients(self) -> list[Array]:
        """Chebyshev coefficients of the factors' functions, (N_1, …, N_a, columns) each."""
        return [b.left if self.side == "left" else b.right for b in self.features.blocks]


@dataclass(frozen=True, eq=False)
class RelationApproximant:
    """Two towers and their inner product, with what is proved of them."""

    target: Relation
    stored: Features
    core: Core
    certificate: Certificate
    rank_lower: int
    method: str
    request: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rank(self) -> int:
        return self.stored.rank

    @property
    def left(self) -> Tower:
        return Tower(self.stored, "left", self.target.left, self.core)

    @property
    def right(self) -> Tower:
        return Tower(self.stored, "right", self.target.right, self.core)

    @property
    def signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones unless the relation was split by `signed=True`."""
        return self.stored.product_signs

    def features(self, X: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(n, left variables) → (n, rank): φ(x)."""
        return self.left(X, dtype)

    def __call__(self, X: ArrayLike, Y: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(m, left variables), (n, right variables) → (m, n) scores ⟨φ(x_i), ψ(y_j)⟩."""
        return np.asarray(self.left(X, dtype) @ self.right(Y, dtype).T)

    def pairs(self, X: ArrayLike, Y: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(n, left variables), (n, right variables) → (n,) scores ⟨φ(x_i), ψ(y_i)⟩."""
        return np.asarray(np.sum(self.left(X, dtype) * self.right(Y, dtype), axis=1))

    def record(self) -> dict[str, Any]:
        """What `attnfun relation --json` prints."""
        certificate = self.certificate.to_json()
        certificate["proof"] = certificate.pop("method")
        certificate.pop("construction")
        return {
            "status": certificate.pop("status"),
            "error": certificate.pop("error"),
            "rank": self.rank,
            "rank_lower": self.rank_lower,
            "method": self.method,
            "symmetric": self.target.symmetric,
            "signed": self.stored.signed,
            "features_only": True,
            "coefficients": int(sum(b.left.size + b.right.size for b in self.stored.blocks)),
            **certificate,
            "seconds": round(self.seconds, 3),
        }


def relation(
    target: Any,
    left: Any,
    right: Any,
    eps: float,
    *,
    symmetric: bool = False,
    method: str = "auto",
    signed: bool = False,
    progress: Callable[[str], None] | None = None,
) -> RelationApproximant:
    """Features with |target(x, y) − ⟨φ(x), ψ(y)⟩| ≤ eps for all x in `left`, y in `right`, proved.

    `symmetric`: left and right variables correspond in order and one tower serves both; a relation that is not
    positive semidefinite is then refused with a witness (`NotPositive`) unless `signed=True` allows ⟨φ, Jφ⟩ with a
    diagonal J of signs. `method`: "auto" (the least rank), "chebyshev", "tensor" (products of the factors'
    features) or "cholesky".
    """
    from attnfun.verbs import _check, _one_thread

    start = time.perf_counter()
    say = progress or (lambda _text: None)
    _check(eps, "float64", "proved", 0)
    if method not in METHODS:
        raise InvalidRequest(f"method={method!r}: write {', '.join(METHODS)}")
    if signed and not symmetric:
        raise InvalidRequest("signed=True belongs to symmetric=True: two towers need no signs")
    asked = Relation.read(target, left, right, symmetric)
    say("is the relation defined on the domain?")
    require_defined(asked.graph, asked.joint)
    with _one_thread():
        if symmetric:
            _require_symmetric(asked)
            if not signed:
                say("is it positive semidefinite?")
                _require_positive(asked)
        parts = _parts(asked, float(eps), say)
        features, how = _search(asked, parts, float(eps), method, signed, say)
        certificate = prove_by_towers(asked, features, float(eps), how, say, parts)
        if certificate.status is not Status.PROVED:
            raise Infeasible(f"eps={eps:.3g} for {asked.text[:120]}: {certificate.reason}")
        say("a lower bound on the rank")
        from attnfun.limits.relation_rank import rank_lower

        least = rank_lower(asked, float(eps))
    request = {"eps": float(eps), "method": method, "symmetric": symmetric, "signed": signed, "features_only": True}
    seconds = time.perf_counter() - start
    return RelationApproximant(asked, features, parts.core, certificate, least, how, request, seconds)


# ---------------------------------------------------------------- before the work


def _require_symmetric(asked: Relation) -> None:
    if asked.mirrored() == asked.graph:
        return
    from attnfun.expressions import BallAlgebra, precision, run
    from attnfun.expressions.enclosures import abs_lower, point_balls

    Z = asked.joint.probe(256, np.random.default_rng(0))
    X, Y = Z[:, : asked.left.dim], Z[:, asked.left.dim :]
    gap = np.abs(asked.values(X, Y) - asked.values(Y, X))
    i = int(np.argmax(np.where(np.isfinite(gap), gap, -1)))
    with precision(128):
        values = []
        for a, b in ((X[i], Y[i]), (Y[i], X[i])):
            point = np.r_[a, b]
            env = {name: point_balls(point[k : k + 1])[0] for k, name in enumerate(asked.joint.names)}
            values.append(run(asked.graph, BallAlgebra(), env)[0])
        apart = abs_lower(values[0] - values[1])
    if apart > 0:
        raise InvalidRequest(
            f"{asked.text[:120]} is not symmetric: exchanging {X[i].tolist()} and {Y[i].tolist()} changes it by "
            f"{apart:.3g}, so no symmetric features are nearer than {apart / 2:.3g}; leave symmetric out"
        )


def _require_positive(asked: Relation) -> None:
    from attnfun.limits.definiteness import negative_direction

    found = negative_direction(asked)
    if found is not None:
        raise NotPositive(
            f"{asked.text[:120]} is not positive semidefinite: a vector v on {len(found.points)} points has "
            f"vᵀKv ≤ {found.form:.3g}, so every ⟨φ(x), φ(y)⟩ is at least {found.distance:.3g} away; "
            "the signed split ⟨φ, Jφ⟩ exists",
            {"signed": True},
            found,
        )


def _parts(asked: Relation, eps: float, say: Callable[[str], None]) -> Parts:
    say("coefficients of the relation")
    core = core_of(asked)
    why = ""
    for one in (core, plain_core(asked)) if core.left_inner is not None else (core,):
        try:
            return take_apart(asked, 1e-3 * eps, one)
        except Undecided as reason:
            why = why or str(reason)
    raise Infeasible(f"{asked.text[:120]}: {why}")


# ---------------------------------------------------------------- the least rank


def _search(
    asked: Relation, parts: Parts, eps: float, method: str, signed: bool, say: Callable[[str], None]
) -> tuple[Features, str]:
    """The fewest features whose proved error is within eps, over the ways that `method` allows."""
    single = len(parts.factors) == 1
    if method == "tensor" and single:
        raise Infeasible(f"tensor: {asked.text[:120]} is no product of relations without common variables")
    if method == "cholesky" and not (asked.symmetric and not signed):
        raise InvalidRequest("method='cholesky' is for symmetric positive semidefinite relations")
    name = "chebyshev" if single else "tensor"
    ways = [("cholesky", True)] if method == "cholesky" else [(name, False)]
    if method == "auto" and asked.symmetric and not signed and single:
        ways.append(("cholesky", True))
    best: tuple[Features, str] | None = None
    why = ""
    for how, pivoted in ways:
        try:
            found = _fewest(asked, parts, eps, signed, pivoted, say, None if best is None else best[0].rank - 1)
        except Infeasible as reason:
            why = why or str(reason)
            continue
        if found is not None and (best is None or found.rank < best[0].rank):
            best = (found, how)
    if best is None:
        raise Infeasible(why or f"eps={eps:.3g} for {asked.text[:120]} could not be proved")
    return best


def _fewest(
    asked: Relation,
    parts: Parts,
    eps: float,
    signed: bool,
    pivoted: bool,
    say: Callable[[str], None],
    most: int | None,
) -> Features | None:
    from attnfun.constructions.relations.tensor import ordered_products

    blocks, signs, sigmas = _blocks(asked, parts, eps, signed, pivoted)
    boxes = tuple((b.low_array, b.high_array) for b in (parts.core.left, parts.core.right))

    def chosen(selection: Any) -> Features:
        kept = None if signs is None else tuple(signs)
        return Features(tuple(blocks), selection, boxes[0], boxes[1], kept)

    everything = chosen(np.zeros((1, len(blocks)), dtype=np.int64))
    sups = factor_weights(everything)
    ban = signs if (signs is not None and not signed) else None
    limit = 200_000
    best: Features | None = None
    orders = {"sup": ordered_products(sups, ban, limit)}
    orders["sigma"] = ordered_products(sigmas, ban, limit)
    goal = _SHARE * eps
    top = len(orders["sup"]) if most is None else min(most, len(orders["sup"]))

    def error(order: Any, r: int, kind: str) -> float:
        features = chosen(order[:r])
        try:
            return construction_error(parts, features, (kind,))[0] + rounding(features)
        except Undecided:
            return math.inf

    for kind, name in (("factors", "sup"), ("diagonal", "sigma"), ("diagonal", "sup"), ("coefficients", "sigma")):
        order = orders[name]
        high = min(top if best is None else best.rank - 1, len(order))
        if high < 1:
            continue
        say(f"fewest features ({kind})")
        if not error(order, high, kind) <= goal:
            if kind == "factors" or best is not None:
                continue
            continue
        low = 0  # error(low) > goal
        step = high
        while high - low > 1:
            middle = (low + high) // 2 if step < 4096 else low + max(1, (high - low) // 8)
            step = high - low
            if error(order, middle, kind) <= goal:
                high = middle
            else:
                low = middle
        best = chosen(order[:high])
    if best is None:
        raise Infeasible(
            f"eps={eps:.3g} for {asked.text[:120]}: all {top:,} features together are not proved to reach it"
        )
    return _trimmed(best)


def _blocks(
    asked: Relation, parts: Parts, eps: float, signed: bool, pivoted: bool
) -> tuple[list[Block], list[Array] | None, list[Array]]:
    """Blocks of all features of every factor, their signs (symmetric relations), and the sizes |P||Q| of the columns."""
    from attnfun.constructions.relations.chebyshev import eigen_columns, singular_columns
    from attnfun.constructions.relations.cholesky import pivoted_columns

    blocks, signs, sigmas = [], [], []
    single = len(parts.factors) == 1
    for factor, x in zip(parts.factors, parts.expansions, strict=True):
        a = len(factor.left)
        rows, columns = x.table.shape[:a], x.table.shape[a:]
        if asked.symmetric:
            size = tuple(max(p) for p in zip(rows, columns, strict=True))
            table = np.pad(x.table, [(0, n - m) for n, m in zip(size + size, x.table.shape, strict=True)])
            C = table.reshape(math.prod(size), math.prod(size))
            if pivoted:
                P = pivoted_columns(C, size)
                sign = np.ones(P.shape[1])
            else:
                P, sign = eigen_columns(C, signed or not single)
            rows = columns = size
            Q = P * sign
        else:
            C = x.table.reshape(math.prod(rows), math.prod(columns))
            P, Q = singular_columns(C)
            sign = np.ones(P.shape[1])
        # columns that all together weigh less than a thousandth of eps need not be stored
        weight = np.abs(P).sum(axis=0) * np.abs(Q).sum(axis=0)
        rest = np.cumsum(weight[::-1])[::-1] * max(1.0, math.prod(e.size for e in parts.expansions) / x.size)
        m = max(1, int(np.count_nonzero(rest > 1e-4 * eps)))
        P, Q, sign = P[:, :m], Q[:, :m], sign[:m]
        blocks.append(Block(factor.left, factor.right, P.reshape(*rows, m), Q.reshape(*columns, m)))
        signs.append(sign)
        norms = np.sqrt((P * P).sum(axis=0) * (Q * Q).sum(axis=0))
        sigmas.append(np.arange(m, 0, -1, dtype=np.float64) if pivoted and single else norms)
    return blocks, signs if asked.symmetric else None, sigmas


def _trimmed(features: Features) -> Features:
    """Features as they are stored."""
    return features


def _points(X: ArrayLike, box: Box) -> Array:
    try:
        points = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidRequest(f"points {X!r:.60}: an array of numbers is needed") from None
    if box.dim == 1 and points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or points.shape[1] != box.dim:
        raise InvalidRequest(f"points of shape {np.shape(X)}: (n, {box.dim}) is needed, columns {', '.join(box.names)}")
    if not box.contains(points).all():
        raise InvalidRequest(f"a point lies outside the domain {box.text}")
    return points
