"""exp, log and what is made of them: sinh, cosh, tanh, log1p, expm1, sqrt, erf, sigmoid, softplus.

log has the Taylor coefficients (-1)^(k+1) x^-k / k; tanh those of t' = 1 - t^2, sigmoid(x) = (1 + tanh(x/2))/2; erf and
softplus are integrated from the series of their derivatives.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.interval import ERF_ULPS, Floats, Interval, made, point, quiet
from attnfun.language.interval import monotone as rising_interval
from attnfun.language.operations import shapes as s
from attnfun.language.operations.entry import NONNEGATIVE, POSITIVE, Need, Operation, Range
from attnfun.language.operations.shapes import ONE, ZERO, Ball, arb
from attnfun.language.outward import next_above, next_below

_QUARTER, _HALF, _ONE, _TWO = Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2)
ABOVE_MINUS_ONE = Range("must stay above -1", Fraction(-1))

# --- floats -----------------------------------------------------------------------------------------------------------

_log1p = s.by_field(np.log1p, s.scipy("log1p"))


def _sigmoid_floats(x: Any) -> Any:
    """1/(1+e^-x), with the exponential of a number whose real part is ≤ 0, so that neither tail loses digits."""
    right = x.real >= 0
    power = np.exp(np.where(right, -x, x))
    return np.divide(np.where(right, x.dtype.type(1), power), 1 + power)


def _softplus_floats(x: Any) -> Any:
    """log(1+e^x) = max(x, 0) + log1p(e^-|x|); for complex x the same, its imaginary part brought to [-π, π]."""
    right = x.real >= 0
    result = np.where(right, x, x.dtype.type(0)) + _log1p(np.exp(np.where(right, -x, x)))
    if not np.iscomplexobj(x):
        return result
    turns = np.round(result.imag / (2 * np.pi))
    return np.subtract(result, np.asarray(2j * np.pi * turns).astype(x.dtype))


# --- real balls -------------------------------------------------------------------------------------------------------


def _cosh(x: Ball) -> Ball:
    if x.rel_accuracy_bits() >= s.THIN_BITS:
        return x.cosh()
    return s.rising(lambda t: t.cosh(), s.absolute(x), floor=ONE)


def _sigmoid_at(x: Ball) -> Ball:
    if x >= 0:
        return 1 / (1 + (-x).exp())
    e = x.exp()
    return e / (1 + e) if x.is_exact() else 1 / (1 + (-x).exp())


def _softplus_at(x: Ball) -> Ball:
    return x + (-x).exp().log1p() if x >= 0 and x.is_exact() else x.exp().log1p()


_sqrt = s.monotone(lambda x: x.sqrt(), floor=ZERO)

# --- intervals --------------------------------------------------------------------------------------------------------


_COSH = rising_interval(np.cosh, 1.0)


@quiet
def _sqrt_interval(algebra: Any, x: Interval) -> Interval:
    if algebra.clip_sqrt:
        x = algebra.clipped(x)
    return made(np.maximum(next_below(np.sqrt(x.lo)), 0.0), next_above(np.sqrt(x.hi)), x.lo >= 0)


def _erf_interval(algebra: Any, x: Interval) -> Interval:
    from scipy.special import erf

    return rising_interval(erf, -1.0, 1.0, ulps=ERF_ULPS)(algebra, x)


def _sigmoid_interval(algebra: Any, x: Interval) -> Interval:
    def at(t: Floats) -> Interval:
        """At points: 1/(1+e) or e/(1+e) with e = exp(-|t|)."""
        e = algebra.exp(point(-np.abs(t)))
        one = algebra.constant(_ONE)
        below, above = algebra.add(one, e), t >= 0
        right, left = algebra.div(one, below), algebra.div(e, below)
        return Interval(np.where(above, right.lo, left.lo), np.where(above, right.hi, left.hi))

    lo, hi = at(x.lo).lo, at(x.hi).hi
    return made(lo, np.minimum(hi, 1.0))


def _softplus_interval(algebra: Any, x: Interval) -> Interval:
    def at(t: Floats) -> Interval:
        """At points: max(t, 0) + log1p(exp(-|t|)); at least 0."""
        tail = algebra.log1p(algebra.exp(point(-np.abs(t))))
        found: Interval = algebra.add(point(np.maximum(t, 0.0)), Interval(np.maximum(tail.lo, 0.0), tail.hi))
        return found

    return made(at(x.lo).lo, at(x.hi).hi)


# --- rectangles -------------------------------------------------------------------------------------------------------


def _sigmoid(z: Ball) -> Ball:
    w = 1 / (1 + (-z).exp())
    if w.is_finite():
        return w
    e = z.exp()
    return e / (1 + e)


def _gauss(z: Ball) -> Ball:
    return 2 * (-z * z).exp() / arb.const_sqrt_pi()


# --- Taylor coefficients ----------------------------------------------------------------------------------------------


def _erfs(series: Any, c: Ball, n: int) -> list[Ball]:
    gauss = series.exp(series.polynomial([-series.balls.powi(c, 2), -2 * c, -ONE])) * (2 / arb.const_sqrt_pi())
    return s.integral(series.balls.erf(c), [gauss[k] for k in range(n)])


def _exps(series: Any, c: Ball, n: int) -> list[Ball]:
    return s.over_factorials([series.balls.exp(c)], n)


OPERATIONS = (
    Operation(
        "sinh",
        ufuncs=("sinh",),
        floats=np.sinh,
        ball=s.monotone(lambda x: x.sinh()),
        interval=rising_interval(np.sinh),
        rectangle=s.finite(lambda z: z.sinh()),
        taylor=lambda a, c, n: s.over_factorials([a.balls.sinh(c), a.balls.cosh(c)], n),
        slope=lambda b, x, value: b.cosh(x),
        parity=-1,
        entire=True,
    ),
    Operation(
        "cosh",
        ufuncs=("cosh",),
        floats=np.cosh,
        ball=_cosh,
        interval=lambda self, x: _COSH(self, self.abs(x)),
        rectangle=s.finite(lambda z: z.cosh()),
        taylor=lambda a, c, n: s.over_factorials([a.balls.cosh(c), a.balls.sinh(c)], n),
        slope=lambda b, x, value: b.sinh(x),
        parity=1,
        entire=True,
    ),
    Operation(
        "tanh",
        ufuncs=("tanh",),
        floats=np.tanh,
        ball=s.monotone(lambda x: x.tanh(), floor=-ONE, ceiling=ONE),
        interval=rising_interval(np.tanh, -1.0, 1.0),
        rectangle=s.centred(lambda z: z.tanh(), lambda z: 1 / z.cosh() ** 2),
        taylor=s.tanhs,
        slope=lambda b, x, value: b.sub(b.constant(_ONE), b.powi(value, 2)),
        parity=-1,
    ),
    Operation(
        "exp",
        ufuncs=("exp",),
        floats=np.exp,
        ball=s.monotone(lambda x: x.exp(), floor=ZERO),
        interval=rising_interval(np.exp, 0.0),
        rectangle=s.finite(lambda z: z.exp()),
        taylor=_exps,
        slope=lambda b, x, value: value,
        entire=True,
    ),
    Operation(
        "log",
        aliases=("ln",),
        ufuncs=("log",),
        floats=np.log,
        ball=s.monotone(lambda x: x.log()),
        interval=rising_interval(np.log, good=lambda x: x.lo > 0),
        rectangle=s.centred(s.complex_log, lambda z: 1 / z),
        taylor=lambda a, c, n: s.integral(a.balls.log(c), a.powers(c, -1, n)),
        slope=lambda b, x, value: b.div(b.constant(_ONE), x),
        needs=Need(POSITIVE),
        cut=lambda g: g,
        singular=lambda g: g,
    ),
    Operation(
        "log1p",
        ufuncs=("log1p",),
        floats=_log1p,
        ball=s.monotone(lambda x: x.log1p()),
        interval=rising_interval(np.log1p, good=lambda x: x.lo > -1),
        rectangle=s.centred(lambda z: s.complex_log(1 + z), lambda z: 1 / (1 + z)),
        taylor=lambda a, c, n: s.integral(a.balls.log1p(c), a.powers(1 + c, -1, n)),
        slope=lambda b, x, value: b.div(b.constant(_ONE), b.add(b.constant(_ONE), x)),
        needs=Need(ABOVE_MINUS_ONE),
        cut=lambda g: 1 + g,
        singular=lambda g: 1 + g,
    ),
    Operation(
        "expm1",
        ufuncs=("expm1",),
        floats=s.by_field(np.expm1, s.scipy("expm1")),
        ball=s.monotone(lambda x: x.expm1(), floor=-ONE),
        interval=rising_interval(np.expm1, -1.0),
        rectangle=s.finite(lambda z: z.expm1()),
        taylor=lambda a, c, n: [a.balls.expm1(c), *_exps(a, c, n)[1:]],
        slope=lambda b, x, value: b.exp(x),
        entire=True,
    ),
    Operation(
        "sqrt",
        ufuncs=("sqrt",),
        floats=np.sqrt,
        ball=_sqrt,
        clipped=lambda x: _sqrt(s.nonnegative(x)),
        interval=_sqrt_interval,
        rectangle=s.centred(lambda z: z.sqrt(analytic=True), lambda z: z.rsqrt(analytic=True) / 2),
        taylor=lambda a, c, n: a.powers(c, _HALF, n),
        slope=lambda b, x, value: b.div(b.constant(_HALF), value),
        needs=Need(NONNEGATIVE),
        cut=lambda g: g,
        singular=lambda g: g,
    ),
    Operation(
        "erf",
        ufuncs=("erf",),
        floats=s.scipy("erf"),
        ball=s.monotone(lambda x: x.erf(), floor=-ONE, ceiling=ONE),
        interval=_erf_interval,
        rectangle=s.centred(lambda z: z.erf(), _gauss),
        taylor=_erfs,
        slope=lambda b, x, value: b.div(b.mul(b.constant(_TWO), b.exp(b.neg(b.powi(x, 2)))), b.sqrt(b.pi())),
        parity=-1,
        entire=True,
    ),
    Operation(
        "sigmoid",
        ufuncs=("expit",),
        floats=_sigmoid_floats,
        ball=s.monotone(_sigmoid_at, floor=ZERO, ceiling=ONE),
        interval=_sigmoid_interval,
        rectangle=s.centred(_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)),
        taylor=s.sigmoids,
        # s(1-s) with s once: sharp on sets
        slope=lambda b, x, value: b.sub(b.constant(_QUARTER), b.powi(b.sub(value, b.constant(_HALF)), 2)),
    ),
    Operation(
        "softplus",
        floats=_softplus_floats,
        ball=s.monotone(_softplus_at, floor=ZERO),
        interval=_softplus_interval,
        rectangle=s.centred(lambda z: s.complex_log(1 + z.exp()), _sigmoid),
        taylor=lambda a, c, n: s.integral(a.balls.softplus(c), s.sigmoids(a, c, n)),
        slope=lambda b, x, value: b.sigmoid(x),
        cut=lambda g: 1 + np.exp(g),
    ),
)
