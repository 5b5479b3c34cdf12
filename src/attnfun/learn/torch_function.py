"""The problem of a function on a box: what `fit` trains; importing this file imports torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnfun.language.function import Function
from attnfun.learn.probe import Row, measure, probe_points
from attnfun.learn.torch_run import run
from attnfun.learn.weights import Units, network_of, unlabelled, vector_of
from attnfun.network import Architecture, Network
from attnfun.network.head import Array
from attnfun.network.store import fingerprint


@dataclass(frozen=True, eq=False)
class FunctionProblem:
    """A `Problem` (`problem.py`): the weights of `architecture`, in the units of `weights.py`, towards `function`."""

    architecture: Architecture
    function: Function
    origin: Network

    chosen_by = "sup"

    @property
    def dtype(self) -> str:
        return self.architecture.dtype

    @cached_property
    def points(self) -> Array:
        return probe_points(self.function.box)

    @cached_property
    def units(self) -> Units:
        return Units.of(self.function, self.points)

    def identity(self) -> dict[str, Any]:
        with np.errstate(all="ignore"):
            values = self.function.values(self.points)
        return {
            "architecture": self.architecture.to_json(),
            "target": self.function.to_json(),
            "values": hashlib.sha256(np.ascontiguousarray(values, dtype=np.float64).tobytes()).hexdigest(),
            "domain": self.function.box.text,
            "start": fingerprint(self.origin),
        }

    def start(self) -> Array:
        return vector_of(self.origin, self.architecture, self.units)

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        box = self.function.box
        X = box.sample(count, rng)
        width = (box.high_array - box.low_array) / (2 * self.units.half)
        return self._tensors(X, noise * width * rng.standard_normal(X.shape) if noise else None)

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        return self._tensors(self.function.box.probe(count, rng), None)

    def _tensors(self, X: Array, noise: Array | None) -> tuple[Tensor, Tensor]:
        """Points and targets in the units of the weights; points where the target is not finite are left out."""
        with np.errstate(all="ignore"):
            y = self.function.values(X) / self.units.scale
        t = (X - self.units.centre) / self.units.half
        good = np.isfinite(y).all(axis=1)
        t = t if noise is None else t + noise
        dtype = getattr(torch, self.dtype)
        return torch.tensor(t[good], dtype=dtype, device="cpu"), torch.tensor(y[good], dtype=dtype, device="cpu")

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return torch.mean((run(self.architecture, theta, inputs) - targets) ** 2)

    def network(self, vector: Array | None) -> Network:
        if vector is None:
            return unlabelled(self.origin, self.function.box)
        return network_of(self.architecture, vector, self.function.box, self.units)

    def measure(self, network: Network, step: int, phase: str) -> Row:
        return measure(network, self.function, self.points, step, phase)
