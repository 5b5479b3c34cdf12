"""The expression graph: one list of operations, every shared subexpression stored once.

A graph is in static single assignment form: node i may only use nodes 0..i-1, so every pass over it is a plain loop.
`Builder` makes graphs. It shares equal nodes, folds rational constants exactly (and x+0, x*1, x**1, max(x, min(x, y))),
and numbers the nodes in the order a depth-first walk from the outputs finishes them; two targets built by the same
operations are therefore equal as values.

    nullary  const (value: Fraction)   var (value: name)   pi   e
    unary    neg, powi (value: int), powr (value: Fraction that is no integer), and those of `operations`, of which
             some carry a whole number: jv(n, x)
    binary   add sub mul div, pow (x**y with a y that is no rational constant), and those of `operations`: max min
    ternary  where (u, a, b): a where u > 0, b where u <= 0
    tables   table (value: Table), numbers on a grid and what joins them, of as many arguments as the grid has axes
    derived  ratio (value: Ratio), a quotient continued to a point where both sides vanish; unary, never read or written

Failure modes: a constant outside [1e-300, 1e300], a division by the constant zero, an exponent above 1000 or a graph
above MAX_NODES is an `InvalidRequest`; JSON that is not what `to_json` writes is a `DamagedFile`.
"""

from __future__ import annotations

import keyword
import operator
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from math import floor, log
from typing import Any, Final

from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.language.brief import Brief
from attnfun.language.operations import OPERATIONS
from attnfun.language.table import Table
from attnfun.language.vectors import entry

FUNCTIONS: Final = tuple(name for name, entry in OPERATIONS.items() if entry.arity == 1)
NULLARY: Final = frozenset({"const", "var", "pi", "e"})
UNARY: Final = frozenset({"neg", "powi", "powr", "ratio", *FUNCTIONS})
BINARY: Final = frozenset({"add", "sub", "mul", "div", "pow", *(n for n, op in OPERATIONS.items() if op.arity == 2)})
TERNARY: Final = frozenset(name for name, entry in OPERATIONS.items() if entry.arity == 3)
JUMPS: Final = frozenset(name for name, entry in OPERATIONS.items() if entry.needs and entry.needs.continuity)
NOT_ANALYTIC: Final = frozenset({"table", *(name for name, entry in OPERATIONS.items() if entry.rectangle is None)})
PARTIAL: Final = frozenset({"powr", "pow", "ratio", *(name for name, entry in OPERATIONS.items() if entry.needs)})
OPS: Final = (NULLARY | UNARY | BINARY | TERNARY | {"table"}) - {"ratio"}

MAX_NODES: Final = 200_000
MAX_OUTPUTS: Final = 1_000
MAX_EXPONENT: Final = 1_000
MAX_NAME: Final = 100
MAX_NESTED: Final = 64  # arguments of nested max and min among which a second one of the same is looked for
MAX_BITS: Final = 2_048  # of a constant's numerator and of its denominator; folding that would pass it is left undone
LARGEST: Final = 10**300
SMALLEST: Final = Fraction(1, LARGEST)
_SURELY_IN_RANGE: Final = 990  # bits of numerator and denominator: 2^990 < 1e300
OUT_OF_RANGE: Final = "a constant outside the sizes 1e-300 to 1e300"

_NEUTRAL: Final = {"add": 0, "sub": 0, "mul": 1, "div": 1}  # x + 0, x - 0, x*1, x/1 are x


# Graphs share nodes and may be thousands of operations deep; a walk that called itself would end at Python's stack, and
# one that kept no record would take a node as often as there are ways to it.


def arguments_first(root: int, needs: Callable[[int], Iterable[int]], done: Container[int]) -> Iterator[int]:
    """The nodes from which `root` is made, `needs` by `needs`, each after all that it needs; those in `done` are left
    out. The caller enters a node into `done` before it asks for the next.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        waiting = [] if node in done else [n for n in needs(node) if n not in done]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if node not in done:
            yield node


def reached(roots: Iterable[int], needs: Callable[[int], Iterable[int]]) -> set[int]:
    """The roots and all nodes from which they are made, `needs` by `needs`."""
    seen = set(roots)
    stack = list(seen)
    while stack:
        fresh = [n for n in needs(stack.pop()) if n not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return seen


@dataclass(frozen=True)
class Ratio:
    """h = N/D for two functions of one variable that vanish together at `point`, continued to it.

    `graph` has the outputs N and D; at `point` D has a zero of exactly, N one of at least, the order `order` ≥ 1. The
    value is h, or with `derivative` j the Taylor coefficient h^(j)/j!. Made by `removable`, which proves the
    orders; evaluated as `ratio` explains.
    """

    graph: Graph
    point: Fraction
    order: int
    derivative: int = 0


Value = Fraction | int | str | Ratio | Table | None
_WHOLE: Final = frozenset(name for name, entry in OPERATIONS.items() if entry.whole)
_CARRIED: Final[dict[str, type]] = {
    **{"powi": int, "powr": Fraction, "ratio": Ratio, "table": Table},
    **dict.fromkeys(_WHOLE, int),
}


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: its name, the indices of its arguments, and the constant it carries (if it carries one)."""

    op: str
    args: tuple[int, ...] = ()
    value: Value = None

    @property
    def divides(self) -> bool:
        """Whether its last argument must not be 0: a quotient, or a power -n."""
        return self.op == "div" or (self.op == "powi" and isinstance(self.value, int) and self.value < 0)

    def __hash__(self) -> int:
        """By numerator and denominator: the hash of a fraction itself is a division modulo a prime."""
        value = self.value
        if type(value) is Fraction:
            return hash((self.op, self.args, value.numerator, value.denominator))
        return hash((self.op, self.args, value))


@dataclass(frozen=True)
class Graph(Brief):
    """Nodes in order, and the indices of those that are the outputs."""

    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.nodes, self.outputs))

    def __reduce__(self) -> tuple[Any, ...]:
        """What is worked out once stays behind: hashes differ from process to process."""
        return Graph, (self.nodes, self.outputs)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that occur, in the order of their first use."""
        return tuple(str(node.value) for node in self.nodes if node.op == "var")

    @cached_property
    def owners(self) -> tuple[frozenset[str], ...]:
        """The variables that occur in every node."""
        own: list[frozenset[str]] = []
        for node in self.nodes:
            own.append(frozenset([str(node.value)] if node.op == "var" else ()).union(*(own[a] for a in node.args)))
        return tuple(own)

    @cached_property
    def repeated(self) -> tuple[bool, ...]:
        """For every node: does a variable occur in it by more than one way?"""
        own: list[int] = []  # a bit for each variable
        out: list[bool] = []
        for i, node in enumerate(self.nodes):
            mask, several = 1 << i if node.op == "var" else 0, False
            for a in node.args:
                several = several or out[a] or bool(mask & own[a])
                mask |= own[a]
            own.append(mask)
            out.append(several)
        return tuple(out)

    @cached_property
    def last_used(self) -> tuple[tuple[int, ...], ...]:
        """For every node: what nothing needs after it, neither a later node nor the outputs."""
        needed = set(self.outputs)
        gone: list[tuple[int, ...]] = []
        for i in reversed(range(len(self.nodes))):
            gone.append(tuple({i, *self.nodes[i].args} - needed))
            needed.update(gone[-1])
        return tuple(reversed(gone))

    def reachable(self, outputs: Sequence[int]) -> Graph:
        """The graph of the nodes `outputs` (indices of this graph) and of what they need, in canonical order."""
        return _prune(self.nodes, outputs)

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The graph with other names for some of its variables, in canonical order."""
        builder = Builder()
        at = builder.copy_renamed(self.nodes, names)
        return builder.graph([at[o] for o in self.outputs])

    @property
    def texts(self) -> tuple[str, ...]:
        """Every output as a person would write it."""
        return tuple(self.text(output) for output in self.outputs)

    def text(self, index: int, limit: int = 200) -> str:
        """Node `index` as Python source with as few brackets as its structure allows; cut with '…' past `limit`."""
        plain, at = self.plain()
        return _text(plain.nodes, at[index], limit)

    def plain(self) -> tuple[Graph, list[int]]:
        """The graph with every `ratio` written as the quotient it continues, and where each node came to lie."""
        if not any(node.op == "ratio" for node in self.nodes):
            return self, list(range(len(self.nodes)))
        builder = Builder()

        def quotient(node: Node, args: list[int]) -> int | None:
            if not isinstance(node.value, Ratio):
                return None
            return builder.apply("div", *builder.substitute(node.value.graph, args[0]))

        at = builder.copy(self.nodes, quotient)
        return Graph(builder.nodes, tuple(at[o] for o in self.outputs)), at

    def to_json(self) -> list[Any]:
        """`[["var","x"],["const","3"],["mul",[1,0]],["powi",[2],2],…,["out",[3]]]`; exact, constants as "p/q"."""
        rows: list[Any] = []
        for node in self.nodes:
            row: list[Any] = [node.op]
            if node.args:
                row.append(list(node.args))
            if node.value is not None:
                row.append(_written(node.value))
            rows.append(row)
        return [*rows, ["out", list(self.outputs)]]

    @classmethod
    def from_json(cls, data: object, most: int = MAX_OUTPUTS) -> Graph:
        """The graph `to_json` wrote, with at most so many outputs. Everything is checked; a list that no builder could
        have written is refused.
        """

        def bad(reason: str) -> DamagedFile:
            return DamagedFile(f"the stored expression is damaged: {reason}")

        if not isinstance(data, list) or not 2 <= len(data) <= MAX_NODES + 1:
            raise bad(f"a list of 2 to {MAX_NODES + 1:,} rows was expected")
        nodes: list[Node] = []
        for i, row in enumerate(data[:-1]):
            if not isinstance(row, list) or not row or not isinstance(row[0], str) or row[0] not in OPS:
                raise bad(f"row {i} is no operation")
            op: str = row[0]
            has_value = op in ("const", "var", "powi", "powr", "table") or op in _WHOLE
            if len(row) != 1 + (op not in NULLARY) + has_value:
                raise bad(f"row {i} ({op}) has the wrong length")
            value: Value = None
            if has_value:
                value = _value(op, row[-1])
                if value is None:
                    raise bad(f"row {i} ({op}) carries a value it cannot have")
            arity = arity_of(op, value)
            args = _indices(row[1] if arity else [], i)
            if args is None or len(args) != arity:
                raise bad(f"row {i} ({op}) must use {arity} earlier rows")
            nodes.append(Node(op, args, value))
        last = data[-1]
        if not isinstance(last, list) or len(last) != 2 or last[0] != "out":
            raise bad("the last row must name the outputs")
        outputs = _indices(last[1], len(nodes))
        if not outputs or len(outputs) > most:
            raise bad("the outputs must be some of its rows")
        graph = cls(tuple(nodes), outputs)
        builder = Builder()
        try:
            at = builder.copy(nodes)
            again = _prune(builder.nodes, [at[i] for i in outputs])
        except (InvalidRequest, ValueError) as error:
            raise bad(str(error)) from None
        if again != graph:
            raise bad("its rows are not in the order and form they are written in")
        return graph


class Builder:
    """Makes a graph from the leaves up; every method returns the index of a node. Equal nodes get equal indices."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._index: dict[Node, int] = {}
        self._nested: dict[tuple[str, int], tuple[int, ...]] = {}  # the arguments of nested max, or min, in order
        self._parts: dict[int, tuple[int, ...]] = {}  # of nested max and min: the nests and their arguments
        self._partial: set[int] = set()  # nodes with an operation that is not defined, or not continuous, everywhere

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, index: int) -> Node:
        return self._nodes[index]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes)

    def const(self, value: Fraction | int) -> int:
        value = value if type(value) is Fraction else Fraction(value)
        _check_constant(value)
        return self._store(Node("const", (), value))

    def var(self, name: str) -> int:
        if not is_name(name):
            raise InvalidRequest(f"{shown(name)} is not a name: letters, digits and _, and no Python keyword")
        return self._store(Node("var", (), name))

    def apply(self, op: str, *args: int, value: Value = None) -> int:
        """The node `op(*args)`, folded where every argument is a rational constant and the result is exact."""
        if op == "const" and isinstance(value, Fraction | int):
            return self.const(value)
        if op == "var" and isinstance(value, str):
            return self.var(value)
        _check_shape(op, args, value, len(self._nodes))
        constants = [self._constant(arg) for arg in args]
        if op == "pow" and constants[1] is not None:
            return self._power(args[0], constants[1])
        if op in ("powi", "powr"):
            assert isinstance(value, Fraction | int)
            return self._power(args[0], value if type(value) is Fraction else Fraction(value))
        if op in ("ratio", "table"):
            return self._store(Node(op, args, value))
        if op == "div" and constants[1] == 0:
            raise InvalidRequest("division by zero")
        if op == "where":
            return self._where(*args)
        known = [constant for constant in constants if constant is not None]
        if args and len(known) == len(args):
            folded = _fold(op, known)
            if folded is not None:
                return self.const(folded)
        neutral = _NEUTRAL.get(op)
        if neutral is not None and constants[1] == neutral:
            return args[0]
        if op in ("add", "mul") and constants[0] == neutral:
            return args[1]
        return self._extreme(op, *args) if op in ("max", "min") else self._store(Node(op, args, value))

    def copy(self, nodes: Iterable[Node], rule: Callable[[Node, list[int]], int | None] | None = None) -> list[int]:
        """Build `nodes` (the nodes of a graph, in order) again in this builder; entry i is where node i came to lie.

        `rule` of a node and its arguments here may name another place for it.
        """
        at: list[int] = []
        for node in nodes:
            args = [at[arg] for arg in node.args]
            new = None if rule is None else rule(node, args)
            at.append(self.apply(node.op, *args, value=node.value) if new is None else new)
        return at

    def copy_renamed(self, nodes: Iterable[Node], names: Mapping[str, str]) -> list[int]:
        """`copy` with other names for some variables."""
        return self.copy(replace(node, value=names.get(str(node.value), node.value)) for node in nodes)

    def substitute(self, graph: Graph, argument: int) -> list[int]:
        """The outputs of `graph`, a function of one variable, at the node `argument`."""
        at = self.copy(graph.nodes, lambda node, _: argument if node.op == "var" else None)
        return [at[output] for output in graph.outputs]

    def graph(self, outputs: Sequence[int]) -> Graph:
        """The graph of `outputs`, pruned to what they need, in canonical order."""
        if not 1 <= len(outputs) <= MAX_OUTPUTS:
            raise InvalidRequest(f"{len(outputs)} outputs were asked for; between 1 and {MAX_OUTPUTS} are possible")
        return _prune(self._nodes, outputs)

    def _constant(self, index: int) -> Fraction | None:
        node = self._nodes[index]
        return node.value if node.op == "const" and isinstance(node.value, Fraction) else None

    def _store(self, node: Node) -> int:
        index = self._index.get(node)
        if index is None:
            index = len(self._nodes)
            if index >= MAX_NODES:
                raise InvalidRequest(f"more than {MAX_NODES:,} operations")
            self._nodes.append(node)
            self._index[node] = index
            divides = node.divides and self._constant(node.args[-1]) is None
            if node.op in PARTIAL or divides or not self._partial.isdisjoint(node.args):
                self._partial.add(index)
        return index

    def _where(self, u: int, a: int, b: int) -> int:
        """where(u, a, b); one of the two where u is a constant or both are the same, and none of u within a and b."""
        known = self._constant(u)
        first, second = self._nodes[a], self._nodes[b]
        if first.op == "where" and first.args[0] == u:
            a = first.args[1]
        if second.op == "where" and second.args[0] == u:
            b = second.args[2]
        if known is not None:
            return a if known > 0 else b
        return a if a == b else self._store(Node("where", (u, a, b)))

    def _extreme(self, op: str, a: int, b: int) -> int:
        """max or min with every argument of nested ones once: max(max(x, y), x) is max(x, y), max(x, min(x, y)) is x.

        Beside s in max(s, t) an s within t is as good as -∞: max distributes over the max and min that t is made of,
        and max(s, s) = max(s, -∞). In min it is as good as ∞.
        """
        mine, others = self._nested.get((op, a), (a,)), self._nested.get((op, b), (b,))
        if set(mine) <= set(others):
            return b
        fresh = [i for i in others if i not in mine]
        if len(fresh) < len(others):
            return reduce(partial(self._extreme, op), fresh, a)
        for whole, other, arguments in ((b, a, mine), (a, b, others)):
            rest = self._without(op, whole, set(arguments))
            if rest is None:
                return other
            if rest != whole:
                return self._extreme(op, *((a, rest) if whole == b else (rest, b)))
        index = self._store(Node(op, (a, b)))
        parts = (index, *self._parts.get(a, (a,)), *self._parts.get(b, (b,)))
        if len(parts) < 2 * MAX_NESTED:
            self._parts[index] = parts
        if len(mine) + len(others) <= MAX_NESTED:
            self._nested[op, index] = mine + others
        return index

    def _without(self, op: str, index: int, gone: set[int]) -> int | None:
        """The node with the nodes `gone` within its nested max and min as the neutral element of `op`, which None is.

        A min (op: max) that would take something with it that is not defined everywhere stays.
        """
        if index in gone:
            return None
        if gone.isdisjoint(self._parts.get(index, ())):
            return index
        node = self._nodes[index]
        rest = [self._without(op, arg, gone) for arg in node.args]
        kept = [part for part in rest if part is not None]
        if len(kept) == 2:
            return index if tuple(kept) == node.args else self._extreme(node.op, *kept)
        if node.op == op:
            return kept[0] if kept else None
        return None if self._partial.isdisjoint(kept) else index

    def _power(self, base: int, exponent: Fraction) -> int:
        if abs(exponent) > MAX_EXPONENT:
            raise InvalidRequest(f"an exponent of size above {MAX_EXPONENT:,}")
        if exponent.denominator != 1:
            return self._store(Node("powr", (base,), exponent))
        n, constant = exponent.numerator, self._constant(base)
        if n == 1:
            return base
        if constant is not None:
            if constant == 0 and n < 0:
                raise InvalidRequest("division by zero")
            if constant and abs(n * (log(abs(constant.numerator)) - log(constant.denominator))) > 1.001 * log(LARGEST):
                raise InvalidRequest(OUT_OF_RANGE)  # before the power is worked out: it may be too long to store
            if abs(n) * bits(constant) <= MAX_BITS or constant in (0, 1, -1):
                return self.const(constant**n)
        return self._store(Node("powi", (base,), n))


def is_name(text: object) -> bool:
    """Whether `text` can be the name of a variable: an ASCII identifier that is no Python keyword, or an entry of such
    a vector: x[3].
    """
    if not isinstance(text, str) or len(text) > MAX_NAME:
        return False
    text = (entry(text) or (text,))[0]
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def shown(value: object, limit: int = 60) -> str:
    """`value` quoted on one line, unprintable characters escaped, cut to about `limit` characters."""
    text = value[: limit + 1] if isinstance(value, str) else repr(value)
    text = ascii(text) if isinstance(value, str) else text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= limit + 2 else text[:limit] + "…" + (text[0] if isinstance(value, str) else "")


def bits(value: Fraction) -> int:
    """Of the longer of numerator and denominator."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _check_constant(value: Fraction) -> None:
    if bits(value) < _SURELY_IN_RANGE:
        return
    if bits(value) > MAX_BITS and SMALLEST <= abs(value) <= LARGEST:
        raise InvalidRequest(f"a constant of more than {MAX_BITS:,} bits")
    if value and not SMALLEST <= abs(value) <= LARGEST:
        raise InvalidRequest(OUT_OF_RANGE)


def arity_of(op: str, value: object = None) -> int:
    """How many arguments the operation, which carries the value, has; -1 of what is none."""
    if op == "table":
        return value.dim if isinstance(value, Table) else -1
    return next((n for n, ops in enumerate((NULLARY, UNARY, BINARY, TERNARY)) if op in ops), -1)


def _check_shape(op: str, args: tuple[int, ...], value: Value, count: int) -> None:
    arity = arity_of(op, value)
    if arity < 0:
        raise ValueError(f"unknown operation {op!r}")
    if len(args) != arity or (args and not 0 <= min(args) <= max(args) < count):
        raise ValueError(f"{op} takes {arity} earlier node(s), not {args}")
    kind = _CARRIED.get(op)
    wanted = value is None if kind is None else isinstance(value, kind)
    if op in _WHOLE and isinstance(value, int) and not OPERATIONS[op].least <= value <= MAX_EXPONENT:
        least = OPERATIONS[op].least
        raise InvalidRequest(f"the first argument of {op} is a whole number from {least} to {MAX_EXPONENT}")
    if not wanted or op in ("const", "var"):
        raise ValueError(f"{op} cannot carry the value {value!r}")


def rational(op: str, values: Sequence[Fraction]) -> Fraction:
    """neg, add, sub, mul or div in exact arithmetic."""
    result: Fraction = getattr(operator, {"div": "truediv"}.get(op, op))(*values)
    return result


def _fold(op: str, values: list[Fraction]) -> Fraction | None:
    """The exact result, or None where the operation is not rational or the result would pass MAX_BITS."""
    if op in ("floor", "round"):
        return Fraction(floor(values[0]) if op == "floor" else round(values[0]))
    if op not in ("neg", "add", "sub", "mul", "div"):
        return None
    result = rational(op, values)
    if bits(result) <= MAX_BITS:
        return result
    in_range = not result or SMALLEST <= abs(result) <= LARGEST
    return None if in_range else result


def _prune(nodes: Sequence[Node], outputs: Sequence[int]) -> Graph:
    number: dict[int, int] = {}
    kept: list[Node] = []
    for output in outputs:
        for index in arguments_first(output, lambda i: nodes[i].args, number):
            node = nodes[index]
            number[index] = len(kept)
            kept.append(Node(node.op, tuple(number[arg] for arg in node.args), node.value))
    return Graph(tuple(kept), tuple(number[output] for output in outputs))


# Precedence of Python: sums, products, unary minus, powers (their left side must be an atom), atoms.
_SUM, _PRODUCT, _MINUS, _POWER, _ATOM = range(1, 6)
_INFIX: Final = {  # the sign, the precedence of the result, the least precedences of the two sides
    "add": (" + ", _SUM, _SUM, _PRODUCT),
    "sub": (" - ", _SUM, _SUM, _PRODUCT),
    "mul": ("*", _PRODUCT, _PRODUCT, _MINUS),
    "div": ("/", _PRODUCT, _PRODUCT, _MINUS),
    "pow": ("**", _POWER, _ATOM, _MINUS),
}


def _text(nodes: Sequence[Node], index: int, limit: int) -> str:
    # Text grows to the right only, so a string past the limit may be cut at once: what is cut could never be shown.
    # This keeps the work linear although the tree of a graph with shared nodes may be exponentially large.
    texts: dict[int, tuple[str, int]] = {}

    def side(arg: int, least: int) -> str:
        text, precedence = texts[arg]
        return text if precedence >= least else f"({text})"

    for i in sorted(reached([index], lambda i: nodes[i].args)):
        node = nodes[i]
        op, args = node.op, node.args
        if op == "const":
            assert isinstance(node.value, Fraction)
            text, precedence = number_text(node.value)
        elif op == "var":
            text, precedence = str(node.value), _ATOM
        elif op in ("pi", "e"):
            text, precedence = op, _ATOM
        elif op == "neg":
            text, precedence = "-" + side(args[0], _MINUS), _MINUS
        elif op in ("powi", "powr"):
            assert isinstance(node.value, Fraction | int)
            exponent, strength = number_text(Fraction(node.value))
            exponent = exponent if strength >= _MINUS else f"({exponent})"
            text, precedence = f"{side(args[0], _ATOM)}**{exponent}", _POWER
        elif op in _INFIX:
            sign, precedence, left, right = _INFIX[op]
            text = side(args[0], left) + sign + side(args[1], right)
        elif op == "where":
            branches = ", ".join(texts[arg][0] for arg in args[1:])
            text, precedence = f"where({_condition(nodes, args[0], texts)}, {branches})", _ATOM
        else:
            name = node.value.name if isinstance(node.value, Table) else op
            whole = [str(node.value)] if isinstance(node.value, int) else []
            text, precedence = f"{name}({', '.join([*whole, *(texts[arg][0] for arg in args)])})", _ATOM
        texts[i] = (text[: limit + 1], precedence)
    text = texts[index][0]
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def _condition(nodes: Sequence[Node], u: int, texts: Mapping[int, tuple[str, int]]) -> str:
    """u > 0 as a person would write it: a difference as a comparison of its sides, with a constant on the right."""
    node = nodes[u]
    if node.op != "sub":
        return f"{texts[u][0]} > 0"
    left, right = node.args
    constant = nodes[left].op == "const"
    return f"{texts[right][0]} < {texts[left][0]}" if constant else f"{texts[left][0]} > {texts[right][0]}"


def number_text(value: Fraction, digits: int = 18) -> tuple[str, int]:
    """A rational as Python source that reads back exactly, with its precedence: a short decimal, else p/q."""
    p, q = value.numerator, value.denominator
    twos = (q & -q).bit_length() - 1
    fives, rest = 0, q >> twos
    while rest % 5 == 0 and fives <= 400:
        rest, fives = rest // 5, fives + 1
    if rest == 1:
        places = max(twos, fives)
        mantissa = str(abs(p) * 10**places // q)
        stripped = mantissa.rstrip("0") or "0"
        if len(stripped) <= digits:
            power = len(mantissa) - len(stripped) - places  # the value is stripped * 10**power
            return ("-" if p < 0 else "") + _decimal(stripped, power), _MINUS if p < 0 else _ATOM
    return (str(p), _MINUS if p < 0 else _ATOM) if q == 1 else (f"{p}/{q}", _PRODUCT)


def _decimal(digits: str, power: int) -> str:
    if digits == "0":
        return "0"
    if 0 <= power <= 6:
        return digits + "0" * power
    if power < 0 and len(digits) + power > -4:
        whole = digits[:power] or "0"
        return f"{whole}.{digits[power:].rjust(-power, '0')}"
    exponent = power + len(digits) - 1
    return f"{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{exponent}"


_RATIONAL: Final = re.compile(r"-?[0-9]{1,650}(/[0-9]{1,650})?", re.ASCII)


def _indices(row: object, below: int) -> tuple[int, ...] | None:
    if not isinstance(row, list) or len(row) > MAX_NODES:
        return None
    good = all(type(item) is int and 0 <= item < below for item in row)
    return tuple(row) if good else None


def _written(value: Value) -> Any:
    """What a node carries, as JSON."""
    if isinstance(value, Table):
        return value.to_json()
    return str(value) if isinstance(value, Fraction) else value


def _value(op: str, item: object) -> Value:
    if op == "table":
        return Table.from_json(item)
    if op == "var":
        return item if isinstance(item, str) and is_name(item) else None
    if op == "powi" or op in _WHOLE:
        return item if type(item) is int and abs(item) <= MAX_EXPONENT else None
    if not isinstance(item, str) or not _RATIONAL.fullmatch(item):
        return None
    p, _, q = item.partition("/")
    if q and int(q) == 0:
        return None
    value = Fraction(int(p), int(q or "1"))
    if str(value) != item or bits(value) > MAX_BITS or (op == "powr" and value.denominator == 1):
        return None
    return value
