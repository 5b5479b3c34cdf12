"""Monte Carlo of a network that finds neighbours: its mean squared error, and how often it is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.language.numbers import whole_number
from attnfun.language.target import Array

_BLOCK = 1 << 22  # entries of tokens at a time


@dataclass(frozen=True)
class Measured:
    """Monte Carlo of the network itself: E|target − output|² and how often it points at the right point, each with its
    standard error over independent sets of points."""

    error: float
    error_se: float
    accuracy: float
    accuracy_se: float
    queries: int
    seed: int


def measured(
    target: PointsOnSphere, weights: Any, n: int, seed: int = 0, progress: Callable[..., None] | None = None
) -> Measured:
    """Run the network on at least `n` queries of independent uniform points."""
    count, start = whole_number("n", n, 2), whole_number("seed", seed, 0)
    sets = max(2, -(-count // target.queries))
    rng = np.random.default_rng([start, 7])
    step = max(1, min(sets, _BLOCK // (8 * target.points * max(weights.width, target.points))))
    errors, right = np.empty(sets), np.empty(sets)
    for k in range(0, sets, step):
        (points,) = target.draw(rng, min(step, sets - k))
        errors[k : k + step], right[k : k + step] = _judged(target, weights, points)
        if progress is not None:
            progress(min(1.0, (k + step) / sets))
    root = math.sqrt(sets)
    with np.errstate(invalid="ignore"):  # infinite errors have no spread
        return Measured(
            error=float(errors.mean()),
            error_se=float(errors.std(ddof=1) / root),
            accuracy=float(right.mean()),
            accuracy_se=float(right.std(ddof=1) / root),
            queries=sets * target.queries,
            seed=start,
        )


def _judged(target: PointsOnSphere, weights: Any, points: Array) -> tuple[Array, Array]:
    """Per set of points: mean squared error and share of right answers."""
    arrays, how = target.encode(weights, points)
    with np.errstate(all="ignore"):
        out, goal = target.decode(weights.run(*arrays), how), target.exact(points)
        if target.bias is not None:
            return (out - goal) ** 2, (np.sign(out) == goal).astype(np.float64)
        wide, wanted = out.reshape(len(points), -1, target.dim), goal.reshape(len(points), -1, target.dim)
        errors = np.sum((wide - wanted) ** 2, axis=2).mean(axis=1)
        closeness = wide @ np.swapaxes(points if target.every else points[:, :-1], 1, 2)
    if target.every:
        at = np.arange(target.points)
        closeness[:, at, at] = -np.inf
    return errors, (closeness.argmax(axis=2) == target.chosen(points)).mean(axis=1)
