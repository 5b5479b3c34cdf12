"""What is measured of a relation by slices: the largest error at fresh points. Status `sampled`, and never a bound.

Points: uniform ones, corners, edges, points where both sides meet, and shrinking random steps from the worst of them;
all from a fixed seed, so a file measured twice gives the same number. A spike between the points is not seen.
Where the truth, enclosed in balls, is further than ε from the score computed at one of the points, ε is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.view import Array
from attnfun.expressions import BallAlgebra, precision, run
from attnfun.expressions.enclosures import abs_lower, arb, point_balls
from attnfun.network.slices import Slices
from attnfun.targets.relation import Relation

_POINTS = 20_000
_STARTS = 16
_STEPS = (0.1, 0.03, 0.01, 1e-3, 1e-4)
MEASURED = "the error is measured at finitely many points: it is no bound"


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


def sampled_certificate(
    relation: Relation,
    slices: Slices,
    eps: float | None = None,
    construction: str = "",
    why: str = "",
    report: Callable[[str], None] | None = None,
) -> Certificate:
    """Status `sampled` with the largest error seen, or `refuted` with the point where it is above eps."""
    (report or (lambda _text: None))("measuring at fresh points")
    fields: dict[str, Any] = {"eps": eps, "norm": math.inf, "dtype": "float64", "target": relation.text}
    fields |= {"construction": construction, "domain": relation.domain_text, "hypotheses": (MEASURED,)}
    for box, stored in ((relation.left, slices.left_box), (relation.right, slices.right_box)):
        if not (np.array_equal(box.low_array, stored[0]) and np.array_equal(box.high_array, stored[1])):
            reason = "the slices lie in another box than the relation"
            return Certificate(Status.UNDECIDED, (0.0, math.inf), method="sampling", reason=reason, **fields)
    if relation.symmetric and slices.signs is None:
        reason = "a symmetric relation was asked for, but the slices have two towers"
        return Certificate(Status.UNDECIDED, (0.0, math.inf), method="sampling", reason=reason, **fields)
    worst, X, Y, tried = measured(relation, slices, 0)
    details = {"points": tried}
    if eps is not None and not worst <= eps:
        sure, at = _witnessed(relation, slices, X, Y)
        status = Status.REFUTED if sure > eps else Status.UNDECIDED
        reason = f"at a point the error is {worst:.3g}, above eps={eps:.3g}"
        where = None if at is None else tuple(float(v) for v in at)
        error = (sure, math.inf)
        return Certificate(status, error, method="sampling", reason=reason, witness=where, details=details, **fields)
    if not math.isfinite(worst):
        reason = "the score or the relation is not finite at a point"
        return Certificate(Status.UNDECIDED, (0.0, math.inf), method="sampling", reason=reason, **fields)
    reason = f"{why + '; ' if why else ''}measured, not proved: the largest error at {tried:,} points is {worst:.3g}"
    return Certificate(Status.SAMPLED, (worst, worst), method="sampling", reason=reason, details=details, **fields)


def _witnessed(relation: Relation, slices: Slices, X: Array, Y: Array) -> tuple[float, Array | None]:
    """The largest |r − score computed| at given points, r enclosed in balls."""
    scores = np.sum(slices.side("left", X) * slices.side("right", Y), axis=1)
    best, at = 0.0, None
    for x, y, score in zip(X, Y, scores, strict=True):
        if not math.isfinite(score):
            continue
        point = np.r_[x, y]
        with precision(128):
            env = {name: point_balls(point[k : k + 1])[0] for k, name in enumerate(relation.joint.names)}
            gap = abs_lower(run(relation.graph, BallAlgebra(clip_sqrt=True), env)[0] - arb(float(score)))
        if gap > best:
            best, at = gap, point
    return best, at
