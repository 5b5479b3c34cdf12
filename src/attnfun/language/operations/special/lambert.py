"""Lambert's W, the principal branch: w e^w = x, w ≥ -1 for x ≥ -1/e, with its cut on (-inf, -1/e]."""

from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.language.operations.analytic import analytic, by_series
from attnfun.language.operations.entry import NONNEGATIVE, Need
from attnfun.language.operations.shapes import Ball, arb, by_field, monotone, scipy

_E = float(np.e)


def _off_cut(z: Ball) -> bool:
    return bool(not z.imag.contains(0) or z.real * arb.const_e() + 1 > 0)


def _slope(b: Any, x: Any, value: Any) -> Any:
    """e^-w/(1 + w)."""
    return b.div(b.exp(b.neg(value)), b.add(b.constant(Fraction(1)), value))


_complex = scipy("lambertw")

OPERATIONS = analytic(
    "lambertw",
    lambda z: z.lambertw(),
    by_series(lambda t: t.lambertw()),
    _off_cut,
    _slope,
    ball=monotone(lambda x: x.lambertw()),
    floats=by_field(
        lambda x: np.where(x * _E >= -1, _complex(x.astype(np.complex128)).real, np.nan).astype(x.dtype), _complex
    ),
    needs=Need(NONNEGATIVE, "e*x + 1", called="what lambertw takes the root of,"),
    cut=lambda g: g * _E + 1,
    singular=lambda g: g * _E + 1,
    rough=True,
)
