"""asinh, acosh and atanh, with cuts on the imaginary axis beyond ±i, on (-inf, 1], and on the real axis beyond ±1."""

from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.operations.analytic import analytic, integrated
from attnfun.language.operations.entry import Need, Range
from attnfun.language.operations.shapes import NAN, ONE, Ball, monotone, span

_ONE = Fraction(1)


def _off_asinh_cut(z: Ball) -> bool:
    return bool(not z.real.contains(0) or (z.imag > -1 and z.imag < 1))


def _off_acosh_cut(z: Ball) -> bool:
    return bool(not z.imag.contains(0) or z.real > 1)


def _off_atanh_cut(z: Ball) -> bool:
    return bool(not z.imag.contains(0) or (z.real > -1 and z.real < 1))


def _from_one(x: Ball) -> Ball:
    """x cut at 1 from below; nan when nothing is left."""
    if x >= 1:
        return x
    return span(ONE, x.upper()) if x.upper() >= 1 else NAN


def _slope_of_acosh(b: Any, x: Any, value: Any) -> Any:
    one = b.constant(_ONE)
    return b.div(one, b.mul(b.sqrt(b.sub(x, one)), b.sqrt(b.add(x, one))))


def _over_square(sign: int) -> Any:
    """1/(1 ± x²)."""
    return lambda b, x: b.div(b.constant(_ONE), (b.add if sign > 0 else b.sub)(b.constant(_ONE), b.powi(x, 2)))


_acosh = monotone(lambda x: x.acosh())

OPERATIONS = (
    *analytic(
        "asinh",
        lambda z: z.asinh(),
        integrated(lambda z: z.asinh(), lambda t: (1 + t * t).rsqrt()),
        _off_asinh_cut,
        lambda b, x, value: b.sqrt(_over_square(1)(b, x)),
        ball=monotone(lambda x: x.asinh()),
        aliases=("arcsinh",),
        ufuncs=("arcsinh", "asinh"),
        floats=np.arcsinh,
        parity=-1,
        cut=lambda g: 1 + g * g,
    ),
    *analytic(
        "acosh",
        lambda z: z.acosh(),
        integrated(lambda z: z.acosh(), lambda t: (t - 1).rsqrt() * (t + 1).rsqrt()),
        _off_acosh_cut,
        _slope_of_acosh,
        ball=_acosh,
        clipped=lambda x: _acosh(_from_one(x)),
        aliases=("arccosh",),
        ufuncs=("arccosh", "acosh"),
        floats=np.arccosh,
        needs=Need(Range("must not be below 1", _ONE, closed=True)),
        cut=lambda g: g - 1,
        singular=lambda g: g - 1,
        rough=True,
    ),
    *analytic(
        "atanh",
        lambda z: z.atanh(),
        integrated(lambda z: z.atanh(), lambda t: 1 / (1 - t * t)),
        _off_atanh_cut,
        lambda b, x, value: _over_square(-1)(b, x),
        ball=monotone(lambda x: x.atanh()),
        aliases=("arctanh",),
        ufuncs=("arctanh", "atanh"),
        floats=np.arctanh,
        needs=Need(Range("must stay inside (-1, 1)", -_ONE, _ONE)),
        parity=-1,
        cut=lambda g: 1 - g * g,
        singular=lambda g: 1 - g * g,
    ),
)
