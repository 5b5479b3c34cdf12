"""Sums over the examples of a prompt, by heads on mirrored tokens: what bias and rounding they have.

Statement. Let heads have logits ±ρ_h ẑ_i (ratios |ρ_h| ≤ 1) and values ±x_i on the pair i of N, and let foreign tokens
have values 0 and logits at least `gap` below. Let |ẑ_i| ≤ x, |ẑ| ≤ ζ (Euclidean), the largest eigenvalue of XᵀX at most
`top`, and the computed logits of head h be off by at most ρ_h `shift`. Then Σ_h a_h · head_h, as computed, is

    m₁ Xᵀẑ + Xᵀc + δ,     m_j = Σ_h a_h ρ_h^j/N,     |c| ≤ (ζ/x) Σ_{j=3,5,…} φ_j x^j |m_j|,

with φ(x) = sinh x/(1 − θ(cosh x − 1)), θ = min(1, ζ²/(N x²)), and |δ| ≤ Σ |a_h| δ_h as in `Sum.errors`.

Argument. Bias: head_h = (1/N) Σ x_i sinh(ρẑ_i)/mean cosh(ρẑ), a power series in ρ. mean ẑ^{2k} ≤ θ x^{2k} and
|ẑ_i|^j ≤ |ẑ_i| x^{j−1}; all signs made positive, the j-th coefficient is at most |ẑ_i| x^{j−1} φ_j. Terms past the
61st: Cauchy's bound on the circle cosh ϱ = 1 + 1/(2θ), where φ = 2 sinh ϱ.
Rounding: a term of the softmax is off by a factor within e^{±g}, g = ρ `shift` + 4u ρx (the maximum is subtracted)
+ exp, the same for all coordinates. The weights of a pair are at most cosh(ρx)/N together, so that adds Xᵀη, |η| ≤
(e^g − 1) cosh(ρx)/√N. Products and the quotient cost a few u of Σ p_i|x_i| ≤ cosh(ρx) √(tr XᵀX/N), tr ≤ d `top`. A
partial sum, in any order, is at most the positive or the negative part of its coordinate; each example is there
once with either sign and a weight of at most e^{ρx}/(2N), so 2N additions lose N u e^{ρx} √(tr/N). The denominator
is off by the factor 1 ± (e^g − 1 + γ_{2N+8} + leak), which counts with the head's own size √top ρζ sinh(ρx)/(ρx N).
Foreign tokens add exact zeros to the numerator.

`tanh_errors` does the same for a reading: two keys with logits 2l and 0 and values ±1 give tanh l, whose coefficients
are at most 2.4675 (2/π)^{j+1} (Cauchy on circles up to π/2).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from attnfun.certify.rounding import ROUNDOFF, TINY, gamma, kernel_move
from attnfun.certify.view import provided
from attnfun.kinds.in_context.prove_class import SAFE, SeenClass

ORDERS = 61  # odd powers that are summed one by one
TOKENS = 2.0**40  # more tokens than a prompt has
SHUT = 1000.0  # a logit so far below the largest is an exact 0 in both dtypes


Ratios = tuple[tuple[Fraction, float], ...]  # (ρ_h, a_h) of every head


@dataclass(frozen=True)
class Errors:
    """Sizes of Xᵀc and δ, and of all that the heads put out together (bounds)."""

    bias: float
    rounding: float
    size: float


@dataclass(frozen=True)
class Sum:
    """The heads of one layer that sum over examples: (ρ_h, a_h), of N pairs, foreign keys `gap` lower."""

    heads: Ratios
    N: int
    gap: float

    def moment(self, power: int) -> Fraction:
        """Σ a ρ^j/N."""
        return sum((Fraction(a) * ratio**power for ratio, a in self.heads), Fraction(0)) / self.N

    def errors(self, data: SeenClass, dtype: str, x: float, zeta: float, shift: float) -> Errors:
        """The statement of this file; Undecided where logits are too large for a finite bound."""
        u, n = ROUNDOFF[dtype], 2 * self.N
        provided(x < 20 and shift < 0.25, "the logits are too large")
        top, spread = math.sqrt(data.top) * SAFE, math.sqrt(data.d * data.top / self.N) * SAFE
        rounding = size = 0.0
        for ratio_, amount in self.heads:
            ratio = float(abs(ratio_)) * SAFE
            at = ratio * x
            g = math.expm1((ratio * shift + 4 * u * at + 10 * u + kernel_move(n, dtype)) * SAFE)
            leak = TOKENS * math.exp(min(2 * at + 1 - self.gap, 0.0))
            under = (g + gamma(n + 8, u) + leak) * SAFE
            provided(under < 0.25, "the sums of this many examples are too far off")
            signal = top * ratio * zeta * (sinh_ratio(at) * SAFE) / self.N * SAFE
            weights = g * math.cosh(at) * top / math.sqrt(self.N)
            sums = u * (8 * math.cosh(at) + (self.N + 8) * math.exp(at)) * spread * (1 + 4 * g + 4 * n * u)
            error = (weights + sums + under * signal) / (1 - under) * SAFE
            rounding += abs(amount) * error
            size += abs(amount) * (signal + error)
        lost = (n + 32) * data.d * TINY[dtype] * (1 + sum(abs(a) for _, a in self.heads))
        return Errors(top * self._bias(x, zeta), (rounding + lost) * SAFE, (size + lost) * SAFE)

    def _bias(self, x: float, zeta: float) -> float:
        if not x > 0:
            return 0.0
        share = min(1.0, zeta**2 / (self.N * x**2)) * SAFE
        phi = phi_series(share)
        moments = zip(range(3, ORDERS + 1, 2), _moments(self.heads, self.N), strict=True)
        total = sum(phi[j] * x**j * abs(m * SAFE) for j, m in moments)
        radius = math.acosh(1 + 1 / (2 * share)) / SAFE
        for ratio, amount in self.heads:
            part = float(abs(ratio)) * x * SAFE / radius
            if not part < 1:
                return math.inf
            total += abs(amount) / self.N * 2 * math.sinh(radius * SAFE) * part ** (ORDERS + 2) / (1 - part**2)
        return total * zeta / x * SAFE


def tanh_errors(heads: Ratios, l: float, shift: float, foreign: float, dtype: str) -> Errors:
    """Of Σ a tanh(ρ l), |l| as given: logits off by ρ `shift`, foreign keys `foreign` below the largest."""
    u, share = ROUNDOFF[dtype], 2 / math.pi * SAFE
    provided(share * l < 1 and shift < 0.25, "the logits of the reading are too large")
    provided(foreign > 150, "a reading head does not shut out the other tokens")
    bias = rounding = size = 0.0
    for j, m in zip(range(3, ORDERS + 1, 2), _moments(heads, 1), strict=True):
        bias += 2.4675 * share ** (j + 1) * l**j * abs(m) * SAFE
    for ratio_, amount in heads:
        ratio = float(abs(ratio_)) * SAFE
        at = ratio * l
        bias += abs(amount) * 2.4675 * share * (share * at) ** (ORDERS + 2) / (1 - (share * at) ** 2)
        g = (ratio * shift + 8 * u * at + 4 * kernel_move(1, dtype)) * SAFE
        off = 2 * math.expm1(2 * g) + 16 * u + 2 * TOKENS * math.exp(-foreign) + 64 * TINY[dtype]
        rounding += abs(amount) * off
        size += abs(amount) * (math.tanh(at) + off)
    return Errors(bias * SAFE, (rounding + gamma(len(heads) + 12, u) * size + 64 * TINY[dtype]) * SAFE, size * SAFE)


def sigmoid_error(shift: float, foreign: float, dtype: str) -> float:
    """How far 1/(1 + e^{−l}), a softmax over the logits l and 0, comes out where l is off by `shift`, for every l.

    |σ'| ≤ ¼; subtracting the larger logit loses 2u|l|, and |l|σ'(l) ≤ 0.224; exp, sum and quotient: some u of p(1 − p)
    and of p; foreign keys, `foreign` below the largest, add to the denominator alone.
    """
    u = ROUNDOFF[dtype]
    provided(foreign > 150, "a head does not shut out the other tokens")
    return (shift / 4 + u + kernel_move(1, dtype) + 8 * u + 2 * TOKENS * math.exp(-foreign) + 64 * TINY[dtype]) * SAFE


@lru_cache(maxsize=256)
def _moments(heads: Ratios, N: int) -> tuple[float, ...]:
    return tuple(float(Sum(heads, N, 0.0).moment(j)) for j in range(3, ORDERS + 1, 2))


@lru_cache(maxsize=4096)
def phi_series(share: float) -> tuple[float, ...]:
    """φ_j, j ≤ ORDERS, of sinh x/(1 − share (cosh x − 1)), rounded up: all terms are positive."""
    inverse = [1 / math.factorial(j) for j in range(ORDERS + 1)]
    found: list[float] = []
    for j in range(ORDERS + 1):
        rest = sum(share * inverse[i] * found[j - i] for i in range(2, j + 1, 2))
        found.append((inverse[j] if j % 2 else 0.0) + rest)
    return tuple(value * (1 + 1e-10) for value in found)


def sinh_ratio(x: float) -> float:
    """sinh(x)/x, or more."""
    return math.sinh(x) / x if x > 1e-6 else 1 + 1e-6
