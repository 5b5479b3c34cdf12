"""The problem of a function on a box; importing this file imports torch.

`run` is the network of `network/head.py` in the units of `weights.py`: heads on a product grid stay factorised, so a
step over Π P_a keys costs what the small softmaxes and one contraction of the values cost.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, measure, probe_points
from attnfun.learn.weights import Units, holding, network_of, split, unlabelled, vector_of
from attnfun.network import Architecture, HeadShape, Network
from attnfun.network.head import Array, Of
from attnfun.network.store import fingerprint


class NetworkProblem(Problem):
    """The weights of one network of `architecture` on `box`, in the units of `weights.py`.

    `kept`: (values, free), the vector that entries which are not free have, and which are; None where all are.
    """

    architecture: Architecture
    origin: Network
    box: Box
    units: Units
    kept: tuple[Array, Array] | None = None

    dtype = Of[str]("architecture")  # type: ignore[assignment]

    def start(self) -> Array:
        return self.vector(self.origin)

    def vector(self, network: Network) -> Array:
        """The vector of a network's weights."""
        return np.asarray(holding(self.kept, vector_of(network, self.architecture, self.units)))

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return run(self.architecture, holding(self.kept, theta), inputs)

    def network(self, vector: Array | None) -> Network:
        if vector is None:
            return unlabelled(self.origin, self.box)
        return network_of(self.architecture, holding(self.kept, vector), self.box, self.units)

    def in_units(self, X: Array, y: Array, noise: Array | float = 0.0) -> tuple[Tensor, Tensor]:
        """Points and targets in the units of the weights; points where the target is not finite are left out."""
        t, good = (X - self.units.centre) / self.units.half + noise, np.isfinite(y).all(axis=1)
        return self.tensors(t[good], y[good] / self.units.scale)


@dataclass(frozen=True, eq=False)
class FunctionProblem(NetworkProblem):
    """The weights of `architecture`, in the units of `weights.py`, towards `function`."""

    architecture: Architecture
    function: Function
    origin: Network

    box = Of[Box]("function")  # type: ignore[assignment]

    @cached_property
    def points(self) -> Array:
        return probe_points(self.box)

    @cached_property
    def units(self) -> Units:  # type: ignore[override]
        return Units.of(self.function, self.points)

    def identity(self) -> dict[str, Any]:
        own = {"architecture": self.architecture.to_json(), "target": self.function.to_json()}
        seen = {"values": digest(self._values(self.points)), "domain": self.box.text}
        return {**own, **seen, "start": fingerprint(self.origin)}

    def _values(self, X: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.function.values(X), dtype=np.float64)

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        X = self.box.sample(count, rng)
        width = (self.box.high_array - self.box.low_array) / (2 * self.units.half)
        return self.in_units(X, self._values(X), noise * width * rng.standard_normal(X.shape) if noise else 0.0)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        X = self.box.probe(count, rng)
        return self.in_units(X, self._values(X))

    def measure(self, network: Network, step: int, phase: str) -> Row:
        return measure(network, self.function, self.points, step, phase)


def run(architecture: Architecture, vector: Tensor, t: Tensor) -> Tensor:
    """(n, inputs) in the units of the vector -> (n, outputs)."""
    weights, stream = split(architecture, vector), t
    for number, layer in enumerate(architecture.layers):
        columns: list[list[Tensor]] = [[] for _ in range(architecture.widths[number + 1] - architecture.widths[number])]
        for place, head in enumerate(layer):
            out = _head(architecture, weights, f"layer{number}/{architecture.kind}{place}", head, stream)
            for k, column in enumerate(head.writes):
                columns[column].append(out[:, k])
        stream = torch.cat([stream, torch.stack([sum(terms[1:], terms[0]) for terms in columns], dim=1)], dim=1)
    return _columns(stream, architecture.readout) @ weights["readout"].T + weights["readout_bias"]


def _head(architecture: Architecture, weights: dict[str, Tensor], here: str, head: HeadShape, stream: Tensor) -> Tensor:
    contracted = weights[f"{here}/values"]
    for k, axis in enumerate(head.axes):
        own = [weights[f"{here}/axis{k}/{part}"] for part in ("query", "offset", "slopes", "biases")]
        read = _columns(stream, axis.reads)
        logits = (read @ own[0].T + own[1]) @ own[2].T + own[3]
        active = torch.relu(logits) if architecture.kind == "block" else torch.softmax(logits, dim=1)
        if k == 0:
            contracted = active @ contracted.reshape(axis.keys, -1)
        else:
            contracted = torch.bmm(active[:, None, :], contracted.reshape(len(active), axis.keys, -1))[:, 0]
    return contracted


def _columns(stream: Tensor, reads: tuple[int, ...]) -> Tensor:
    """The coordinates that are read; a slice where they are neighbours, whose gradient costs less."""
    if reads and reads[-1] - reads[0] + 1 == len(reads):
        return stream[:, reads[0] : reads[-1] + 1]
    return stream[:, list(reads)]
