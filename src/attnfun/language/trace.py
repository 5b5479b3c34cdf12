"""An ordinary NumPy function to a graph: it is called once, on stand-ins that write down what is done to them.

    operators + - * / ** abs, the ufuncs of UFUNCS (SciPy's erf and expit too), np.clip, sums and norms of a vector

A float in the function is the exact rational of that double (np.pi is a rational, 1.2e-16 away from π). The graph is
what the function did on this one call: a function that draws random numbers, counts its calls or asks for the type of
its argument may do something else the next time, so the caller compares both at points.

Failure mode: `Untraceable` with the reason, for whatever needs a number (if, float(), comparisons, indices) or has no
operation in the language.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from attnfun.errors import AttnfunError, InvalidRequest, require
from attnfun.language.graph import FUNCTIONS, MAX_OUTPUTS, Builder, Graph, shown


class Untraceable(AttnfunError):
    """The function cannot be written as a graph; the message says what it did that a graph cannot hold."""


def _follow(condition: bool, why: str) -> None:
    if not condition:
        raise Untraceable(why)


def trace(function: Callable[..., Any], names: Sequence[str]) -> Graph:
    """The graph of `function` in the variables `names`; how it is called is decided by `takes_vector`.

    It may return one value, a list or tuple of values (several outputs), or an object array of them.
    """
    vector = takes_vector(function, len(names))
    builder = Builder()
    inputs = [Tracer(builder, builder.var(name)) for name in names]
    try:
        result = function(TracerVector(inputs)) if vector else function(*inputs)
        outputs = [_index(builder, item) for item in _items(result)]
        return builder.graph(outputs)
    except Untraceable:
        raise
    except Exception as error:  # whatever the user's function raises on a stand-in is a reason, not a crash
        line = shown(str(error), 200) if str(error) else "no message"
        raise Untraceable(f"the function cannot be traced: {type(error).__name__}: {line}") from error


def takes_vector(function: Callable[..., Any], count: int) -> bool:
    """Whether `function` takes one array of all variables (its last axis) and not `count` arguments.

    It does when there are several variables and it takes one argument; further arguments with defaults are left alone,
    unless they are just as many as make up `count`. A function that can be called neither way is an `InvalidRequest`.
    """
    require(callable(function), f"a function was expected, not {shown(function)}")
    if isinstance(function, np.ufunc):
        least = most = function.nin
    else:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return False
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        forced = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if forced:
            raise InvalidRequest(f"the function needs the keyword {forced[0]}, but is called with its variables only")
        least = sum(p.default is p.empty for p in positional)
        most = 10**9 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    exactly_one = least == 1 < count and most not in (count, 10**9)
    if least <= count <= most and not exactly_one:
        return False
    if least <= 1 <= most and count > 1:
        return True
    raise InvalidRequest(f"the function takes {least} argument{'s' if least != 1 else ''}, the domain has {count}")


def _items(result: object) -> list[Any]:
    if isinstance(result, TracerVector):
        items: list[Any] = list(result)
    elif isinstance(result, np.ndarray):
        _follow(result.ndim <= 1, f"the function returned an array of shape {result.shape}")
        items = list(result.reshape(-1))
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


def _operator(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """The methods of x op y and y op x."""
    return lambda self, other: self._apply(op, self, other), lambda self, other: self._apply(op, other, self)


class _Stand:
    """What `Tracer` and `TracerVector` share: operators and NumPy's protocols, all ending in `_apply`."""

    __slots__ = ()

    def _apply(self, op: str, *args: Any) -> Any:
        raise NotImplementedError

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __pow__, __rpow__ = _operator("pow")

    def __neg__(self) -> Any:
        return self._apply("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._apply("abs", self)

    __bool__ = _no_number("branches on a value (if, and, or, while)")
    __float__ = _no_number("turns a value into a float")
    __int__ = _no_number("turns a value into an int")
    __complex__ = _no_number("turns a value into a complex number")
    __index__ = _no_number("uses a value as an index")
    __round__ = __trunc__ = __floor__ = __ceil__ = _no_number("rounds a value")
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = _no_number("takes a remainder")
    __lt__ = __le__ = __gt__ = __ge__ = _no_number("compares values")
    __eq__ = __ne__ = _no_number("compares values")
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        # np.sin of an object array (np.asarray(x) is one) calls the method `sin` of its entries.
        if UFUNCS.get(name) in FUNCTIONS:
            return lambda: self._apply(str(UFUNCS[name]), self)
        raise AttributeError(f"a traced value has no attribute {name}")

    def clip(self, low: Any = None, high: Any = None) -> Any:
        return _clip(self, low, high)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method == "__call__" and not options and name in UFUNCS:
            rule = UFUNCS[name]
            return self._apply(rule, *inputs) if isinstance(rule, str) else rule(self._apply, *inputs)
        if name == "matmul" and method == "__call__" and not options:
            return _inner(*inputs)
        used = f"np.{name}" + ("" if method == "__call__" else f".{method}")
        used += f" with {', '.join(options)}=" if options else ""
        raise Untraceable(f"the function uses {used}, which has no counterpart in an expression")

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        name = function.__name__
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

    def _apply(self, op: str, *args: Any, value: Any = None) -> Any:
        vector = next((arg for arg in args if isinstance(arg, TracerVector)), None)
        if vector is not None:
            return vector._apply(op, *args)
        try:
            nodes = [_index(self.builder, arg) for arg in args]
            return Tracer(self.builder, self.builder.apply(op, *nodes, value=value))
        except InvalidRequest as error:
            raise Untraceable(f"the function cannot be traced: {error}") from None


class TracerVector(_Stand):
    """The stand-in of an array whose last axis holds the variables: x[k], x[..., k], x[:, k], arithmetic, sums."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Tracer]) -> None:
        self.items = tuple(items)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Tracer]:
        return iter(self.items)

    @property
    def T(self) -> TracerVector:
        return self

    def __getitem__(self, key: Any) -> Any:
        last = key
        if isinstance(key, tuple) and len(key) == 2 and (key[0] is Ellipsis or key[0] == slice(None)):
            last = key[1]
        if isinstance(last, slice):
            return TracerVector(self.items[last])
        if isinstance(last, int | np.integer) and not isinstance(last, bool):
            if not -len(self.items) <= last < len(self.items):
                raise IndexError(f"variable {last} of {len(self.items)}")
            return self.items[last]
        raise Untraceable(f"the function indexes its argument with {shown(key)}; x[k], x[..., k] and x[:, k] are read")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise Untraceable("the function turns its argument into an array")

    def sum(self, axis: int | None = None) -> Any:
        return _reduce("add", self, axis)

    def prod(self, axis: int | None = None) -> Any:
        return _reduce("mul", self, axis)

    def __matmul__(self, other: Any) -> Any:
        return _inner(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _inner(other, self)

    def _apply(self, op: str, *args: Any) -> Any:
        columns = [_column(arg, len(self.items)) for arg in args]
        return TracerVector([self.items[0]._apply(op, *row) for row in zip(*columns)])


def _column(arg: Any, count: int) -> list[Any]:
    if isinstance(arg, list | tuple):
        arg = np.asarray(arg)
    if isinstance(arg, TracerVector) or (isinstance(arg, np.ndarray) and arg.ndim == 1):
        _follow(len(arg) == count, f"vectors of {len(arg)} and {count} entries meet")
        return list(arg)
    return [arg] * count


def _reduce(op: str, vector: Any, axis: int | None) -> Any:
    if not isinstance(vector, TracerVector):
        return _gather(vector)[0] if len(_gather(vector)) == 1 else _reduce(op, TracerVector(_gather(vector)), axis)
    _follow(axis in (None, -1, 0, 1) and len(vector) > 0, f"the function reduces along axis {shown(axis)}")
    result = vector.items[0]
    for item in vector.items[1:]:
        result = result._apply(op, result, item)
    return result


def _gather(items: Any) -> list[Any]:
    if isinstance(items, Tracer):
        return [items]
    if isinstance(items, list | tuple) and items and all(isinstance(item, Tracer) for item in items):
        return list(items)
    raise Untraceable("the function joins or sums arrays that are not followed")


def _inner(left: Any, right: Any) -> Any:
    return _reduce("add", _product(left, right), None)


def _product(left: Any, right: Any) -> Any:
    vector = left if isinstance(left, TracerVector) else right
    if not isinstance(vector, TracerVector) or np.ndim(left if vector is right else right) > 1:
        raise Untraceable("the function multiplies matrices; only the product of two vectors is followed")
    return vector._apply("mul", left, right)


def _norm(x: Any, ord: Any = None, axis: int | None = None) -> Any:
    if not isinstance(x, TracerVector) or ord not in (None, 2):
        raise Untraceable("the function uses np.linalg.norm in a way that is not followed")
    total = _reduce("add", x**2, axis)
    return total._apply("sqrt", total)


def _sinc(x: Any) -> Any:
    """NumPy's sinc, sin(πx)/(πx)."""
    first = x.items[0] if isinstance(x, TracerVector) else x
    turn = x._apply("mul", Tracer(first.builder, first.builder.apply("pi")), x)
    return x._apply("div", x._apply("sin", turn), turn)


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


def _logaddexp(apply: Callable[..., Any], x: Any, y: Any) -> Any:
    if isinstance(x, int | float) and x == 0:
        return apply("softplus", y)
    return apply("add", x, apply("softplus", apply("sub", y, x)))


Rule = str | Callable[..., Any]
UFUNCS: Final[Mapping[str, Rule]] = {
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "log1p", "expm1", "sqrt")},
    **{"arcsin": "asin", "arccos": "acos", "arctan": "atan", "asin": "asin", "acos": "acos", "atan": "atan"},
    **{"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg"},
    **{"power": "pow", "pow": "pow", "float_power": "pow", "absolute": "abs", "fabs": "abs", "sign": "sign"},
    **{"maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "erf": "erf", "expit": "sigmoid"},
    "positive": lambda apply, x: x,
    "square": lambda apply, x: apply("pow", x, 2),
    "reciprocal": lambda apply, x: apply("div", 1, x),
    "exp2": lambda apply, x: apply("pow", 2, x),
    "log2": lambda apply, x: apply("div", apply("log", x), apply("log", 2)),
    "log10": lambda apply, x: apply("div", apply("log", x), apply("log", 10)),
    "hypot": lambda apply, x, y: apply("sqrt", apply("add", apply("pow", x, 2), apply("pow", y, 2))),
    "logaddexp": _logaddexp,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "clip": _clip,
    "sum": lambda a, axis=None: _reduce("add", a, axis),
    "prod": lambda a, axis=None: _reduce("mul", a, axis),
    "max": lambda a, axis=None: _reduce("max", a, axis),
    "min": lambda a, axis=None: _reduce("min", a, axis),
    "norm": _norm,
    "polyval": _polyval,
    "sinc": _sinc,
    "dot": _inner,
    "stack": lambda arrays, axis=0: TracerVector(_gather(arrays)),
    "column_stack": lambda tup: TracerVector(_gather(tup)),
}
