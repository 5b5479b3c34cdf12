"""Expressions on NumPy arrays, real of any float dtype or complex; shapes broadcast.

What is undefined in the reals (log(-1), 0/0, (-8)**(1/3)) is nan, without a warning. On complex arrays every function
is the principal branch, and abs, max, where, ... raise `NotAnalytic`. Values are rounded, so nothing here is a
bound: for enclosures use the intervals or the balls.

Constants are made in `dtype`; choose the dtype of the arrays (the default also serves complex128), or the results of
float32 arrays are promoted to float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from attnfun.language.graph import Graph, Ratio
from attnfun.language.interpret import Algebra, NotAnalytic, run, static
from attnfun.language.operations.entry import Operation
from attnfun.language.table import on_arrays

Array = npt.NDArray[Any]
_quiet: Final = np.errstate(all="ignore")
_BROAD: Final = 64  # variables


@dataclass(frozen=True)
class ArrayAlgebra(Algebra[Array]):
    """The operations of a graph on arrays; `dtype` is that of constants (and of integer arrays, once converted)."""

    dtype: npt.DTypeLike = np.float64

    def constant(self, value: Fraction) -> Array:
        """The rational rounded to `dtype`; two doubles are summed so that longdouble gets all of its digits."""
        return _rounded(value, np.dtype(self.dtype))

    def pi(self) -> Array:
        return self.constant(_PI)

    def e(self) -> Array:
        return self.constant(_E)

    @_quiet
    def neg(self, x: Array) -> Array:
        return np.negative(self._floating(x))

    add, sub, mul, div = map(static, map(_quiet, (np.add, np.subtract, np.multiply, np.divide)))

    @_quiet
    def powi(self, x: Array, n: int) -> Array:
        """x**n, with x**0 = 1 everywhere; small powers by products, which is many times faster than `np.power`."""
        x = self._floating(x)
        if n < 0:
            return self.div(x.dtype.type(1), self.powi(x, -n))
        if n == 0:
            return np.ones_like(x)
        if n > 4:
            return np.power(x, n)
        if n == 1:
            return x
        square: Array = x * x
        return square if n == 2 else square * (x if n == 3 else square)

    @_quiet
    def powr(self, x: Array, p: Fraction) -> Array:
        x = self._floating(x)
        return np.power(x, float(p) if np.iscomplexobj(x) else _rounded(p, x.dtype))

    @_quiet
    def pow(self, x: Array, y: Array) -> Array:
        return np.power(self._floating(x), self._floating(y))

    @_quiet
    def ratio(self, x: Array, quotient: Ratio) -> Array:
        """N/D, and near the point where both vanish its Taylor polynomial, which loses no digits there."""
        from attnfun.language.ratio import expansion  # it rests on the power series of balls

        x = self._floating(x)
        terms, reach = expansion(quotient)
        t = x - _rounded(quotient.point, x.real.dtype)
        near = np.abs(t) <= reach
        if quotient.derivative == 0:
            away = self.div(*run(quotient.graph, self, {"u": x}))
        else:
            away = _by_balls(quotient, x, ~near)
        total = np.zeros_like(x)
        inside = np.where(near, t, t.dtype.type(0))
        for value in reversed(terms):
            total = total * inside + _rounded(value, x.real.dtype)
        return np.where(near, total, away)

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., Array]:
        function, analytic = entry.floats, entry.rectangle is not None

        def converted(self: ArrayAlgebra, x: Array) -> Array:
            x = self._floating(x)
            if not analytic and np.iscomplexobj(x):
                raise NotAnalytic(f"{entry.name} has no complex derivative, so it has no value for complex arguments")
            return x

        if entry.whole:
            return _quiet(lambda self, x, n: function(n, converted(self, x)))
        if entry.arity == 1:
            return _quiet(lambda self, x: function(converted(self, x)))
        return _quiet(lambda self, *args: function(*(converted(self, x) for x in args)))

    table = on_arrays

    def _floating(self, x: Array) -> Array:
        x = np.asarray(x)
        return x if x.dtype.kind in "fc" else x.astype(self.dtype)


def values_at(graph: Graph, names: Sequence[str], X: Array) -> Array:
    """(n, d) → (n, outputs) in float64; the columns of X are the variables `names`."""
    rows = np.ascontiguousarray(X.T) if X.shape[1] > _BROAD else X.T  # the columns of a broad table lie far apart
    columns = run(graph, ArrayAlgebra(), {name: rows[k] for k, name in enumerate(names)})
    return np.stack([np.broadcast_to(np.asarray(c, dtype=np.float64), (len(X),)) for c in columns], axis=1)


def _by_balls(quotient: Ratio, x: Array, wanted: Array) -> Array:
    """Taylor coefficients of a quotient at real points, one by one where `wanted`: slow, for gradients only."""
    from attnfun.language.balls import BallAlgebra
    from attnfun.language.enclosures import point_balls, precision

    out = np.full(x.shape, np.nan, dtype=x.dtype)
    with precision(128):
        values = BallAlgebra().ratio(point_balls(x[wanted].astype(np.float64)), quotient)
        out[wanted] = [float(value.mid()) if value.is_finite() else np.nan for value in values]
    return out


@lru_cache(maxsize=4096)  # a scalar, which nobody can change
@_quiet
def _rounded(value: Fraction, dtype: np.dtype[Any]) -> Array:
    head = float(value)
    tail = float(value - Fraction(head))
    result: Array = np.add(np.asarray(head).astype(dtype), np.asarray(tail).astype(dtype))
    return result


# 60 digits: more than any float dtype holds.
_PI: Final = Fraction("3.14159265358979323846264338327950288419716939937510582097494")
_E: Final = Fraction("2.71828182845904523536028747135266249775724709369995957496697")
