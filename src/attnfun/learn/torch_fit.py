"""The steps of a run; importing this file imports torch.

A `Run` is the only mutable thing in this folder. Its phases follow each other: "gradient" (Adam or AdamW on fresh
batches), "polish" (LBFGS on one fixed sample, from the best weights so far), "done".
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.learn import checkpoint
from attnfun.learn.descend import optimiser_of
from attnfun.learn.probe import Row, measure, probe_points
from attnfun.learn.recipe import Recipe
from attnfun.learn.torch_run import run as forward
from attnfun.learn.weights import Units, network_of, unlabelled, vector_of
from attnfun.network import Architecture, Network
from attnfun.network.head import AnyArray, Array
from attnfun.targets import Function

_ROWS = 100
_POLISHED = 2048  # points of the fixed sample, or four batches if that is more
_BATCHES, _SAMPLE = 1, 2  # streams of random numbers; 0 is that of the start


@dataclass(eq=False)
class Run:
    """One run; `advance` makes the next step and a row of the history where one is due."""

    architecture: Architecture
    function: Function
    recipe: Recipe
    start: Network
    path: str | os.PathLike[str] | None
    name: str
    units: Units
    points: Array
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
    def begin(
        cls,
        architecture: Architecture,
        function: Function,
        recipe: Recipe,
        start: Network,
        path: str | os.PathLike[str] | None,
    ) -> Run:
        """From the start, or from the checkpoint of this very run."""
        points = probe_points(function.box)
        units = Units.of(function, points)
        name = "" if path is None else checkpoint.run_of(architecture, function, recipe, start)
        found = None if path is None else checkpoint.read(path, name)
        vector = vector_of(start, architecture, units) if found is None else found[1]["weights"]
        dtype = getattr(torch, architecture.dtype)
        theta = torch.tensor(np.array(vector), dtype=dtype, device="cpu", requires_grad=True)
        best = theta.detach().numpy().copy()
        run = cls(architecture, function, recipe, start, path, name, units, points, theta, best)
        if found is None:
            run._enter("gradient")
            run.history.append(measure(start, function, points, 0, "gradient"))
        else:
            run._resume(*found)
        return run

    @property
    def total(self) -> int:
        """The most steps that this run will have made."""
        return (self.recipe.steps if self.phase == "gradient" else self.step - self.polished) + self.recipe.polish

    def best_network(self) -> Network:
        if self.best_step == 0:
            return unlabelled(self.start, self.function.box)
        return network_of(self.architecture, self.best.astype(np.float64), self.function.box, self.units)

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
            self.optimiser = torch.optim.LBFGS(
                [self.theta],
                lr=1.0,
                max_iter=1,
                max_eval=25,
                tolerance_grad=0.0,
                tolerance_change=0.0,
                history_size=50,
                line_search_fn="strong_wolfe",
            )
        else:
            self.optimiser = None

    def _impatient(self) -> bool:
        patience = self.recipe.patience
        if patience is None or self.step - self.best_step < patience:
            return False
        self.stopped = "patience"
        return True

    def _tensors(self, X: Array, noise: Array | None = None) -> tuple[Tensor, Tensor]:
        """Points and targets in the units of the weights; points where the target is not finite are left out."""
        with np.errstate(all="ignore"):
            y = self.function.values(X) / self.units.scale
        t = (X - self.units.centre) / self.units.half
        good = np.isfinite(y).all(axis=1)
        t = t if noise is None else t + noise
        dtype = self.theta.dtype
        return torch.tensor(t[good], dtype=dtype, device="cpu"), torch.tensor(y[good], dtype=dtype, device="cpu")

    def _loss(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.mean((forward(self.architecture, self.theta, t) - y) ** 2)

    def _descend(self) -> None:
        r = self.recipe
        rng = np.random.default_rng([r.seed, _BATCHES, self.step])
        X = self.function.box.sample(r.batch, rng)
        width = (self.function.box.high_array - self.function.box.low_array) / (2 * self.units.half)
        t, y = self._tensors(X, r.noise * width * rng.standard_normal(X.shape) if r.noise else None)
        for group in self.optimiser.param_groups:
            group["lr"] = r.rate(self.step)
        self.optimiser.zero_grad()
        if len(t):
            self._loss(t, y).backward()
            self.optimiser.step()

    def _polish(self) -> None:
        if self.sample is None:
            rng = np.random.default_rng([self.recipe.seed, _SAMPLE])
            self.sample = self._tensors(self.function.box.probe(max(_POLISHED, 4 * self.recipe.batch), rng))
        t, y = self.sample

        def closure() -> Tensor:
            self.optimiser.zero_grad()
            loss = self._loss(t, y)
            loss.backward()
            return loss

        if len(t):
            self.optimiser.step(closure)
        self.polished += 1

    def _look(self) -> None:
        """A row of the history; the end of the run where weights or errors are not finite."""
        vector = self.theta.detach().numpy().copy()
        try:
            network = network_of(self.architecture, vector.astype(np.float64), self.function.box, self.units)
            row = measure(network, self.function, self.points, self.step, self.phase)
        except InvalidRequest:
            row = None
        if row is None or not row.finite:
            self.stopped = "diverged"
            self._enter("done")
            return
        if row.sup < min(old.sup for old in self.history):
            self.best, self.best_step = vector, self.step
        self.history.append(row)

    def save(self) -> None:
        if self.path is None:
            return
        tensors: dict[str, AnyArray] = {"weights": self.theta.detach().numpy().copy(), "best": self.best}
        state = None if self.optimiser is None else _packed(self.optimiser.state_dict()["state"], tensors)
        place = {
            "phase": self.phase,
            "step": self.step,
            "polished": self.polished,
            "best_step": self.best_step,
            "stopped": self.stopped,
            "seconds": self.seconds,
            "history": [row.to_json() for row in self.history],
            "optimiser": state,
        }
        checkpoint.write(self.path, self.name, place, tensors, self.architecture.dtype)

    def _resume(self, place: dict[str, Any], tensors: dict[str, AnyArray]) -> None:
        self._enter(place["phase"])
        with torch.no_grad():
            self.theta.copy_(torch.from_numpy(tensors["weights"].copy()))
        self.best = tensors["best"].copy()
        for name in ("step", "polished", "best_step", "stopped", "seconds"):
            setattr(self, name, place[name])
        self.history = [Row(**row) for row in place["history"]]
        if self.optimiser is not None:
            fresh = self.optimiser.state_dict()
            self.optimiser.load_state_dict({**fresh, "state": _unpacked(place["optimiser"], tensors)})


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

