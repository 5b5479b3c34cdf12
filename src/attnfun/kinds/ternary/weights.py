"""Trilinear forms Σ_i a_i(x) b_i(y) c_i(z) by their Chebyshev coefficients, and their shape. Nothing but weights."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.features import contracted
from attnfun.kinds.relation.form import Form, Reading
from attnfun.language.domain import Box
from attnfun.network.head import Array, freeze
from attnfun.network.network import Cost, Network

Coefficients = tuple[Array, ...]


@dataclass(frozen=True)
class FormShape:
    """A trilinear form without its coefficients: the variables, how many coefficients each has, how many terms."""

    inputs: tuple[str, ...]
    sizes: tuple[int, ...]
    rank: int

    @property
    def free_weights(self) -> int:
        return sum(self.sizes) * self.rank

    def to_json(self) -> dict[str, Any]:
        return {"inputs": list(self.inputs), "sizes": list(self.sizes), "rank": self.rank}


@dataclass(frozen=True, eq=False)
class Trilinear(Form):
    """Coefficients (N, rank) of the a_i, b_i and c_i on the intervals of `box`."""

    method: ClassVar[str] = "trilinear"
    signs: ClassVar[None] = None  # type: ignore[misc]

    coefficients: Coefficients
    box: Box

    def __post_init__(self) -> None:
        freeze(self)
        for side in self.coefficients:
            if side.ndim != 2 or not side.size or not np.isfinite(side).all():
                raise InvalidRequest("a side of a form is not a table of finite numbers")
        if len({side.shape[1] for side in self.coefficients}) != 1:
            raise InvalidRequest("the sides of a form have unequal numbers of terms")
        require(self.box.dim == len(self.coefficients) == 3, "a form has three variables")

    @property
    def rank(self) -> int:
        return int(self.coefficients[0].shape[1])

    @property
    def architecture(self) -> FormShape:  # type: ignore[override]
        """How many coefficients a side has, and how many terms: what `train` fills with other coefficients."""
        return FormShape(self.box.names, tuple(len(side) for side in self.coefficients), self.rank)

    @property
    def cost(self) -> Cost:
        """A form has no heads: its coefficients are its parameters."""
        size = sum(side.size for side in self.coefficients)
        return Cost(0, 0, self.rank, 0, size, 0, max(float(np.abs(side).max()) for side in self.coefficients), size)

    def unfit(self, target: Any) -> str:
        """Why it cannot be a form for a target, in words; empty where it can."""
        same = self.box == target.box
        return "" if same else f"its form is one on {self.box.text}, and its relation is on {target.box.text}"

    def reading(self, relation: Any, k: int) -> Reading:
        """What side k reads of points: themselves."""
        return Reading(relation.boxes[k].names)

    def run(self, *columns: Array) -> Array:  # type: ignore[override]
        """(n, 1) each → (n,), in float64.

        Operations, for the rounding bound: t = ((x − low) − (high − x))/(high − low), cut to [-1, 1]; T_j by its
        recurrence; one sum a side; two products a term; one sum.
        """
        out = np.ones((len(columns[0]), self.rank))
        low, high = self.box.low_array, self.box.high_array
        for k, (P, column) in enumerate(zip(self.coefficients, columns, strict=True)):
            x, a, b = column[:, 0], low[k], high[k]
            out = out * contracted(P, [np.clip(((x - a) - (b - x)) / (b - a), -1.0, 1.0)])
        return np.asarray(out.sum(axis=1))

    def network(self, side: str) -> Network:
        raise InvalidRequest("a trilinear form is coefficients and no network: there is no torch module of it")
