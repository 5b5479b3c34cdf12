"""Descent on any loss: a small loop for models that are no Network. Torch is imported when a function is called.

    with one_torch_thread():
        losses = descend(model.parameters(), lambda step: loss_of(batch(step)), steps=2000, lr=1e-2)

Deterministic where `loss` is a function of the step and the parameters: draw batches from `generator(seed, step)`.

Recipe: everything that decides a training run but the architecture, the target and the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.errors import AttnfunError, require
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
            require(getattr(self, name) in known, f"{name}={getattr(self, name)!r:.30}: write {' or '.join(known)}")

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


if TYPE_CHECKING:
    import torch

_REPORTS = 100


def require_torch() -> Any:
    """The module torch, or one sentence that says how to install it."""
    try:
        import torch
    except ImportError as error:
        raise AttnfunError("training needs torch, which is not installed: pip install torch") from error
    return torch


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """One thread and deterministic algorithms inside, whatever was set before outside: the same seed, the same bits."""
    torch = require_torch()
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a check of torch itself, which fills what is new
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict)
        torch.utils.deterministic.fill_uninitialized_memory = filled


def generator(seed: int, *stream: int) -> torch.Generator:
    """A generator for each (seed, stream…); different numbers give independent ones, `generator(0, 1)` ≠ `(1, 0)`."""
    path = [len(stream), seed, *stream]  # zeros at the end alone would make no difference
    state = np.random.SeedSequence(path).generate_state(1, np.uint64)[0]
    made = require_torch().Generator(device="cpu")
    made.manual_seed(int(state) >> 1)
    return made


def optimiser_of(
    parameters: Iterable[torch.Tensor],
    optimiser: str,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
) -> torch.optim.Optimizer:
    """Adam (which has no decay) or AdamW (which has)."""
    torch = require_torch()
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    decay = weight_decay if optimiser == "adamw" else 0.0
    return kinds[optimiser](list(parameters), lr=lr, betas=betas, weight_decay=decay)


def lbfgs(parameters: Iterable[torch.Tensor], steps: int, evaluations: int) -> torch.optim.LBFGS:
    """LBFGS whose call makes so many steps, with as many evaluations at the most; no tolerance ends it early."""
    fixed = {"tolerance_grad": 0.0, "tolerance_change": 0.0, "history_size": 50, "line_search_fn": "strong_wolfe"}
    kind = require_torch().optim.LBFGS
    return kind(list(parameters), max_iter=steps, max_eval=evaluations, **fixed)


def descend(
    parameters: Iterable[torch.Tensor],
    loss: Callable[[int], torch.Tensor],
    *,
    steps: int,
    lr: float,
    schedule: str = "one-cycle",
    optimiser: str = "adam",
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 1e-2,
    warm: float = 0.3,
    report: Callable[[int, float], None] | None = None,
) -> list[float]:
    """The losses of `steps` steps on `loss(step)`, each taken before its update; `parameters` are changed in place.

    `schedule`: "one-cycle", "constant", "linear" or "cosine" (both to 0), with `lr` its largest rate; a one-cycle rises
    for the share `warm` of the steps. `weight_decay` is AdamW's. `report(step, loss)` is called about a hundred times.
    A loss that is not finite ends the descent: it is the last of the list, no update follows it, and the list is
    shorter than `steps`.
    """
    Recipe(steps, optimiser=optimiser, lr=lr, schedule=schedule)  # refuses what is none
    require(0 <= warm < 1, f"warm={warm!r:.30}: a share of the steps, from 0 to below 1")
    stepper, losses = optimiser_of(parameters, optimiser, lr, betas, weight_decay), list[float]()
    for step in range(steps):
        for group in stepper.param_groups:
            group["lr"] = rate_at(schedule, lr, step, steps, warm)
        stepper.zero_grad()
        value = loss(step)
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]):
            break
        value.backward()
        stepper.step()
        if report is not None and ((step + 1) % max(1, steps // _REPORTS) == 0 or step + 1 == steps):
            report(step + 1, losses[-1])
    return losses


def polished(parameters: Iterable[torch.Tensor], loss: Callable[[], torch.Tensor], steps: int) -> None:
    """`steps` steps of LBFGS on a loss that draws nothing, at most twice as many evaluations; changed in place."""
    advance(lbfgs(parameters, steps, 2 * steps), loss)


def advance(stepper: Any, loss: Callable[[], torch.Tensor]) -> None:
    """One call of an optimiser that asks for the loss and its gradient as often as it likes."""

    def closure() -> torch.Tensor:
        stepper.zero_grad()
        value = loss()
        value.backward()
        return value

    stepper.step(closure)
