"""One training run, from a start to the best network it met.

What is descended on is the mean squared error, in units in which inputs and outputs are of size 1. What is returned is
the network whose sup error on the probe was least of all rows of the history, the start among them: training never
returns something worse on the probe than it was given.

A run is a function of (architecture, target, recipe, start) and of the machine: batches are drawn from (seed, step),
rates are functions of the step, torch works on one thread with deterministic algorithms. So a run that was interrupted
and goes on from its checkpoint ends in the same bits as one that was not.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnfun.certify.certificate import Certificate
from attnfun.learn.lesson import Problem
from attnfun.learn.probe import Row
from attnfun.learn.recipe import Recipe


@dataclass(frozen=True)
class Progress:
    """Where a run is: its last row, and the time that is left by the pace so far. As text, one line."""

    row: Row
    total: int
    seconds: float
    left: float

    def __str__(self) -> str:
        left = f", {self.left:.0f} s left" if math.isfinite(self.left) else ""
        at = f"{self.row.step:,} of {self.total:,} steps"
        return f"{at}, rms {self.row.loss**0.5:.2g}, sup {self.row.sup:.2g}{left}"


@dataclass(frozen=True, eq=False)
class Fit:
    """`network` has the least sup error on the probe of all rows of `history`; it is that of step `best_step`.

    Of networks whose error is a mean (points on a sphere) or that decide (matches, the best key) it has the least mean
    squared error.

    `steps` counts both parts; `stopped` is "steps", "patience" or "diverged" (weights or errors that are not finite).
    `seconds` is the time spent, earlier parts of an interrupted run included. `recipe`, `start` (random, constructed or
    given) and `sampled` (the largest error at fresh points: not a bound) are there once `train` has returned it.
    """

    network: Any
    history: tuple[Row, ...]
    best_step: int
    steps: int
    stopped: str
    seconds: float
    recipe: Recipe | None = None
    start: str = ""
    sampled: Certificate | None = None


def descended(
    problem: Problem,
    recipe: Recipe,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Fit:
    """One run on any problem, inside `one_torch_thread`."""
    from attnfun.learn.torch_fit import Run

    run = Run.begin(problem, recipe, checkpoint)
    began, first, before = time.perf_counter(), run.step, run.seconds
    while run.advance():
        if run.history[-1].step != run.step:
            continue
        spent = time.perf_counter() - began
        run.seconds = before + spent
        run.save()
        if progress is not None:
            done, left = run.step - first, run.total - run.step
            progress(Progress(run.history[-1], run.total, run.seconds, spent / done * left if done else math.inf))
    run.seconds = before + time.perf_counter() - began
    run.save()
    best = run.best_network()
    return Fit(best, tuple(run.history), run.best_step, run.step, run.stopped, run.seconds)
