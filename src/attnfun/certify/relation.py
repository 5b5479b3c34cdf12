"""Method *towers*: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| from the stored features and the stored relation alone.

Statement. For stored features, products of factors' functions, and the stored relation, on all of both boxes:
|r − ⟨φ, ψ⟩| is at most E_0 + the least of three bounds (`relation_features`), plus what towers add (`towers`), plus
rounding.

Inner functions u(x), v(y) of a core: where the towers hold networks for them, or where NumPy computes them for features
without towers, `inner` bounds what that adds; else u, v are taken as given, the status is conditional, and the
certificate prints it as a hypothesis.
Failure modes: Undecided for kinks, for more than six variables in one factor, and for tables past memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.inner import inner_part, numpy_part
from attnfun.certify.relation_features import Parts, construction_error, rounding, take_apart
from attnfun.certify.rounding import hypotheses as rounding_hypotheses
from attnfun.certify.towers import score_error, tower_errors
from attnfun.certify.verdict import above, status_of
from attnfun.certify.view import Array, Undecided
from attnfun.expressions import BallAlgebra, precision, run
from attnfun.expressions.enclosures import abs_lower, arb, point_balls
from attnfun.network.features import Features
from attnfun.network.towers import TowerWeights
from attnfun.targets import Box
from attnfun.targets.relation import Relation
from attnfun.targets.relation_core import Core, core_of, plain_core

_U = 2.0**-53
IEEE = rounding_hypotheses("float64", softmax=False)
GIVEN = "the inner functions u(x), v(y) are given exactly: the features are certified as functions of them"
NUMPY = "NumPy's elementary functions err by at most 4 units in the last place (u and v)"
LIBM = "NumPy's elementary functions err by at most 4 units in the last place (values at the nodes)"


def prove_by_relation(
    relation: Relation,
    features: Features,
    eps: float | None = None,
    construction: str = "",
    report: Callable[[str], None] | None = None,
    parts: Parts | None = None,
    towers: tuple[TowerWeights, TowerWeights] | None = None,
) -> Certificate:
    """The certificate of stored features, or of the `towers` that realise them, left and right.

    `parts` are those of this relation if the caller has them already. Without towers it is about the features computed
    as polynomials, and says so.
    """
    say = report or (lambda _text: None)
    fields: dict[str, Any] = {"eps": eps, "norm": math.inf, "dtype": "float64", "target": relation.text}
    fields["construction"] = construction
    assumed: tuple[str, ...]
    try:
        say("coefficients of the relation")
        parts = parts or _fitting(relation, features, eps)
        _require_fit(relation, features, parts)
        say("the bound of the features")
        high, method, details = construction_error(parts, features)
        if towers is None:
            loss, assumed = rounding(features), IEEE
            details["features_only"] = True
            below = _numpy(relation, parts)
            if high + loss + below < (math.inf if eps is None else eps * (1 - 8 * _U)) and parts.given:
                details["inner"] = below
                high, assumed = (high + below) * (1 + 4 * _U), (*IEEE, NUMPY)
        else:
            say("the bound of the towers")
            carried, loss, assumed = _tower_parts(features, towers, parts.core)
            details["features"], details["towers"] = high, carried
            high = (high + carried) * (1 + 4 * _U)
            if any(tower.inner is not None for tower in towers):
                say("the bound of the inner networks")
                below, further = inner_part(relation, features, towers, parts.core, say)
                details["inner"] = below
                high, assumed = (high + below) * (1 + 4 * _U), tuple(dict.fromkeys((*assumed, *further)))
    except Undecided as why:
        return Certificate(
            Status.UNDECIDED, (0.0, math.inf), method="towers", domain=relation.domain_text, reason=str(why), **fields
        )
    total = math.nextafter(high + loss, math.inf) if high + loss < math.inf else math.inf
    low, at = witness(relation, parts.core, features, rounding(features))
    given = parts.given and "inner" not in details
    low = max(0.0, min(low - (details.get("towers", 0.0) + loss) * (1 + 4 * _U), total))  # towers may stray so far
    at = at if low > 0 else None
    libm = any(e.libm for e in parts.expansions)
    hypotheses = (*assumed, *((GIVEN,) if given else ()), *((LIBM,) if libm else ()))
    status = status_of(total, eps, low, conditional=given)  # what computing u and v loses is not in the bound
    reason = above(total, eps) if status in (Status.REFUTED, Status.UNDECIDED) else None
    if given:
        details["given"] = "u, v"
    return Certificate(
        status,
        (low, total),
        method=f"towers ({method})",
        domain=relation.domain_text,
        parts={"construction": high, "rounding": loss},
        hypotheses=hypotheses,
        witness=None if at is None else tuple(float(v) for v in at),
        reason=reason,
        details=details,
        **fields,
    )


def _tower_parts(
    features: Features, towers: tuple[TowerWeights, TowerWeights], core: Core
) -> tuple[float, float, tuple[str, ...]]:
    """(what realised towers add, what the inner product loses, hypotheses)."""
    one = features.signs is not None
    if one and towers[0] is not towers[1]:
        raise Undecided("a symmetric relation has one tower: its right side is the left one's, times signs")
    left = tower_errors(features, "left", towers[0], core.left.names)
    right = left if one else tower_errors(features, "right", towers[1], core.right.names)
    carried, inner = score_error(left[:2], right[:2])
    if not (math.isfinite(carried) and math.isfinite(inner)):
        raise Undecided("the errors of the towers are not bounded")
    return carried, inner, rounding_hypotheses("float64", softmax=not towers[0].mlp)


def parts_that_fit(relation: Relation, features: Features, eps: float | None) -> Parts:
    """The relation taken apart as the stored features are; raises Undecided where they are another relation's."""
    parts = _fitting(relation, features, eps)
    _require_fit(relation, features, parts)
    return parts


def _numpy(relation: Relation, parts: Parts) -> float:
    """`numpy_part`, infinite where it is not bounded."""
    try:
        return numpy_part(relation, parts.core) if parts.given else 0.0
    except Undecided:
        return math.inf


def _fitting(relation: Relation, features: Features, eps: float | None) -> Parts:
    """The relation taken apart as the features are: by its core if they are functions of u and v, else plainly."""
    core = core_that_fits(relation, features)
    whole = Core(
        core.graph,
        _stretched(core.left, features.left_box, core.left_inner is not None),
        _stretched(core.right, features.right_box, core.right_inner is not None),
        core.left_inner,
        core.right_inner,
        core.left_range,
        core.right_range,
    )
    return take_apart(relation, 1e-3 * (eps or 1e-6), whole)


def core_that_fits(relation: Relation, features: Features) -> Core:
    """The relation's core if the features are functions of its u and v, else the relation as it is."""
    core = core_of(relation)
    same = (len(features.left_box[0]), len(features.right_box[0])) == (core.left.dim, core.right.dim)
    return core if same else plain_core(relation)


def _stretched(box: Box, stored: tuple[Array, Array], inner: bool) -> Box:
    """The box that the features live on: it must hold the proved ranges of inner functions, and equal other boxes."""
    if len(stored[0]) != box.dim or not ((stored[0] <= box.low_array) & (stored[1] >= box.high_array)).all():
        raise Undecided("the features live on another box than the relation")
    if not inner and not (np.array_equal(stored[0], box.low_array) and np.array_equal(stored[1], box.high_array)):
        raise Undecided("the features live on another box than the relation")
    return Box(box.names, tuple(stored[0].tolist()), tuple(stored[1].tolist()))


def _require_fit(relation: Relation, features: Features, parts: Parts) -> None:
    """Do the blocks hold the variables of the factors, on the core's boxes, and one tower where one was asked for?"""
    mine = [(f.left, f.right) for f in parts.factors]
    if mine != [(b.left_vars, b.right_vars) for b in features.blocks]:
        raise Undecided("the blocks of the features are not the factors of the relation")
    for box, stored in ((parts.core.left, features.left_box), (parts.core.right, features.right_box)):
        if not (np.array_equal(box.low_array, stored[0]) and np.array_equal(box.high_array, stored[1])):
            raise Undecided("the features live on another box than the relation")
    if relation.symmetric and features.signs is None:
        raise Undecided("a symmetric relation was asked for, but the features have two towers")


def core_points(core: Core, side: str, points: Array, names: tuple[str, ...]) -> Array:
    """(n, variables) → (n, variables of the core): the inner functions, as NumPy computes them."""
    inner = core.left_inner if side == "left" else core.right_inner
    if inner is None:
        return points
    from attnfun.expressions import ArrayAlgebra

    with np.errstate(all="ignore"):
        out = run(inner, ArrayAlgebra(), {n: points[:, k] for k, n in enumerate(names)})
    return np.stack([np.broadcast_to(np.asarray(c, dtype=np.float64), (len(points),)) for c in out], axis=1)


def scores(relation: Relation, core: Core, features: Features, X: Array, Y: Array) -> Array:
    """(n,) ⟨φ(X_i), ψ(Y_i)⟩ in float64."""
    left = features.side("left", core_points(core, "left", X, relation.left.names))
    right = features.side("right", core_points(core, "right", Y, relation.right.names))
    return np.asarray(np.sum(left * right, axis=1))


def witness(relation: Relation, core: Core, features: Features, loss: float) -> tuple[float, Array | None]:
    """(low, point): a proved lower bound of the error, at a point found by sampling; 0 where u, v are given."""
    if core.left_inner is not None or core.right_inner is not None:
        return 0.0, None
    n = max(64, min(4000, 4_000_000 // features.rank))
    Z = relation.joint.probe(n, np.random.default_rng(0))
    X, Y = Z[:, : relation.left.dim], Z[:, relation.left.dim :]
    seen = scores(relation, core, features, X, Y)
    error = np.abs(seen - relation.values(X, Y))
    best, at = 0.0, None
    for i in np.argsort(np.where(np.isfinite(error), error, -1))[-2:]:
        with precision(128):
            env = {name: point_balls(Z[i : i + 1, k])[0] for k, name in enumerate(relation.joint.names)}
            value = run(relation.graph, BallAlgebra(), env)[0]
            gap = abs_lower(value - arb(float(seen[i]))) - loss
        if gap > best:
            best, at = math.nextafter(gap, 0.0), Z[i]
    return best, at
