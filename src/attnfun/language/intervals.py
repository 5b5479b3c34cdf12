"""Vectorised float64 intervals, rounded outward: fast ranges over many boxes.

| operation | bound |
| --- | --- |
| + - * / sqrt, integer powers | IEEE rounding to nearest, one `nextafter` outward (none where the sum is exact) |
| exp log sin cos tan ... x**p | NumPy's value, LIBM_ULPS units in the last place outward, and one more |
| erf | SciPy's value, ERF_ULPS units outward |
| abs max min relu sign | exact |

**Hypothesis** (say it wherever a bound rests on this file): NumPy's elementary functions err by at most LIBM_ULPS = 4
units in the last place, SciPy's erf by at most ERF_ULPS = 8. Everything else is proved from IEEE arithmetic.
Undefined (outside the domain, a pole, or an overflow) is (nan, nan), `.defined` is False, and stays so through every
operation. Failure mode: rounding may push an argument of sqrt below 0 by an ulp; `clip_sqrt=True` cuts it there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import balls, lowers, precision, uppers
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, power_by_squaring
from attnfun.language.numbers import above, below
from attnfun.language.outward import next_above, next_below
from attnfun.language.table import on_intervals

Floats = npt.NDArray[np.float64]
LIBM_ULPS = 4
ERF_ULPS = 8
_INF = np.inf
_quiet = np.errstate(all="ignore")


@dataclass(frozen=True)
class Interval:
    """[lo, hi] elementwise; made (nan, nan) where it is empty or not finite."""

    lo: Floats
    hi: Floats

    def __post_init__(self) -> None:
        lo, hi = np.asarray(self.lo, dtype=np.float64), np.asarray(self.hi, dtype=np.float64)
        with np.errstate(all="ignore"):
            good = np.isfinite(lo) & np.isfinite(hi) & (lo <= hi)
        if not np.all(good):
            lo, hi = np.where(good, lo, np.nan), np.where(good, hi, np.nan)
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)

    @property
    def defined(self) -> npt.NDArray[np.bool_]:
        """Where both ends are finite."""
        return np.asarray(np.isfinite(self.lo) & np.isfinite(self.hi))

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.lo.shape, self.hi.shape)


def _made(lo: Any, hi: Any, good: Any = True) -> Interval:
    if np.all(good):
        return Interval(lo, hi)
    return Interval(np.where(good, lo, np.nan), np.where(good, hi, np.nan))


def _sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b rounded, and what that left out (Knuth's two-sum; NaN where a sum on the way overflows)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _sum_below(a: Floats, b: Floats) -> Floats:
    """A double below a + b, equal when it is exact."""
    s, error = _sum(a, b)
    return next_below(s, ~(error >= 0))


def _sum_above(a: Floats, b: Floats) -> Floats:
    s, error = _sum(a, b)
    return next_above(s, ~(error <= 0))


def _widen(low: Floats, high: Floats, ulps: int = LIBM_ULPS) -> tuple[Floats, Floats]:
    """Both ends moved outward by `ulps` units in the last place and one more.

    Twice the spacing: the exact value may lie past a power of two, where the unit doubles.
    """
    return next_below(low - 2 * ulps * np.spacing(np.abs(low))), next_above(high + 2 * ulps * np.spacing(np.abs(high)))


def _monotone(
    f: Callable[[Floats], Floats],
    floor: float = -_INF,
    ceiling: float = _INF,
    good: Callable[[Interval], Any] = lambda x: True,
    ulps: int = LIBM_ULPS,
) -> Callable[[Any, Interval], Interval]:
    """A method: the range of an increasing f from its values at both ends, where the argument is `good`."""

    @_quiet
    def method(self: object, x: Interval) -> Interval:
        lo, hi = _widen(f(x.lo), f(x.hi), ulps)
        return _made(np.maximum(lo, floor), np.minimum(hi, ceiling), good(x))

    return method


def _extremes(corners: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """The least and the largest of four."""
    a, b, c, d = corners
    return np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))


def _between(x: Interval, y: Interval, corners: tuple[Floats, ...], good: Any = True) -> Interval:
    """The range of a product or quotient of x and y from its rounded values at the corners; its sign is kept."""
    lo, hi = _extremes(corners)
    lo, hi = next_below(lo), next_above(hi)
    right, left, above, below = x.lo >= 0, x.hi <= 0, y.lo >= 0, y.hi <= 0
    same, opposite = (right & above) | (left & below), (right & below) | (left & above)
    return _made(np.where(same & (lo < 0), 0.0, lo), np.where(opposite & (hi > 0), 0.0, hi), good)


def _product(x: Interval, y: Interval) -> Interval:
    return _between(x, y, (x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi))


def _reaches(x: Interval, offset: float, period: float) -> npt.NDArray[np.bool_]:
    """Whether [lo, hi] may contain a point offset + k period; never False when it does."""
    a, b = (x.lo - offset) / period, (x.hi - offset) / period
    # a and b carry the rounding of offset, period, difference and quotient: relative 4 u each, taken 8-fold
    slack = 32 * 2.0**-53 * (1 + np.maximum(np.abs(a), np.abs(b)))
    return np.asarray((np.floor(b + slack) >= np.ceil(a - slack)) | (slack > 0.1))


def _point(x: Floats) -> Interval:
    return Interval(x, x)


def _in_unit(x: Interval) -> Any:
    return (x.lo >= -1) & (x.hi <= 1)


_ASIN, _MINUS_ACOS = _monotone(np.arcsin, good=_in_unit), _monotone(lambda t: -np.arccos(t), ceiling=0.0, good=_in_unit)
_COSH = _monotone(np.cosh, 1.0)


class IntervalAlgebra(Algebra[Interval]):
    """The operations of the expression language on `Interval`s of float64 arrays (broadcasting).

    clip_sqrt: arguments of sqrt and of positive real powers are known to be >= 0, those of asin and acos to be in
    [-1, 1]; what reaches beyond is cut there.
    """

    def __init__(self, clip_sqrt: bool = False) -> None:
        self.clip_sqrt = clip_sqrt

    def constant(self, value: Fraction) -> Interval:
        try:
            return _made(below(Fraction(value)), above(Fraction(value)))
        except OverflowError:
            return _made(np.nan, np.nan)

    def pi(self) -> Interval:
        return _made(math.pi, math.nextafter(math.pi, 4))

    def e(self) -> Interval:
        return _made(math.e, math.nextafter(math.e, 3))

    def neg(self, x: Interval) -> Interval:
        return Interval(-x.hi, -x.lo)

    @_quiet
    def add(self, x: Interval, y: Interval) -> Interval:
        return _made(_sum_below(x.lo, y.lo), _sum_above(x.hi, y.hi))

    def sub(self, x: Interval, y: Interval) -> Interval:
        return self.add(x, self.neg(y))

    @_quiet
    def mul(self, x: Interval, y: Interval) -> Interval:
        return _product(x, y)

    @_quiet
    def div(self, x: Interval, y: Interval) -> Interval:
        quotients = (x.lo / y.lo, x.lo / y.hi, x.hi / y.lo, x.hi / y.hi)
        return _between(x, y, quotients, (y.lo > 0) | (y.hi < 0))

    @_quiet
    def powi(self, x: Interval, n: int) -> Interval:
        if n == 0:
            return _made(np.where(np.isnan(x.lo), np.nan, 1.0), np.where(np.isnan(x.hi), np.nan, 1.0))
        if n < 0:
            return self.div(self.constant(Fraction(1)), self.powi(x, -n))
        if n % 2 == 0:
            x = self.abs(x)
        return _made(power_by_squaring(_point(x.lo), n, _product).lo, power_by_squaring(_point(x.hi), n, _product).hi)

    def powr(self, x: Interval, p: Fraction) -> Interval:
        p = Fraction(p)
        if p.denominator == 1:
            return self.powi(x, p.numerator)
        if p == Fraction(1, 2):
            return self.sqrt(x)
        return self.pow(x, self.constant(p))

    @_quiet
    def pow(self, x: Interval, y: Interval) -> Interval:
        """x**y for x > 0, and x >= 0 where y > 0: monotone in x and in y, so the corners carry the range."""
        if self.clip_sqrt:
            x = self._clipped(x)
        good = ((x.lo > 0) | ((x.lo >= 0) & (y.lo > 0))) & ~np.isnan(y.lo)  # NumPy: 1**nan is 1
        lo, hi = _widen(*_extremes(tuple(np.power(a, b) for a in (x.lo, x.hi) for b in (y.lo, y.hi))))
        return _made(np.maximum(lo, 0.0), hi, good)

    def ratio(self, x: Interval, quotient: Ratio) -> Interval:
        """By balls of 64 bits: no hypothesis on libraries is needed."""
        with precision(64):
            value = BallAlgebra().ratio(balls(x.lo, x.hi), quotient)
            return _made(lowers(value), uppers(value))

    def _clipped(self, x: Interval) -> Interval:
        return Interval(np.where(x.hi >= 0, np.maximum(x.lo, 0.0), x.lo), x.hi)

    @_quiet
    def sqrt(self, x: Interval) -> Interval:
        if self.clip_sqrt:
            x = self._clipped(x)
        return _made(np.maximum(next_below(np.sqrt(x.lo)), 0.0), next_above(np.sqrt(x.hi)), x.lo >= 0)

    @_quiet
    def _wave(self, f: Callable[[Floats], Floats], x: Interval, peak: float) -> Interval:
        """sin or cos, with maxima at peak + 2 pi k."""
        a, b = f(x.lo), f(x.hi)
        lo, hi = _widen(np.minimum(a, b), np.maximum(a, b))
        hi = np.where(_reaches(x, peak, 2 * np.pi), 1.0, np.minimum(hi, 1.0))
        lo = np.where(_reaches(x, peak - np.pi, 2 * np.pi), -1.0, np.maximum(lo, -1.0))
        return _made(lo, hi, ~np.isnan(x.lo))

    def sin(self, x: Interval) -> Interval:
        return self._wave(np.sin, x, np.pi / 2)

    def cos(self, x: Interval) -> Interval:
        return self._wave(np.cos, x, 0.0)

    tan = _monotone(np.tan, good=lambda x: ~_reaches(x, np.pi / 2, np.pi))
    atan, sinh = _monotone(np.arctan), _monotone(np.sinh)
    tanh = _monotone(np.tanh, -1.0, 1.0)
    exp, expm1 = _monotone(np.exp, 0.0), _monotone(np.expm1, -1.0)
    log, log1p = _monotone(np.log, good=lambda x: x.lo > 0), _monotone(np.log1p, good=lambda x: x.lo > -1)

    def _cut(self, x: Interval) -> Interval:
        """The part of x in [-1, 1] where there is one and `clip_sqrt` allows it."""
        if not self.clip_sqrt:
            return x
        some = (x.lo <= 1) & (x.hi >= -1)
        return Interval(np.where(some, np.maximum(x.lo, -1.0), x.lo), np.where(some, np.minimum(x.hi, 1.0), x.hi))

    def asin(self, x: Interval) -> Interval:
        return _ASIN(self, self._cut(x))

    def acos(self, x: Interval) -> Interval:
        return self.neg(_MINUS_ACOS(self, self._cut(x)))

    def cosh(self, x: Interval) -> Interval:
        return _COSH(self, self.abs(x))

    def erf(self, x: Interval) -> Interval:
        from scipy.special import erf

        return _monotone(erf, -1.0, 1.0, ulps=ERF_ULPS)(self, x)

    def sigmoid(self, x: Interval) -> Interval:
        lo, hi = self._sigmoid_at(x.lo).lo, self._sigmoid_at(x.hi).hi
        return _made(lo, np.minimum(hi, 1.0))

    def _sigmoid_at(self, t: Floats) -> Interval:
        """sigmoid at points: 1/(1+e) or e/(1+e) with e = exp(-|t|)."""
        e = self.exp(_point(-np.abs(t)))
        one = self.constant(Fraction(1))
        below, above = self.add(one, e), t >= 0
        right, left = self.div(one, below), self.div(e, below)
        return Interval(np.where(above, right.lo, left.lo), np.where(above, right.hi, left.hi))

    def softplus(self, x: Interval) -> Interval:
        return _made(self._softplus_at(x.lo).lo, self._softplus_at(x.hi).hi)

    def _softplus_at(self, t: Floats) -> Interval:
        """softplus at points: max(t, 0) + log1p(exp(-|t|)); at least 0."""
        tail = self.log1p(self.exp(_point(-np.abs(t))))
        return self.add(_point(np.maximum(t, 0.0)), Interval(np.maximum(tail.lo, 0.0), tail.hi))

    def abs(self, x: Interval) -> Interval:
        lo = np.where(x.lo >= 0, x.lo, np.where(x.hi <= 0, -x.hi, np.where(np.isnan(x.lo), np.nan, 0.0)))
        return Interval(np.asarray(lo), np.maximum(np.abs(x.lo), np.abs(x.hi)))

    def sign(self, x: Interval) -> Interval:
        return Interval(np.sign(x.lo), np.sign(x.hi))

    table = on_intervals

    def relu(self, x: Interval) -> Interval:
        return Interval(np.maximum(x.lo, 0.0), np.maximum(x.hi, 0.0))

    def max(self, x: Interval, y: Interval) -> Interval:
        return Interval(np.maximum(x.lo, y.lo), np.maximum(x.hi, y.hi))

    def min(self, x: Interval, y: Interval) -> Interval:
        return Interval(np.minimum(x.lo, y.lo), np.minimum(x.hi, y.hi))

    def hull(self, x: Interval, y: Interval) -> Interval:
        """The smallest interval containing x and y."""
        return Interval(np.minimum(x.lo, y.lo), np.maximum(x.hi, y.hi))

    def choose(self, x: Interval, y: Interval, a: Interval, b: Interval) -> Interval:
        """a where x > y is proved, b where x < y is proved, their hull elsewhere (undefined where x or y is)."""
        both = self.hull(a, b)
        first, second = x.lo > y.hi, x.hi < y.lo
        lo = np.where(first, a.lo, np.where(second, b.lo, both.lo))
        hi = np.where(first, a.hi, np.where(second, b.hi, both.hi))
        return _made(lo, hi, ~(np.isnan(x.lo) | np.isnan(y.lo)))
