"""The real cube root, of negative numbers, too: analytic on the right and on the left half plane."""

from fractions import Fraction

import numpy as np

from attnfun.language.operations.analytic import analytic, by_arb, by_series
from attnfun.language.operations.shapes import ZERO, Ball, arb, by_field, complex_log, monotone

_THIRD = Fraction(1, 3)


def _complex(z: Ball) -> Ball:
    return (complex_log(z) / 3).exp() if z.real > 0 else -(complex_log(-z) / 3).exp()


def _real(x: Ball) -> Ball:
    """Of a ball on one side of 0."""
    return x.root(3) if x > 0 else -((-x).root(3)) if x < 0 else ZERO if x == 0 else arb("nan")


OPERATIONS = analytic(
    "cbrt",
    _complex,
    by_series(lambda t: (t.log() / 3).exp() if t[0].real > 0 else -(((-t).log() / 3).exp())),
    lambda z: bool(z.real > 0 or z.real < 0),
    lambda b, x, value: b.div(b.constant(_THIRD), b.powi(value, 2)),
    ball=monotone(_real),
    ufuncs=("cbrt",),
    floats=by_field(np.cbrt, by_arb(_complex)),
    parity=-1,
    cut=lambda g: g * g,
    singular=lambda g: g,
    rough=True,
)
