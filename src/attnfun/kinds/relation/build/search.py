"""The search behind `relation`: refuse what has no features, then the fewest that can be proved, then their towers."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest, NotPositive, present, require
from attnfun.kinds.relation.build.inner import Inner, inner_networks, on_top
from attnfun.kinds.relation.core import Core, core_of, plain_core
from attnfun.kinds.relation.features import Block, Features
from attnfun.kinds.relation.form import Polynomials, Towers
from attnfun.kinds.relation.prove_coefficients import padded
from attnfun.kinds.relation.prove_features import Parts, construction_error, factor_weights, rounding, take_apart
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import TowerWeights
from attnfun.language import Array, BallAlgebra, precision, run
from attnfun.language.enclosures import abs_lower, point_balls
from attnfun.search import Proposal, Proposals, Say

_SHARES = (0.98, 0.8, 0.5)  # of eps for the features; the rest is for their towers
_MLP_SHARES = (0.9, 0.6, 0.4)  # units grow with the root of what is left, so more is left
_PRODUCTS = 25.0  # groups are off together far less than their worst columns one by one; tried first, then closer
_ONE_HEAD = 2_000_000  # values of a head; past them two layers are leaner, where features are products
_MOST_FEATURES = 200_000
_TRIES = 5
OUT = "more than can be built"


@dataclass(frozen=True)
class Ask:
    """A request: the relation, eps, and how it is to be met."""

    relation: Relation
    eps: float
    method: str
    realise: str | None
    signed: bool
    accept: str | None
    say: Say

    @property
    def kernel(self) -> bool:
        """Must the features be those of a positive semidefinite relation?"""
        return self.relation.symmetric and not self.signed

    def inner(self, core: Core) -> Relation:
        """The core as a relation of its own."""
        return Relation(core.graph, core.left, core.right, self.relation.symmetric)

    @property
    def text(self) -> str:
        return self.relation.text[:120]


def near(eps: float, **more: Any) -> dict[str, Any] | None:
    """The nearest request: this eps in two digits; None where it is not finite."""
    return {"eps": float(f"{eps:.2g}"), **more} if math.isfinite(eps) else None


def polynomials(ask: Ask) -> Proposals:
    """Features that leave more and more of eps to their towers, and ever better towers; then Infeasible.

    A symmetric relation has passed `require_kernel`.
    """
    eps, realise = ask.eps, ask.realise
    parts, inner = _parts(ask)
    best, why = math.inf, ""
    refused: Infeasible | None = None
    for share in (0.999,) if realise is None else _MLP_SHARES if realise == "mlp" else _SHARES:
        features, how = _least(ask, parts, eps * share)
        room = eps * (1 - share)
        if realise == "mlp":  # what the features do not use is the units' too
            room = max(room, eps - construction_error(parts, features)[0])
        tolerance, before = 0.4 * room / _sensitivity(features), math.inf
        for _ in range(_TRIES):
            towers = None
            if realise is not None:
                ask.say(f"towers of {features.rank} features ({realise})")
                try:
                    towers = on_top(_towers(features, realise, tolerance, inner is not None), inner)
                except Infeasible as reason:  # features that leave more of eps to the towers may do
                    own = (reason.nearest or {}).get("eps")  # of the towers, whose tolerance grows with eps
                    nearest = near(1.05 * eps * own / tolerance) if own else reason.nearest
                    refused, why = Infeasible(str(reason), nearest), why or str(reason)
                    break
            certificate = yield Proposal(Polynomials(features, towers), how)
            reached = certificate.error[1]
            best, why = min(best, reached), why or str(certificate.reason)
            if realise is None or not reached < before - 0.1 * (1 - share) * eps:
                break  # rounding, which better towers do not fix
            tolerance, before = 0.2 * tolerance, reached
    if refused is not None and not math.isfinite(best):
        raise refused
    text = f"eps={eps:.3g} for {ask.text} could not be proved: {why}"
    raise Infeasible(text, near(best * 1.05) or {"features_only": True})


def _sensitivity(features: Features) -> float:
    """About how much the score moves when every column of every block moves by 1: steers the towers."""
    total = 0.0
    for k in range(len(features.blocks)):
        others = np.ones(features.rank)
        for j, weight in enumerate(factor_weights(features)):
            root = weight[features.selection[:, j]] if j != k else np.sqrt(weight[features.selection[:, j]])
            others = others * root
        total += 2 * float(others.sum())
    return max(total, 1e-300)


def _towers(features: Features, realise: str, tolerance: float, stacked: bool) -> Towers:
    """Towers of both sides; `stacked`: on top of networks, so of one head that all is read from."""
    from attnfun.kinds.relation.build.bernstein_towers import attention_tower
    from attnfun.kinds.relation.build.product_towers import product_tower
    from attnfun.kinds.relation.build.relu_towers import relu_tower

    def make(side: str) -> TowerWeights:
        if realise == "mlp":
            return relu_tower(features, side, tolerance)
        if stacked:
            return attention_tower(features, side, tolerance, affine=False)
        if len(features.half(side).box[0]) > 3:
            return product_tower(features, side, _PRODUCTS * tolerance)
        one = attention_tower(features, side, tolerance)
        if math.prod(len(keys.slopes) for keys in one.keys) * features.rank <= _ONE_HEAD:
            return one
        try:
            return product_tower(features, side, _PRODUCTS * tolerance)
        except Infeasible:
            return one

    left = make("left")
    return (left, left) if features.signs is not None else (left, make("right"))


# ---------------------------------------------------------------- before the work


class NoCoefficients(Infeasible):
    """The relation has no table of Chebyshev coefficients that could be proved: a kink, or too many variables."""


def require_kernel(ask: Ask, positive: bool) -> None:
    """Refuse what was asked for as symmetric and is not, or is not positive semidefinite, with a witness.

    `positive`: it is seen to be so.
    """
    if ask.relation.symmetric:
        _require_symmetric(ask.relation)
    if not ask.kernel or positive:
        return
    from attnfun.kinds.relation.definiteness import negative_direction

    ask.say("is it positive semidefinite?")
    found = negative_direction(ask.relation)
    if found is not None:
        raise NotPositive(
            f"{ask.text} is not positive semidefinite: a vector v on {len(found.points)} points has "
            f"vᵀKv ≤ {found.form:.3g}, so every ⟨φ(x), φ(y)⟩ is at least {found.distance:.3g} away; "
            "the signed split ⟨φ, Jφ⟩ exists",
            {"signed": True},
            found,
        )


def _require_symmetric(asked: Relation) -> None:
    if asked.mirrored() == asked.graph:
        return
    Z = asked.joint.probe(256, np.random.default_rng(0))
    X, Y = Z[:, : asked.left.dim], Z[:, asked.left.dim :]
    gap = np.abs(asked.values(X, Y) - asked.values(Y, X))
    i = int(np.argmax(np.where(np.isfinite(gap), gap, -1)))
    with precision(128):
        points = (point_balls(np.r_[a, b]) for a, b in ((X[i], Y[i]), (Y[i], X[i])))
        one, other = (run(asked.graph, BallAlgebra(), dict(zip(asked.joint.names, z, strict=True)))[0] for z in points)
        apart = abs_lower(one - other)
    if apart > 0:
        raise InvalidRequest(
            f"{asked.text[:120]} is not symmetric: exchanging {X[i].tolist()} and {Y[i].tolist()} changes it by "
            f"{apart:.3g}, so no symmetric features are nearer than {apart / 2:.3g}; leave symmetric out"
        )


def _parts(ask: Ask) -> tuple[Parts, Inner | None]:
    """The relation taken apart, and networks for its inner functions where they are to be realised and compile."""
    ask.say("coefficients of the relation")
    asked, eps, core = ask.relation, ask.eps, core_of(ask.relation)
    why = ""
    for one in (core, plain_core(asked)) if core.composed else (core,):
        try:
            plain = take_apart(asked, 1e-3 * eps, one)
            below = one.composed and ask.realise == "attention"
            found = inner_networks(asked, one, eps, ask.say) if below else None
            if found is None:
                return plain, None
            wide, networks = found
            try:
                return take_apart(asked, 1e-3 * eps, wide), networks
            except Undecided:  # g does not reach past the ranges of u and v
                return plain, None
        except Undecided as reason:
            why = why or str(reason)
    raise NoCoefficients(f"{ask.text}: {why}")


# ---------------------------------------------------------------- the least rank


def _least(ask: Ask, parts: Parts, eps: float) -> tuple[Features, str]:
    """The fewest features whose proved error is within eps, over the ways that the method allows."""
    single = len(parts.factors) == 1
    if ask.method == "tensor" and single:
        raise Infeasible(f"tensor: {ask.text} is no product of relations without common variables")
    require(ask.method != "cholesky" or ask.kernel, "method='cholesky' needs symmetric positive semidefinite relations")
    ways = ["cholesky"] if ask.method == "cholesky" else ["chebyshev" if single else "tensor"]
    if ask.method == "auto" and ask.kernel and single:
        ways.append("cholesky")
    best: tuple[Features, str] | None = None
    why = ""
    for how in ways:
        try:
            found = _fewest(ask, parts, eps, how == "cholesky", None if best is None else best[0].rank - 1)
        except Infeasible as reason:
            why = why or str(reason)
            continue
        if best is None or found.rank < best[0].rank:
            best = (found, how)
    return present(best, Infeasible(why or f"eps={eps:.3g} for {ask.text} could not be proved"))


def _fewest(ask: Ask, parts: Parts, eps: float, pivoted: bool, most: int | None) -> Features:
    from attnfun.kinds.relation.build.tensor import ordered_products

    blocks, signs, sigmas = _blocks(ask, parts, eps, pivoted)
    boxes = ((b.low_array, b.high_array) for b in (parts.core.left, parts.core.right))
    everything = Features(tuple(blocks), np.zeros((1, len(blocks)), dtype=np.int64), *boxes)
    weights = {"sup": factor_weights(everything), "sigma": sigmas}
    ban = signs if ask.kernel else None
    orders = {name: ordered_products(own, ban, _MOST_FEATURES) for name, own in weights.items()}
    best: Features | None = None
    top = len(orders["sup"]) if most is None else min(most, len(orders["sup"]))

    def good(order: Any, r: int, kind: str) -> bool:
        features = replace(everything, selection=order[:r])
        try:
            return construction_error(parts, features, (kind,))[0] + rounding(features) <= eps
        except Undecided:
            return False

    for kind, name in (("factors", "sup"), ("diagonal", "sigma"), ("diagonal", "sup"), ("coefficients", "sigma")):
        order = orders[name]
        high = min(top if best is None else best.rank - 1, len(order))
        if high < 1:
            continue
        ask.say(f"fewest features ({kind})")
        if not good(order, high, kind):
            continue
        low, step = 0, high  # low features are not enough
        while high - low > 1:
            middle = (low + high) // 2 if step < 4096 else low + max(1, (high - low) // 8)
            step = high - low
            low, high = (low, middle) if good(order, middle, kind) else (middle, high)
        best = replace(everything, selection=order[:high][::-1])
    if best is None:
        raise Infeasible(f"eps={eps:.3g} for {ask.text}: all {top:,} features together are not proved to reach it")
    return best


def _blocks(ask: Ask, parts: Parts, eps: float, pivoted: bool) -> tuple[list[Block], list[Array] | None, list[Array]]:
    """Blocks of all features of every factor, their signs (symmetric relations), and the sizes |P||Q| of columns."""
    from attnfun.kinds.relation.build.chebyshev import eigen_columns, singular_columns
    from attnfun.kinds.relation.build.cholesky import pivoted_columns

    blocks, signs, sigmas = [], [], []
    asked, single = ask.relation, len(parts.factors) == 1
    for factor, x in zip(parts.factors, parts.expansions, strict=True):
        a = len(factor.left)
        rows, columns = x.table.shape[:a], x.table.shape[a:]
        if asked.symmetric:
            size = tuple(max(p) for p in zip(rows, columns, strict=True))
            C = padded(x.table, size + size).reshape(math.prod(size), math.prod(size))
            if pivoted:
                P = pivoted_columns(C, size)
                sign = np.ones(P.shape[1])
            else:
                P, sign = eigen_columns(C, ask.signed or not single)
            rows = columns = size
            Q = P * sign
        else:
            C = x.table.reshape(math.prod(rows), math.prod(columns))
            P, Q = singular_columns(C)
            sign = np.ones(P.shape[1])
        # columns that all together weigh less than a thousandth of eps need not be stored
        weight = np.abs(P).sum(axis=0) * np.abs(Q).sum(axis=0)
        rest = np.cumsum(weight[::-1])[::-1] * max(1.0, math.prod(e.size for e in parts.expansions if e is not x))
        m = max(1, int(np.count_nonzero(rest > 1e-4 * eps)))
        P, Q, sign = P[:, :m], Q[:, :m], sign[:m]
        other = (None, sign) if asked.symmetric else (Q.reshape(*columns, m), None)
        blocks.append(Block(factor.left, factor.right, P.reshape(*rows, m), *other))
        signs.append(sign)
        norms = np.sqrt((P * P).sum(axis=0)) * np.sqrt((Q * Q).sum(axis=0))
        sigmas.append(np.arange(m, 0, -1, dtype=np.float64) if pivoted and single else norms)
    return blocks, signs if asked.symmetric else None, sigmas
