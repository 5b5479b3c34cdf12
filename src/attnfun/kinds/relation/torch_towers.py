"""The problem of towers; importing this file imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.kinds.relation.tower_task import TowerTask
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, key_norms, off
from attnfun.learn.torch_function import run
from attnfun.learn.weights import Units, network_of, unlabelled, vector_of
from attnfun.network import Network
from attnfun.network.head import Array
from attnfun.network.store import fingerprint


@dataclass(frozen=True, eq=False)
class TowerProblem(Problem):
    """The weights of all towers, or of the one that serves both sides, one vector."""

    task: TowerTask
    origin: tuple[Network, ...]

    @property
    def dtype(self) -> str:
        return self.task.sides[0].architecture.dtype

    @cached_property
    def units(self) -> tuple[Units, ...]:
        return self.task.units()

    @cached_property
    def probe(self) -> tuple[tuple[Array, ...], Array]:
        return self.task.probe()

    def identity(self) -> dict[str, Any]:
        return {
            "towers": [side.architecture.to_json() for side in self.task.sides],
            "signs": self.task.signs.tolist(),
            "target": self.task.target.to_json(),
            "values": digest(self.probe[1]),
            "start": [fingerprint(network) for network in self.origin],
        }

    def start(self) -> Array:
        parts = zip(self.origin, self.task.sides, self.units, strict=True)
        return np.concatenate([vector_of(network, side.architecture, units) for network, side, units in parts])

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        points, r = self.task.draw(rng, count)
        good = np.isfinite(r)
        t = [
            (side.reads(one[good]) - self.units[place].centre) / self.units[place].half
            for side, one, place in zip(self.task.serving, points, self.task.places, strict=True)
        ]
        return self.tensors(np.concatenate(t, axis=1), r[good] / self.units[0].scale ** len(points))

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        parts, start, product = self._split(theta), 0, None
        for side, place in zip(self.task.serving, self.task.places, strict=True):
            d = len(side.architecture.inputs)
            own = run(side.architecture, parts[place], inputs[:, start : start + d])
            product, start = own if product is None else product * own, start + d
        assert product is not None
        return torch.sum(product * torch.tensor(self.task.signs, dtype=theta.dtype), dim=1)

    def _split(self, theta: Any) -> list[Any]:
        ends = np.cumsum([0, *(side.architecture.free_weights for side in self.task.sides)]).tolist()
        return [theta[a:b] for a, b in pairwise(ends)]

    def network(self, vector: Array | None) -> tuple[Network, ...]:
        if vector is None:
            return tuple(unlabelled(n, side.box) for n, side in zip(self.origin, self.task.sides, strict=True))
        parts = zip(self._split(vector), self.task.sides, self.units, strict=True)
        return tuple(network_of(side.architecture, part, side.box, units) for part, side, units in parts)

    def measure(self, network: tuple[Network, ...], step: int, phase: str) -> Row:
        points, r = self.probe
        with np.errstate(all="ignore"):
            error = off(self.task.scores(network, *points), r)
            norms = [pair for one in network if (pair := key_norms(one))[0] is not None]
            mean = float(np.mean([m for m, _ in norms if m is not None])) if norms else None
            top = max((t for _, t in norms if t is not None), default=None)
            value = max((head.max_value for one in network for head in one.heads), default=0.0)
            return Row.of(step, phase, error, (mean, top), value)
