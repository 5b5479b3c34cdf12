"""What is known of a construction before it runs: how far off it is, how sure that is, and how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from attnfun.errors import DamagedFile

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
            good = (
                isinstance(made.how, str) and isinstance(made.details, dict) and made.of in (THIS_NETWORK, OVER_DRAWS)
            )
        except (TypeError, ValueError):
            good = False
        if not (good and all(value is None or type(value) in (int, float) for value in numbers)):
            raise DamagedFile("what the file says was predicted of its network cannot be read")
        return made if verified else replace(made, proved=None, accuracy_proved=None)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "details": dict(self.details)}
