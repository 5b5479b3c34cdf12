"""Symmetric power series in power sums, exactly, up to a total degree: what analytic targets share with polynomials.

A set function f that is analytic near (c, …, c) is there a symmetric power series in the x_n − c. Its part of degree at
most m ≤ n is a polynomial P in the power sums p_α about c, and a unique one (`power_sums`). `power_series` finds P: the
algebra is that of `power_sums`, every term past degree m is dropped, and a function g of c_0 + u, u without constant
term, is Σ_{k ≤ m} g_k u^k, g_k its Taylor coefficients at c_0, for u^{m+1} has no term of degree m or less.

| g | at c_0 | g_k |
| --- | --- | --- |
| exp, sinh, cosh, sin, cos | 0 | ± 1/k!, or 0 |
| log (log1p) | 1 (0) | −(−1)^k/k |
| x^p, p rational, and 1/x | 1, any but 0 for whole p | C(p, k) c_0^(p−k) |
| expm1, tan, tanh, sigmoid, atan | 0 | by those above; atan: ± 1/k for odd k |

Failure mode: NotPolynomial where a coefficient is not rational by this table (exp at another point, pi), or where there
is no expansion (abs, max, a root at 0).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from attnfun.kinds.set.power_sums import NotPolynomial, PowerSums, Terms, TermsAlgebra, power_sums
from attnfun.kinds.set.target import SetFunction

_MOST_TERMS = 220
_ENTIRE = {"exp": (1, 1, 1, 1), "sinh": (0, 1, 0, 1), "cosh": (1, 0, 1, 0), "sin": (0, 1, 0, -1), "cos": (1, 0, -1, 0)}
"""k! times the Taylor coefficients at 0, over and over."""


def power_series(target: SetFunction) -> tuple[PowerSums, int]:
    """The target's part of degree at most m in power sums, and m ≤ n: the largest whose series in x_i and x_j are
    small.
    """
    most = 1
    while most < target.points and math.comb(2 * target.box.dim + most + 1, most + 1) <= _MOST_TERMS:
        most += 1
    return power_sums(target, _Series((0,) * target.box.dim, most)), most


class _Series(TermsAlgebra):
    """Terms up to a total degree."""

    def __init__(self, zero: tuple[int, ...], most: int) -> None:
        super().__init__(zero)
        self.most = most

    def mul(self, x: Terms, y: Terms, /) -> Terms:
        """Without what is past the degree."""
        total = super().mul(x, y)
        return {(a, b, f): v for (a, b, f), v in total.items() if sum(a) + sum(b) + sum(map(sum, f)) <= self.most}

    def _composed(self, x: Terms, coefficients: Callable[[Fraction, int], Fraction]) -> Terms:
        """Σ g_k(c_0) u^k, by Horner's rule."""
        start = x.get(self.one, Fraction(0))
        rest = {key: value for key, value in x.items() if key != self.one}
        total: Terms = {}
        for k in range(self.most, -1, -1):
            total = self.add(self.mul(total, rest), self.constant(coefficients(start, k)))
        return total

    def _at(self, name: str, point: int, x: Terms, coefficients: Callable[[int], Fraction | int]) -> Terms:
        def checked(start: Fraction, k: int) -> Fraction:
            if start != point:
                raise NotPolynomial(f"{name} at {start} has no rational power series")
            return Fraction(coefficients(k))

        return self._composed(x, checked)

    def _power(self, x: Terms, p: Fraction) -> Terms:
        def binomial(start: Fraction, k: int) -> Fraction:
            if start == 0 or (start != 1 and p.denominator != 1):
                raise NotPolynomial(f"the power {p} at {start} has no rational power series")
            value = Fraction(1)
            for l in range(k):
                value *= (p - l) / (l + 1)
            return value * (start ** int(p - k) if p.denominator == 1 else 1)

        return self._composed(x, binomial)

    def div(self, x: Terms, y: Terms, /) -> Terms:
        return self.mul(x, self._power(y, Fraction(-1)))

    def powr(self, x: Terms, p: Fraction, /) -> Terms:
        return self._power(x, p)

    def sqrt(self, x: Terms, /) -> Terms:
        return self._power(x, Fraction(1, 2))

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op not in _ENTIRE:
            return super().__getattr__(op)
        return lambda x: self._at(op, 0, x, lambda k: Fraction(_ENTIRE[op][k % 4], math.factorial(k)))

    def atan(self, x: Terms, /) -> Terms:
        return self._at("atan", 0, x, lambda k: Fraction((0, 1, 0, -1)[k % 4], max(k, 1)))

    def log(self, x: Terms, /) -> Terms:
        return self._at("log", 1, x, lambda k: Fraction(-((-1) ** k), k) if k else 0)

    def log1p(self, x: Terms, /) -> Terms:
        return self.log(self.add(x, self.constant(Fraction(1))))

    def expm1(self, x: Terms, /) -> Terms:
        return self.sub(self.exp(x), self.constant(Fraction(1)))

    def tan(self, x: Terms, /) -> Terms:
        return self.div(self.sin(x), self.cos(x))

    def tanh(self, x: Terms, /) -> Terms:
        return self.div(self.sinh(x), self.cosh(x))

    def sigmoid(self, x: Terms, /) -> Terms:
        one = self.constant(Fraction(1))
        return self.div(one, self.add(one, self.exp(self.neg(x))))
