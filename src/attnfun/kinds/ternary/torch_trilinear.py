"""The problem of a trilinear form: its Chebyshev coefficients are free; importing this file imports torch.

    Σ_i a_i(x) b_i(y) c_i(z),    a_i(x) = Σ_j A_ji T_j(t(x)),    t the map of the variable's interval to [-1, 1]

The vector is A, B, C over a power of two near the cube root of the target's size. A random start: entry j normal over
1 + j, every side over the sixth root of the number of terms, so that the sum of the terms is of size 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.features import chebyshev_columns
from attnfun.kinds.relation.target import probe_tuples
from attnfun.kinds.ternary.target import Ternary
from attnfun.kinds.ternary.weights import FormShape, Sides, Trilinear
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, off
from attnfun.learn.weights import power_of_two
from attnfun.network.head import Array, frozen

_PROBE = 4000


@dataclass(frozen=True, eq=False)
class FormTask:
    """A ternary relation and the shape of a form for it."""

    target: Ternary
    shape: FormShape

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """(n, 3) points behind the rows of a history, and what is wanted there; never those of a batch."""
        points = probe_tuples(self.target.boxes, _PROBE, np.random.default_rng([20, 5]))
        return np.concatenate(points, axis=1), self.target.values(*points)

    @cached_property
    def scale(self) -> float:
        values = np.abs(self.probe[1])
        return float(power_of_two((float(values[np.isfinite(values)].max(initial=0.0)) or 1.0) ** (1 / 3)))

    def vector(self, sides: Sides) -> Array:
        return np.concatenate([side.reshape(-1) for side in sides]) / self.scale

    def sides(self, vector: Array) -> Sides:
        """The coefficients of a vector; InvalidRequest where one is not finite."""
        if not np.isfinite(vector).all():
            raise InvalidRequest("a coefficient is not finite")
        r = self.shape.rank
        ends = np.cumsum([0, *(size * r for size in self.shape.sizes)]).tolist()
        a, b, c = (frozen(vector[i:j].reshape(-1, r) * self.scale) for i, j in pairwise(ends))
        return a, b, c

    def random(self, seed: int) -> Sides:
        """Coefficients to start from; the same seed gives the same bits."""
        rng, r = np.random.default_rng([seed, 0]), self.shape.rank
        parts = [rng.standard_normal((n, r)) / (1 + np.arange(n))[:, None] / r ** (1 / 6) for n in self.shape.sizes]
        return self.sides(np.concatenate([part.reshape(-1) for part in parts]))

    def columns(self, points: Array) -> Array:
        """(n, 3) → (n, all coefficients of one term): T_j of every variable."""
        low, high = self.target.box.low_array, self.target.box.high_array
        t = np.clip(((points - low) - (high - points)) / (high - low), -1.0, 1.0)
        return np.concatenate([chebyshev_columns(t[:, k], n) for k, n in enumerate(self.shape.sizes)], axis=1)


@dataclass(frozen=True, eq=False)
class FormProblem(Problem):
    """The coefficients of all three sides."""

    task: FormTask
    origin: Sides

    dtype = "float64"

    def identity(self) -> dict[str, Any]:
        return {
            "shape": self.task.shape.to_json(),
            "target": self.task.target.to_json(),
            "values": digest(self.task.probe[1]),
            "start": digest(self.start()),
        }

    def start(self) -> Array:
        return self.task.vector(self.origin)

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        points = [box.sample(count, rng) for box in self.task.target.boxes]
        values = self.task.target.values(*points)
        good = np.isfinite(values)
        columns = self.task.columns(np.concatenate(points, axis=1)[good])
        return self.tensors(columns, values[good] / self.task.scale**3)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        sizes, r = list(self.task.shape.sizes), self.task.shape.rank
        sides = theta.split([n * r for n in sizes])
        a, b, c = (T @ side.reshape(-1, r) for T, side in zip(inputs.split(sizes, dim=1), sides, strict=True))
        return (a * b * c).sum(dim=1)

    def network(self, vector: Array | None) -> Sides:
        return self.origin if vector is None else self.task.sides(vector)

    def measure(self, network: Sides, step: int, phase: str) -> Row:
        points, wanted = self.task.probe
        form = Trilinear(network, self.task.target.box)
        with np.errstate(all="ignore"):
            error = off(form.run(*np.split(points, 3, axis=1)), wanted)
            value = max(float(np.abs(side).max()) for side in network)
            return Row.of(step, phase, error, (None, None), value)
