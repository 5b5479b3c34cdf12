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
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from attnfun.language.enclosures import NAN, ONE, ZERO, Ball, arb, exact, lift, span
from attnfun.language.graph import Graph, Ratio
from attnfun.language.interpret import Algebra, run, static
from attnfun.language.operations.entry import Operation
from attnfun.language.operations.shapes import THIN_BITS, Map, absolute, nonnegative, rising
from attnfun.language.table import on_balls

# --- powers, extrema, choices -----------------------------------------------------------------------------------------


def _powi(x: Ball, n: int) -> Ball:
    if n == 0:
        return ONE
    if n < 0:
        y = _powi(x, -n)
        if y.contains(0):
            return NAN
        return ONE / y if y.rel_accuracy_bits() >= THIN_BITS else _reciprocal(y)
    if n == 1:
        return x
    if x.rel_accuracy_bits() >= THIN_BITS:
        return x * x if n == 2 else x**n
    # flint: arb(0, 1)**2 is nan, so x**n is only ever taken of exact end points
    return rising(lambda t: t**n, x) if n % 2 else rising(lambda t: t**n, absolute(x), floor=ZERO)


@lru_cache(maxsize=256)
def _power(n: int) -> Map:
    """t**n, lifted."""
    return _unary(lambda t: _powi(t, n))


@lru_cache(maxsize=256)
def _real_power(p: Fraction, clip: bool) -> Map:
    return _unary(lambda t: _powr(nonnegative(t) if clip else t, p))


def _reciprocal(y: Ball) -> Ball:
    """1/y over a ball that does not contain 0, sharp."""
    return span((1 / y.upper()).lower(), (1 / y.lower()).upper()) if y.abs_lower() > 0 else NAN


def _powr(x: Ball, p: Fraction) -> Ball:
    exponent = exact(p)

    def power(t: Ball) -> Ball:
        if t > 0:
            return t**exponent
        return ZERO if t == 0 and p > 0 else NAN

    if x.rel_accuracy_bits() >= THIN_BITS:
        return power(x)
    if p > 0:
        return rising(power, x, floor=ZERO)
    lo = power(x.upper()).lower()
    return span(lo if lo > 0 else ZERO, power(x.lower()).upper())


def _pow(x: Ball, y: Ball) -> Ball:
    """x**y for x > 0, and for x >= 0 where y > 0; x**y is monotone in x and in y, so the corners carry the range."""
    if x > 0:
        if min(x.rel_accuracy_bits(), y.rel_accuracy_bits()) >= THIN_BITS:
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
    x_thin, y_thin = x.rel_accuracy_bits() >= THIN_BITS, y.rel_accuracy_bits() >= THIN_BITS
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
    if y.rel_accuracy_bits() >= THIN_BITS:
        return x / y
    if not (x.is_finite() and y.abs_lower() > 0):
        return NAN
    return _mul_sharp(x, _reciprocal(y))


def _first(fn: Callable[..., Ball], arity: int) -> Callable[..., Ball]:
    """fn of several arguments, lifted; nan where the first is not finite."""
    return lift(lambda x, *more: fn(x, *more) if x.is_finite() else NAN, arity)


def _unary(fn: Map) -> Map:
    """fn, lifted; nan where the argument is not finite."""
    return lift(lambda x: fn(x) if x.is_finite() else NAN)


def _binary(fn: Callable[..., Ball], arity: int = 2) -> Callable[..., Ball]:
    """The same of two arguments, or of the first two of several."""
    return lift(lambda x, y, *more: fn(x, y, *more) if x.is_finite() and y.is_finite() else NAN, arity)


_POW, _POW_CLIPPED = _binary(_pow), _binary(lambda x, y: _pow(nonnegative(x), y))
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
        self.pow = _POW_CLIPPED if clip_sqrt else _POW
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

    # hull: a ball containing x and y; choose: a where x > y is proved, b where x < y is, the hull of both elsewhere
    hull, choose = map(static, (_binary(_hull), _binary(_choose, 4)))

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., Ball]:
        if entry.arity == 2:
            both = _binary(entry.ball)
            return lambda self, x, y: both(x, y)
        if entry.arity == 3:
            three = _first(entry.ball, 3)
            return lambda self, *args: three(*args)
        if entry.whole:
            each = lru_cache(maxsize=256)(lambda n: _unary(partial(entry.ball, n)))
            return lambda self, x, n: each(n)(x)
        one = _unary(entry.ball)
        if entry.clipped is None:
            return lambda self, x: one(x)
        cut = _unary(entry.clipped)
        return lambda self, x: (cut if self.clip_sqrt else one)(x)


def values_at_point(graph: Graph, names: Sequence[str], x: npt.NDArray[np.float64]) -> list[Ball]:
    """The outputs at a point of doubles at which they are known to be defined (`clip_sqrt`)."""
    return run(graph, BallAlgebra(clip_sqrt=True), dict(zip(names, map(arb, x.tolist()), strict=True)))
