"""Relation: an expression in left variables x and right variables y, each on its own box.

A relation r(x, y) is what two towers and an inner product approximate: r(x, y) ≈ ⟨φ(x), ψ(y)⟩. With `symmetric` the
left and right variables correspond in order, their boxes are equal, and one tower serves both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, intact, require
from attnfun.language import Array, ArrayAlgebra, Box, Graph, Node, parse, run
from attnfun.language.domain import read_boxes
from attnfun.language.function import Function
from attnfun.language.pieces import exactly_joined
from attnfun.language.target import Target


@dataclass(frozen=True)
class Sides(Target):
    """An expression, `graph` (one output), in the variables of several sides, each on its own box."""

    answer: ClassVar[str]
    """What the column of its values is called."""

    graph: Graph

    @property
    def boxes(self) -> tuple[Box, ...]:
        raise NotImplementedError

    if TYPE_CHECKING:  # a field or a property of the classes

        @property
        def box(self) -> Box:
            """Of all variables, side by side."""
            ...

    @property
    def text(self) -> str:
        return self.graph.text(self.graph.outputs[0])

    @property
    def variables(self) -> tuple[str, ...]:
        return self.box.names

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        return list(self.box.names), [self.answer]

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Any, ...]:
        return probe_tuples(self.boxes, count, rng)

    def exact(self, *points: Array) -> Array:
        return self.values(*points)

    def fits(self, weights: Any) -> str:
        return str(weights.unfit(self))

    def against(self, given: Any) -> Self:
        other = graph_of(given, self.box)
        if other != self.graph:
            asked = other.text(other.outputs[0])
            raise InvalidRequest(f"the file is about {self.text[:150]}, not about {asked[:150]}")
        return self

    def values(self, *points: Array) -> Array:
        """(n, variables) of every side → (n,) the formula as NumPy computes it, row by row; never evidence."""
        env = dict(zip(self.box.names, (column for one in points for column in one.T), strict=True))
        return values_of(self.graph, env, len(points[0]))[0]

    def at(self, Z: Array) -> Array:
        """The same for points (n, variables of all sides)."""
        return values_of(self.graph, dict(zip(self.box.names, Z.T, strict=True)), len(Z))[0]


@dataclass(frozen=True)
class Relation(Sides):
    """`graph` (one output) in the variables of `left` and `right`; `symmetric`: one tower for both sides."""

    kind: ClassVar[str] = "relation"
    draws_what: ClassVar[str] = "pairs"
    answer: ClassVar[str] = "score"

    left: Box
    right: Box
    symmetric: bool = False

    def __post_init__(self) -> None:
        require(len(self.graph.outputs) == 1, "a relation has one value: give one expression")
        _named_apart(self.left, self.right)
        if self.symmetric:
            if self.left.dim != self.right.dim:
                sides = f"{self.left.dim} left and {self.right.dim} right variables"
                raise InvalidRequest(f"symmetric: {sides}; they must correspond")
            if (self.left.low, self.left.high) != (self.right.low, self.right.high):
                raise InvalidRequest("symmetric: corresponding left and right variables need equal intervals")

    @classmethod
    def read(cls, target: Any, left: Any, right: Any, symmetric: bool = False) -> Relation:
        """A Relation from an expression, a Graph or a NumPy function of all variables, left ones first."""
        first, second = read_boxes(target, left, right)
        return cls(graph_of(target, _named_apart(first, second)), first, second, bool(symmetric))

    @property
    def boxes(self) -> tuple[Box, ...]:
        return self.left, self.right

    @property
    def box(self) -> Box:
        return joined(self.left, self.right)

    joint = box

    @property
    def domain(self) -> str:
        return f"{self.left.text} | {self.right.text}"

    def encode(self, weights: Any, X: Any, Y: Any, pairs: bool = False) -> tuple[tuple[Array, Array, bool], None]:
        """(m, left variables), (n, right variables): all m × n scores; with `pairs` (n, …) each, the n scores."""
        left, right = points_of(X, self.left), points_of(Y, self.right)
        require(not pairs or len(left) == len(right), "the sides have unequal numbers of points")
        return (weights.reading(self, 0)(left), weights.reading(self, 1)(right), pairs), None

    def of_columns(self, rows: Array) -> tuple[Array, Array, bool]:
        return rows[:, : self.left.dim], rows[:, self.left.dim :], True

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Any, ...]:
        """Points of both sides, to be taken as pairs."""
        return *super().draw(rng, count), True

    def exact(self, X: Array, Y: Array, pairs: bool = False) -> Array:  # type: ignore[override]
        return self.values(X, Y) if pairs else self.table(X, Y)

    def table(self, X: Array, Y: Array) -> Array:
        """(m, left), (n, right) → (m, n), every pair."""
        pairs = self.values(np.repeat(X, len(Y), axis=0), np.tile(Y, (len(X), 1)))
        return pairs.reshape(len(X), len(Y))

    def mirrored(self) -> Graph:
        """The graph with left and right variables exchanged (symmetric relations only)."""
        left, right = self.left.names, self.right.names
        return self.graph.renamed(dict(zip(left + right, right + left, strict=True)))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "relation",
            "graph": self.graph.to_json(),
            "left": self.left.text,
            "right": self.right.text,
            "symmetric": self.symmetric,
            "text": self.text,
        }

    @classmethod
    def from_json(cls, data: Any) -> Relation:
        """Read back what `to_json` wrote; the text is for people and is not read."""
        if not isinstance(data, dict) or data.get("kind") != "relation" or type(data.get("symmetric")) is not bool:
            raise DamagedFile("the file's target is not a relation")
        try:
            left, right = Box.parse(str(data["left"])), Box.parse(str(data["right"]))
            graph = Graph.from_json(data.get("graph"))
            intact(set(graph.variables) <= {*left.names, *right.names}, "the file's relation does not fit its domain")
            return cls(graph, left, right, data["symmetric"])
        except (KeyError, InvalidRequest) as error:
            raise DamagedFile(f"the file's relation cannot be read ({error})") from None


def graph_of(target: Any, box: Box) -> Graph:
    """An expression, a Graph or a NumPy function of all variables as a graph; InvalidRequest for a black box."""
    if isinstance(target, str):
        return exactly_joined(parse(target, box.names), box)
    function = Function.read(target, box)
    if function.graph is None or function.expression is None:
        raise InvalidRequest("a relation needs an expression: nothing can be proved of a black box's features")
    loose = function.pieces.gap or function.pieces.points
    return function.expression if loose else function.graph


def points_of(X: Any, box: Box) -> Array:
    """(n, variables), columns in the box's order; of one variable (n,) too."""
    points, _ = box.points(X)
    require(box.contains(points).all(), f"a point lies outside the domain {box.text}")
    return points


def probe_tuples(boxes: Sequence[Box], count: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """`Box.probe` points of every box; a box of more dimensions has more corners, so longer lists are cut."""
    points = [box.probe(count, rng) for box in boxes]
    n = min(len(one) for one in points)
    return tuple(one[:n] for one in points)


class Joint(Box):
    """The box of two sides, each of as many variables as a box may have."""

    most = 2 * Box.most


def joined(left: Box, right: Box) -> Box:
    """The box of both sides, left variables first."""
    return Joint(left.names + right.names, left.low + right.low, left.high + right.high)


def _named_apart(left: Box, right: Box) -> Box:
    """`joined`, or an InvalidRequest that says which variables are on both sides."""
    both = set(left.names) & set(right.names)
    require(not both, f"{', '.join(sorted(both))} is named on both sides; name left and right apart")
    return joined(left, right)


def values_of(graph: Graph, env: Mapping[str, Array], *shape: int) -> list[Array]:
    """The outputs, each of this shape, as NumPy computes them; never evidence."""
    with np.errstate(all="ignore"):
        out = run(graph, ArrayAlgebra(), env)
    return [np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), shape)) for value in out]


def sides_of(relation: Relation, nodes: Sequence[Node]) -> list[str]:
    """For every node "l", "r", "lr" or "": the sides whose variables it holds."""
    left, out = set(relation.left.names), list[str]()
    for node in nodes:
        if node.op == "var":
            out.append("l" if node.value in left else "r")
        else:
            out.append("".join(s for s in "lr" if any(s in out[a] for a in node.args)))
    return out
