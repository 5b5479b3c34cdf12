"""What is known of a construction before it runs: how far off it is, how sure that is, and how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

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

    Of a prediction that was read from a file nothing is proved: `claimed` is then what the file says was.
    """

    error: float | None
    how: str
    uncertainty: float = 0.0
    proved: float | None = None
    accuracy: float | None = None
    accuracy_proved: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    of: str = THIS_NETWORK
    claimed: Mapping[str, float | None] | None = None

    def to_file(self) -> dict[str, Any]:
        """What a file keeps; `stored` reads it back."""
        own = {**asdict(self), "details": dict(self.details), **(self.claimed or {})}
        return {name: value for name, value in own.items() if name != "claimed"}

    @classmethod
    def stored(cls, data: Any) -> Prediction:
        """What `to_file` gave, as stored: TypeError or ValueError for anything else."""
        made = cls(**dict(data))
        numbers = (made.error, made.uncertainty, made.proved, made.accuracy, made.accuracy_proved)
        if made.claimed is not None or not isinstance(made.how, str) or not isinstance(made.details, dict):
            raise ValueError("no stored prediction")
        if made.of not in (THIS_NETWORK, OVER_DRAWS):
            raise ValueError("it is not said what the figures are of")
        if not all(value is None or type(value) in (int, float) for value in numbers):
            raise ValueError("a figure that is no number")
        claimed = {"proved": made.proved, "accuracy_proved": made.accuracy_proved}
        return replace(made, proved=None, accuracy_proved=None, claimed=claimed)
