"""`train`: the weights that gradient descent finds in a given architecture, as a model with its fit.

What is descended on is the mean squared error, in units in which inputs and outputs are of size 1. What is returned is
the network whose sup error on the probe was least of all rows of the history, the start among them: training never
returns something worse on the probe than it was given.

A run is a function of (architecture, target, recipe, start) and of the machine: batches are drawn from (seed, step),
rates are functions of the step, torch works on one thread with deterministic algorithms. So a run that was interrupted
and goes on from its checkpoint ends in the same bits as one that was not.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from attnfun.certify.certificate import Certificate, Status
from attnfun.errors import InvalidRequest, require
from attnfun.kinds import find
from attnfun.language.brief import Brief
from attnfun.language.function import Function
from attnfun.language.target import Target
from attnfun.learn.descend import Recipe, one_torch_thread
from attnfun.learn.lesson import Ask, Lesson, Problem
from attnfun.learn.probe import Row, sampled
from attnfun.model import Model
from attnfun.network import Architecture, Network
from attnfun.search import Goal, certified, one_thread

_NEWS, _QUIET = 1.0, 2.0  # seconds between news, and before a bar appears


@dataclass(frozen=True)
class Progress:
    """Where a run is: its step, its last row, and the time that is left by the pace so far. As text, one line."""

    row: Row
    step: int
    total: int
    seconds: float
    left: float

    def __str__(self) -> str:
        left = f", {self.left:.0f} s left" if math.isfinite(self.left) else ""
        at = f"{self.step:,} of {self.total:,} steps"
        return f"{at}, rms {self.row.loss**0.5:.2g}, sup {self.row.sup:.2g}{left}"


@dataclass(frozen=True, eq=False)
class Fit(Brief):
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
    """One run on any problem, inside `one_torch_thread`; news at every row of the history, and once a second."""
    from attnfun.learn.torch_fit import Run

    run = Run.begin(problem, recipe, checkpoint)
    began, first, before, told = time.perf_counter(), run.step, run.seconds, 0.0
    while run.advance():
        spent, row = time.perf_counter() - began, run.history[-1].step == run.step
        if row:
            run.seconds = before + spent
            run.save()
        if progress is not None and (row or spent - told >= _NEWS):
            pace, told = spent / (run.step - first), spent
            progress(Progress(run.history[-1], run.step, run.total, before + spent, pace * (run.total - run.step)))
    run.seconds = before + time.perf_counter() - began
    run.save()
    return Fit(run.best_network(), tuple(run.history), run.best_step, run.step, run.stopped, run.seconds)


@contextmanager
def _bar(began: float) -> Iterator[Callable[[Progress], None] | None]:
    """A bar on stderr, where that is a terminal and more than `_QUIET` seconds have passed; gone afterwards."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    width = 0

    def draw(at: Progress) -> None:
        nonlocal width
        if time.perf_counter() - began > _QUIET:
            done = 20 * at.step // at.total
            text = f"train [{'#' * done}{'.' * (20 - done)}] {at}"
            print(f"\r{text:{width}}", end="", file=sys.stderr, flush=True)
            width = max(width, len(text))

    try:
        yield draw
    finally:
        if width:
            print(f"\r{'':{width}}\r", end="", file=sys.stderr, flush=True)


def train(
    network: Any,
    target: Any = None,
    domain: Any = None,
    *,
    steps: int,
    seed: int = 0,
    start: Any = "random",
    optimiser: str = "adam",
    lr: float = 1e-2,
    schedule: str = "one-cycle",
    batch: int = 512,
    polish: int = 0,
    patience: int | None = None,
    noise: float = 0.0,
    weight_decay: float = 1e-2,
    lipschitz: float | None = None,
    proof: bool = True,
    widths: Sequence[int] | None = None,
    rank: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any:
    """Train all weights of an architecture towards `target` on `domain`; the best network on the probe is returned.

    `network` gives the architecture: one, or a model whose architecture is taken, which brings its target along; a
    `TokenArchitecture` needs a target: a SequenceMap, an InContextTask, a SampledTask or a model on tokens. `widths`
    and `rank` put ReLU towers in the place of a relation's own or of a form. `target` and `domain` are those of
    `compile`, and may be left out where the network or the target has its own. `start`: "random" (by `seed`),
    "constructed" (the weights of `network`) or a network whose weights the architecture holds. `steps` of "adam" or
    "adamw" on fresh batches, then `polish` steps of LBFGS; other options as in `learn.Recipe`. Bounded by steps, never
    by seconds; the same request gives the same bits on one machine. With `checkpoint` an interrupted run goes on where
    it was. `proof=False` leaves the proof out. `progress` is called about a hundred times, and once a
    second, with a `Progress`; without it a run of more than two seconds shows a bar on a terminal.

    The model that comes back is of the kind of its target, with `fit` (history, `fit.sampled`, the recipe). Its
    certificate is `bounded` where the checker could prove a bound for these weights (no eps was asked of them, so none
    is met), else `sampled`: the error at the points that were looked at, which is not a bound.
    """
    began = time.perf_counter()
    recipe = Recipe(steps, seed, optimiser, lr, schedule, batch, polish, patience, noise, weight_decay)
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        raise InvalidRequest(f"checkpoint={checkpoint!r:.40}: the path of a file is needed")
    given = network if isinstance(network, Model) else None
    bare = network if given is None else None
    asked = _target(network, target, domain, lipschitz)
    if isinstance(start, str):
        require(start in ("random", "constructed"), f"start={start!r:.40}: write random, constructed or give a network")
        weighs = isinstance(network, (Model, Network))
        require(start != "constructed" or weighs, "start='constructed' needs weights, not an architecture alone")
    name = start if isinstance(start, str) else "given"
    if start == "constructed":
        start = network
    start = start.weights if isinstance(start, Model) else start
    source = network if given is not None else target if isinstance(target, Model) else None
    ask = Ask(recipe, asked, bare, start, widths, rank, source=source)
    kind = find(asked.kind)
    with one_thread(), one_torch_thread():
        lesson: Lesson = kind.loaded("lesson")(network if given is None else given, ask)
        with _bar(began) if progress is None else nullcontext(progress) as news:
            fit = descended(lesson.problem, recipe, checkpoint, news)
        weights = lesson.weights(fit.network)
        seen = sampled(lesson.target, weights)
        certificate = _certified(lesson.target, weights, seen) if proof else seen
    norm = "sup" if seen.norm != 2 else "mean square"
    request = {"norm": norm, "method": "train", "dtype": weights.dtype, "start": name, "recipe": recipe.to_json()}
    story = {"training": {"steps": fit.steps, "best step": fit.best_step, "stopped": fit.stopped}}
    fit = replace(fit, recipe=recipe, start=name, sampled=seen)
    view: type[Model[Any, Any]] = find(lesson.target.kind).loaded("view")
    return view(lesson.target, weights, certificate, request | dict(lesson.request), story, fit)


def _certified(target: Target, weights: Any, seen: Certificate) -> Certificate:
    """A bound of these weights, or the sampled certificate with the reason why there is none."""
    found = certified(target, weights, Goal(), "learned")
    if found.status is Status.BOUNDED:
        return found
    return replace(seen, reason=f"{seen.reason}; not proved: {found.reason}")


def _target(network: Any, target: Any, domain: Any, lipschitz: float | None) -> Target:
    """What was given, else what the network or the target brings along; a function's text on its box."""
    own, given = getattr(network, "target", None), target.target if isinstance(target, Model) else target
    if isinstance(own, Target):
        return own.aimed(given, domain, lipschitz)
    if isinstance(given, Target):
        return given.aimed(None, domain, lipschitz)
    if not isinstance(network, (Network, Architecture)):
        raise InvalidRequest(
            f"the network is a {type(network).__name__}: nothing in it can be trained towards this target; a network "
            "of `compile`, `train` or the like is needed"
        )
    require(given is not None, "train needs a target: an architecture has none of its own")
    if domain is None:
        if not isinstance(network, Network):
            raise InvalidRequest("train needs a domain, for instance domain='x=-1:1': an architecture has none")
        domain = network.domain
    return Function.on(given, domain, lipschitz)
