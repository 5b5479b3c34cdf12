"""sin, cos, tan and their inverses.

The Taylor coefficients of atan are (-1)^(k-1) sin(k t) (1 + x^2)^(-k/2) / k with t = pi/2 - atan x; those of tan follow
from t' = 1 + t^2, those of asin and acos by integrating the series of (1 - x^2)^(-1/2).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.enclosures import above
from attnfun.language.interval import Interval, made, quiet, reaches, widen
from attnfun.language.interval import monotone as rising_interval
from attnfun.language.operations import shapes as s
from attnfun.language.operations.entry import NONZERO, UNIT, Need, Operation
from attnfun.language.operations.shapes import NAN, ONE, Ball, Map, arb, span

_ONE, _HALF = Fraction(1), Fraction(1, 2)


def _clip_one(y: Ball) -> Ball:
    """y cut to [-1, 1]; an end at 1 or -1 is exact when the other is not cut."""
    lo, hi = y.lower(), y.upper()
    if lo < -1:
        return span(-ONE, min(hi, ONE)) if hi >= -1 else NAN
    if hi > 1:
        if lo > 1:
            return NAN
        return above(-ONE, -lo, -lo + ONE).neg(exact=True)
    return y


def _wave(f: Map, slope: Map) -> Map:
    """sin or cos: end points where `slope` (its derivative) has one sign, else Arb's enclosure, cut to [-1, 1]."""

    def image(x: Ball) -> Ball:
        if x.rel_accuracy_bits() < s.THIN_BITS:
            d = slope(x)
            y = s.rising(f, x) if d >= 0 else (-s.rising(lambda t: -f(t), x) if d <= 0 else f(x))
        else:
            y = f(x)
        return _clip_one(y) if y.abs_upper() > 1 else y

    return image


_sin = _wave(lambda x: x.sin(), lambda x: x.cos())
_cos = _wave(lambda x: x.cos(), lambda x: -_sin(x))


def _tan(x: Ball) -> Ball:
    if x.rel_accuracy_bits() >= s.THIN_BITS:
        return x.tan()
    return s.rising(lambda t: t.tan(), x) if x.cos().abs_lower() > 0 else NAN


def _asin_within(x: Ball) -> Ball:
    """asin of the part of x in [-1, 1]; nan if there is none."""
    if x.is_exact():
        return x.asin()
    lo, hi = x.lower(), x.upper()  # by the end points, however thin: asin has no slope at 1
    if not x.is_finite() or hi < -1 or lo > 1:
        return NAN
    first, last = -ONE if lo < -1 else lo, ONE if hi > 1 else hi
    return span(first.asin().lower(), last.asin().upper())


def _acos_within(x: Ball) -> Ball:
    """acos of the part of x in [-1, 1]; nan if there is none."""
    return arb.pi() / 2 - _asin_within(x)


# --- intervals --------------------------------------------------------------------------------------------------------


@quiet
def _interval(f: Any, x: Interval, peak: float) -> Interval:
    """sin or cos, with maxima at peak + 2 pi k."""
    a, b = f(x.lo), f(x.hi)
    lo, hi = widen(np.minimum(a, b), np.maximum(a, b))
    hi = np.where(reaches(x, peak, 2 * np.pi), 1.0, np.minimum(hi, 1.0))
    lo = np.where(reaches(x, peak - np.pi, 2 * np.pi), -1.0, np.maximum(lo, -1.0))
    return made(lo, hi, ~np.isnan(x.lo))


def _in_unit(x: Interval) -> Any:
    return (x.lo >= -1) & (x.hi <= 1)


_ASIN = rising_interval(np.arcsin, good=_in_unit)
_MINUS_ACOS = rising_interval(lambda t: -np.arccos(t), ceiling=0.0, good=_in_unit)


def _cut(algebra: Any, x: Interval) -> Interval:
    """The part of x in [-1, 1] where there is one and the algebra may cut."""
    if not algebra.clip_sqrt:
        return x
    some = (x.lo <= 1) & (x.hi >= -1)
    return Interval(np.where(some, np.maximum(x.lo, -1.0), x.lo), np.where(some, np.minimum(x.hi, 1.0), x.hi))


# --- rectangles -------------------------------------------------------------------------------------------------------


def _off_asin_cut(z: Ball) -> bool:
    return bool(not z.imag.contains(0) or (z.real > -1 and z.real < 1))


def _off_atan_cut(z: Ball) -> bool:
    return bool(not z.real.contains(0) or (z.imag > -1 and z.imag < 1))


def _arc_slope(z: Ball) -> Ball:
    # (1-z)(1+z) rather than 1-z^2: both factors stay off the cut of sqrt when z is off the cut of asin
    return (1 - z).rsqrt(analytic=True) * (1 + z).rsqrt(analytic=True)


# --- Taylor coefficients and slopes -----------------------------------------------------------------------------------


def _waves(value: Ball, slope: Ball, n: int) -> list[Ball]:
    return s.over_factorials([value, slope, -value, -slope], n)


def _tans(series: Any, c: Ball, n: int) -> list[Ball]:
    t = series.balls.tan(c)
    return s.riccati(t, 1 + series.balls.powi(t, 2), -1, n)


def _atans(series: Any, c: Ball, n: int) -> list[Ball]:
    balls = series.balls
    value = balls.atan(c)
    angle, shrink = arb.pi() / 2 - value, balls.powr(1 + balls.powi(c, 2), -_HALF)
    slopes = (balls.sin(k * angle) * balls.powi(shrink, k) / (k if k % 2 else -k) for k in range(1, n))
    return [value, *slopes]


def _arc_slopes(series: Any, c: Ball) -> list[Ball]:
    """Coefficients of (1 - (c+h)^2)^(-1/2)."""
    slope = series.powr(series.polynomial([1 - series.balls.powi(c, 2), -2 * c, -ONE]), -_HALF)
    return [slope[k] for k in range(series.order)]


def _slope_of_asin(base: Any, x: Any) -> Any:
    return base.div(base.constant(_ONE), base.sqrt(base.sub(base.constant(_ONE), base.powi(x, 2))))


OPERATIONS = (
    Operation(
        "sin",
        ufuncs=("sin",),
        floats=np.sin,
        ball=_sin,
        interval=lambda _, x: _interval(np.sin, x, np.pi / 2),
        rectangle=s.finite(lambda z: z.sin()),
        taylor=lambda a, c, n: _waves(a.balls.sin(c), a.balls.cos(c), n),
        slope=lambda b, x, value: b.cos(x),
        parity=-1,
        entire=True,
    ),
    Operation(
        "cos",
        ufuncs=("cos",),
        floats=np.cos,
        ball=_cos,
        interval=lambda _, x: _interval(np.cos, x, 0.0),
        rectangle=s.finite(lambda z: z.cos()),
        taylor=lambda a, c, n: _waves(a.balls.cos(c), -a.balls.sin(c), n),
        slope=lambda b, x, value: b.neg(b.sin(x)),
        parity=1,
        entire=True,
    ),
    Operation(
        "tan",
        ufuncs=("tan",),
        floats=np.tan,
        ball=_tan,
        interval=rising_interval(np.tan, good=lambda x: ~reaches(x, np.pi / 2, np.pi)),
        rectangle=s.centred(lambda z: z.tan(), lambda z: 1 / z.cos() ** 2),
        taylor=_tans,
        slope=lambda b, x, value: b.add(b.constant(_ONE), b.powi(value, 2)),
        needs=Need(NONZERO, "cos(x)", called="the cosine behind tan,"),
        parity=-1,
        singular=np.cos,
    ),
    Operation(
        "asin",
        aliases=("arcsin",),
        ufuncs=("arcsin", "asin"),
        floats=np.arcsin,
        ball=s.monotone(lambda x: x.asin()),
        clipped=_asin_within,
        interval=lambda self, x: _ASIN(self, _cut(self, x)),
        rectangle=s.centred(lambda z: z.asin(), _arc_slope, _off_asin_cut),
        taylor=lambda a, c, n: s.integral(a.balls.asin(c), _arc_slopes(a, c)),
        slope=lambda b, x, value: _slope_of_asin(b, x),
        needs=Need(UNIT),
        parity=-1,
        cut=lambda g: 1 - g * g,
        rough=True,
        singular=lambda g: 1 - g * g,
    ),
    Operation(
        "acos",
        aliases=("arccos",),
        ufuncs=("arccos", "acos"),
        floats=np.arccos,
        ball=s.minus_monotone(lambda x: x.acos()),
        clipped=_acos_within,
        interval=lambda self, x: self.neg(_MINUS_ACOS(self, _cut(self, x))),
        rectangle=s.centred(lambda z: z.acos(), lambda z: -_arc_slope(z), _off_asin_cut),
        taylor=lambda a, c, n: s.integral(a.balls.acos(c), [-t for t in _arc_slopes(a, c)]),
        slope=lambda b, x, value: b.neg(_slope_of_asin(b, x)),
        needs=Need(UNIT),
        cut=lambda g: 1 - g * g,
        rough=True,
        singular=lambda g: 1 - g * g,
    ),
    Operation(
        "atan",
        aliases=("arctan",),
        ufuncs=("arctan", "atan"),
        floats=np.arctan,
        ball=s.monotone(lambda x: x.atan()),
        interval=rising_interval(np.arctan),
        rectangle=s.centred(lambda z: z.atan(), lambda z: 1 / (1 + z * z), _off_atan_cut),
        taylor=_atans,
        slope=lambda b, x, value: b.div(b.constant(_ONE), b.add(b.constant(_ONE), b.powi(x, 2))),
        parity=-1,
        cut=lambda g: 1 + g * g,
    ),
)
