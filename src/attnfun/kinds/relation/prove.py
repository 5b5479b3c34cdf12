"""From a relation and stored weights to a proof: every form of weights names its method.

What is measured of a relation by slices: the largest error at fresh points. Status `sampled`, and never a bound.

Points: uniform ones, corners, edges, points where both sides meet, and shrinking random steps from the worst of them;
all from a fixed seed, so a file measured twice gives the same number. A spike between the points is not seen.
Where the truth, enclosed in balls, is further than ε from the score computed at one of the points, ε is refuted.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Array, Undecided, provided
from attnfun.errors import AttnfunError
from attnfun.kinds.relation import prove_cells, prove_expansion, prove_polynomials
from attnfun.kinds.relation.form import Form, Slices
from attnfun.kinds.relation.target import Relation, Sides
from attnfun.kinds.relation.witness import require_one, stored_box, witnessed
from attnfun.language.definedness import require_defined
from attnfun.search import Goal, Say

_POINTS = 20_000
_STARTS = 16
_STEPS = (0.1, 0.03, 0.01, 1e-3, 1e-4)
MEASURED = "the error is measured at finitely many points: it is not a bound"


def measured(relation: Relation, slices: Slices, seed: int, points: int = _POINTS) -> tuple[float, Array, Array, int]:
    """(largest error seen, (starts, left), (starts, right) of the worst points, points tried); NaN is infinite."""
    box, d = relation.joint, relation.left.dim
    rng = np.random.default_rng([seed, 7])
    Z = box.probe(points, rng)
    if d == relation.right.dim:
        close = Z[: points // 4].copy()
        close[:, d:] = np.clip(close[:, :d], relation.right.low_array, relation.right.high_array)
        Z = np.concatenate([Z, close])

    def error(Z: Array) -> Array:
        out = []
        for i in range(0, len(Z), 4000):
            X, Y = Z[i : i + 4000, :d], Z[i : i + 4000, d:]
            with np.errstate(all="ignore"):
                gap = np.abs(np.sum(slices.side("left", X) * slices.side("right", Y), axis=1) - relation.values(X, Y))
            out.append(np.where(np.isnan(gap), np.inf, gap))
        return np.concatenate(out)

    tried = len(Z)
    seen = error(Z)
    top = np.argsort(seen)[-_STARTS:]
    best, size = Z[top], seen[top]
    for step in _STEPS:
        moved = np.repeat(best, 40, axis=0)
        moved = moved + step * (box.high_array - box.low_array) * rng.normal(size=moved.shape)
        moved = np.clip(moved, box.low_array, box.high_array)
        gaps = error(moved)
        tried += len(moved)
        best, size = np.concatenate([best, moved]), np.concatenate([size, gaps])
        top = np.argsort(size)[-_STARTS:]
        best, size = best[top], size[top]
    return float(size.max()), best[:, :d], best[:, d:], tried


def sampled(relation: Relation, slices: Slices, eps: float | None, say: Say) -> Proof:
    """The largest error seen, as a measurement; or the point where it is above eps."""
    say("measuring at fresh points")
    for box, stored in zip(relation.boxes, slices.ends, strict=True):
        stored_box(box, stored, False, "slices lie in")
    provided((relation.left.names, relation.right.names) == slices.names, "the slices are those of other variables")
    require_one(relation, slices.signs, "slices")
    worst, X, Y, tried = measured(relation, slices, 0)
    found = Proof(slices.method, hypotheses=(MEASURED,), details={"points": tried})
    if eps is not None and not worst <= eps:
        Z, scores = np.hstack([X, Y]), np.sum(slices.side("left", X) * slices.side("right", Y), axis=1)
        good = np.isfinite(scores)
        low, at = witnessed(relation.graph, relation.joint.names, Z[good], scores[good])
        reason = f"at a point the error is {worst:.3g}, above eps={eps:.3g}"
        return replace(found, low=low, witness=None if at is None else tuple(at.tolist()), reason=reason)
    provided(math.isfinite(worst), "the score or the relation is not finite at a point")
    reason = f"measured, not proved: the largest error at {tried:,} points is {worst:.3g}"
    return replace(found, high=worst, low=worst, measured=True, reason=reason)


Methods = Mapping[str, Callable[..., Proof]]
_METHODS: Methods = {
    "towers": prove_polynomials.proof,
    "pairs of cells": prove_cells.proof,
    "separable terms": prove_expansion.proof,
    "sampling": sampled,
}


def proof(target: Sides, form: Form, goal: Goal, say: Say, methods: Methods = _METHODS) -> Proof:
    """What is proved of stored weights for a stored relation, which must be defined and continuous on its boxes."""
    method = methods.get(form.method)
    if method is None:
        return undecided("no proof of trained towers is known")
    try:
        require_continuous(target)
        return method(target, form, goal.eps, say)
    except (Undecided, AttnfunError) as why:
        return undecided(why, form.method)


@lru_cache(maxsize=32)
def require_continuous(target: Sides) -> None:
    """Refuse a relation that is not defined on its boxes, or jumps there; looked at once."""
    require_defined(target.graph, target.box)
