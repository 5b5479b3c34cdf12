"""SequenceMap: what is asked of a network that maps n tokens of dimension d to n tokens of dimension p.

    y_i = row_i( x ; x_1 … x_n ; aggregates ),        i = 1 … n,      every token in the same box

An expression may use a token's own coordinates by their names in the domain (`x`), the *entries* of given tokens
(`x_3`: coordinate x of token 3, positions counted from 1), and *aggregates* over all tokens, whose arguments are
expressions of the token that is aggregated:

| written | means |
| --- | --- |
| mean(e), sum(e), max(e), min(e) | over j of e at token j (max and min of several arguments are the ordinary ones) |
| softmax_mean(s, e) | sum_j exp(s_j) e_j / sum_j exp(s_j) |

One row of expressions is meant for every token: with no entries in it, an *equivariant* map, which needs no positions.
Several rows are one a token. Aggregates may be nested; they are the same number at every token. An argument that is not
a coordinate is a *definition* of its own, worked out at every token before it is aggregated.

Failure mode: InvalidRequest, in one line, for names that clash, rows that do not fit, aggregates of constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language import Algebra, Array, ArrayAlgebra, Box, Builder, Graph, parse, run
from attnfun.language.brief import Brief
from attnfun.language.graph import is_name
from attnfun.language.inputs import numbers, together
from attnfun.language.numbers import whole_number
from attnfun.language.target import Target
from attnfun.network.tokens import sample_size

T = TypeVar("T")

AGGREGATES = ("mean", "sum", "max", "min", "softmax_mean")
_MOST_TEXT = 2_000  # characters of one expression, aggregates written out
MAX_TOKENS = 64
MANY_TOKENS = 1024  # of maps that treat all tokens alike, written by a program and not by hand: pairs of a set's points
_EXPRESSION = "expression"


@dataclass(frozen=True)
class Definition(Brief):
    """A number at every token (`kind` "expression", with its graph), or an aggregate of numbers that `args` name."""

    name: str
    kind: str
    args: tuple[str, ...] = ()
    graph: Graph | None = None


def _definition(name: Any, kind: Any, args: Any, graph: Any) -> Definition:
    """From what JSON has of it."""
    return Definition(str(name), str(kind), tuple(map(str, args)), None if graph is None else Graph.from_json(graph))


class OfTokens(Target):
    """Targets whose inputs are so many points of a box each, as sequences and sets are: what both have in common.

    `members` names the field that says how many; `place` says which of them a refusal is about.
    """

    members: ClassVar[str]
    place: ClassVar[str]

    box: Box

    if TYPE_CHECKING:  # a property of the classes

        @property
        def outputs(self) -> int: ...

    @property
    def count(self) -> int:
        return int(getattr(self, self.members))

    def encode(self, _weights: Any, X: Any, outside: str = "raise") -> tuple[tuple[Array], bool]:
        """(n, d), or (batch, n, d); of one coordinate (n,) too. `outside`: raise, clamp or allow."""
        what, shape = self.draws_what, (self.count, self.box.dim)
        array = numbers(X, what, self.box.names)
        if array.shape == shape[:1] and self.box.dim == 1:
            array = array[:, None]
        single = array.ndim == 2
        array = array[None] if single else array
        if array.ndim != 3 or array.shape[1:] != shape:
            raise InvalidRequest(
                f"{what} of shape {np.shape(X)}: {shape} or (batch, {shape[0]}, {shape[1]}) is needed, "
                f"{shape[0]} {self.members} with the coordinates {', '.join(self.box.names)}"
            )
        return (self.box.checked(array, outside, lambda _, i: self.place.format(i + 1)),), single

    @property
    def variables(self) -> tuple[str, ...]:
        return self.box.names

    def of_names(self, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """The last axis of a coordinate is that of the tokens."""
        X = together(given)
        if X.shape[-2:-1] != (self.count,):
            wanted = f"({self.count},) or (batch, {self.count}) is needed"
            raise InvalidRequest(f"{', '.join(given)} of shape {X.shape[:-1]}: {wanted}, one entry per token")
        return self.of_columns(X), X.shape[:-2]

    @property
    def own_columns(self) -> list[str]:
        """output, or of several output1, output2, …"""
        return ["output"] if self.outputs == 1 else [f"output{o + 1}" for o in range(self.outputs)]

    def columns(self, _weights: Any) -> tuple[list[str], list[str]]:
        """x_1, y_1, x_2, …; the outputs."""
        return [entry(c, i) for i in range(self.count) for c in self.box.names], self.own_columns

    def of_columns(self, rows: Array) -> tuple[Array]:
        return (rows.reshape(-1, self.count, self.box.dim),)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array]:
        return self.of_columns(self.box.sample(count * self.count, rng))

    def against(self, given: Any) -> Self:
        kind: Any = type(self)
        other = kind.read(given, self.box, self.count)
        require(other == self, f"the file is about {self.text[:150]}, not about {other.text[:150]}")
        return self

    def fits(self, weights: Any) -> str:
        same = weights.serves(self.box, self.count, self.outputs)
        return "" if same else "the file's network does not fit its target or its domain"

    def sample_size(self, weights: Any) -> int:
        return sample_size(self.count + weights.cost.keys, weights.cost.heads)

    def token_outputs(self) -> tuple[str, ...]:
        return tuple(f"f{k + 1}" for k in range(self.outputs)) if self.outputs > 1 else ("f",)


@dataclass(frozen=True)
class SequenceMap(OfTokens):
    """See the module's statement. `rows` holds one graph for all tokens, or one a token; all have the same outputs."""

    kind: ClassVar[str] = "sequence"
    draws_what: ClassVar[str] = "sequences"
    members: ClassVar[str] = "tokens"
    place: ClassVar[str] = " of token {}"

    box: Box
    tokens: int
    definitions: tuple[Definition, ...]
    rows: tuple[Graph, ...]

    @classmethod
    def read(cls, target: Any, domain: Any, tokens: Any) -> SequenceMap:
        """From an expression, a list of expressions (outputs of every token), or a list of such lists (one a token)."""
        if isinstance(target, SequenceMap):
            return target
        count = whole_number("tokens", tokens, 1, MAX_TOKENS)
        rows = _texts(target, count)
        box = Box.parse(domain, [re.sub(r"_\d+\b", "", text) for row in rows for text in row])
        names = _names(box, count)
        collected = _Aggregates(box.names)
        graphs = tuple(parse(row, names, collected) for row in rows)
        if len(graphs) > 1:  # a row is one token's: its own coordinates are entries like all others
            graphs = tuple(g.renamed({c: entry(c, i) for c in box.names}) for i, g in enumerate(graphs))
        return cls(box, count, tuple(collected.definitions), graphs).checked()

    def checked(self) -> SequenceMap:
        """Itself, if everything fits together."""
        known = set(_names(self.box, self.tokens))
        fetched = {source_name(name, k) for k in range(MAX_TOKENS) for name in self.box.names}
        taken = fetched & {*known, *(d.name for d in self.definitions)}
        if taken:  # else a fetched token could pass for an aggregate
            raise InvalidRequest(f"the name {min(taken)} is kept for tokens that are fetched; call it something else")
        for definition in self.definitions:
            used = definition.args if definition.graph is None else definition.graph.variables
            arity = 2 if definition.kind == "softmax_mean" else 1
            shape = len(definition.args) == arity if definition.graph is None else len(definition.graph.outputs) == 1
            kinds = AGGREGATES if definition.graph is None else (_EXPRESSION,)
            require(definition.name not in known, f"the name {definition.name} is used twice; rename the coordinate")
            if not is_name(definition.name) or definition.kind not in kinds or not shape or not set(used) <= known:
                raise InvalidRequest(f"the definition of {definition.name} does not fit")
            known.add(definition.name)
        if len(self.rows) not in (1, self.tokens) or not all(set(row.variables) <= known for row in self.rows):
            raise InvalidRequest(f"{len(self.rows)} rows for {self.tokens} tokens: give one row, or one a token")
        require(len({len(row.outputs) for row in self.rows}) == 1, "every token must have the same number of outputs")
        if not 1 <= self.tokens <= (MANY_TOKENS if self.equivariant else MAX_TOKENS):
            raise InvalidRequest(f"{self.tokens:,} tokens are more than {MAX_TOKENS}")
        return self

    @property
    def outputs(self) -> int:
        return len(self.rows[0].outputs)

    @property
    def equivariant(self) -> bool:
        """A permutation of the tokens permutes the outputs: one row, and no expression names an entry of a token."""
        local = {*self.box.names, *(d.name for d in self.definitions)}
        graphs = [*self.rows, *(d.graph for d in self.definitions if d.graph is not None)]
        return len(self.rows) == 1 and all(set(graph.variables) <= local for graph in graphs)

    def row(self, token: int) -> Graph:
        return self.rows[0] if len(self.rows) == 1 else self.rows[token]

    @property
    def text(self) -> str:
        """The target as a person would write it."""
        shown = dict[str, str]()
        for d in self.definitions:
            if d.graph is not None:
                shown[d.name] = _written(d.graph, 0, shown)
            else:
                shown[d.name] = _cut(f"{d.kind}({', '.join(shown.get(a, a) for a in d.args)})")
        texts = []
        for row in self.rows:
            parts = [_written(row, o, shown) for o in range(len(row.outputs))]
            texts.append(parts[0] if len(parts) == 1 else _cut("[" + ", ".join(parts) + "]"))
        return texts[0] if len(texts) == 1 else "; ".join(f"{i + 1}: {text}" for i, text in enumerate(texts))

    @property
    def domain(self) -> str:
        return f"{self.box.text}, {self.tokens} tokens"

    def decode(self, outputs: Any, single: bool) -> Array:
        """(n, p), or (batch, n, p)."""
        values = np.asarray(outputs, dtype=np.float64)
        return values[0] if single else values

    @property
    def own_columns(self) -> list[str]:
        """output_1, or of several output1_1, output2_1, …"""
        own = super().own_columns
        return [entry(name, i) for i in range(self.tokens) for name in own]

    def token_coordinates(self) -> tuple[str, ...]:
        """The entries, 1, and (unless the map is equivariant) the position as a one-hot."""
        positions = () if self.equivariant else tuple(f"position {i + 1}" for i in range(self.tokens))
        return (*self.box.names, "1", *positions)

    def values(self, X: Array) -> Array:
        """(batch, n, d) → (batch, n, p) in float64: the formula as NumPy computes it; never evidence."""
        tokens = [{name: X[:, j, k] for k, name in enumerate(self.box.names)} for j in range(self.tokens)]
        with np.errstate(all="ignore"):
            rows = run_sequence(self, ArrayAlgebra(), tokens)
        columns = [[np.broadcast_to(np.asarray(v, dtype=np.float64), (len(X),)) for v in row] for row in rows]
        return np.stack([np.stack(row, axis=1) for row in columns], axis=1)

    exact = values

    def to_json(self) -> dict[str, Any]:
        definitions = [
            {"name": d.name, "kind": d.kind, "args": list(d.args), "graph": d.graph and d.graph.to_json()}
            for d in self.definitions
        ]
        own = {"tokens": self.tokens, "definitions": definitions, "rows": [row.to_json() for row in self.rows]}
        return own | {"text": self.text, "domain": self.box.text}

    @classmethod
    def from_json(cls, data: Any) -> SequenceMap:
        """What `to_json` wrote; the text is for people and is not read."""
        definitions = tuple(_definition(**d) for d in data["definitions"])
        rows = tuple(Graph.from_json(row) for row in data["rows"])
        tokens = whole_number("tokens", data["tokens"], 1, MANY_TOKENS)
        return cls(Box.stored(data["domain"]), tokens, definitions, rows).checked()


def entry(name: str, token: int) -> str:
    """The variable that stands for coordinate `name` of a token, counted from 0 here and from 1 in expressions."""
    return f"{name}_{token + 1}"


def run_sequence(
    target: SequenceMap,
    algebra: Algebra[T],
    tokens: Sequence[Mapping[str, T]],
    known: Mapping[str, T] | None = None,
    only: int | None = None,
    own: Mapping[str, T] | None = None,
) -> list[list[T]]:
    """The outputs of every token (or of `only` one) in any algebra, tokens[j] holding the coordinates of token j; those
    of `only` may be given another time as its `own`.

    Definitions in `known` are taken from there and not worked out; of a token that nothing else needs, tokens[j] may
    be empty. Aggregates run over the tokens from `only` on, round to the one before it: written down, an equivariant
    map is then the same expression at every token.
    """
    rows, first, known = range(target.tokens) if only is None else (only,), only or 0, known or {}
    needed = {name for i in rows for name in target.row(i).variables}
    for d in reversed(target.definitions):
        if d.name in needed and d.name not in known:
            needed |= set(d.args if d.graph is None else d.graph.variables)
    local = [dict(token) for token in tokens]  # what differs from token to token
    if own is not None:
        local[first] = dict(own)
    shared = {entry(name, j): value for j, token in enumerate(tokens) for name, value in token.items()}
    for d in target.definitions:
        if d.name not in needed:
            continue
        if d.name in known:
            shared[d.name] = known[d.name]
        elif d.graph is not None:
            for one in local:
                if one:  # a token that nothing has fetched is needed by nobody
                    one[d.name] = run(d.graph, algebra, {**shared, **one})[0]
        else:
            require(all(local), f"{d.kind}({', '.join(d.args)}) needs every token")
            turned = [*local[first:], *local[:first]]
            columns = [[{**shared, **one}[name] for one in turned] for name in d.args]
            shared[d.name] = _aggregate(d.kind, algebra, columns)
    return [run(target.row(i), algebra, {**shared, **local[i]}) for i in rows]


def _aggregate(kind: str, algebra: Algebra[T], columns: Sequence[list[T]]) -> T:
    if kind in ("max", "min"):
        return reduce(getattr(algebra, kind), columns[0])
    if kind == "softmax_mean":
        weights = [algebra.exp(score) for score in columns[0]]
        terms = [algebra.mul(weight, value) for weight, value in zip(weights, columns[1], strict=True)]
        return algebra.div(reduce(algebra.add, terms), reduce(algebra.add, weights))
    total = reduce(algebra.add, columns[0])
    return algebra.div(total, algebra.constant(Fraction(len(columns[0])))) if kind == "mean" else total


def source_name(name: str, number: int) -> str:
    """The variable that stands for coordinate `name` of the `number`-th token (from 0) that a token has fetched."""
    return f"{name}_source{number + 1}"


def meaning(
    target: SequenceMap, token: int, sources: Sequence[int], gathered: Sequence[str], names: Sequence[str] = ()
) -> Graph:
    """The outputs at a token (or the definitions `names`) as expressions of what its stream holds.

    That is its own coordinates, those of the tokens `sources`, and the aggregates `gathered`; all other aggregates are
    written out over the tokens. InvalidRequest where that is not enough.
    """
    builder = Builder()
    algebra: Any = Symbols(builder)
    tokens: list[dict[str, int]] = [{} for _ in range(target.tokens)]
    own = {c: builder.var(c) for c in target.box.names}
    tokens[token] = own
    for k, j in reversed(list(enumerate(sources))):  # the first copy of a token counts
        tokens[j] = {c: builder.var(source_name(c, k)) for c in target.box.names}
    known = {name: builder.var(name) for name in gathered}
    wanted = [d.graph for name in names for d in target.definitions if d.name == name and d.graph is not None]
    asked = [replace(target, rows=(graph,)) for graph in wanted] if names else [target]
    found = [run_sequence(one, algebra, tokens, known, only=token, own=own)[0] for one in asked]
    return builder.graph([output for outputs in found for output in outputs])


class Symbols:
    """The algebra whose values are nodes of a builder: running an expression in it writes the expression down."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def constant(self, value: Fraction, /) -> int:
        return self.builder.const(value)

    def __getattr__(self, op: str) -> Callable[..., int]:
        if op.startswith("_"):
            raise AttributeError(op)

        if op in ("powi", "powr", "ratio"):
            return lambda x, value: self.builder.apply(op, x, value=value)
        return partial(self.builder.apply, op)


class _Aggregates:
    """The parser's `calls`: an aggregate becomes a variable, its argument a definition."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.definitions: list[Definition] = []

    def __call__(self, name: str, args: list[int], builder: Builder) -> int | None:
        if name not in AGGREGATES or (name in ("max", "min") and len(args) != 1):
            return None
        wanted = 2 if name == "softmax_mean" else 1
        if len(args) != wanted:
            takes = "a score and a value" if wanted == 2 else "1 argument"
            raise InvalidRequest(f"{name} takes {takes}, not {len(args)}")
        places = tuple(self._argument(builder.graph([arg]), name) for arg in args)
        return builder.var(named(self.definitions, f"{name}_of", partial(Definition, kind=name, args=places)))

    def _argument(self, graph: Graph, name: str) -> str:
        require(bool(graph.variables), f"{name} of a constant; aggregate something that depends on the tokens")
        node = graph.nodes[graph.outputs[0]]
        if node.op == "var" and node.value in self.names:
            return str(node.value)
        return named(self.definitions, "inner_of", partial(Definition, kind=_EXPRESSION, graph=graph))


def named(known: list[Any], stem: str, make: Callable[[str], Any]) -> str:
    """The name of what is known already, or of a new one, `make` with the next number of its stem."""
    for one in known:
        if one == make(one.name):
            return str(one.name)
    known.append(make(f"{stem}_{1 + sum(one.name.startswith(stem) for one in known)}"))
    return str(known[-1].name)


def _written(graph: Graph, output: int, shown: Mapping[str, str]) -> str:
    """An expression with its aggregates written out; names that stand for them are replaced as whole words."""
    text = graph.text(graph.outputs[output])
    return _cut(re.sub(r"[A-Za-z_][A-Za-z_0-9]*", lambda m: shown.get(m.group(), m.group()), text))


def _cut(text: str) -> str:
    """Aggregates stand in aggregates, and text may double with each: what nobody would read is cut."""
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _names(box: Box, tokens: int) -> list[str]:
    """Coordinates, then entries; all different."""
    names = [*box.names, *(entry(name, j) for j in range(tokens) for name in box.names)]
    require(len(set(names)) == len(names), f"{', '.join(box.names)} clash with entries such as {names[box.dim]}")
    return names


def _texts(target: Any, tokens: int) -> list[list[str]]:
    if isinstance(target, str):
        return [[target]]
    good = isinstance(target, Sequence) and len(target) > 0
    if good and all(isinstance(t, str) for t in target):
        return [list(target)]
    if good and all(isinstance(t, Sequence) and t and all(isinstance(e, str) for e in t) for t in target):
        rows = [[t] if isinstance(t, str) else list(t) for t in target]
        require(len(rows) == tokens, f"{len(rows)} rows of expressions for {tokens} tokens; give one a token")
        return rows
    raise InvalidRequest(
        f"target {target!r:.80}: give an expression, a list of expressions, or one list of expressions per token"
    )
