"""Recipe: everything that decides a training run but the architecture, the target and the start."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.language.numbers import positive, whole_number

OPTIMISERS = ("adam", "adamw")
SCHEDULES = ("one-cycle", "constant", "linear", "cosine")
_WARM, _FIRST, _LAST = 0.3, 1 / 25, 1e-5  # share of the steps that rise; rates at both ends, as parts of lr


@dataclass(frozen=True)
class Recipe:
    """How to train; bounded by steps, never by seconds, so that a slow machine gets the same weights.

    `steps` of `optimiser` at the rate `lr` (the largest of a one-cycle), on `batch` fresh uniform points each; then
    `polish` steps of LBFGS on one fixed sample. `patience`: the first part ends when so many steps have not lowered the
    sup error on the probe. `noise`: standard deviation of noise on the inputs, in half-widths of the box; the target is
    that of the point without noise. `weight_decay` is AdamW's.
    """

    steps: int
    seed: int = 0
    optimiser: str = "adam"
    lr: float = 1e-2
    schedule: str = "one-cycle"
    batch: int = 512
    polish: int = 0
    patience: int | None = None
    noise: float = 0.0
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        whole = {"steps": 0, "seed": 0, "batch": 1, "polish": 0} | ({} if self.patience is None else {"patience": 1})
        for name, least in whole.items():
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, 2**53 - 1))
        for name in ("lr", "noise", "weight_decay"):
            value = getattr(self, name)
            zero = name != "lr" and isinstance(value, (int, float)) and value is not False and value == 0
            object.__setattr__(self, name, 0.0 if zero else positive(name, value))
        for name, known in (("optimiser", OPTIMISERS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in known:
                raise InvalidRequest(f"{name}={getattr(self, name)!r:.30}: write {' or '.join(known)}")

    def rate(self, step: int) -> float:
        """The rate of step `step`, counted from 0: a function of the step alone, so that nothing need be stored."""
        return rate_at(self.schedule, self.lr, step, self.steps)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rate_at(schedule: str, lr: float, step: int, steps: int, warm: float = _WARM) -> float:
    """The rate of step `step` of `steps`, counted from 0; "linear" and "cosine" fall from lr towards 0.

    `warm`: the share of the steps in which a one-cycle rises.
    """
    if schedule == "constant" or steps < 2:
        return lr
    if schedule == "linear":
        return lr * (1 - step / steps)
    if schedule == "cosine":
        return lr * _between(1.0, 0.0, step / steps)
    t = step / (steps - 1)
    if t < warm:
        return lr * _between(_FIRST, 1.0, t / warm)
    return lr * _between(1.0, _LAST, (t - warm) / (1 - warm))


def _between(start: float, end: float, t: float) -> float:
    """From start (t = 0) to end (t = 1) along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * t)) / 2
