"""Truncated power series: f(c + h) = f_0 + f_1 h + ... + f_{n-1} h^{n-1} + O(h^n), every coefficient an enclosing ball.

The balls are real (`REAL`) or complex (`COMPLEX`); all that follows holds for both, with analytic f for the latter.

With c a point the coefficients are those of the Taylor polynomial at c; with c a fat ball, f_k encloses f^(k)(t)/k! for
every t of the ball, so f(c + h) lies in sum_{k<n-1} f_k(c) h^k + f_{n-1}([c, c+h]) h^{n-1} (Lagrange).

Each function is composed: its own Taylor coefficients g_k at the constant coefficient u_0, in closed form where there
is one (so that a fat u_0 costs little), then sum g_k (u - u_0)^k, where u - u_0 has constant coefficient exactly 0.

| g | g_k, k >= 1 |
| --- | --- |
| exp, sin, cos, sinh, cosh | g^(k)/k! |
| x^p | binomial(p, k) x^(p-k); log: (-1)^(k+1) x^-k / k |
| atan | (-1)^(k-1) sin(k t) (1+x^2)^(-k/2) / k, t = pi/2 - atan x |
| tan, tanh | from t' = 1 + t^2, 1 - t^2; sigmoid(x) = (1 + tanh(x/2))/2 |
| asin, erf, softplus | by integrating the series of the derivative |

Failure mode: where no expansion is proved (a kink, a pole, an end of the domain in the ball, an overflow) an operation
raises Kink; a series that exists is finite in every coefficient. Use inside `series_length(n)`: flint's cap is global.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import flint

from attnfun.errors import AttnfunError
from attnfun.language.balls import BallAlgebra
from attnfun.language.complex_balls import ComplexBallAlgebra
from attnfun.language.enclosures import LOCK, ONE, ZERO, Ball, arb, exact
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, NotAnalytic
from attnfun.language.table import on_series

Series = Any  # flint.arb_series, flint.acb_series
_HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Field:
    """What the coefficients are: the algebra of their balls and flint's type of series over them."""

    balls: Any
    series: Any


REAL, COMPLEX = Field(BallAlgebra(sharp=True), flint.arb_series), Field(ComplexBallAlgebra(), flint.acb_series)


class Kink(Exception):
    """No Taylor expansion is proved at this (ball of) point(s): a kink, a pole, an end of the domain, an overflow."""


@contextmanager
def series_length(n: int) -> Iterator[None]:
    """Let flint keep n coefficients of every series, one thread at a time; gives the old cap back."""
    if n < 1:
        raise AttnfunError(f"a series of {n} coefficients is empty")
    with LOCK:
        before = flint.ctx.cap
        flint.ctx.cap = n
        try:
            yield
        finally:
            flint.ctx.cap = before


@lru_cache(maxsize=1024)
def _binomials(p: Fraction | int, n: int, _precision: int) -> tuple[tuple[Ball | None, Fraction | int], ...]:
    """(binomial(p, k), p − k), k < n: a ball, or None for 1; whole exponents as int."""
    row = [Fraction(1)]
    for k in range(1, n):
        row.append(row[-1] * (p - k + 1) / k)
    factors = [None if b == 1 else exact(b) if b else ZERO for b in row]
    return tuple((b, p - k) for k, b in enumerate(factors))


def _over_factorials(values: Sequence[Ball], n: int) -> list[Ball]:
    """values[k mod len] / k! for k < n."""
    factorial, out = 1, []
    for k in range(n):
        factorial *= max(k, 1)
        out.append(values[k % len(values)] / factorial)
    return out


def _integral(constant: Ball, slope: Sequence[Ball]) -> list[Ball]:
    """Coefficients with the given constant and derivative: one more than `slope` has."""
    return [constant, *(s / (k + 1) for k, s in enumerate(slope))]


def _riccati(first: Ball, slope: Ball, sign: int, n: int) -> list[Ball]:
    """Taylor coefficients of t with t' = 1 - sign t^2, from t_0 and a sharp t_1."""
    t = [first, slope]
    for k in range(1, n - 1):
        convolution = sum((t[j] * t[k - j] for j in range(k + 1)), ZERO)
        t.append(convolution / (-sign * (k + 1)))
    return t[:n]


def _waves(value: Ball, slope: Ball, n: int) -> list[Ball]:
    return _over_factorials([value, slope, -value, -slope], n)


def _tans(self: SeriesAlgebra, c: Ball, n: int) -> list[Ball]:
    t = self.balls.tan(c)
    return _riccati(t, 1 + self.balls.powi(t, 2), -1, n)


def _tanhs(self: SeriesAlgebra, c: Ball, n: int) -> list[Ball]:
    t = self.balls.tanh(c)
    return _riccati(t, 1 - self.balls.powi(t, 2), 1, n)


def _sigmoids(self: SeriesAlgebra, c: Ball, n: int) -> list[Ball]:
    """sigmoid(x) = (1 + tanh(x/2))/2: the equation of tanh, odd about 0, loses less on fat balls than s - s^2."""
    return [self.balls.sigmoid(c), *(t / 2 ** (k + 2) for k, t in enumerate(_tanhs(self, c / 2, n)[1:]))]


def _atans(self: SeriesAlgebra, c: Ball, n: int) -> list[Ball]:
    value = self.balls.atan(c)
    angle, shrink = arb.pi() / 2 - value, self.balls.powr(1 + self.balls.powi(c, 2), -_HALF)
    slopes = (self.balls.sin(k * angle) * self.balls.powi(shrink, k) / (k if k % 2 else -k) for k in range(1, n))
    return [value, *slopes]


def _erfs(self: SeriesAlgebra, c: Ball, n: int) -> list[Ball]:
    gauss = self.exp(self._series([-self.balls.powi(c, 2), -2 * c, -ONE])) * (2 / arb.const_sqrt_pi())
    return _integral(self.balls.erf(c), [gauss[k] for k in range(n)])


def _composed(
    name: str, taylor: Callable[[SeriesAlgebra, Ball, int], Sequence[Ball]]
) -> Callable[[SeriesAlgebra, Series], Series]:
    """The method of a function whose Taylor coefficients at a ball are known."""
    return lambda self, x: self._compose(name, lambda c, n: taylor(self, c, n), x)


class SeriesAlgebra(Algebra[Series]):
    """The operations of the expression language on power series of `order` coefficients, balls of a `field`.

    abs, relu, max, min, sign take the branch that the constant coefficients (balls) prove, and raise Kink otherwise.
    """

    def __init__(self, order: int, field: Field = REAL) -> None:
        if order < 1:
            raise AttnfunError(f"a series of {order} coefficients is empty")
        self.order, self.field, self.balls = order, field, field.balls

    def variable(self, centre: Ball, slope: Ball = ONE) -> Series:
        """centre + slope h."""
        if not (centre.is_finite() and slope.is_finite()):
            raise Kink("the centre of the expansion is not finite")
        return self._series([centre, slope])

    def coefficients(self, x: Series) -> list[Ball]:
        """The `order` coefficients; raises AttnfunError when flint's cap has cut the series short."""
        if x.prec < self.order:
            raise AttnfunError(f"a series of {self.order} coefficients was cut to {x.prec}: use series_length")
        row = [x[k] for k in range(self.order)]
        if not all(a.is_finite() for a in row):
            raise Kink("a coefficient is not finite")
        return row

    def _series(self, row: Sequence[Ball]) -> Series:
        return self.field.series(list(row)[: self.order], self.order)

    def _compose(self, name: str, taylor: Callable[[Ball, int], Sequence[Ball]], x: Series) -> Series:
        c = x[0]
        g = list(taylor(c, self.order))[: self.order]
        if not (c.is_finite() and all(a.is_finite() for a in g)):
            raise Kink(f"{name} has no Taylor expansion proved at {c.str(5)}")
        row = x.coeffs()
        inner = self._series([ZERO, *row[1:]])
        if inner.length() == 0:  # flint refuses to compose with the zero series
            return self._series(g[:1]) if x.prec >= self.order else self.field.series(g[:1], x.prec)
        return self.field.series(g, self.order)(self.field.series(inner, min(x.prec, self.order)))

    def _powers(self, c: Ball, p: Fraction | int, n: int) -> list[Ball]:
        """binomial(p, k) c^(p-k), k < n; exact zeros where the binomial is 0, so c may contain 0 for p = 0, 1, 2, …"""
        power = self.balls.powi if isinstance(p, int) else self.balls.powr
        # a product with 1 rounds the radius up
        return [
            b if b is ZERO else power(c, q) if b is None else b * power(c, q)
            for b, q in _binomials(p, n, flint.ctx.prec)
        ]

    def constant(self, value: Fraction) -> Series:
        return self._series([exact(value)])

    def pi(self) -> Series:
        return self._series([arb.pi()])

    def e(self) -> Series:
        return self._series([arb.const_e()])

    def div(self, x: Series, y: Series) -> Series:
        # not x / y: flint cancels common powers of h, and would call sin(x)/x defined at 0
        return x * self._compose("1/x", lambda c, n: self._powers(c, -1, n), y)

    def powi(self, x: Series, n: int) -> Series:
        return self._compose(f"x**{n}", lambda c, m: self._powers(c, n, m), x)

    def powr(self, x: Series, p: Fraction) -> Series:
        exponent = p.numerator if p.denominator == 1 else p
        return self._compose(f"x**({p})", lambda c, n: self._powers(c, exponent, n), x)

    def pow(self, x: Series, y: Series) -> Series:
        return self.exp(y * self.log(x))

    def ratio(self, x: Series, quotient: Ratio) -> Series:
        from attnfun.language.ratio import taylor  # it expands both sides by this algebra

        return self._compose("a quotient", lambda c, n: taylor(quotient, c, n, self.field), x)

    sqrt = _composed("sqrt", lambda self, c, n: self._powers(c, _HALF, n))
    exp = _composed("exp", lambda self, c, n: _over_factorials([self.balls.exp(c)], n))
    expm1 = _composed("expm1", lambda self, c, n: [self.balls.expm1(c), *_over_factorials([self.balls.exp(c)], n)[1:]])
    log = _composed("log", lambda self, c, n: _integral(self.balls.log(c), self._powers(c, -1, n)))
    log1p = _composed("log1p", lambda self, c, n: _integral(self.balls.log1p(c), self._powers(1 + c, -1, n)))
    sin = _composed("sin", lambda self, c, n: _waves(self.balls.sin(c), self.balls.cos(c), n))
    cos = _composed("cos", lambda self, c, n: _waves(self.balls.cos(c), -self.balls.sin(c), n))
    sinh = _composed("sinh", lambda self, c, n: _over_factorials([self.balls.sinh(c), self.balls.cosh(c)], n))
    cosh = _composed("cosh", lambda self, c, n: _over_factorials([self.balls.cosh(c), self.balls.sinh(c)], n))
    tan, tanh, sigmoid = _composed("tan", _tans), _composed("tanh", _tanhs), _composed("sigmoid", _sigmoids)
    softplus = _composed("softplus", lambda self, c, n: _integral(self.balls.softplus(c), _sigmoids(self, c, n)))
    asin = _composed("asin", lambda self, c, n: _integral(self.balls.asin(c), self._asin_slope(c)))
    acos = _composed("acos", lambda self, c, n: _integral(self.balls.acos(c), [-s for s in self._asin_slope(c)]))
    atan, erf = _composed("atan", _atans), _composed("erf", _erfs)

    def _asin_slope(self, c: Ball) -> list[Ball]:
        """Coefficients of (1 - (c+h)^2)^(-1/2)."""
        slope = self.powr(self._series([1 - self.balls.powi(c, 2), -2 * c, -ONE]), -_HALF)
        return [slope[k] for k in range(self.order)]

    table = on_series

    def abs(self, x: Series) -> Series:
        return x if self._positive("abs", x[0]) else -x

    def sign(self, x: Series) -> Series:
        return self._series([ONE if self._positive("sign", x[0]) else -ONE])

    def relu(self, x: Series) -> Series:
        return x if self._positive("relu", x[0]) else self._series([ZERO])

    def max(self, x: Series, y: Series) -> Series:
        return x if self._positive("max", x[0] - y[0]) else y

    def min(self, x: Series, y: Series) -> Series:
        return y if self._positive("min", x[0] - y[0]) else x

    def _positive(self, name: str, c: Ball) -> bool:
        """Whether c > 0 or c < 0 is proved; an exact 0 proves neither: it says nothing about the neighbours."""
        if self.field is COMPLEX:
            raise NotAnalytic(f"{name} is not analytic")
        if c > 0:
            return True
        if c < 0:
            return False
        raise Kink(f"{name} changes its branch at {c.str(5)}")
