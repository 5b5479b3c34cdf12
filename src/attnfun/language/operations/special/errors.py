"""erfc, and the inverses of erf and erfc.

**The inverse in the complex plane.** Let D be the set of w = u + iv with |uv| < π/4, which contains the real axis.

Lemma. erf is injective on D. Proof. On the quarter Q (u, v > 0) put t = exp(-w²): t maps Q to T = {Re t > 0, Im t < 0},
where w = √s, s = -log t, and erf has the derivative -(1/√π) s^{-1/2} by t. There |arg s^{1/2}| < π/2, so that the
real part of √π d erf/d(-t) is positive on the convex set T: erf is injective on Q (Noshiro, Warschawski). Down a line
Re t = const in T, from the real axis, Im erf grows from what it is there, at least 0: so Im erf > 0 on Q. Along a line
Im t = const in T, Re erf falls while Re t grows, towards 0: so Re erf > 0 on Q. By erf(-w) = -erf(w) and conjugation
the four quarters go to the four quadrants, and the axes in D to the axes, where erf and -i erf(i·) grow. ∎

So the branch of the inverse that is real on (-1, 1) is analytic on erf(D), and any solution w in D of erf(w) = z is its
value. `_inverse` finds one: with W a rectangle around w, N = w - (erf(w) - Z)/erf'(W) inside W proves that every z in Z
has exactly one solution in W, and that it lies in N (interval Newton; the mean of erf' over a segment of W lies in the
ball erf'(W), which is convex). Failure mode: a Z too large for one step of Newton's, or out of reach, is nan.
"""

from fractions import Fraction
from typing import Any

import flint
import numpy as np

from attnfun.language.operations.analytic import Row, analytic, anywhere, by_series
from attnfun.language.operations.entry import Need, Range
from attnfun.language.operations.shapes import NOWHERE, Ball, acb, arb, by_field, minus_monotone, monotone, scipy

_ONE, _TWO, _HALF = Fraction(1), Fraction(2), Fraction(1, 2)
_STEPS, _TRIES = 6, 4


def _gauss(z: Ball) -> Ball:
    """erf'."""
    return 2 * (-z * z).exp() / arb.const_sqrt_pi()


def _near(z: Any) -> Any:
    """About the w in D with erf(w) = z, for complex floats, followed from the real axis."""
    from scipy.special import erf, erfinv

    start = np.clip(z.real, -0.999, 0.999)
    w = erfinv(start) + 0j
    for k in range(1, _STEPS + 1):
        along = start + (z - start) * (k / _STEPS)
        for _ in range(3 if k < _STEPS else 8):
            w = w - (erf(w) - along) * np.exp(w * w) * (np.sqrt(np.pi) / 2)
    return w


def _solution(z: Ball) -> Ball:
    """The same of an exact rectangle, sharper."""
    if z.imag == 0 and abs(z.real) < 1:
        return acb(z.real.erfinv().mid())
    with np.errstate(all="ignore"):
        w = acb(complex(_near(np.complex128(complex(z)))))
    for _ in range(3):
        w = (w - (w.erf() - z) / _gauss(w)).mid()
    return w


def _inverse(z: Ball) -> Ball:
    w = _solution(z.mid())
    if not w.is_finite():
        return NOWHERE
    gap = w.erf() - z
    size = (abs(gap / _gauss(w)) * 2 + (abs(w) + 1) * arb(2) ** (8 - flint.ctx.prec)).upper()
    for _ in range(_TRIES):
        around = w + acb(size * arb(0, 1), size * arb(0, 1))
        found = w - gap / _gauss(around)
        if around.contains_interior(found):
            found = w - gap / _gauss(found.union(w))
            return found if abs(found.real * found.imag) < arb.pi() / 4 else NOWHERE
        size = size * 2
    return NOWHERE


def _expand(z: Ball, n: int) -> Row:
    """By Newton's method on series, which doubles the coefficients that are right."""
    centre = _inverse(z)
    if not centre.is_finite():
        return [centre] * n

    def series(t: Any) -> Any:
        w = t * 0 + centre
        for _ in range(n.bit_length() + 1):
            w = w - (w.erf() - t) * (w * w).exp() * arb.const_sqrt_pi() / 2
        return w

    return [centre, *by_series(series)(z, n)[1:]]


def _slope(sign: int) -> Any:
    """±(√π/2) e^{w²}."""

    def slope(b: Any, x: Any, value: Any) -> Any:
        return b.mul(b.mul(b.constant(sign * _HALF), b.sqrt(b.pi())), b.exp(b.powi(value, 2)))

    return slope


OPERATIONS = (
    *analytic(
        "erfc",
        lambda z: z.erfc(),
        by_series(lambda t: t.erfc()),
        anywhere,
        lambda b, x, value: b.neg(b.div(b.mul(b.constant(_TWO), b.exp(b.neg(b.powi(x, 2)))), b.sqrt(b.pi()))),
        ball=minus_monotone(lambda x: x.erfc()),
        ufuncs=("erfc",),
        floats=scipy("erfc"),
    ),
    *analytic(
        "erfinv",
        _inverse,
        _expand,
        lambda z: bool(not z.imag.contains(0) or (z.real > -1 and z.real < 1)),
        _slope(1),
        ball=monotone(lambda x: x.erfinv()),
        ufuncs=("erfinv",),
        floats=by_field(scipy("erfinv"), _near),
        needs=Need(Range("must stay inside (-1, 1)", -_ONE, _ONE)),
        parity=-1,
        cut=lambda g: 1 - g * g,
        singular=lambda g: 1 - g * g,
    ),
    *analytic(
        "erfcinv",
        lambda z: _inverse(1 - z),
        lambda z, n: [c * (-1) ** k for k, c in enumerate(_expand(1 - z, n))],
        lambda z: bool(not z.imag.contains(0) or (z.real > 0 and z.real < 2)),
        _slope(-1),
        ball=lambda x: -monotone(lambda t: -t.erfcinv())(x),
        ufuncs=("erfcinv",),
        floats=by_field(scipy("erfcinv"), lambda z: _near(1 - z)),
        needs=Need(Range("must stay inside (0, 2)", Fraction(0), _TWO)),
        cut=lambda g: g * (2 - g),
        singular=lambda g: g * (2 - g),
    ),
)
