"""Complex balls: a finite result proves that the operation is analytic on the whole argument ball, and encloses it.

A ball is a rectangle (`flint.acb`). Where a cut or a pole touches the argument the result is non-finite; it stays so
through every later operation. Cuts are the principal ones: log, sqrt, powers (-inf, 0]; asin, acos real |x| >= 1; atan
imaginary |y| >= 1; log1p (-inf, -1]; softplus where 1 + e^z <= 0, that is Im z = pi (mod 2 pi), Re z >= 0.
Failure mode: finite on each of two disjoint balls does not make their values one branch: cover a connected set that
contains the real domain by overlapping balls. abs, sign, max, min, relu raise NotAnalytic.

Fat balls: f(Z) is also inside f(m) + f'(Z) (Z - m) (Z convex, f analytic on Z), and the two enclosures are intersected.
"""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import flint

from attnfun.language.enclosures import exact, lift
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, power_by_squaring, static

ComplexBall = Any  # flint.acb, or a NumPy object array of them
acb: Any = flint.acb
Map = Callable[[ComplexBall], ComplexBall]
_NAN = acb(flint.arb("nan"), flint.arb("nan"))
_FAT_BITS = 20


def _finite(f: Map) -> Map:
    """f on finite balls, nan on others and wherever f is not finite (so that undefined is sticky and complete)."""

    def image(z: ComplexBall) -> ComplexBall:
        if not z.is_finite():
            return _NAN
        w = f(z)
        return w if w.is_finite() else _NAN

    return image


def _centred(f: Map, derivative: Map, analytic: Callable[[ComplexBall], bool] | None = None) -> Map:
    """f, sharpened on fat balls by the mean value form.

    Either f is non-finite wherever it is not analytic, or `analytic` proves it; then the mean value form may stand
    alone.
    """

    def image(z: ComplexBall) -> ComplexBall:
        if not z.is_finite() or (analytic is not None and not analytic(z)):
            return _NAN
        w = f(z)
        known = w.is_finite()
        if z.rel_accuracy_bits() >= _FAT_BITS or not (known or analytic):
            return w if known else _NAN
        m = z.mid()
        other = f(m) + derivative(z) * (z - m)
        if not (known and other.is_finite()):
            return w if known else (other if other.is_finite() else _NAN)
        return acb(w.real.intersection(other.real), w.imag.intersection(other.imag))

    return image


def _sqrt(z: ComplexBall) -> ComplexBall:
    return z.sqrt(analytic=True)


def _log(z: ComplexBall) -> ComplexBall:
    return z.log(analytic=True)


def _off_asin_cut(z: ComplexBall) -> bool:
    return bool(not z.imag.contains(0) or (z.real > -1 and z.real < 1))


def _off_atan_cut(z: ComplexBall) -> bool:
    return bool(not z.real.contains(0) or (z.imag > -1 and z.imag < 1))


def _asin_slope(z: ComplexBall) -> ComplexBall:
    # (1-z)(1+z) rather than 1-z^2: both factors stay off the cut of sqrt when z is off the cut of asin
    return (1 - z).rsqrt(analytic=True) * (1 + z).rsqrt(analytic=True)


def _sigmoid(z: ComplexBall) -> ComplexBall:
    w = 1 / (1 + (-z).exp())
    if w.is_finite():
        return w
    e = z.exp()
    return e / (1 + e)


def _powi(z: ComplexBall, n: int) -> ComplexBall:
    if n == 0:
        return acb(1)
    return power_by_squaring(
        z if n > 0 else 1 / z, abs(n), operator.mul
    )  # flint's own ** is nan on some balls around 0


def _powr(z: ComplexBall, p: Fraction) -> ComplexBall:
    if p == Fraction(1, 2):
        return _sqrt(z)
    return (_exact(p) * _log(z)).exp()


def _exact(value: Fraction) -> ComplexBall:
    return acb(exact(value))


def _pow(x: ComplexBall, y: ComplexBall) -> ComplexBall:
    if not (x.is_finite() and y.is_finite()):
        return _NAN
    w = (y * _log(x)).exp()
    return w if w.is_finite() else _NAN


def _div(x: ComplexBall, y: ComplexBall) -> ComplexBall:
    return x / y if y.is_finite() else _NAN  # flint: 1/inf is 0


def _gauss(z: ComplexBall) -> ComplexBall:
    return 2 * (-z * z).exp() / flint.arb.const_sqrt_pi()


def _method(fn: Map) -> Callable[[Any, ComplexBall], ComplexBall]:
    lifted = lift(fn)
    return lambda self, x: lifted(x)


class ComplexBallAlgebra(Algebra[ComplexBall]):
    """The analytic operations of the expression language on `acb` scalars or object arrays of them (broadcasting).

    Real balls (`arb`) are accepted as operands of + - * / but not of functions: make them complex first.
    """

    def constant(self, value: Fraction) -> ComplexBall:
        return _exact(Fraction(value))

    def pi(self) -> ComplexBall:
        return acb.pi()

    def e(self) -> ComplexBall:
        return acb(flint.arb.const_e())

    div, pow = map(static, (lift(_div, 2), lift(_pow, 2)))

    def powi(self, x: ComplexBall, n: int) -> ComplexBall:
        if n == 1:
            return x
        return lift(_centred(lambda z: _powi(z, n), lambda z: n * _powi(z, n - 1)))(x)

    def powr(self, x: ComplexBall, p: Fraction) -> ComplexBall:
        p = Fraction(p)
        if p.denominator == 1:
            return self.powi(x, p.numerator)
        return lift(_centred(lambda z: _powr(z, p), lambda z: _exact(p) * _powr(z, p - 1)))(x)

    def ratio(self, x: ComplexBall, quotient: Ratio) -> ComplexBall:
        from attnfun.language.ratio import taylor  # it rests on the power series, and they on these balls
        from attnfun.language.series import COMPLEX

        return lift(lambda z: acb(taylor(quotient, acb(z), 1, COMPLEX)[0]))(x)

    sin, cos, sinh, cosh, exp, expm1 = map(
        _method, map(_finite, map(operator.methodcaller, ("sin", "cos", "sinh", "cosh", "exp", "expm1")))
    )
    tan = _method(_centred(lambda z: z.tan(), lambda z: 1 / z.cos() ** 2))
    tanh = _method(_centred(lambda z: z.tanh(), lambda z: 1 / z.cosh() ** 2))
    asin = _method(_centred(lambda z: z.asin(), _asin_slope, _off_asin_cut))
    acos = _method(_centred(lambda z: z.acos(), lambda z: -_asin_slope(z), _off_asin_cut))
    atan = _method(_centred(lambda z: z.atan(), lambda z: 1 / (1 + z * z), _off_atan_cut))
    log = _method(_centred(_log, lambda z: 1 / z))
    log1p = _method(_centred(lambda z: _log(1 + z), lambda z: 1 / (1 + z)))
    sqrt = _method(_centred(_sqrt, lambda z: z.rsqrt(analytic=True) / 2))
    erf = _method(_centred(lambda z: z.erf(), _gauss))
    sigmoid = _method(_centred(_sigmoid, lambda z: _sigmoid(z) * _sigmoid(-z)))
    softplus = _method(_centred(lambda z: _log(1 + z.exp()), _sigmoid))
