"""What NumPy loses when it computes an expression: one forward pass of (enclosure, error) through the graph.

For every node v: R ∋ v on the whole box (balls), and E ≥ |computed − v|, the computation being that of
`ArrayAlgebra` in float64 at points of the box. With u = 2^-53 and |·| the largest size on the box:

| operation | E |
| --- | --- |
| constant | u|c| |
| x ± y | E_x + E_y, and u of the result |
| x y | E_x|y| + E_y|x| + E_x E_y, and u of the result |
| x/y | (E_x + |x/y| E_y)/(min|y| − E_y), and u of the result |
| x^n | products for n ≤ 4, and 1/x^|n| for n < 0, as they are computed; else as f |
| f(x) | sup |f'| E_x over R_x widened by E_x, and 4 ulp, at most 8u, of the result (a hypothesis) |

Every rounding adds 2^-1070 for underflow. Failure modes: Undecided for operations that NumPy composes of several
(sigmoid has its own count: exp, a sum, a quotient), where a divisor may vanish, or where anything is not bounded.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.certify.view import Array, Undecided, provided
from attnfun.language import BallAlgebra, Box, GradientAlgebra, Graph, precision, run
from attnfun.language.enclosures import abs_lower, abs_upper, ball, lower, upper
from attnfun.language.gradient import Dual

_U = 2.0**-53
_TINY = 2.0**-1070
_LARGE = 2.0**900
_LIBM = 8 * _U  # four units in the last place
_WAVES = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS = (*_WAVES, "exp", "expm1", "log", "log1p", "sqrt")


@dataclass(frozen=True)
class Rounded:
    """An exact value in `exact` on all of the box, and a bound of the error of the computed one."""

    exact: Any
    error: float

    @property
    def size(self) -> float:
        return abs_upper(self.exact)


class RoundingAlgebra:
    """The operations of the language on `Rounded` values; what is missing is Undecided."""

    def __init__(self) -> None:
        self.base = BallAlgebra()
        for name in _FUNCTIONS:
            setattr(self, name, self._function(name))
        for name in ("pi", "e", "add", "sub"):  # one rounding, and the errors of the arguments
            setattr(self, name, self._rounded(name))
        for name in ("neg", "abs", "relu", "max", "min"):  # what NumPy computes exactly
            setattr(self, name, self._unrounded(name))

    def __getattr__(self, name: str) -> Any:
        raise Undecided(f"what NumPy loses in {name} is not bounded here")

    def constant(self, value: Fraction) -> Rounded:
        exact = self.base.constant(value)
        return Rounded(exact, 0.0 if Fraction(float(value)) == value else _U * abs_upper(exact) + _TINY)

    def mul(self, x: Rounded, y: Rounded) -> Rounded:
        return self._times(x, y, self.base.mul(x.exact, y.exact))

    def _times(self, x: Rounded, y: Rounded, exact: Any) -> Rounded:
        return self._result(exact, x.error * y.size + y.error * x.size + x.error * y.error)

    def div(self, x: Rounded, y: Rounded) -> Rounded:
        exact = self.base.div(x.exact, y.exact)
        least = abs_lower(y.exact) * (1 - 1e-12) - y.error
        provided(least > 0, "what NumPy divides by may vanish")
        return self._result(exact, (x.error + abs_upper(exact) * y.error) / least)

    def powi(self, x: Rounded, n: int) -> Rounded:
        if n < 0:
            below = self.powi(x, -n)
            return self.div(Rounded(self.base.constant(Fraction(1)), 0.0), below)
        if n == 0:
            return Rounded(self.base.constant(Fraction(1)), 0.0)
        if n == 1:
            return x
        exact = self.base.powi(x.exact, n)
        if n > 4:
            return self._applied(x, lambda d: GradientAlgebra(self.base, 1).powi(d, n))
        square = self._times(x, x, self.base.powi(x.exact, 2))
        return square if n == 2 else self._times(square, x if n == 3 else square, exact)

    def sigmoid(self, x: Rounded) -> Rounded:
        """exp of −|x|, within 4 ulp, one sum and one quotient: relative errors of at most 8u, 9u and 18u together."""
        moved = self._applied(x, lambda d: GradientAlgebra(self.base, 1).sigmoid(d))
        return Rounded(moved.exact, moved.error + 20 * _U * (moved.size + moved.error))

    def _rounded(self, name: str) -> Callable[..., Rounded]:
        exact = getattr(self.base, name)
        return lambda *args: self._result(exact(*(x.exact for x in args)), sum((x.error for x in args), 0.0))

    def _unrounded(self, name: str) -> Callable[..., Rounded]:
        exact = getattr(self.base, name)
        return lambda *args: Rounded(exact(*(x.exact for x in args)), max(x.error for x in args))

    def _function(self, name: str) -> Callable[[Rounded], Rounded]:
        return lambda x: self._applied(x, getattr(GradientAlgebra(self.base, 1), name))

    def _applied(self, x: Rounded, function: Callable[[Any], Any]) -> Rounded:
        """A library function of one argument: its mean value inequality, then its own error."""
        low, high = lower(x.exact), upper(x.exact)
        wide = ball(math.nextafter(low - x.error, -math.inf), math.nextafter(high + x.error, math.inf))
        if x.error == 0.0:
            moved = 0.0
        else:
            slope = function(Dual(wide, (self.base.constant(Fraction(1)),))).partials[0]
            moved = abs_upper(slope) * x.error if slope is not None else 0.0
        return self._result(function(Dual(x.exact, ())).value, moved, _LIBM)

    def _result(self, exact: Any, carried: float, unit: float = _U) -> Rounded:
        size = abs_upper(exact) + carried
        total = (carried + unit * size) * (1 + 1e-12) + _TINY
        provided(math.isfinite(total) and size < _LARGE, "what NumPy loses is not bounded")
        return Rounded(exact, total)


def numpy_rounding(graph: Graph, box: Box) -> Array:
    """(outputs,) bounds of |computed − exact| on the whole box; raises Undecided."""
    with precision(128):
        ends = zip(box.names, box.low, box.high, strict=True)
        algebra: Any = RoundingAlgebra()
        found = run(graph, algebra, {name: Rounded(ball(a, b), 0.0) for name, a, b in ends})
    return np.array([v.error for v in found])
