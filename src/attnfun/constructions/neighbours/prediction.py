"""What is known of a construction before it runs: how far off it is, how sure that is, and how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

THIS_NETWORK = "this network"
OVER_DRAWS = "the mean over draws of the directions"


@dataclass(frozen=True)
class Prediction:
    """`error`: E|target − output|², E|target|² being 1, for independent uniform points on the sphere.

    `of`: what `error` and `accuracy` are about: THIS_NETWORK, or the mean over draws (OVER_DRAWS) of which this network
    is one: its own error is another number, and `Neighbours.measured` samples it.
    `uncertainty`: how far two quadratures, one with twice the nodes, are apart, or a standard error (`how` says which).
    `proved`: an upper bound of the error in real arithmetic, or None. `accuracy`: the probability that the right point
    (the right sign) is the one pointed at; `accuracy_proved`: a lower bound of it, or None.
    """

    error: float | None
    how: str
    uncertainty: float = 0.0
    proved: float | None = None
    accuracy: float | None = None
    accuracy_proved: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    of: str = THIS_NETWORK
