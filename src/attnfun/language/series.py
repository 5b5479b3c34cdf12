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
from attnfun.language.enclosures import LOCK, ONE, ZERO, Ball, arb, exact, span
from attnfun.language.graph import Ratio
from attnfun.language.interpret import Algebra, NotAnalytic
from attnfun.language.operations.entry import Operation
from attnfun.language.operations.shapes import THIN_BITS
from attnfun.language.table import on_series

Series = Any  # flint.arb_series, flint.acb_series


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


def _finite(row: Sequence[Ball]) -> bool:
    for value in row:  # noqa: SIM110  a generator takes twice as long, and this is asked of every series
        if not value.is_finite():
            return False
    return True


def _falling_powers(c: Ball, p: Fraction | int, n: int) -> list[Ball]:
    """binomial(p, k) c^(p-k), k < n, for c away from 0 and p no natural number: one power, then quotients.

    A power is monotone on either side of 0, so the ends of a fat ball bound all of it.
    """
    ends = (c,) if c.rel_accuracy_bits() >= THIN_BITS else (c.lower(), c.upper())
    powers = [ONE / end ** (-p) if isinstance(p, int) else end ** exact(p) for end in ends]
    row: list[Ball] = []
    for b, _ in _binomials(p, n, flint.ctx.prec):
        if row:
            powers = [power / end for power, end in zip(powers, ends, strict=True)]
        value = powers[0]
        if len(powers) > 1:
            other = powers[1]
            value = span(min(value.lower(), other.lower()), max(value.upper(), other.upper()))
        row.append(value if b is None else b * value)  # a product with 1 rounds the radius up
    return row


class SeriesAlgebra(Algebra[Series]):
    """The operations of the expression language on power series of `order` coefficients, balls of a `field`.

    abs, relu, max, min, sign, floor, round, where take the branch that the constant coefficients (balls) prove, and
    raise Kink otherwise.
    """

    def __init__(self, order: int, field: Field = REAL) -> None:
        if order < 1:
            raise AttnfunError(f"a series of {order} coefficients is empty")
        self.order, self.field, self.balls = order, field, field.balls

    def variable(self, centre: Ball, slope: Ball = ONE) -> Series:
        """centre + slope h."""
        if not (centre.is_finite() and slope.is_finite()):
            raise Kink("the centre of the expansion is not finite")
        return self.polynomial([centre, slope])

    def coefficients(self, x: Series) -> list[Ball]:
        """The `order` coefficients; raises AttnfunError when flint's cap has cut the series short."""
        if x.prec < self.order:
            raise AttnfunError(f"a series of {self.order} coefficients was cut to {x.prec}: use series_length")
        row = [x[k] for k in range(self.order)]
        if not _finite(row):
            raise Kink("a coefficient is not finite")
        return row

    def polynomial(self, row: Sequence[Ball]) -> Series:
        return self.field.series(list(row)[: self.order], self.order)

    def _compose(self, name: str, taylor: Callable[[Ball, int], Sequence[Ball]], x: Series) -> Series:
        c = x[0]
        g = list(taylor(c, self.order))[: self.order]
        if not (c.is_finite() and _finite(g)):
            raise Kink(f"{name} has no Taylor expansion proved at {c.str(5)}")
        row = x.coeffs()
        inner = self.field.series([ZERO, *row[1 : self.order]], min(x.prec, self.order))
        if inner.length() == 0:  # flint refuses to compose with the zero series
            return self.polynomial(g[:1]) if x.prec >= self.order else self.field.series(g[:1], x.prec)
        return self.field.series(g, self.order)(inner)

    def powers(self, c: Ball, p: Fraction | int, n: int) -> list[Ball]:
        """binomial(p, k) c^(p-k), k < n; exact zeros where the binomial is 0, so c may contain 0 for p = 0, 1, 2, …"""
        whole = isinstance(p, int)
        if self.field is REAL and c.is_finite() and (c > 0 or (whole and c < 0)) and not (whole and p >= 0):
            return _falling_powers(c, p, n)
        power = self.balls.powi if whole else self.balls.powr
        # a product with 1 rounds the radius up
        return [
            b if b is ZERO else power(c, q) if b is None else b * power(c, q)
            for b, q in _binomials(p, n, flint.ctx.prec)
        ]

    def constant(self, value: Fraction) -> Series:
        return self.polynomial([exact(value)])

    def pi(self) -> Series:
        return self.polynomial([arb.pi()])

    def e(self) -> Series:
        return self.polynomial([arb.const_e()])

    def div(self, x: Series, y: Series) -> Series:
        # not x / y: flint cancels common powers of h, and would call sin(x)/x defined at 0
        return x * self._compose("1/x", lambda c, n: self.powers(c, -1, n), y)

    def powi(self, x: Series, n: int) -> Series:
        return self._compose(f"x**{n}", lambda c, m: self.powers(c, n, m), x)

    def powr(self, x: Series, p: Fraction) -> Series:
        exponent = p.numerator if p.denominator == 1 else p
        return self._compose(f"x**({p})", lambda c, n: self.powers(c, exponent, n), x)

    def pow(self, x: Series, y: Series) -> Series:
        return self.exp(y * self.log(x))

    def ratio(self, x: Series, quotient: Ratio) -> Series:
        from attnfun.language.ratio import taylor  # it expands both sides by this algebra

        return self._compose("a quotient", lambda c, n: taylor(quotient, c, n, self.field), x)

    @classmethod
    def method(cls, entry: Operation) -> Callable[..., Series]:
        if entry.series is not None:
            return entry.series
        assert entry.taylor is not None
        taylor: Callable[..., Sequence[Ball]] = entry.taylor
        if entry.whole:
            return lambda self, x, k: self._compose(entry.name, lambda c, n: taylor(self, k, c, n), x)
        return lambda self, x: self._compose(entry.name, lambda c, n: taylor(self, c, n), x)

    table = on_series

    def positive(self, name: str, c: Ball) -> bool:
        """Whether c > 0 or c < 0 is proved; an exact 0 proves neither: it says nothing about the neighbours."""
        if self.field is COMPLEX:
            raise NotAnalytic(f"{name} is not analytic")
        if c > 0:
            return True
        if c < 0:
            return False
        raise Kink(f"{name} changes its branch at {c.str(5)}")
