"""What is known of a network that finds neighbours without a proof: what is predicted before it runs (how far off it
is, how sure that is, how it was found), and Monte Carlo of its mean squared error and of how often it is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnfun.errors import intact
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.language.brief import Brief
from attnfun.language.numbers import whole_number
from attnfun.language.target import Array

_BLOCK = 1 << 22  # entries of tokens at a time
THIS_NETWORK = "this network"
OVER_DRAWS = "the mean over draws of the directions"


@dataclass(frozen=True)
class Prediction(Brief):
    """`error`: E|target − output|², E|target|² being 1, for independent uniform points on the sphere.

    `of`: what `error` and `accuracy` are about: THIS_NETWORK, or the mean over draws (OVER_DRAWS) of which this network
    is one: its own error is another number, and `Neighbours.measured` samples it.
    `uncertainty`: how far two quadratures, one with twice the nodes, are apart, or a standard error (`how` says which).
    `proved`: an upper bound of the error in real arithmetic, or None. `accuracy`: the probability that the right point
    (the right sign) is the one pointed at; `accuracy_proved`: a lower bound of it, or None.

    Of a prediction that was read from a file nothing is proved.
    """

    error: float | None
    how: str
    uncertainty: float = 0.0
    proved: float | None = None
    accuracy: float | None = None
    accuracy_proved: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    of: str = THIS_NETWORK

    @classmethod
    def told(cls, data: Any, verified: bool) -> Prediction:
        """What a model's story has of it; where that was read from a file (not `verified`), without what was proved."""
        try:
            made = cls(**dict(data))
            numbers = (made.error, made.uncertainty, made.proved, made.accuracy, made.accuracy_proved)
            good = all(value is None or type(value) in (int, float) for value in numbers) and isinstance(made.how, str)
            good = good and isinstance(made.details, dict) and made.of in (THIS_NETWORK, OVER_DRAWS)
        except (TypeError, ValueError):
            good = False
        intact(good, "what the file says was predicted of its network cannot be read")
        return made if verified else replace(made, proved=None, accuracy_proved=None)


@dataclass(frozen=True)
class Measured(Brief):
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
        seen = (float(figure) for x in (errors, right) for figure in (x.mean(), x.std(ddof=1) / root))
        error, error_se, share, share_se = seen
    return Measured(error, error_se, share, share_se, sets * target.queries, start)


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
