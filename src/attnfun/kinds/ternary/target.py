"""Ternary: an expression in three variables, each on its own interval: what a trilinear form approximates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.kinds.relation.target import Sides, points_of
from attnfun.language import Graph
from attnfun.language.domain import Array, Box


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

    def encode(self, weights: Any, *points: Any) -> tuple[tuple[Array, ...], None]:
        """(n,) of every variable."""
        require(len(points) == 3, f"points of {len(points)} sides: 3 are needed")
        columns = [points_of(np.ravel(one), box) for one, box in zip(points, self.boxes, strict=True)]
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
