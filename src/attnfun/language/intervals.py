"""Vectorised float64 intervals, rounded outward: fast ranges over many boxes.

| operation | bound |
| --- | --- |
| + - * / sqrt, integer powers | IEEE rounding to nearest, one `nextafter` outward (none where the sum is exact) |
| exp log sin cos tan ... x**p | NumPy's value, LIBM_ULPS units in the last place outward, and one more |
| erf | SciPy's value, ERF_ULPS units outward |
| abs max min relu sign floor round where | exact |

**Hypothesis** (say it wherever a bound rests on this file): NumPy's elementary functions err by at most LIBM_ULPS = 4
units in the last place, SciPy's erf by at most ERF_ULPS = 8. Everything else is proved from IEEE arithmetic.
Undefined (outside the domain, a pole, or an overflow) is (nan, nan), `.defined` is False, and stays so through every
operation. Failure mode: rounding may push an argument of sqrt below 0 by an ulp; `clip_sqrt=True` cuts it there.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import Ball, balls, lowers, precision, uppers
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, power_by_squaring
from attnfun.language.interval import (
    Interval,
    between,
    extremes,
    made,
    point,
    product,
    quiet,
    sum_above,
    sum_below,
    widen,
)
from attnfun.language.numbers import above, below
from attnfun.language.operations.entry import Operation
from attnfun.language.table import on_intervals

__all__ = ["Interval", "IntervalAlgebra"]


class IntervalAlgebra(Algebra[Interval]):
    """The operations of the expression language on `Interval`s of float64 arrays (broadcasting).

    clip_sqrt: arguments of sqrt and of positive real powers are known to be >= 0, those of asin and acos to be in
    [-1, 1]; what reaches beyond is cut there.
    """

    def __init__(self, clip_sqrt: bool = False) -> None:
        self.clip_sqrt = clip_sqrt

    def constant(self, value: Fraction) -> Interval:
        try:
            return made(below(Fraction(value)), above(Fraction(value)))
        except OverflowError:
            return made(np.nan, np.nan)

    def pi(self) -> Interval:
        return made(math.pi, math.nextafter(math.pi, 4))

    def e(self) -> Interval:
        return made(math.e, math.nextafter(math.e, 3))

    def neg(self, x: Interval) -> Interval:
        return Interval(-x.hi, -x.lo)

    @quiet
    def add(self, x: Interval, y: Interval) -> Interval:
        return made(sum_below(x.lo, y.lo), sum_above(x.hi, y.hi))

    def sub(self, x: Interval, y: Interval) -> Interval:
        return self.add(x, self.neg(y))

    @quiet
    def mul(self, x: Interval, y: Interval) -> Interval:
        return product(x, y)

    @quiet
    def div(self, x: Interval, y: Interval) -> Interval:
        quotients = (x.lo / y.lo, x.lo / y.hi, x.hi / y.lo, x.hi / y.hi)
        return between(x, y, quotients, (y.lo > 0) | (y.hi < 0))

    @quiet
    def powi(self, x: Interval, n: int) -> Interval:
        if n == 0:
            return made(np.where(np.isnan(x.lo), np.nan, 1.0), np.where(np.isnan(x.hi), np.nan, 1.0))
        if n < 0:
            return self.div(self.constant(Fraction(1)), self.powi(x, -n))
        if n % 2 == 0:
            x = self.abs(x)
        return made(power_by_squaring(point(x.lo), n, product).lo, power_by_squaring(point(x.hi), n, product).hi)

    def powr(self, x: Interval, p: Fraction) -> Interval:
        p = Fraction(p)
        if p.denominator == 1:
            return self.powi(x, p.numerator)
        if p == Fraction(1, 2):
            return self.sqrt(x)
        return self.pow(x, self.constant(p))

    @quiet
    def pow(self, x: Interval, y: Interval) -> Interval:
        """x**y for x > 0, and x >= 0 where y > 0: monotone in x and in y, so the corners carry the range."""
        if self.clip_sqrt:
            x = self.clipped(x)
        good = ((x.lo > 0) | ((x.lo >= 0) & (y.lo > 0))) & ~np.isnan(y.lo)  # NumPy: 1**nan is 1
        lo, hi = widen(*extremes(tuple(np.power(a, b) for a in (x.lo, x.hi) for b in (y.lo, y.hi))))
        return made(np.maximum(lo, 0.0), hi, good)

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., Interval]:
        """By its own rule, or by balls, which need no hypothesis on libraries."""
        if entry.interval is not None:
            return entry.interval

        def image(self: IntervalAlgebra, *args: Any) -> Interval:
            return _by_balls(getattr(BallAlgebra(self.clip_sqrt), entry.name), *args)

        return image

    def ratio(self, x: Interval, quotient: Ratio) -> Interval:
        """By balls of 64 bits: no hypothesis on libraries is needed."""
        return _by_balls(lambda ball: BallAlgebra().ratio(ball, quotient), x)

    def clipped(self, x: Interval) -> Interval:
        return Interval(np.where(x.hi >= 0, np.maximum(x.lo, 0.0), x.lo), x.hi)

    table = on_intervals

    def hull(self, x: Interval, y: Interval) -> Interval:
        """The smallest interval containing x and y."""
        return Interval(np.minimum(x.lo, y.lo), np.maximum(x.hi, y.hi))

    def choose(self, x: Interval, y: Interval, a: Interval, b: Interval) -> Interval:
        """a where x > y is proved, b where x < y is proved, their hull elsewhere (undefined where x or y is)."""
        both = self.hull(a, b)
        first, second = x.lo > y.hi, x.hi < y.lo
        lo = np.where(first, a.lo, np.where(second, b.lo, both.lo))
        hi = np.where(first, a.hi, np.where(second, b.hi, both.hi))
        return made(lo, hi, ~(np.isnan(x.lo) | np.isnan(y.lo)))


def _by_balls(f: Callable[..., Ball], x: Interval, *more: Any) -> Interval:
    """f of balls, at 64 bits; `more` are intervals, too, or a whole number."""
    with precision(64):
        value = f(*(balls(a.lo, a.hi) if isinstance(a, Interval) else a for a in (x, *more)))
        return made(lowers(value), uppers(value))
