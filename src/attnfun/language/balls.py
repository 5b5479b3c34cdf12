"""Real balls: every result contains f(x) for every x of the argument balls, and is non-finite where f is not defined.

| symbol | meaning |
| --- | --- |
| ball | an `arb` of python-flint, the set [mid - rad, mid + rad]; rad has 30 bits and is rounded up |
| thin | relative radius below 2^-30: Arb's own first-order enclosure is used |
| fat | everything else: monotone functions are evaluated at the two end points, so the range is sharp to 2^-29 |

Undefined is sticky: a non-finite argument gives a non-finite result in every operation, so one test at the end does.
Failure modes: a ball cannot hold [0, 0.1] exactly (30 bits of radius), so `ball` and every range here keep the end
nearer to zero exact and overshoot at the other; sums and products of fat balls may still reach below zero by rounding,
and then sqrt and log answer nan (`clip_sqrt=True` cuts sqrt and positive powers at 0 instead). Precision is flint's
global one: use `precision`.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.language.enclosures import NAN, ONE, ZERO, Ball, above, arb, exact, lift, span
from attnfun.language.graph import Graph, Ratio
from attnfun.language.interpret import Algebra, run, static
from attnfun.language.table import on_balls

_THIN_BITS = 30

# --- functions of one ball --------------------------------------------------------------------------------------------

Map = Callable[[Ball], Ball]


def _rising(f: Map, x: Ball, floor: Ball | None = None, ceiling: Ball | None = None) -> Ball:
    """Range of an increasing f over x, from its end points; `floor` and `ceiling` bound f everywhere."""
    lo, hi = f(x.lower()).lower(), f(x.upper()).upper()
    if floor is not None and lo < floor:
        lo = floor
    if ceiling is not None and hi > ceiling:
        hi = ceiling
    return span(lo, hi)


def _monotone(f: Map, floor: Ball | None = None, ceiling: Ball | None = None) -> Map:
    def image(x: Ball) -> Ball:
        if x.rel_accuracy_bits() >= _THIN_BITS:
            y = f(x)
            if y.is_finite():  # an end of the domain inside a thin ball: the end points may still be defined
                return y
        return _rising(f, x, floor, ceiling)

    return image


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
        if x.rel_accuracy_bits() < _THIN_BITS:
            d = slope(x)
            y = _rising(f, x) if d >= 0 else (-_rising(lambda t: -f(t), x) if d <= 0 else f(x))
        else:
            y = f(x)
        return _clip_one(y) if y.abs_upper() > 1 else y

    return image


_sin = _wave(lambda x: x.sin(), lambda x: x.cos())
_cos = _wave(lambda x: x.cos(), lambda x: -_sin(x))


def _sigmoid_at(x: Ball) -> Ball:
    if x >= 0:
        return 1 / (1 + (-x).exp())
    e = x.exp()
    return e / (1 + e) if x.is_exact() else 1 / (1 + (-x).exp())


def _softplus_at(x: Ball) -> Ball:
    return x + (-x).exp().log1p() if x >= 0 and x.is_exact() else x.exp().log1p()


def _tan(x: Ball) -> Ball:
    if x.rel_accuracy_bits() >= _THIN_BITS:
        return x.tan()
    return _rising(lambda t: t.tan(), x) if x.cos().abs_lower() > 0 else NAN


def _cosh(x: Ball) -> Ball:
    if x.rel_accuracy_bits() >= _THIN_BITS:
        return x.cosh()
    return _rising(lambda t: t.cosh(), _abs(x), floor=ONE)


def _abs(x: Ball) -> Ball:
    if x >= 0:
        return x
    return -x if x <= 0 else span(ZERO, x.abs_upper())


def _sign(x: Ball) -> Ball:
    lo = ONE if x > 0 else (ZERO if x >= 0 else -ONE)
    hi = -ONE if x < 0 else (ZERO if x <= 0 else ONE)
    return span(lo, hi)


def _relu(x: Ball) -> Ball:
    if x >= 0:
        return x
    return ZERO if x <= 0 else span(ZERO, x.upper())


_sqrt = _monotone(lambda x: x.sqrt(), floor=ZERO)


def _nonnegative(x: Ball) -> Ball:
    """x cut at 0 from below; nan when nothing is left."""
    if x >= 0 or not x.is_finite():
        return x
    hi = x.upper()
    return span(ZERO, hi) if hi >= 0 else NAN


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


def _minus_rising(f: Map) -> Map:
    rising = _monotone(lambda t: -f(t), ceiling=ZERO)
    return lambda x: -rising(x)


# --- powers, extrema, choices -----------------------------------------------------------------------------------------


def _powi(x: Ball, n: int) -> Ball:
    if n == 0:
        return ONE
    if n < 0:
        y = _powi(x, -n)
        if y.contains(0):
            return NAN
        return ONE / y if y.rel_accuracy_bits() >= _THIN_BITS else _reciprocal(y)
    if n == 1:
        return x
    if x.rel_accuracy_bits() >= _THIN_BITS:
        return x * x if n == 2 else x**n
    # flint: arb(0, 1)**2 is nan, so x**n is only ever taken of exact end points
    return _rising(lambda t: t**n, x) if n % 2 else _rising(lambda t: t**n, _abs(x), floor=ZERO)


@lru_cache(maxsize=256)
def _power(n: int) -> Map:
    """t**n, lifted."""
    return _unary(lambda t: _powi(t, n))


@lru_cache(maxsize=256)
def _real_power(p: Fraction, clip: bool) -> Map:
    return _unary(lambda t: _powr(_nonnegative(t) if clip else t, p))


def _reciprocal(y: Ball) -> Ball:
    """1/y over a ball that does not contain 0, sharp."""
    return span((1 / y.upper()).lower(), (1 / y.lower()).upper()) if y.abs_lower() > 0 else NAN


def _powr(x: Ball, p: Fraction) -> Ball:
    exponent = exact(p)

    def power(t: Ball) -> Ball:
        if t > 0:
            return t**exponent
        return ZERO if t == 0 and p > 0 else NAN

    if x.rel_accuracy_bits() >= _THIN_BITS:
        return power(x)
    if p > 0:
        return _rising(power, x, floor=ZERO)
    lo = power(x.upper()).lower()
    return span(lo if lo > 0 else ZERO, power(x.lower()).upper())


def _pow(x: Ball, y: Ball) -> Ball:
    """x**y for x > 0, and for x >= 0 where y > 0; x**y is monotone in x and in y, so the corners carry the range."""
    if x > 0:
        if min(x.rel_accuracy_bits(), y.rel_accuracy_bits()) >= _THIN_BITS:
            return (y * x.log()).exp()
        corners = [(b * a.log()).exp() for a in (x.lower(), x.upper()) for b in (y.lower(), y.upper())]
        if not all(c.is_finite() for c in corners):
            return NAN
        lo, hi = min(c.lower() for c in corners), max(c.upper() for c in corners)
        return span(lo if lo > 0 else ZERO, hi)
    if x >= 0 and y > 0:
        if x == 0:
            return ZERO
        ends = [(b * x.upper().log()).exp().upper() for b in (y.lower(), y.upper())]
        return span(ZERO, max(ends)) if all(c.is_finite() for c in ends) else NAN
    return NAN


def _max(x: Ball, y: Ball) -> Ball:
    if x >= y:
        return x
    return y if y >= x else span(max(x.lower(), y.lower()), max(x.upper(), y.upper()))


def _hull(x: Ball, y: Ball) -> Ball:
    return span(min(x.lower(), y.lower()), max(x.upper(), y.upper()))


def _choose(x: Ball, y: Ball, a: Ball, b: Ball) -> Ball:
    if x > y:
        return a
    return b if x < y else _hull(a, b)


def _add_sharp(x: Ball, y: Ball) -> Ball:
    total = x + y
    if total >= ZERO or total <= ZERO or not ((x >= ZERO and y >= ZERO) or (x <= ZERO and y <= ZERO)):
        return total
    return span((x.lower() + y.lower()).lower(), (x.upper() + y.upper()).upper())  # Arb's radius may pass 0


def _mul_sharp(x: Ball, y: Ball) -> Ball:
    x_thin, y_thin = x.rel_accuracy_bits() >= _THIN_BITS, y.rel_accuracy_bits() >= _THIN_BITS
    if x_thin and y_thin:
        return x * y  # a thin times a fat ball goes by end points too: Arb's rounding of its radius may pass 0
    if not (x.is_finite() and y.is_finite()):
        return NAN
    a, b, c, d = x.lower(), x.upper(), y.lower(), y.upper()
    if (
        (a < ZERO < b and c < ZERO < d) or (x_thin and a != b) or (y_thin and c != d)
    ):  # by rounding any may be the least
        products = a * c, a * d, b * c, b * d
        return span(min(p.lower() for p in products), max(p.upper() for p in products))
    if a >= ZERO:
        low, high = (a if c >= ZERO else b) * c, (b if d >= ZERO else a) * d
    elif b <= ZERO:
        low, high = (b if d <= ZERO else a) * d, (b if c >= ZERO else a) * c
    else:
        low, high = (a * d, b * d) if c >= ZERO else (b * c, a * c)
    return span(low.lower(), high.upper())


def _div(x: Ball, y: Ball) -> Ball:
    return x / y if y.is_finite() else NAN  # flint: 1/inf is 0


def _div_sharp(x: Ball, y: Ball) -> Ball:
    if not y.is_finite():
        return NAN
    if y.rel_accuracy_bits() >= _THIN_BITS:
        return x / y
    if not (x.is_finite() and y.abs_lower() > 0):
        return NAN
    return _mul_sharp(x, _reciprocal(y))


def _unary(fn: Map) -> Map:
    """fn, lifted; nan where the argument is not finite."""
    return lift(lambda x: fn(x) if x.is_finite() else NAN)


def _binary(fn: Callable[..., Ball], arity: int = 2) -> Callable[..., Ball]:
    """The same of two arguments, or of the first two of several."""
    return lift(lambda x, y, *more: fn(x, y, *more) if x.is_finite() and y.is_finite() else NAN, arity)


def _method(fn: Map) -> Callable[[Any, Ball], Ball]:
    lifted = _unary(fn)
    return lambda self, x: lifted(x)


_UNCLIPPED = (
    *(_unary(_sqrt), _binary(_pow)),
    *(_unary(_monotone(lambda x: x.asin())), _unary(_minus_rising(lambda x: x.acos()))),
)
_CLIPPED = (
    *(_unary(lambda x: _sqrt(_nonnegative(x))), _binary(lambda x, y: _pow(_nonnegative(x), y))),
    *(_unary(_asin_within), _unary(_acos_within)),
)
_ADD_SHARP, _NEG = lift(_add_sharp, 2), lift(lambda x: x.neg(exact=True))
_SHARP = _ADD_SHARP, lambda x, y: _ADD_SHARP(x, _NEG(y)), lift(_mul_sharp, 2), lift(_div_sharp, 2)
_PLAIN = Algebra.add, Algebra.sub, Algebra.mul, lift(_div, 2)


class BallAlgebra(Algebra[Ball]):
    """The operations of the expression language on `arb` scalars or object arrays of them (broadcasting).

    clip_sqrt: the user of this algebra knows that arguments of sqrt, positive real powers and x**y are >= 0, and those
    of asin and acos in [-1, 1], so a ball that reaches beyond is cut there; without it such a ball is undefined (nan).
    A ball wholly beyond is nan anyway.
    sharp: products and quotients of two fat balls by their end points (slower; [0,1]*[0,1] is [0,1], not [-1/2,1]),
    and sums of two numbers that are not negative are not negative.
    """

    def __init__(self, clip_sqrt: bool = False, sharp: bool = False) -> None:
        self.clip_sqrt, self.sharp = clip_sqrt, sharp
        self.sqrt, self.pow, self.asin, self.acos = _CLIPPED if clip_sqrt else _UNCLIPPED
        self.add, self.sub, self.mul, self.div = _SHARP if sharp else _PLAIN

    def constant(self, value: Fraction) -> Ball:
        return exact(value)

    def pi(self) -> Ball:
        return arb.pi()

    def e(self) -> Ball:
        return arb.const_e()

    def powi(self, x: Ball, n: int) -> Ball:
        return _power(n)(x)

    def powr(self, x: Ball, p: Fraction) -> Ball:
        p = Fraction(p)
        if p.denominator == 1:
            return self.powi(x, p.numerator)
        return _real_power(p, self.clip_sqrt and p > 0)(x)

    def ratio(self, x: Ball, quotient: Ratio) -> Ball:
        from attnfun.language.ratio import taylor  # it rests on the power series, and they on these balls

        def value(t: Ball) -> Ball:
            found = taylor(quotient, t, 1)[0]
            if found.is_finite() or quotient.derivative:
                return found
            return self.div(*run(quotient.graph, self, {"u": t}))  # an end of the domain has a value, but no slope

        return lift(value)(x)

    table = on_balls
    sin, cos, tan, cosh, abs, sign, relu = map(_method, (_sin, _cos, _tan, _cosh, _abs, _sign, _relu))
    atan, sinh, log, log1p = map(_method, map(_monotone, map(methodcaller, ("atan", "sinh", "log", "log1p"))))
    tanh = _method(_monotone(lambda x: x.tanh(), floor=-ONE, ceiling=ONE))
    exp = _method(_monotone(lambda x: x.exp(), floor=ZERO))
    expm1 = _method(_monotone(lambda x: x.expm1(), floor=-ONE))
    erf = _method(_monotone(lambda x: x.erf(), floor=-ONE, ceiling=ONE))
    sigmoid = _method(_monotone(_sigmoid_at, floor=ZERO, ceiling=ONE))
    softplus = _method(_monotone(_softplus_at, floor=ZERO))

    # hull: a ball containing x and y; choose: a where x > y is proved, b where x < y is, the hull of both elsewhere
    max, hull, choose = map(static, (_binary(_max), _binary(_hull), _binary(_choose, 4)))

    def min(self, x: Ball, y: Ball) -> Ball:
        return -self.max(-x, -y)


def values_at_point(graph: Graph, names: Sequence[str], x: npt.NDArray[np.float64]) -> list[Ball]:
    """The outputs at a point of doubles at which they are known to be defined (`clip_sqrt`)."""
    return run(graph, BallAlgebra(clip_sqrt=True), dict(zip(names, map(arb, x.tolist()), strict=True)))
