"""What the proofs of relations have in common: whose weights these are, an error that was seen, in balls, the bound."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from attnfun.certify.verdict import Proof
from attnfun.certify.view import Array, provided
from attnfun.kinds.relation.features import Ends
from attnfun.kinds.relation.target import Relation, Sides
from attnfun.language import BallAlgebra, Box, Graph, precision, run
from attnfun.language.enclosures import abs_lower, arb, point_balls

Seen = tuple[float, Array | None]


def require_one(relation: Relation, signs: object, what: str) -> None:
    """Undecided where one tower was asked for and the weights are two."""
    provided(not relation.symmetric or signs is not None, f"a symmetric relation has one tower, and the {what} two")


def stored_box(box: Box, stored: Ends, wider: bool, what: str) -> Box:
    """The box of the weights: that of the relation, or if it may be `wider` one that holds it; raises Undecided."""
    same = np.array_equal(box.low_array, stored[0]) and np.array_equal(box.high_array, stored[1])
    holds = len(stored[0]) == box.dim and bool(((stored[0] <= box.low_array) & (stored[1] >= box.high_array)).all())
    provided(same or (wider and holds), f"the {what} another box than the relation")
    return Box(box.names, tuple(stored[0].tolist()), tuple(stored[1].tolist()))


def seen_at(target: Sides, Z: Array, scores: Array, loss: float) -> Seen:
    """`witnessed` at the two of the points (n, variables) at which the scores, as computed, are furthest off."""
    error = np.abs(scores - target.at(Z))
    top = np.argsort(np.where(np.isfinite(error), error, -1))[-2:]
    return witnessed(target.graph, target.box.names, Z[top], scores[top], loss)


def witnessed(graph: Graph, names: tuple[str, ...], points: Array, scores: Iterable[Any], loss: float = 0.0) -> Seen:
    """(low, point): a proved lower bound of |graph − score| − `loss` at one of the points (n, variables)."""
    best, at = 0.0, None
    for point, score in zip(points, scores, strict=True):
        with precision(128):
            env = {name: point_balls(point[k : k + 1])[0] for k, name in enumerate(names)}
            value = run(graph, BallAlgebra(clip_sqrt=True), env)[0]
            gap = abs_lower(value - (score if isinstance(score, arb) else arb(float(score)))) - loss
        if gap > best:
            best, at = math.nextafter(gap, 0.0), point
    return best, at


def bounded(
    method: str, high: float, loss: float, seen: Seen, assumed: tuple[str, ...], details: Any, conditional: bool = False
) -> Proof:
    """The proof of `high` for the construction and `loss` for its rounding, with what was seen."""
    total = math.nextafter(high + loss, math.inf) if high + loss < math.inf else math.inf
    low, at = min(seen[0], total), seen[1]
    where = None if at is None else tuple(float(v) for v in at)
    parts = {"construction": high, "rounding": loss}
    return Proof(method, total, low, None, parts, assumed, where, details, conditional)
