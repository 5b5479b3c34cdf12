"""abs, relu, max, min have kinks, sign, floor, round and where(u, a, b) jump: analytic nowhere as a whole.

Series take the branch that constant coefficients prove; partials are the hull of the branches that the value leaves
open, so that they enclose every Clarke gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import starmap, zip_longest
from math import floor
from typing import Any

import numpy as np

from attnfun.language.enclosures import NAN, arb
from attnfun.language.interval import Interval, made, quiet
from attnfun.language.operations import shapes as s
from attnfun.language.operations.entry import BETWEEN, NONZERO, Need, Operation
from attnfun.language.operations.shapes import ONE, ZERO, Ball, span

_ZERO, _HALF = Fraction(0), Fraction(1, 2)


def _sign(x: Ball) -> Ball:
    lo = ONE if x > 0 else (ZERO if x >= 0 else -ONE)
    hi = -ONE if x < 0 else (ZERO if x <= 0 else ONE)
    return span(lo, hi)


def _relu(x: Ball) -> Ball:
    if x >= 0:
        return x
    return ZERO if x <= 0 else span(ZERO, x.upper())


def _max(x: Ball, y: Ball) -> Ball:
    if x >= y:
        return x
    return y if y >= x else span(max(x.lower(), y.lower()), max(x.upper(), y.upper()))


def _steps(x: Ball, step: Callable[[Fraction], int]) -> Ball:
    """The range of a rising step function of rationals, from the end points."""
    low, high = (step(int(m) * Fraction(2) ** int(k)) for m, k in (x.lower().man_exp(), x.upper().man_exp()))
    return span(arb(low), arb(high))


def _whole(self: Any, name: str, c: Ball) -> Any:
    """The series of the whole number below c; a kink unless c is proved to lie strictly between it and the next."""
    least = self.balls.floor(c)  # of several whole numbers neither difference has a sign
    return self.polynomial([least] if self.positive(name, c - least) and self.positive(name, least + 1 - c) else [])


def _where(u: Ball, a: Ball, b: Ball) -> Ball:
    """Not the other branch, which may not be finite, where u tells."""
    if u > 0:
        return a
    if u <= 0:
        return b
    if not (a.is_finite() and b.is_finite()):
        return NAN
    return span(min(a.lower(), b.lower()), max(a.upper(), b.upper()))


def _where_interval(_: Any, u: Interval, a: Interval, b: Interval) -> Interval:
    """a where u > 0 is proved, b where u <= 0 is, their hull elsewhere."""
    first, second = u.lo > 0, u.hi <= 0
    lo = np.where(first, a.lo, np.where(second, b.lo, np.minimum(a.lo, b.lo)))
    hi = np.where(first, a.hi, np.where(second, b.hi, np.maximum(a.hi, b.hi)))
    return made(lo, hi, ~np.isnan(u.lo))


def _where_dual(self: Any, u: Any, a: Any, b: Any) -> Any:
    """The branch's partials, and 0/u: undefined where u may be 0."""
    base = self.base
    zero = base.constant(_ZERO)
    jump = base.div(zero, u.value)

    def partial(p: Any, q: Any) -> Any:
        if p is None and q is None:
            return None
        return base.where(u.value, zero if p is None else p, zero if q is None else q)

    partials = (partial(p, q) for p, q in zip_longest(a.partials, b.partials))
    moves = (None if p is None else jump for p in u.partials)
    return type(u)(base.where(u.value, a.value, b.value), tuple(starmap(self.sum, zip_longest(partials, moves))))


def _abs_interval(_: Any, x: Interval) -> Interval:
    lo = np.where(x.lo >= 0, x.lo, np.where(x.hi <= 0, -x.hi, np.where(np.isnan(x.lo), np.nan, 0.0)))
    return Interval(np.asarray(lo), np.maximum(np.abs(x.lo), np.abs(x.hi)))


def _abs_dual(self: Any, x: Any) -> Any:
    base = self.base
    zero = base.constant(_ZERO)
    if hasattr(base, "choose"):
        partials = (None if p is None else self.choose(x.value, zero, p, base.neg(p)) for p in x.partials)
        return type(x)(base.abs(x.value), tuple(partials))
    return self.chain(x, base.abs(x.value), lambda: base.sign(x.value))


def _relu_dual(self: Any, x: Any) -> Any:
    zero = self.base.constant(_ZERO)
    return type(x)(self.base.relu(x.value), tuple(self.choose(x.value, zero, p, None) for p in x.partials))


def _max_dual(self: Any, x: Any, y: Any) -> Any:
    value = self.base.max(x.value, y.value)
    return self.paired(value, x, y, lambda p, q: self.choose(x.value, y.value, p, q))


def _min_dual(self: Any, x: Any, y: Any) -> Any:
    value = self.base.min(x.value, y.value)
    return self.paired(value, x, y, lambda p, q: self.choose(x.value, y.value, q, p))


OPERATIONS = (
    Operation(
        "abs",
        ufuncs=("absolute", "fabs"),
        floats=np.abs,
        ball=s.absolute,
        interval=_abs_interval,
        series=lambda self, x: x if self.positive("abs", x[0]) else -x,
        dual=_abs_dual,
        parity=1,
    ),
    Operation(
        "sign",
        ufuncs=("sign",),
        floats=np.sign,
        ball=_sign,
        interval=lambda _, x: Interval(np.sign(x.lo), np.sign(x.hi)),
        series=lambda self, x: self.polynomial([ONE if self.positive("sign", x[0]) else -ONE]),
        # 0/x is 0 off 0 and undefined at 0, which is what the derivative of a jump is
        slope=lambda b, x, value: b.div(b.constant(_ZERO), x),
        needs=Need(NONZERO, continuity=True),
        parity=-1,
    ),
    Operation(
        "floor",
        ufuncs=("floor",),
        floats=np.floor,
        ball=lambda x: _steps(x, floor),
        interval=quiet(lambda _, x: Interval(np.floor(x.lo), np.floor(x.hi))),
        series=lambda self, x: _whole(self, "floor", x[0]),
        slope=lambda b, x, value: b.div(b.constant(_ZERO), b.sub(x, value)),
        needs=Need(BETWEEN, continuity=True),
    ),
    Operation(
        "round",
        ufuncs=("rint",),
        floats=np.rint,
        ball=lambda x: _steps(x, round),
        interval=quiet(lambda _, x: Interval(np.rint(x.lo), np.rint(x.hi))),
        series=lambda self, x: _whole(self, "round", x[0] + self.balls.constant(_HALF)),
        slope=lambda b, x, value: b.div(b.constant(_ZERO), b.sub(b.add(x, b.constant(_HALF)), value)),
        needs=Need(BETWEEN, "x + 1/2", continuity=True),
    ),
    Operation(
        "where",
        arity=3,
        floats=lambda u, a, b: np.where(u > 0, a, np.where(u <= 0, b, np.full((), np.nan, u.dtype))),
        ball=_where,
        interval=_where_interval,
        series=lambda self, u, a, b: a if self.positive("where", u[0]) else b,
        dual=_where_dual,
        needs=Need(NONZERO, continuity=True),
    ),
    Operation(
        "relu",
        floats=lambda x: np.maximum(x, np.zeros((), x.dtype)),
        ball=_relu,
        interval=lambda _, x: Interval(np.maximum(x.lo, 0.0), np.maximum(x.hi, 0.0)),
        series=lambda self, x: x if self.positive("relu", x[0]) else self.polynomial([ZERO]),
        dual=_relu_dual,
    ),
    Operation(
        "max",
        ufuncs=("maximum", "fmax"),
        arity=2,
        floats=np.maximum,
        ball=_max,
        interval=lambda _, x, y: Interval(np.maximum(x.lo, y.lo), np.maximum(x.hi, y.hi)),
        series=lambda self, x, y: x if self.positive("max", x[0] - y[0]) else y,
        dual=_max_dual,
    ),
    Operation(
        "min",
        ufuncs=("minimum", "fmin"),
        arity=2,
        floats=np.minimum,
        ball=lambda x, y: -_max(-x, -y),
        interval=lambda _, x, y: Interval(np.minimum(x.lo, y.lo), np.minimum(x.hi, y.hi)),
        series=lambda self, x, y: y if self.positive("min", x[0] - y[0]) else x,
        dual=_min_dual,
    ),
)
