"""Ternary: an expression in three variables, each on its own interval: what a trilinear form approximates.

Trilinear forms Σ_i a_i(x) b_i(y) c_i(z) by their Chebyshev coefficients, and their shape. Nothing but weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.kinds.relation.features import contracted
from attnfun.kinds.relation.form import Form, Reading
from attnfun.kinds.relation.target import Sides, points_of
from attnfun.language import Array, Box, Graph
from attnfun.network.head import freeze
from attnfun.network.network import Cost, Network


@dataclass(frozen=True)
class Ternary(Sides):
    """`graph` (one output) in the three variables of `box`."""

    kind: ClassVar[str] = "ternary"
    draws_what: ClassVar[str] = "triples"
    answer: ClassVar[str] = "value"

    box: Box

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The intervals of x, y and z."""
        ends = zip(self.box.names, self.box.low, self.box.high, strict=True)
        return tuple(Box((name,), (low,), (high,)) for name, low, high in ends)

    @property
    def domain(self) -> str:
        return self.box.text

    def encode(self, weights: Any, X: Any, Y: Any, Z: Any) -> tuple[tuple[Array, ...], None]:
        """(n,) of every variable."""
        columns = [points_of(one, box) for one, box in zip((X, Y, Z), self.boxes, strict=True)]
        require(len({len(x) for x in columns}) == 1, "x, y and z have unequal numbers of points")
        return tuple(weights.reading(self, k)(x) for k, x in enumerate(columns)), None

    def of_columns(self, rows: Array) -> tuple[Array, ...]:
        return tuple(rows[:, k : k + 1] for k in range(3))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "ternary", "graph": self.graph.to_json(), "domain": self.box.text}

    @classmethod
    def from_json(cls, data: Any) -> Ternary:
        """Read back what `to_json` wrote."""
        if not isinstance(data, dict) or data.get("kind") != "ternary":
            raise DamagedFile("the file's target is not a ternary relation")
        try:
            graph, box = Graph.from_json(data.get("graph")), Box.parse(str(data["domain"]))
        except (KeyError, InvalidRequest) as error:
            raise DamagedFile(f"the file's relation cannot be read ({error})") from None
        if box.dim != 3 or len(graph.outputs) != 1 or not set(graph.variables) <= set(box.names):
            raise DamagedFile("the file's relation does not fit its domain")
        return cls(graph, box)


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
            require(side.ndim == 2 and side.size and np.isfinite(side).all(), "a side is not a table of finite numbers")
        require(len({side.shape[1] for side in self.coefficients}) == 1, "the sides of a form have unequal ranks")
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
        recurrence; one sum per side; two products per term; one sum.
        """
        out = np.ones((len(columns[0]), self.rank))
        low, high = self.box.low_array, self.box.high_array
        for k, (P, column) in enumerate(zip(self.coefficients, columns, strict=True)):
            x, a, b = column[:, 0], low[k], high[k]
            out = out * contracted(P, [np.clip(((x - a) - (b - x)) / (b - a), -1.0, 1.0)])
        return np.asarray(out.sum(axis=1))

    def network(self, side: str) -> Network:
        raise InvalidRequest(
            "a trilinear form is coefficients and no network, so there is nothing to export; "
            "af.train(model, widths=(8,), rank=2) makes towers of attention, which are exported"
        )
