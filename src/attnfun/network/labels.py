"""Labels: what every coordinate of a composed network means, as one expression graph.

A coordinate z written by the heads of a layer is labelled with two nodes of the *program* graph, φ and U, and two
doubles a, b:

    z  ≈  φ − a U − b,        φ = g(U) for a function g of one variable,        U affine in the inputs and in earlier
    φ's

(the affine part a U + b of g rides in the residual stream, exact and free). A tensor head reads several such
arguments, φ = g(U_1, …, U_d), and leaves only the constant b. The program's first outputs are the network's outputs.
Labels are claims: the checker derives every one from the stored target, or rejects it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from attnfun.errors import DamagedFile, intact
from attnfun.language import Graph
from attnfun.language.brief import Brief
from attnfun.language.graph import MAX_NODES


@dataclass(frozen=True)
class Label(Brief):
    """Node indices φ and U in the program, and the affine part a U + b that the head leaves to the residual stream.

    `further`: U_2, …, U_d of a tensor head, whose slope is 0.
    """

    name: str
    phi: int
    argument: int
    slope: float
    offset: float
    further: tuple[int, ...] = ()

    @property
    def arguments(self) -> tuple[int, ...]:
        return (self.argument, *self.further)


@dataclass(frozen=True)
class Labels(Brief):
    """The program (its outputs are the network's) and a label for every written coordinate."""

    program: Graph
    coordinates: tuple[Label, ...]

    def to_json(self) -> dict[str, Any]:
        extra = [index for label in self.coordinates for index in (label.phi, *label.arguments)]
        packed = Graph(self.program.nodes, self.program.outputs + tuple(extra))
        rows: list[list[Any]] = [[label.name, label.slope, label.offset] for label in self.coordinates]
        for row, label in zip(rows, self.coordinates, strict=True):
            row += [len(label.arguments)] if label.further else []
        program = packed.reachable(packed.outputs).to_json()
        return {"program": program, "outputs": len(self.program.outputs), "coordinates": rows}

    def canonical(self) -> Labels:
        """The same labels on a program in canonical order: what reading them back from a file gives."""
        return Labels.from_json(self.to_json())

    @classmethod
    def from_json(cls, data: Any) -> Labels:
        try:
            rows, outputs = data["coordinates"], data["outputs"]
            intact(type(outputs) is int and outputs >= 1, "the labels have no outputs")
            packed = Graph.from_json(data["program"], MAX_NODES)
            labels, place = [], outputs
            for name, slope, offset, *more in rows:
                count = more[0] if more else 1
                if more and not (len(more) == 1 and type(count) is int and count >= 2 and slope == 0):
                    raise DamagedFile("a label of several arguments is not as it is written")
                intact(len(packed.outputs) >= place + 1 + count, "the labels do not fit the network")
                phi, argument, *further = packed.outputs[place : place + 1 + count]
                place += 1 + count
                if not (isinstance(name, str) and isinstance(slope, float) and isinstance(offset, float)):
                    raise DamagedFile("a label is not a name with two numbers")
                if not (math.isfinite(slope) and math.isfinite(offset)):  # JSON reads 1e999 as infinity
                    raise DamagedFile("a label has a number that is not finite")
                labels.append(Label(name, phi, argument, slope, offset, tuple(further)))
            intact(len(packed.outputs) == place, "the labels do not fit the network")
            return cls(Graph(packed.nodes, packed.outputs[:outputs]), tuple(labels))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFile(f"the labels cannot be read ({error})") from None
