"""What the proofs of relations have in common: an error that was seen, in balls, and the bound as a `Proof`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attnfun.certify.verdict import Proof
from attnfun.certify.view import Array
from attnfun.language import BallAlgebra, Graph, precision, run
from attnfun.language.enclosures import abs_lower, arb, point_balls

Seen = tuple[float, Array | None]


def worst_rows(error: Array, count: int) -> Any:
    """The places of the largest errors; what is not finite is not one."""
    return np.argsort(np.where(np.isfinite(error), error, -1))[-count:]


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
    method: str,
    high: float,
    loss: float,
    seen: Seen,
    hypotheses: tuple[str, ...],
    details: Mapping[str, Any],
    conditional: bool = False,
) -> Proof:
    """The proof of `high` for the construction and `loss` for its rounding, with what was seen."""
    total = math.nextafter(high + loss, math.inf) if high + loss < math.inf else math.inf
    low, at = min(seen[0], total), seen[1]
    where = None if at is None else tuple(float(v) for v in at)
    parts = {"construction": high, "rounding": loss}
    return Proof(method, total, low, None, parts, hypotheses, where, details, conditional)
