"""Complex balls: a finite result proves that the operation is analytic on the whole argument ball, and encloses it.

A ball is a rectangle (`flint.acb`). Where a cut or a pole touches the argument the result is non-finite; it stays so
through every later operation. Cuts are the principal ones: log, sqrt, powers (-inf, 0]; asin, acos real |x| >= 1; atan
imaginary |y| >= 1; log1p (-inf, -1]; softplus where 1 + e^z <= 0, that is Im z = pi (mod 2 pi), Re z >= 0; those of
special functions stand with their entries (`operations/special`).
Failure mode: finite on each of two disjoint balls does not make their values one branch: cover a connected set that
contains the real domain by overlapping balls. abs, sign, max, min, relu raise NotAnalytic.

Fat balls: f(Z) is also inside f(m) + f'(Z) (Z - m) (Z convex, f analytic on Z), and the two enclosures are intersected.
"""

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import flint

from attnfun.language.enclosures import exact, lift
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, not_analytic, power_by_squaring, static
from attnfun.language.operations.entry import Operation
from attnfun.language.operations.shapes import NOWHERE, centred, complex_log

ComplexBall = Any  # flint.acb, or a NumPy object array of them
acb: Any = flint.acb


def _powi(z: ComplexBall, n: int) -> ComplexBall:
    if n == 0:
        return acb(1)
    return power_by_squaring(
        z if n > 0 else 1 / z, abs(n), operator.mul
    )  # flint's own ** is nan on some balls around 0


def _powr(z: ComplexBall, p: Fraction) -> ComplexBall:
    if p == Fraction(1, 2):
        return z.sqrt(analytic=True)
    return (_exact(p) * complex_log(z)).exp()


def _exact(value: Fraction) -> ComplexBall:
    return acb(exact(value))


def _pow(x: ComplexBall, y: ComplexBall) -> ComplexBall:
    if not (x.is_finite() and y.is_finite()):
        return NOWHERE
    w = (y * complex_log(x)).exp()
    return w if w.is_finite() else NOWHERE


def _div(x: ComplexBall, y: ComplexBall) -> ComplexBall:
    return x / y if y.is_finite() else NOWHERE  # flint: 1/inf is 0


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
        return lift(centred(lambda z: _powi(z, n), lambda z: n * _powi(z, n - 1)))(x)

    def powr(self, x: ComplexBall, p: Fraction) -> ComplexBall:
        p = Fraction(p)
        if p.denominator == 1:
            return self.powi(x, p.numerator)
        return lift(centred(lambda z: _powr(z, p), lambda z: _exact(p) * _powr(z, p - 1)))(x)

    def ratio(self, x: ComplexBall, quotient: Ratio) -> ComplexBall:
        from attnfun.language.ratio import taylor  # it rests on the power series, and they on these balls
        from attnfun.language.series import COMPLEX

        return lift(lambda z: acb(taylor(quotient, acb(z), 1, COMPLEX)[0]))(x)

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., ComplexBall]:
        image = entry.rectangle
        if image is None:
            return not_analytic(entry.name)
        if entry.whole:
            return lambda self, x, n: lift(partial(image, n))(x)
        lifted = lift(image, entry.arity)
        return (lambda self, x: lifted(x)) if entry.arity == 1 else (lambda self, *args: lifted(*args))
