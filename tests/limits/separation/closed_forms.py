"""Other forms of what `limits/separation` computes: energies without recurrences, hard functions by power sums."""

from __future__ import annotations

import math

import numpy as np

from attnfun.language import precision
from attnfun.language.enclosures import arb
from attnfun.limits.separation.hard_sets import Complex, HardSet

_BITS = 192


def sign_coefficient(dim: int, degree: int) -> float:
    """λ_ℓ of sign(t) by the closed form, to the nearest double or so; for comparison with the recurrence."""
    if degree % 2 == 0:
        return 0.0
    m = degree // 2
    with precision(_BITS):
        d = arb(dim)
        size = ((d / 2).lgamma() + (arb(m) + 0.5).lgamma() - (arb(m) + (d + 1) / 2).lgamma()).exp() / arb.pi()
        return (-1) ** m * float(size.mid())


def asymptotic_energy(dim: int) -> float:
    """A_d with e_ℓ ~ A_d/ℓ², so that the degrees beyond odd L have about A_d/(2(L+1)) together; to float64."""
    log = (dim + 1) * math.log(2) + 2 * math.lgamma(dim / 2) - 2 * math.log(math.pi) - math.lgamma(dim - 1)
    return math.exp(log)


def by_power_sums(hard: HardSet, X: Complex, features: int | None = None) -> Complex:
    """The first `features` squares of power sums (all of them: g)."""
    total = np.zeros(len(X), dtype=np.complex128)
    for alpha in hard.exponents[:features]:
        p = np.sum(np.prod(X ** np.array(alpha), axis=2), axis=1)
        total += p**2 / (alpha[0] if hard.dim == 1 else 1)
    return total / math.sqrt(hard.divisor)
