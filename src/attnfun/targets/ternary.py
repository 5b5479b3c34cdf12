"""Ternary: an expression in three variables, each on its own interval: what a trilinear form approximates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.expressions import ArrayAlgebra, Graph, run
from attnfun.targets.domain import Array, Box


@dataclass(frozen=True)
class Ternary:
    """`graph` (one output) in the three variables of `box`."""

    graph: Graph
    box: Box

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The intervals of x, y and z."""
        ends = zip(self.box.names, self.box.low, self.box.high, strict=True)
        return tuple(Box((name,), (low,), (high,)) for name, low, high in ends)

    @property
    def text(self) -> str:
        return self.graph.text(self.graph.outputs[0])

    @property
    def domain_text(self) -> str:
        return self.box.text

    def values(self, *points: Array) -> Array:
        """(n, 1) each → (n,) the formula as NumPy computes it; never evidence."""
        env = {name: column[:, 0] for name, column in zip(self.box.names, points, strict=True)}
        with np.errstate(all="ignore"):
            value = run(self.graph, ArrayAlgebra(), env)[0]
        return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (len(points[0]),)))

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
