"""Intervals of doubles, and what rounds outward: the values of `intervals` and the rules of its operations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.language.outward import next_above, next_below

Floats = npt.NDArray[np.float64]
LIBM_ULPS = 4
ERF_ULPS = 8
_INF = np.inf
quiet = np.errstate(all="ignore")


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


def made(lo: Any, hi: Any, good: Any = True) -> Interval:
    if np.all(good):
        return Interval(lo, hi)
    return Interval(np.where(good, lo, np.nan), np.where(good, hi, np.nan))


def _sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """a + b rounded, and what that left out (Knuth's two-sum; NaN where a sum on the way overflows)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def sum_below(a: Floats, b: Floats) -> Floats:
    """A double below a + b, equal when it is exact."""
    s, error = _sum(a, b)
    return next_below(s, ~(error >= 0))


def sum_above(a: Floats, b: Floats) -> Floats:
    s, error = _sum(a, b)
    return next_above(s, ~(error <= 0))


def widen(low: Floats, high: Floats, ulps: int = LIBM_ULPS) -> tuple[Floats, Floats]:
    """Both ends moved outward by `ulps` units in the last place and one more.

    Twice the spacing: the exact value may lie past a power of two, where the unit doubles.
    """
    return next_below(low - 2 * ulps * np.spacing(np.abs(low))), next_above(high + 2 * ulps * np.spacing(np.abs(high)))


def monotone(
    f: Callable[[Floats], Floats],
    floor: float = -_INF,
    ceiling: float = _INF,
    good: Callable[[Interval], Any] = lambda x: True,
    ulps: int = LIBM_ULPS,
) -> Callable[[Any, Interval], Interval]:
    """A method: the range of an increasing f from its values at both ends, where the argument is `good`."""

    @quiet
    def method(self: object, x: Interval) -> Interval:
        lo, hi = widen(f(x.lo), f(x.hi), ulps)
        return made(np.maximum(lo, floor), np.minimum(hi, ceiling), good(x))

    return method


def extremes(corners: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """The least and the largest of four."""
    a, b, c, d = corners
    return np.minimum(np.minimum(a, b), np.minimum(c, d)), np.maximum(np.maximum(a, b), np.maximum(c, d))


def between(x: Interval, y: Interval, corners: tuple[Floats, ...], good: Any = True) -> Interval:
    """The range of a product or quotient of x and y from its rounded values at the corners; its sign is kept."""
    lo, hi = extremes(corners)
    lo, hi = next_below(lo), next_above(hi)
    right, left, above, below = x.lo >= 0, x.hi <= 0, y.lo >= 0, y.hi <= 0
    same, opposite = (right & above) | (left & below), (right & below) | (left & above)
    return made(np.where(same & (lo < 0), 0.0, lo), np.where(opposite & (hi > 0), 0.0, hi), good)


def product(x: Interval, y: Interval) -> Interval:
    return between(x, y, (x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi))


def reaches(x: Interval, offset: float, period: float) -> npt.NDArray[np.bool_]:
    """Whether [lo, hi] may contain a point offset + k period; never False when it does."""
    a, b = (x.lo - offset) / period, (x.hi - offset) / period
    # a and b carry the rounding of offset, period, difference and quotient: relative 4 u each, taken 8-fold
    slack = 32 * 2.0**-53 * (1 + np.maximum(np.abs(a), np.abs(b)))
    return np.asarray((np.floor(b + slack) >= np.ceil(a - slack)) | (slack > 0.1))


def point(x: Floats) -> Interval:
    return Interval(x, x)


def _in_unit(x: Interval) -> Any:
    return (x.lo >= -1) & (x.hi <= 1)
