"""Method *towers*: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| from the stored features and the stored relation alone.

Statement. For stored features, products of factors' functions, and the stored relation, on all of both boxes:
|r − ⟨φ, ψ⟩| is at most E_0 + the least of three bounds (`prove_features`), plus what towers add (`towers`), plus
rounding.

Inner functions u(x), v(y) of a core: where the towers hold networks for them, or where NumPy computes them for features
without towers, `inner` bounds what that adds; else u, v are taken as given, the status is conditional, and the
certificate prints it as a hypothesis.
Failure modes: Undecided for kinks, for more than six variables in one factor, and for tables past memory.
"""

import math
from dataclasses import replace

import numpy as np

from attnfun.certify.rounding import hypotheses as rounding_hypotheses
from attnfun.certify.verdict import Proof
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.relation.core import Core, fitting_core
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.form import Polynomials, Towers
from attnfun.kinds.relation.prove_features import Parts, construction_error, rounding, take_apart
from attnfun.kinds.relation.prove_inner import inner_part, numpy_part
from attnfun.kinds.relation.prove_towers import score_error, tower_errors
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.witness import Seen, bounded, require_one, seen_at, stored_box
from attnfun.search import Say

_U = 2.0**-53
IEEE = rounding_hypotheses("float64", softmax=False)
GIVEN = "the inner functions u(x), v(y) are given exactly: the features are certified as functions of them"
NUMPY = "NumPy's elementary functions err by at most 4 units in the last place (u and v)"
LIBM = "NumPy's elementary functions err by at most 4 units in the last place (values at the nodes)"


def proof(relation: Relation, stored: Polynomials, eps: float | None, say: Say) -> Proof:
    """What is proved of stored features, or of the towers that realise them, left and right.

    Without towers it is about the features computed as polynomials, and says so.
    """
    features, towers = stored.features, stored.towers
    assumed: tuple[str, ...]
    say("coefficients of the relation")
    parts = parts_that_fit(relation, features, eps)
    say("the bound of the features")
    high, method, details = construction_error(parts, features)
    if towers is None:
        loss, assumed = rounding(features), IEEE
        details["features_only"] = True
        try:
            below = numpy_part(relation, parts.core) if parts.core.composed else 0.0
        except Undecided:
            below = math.inf
        if high + loss + below < (math.inf if eps is None else eps * (1 - 8 * _U)) and parts.core.composed:
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
    low, at = witness(relation, parts.core, features, rounding(features))
    given = parts.core.composed and "inner" not in details  # what computing u and v loses is not in the bound
    low = max(0.0, low - (details.get("towers", 0.0) + loss) * (1 + 4 * _U))  # towers may stray so far
    libm = any(e.libm for e in parts.expansions)
    hypotheses = (*assumed, *((GIVEN,) if given else ()), *((LIBM,) if libm else ()))
    if given:
        details["given"] = "u, v"
    return bounded(f"towers ({method})", high, loss, (low, at if low > 0 else None), hypotheses, details, given)


def _tower_parts(features: Features, towers: Towers, core: Core) -> tuple[float, float, tuple[str, ...]]:
    """(what realised towers add, what the inner product loses, hypotheses)."""
    one = features.signs is not None
    if one and towers[0] is not towers[1]:
        raise Undecided("a symmetric relation has one tower: its right side is the left one's, times signs")
    left = tower_errors(features, "left", towers[0], core.left.names)
    right = left if one else tower_errors(features, "right", towers[1], core.right.names)
    carried, inner = score_error(left, right)
    provided(math.isfinite(carried) and math.isfinite(inner), "the errors of the towers are not bounded")
    return carried, inner, rounding_hypotheses("float64", softmax=not towers[0].mlp)


def parts_that_fit(relation: Relation, features: Features, eps: float | None) -> Parts:
    """The relation taken apart as the stored features are; raises Undecided where they are another relation's."""
    core = fitting_core(relation, features.left_box, features.right_box)
    both = zip((core.left, core.right), (features.left_box, features.right_box), strict=True)
    left, right = (stored_box(box, own, core.composed, "features live on") for box, own in both)
    parts = take_apart(relation, 1e-3 * (eps or 1e-6), replace(core, left=left, right=right))
    if [(f.left, f.right) for f in parts.factors] != [(b.left_vars, b.right_vars) for b in features.blocks]:
        raise Undecided("the blocks of the features are not the factors of the relation")
    require_one(relation, features.signs, "features")
    return parts


def witness(relation: Relation, core: Core, features: Features, loss: float) -> Seen:
    """(low, point): a proved lower bound of the error, at a point found by sampling; 0 where u, v are given."""
    if core.composed:
        return 0.0, None
    n = max(64, min(4000, 4_000_000 // features.rank))
    Z = relation.joint.probe(n, np.random.default_rng(0))
    left, right = features.side("left", Z[:, : relation.left.dim]), features.side("right", Z[:, relation.left.dim :])
    return seen_at(relation, Z, np.sum(left * right, axis=1), loss)
