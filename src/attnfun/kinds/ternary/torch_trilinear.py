"""The problem of a trilinear form: its Chebyshev coefficients are free; importing this file imports torch.

    Σ_i a_i(x) b_i(y) c_i(z),    a_i(x) = Σ_j A_ji T_j(t(x)),    t the map of the variable's interval to [-1, 1]

The vector is A, B, C over a power of two near the cube root of the target's size. A random start: entry j normal over
1 + j, every side over the sixth root of the number of terms, so that the sum of the terms is of size 1.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from attnfun.errors import require
from attnfun.kinds.relation.features import chebyshev_columns
from attnfun.kinds.relation.torch_towers import SidesProblem
from attnfun.kinds.ternary.target import Coefficients, FormShape, Ternary, Trilinear
from attnfun.learn.lesson import digest
from attnfun.learn.probe import Row, off
from attnfun.network.head import Array, frozen


@dataclass(frozen=True, eq=False)
class FormProblem(SidesProblem):
    """A ternary relation and a form for it, whose coefficients of all three sides are one vector."""

    stream: ClassVar[int] = 5
    dtype = "float64"

    target: Ternary
    origin: Coefficients

    @cached_property
    def shape(self) -> FormShape:
        return Trilinear(self.origin, self.target.box).architecture

    def sides(self, vector: Array) -> Coefficients:
        """The coefficients of a vector; InvalidRequest where one is not finite."""
        require(np.isfinite(vector).all(), "a coefficient is not finite")
        r = self.shape.rank
        ends = np.cumsum([0, *(size * r for size in self.shape.sizes)]).tolist()
        return tuple(frozen(vector[i:j].reshape(-1, r) * self.scale) for i, j in pairwise(ends))

    def random(self, seed: int) -> Coefficients:
        """Coefficients to start from; the same seed gives the same bits."""
        rng, r = np.random.default_rng([seed, 0]), self.shape.rank
        parts = [rng.standard_normal((n, r)) / (1 + np.arange(n))[:, None] / r ** (1 / 6) for n in self.shape.sizes]
        return self.sides(np.concatenate([part.reshape(-1) for part in parts]))

    def identity(self) -> dict[str, Any]:
        told = {"shape": self.shape.to_json(), "target": self.target.to_json()}
        return told | {"values": digest(self.probe[1]), "start": digest(self.start())}

    def start(self) -> Array:
        return np.concatenate([side.reshape(-1) for side in self.origin]) / self.scale

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        """T_j of every variable, and the values."""
        points, wanted = self.drawn(rng, count)
        low, high, Z = self.target.box.low_array, self.target.box.high_array, np.concatenate(points, axis=1)
        t = np.clip(((Z - low) - (high - Z)) / (high - low), -1.0, 1.0)
        columns = [chebyshev_columns(t[:, k], n) for k, n in enumerate(self.shape.sizes)]
        return self.tensors(np.concatenate(columns, axis=1), wanted)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        sizes, r = list(self.shape.sizes), self.shape.rank
        sides = theta.split([n * r for n in sizes])
        a, b, c = (T @ side.reshape(-1, r) for T, side in zip(inputs.split(sizes, dim=1), sides, strict=True))
        return (a * b * c).sum(dim=1)

    def network(self, vector: Array | None) -> Coefficients:
        return self.origin if vector is None else self.sides(vector)

    def measure(self, network: Coefficients, step: int, phase: str) -> Row:
        form, (points, wanted) = Trilinear(network, self.target.box), self.probe
        with np.errstate(all="ignore"):
            return Row.of(step, phase, off(form.run(*points), wanted), (None, None), form.cost.max_value)
