"""What entries are made of: rules for floats, real balls, rectangles and Taylor coefficients that several share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flint
import numpy as np

from attnfun.language.enclosures import NAN, ONE, ZERO, Ball, arb, span

Array = Any
Map = Callable[[Ball], Ball]
THIN_BITS = 30  # a thinner ball goes through Arb's own first-order enclosure
FAT_BITS = 20
acb: Any = flint.acb
NOWHERE = acb(NAN, NAN)

# --- floats -----------------------------------------------------------------------------------------------------------


def scipy(name: str, *first: int) -> Callable[[Array], Array]:
    """SciPy's function, of `first` and real or complex arrays of any float dtype."""

    def function(x: Array) -> Array:
        import scipy.special  # here, so that `import attnfun` stays quick

        wide = x.dtype.itemsize > (16 if np.iscomplexobj(x) else 8)  # SciPy has no long double
        narrow = x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) if wide else x
        result: Array = getattr(scipy.special, name)(*first, narrow)
        return result.astype(x.dtype) if result.dtype != x.dtype else result

    return function


def by_field(real: Callable[[Array], Array], complexes: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """One function of real arrays, another of complex ones."""
    return lambda x: complexes(x) if np.iscomplexobj(x) else real(x)


# --- real balls -------------------------------------------------------------------------------------------------------


def rising(f: Map, x: Ball, floor: Ball | None = None, ceiling: Ball | None = None) -> Ball:
    """Range of an increasing f over x, from its end points; `floor` and `ceiling` bound f everywhere."""
    lo, hi = f(x.lower()).lower(), f(x.upper()).upper()
    if floor is not None and lo < floor:
        lo = floor
    if ceiling is not None and hi > ceiling:
        hi = ceiling
    return span(lo, hi)


def monotone(f: Map, floor: Ball | None = None, ceiling: Ball | None = None) -> Map:
    """The range of an increasing f over thin balls and fat ones."""

    def image(x: Ball) -> Ball:
        if x.rel_accuracy_bits() >= THIN_BITS:
            y = f(x)
            if y.is_finite():  # an end of the domain inside a thin ball: the end points may still be defined
                return y
        return rising(f, x, floor, ceiling)

    return image


def minus_monotone(f: Map) -> Map:
    """The same of a decreasing f that is not negative."""
    falling = monotone(lambda t: -f(t), ceiling=ZERO)
    return lambda x: -falling(x)


def absolute(x: Ball) -> Ball:
    if x >= 0:
        return x
    return -x if x <= 0 else span(ZERO, x.abs_upper())


def nonnegative(x: Ball) -> Ball:
    """x cut at 0 from below; nan when nothing is left."""
    if x >= 0 or not x.is_finite():
        return x
    hi = x.upper()
    return span(ZERO, hi) if hi >= 0 else NAN


# --- rectangles -------------------------------------------------------------------------------------------------------


def finite(f: Map) -> Map:
    """f on finite balls, nan on others and wherever f is not finite (so that undefined is sticky and complete)."""

    def image(z: Ball) -> Ball:
        if not z.is_finite():
            return NOWHERE
        w = f(z)
        return w if w.is_finite() else NOWHERE

    return image


def centred(f: Map, derivative: Map, analytic: Callable[[Ball], bool] | None = None) -> Map:
    """f, sharpened on fat balls by the mean value form.

    Either f is non-finite wherever it is not analytic, or `analytic` proves it; then the mean value form may stand
    alone.
    """

    def image(z: Ball) -> Ball:
        if not z.is_finite() or (analytic is not None and not analytic(z)):
            return NOWHERE
        w = f(z)
        known = w.is_finite()
        if z.rel_accuracy_bits() >= FAT_BITS or not (known or analytic):
            return w if known else NOWHERE
        m = z.mid()
        other = f(m) + derivative(z) * (z - m)
        if not (known and other.is_finite()):
            return w if known else (other if other.is_finite() else NOWHERE)
        return acb(w.real.intersection(other.real), w.imag.intersection(other.imag))

    return image


def complex_log(z: Ball) -> Ball:
    return z.log(analytic=True)


# --- Taylor coefficients ----------------------------------------------------------------------------------------------


def over_factorials(values: Sequence[Ball], n: int) -> list[Ball]:
    """values[k mod len] / k! for k < n."""
    factorial, out = 1, []
    for k in range(n):
        factorial *= max(k, 1)
        out.append(values[k % len(values)] / factorial)
    return out


def integral(constant: Ball, slope: Sequence[Ball]) -> list[Ball]:
    """Coefficients with the given constant and derivative: one more than `slope` has."""
    return [constant, *(s / (k + 1) for k, s in enumerate(slope))]


def riccati(first: Ball, slope: Ball, sign: int, n: int) -> list[Ball]:
    """Taylor coefficients of t with t' = 1 - sign t^2, from t_0 and a sharp t_1."""
    t = [first, slope]
    for k in range(1, n - 1):
        convolution = sum((t[j] * t[k - j] for j in range(k + 1)), ZERO)
        t.append(convolution / (-sign * (k + 1)))
    return t[:n]


def tanhs(series: Any, c: Ball, n: int) -> list[Ball]:
    t = series.balls.tanh(c)
    return riccati(t, 1 - series.balls.powi(t, 2), 1, n)


def sigmoids(series: Any, c: Ball, n: int) -> list[Ball]:
    """sigmoid(x) = (1 + tanh(x/2))/2: the equation of tanh, odd about 0, loses less on fat balls than s - s^2."""
    return [series.balls.sigmoid(c), *(t / 2 ** (k + 2) for k, t in enumerate(tanhs(series, c / 2, n)[1:]))]


__all__ = [
    "FAT_BITS", "NAN", "NOWHERE", "ONE", "THIN_BITS", "ZERO", "Array", "Ball", "Map", "absolute", "acb", "arb",
    "by_field", "centred", "complex_log", "finite", "integral", "minus_monotone", "monotone", "nonnegative",
    "over_factorials", "riccati", "rising", "scipy", "sigmoids", "span", "tanhs",
]  # fmt: skip
