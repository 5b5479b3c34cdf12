"""The problem of a head over a table; importing this file imports torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.kinds.retrieval.lookup_task import LookupTask
from attnfun.learn.probe import Row, effective_keys, key_norms
from attnfun.learn.torch_run import run
from attnfun.learn.weights import network_of, unlabelled, vector_of
from attnfun.network import Network, evaluate
from attnfun.network.head import Array
from attnfun.network.store import fingerprint

_FEW = 64


@dataclass(frozen=True, eq=False)
class LookupProblem:
    """A `Problem` (`problem.py`): the weights of the tower, the query map and the key vectors."""

    task: LookupTask
    origin: Network

    chosen_by = "sup"

    @property
    def dtype(self) -> str:
        return self.task.architecture.dtype

    def identity(self) -> dict[str, Any]:
        values, table = (np.ascontiguousarray(array) for array in (self.task.probe[1], self.task.kept[0]))
        return {
            "architecture": self.task.architecture.to_json(),
            "target": self.task.about,
            "values": hashlib.sha256(values.tobytes()).hexdigest(),
            "held": hashlib.sha256(np.where(self.task.kept[1], 0.0, table).tobytes()).hexdigest(),
            "start": fingerprint(self.origin),
        }

    def start(self) -> Array:
        return self.task.holding(vector_of(self.origin, self.task.architecture, self.task.units))

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        X, wanted = self.task.draw(rng, count)
        t = (self.task.reads(X) - self.task.units.centre) / self.task.units.half
        good, dtype = np.isfinite(wanted).all(axis=1), getattr(torch, self.dtype)
        return torch.tensor(t[good], dtype=dtype), torch.tensor(wanted[good] / self.task.units.scale, dtype=dtype)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        return self.batch(rng, count, 0.0)

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor]:
        values, free = self.task.kept
        return torch.tensor(values, dtype=getattr(torch, self.dtype)), torch.tensor(free)

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        whole = torch.where(self._kept[1], theta, self._kept[0])
        return torch.mean((run(self.task.architecture, whole, inputs) - targets) ** 2)

    def network(self, vector: Array | None) -> Network:
        if vector is None:
            return unlabelled(self.origin, self.task.box)
        return network_of(self.task.architecture, self.task.holding(vector), self.task.box, self.task.units)

    def measure(self, network: Network, step: int, phase: str) -> Row:
        X, wanted = self.task.probe
        inputs = self.task.reads(X)
        with np.errstate(all="ignore"):
            error = np.abs(evaluate(network, inputs).astype(np.float64) - wanted)
            error = np.where(np.isfinite(wanted), np.where(np.isnan(error), np.inf, error), 0.0)
            mean, top = key_norms(network)
            value = max(head.max_value for head in network.heads)
            keys = effective_keys(network, inputs[:_FEW])
            return Row(step, phase, float(np.mean(error**2)), float(error.max()), mean, top, value, keys)
