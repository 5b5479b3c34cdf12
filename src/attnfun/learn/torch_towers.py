"""The problem of two towers; importing this file imports torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.learn.probe import Row, key_norms
from attnfun.learn.torch_run import run
from attnfun.learn.towers import TowerTask
from attnfun.learn.weights import Units, network_of, unlabelled, vector_of
from attnfun.network import Network, content_hash
from attnfun.network.head import Array


@dataclass(frozen=True, eq=False)
class TowerProblem:
    """A `Problem` (`problem.py`): the weights of both towers, or of the one that serves both sides, one vector."""

    task: TowerTask
    origin: tuple[Network, ...]

    chosen_by = "sup"

    @property
    def dtype(self) -> str:
        return self.task.left.architecture.dtype

    @cached_property
    def units(self) -> tuple[Units, ...]:
        return self.task.units()

    @cached_property
    def probe(self) -> tuple[Array, Array, Array]:
        return self.task.probe()

    def identity(self) -> dict[str, Any]:
        values = np.ascontiguousarray(self.probe[2])
        return {
            "towers": [side.architecture.to_json() for side in self.task.sides],
            "signs": self.task.signs.tolist(),
            "target": self.task.target.to_json(),
            "values": hashlib.sha256(values.tobytes()).hexdigest(),
            "start": [content_hash(network, {}) for network in self.origin],
        }

    def start(self) -> Array:
        parts = zip(self.origin, self.task.sides, self.units, strict=True)
        return np.concatenate([vector_of(network, side.architecture, units) for network, side, units in parts])

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        X, Y, r = self.task.draw(rng, count)
        good, last = np.isfinite(r), self.task.right or self.task.left
        t = [
            (side.reads(points[good]) - units.centre) / units.half
            for side, points, units in ((self.task.left, X, self.units[0]), (last, Y, self.units[-1]))
        ]
        dtype = getattr(torch, self.dtype)
        wanted = r[good] / self.units[0].scale ** 2
        return torch.tensor(np.concatenate(t, axis=1), dtype=dtype), torch.tensor(wanted, dtype=dtype)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        return self.batch(rng, count, 0.0)

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        parts = self._split(theta)
        last = self.task.right or self.task.left
        d = len(self.task.left.architecture.inputs)
        phi = run(self.task.left.architecture, parts[0], inputs[:, :d])
        psi = run(last.architecture, parts[-1], inputs[:, d:])
        scores = torch.sum(phi * psi * torch.tensor(self.task.signs, dtype=theta.dtype), dim=1)
        return torch.mean((scores - targets) ** 2)

    def _split(self, theta: Any) -> list[Any]:
        count = self.task.left.architecture.free_weights
        return [theta] if self.task.right is None else [theta[:count], theta[count:]]

    def network(self, vector: Array | None) -> tuple[Network, ...]:
        if vector is None:
            return tuple(unlabelled(n, side.box) for n, side in zip(self.origin, self.task.sides, strict=True))
        parts = zip(self._split(vector), self.task.sides, self.units, strict=True)
        return tuple(network_of(side.architecture, part, side.box, units) for part, side, units in parts)

    def measure(self, network: tuple[Network, ...], step: int, phase: str) -> Row:
        X, Y, r = self.probe
        with np.errstate(all="ignore"):
            error = np.abs(self.task.scores(network, X, Y) - r)
            error = np.where(np.isfinite(r), np.where(np.isnan(error), np.inf, error), 0.0)
            norms = [pair for one in network if (pair := key_norms(one))[0] is not None]
            mean = float(np.mean([m for m, _ in norms if m is not None])) if norms else None
            top = max((t for _, t in norms if t is not None), default=None)
            value = max((head.max_value for one in network for head in one.heads), default=0.0)
            return Row(step, phase, float(np.mean(error**2)), float(error.max()), mean, top, value, None)
