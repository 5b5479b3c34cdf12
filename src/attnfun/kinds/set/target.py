"""SetFunction: what is asked of a network that maps a set of n points of a box to numbers, whatever their order.

An expression uses the points inside *sums* only, so it is symmetric by construction:

| written | means |
| --- | --- |
| sum(e), mean(e), max(e), min(e) | over the elements, e in the coordinates x (or x_i, or x[i]) |
| the same with x_i and x_j (or x[i], x[j]) in e | over all ordered pairs (i, j), i = j included |
| pairs(e) | the sum over all ordered pairs, whatever e uses |
| distinct(e) | the sum over all ordered pairs with i ≠ j |

A sum runs over every index that is used inside it and in no sum within it. Sums may be nested; max and min of several
arguments are the ordinary ones.

    sum(x**2) + sum(x[i]*x[j])          sqrt(sum((x_i - x_j)**2 + (y_i - y_j)**2) + 1)

`on_elements` and `on_pairs` write the function as a sequence map: of n tokens, one an element, where there are only
sums over elements; of n² tokens, one an ordered pair, always (the sum of e over elements is n times the mean over
pairs). Failure mode: InvalidRequest, in one line, for points outside of sums, sums of constants, names that clash;
Infeasible for more pairs than tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.sequence.target import Definition, OfTokens, SequenceMap, named
from attnfun.language import Array, ArrayAlgebra, Box, Builder, Graph, Node, parse, run
from attnfun.language.brief import Brief
from attnfun.language.numbers import whole_number
from attnfun.network.tokens import sample_size

SUMS = ("sum", "mean", "max", "min", "pairs", "distinct")
MAX_POINTS = 64
MAX_PAIRS = 1024  # tokens of a network on pairs: 32 points
_INDEXED = re.compile(r"([A-Za-z_][A-Za-z_0-9]*) *\[ *([ij]) *\]")


@dataclass(frozen=True)
class Sum(Brief):
    """A sum, mean, max or min (`kind`) over elements or pairs of a graph in x_i, x_j and earlier sums."""

    name: str
    kind: str
    pairs: bool
    graph: Graph


@dataclass(frozen=True)
class SetFunction(OfTokens):
    """See the module's statement; `row` holds the outputs as expressions of the sums alone."""

    kind: ClassVar[str] = "set"
    draws_what: ClassVar[str] = "sets"
    members: ClassVar[str] = "points"
    place: ClassVar[str] = ", number {} of a set,"

    box: Box
    points: int
    sums: tuple[Sum, ...]
    row: Graph
    texts: tuple[str, ...] = field(compare=False)

    @classmethod
    def read(cls, target: Any, domain: Any, points: Any) -> SetFunction:
        """From an expression or a list of expressions (the outputs)."""
        if isinstance(target, SetFunction):
            return target
        n = whole_number("points", points, 1, MAX_POINTS)
        given = [target] if isinstance(target, str) else target
        if not isinstance(given, Sequence) or not given or not all(isinstance(text, str) for text in given):
            raise InvalidRequest(f"target {target!r:.80}: give an expression or a list of expressions")
        box = Box.parse(domain, [_INDEXED.sub(r"\1", text) for text in given])
        names = [*box.names, *first(box), *second(box)]
        require(len(set(names)) == len(names), f"{', '.join(box.names)} clash with indices such as {first(box)[0]}")
        texts = tuple(str(text).strip() for text in given)
        found = _Sums(box, n)
        row = parse([_INDEXED.sub(r"\1_\2", text) for text in texts], names, found)
        clash = {s.name for s in found.sums} & set(names)
        if clash:
            raise InvalidRequest(f"the name {min(clash)} is kept for sums; call the coordinate something else")
        loose = sorted(set(row.variables) & set(names))
        if loose:
            raise InvalidRequest(
                f"{loose[0]} stands outside of every sum; a set function sees its points through sum, mean, max, min, "
                "pairs and distinct only"
            )
        return cls(box, n, tuple(found.sums), row, texts)

    @property
    def text(self) -> str:
        return self.texts[0] if len(self.texts) == 1 else "[" + ", ".join(self.texts) + "]"

    @property
    def domain(self) -> str:
        return f"{self.box.text}, sets of {self.points} points"

    @property
    def outputs(self) -> int:
        return len(self.row.outputs)

    def to_json(self) -> dict[str, Any]:
        return {"expressions": list(self.texts), "points": self.points, "domain": self.box.text}

    @classmethod
    def from_json(cls, data: Any) -> SetFunction:
        """What `to_json` wrote: the expressions are the target, and are read again."""
        return cls.read(data["expressions"], Box.stored(data["domain"]), data["points"])

    def decode(self, outputs: Any, single: bool) -> Array:
        """A number a set, or (outputs,) of several."""
        values = np.asarray(outputs, dtype=np.float64)
        values = values[:, 0] if self.outputs == 1 else values
        return np.asarray(values[0] if single else values)

    def sample_size(self, weights: Any) -> int:
        return sample_size(weights.tokens_of(self.points) + weights.cost.keys, weights.cost.heads)

    def token_coordinates(self) -> tuple[str, ...]:
        """Those of its tokens as written: one an element where there are no pairs, else one a pair."""
        return (*(pair_box(self.box) if self.has_pairs else self.box).names, "1")

    @property
    def has_pairs(self) -> bool:
        return any(s.pairs for s in self.sums)

    def values(self, X: Array) -> Array:
        """(batch, n, d) → (batch, outputs) in float64 as NumPy computes it; never evidence."""
        env: dict[str, Any] = {}
        for k, (a, b) in enumerate(zip(first(self.box), second(self.box), strict=True)):
            env[a], env[b] = X[:, :, None, k], X[:, None, :, k]
        with np.errstate(all="ignore"):
            for s in self.sums:
                value = np.asarray(run(s.graph, ArrayAlgebra(), env)[0])
                value = np.broadcast_to(value, (len(X), X.shape[1], X.shape[1] if s.pairs else 1))
                total: Any = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}[s.kind]
                env[s.name] = total(value, axis=(1, 2), keepdims=True)
            outputs = run(self.row, ArrayAlgebra(), env)
        return np.stack([np.broadcast_to(np.asarray(v).reshape(-1), (len(X),)) for v in outputs], axis=1)

    exact = values

    def on_elements(self) -> SequenceMap:
        """The same function at each of n tokens, one an element; there must be no pairs."""
        require(not self.has_pairs, f"{self.text[:80]} has sums over pairs; a token of one element has no pairs")
        names = dict(zip(first(self.box), self.box.names, strict=True))
        return self._on(self.box, self.points, [(s.kind, s.graph.renamed(names)) for s in self.sums])

    def on_pairs(self) -> SequenceMap:
        """The same function at each of n² tokens, one an ordered pair of elements."""
        n = self.points
        if n * n > MAX_PAIRS:
            most = {"points": math.isqrt(MAX_PAIRS)}
            raise Infeasible(f"{n} points make {n * n:,} pairs; a network has at most {MAX_PAIRS:,} such tokens", most)
        meant = []
        for s in self.sums:
            graph, kind = s.graph, s.kind
            if kind == "sum" and not s.pairs:  # every element is the first of n pairs: the sum is n times their mean
                builder = Builder()
                times = builder.apply("mul", builder.const(Fraction(n)), inlined(builder, graph))
                graph, kind = builder.graph([times]), "mean"
            meant.append((kind, graph))
        return self._on(pair_box(self.box), n * n, meant)

    def _on(self, box: Box, tokens: int, meant: Sequence[tuple[str, Graph]]) -> SequenceMap:
        """The map of tokens that aggregates for every sum, in this way, this graph."""
        definitions: list[Definition] = []
        for number, (s, (kind, graph)) in enumerate(zip(self.sums, meant, strict=True), start=1):
            definitions += aggregated(s.name, f"inner_of_{number}", kind, graph, box.names)
        return SequenceMap(box, tokens, tuple(definitions), (self.row,)).checked()


def pair_tokens(X: Array) -> Array:
    """(batch, n, d) → (batch, n², 2d): token n·i + j holds the elements i and j."""
    batch, n, d = X.shape
    left, right = np.repeat(X, n, axis=1), np.tile(X, (1, n, 1))
    return np.concatenate([left, right], axis=2).reshape(batch, n * n, 2 * d)


def pair_box(box: Box) -> Box:
    """The box of the tokens of pairs."""
    return Box((*first(box), *second(box)), box.low * 2, box.high * 2)


def first(box: Box) -> tuple[str, ...]:
    """The coordinates of element i."""
    return tuple(f"{name}_i" for name in box.names)


def second(box: Box) -> tuple[str, ...]:
    """The coordinates of element j."""
    return tuple(f"{name}_j" for name in box.names)


def aggregated(name: str, inner: str, kind: str, graph: Graph, coordinates: Sequence[str]) -> list[Definition]:
    """The aggregate `name` of a graph, which is a definition `inner` of its own unless it is a coordinate."""
    node = graph.nodes[graph.outputs[0]]
    if node.op == "var" and node.value in coordinates:
        return [Definition(name, kind, (str(node.value),))]
    return [Definition(inner, "expression", (), graph), Definition(name, kind, (inner,))]


def inlined(builder: Builder, graph: Graph) -> int:
    """The node of another builder's expression, written anew here."""
    return builder.copy(graph.nodes)[graph.outputs[0]]


class _Sums:
    """The parser's `calls`: a sum becomes a variable."""

    def __init__(self, box: Box, points: int) -> None:
        self.plain, self.first, self.second = box.names, first(box), second(box)
        self.points = points
        self.sums: list[Sum] = []

    def __call__(self, name: str, args: list[int], builder: Builder) -> int | None:
        if name not in SUMS or (name in ("max", "min") and len(args) != 1):
            return None
        require(len(args) == 1, f"{name} takes 1 argument, not {len(args)}")
        graph = builder.graph([args[0]]).renamed(dict(zip(self.plain, self.first, strict=True)))
        uses_first, uses_second = (bool(set(graph.variables) & set(names)) for names in (self.first, self.second))
        require(uses_first or uses_second, f"{name} of something that is the same for every point")
        if name == "distinct":
            same = _on_diagonal(graph, dict(zip(self.second, self.first, strict=True)))
            whole = builder.var(self._named("sum", True, graph))
            if set(same.variables) & set(self.first):
                return builder.apply("sub", whole, builder.var(self._named("sum", False, same)))
            own = builder.apply("mul", builder.const(Fraction(self.points)), inlined(builder, same))
            return builder.apply("sub", whole, own)
        over = name == "pairs" or (uses_first and uses_second)
        if not over and uses_second:
            graph = graph.renamed(dict(zip(self.second, self.first, strict=True)))
        return builder.var(self._named("sum" if name == "pairs" else name, over, graph))

    def _named(self, kind: str, pairs: bool, graph: Graph) -> str:
        stem = f"{kind}_over_{'pairs' if pairs else 'elements'}"
        return named(self.sums, stem, partial(Sum, kind=kind, pairs=pairs, graph=graph))


def _on_diagonal(graph: Graph, names: dict[str, str]) -> Graph:
    """A graph of pairs at pairs of an element with itself: renamed, with a − a = 0 and 0 · a = 0 worked out, so that
    what depends on differences alone is seen to be constant there.
    """
    builder = Builder()
    zero = builder.const(Fraction(0))

    def worked_out(node: Node, args: list[int]) -> int | None:
        gone = (node.op == "sub" and args[0] == args[1]) or (node.op == "mul" and zero in args)
        return zero if gone else None

    same = graph.renamed(names)
    return builder.graph([builder.copy(same.nodes, worked_out)[same.outputs[0]]])
