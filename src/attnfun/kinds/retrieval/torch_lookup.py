"""The problem of a head over a table; importing this file imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attnfun.kinds.retrieval.lookup_task import LookupTask
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, effective_keys, key_norms, off
from attnfun.learn.torch_function import run
from attnfun.learn.weights import network_of, unlabelled, vector_of
from attnfun.network import Network, evaluate
from attnfun.network.head import Array
from attnfun.network.store import fingerprint

_FEW = 64


@dataclass(frozen=True, eq=False)
class LookupProblem(Problem):
    """The weights of the tower, the query map and the key vectors."""

    task: LookupTask
    origin: Network

    @property
    def dtype(self) -> str:
        return self.task.architecture.dtype

    def identity(self) -> dict[str, Any]:
        return {
            "architecture": self.task.architecture.to_json(),
            "target": self.task.about,
            "values": digest(self.task.probe[1]),
            "held": digest(np.where(self.task.kept[1], 0.0, self.task.kept[0])),
            "start": fingerprint(self.origin),
        }

    def start(self) -> Array:
        return self.task.holding(vector_of(self.origin, self.task.architecture, self.task.units))

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        X, wanted = self.task.draw(rng, count)
        t = (self.task.reads(X) - self.task.units.centre) / self.task.units.half
        good = np.isfinite(wanted).all(axis=1)
        return self.tensors(t[good], wanted[good] / self.task.units.scale)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return run(self.task.architecture, self.task.holding(theta), inputs)

    def network(self, vector: Array | None) -> Network:
        if vector is None:
            return unlabelled(self.origin, self.task.box)
        return network_of(self.task.architecture, self.task.holding(vector), self.task.box, self.task.units)

    def measure(self, network: Network, step: int, phase: str) -> Row:
        X, wanted = self.task.probe
        inputs = self.task.reads(X)
        with np.errstate(all="ignore"):
            error = off(evaluate(network, inputs), wanted)
            value = max(head.max_value for head in network.heads)
            keys = effective_keys(network, inputs[:_FEW])
            return Row.of(step, phase, error, key_norms(network), value, keys)
