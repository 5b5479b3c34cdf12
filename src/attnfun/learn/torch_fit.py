"""The steps of a run; importing this file imports torch.

A `Run` is the only mutable thing in this folder. Its phases follow each other: "gradient" (Adam or AdamW on fresh
batches), "polish" (LBFGS on one fixed sample, from the best weights so far), "done".

A checkpoint is the state of a run as one sealed safetensors file (`network/sealed.py`), never a pickle:

| part | what |
| --- | --- |
| run | sha256 of architecture, target, its values on the probe, domain, recipe and start: another run is refused |
| place | JSON: step, phase, best so far, history, seconds, and the optimiser's state with its tensors taken out |
| tensors | the weights, the best weights, and the tensors of the optimiser by number |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.learn.descend import Recipe, advance, lbfgs, optimiser_of
from attnfun.learn.lesson import Problem
from attnfun.learn.probe import Row
from attnfun.network import sealed
from attnfun.network.head import AnyArray, Array

_ROWS = 100
_POLISHED = 2048  # points of the fixed sample, or four batches if that is more
_BATCHES, _SAMPLE = 1, 2  # streams of random numbers; 0 is that of the start
FORMAT = "training 1"
_OWN = ("format", "dtype", "run", "place")
_STATE = ("phase", "step", "polished", "best_step", "stopped", "seconds")


@dataclass(eq=False)
class Run:
    """One run; `advance` makes the next step and a row of the history where one is due."""

    problem: Problem
    recipe: Recipe
    path: str | os.PathLike[str] | None
    name: str
    theta: Tensor
    best: Array
    phase: str = "gradient"
    step: int = 0
    polished: int = 0
    best_step: int = 0
    stopped: str = "steps"
    seconds: float = 0.0
    history: list[Row] = field(default_factory=list)
    optimiser: Any = None
    sample: tuple[Tensor, Tensor] | None = None

    @classmethod
    def begin(cls, problem: Problem, recipe: Recipe, path: str | os.PathLike[str] | None) -> Run:
        """From the start, or from the checkpoint of this very run."""
        name = "" if path is None else sealed.digest_of({**problem.identity(), "recipe": recipe.to_json()})
        found = None if path is None or not Path(path).exists() else read_checkpoint(path, name)
        vector = problem.start() if found is None else found[1]["weights"]
        dtype = getattr(torch, problem.dtype)
        theta = torch.tensor(np.array(vector), dtype=dtype, device="cpu", requires_grad=True)
        best = theta.detach().numpy().copy()
        run = cls(problem, recipe, path, name, theta, best)
        if found is None:
            run._enter("gradient")
            run.history.append(problem.measure(problem.network(None), 0, "gradient"))
        else:
            run._resume(*found)
        return run

    @property
    def total(self) -> int:
        """The most steps that this run will have made."""
        return (self.recipe.steps if self.phase == "gradient" else self.step - self.polished) + self.recipe.polish

    def best_network(self) -> Any:
        return self.problem.network(None if self.best_step == 0 else self.best.astype(np.float64))

    def advance(self) -> bool:
        """One step; False when there is none to make."""
        if self.phase == "gradient" and (self.step >= self.recipe.steps or self._impatient()):
            self._enter("polish")
        if self.phase == "polish" and self.polished >= self.recipe.polish:
            self._enter("done")
        if self.phase == "done":
            return False
        if self.phase == "gradient":
            self._descend()
        else:
            self._polish()
        self.step += 1
        last = self.step == self.total
        if last or self.step % max(1, (self.recipe.steps + self.recipe.polish) // _ROWS) == 0:
            self._look()
        return True

    def _enter(self, phase: str) -> None:
        self.phase, r = phase, self.recipe
        if phase == "gradient":
            self.optimiser = optimiser_of([self.theta], r.optimiser, r.lr, weight_decay=r.weight_decay)
        elif phase == "polish":
            with torch.no_grad():
                self.theta.copy_(torch.from_numpy(self.best))
            self.optimiser = lbfgs([self.theta], 1, 25)
        else:
            self.optimiser = None

    def _impatient(self) -> bool:
        patience = self.recipe.patience
        if patience is None or self.step - self.best_step < patience:
            return False
        self.stopped = "patience"
        return True

    def _descend(self) -> None:
        r = self.recipe
        t, y = self.problem.batch(np.random.default_rng([r.seed, _BATCHES, self.step]), r.batch, r.noise)
        for group in self.optimiser.param_groups:
            group["lr"] = r.rate(self.step)
        self.optimiser.zero_grad()
        if len(t):
            self.problem.loss(self.theta, t, y).backward()
            self.optimiser.step()

    def _polish(self) -> None:
        if self.sample is None:
            rng = np.random.default_rng([self.recipe.seed, _SAMPLE])
            self.sample = self.problem.sample(rng, max(_POLISHED, 4 * self.recipe.batch))
        t, y = self.sample
        if len(t):
            advance(self.optimiser, lambda: self.problem.loss(self.theta, t, y))
        self.polished += 1

    def _look(self) -> None:
        """A row of the history; the end of the run where weights or errors are not finite."""
        vector = self.theta.detach().numpy().copy()
        try:
            row = self.problem.measure(self.problem.network(vector.astype(np.float64)), self.step, self.phase)
        except InvalidRequest:
            row = None
        if row is None or not row.finite:
            self.stopped = "diverged"
            self._enter("done")
            return
        if self._judged(row) < min(self._judged(old) for old in self.history):
            self.best, self.best_step = vector, self.step
        self.history.append(row)

    def _judged(self, row: Row) -> float:
        return float(getattr(row, self.problem.chosen_by))

    def save(self) -> None:
        if self.path is None:
            return
        tensors: dict[str, AnyArray] = {"weights": self.theta.detach().numpy().copy(), "best": self.best}
        state = None if self.optimiser is None else _packed(self.optimiser.state_dict()["state"], tensors)
        place = {key: getattr(self, key) for key in _STATE}
        place |= {"history": [asdict(row) for row in self.history], "optimiser": state}
        structure = {"format": FORMAT, "dtype": self.problem.dtype, "run": self.name, "place": place}
        sealed.write(self.path, structure, tensors, {})

    def _resume(self, place: dict[str, Any], tensors: dict[str, AnyArray]) -> None:
        self._enter(place["phase"])
        with torch.no_grad():
            self.theta.copy_(torch.from_numpy(tensors["weights"].copy()))
        self.best = tensors["best"].copy()
        for name in _STATE:
            setattr(self, name, place[name])
        self.history = [Row(**row) for row in place["history"]]
        if self.optimiser is not None:
            fresh = self.optimiser.state_dict()
            self.optimiser.load_state_dict({**fresh, "state": _unpacked(place["optimiser"], tensors)})


def read_checkpoint(path: str | os.PathLike[str], run: str) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """(place, tensors) of the run; InvalidRequest for the checkpoint of another run."""

    def build(own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        return {key: own[key] for key in _OWN}, dict(tensors)

    (own, tensors), _ = sealed.load(path, FORMAT, _OWN, (), build, lambda built: built)
    if own["run"] != run:
        raise InvalidRequest(
            f"{os.fspath(path)} is the checkpoint of another run (other network, target, domain, options or start); "
            "name another file, or remove this one"
        )
    return own["place"], tensors


def _packed(value: Any, tensors: dict[str, AnyArray]) -> Any:
    """JSON for nested dictionaries and lists of numbers and tensors, the tensors put aside by number."""
    if isinstance(value, Tensor):
        name = f"optimiser/{len(tensors)}"
        tensors[name] = value.detach().numpy().copy()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"pairs": [[key, _packed(item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_packed(item, tensors) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise AssertionError(f"the state of an optimiser holds a {type(value).__name__}")


def _unpacked(value: Any, tensors: dict[str, AnyArray]) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        return torch.from_numpy(tensors[value["tensor"]].copy())
    if isinstance(value, dict):
        return {key: _unpacked(item, tensors) for key, item in value["pairs"]}
    if isinstance(value, list):
        return [_unpacked(item, tensors) for item in value]
    return value
