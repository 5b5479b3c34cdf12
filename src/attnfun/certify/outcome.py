"""What a proof method returns."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnfun.certify.view import Array


@dataclass(frozen=True)
class Bound:
    """sup (or L^p norm) of f − net in real arithmetic lies in [low, high]; `witness` is the point behind `low`.

    Where the method proves it by itself, f − net as the dtype computes it is at most high + rounding (and at least
    `firm`, at some point).
    """

    method: str
    low: float
    high: float
    witness: Array | None
    details: Mapping[str, Any] = field(default_factory=dict)
    hypotheses: tuple[str, ...] = ()
    rounding: float = math.inf
    firm: float = 0.0
