"""One interpreter over many algebras: the same graph on arrays, intervals, balls, complex balls and power series.

An algebra says what each operation means for its values; `run` walks the graph once, without recursion.
"""

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Generic, NoReturn, TypeVar

from attnfun.errors import AttnfunError, InvalidRequest
from attnfun.language.graph import Graph, Node
from attnfun.language.operations import OPERATIONS
from attnfun.language.operations.entry import Operation

T = TypeVar("T")
static: Callable[[Any], Any] = staticmethod  # of a function of any kind, NumPy's among them


class NotAnalytic(AttnfunError):
    """An operation without a complex derivative (abs, max, where, ...) was asked of complex values."""


def not_analytic(op: str) -> Callable[..., Any]:
    def method(self: object, *args: object) -> NoReturn:
        raise NotAnalytic(f"{op} is not analytic")

    return method


class Algebra(Generic[T]):
    """What every operation of the graph means for values of type T: a method of the operation's name (`graph` lists
    them), of one, two or three values; `powi`, `powr`, `ratio`, `table` and jv(n, x) of values and what the node
    carries; `pi` and `e` of none. Arithmetic, powers, `ratio` and `table` are written here or by the algebra; the
    others `method` makes of their entries, when they are first used.

    What stands here is for values that compute by operators and have no order. Shapes broadcast where T has shapes.
    """

    add, sub, mul, neg = map(static, (operator.add, operator.sub, operator.mul, operator.neg))
    table = not_analytic("table")

    def constant(self, value: Fraction, /) -> T:
        raise NotImplementedError

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., T]:
        """The operation of an entry on the values of this algebra, as a method."""
        raise NotImplementedError

    def __getattr__(self, op: str) -> Callable[..., T]:
        entry = OPERATIONS.get(op)
        if entry is None:
            raise AttributeError(f"{type(self).__name__} has no operation {op}")
        setattr(type(self), op, self.method(entry))
        found: Callable[..., T] = getattr(self, op)
        return found


def power_by_squaring(x: T, n: int, mul: Callable[[T, T], T]) -> T:
    """x^n, n >= 1."""
    result: T | None = None
    while n:
        if n & 1:
            result = x if result is None else mul(result, x)
        n >>= 1
        if n:
            x = mul(x, x)
    assert result is not None
    return result


def run(graph: Graph, algebra: Algebra[T], env: Mapping[str, T]) -> list[T]:
    """The outputs of `graph` with its variables from `env`; a value is dropped as soon as nothing needs it any more.

    A constant output is what `algebra.constant` makes, not broadcast to the shape of the variables.
    """
    values: dict[int, T] = {}
    for i, (node, gone) in enumerate(zip(graph.nodes, graph.last_used, strict=True)):
        values[i] = step(node, algebra, env, values)
        for old in gone:
            del values[old]
    return [values[i] for i in graph.outputs]


def run_all(graph: Graph, algebra: Algebra[T], env: Mapping[str, T]) -> list[T]:
    """The value of every node, in the order of `graph.nodes`."""
    values: dict[int, T] = {}
    for i, node in enumerate(graph.nodes):
        values[i] = step(node, algebra, env, values)
    return list(values.values())


def step(node: Node, algebra: Algebra[T], env: Mapping[str, T], values: Mapping[int, T]) -> T:
    """The value of one node, given those of its arguments."""
    op, value, args = node.op, node.value, node.args
    result: T
    if value is None:
        method: Any = getattr(algebra, op)
        if len(args) == 2:
            result = method(values[args[0]], values[args[1]])
        elif len(args) == 1:
            result = method(values[args[0]])
        else:
            result = method(*(values[arg] for arg in args))
        return result
    if op == "var":
        try:
            return env[str(value)]
        except KeyError:
            given = ", ".join(env) or "none"
            raise InvalidRequest(f"no value was given for the variable {value} (given: {given})") from None
    if op == "const":
        assert isinstance(value, Fraction)
        return algebra.constant(value)
    result = getattr(algebra, op)(*(values[a] for a in args), value)
    return result
