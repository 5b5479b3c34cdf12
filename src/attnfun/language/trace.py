"""An ordinary NumPy function to a graph: it is called once, on stand-ins that write down what is done to them.

    operators + - * / ** // % abs @, the ufuncs of UFUNCS (SciPy's that the language has), np.clip
    comparisons and & | ^ ~ of them, np.where, np.piecewise, np.select, floor, ceil, round
    arrays: indices and slices, broadcasting, matrix products, sums, products, largest entries, means and norms along
    axes, and what only moves entries (MOVES)

A function of scalars is called with one stand-in per variable. A function of vectors gets an array for each vector
of the domain (x[100]), or one array of all variables: first with a row for every point, (1, d), as NumPy code takes
many points at once, and where that fails or does not give one value per row, as one point, (d,).

A float in the function is the exact rational of that double (np.pi is a rational, 1.2e-16 away from π). The graph is
what the function did on this one call: a function that draws random numbers, counts its calls or asks for the type of
its argument may do something else the next time, so the caller compares both at points.

Failure mode: `Untraceable` with the reason, for whatever needs a number (if, float(), indices) or has no
operation in the language.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from types import EllipsisType
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.language.graph import MAX_OUTPUTS, Builder, Graph, shown
from attnfun.language.operations import TRACED
from attnfun.language.parse import written
from attnfun.language.truth import (
    COMPARISONS,
    both,
    ceiling,
    chosen,
    compared,
    either,
    floor_divided,
    heaviside,
    negated,
    remainder,
    truncated,
)
from attnfun.language.vectors import groups, is_vector

Objects = NDArray[Any]


class Untraceable(AttnfunError):
    """The function cannot be written as a graph; the message says what it did that a graph cannot hold."""


def _follow(condition: bool, why: str) -> None:
    if not condition:
        raise Untraceable(why)


@dataclass(frozen=True)
class Traced:
    """The graph of a function, and how it was called: `parts` of a point are its arguments, `rows` many at once."""

    graph: Graph
    parts: tuple[int | slice, ...]
    rows: bool


def trace(function: Callable[..., Any], names: Sequence[str]) -> Graph:
    """The graph of `function` in the variables `names`; `parts_of` says how it is called.

    It may return one value, a list or tuple of values (several outputs), or an array of them.
    """
    return traced(function, names).graph


def traced(function: Callable[..., Any], names: Sequence[str]) -> Traced:
    """`trace`, with the way in which the function was called."""
    parts = parts_of(function, names)
    if all(isinstance(part, int) for part in parts):
        return Traced(_followed(function, names, parts, False), parts, True)
    try:
        batch = _followed(function, names, parts, True)
    except Untraceable as why:
        try:
            return Traced(_followed(function, names, parts, False), parts, False)
        except Untraceable as other:
            raise (why if why.__cause__ is None else other) from None
    if not batch.variables:  # a loop over the rows may have had none to go through
        with suppress(Untraceable):
            return Traced(_followed(function, names, parts, False), parts, False)
    return Traced(batch, parts, True)


def _followed(function: Callable[..., Any], names: Sequence[str], parts: Sequence[int | slice], rows: bool) -> Graph:
    """The graph of one call: with all points as rows of arrays, of which there is one, or with a point alone."""
    builder = Builder()
    inputs = np.empty(len(names), dtype=object)
    inputs[:] = [Tracer(builder, builder.var(name)) for name in names]
    vectors = any(isinstance(part, slice) for part in parts)
    given: list[Any] = [inputs[part] for part in parts]
    if vectors and rows:
        given = [TracerArray(np.atleast_1d(np.asarray(one, dtype=object))[None]) for one in given]
        given = [TracerArray(one.items[:, 0]) if isinstance(part, int) else one for one, part in zip(given, parts)]
    elif vectors:
        given = [TracerArray(one) if isinstance(part, slice) else one for one, part in zip(given, parts)]
    try:
        result = function(*given)
        items = _rows(result) if vectors and rows else _items(result)
        return builder.graph([_index(builder, item) for item in items])
    except Untraceable:
        raise
    except Exception as error:  # whatever the user's function raises on a stand-in is a reason, not a crash
        line = shown(str(error), 200) if str(error) else "no message"
        raise Untraceable(f"the function cannot be traced: {type(error).__name__}: {line}") from error


def parts_of(function: Callable[..., Any], names: Sequence[str]) -> tuple[int | slice, ...]:
    """Which variables make up each argument: one for each vector or scalar of the domain, or all, or each its own."""
    require(callable(function), f"a function was expected, not {shown(function)}")
    own = groups(names)
    if any(is_vector(base, members) for base, members in own.items()):
        least, most, _ = _arity(function) or (1, 1, 1)
        if least <= len(own) <= most:
            parts: list[int | slice] = []
            at = 0
            for base, members in own.items():
                parts.append(slice(at, at + len(members)) if is_vector(base, members) else at)
                at += len(members)
            return tuple(parts)
    return (slice(0, len(names)),) if takes_vector(function, len(names)) else tuple(range(len(names)))


def takes_vector(function: Callable[..., Any], count: int) -> bool:
    """Whether `function` takes one array of all variables (its last axis) and not `count` arguments.

    It does when there are several variables and it takes one argument; further arguments with defaults are left alone,
    unless they are just as many as make up `count`. A function that can be called neither way is an `InvalidRequest`.
    """
    require(callable(function), f"a function was expected, not {shown(function)}")
    found = _arity(function)
    if found is None:
        return False
    least, most, listed = found
    exactly_one = least == 1 < count and listed not in (count, 10**9)
    if least <= count <= most and not exactly_one:
        return False
    if least <= 1 <= most and count > 1:
        return True
    raise InvalidRequest(f"the function takes {least} argument{'s' if least != 1 else ''}, the domain has {count}")


def _arity(function: Callable[..., Any]) -> tuple[int, int, int] | None:
    """The fewest arguments, the most, and the most that have names; None where nothing is known."""
    if isinstance(function, np.ufunc):
        return function.nin, function.nin, function.nin
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    forced = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if forced:
        raise InvalidRequest(f"the function needs the keyword {forced[0]}, but is called with its variables only")
    most = 10**9 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    return sum(p.default is p.empty for p in positional), most, most


def _rows(result: object) -> list[Any]:
    """The values of the one row that the function was called with."""
    parts = list(result) if isinstance(result, list | tuple) else [result]
    items: list[Any] = []
    for part in parts:
        array = _entries(part)
        row = array.ndim in (1, 2) and len(array) == 1
        why = f"the function gave values of shape {array.shape} for one row"
        if not (row or (array.ndim == 0 and not isinstance(part, _Stand))):
            raise Untraceable(why) from ValueError(why)
        items += list(array.reshape(-1))
    _follow(1 <= len(items) <= MAX_OUTPUTS, f"the function returned {len(items)} values")
    return items


def _items(result: object) -> list[Any]:
    if isinstance(result, TracerArray):
        result = result.items
    if isinstance(result, np.ndarray):
        _follow(result.ndim <= 1, f"the function returned an array of shape {result.shape}")
        items: list[Any] = list(result.reshape(-1))
    else:
        items = list(result) if isinstance(result, list | tuple) else [result]
    _follow(1 <= len(items) <= MAX_OUTPUTS, f"the function returned {len(items)} values")
    return items


def _index(builder: Builder, item: object) -> int:
    """The node of a stand-in or of a number."""
    if isinstance(item, Tracer):
        _follow(item.builder is builder, "the function kept a stand-in of an earlier call")
        return item.index
    if isinstance(item, np.ndarray):
        _follow(not item.ndim, f"an array of shape {item.shape} stands where a number was expected")
        return _index(builder, item.item())
    return builder.const(_exact(item))


def _exact(item: object) -> Fraction:
    if isinstance(item, numbers.Rational):  # int, bool, Fraction and NumPy's integers
        return Fraction(int(item.numerator), int(item.denominator))
    if isinstance(item, np.bool_):
        return Fraction(int(item))
    if isinstance(item, float | np.floating):
        _follow(math.isfinite(item), f"the constant {item} stands in the function")
        return Fraction(*item.as_integer_ratio())
    raise Untraceable(f"{shown(item)} of type {type(item).__name__} stands where a number was expected")


def _no_number(what: str) -> Callable[..., Any]:
    def method(self: object, *_: object) -> NoReturn:
        raise Untraceable(f"the function {what}, which needs a number")

    return method


Made = Callable[..., int]
"""What stands for an operation where there is none of that name: builder and nodes to a node."""

_COMPARED: Final[Mapping[str, Made]] = {
    sign: lambda build, x, y, sign=sign: compared(build, sign, x, y) for sign in COMPARISONS
}


def _one_of_two(build: Builder, c: int, d: int) -> int:
    return chosen(build, c, negated(build, d), d)


def _cut_remainder(build: Builder, x: int, y: int) -> int:
    """NumPy's fmod, with the sign of x."""
    return build.apply("sub", x, build.apply("mul", y, truncated(build, build.apply("div", x, y))))


_TRUTHS: Final = frozenset({*_COMPARED.values(), both, either, negated, _one_of_two})


def _operator(op: str | Made) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The methods of x op y and y op x."""
    return lambda self, other: self._apply(op, self, other), lambda self, other: self._apply(op, other, self)


class _Stand:
    """What `Tracer` and `TracerArray` share: operators and NumPy's protocols, all ending in `_apply`."""

    __slots__ = ()

    def _apply(self, op: str | Made, *args: Any) -> Any:
        raise NotImplementedError

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __pow__, __rpow__ = _operator("pow")
    __mod__, __rmod__ = _operator(remainder)
    __floordiv__, __rfloordiv__ = _operator(floor_divided)
    __and__, __rand__ = _operator(both)
    __or__, __ror__ = _operator(either)
    __xor__, __rxor__ = _operator(_one_of_two)
    __gt__, __lt__ = _operator(_COMPARED[">"])[0], _operator(_COMPARED["<"])[0]
    __ge__, __le__ = _operator(_COMPARED[">="])[0], _operator(_COMPARED["<="])[0]
    __eq__, __ne__ = _operator(_COMPARED["=="])[0], _operator(_COMPARED["!="])[0]  # type: ignore[assignment]

    def __invert__(self) -> Any:
        return self._apply(negated, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __floor__(self) -> Any:
        return self._apply("floor", self)

    def __ceil__(self) -> Any:
        return self._apply(ceiling, self)

    def __trunc__(self) -> Any:
        return self._apply(truncated, self)

    def __round__(self, digits: int | None = None) -> Any:
        return _round(self, 0 if digits is None else digits)

    def round(self, decimals: int = 0) -> Any:
        return _round(self, decimals)

    def astype(self, dtype: Any) -> Any:
        """The same numbers; truth values as numbers."""
        _follow(np.dtype(dtype).kind == "f", f"the function turns a value into {shown(dtype)}")
        return self._apply("add", 0, self)

    def __neg__(self) -> Any:
        return self._apply("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._apply("abs", self)

    __bool__ = _no_number("branches on a value (if, and, or, while; np.where and & | ~ are followed)")
    __float__ = _no_number("turns a value into a float")
    __int__ = _no_number("turns a value into an int")
    __complex__ = _no_number("turns a value into a complex number")
    __index__ = _no_number("uses a value as an index")
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        # np.sin of an object array (np.asarray(x) is one) calls the method `sin` of its entries.
        if name in TRACED:
            return lambda: self._apply(TRACED[name].name, self)
        raise AttributeError(f"a traced value has no attribute {name}")

    @property
    def real(self) -> Any:
        """What the principal branch of SciPy's lambertw is on the reals."""
        return self

    def clip(self, low: Any = None, high: Any = None) -> Any:
        return _clip(self, low, high)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method == "__call__" and not options and name in UFUNCS:
            rule = UFUNCS[name]
            return self._apply(rule, *inputs) if isinstance(rule, str) else rule(self._apply, *inputs)
        if name == "matmul" and method == "__call__" and not options:
            return _matmul(*inputs)
        if method == "reduce" and name in _REDUCED and set(options) <= {"axis", "keepdims"}:
            return _reduce(_REDUCED[name], *inputs, **{"axis": 0, **options})
        used = f"np.{name}" + ("" if method == "__call__" else f".{method}")
        used += f" with {', '.join(options)}=" if options else ""
        raise Untraceable(f"the function uses {used}, which has no counterpart in an expression")

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        name = function.__name__
        if name in MOVES:
            return _wrapped(function(*_bare(args), **_bare(options)))
        rule = _FUNCTIONS.get(name)
        if rule is None:
            raise Untraceable(f"the function uses np.{name}, which has no counterpart in an expression")
        try:
            inspect.signature(rule).bind(*args, **options)
        except TypeError:
            raise Untraceable(f"the function calls np.{name} in a way that is not followed") from None
        return rule(*args, **options)


class Tracer(_Stand):
    """The stand-in of one number: a node of a builder."""

    __slots__ = ("builder", "index")
    shape: ClassVar[tuple[int, ...]] = ()
    ndim: ClassVar[int] = 0

    def __init__(self, builder: Builder, index: int) -> None:
        self.builder = builder
        self.index = index

    def _apply(self, op: str | Made, *args: Any, value: Any = None) -> Any:
        array = next((arg for arg in args if isinstance(arg, TracerArray)), None)
        if array is not None:
            return array._apply(op, *args)
        joined = op in ("add", "sub", "neg") and all(isinstance(arg, Truth | bool | np.bool_) for arg in args)
        _follow(not joined, "the function adds or negates truth values; np.where(c, 1, 0) makes numbers of them")
        build, kind = self.builder, Truth if op in _TRUTHS else Tracer
        try:
            nodes = [_index(build, arg) for arg in args]
            if value is not None:
                return Tracer(build, build.apply(str(op), *nodes, value=value))
            return kind(build, written(build, op, nodes) if isinstance(op, str) else op(build, *nodes))
        except InvalidRequest as error:
            raise Untraceable(f"the function cannot be traced: {error}") from None


class Truth(Tracer):
    """The stand-in of a truth value."""

    __slots__ = ()


class TracerArray(_Stand):
    """The stand-in of an array: an array of stand-ins, indexed as NumPy does it."""

    __slots__ = ("items",)

    def __init__(self, items: Objects) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return (_wrapped(row) for row in self.items)

    @property
    def T(self) -> TracerArray:
        return TracerArray(self.items.T)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.items.shape

    @property
    def ndim(self) -> int:
        return self.items.ndim

    @property
    def size(self) -> int:
        return self.items.size

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        known = all(
            one is None or isinstance(one, int | slice | list | np.integer | np.ndarray | EllipsisType) for one in keys
        )
        _follow(
            known, f"the function indexes its argument with {shown(key)}; numbers, slices and lists of them are read"
        )
        return _wrapped(self.items[key])

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise Untraceable("the function turns its argument into an array")

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce("add", self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce("mul", self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce("max", self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _reduce("min", self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return _mean(self, axis, keepdims)

    def dot(self, other: Any) -> Any:
        return _matmul(self, other)

    def reshape(self, *shape: Any) -> Any:
        return TracerArray(self.items.reshape(*shape))

    def __matmul__(self, other: Any) -> Any:
        return _matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _matmul(other, self)

    def _apply(self, op: str | Made, *args: Any) -> Any:
        arrays = [_entries(arg) for arg in args]
        try:
            arrays = list(np.broadcast_arrays(*arrays))
        except ValueError:
            shapes = " and ".join(str(array.shape) for array in arrays)
            raise Untraceable(f"arrays with entries of shapes {shapes} meet") from ValueError(shapes)
        _follow(arrays[0].size > 0, "the function makes an empty array")
        first = next(item for array in arrays for item in array.reshape(-1) if isinstance(item, Tracer))
        out = np.empty(arrays[0].shape, dtype=object)
        flat = out.reshape(-1)
        flat[:] = [first._apply(op, *row) for row in zip(*(array.reshape(-1).tolist() for array in arrays))]
        return _wrapped(out)


def _entries(arg: Any) -> Objects:
    """An array of stand-ins and numbers."""
    if isinstance(arg, TracerArray):
        return arg.items
    if isinstance(arg, list | tuple):
        return np.stack([_entries(one) for one in arg])
    if isinstance(arg, Tracer):
        single = np.empty((), dtype=object)
        single[()] = arg
        return single
    return np.asarray(arg)


def _wrapped(found: Any) -> Any:
    """An array as a stand-in; of one without axes its entry."""
    if not isinstance(found, np.ndarray):
        return found
    return TracerArray(found) if found.ndim else found.item()


def _bare(given: Any) -> Any:
    """Arguments of a NumPy function with arrays in place of their stand-ins."""
    if isinstance(given, Mapping):
        return {name: _bare(one) for name, one in given.items()}
    if isinstance(given, list | tuple):
        return type(given)([_bare(one) for one in given])
    return _entries(given) if isinstance(given, _Stand) else given


def _folded(op: str, items: list[Any]) -> Any:
    """One after the other; of max and min in pairs, so that few steps stand one after the other."""
    stand = next((item for item in items if isinstance(item, Tracer)), None)
    _follow(stand is not None, "the function reduces an array of numbers")
    assert stand is not None
    if op == "logaddexp":
        return stand._apply("log", _folded("add", [stand._apply("exp", item) for item in items]))
    while op in ("max", "min") and len(items) > 1:
        pairs = [stand._apply(op, a, b) for a, b in zip(items[::2], items[1::2])]
        items = pairs + items[len(items) & ~1 :]
    return reduce(partial(stand._apply, op), items)


def _reduce(op: str, array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    items = _entries(array)
    _follow(items.size > 0, "the function reduces an empty array")
    axes = range(items.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    try:
        moved = np.moveaxis(items, tuple(axes), range(-len(axes), 0))
    except (TypeError, ValueError):
        raise Untraceable(f"the function reduces an array of shape {items.shape} along axis {shown(axis)}") from None
    moved = moved.reshape(*moved.shape[: items.ndim - len(axes)], -1)
    out = np.empty(moved.shape[:-1], dtype=object)
    for place in np.ndindex(out.shape):
        out[place] = _folded(op, moved[place].tolist())
    return _wrapped(np.expand_dims(out, tuple(axes)) if keepdims else out)


def _mean(array: Any, axis: Any = None, keepdims: bool = False) -> Any:
    total = _reduce("add", array, axis, keepdims)
    return total / (_entries(array).size // max(1, _entries(total).size))


def _matmul(left: Any, right: Any) -> Any:
    """The product of matrices and vectors; weights that are 0 leave no trace."""
    a, b = _entries(left), _entries(right)
    _follow(1 <= a.ndim <= 2 and 1 <= b.ndim <= 2, "the function multiplies what are no matrices and vectors")
    if a.shape[-1] != b.shape[0]:
        why = f"matrices of shapes {a.shape} and {b.shape} are multiplied"
        raise Untraceable(why) from ValueError(why)
    rows, columns = np.atleast_2d(a).tolist(), np.atleast_2d(b.T).tolist()
    out = np.empty((len(rows), len(columns)), dtype=object)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            terms = [x * y for x, y in zip(row, column) if not _is_zero(x) and not _is_zero(y)]
            out[i, j] = _folded("add", terms) if terms else 0
    return _wrapped(out.reshape(a.shape[:-1] + b.shape[1:]))


def _is_zero(item: Any) -> bool:
    return not isinstance(item, Tracer) and item == 0


def _einsum(subscripts: str, *operands: Any) -> Any:
    _follow(isinstance(subscripts, str), "the function calls np.einsum without its letters")
    return _wrapped(np.einsum(subscripts, *(_entries(one).astype(object) for one in operands)))


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    _follow(
        isinstance(x, TracerArray) and ord in (None, 2),
        "the function uses np.linalg.norm in a way that is not followed",
    )
    total = _reduce("add", x**2, axis, keepdims)
    return total._apply("sqrt", total)


def _polyval(p: Any, x: Any) -> Any:
    result = p[0]
    for coefficient in p[1:]:
        result = result * x + coefficient
    return result


def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    stand = next(item for item in (a, low, high) if isinstance(item, _Stand))
    result = a if low is None else stand._apply("max", a, low)
    return result if high is None else stand._apply("min", result, high)


def _where(condition: Any, x: Any, y: Any) -> Any:
    stand = next(item for item in (condition, x, y) if isinstance(item, _Stand))
    return stand._apply(chosen, condition, x, y)


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """The choice of the first condition that holds."""
    _follow(len(condlist) == len(choicelist) > 0, "np.select needs as many choices as conditions")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = _where(condition, choice, result)
    return result


def _piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **options: Any) -> Any:
    """The function of the last condition that holds; one function more is for where none does."""
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    more = len(funclist) - len(conditions)
    _follow(more in (0, 1), "np.piecewise needs as many functions as conditions, or one more")
    values = [f(x, *args, **options) if callable(f) else f for f in funclist]
    result = values[-1] if more else 0
    for condition, value in zip(conditions, values, strict=False):
        result = _where(condition, value, result)
    return result


def _round(a: Any, decimals: int = 0) -> Any:
    whole = isinstance(decimals, int | np.integer)
    _follow(whole, f"the function rounds to a number of digits of type {type(decimals).__name__}")
    if decimals == 0:
        return a._apply("round", a)
    scale = 10 ** abs(int(decimals))
    up, down = ("mul", "div") if decimals > 0 else ("div", "mul")
    return a._apply(down, a._apply("round", a._apply(up, a, scale)), scale)


def _through(made: Made) -> Callable[..., Any]:
    return lambda apply, *args: apply(made, *args)


_COMPARISON_NAMES: Final = {
    "greater": ">", "less": "<", "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
}  # fmt: skip
_MADE_NAMES: Final[Mapping[str, Made]] = {
    "logical_and": both, "logical_or": either, "logical_not": negated, "logical_xor": _one_of_two, "bitwise_and": both,
    "bitwise_or": either, "bitwise_xor": _one_of_two, "invert": negated, "ceil": ceiling, "trunc": truncated,
    "heaviside": heaviside, "remainder": remainder, "fmod": _cut_remainder, "floor_divide": floor_divided,
}  # fmt: skip


def _lambertw(apply: Callable[..., Any], z: Any, k: Any, _: Any) -> Any:
    _follow(int(k) == 0, f"the function uses branch {int(k)} of lambertw; the principal one is followed")
    return apply("lambertw", z)


Rule = str | Callable[..., Any]
UFUNCS: Final[Mapping[str, Rule]] = {
    **{name: entry.name for name, entry in TRACED.items()},
    **{"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg"},
    **{"power": "pow", "pow": "pow", "float_power": "pow"},
    "_lambertw": _lambertw,
    "airy": lambda apply, x: tuple(apply(name, x) for name in ("airyai", "airyaiprime", "airybi", "airybiprime")),
    "positive": lambda apply, x: x,
    "square": lambda apply, x: apply("pow", x, 2),
    "reciprocal": lambda apply, x: apply("div", 1, x),
    **{name: _through(_COMPARED[sign]) for name, sign in _COMPARISON_NAMES.items()},
    **{name: _through(made) for name, made in _MADE_NAMES.items()},
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "clip": _clip,
    "where": _where,
    "select": _select,
    "piecewise": _piecewise,
    "fix": lambda x: x._apply(truncated, x),
    **{name: _round for name in ("round", "around", "round_")},
    "sum": lambda a, axis=None, keepdims=False: _reduce("add", a, axis, keepdims),
    "prod": lambda a, axis=None, keepdims=False: _reduce("mul", a, axis, keepdims),
    "max": lambda a, axis=None, keepdims=False: _reduce("max", a, axis, keepdims),
    "min": lambda a, axis=None, keepdims=False: _reduce("min", a, axis, keepdims),
    "amax": lambda a, axis=None, keepdims=False: _reduce("max", a, axis, keepdims),
    "amin": lambda a, axis=None, keepdims=False: _reduce("min", a, axis, keepdims),
    "mean": _mean,
    "norm": _norm,
    "polyval": _polyval,
    **{name: lambda x, own=name: x._apply(own, x) for name in ("sinc", "i0")},
    "dot": _matmul,
    "einsum": _einsum,
}
_REDUCED: Final = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "logaddexp": "logaddexp"}
MOVES: Final = frozenset({
    "stack", "column_stack", "vstack", "hstack", "concatenate", "transpose", "reshape", "ravel", "squeeze",
    "expand_dims", "moveaxis", "swapaxes", "broadcast_to", "roll", "flip", "take", "tile", "repeat", "diff", "cumsum",
    "outer", "shape", "ndim", "size",
})  # fmt: skip
"""NumPy's functions that only move entries, or add, subtract and multiply them one by one."""
