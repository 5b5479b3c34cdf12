"""abs, sign, relu, max, min: continuous but for sign, analytic nowhere as a whole.

Series take the branch that constant coefficients prove; partials are the hull of the branches that the value leaves
open, so that they enclose every Clarke gradient.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.interval import Interval
from attnfun.language.operations import shapes as s
from attnfun.language.operations.entry import NONZERO, Need, Operation
from attnfun.language.operations.shapes import ONE, ZERO, Ball, span

_ZERO = Fraction(0)


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
