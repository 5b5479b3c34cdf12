"""Energies of sign(t − b) by degree: how much of a half-space lies in the harmonics of degree ℓ.

Statement. For unit vectors z, y of R^d, sign(⟨z, y⟩ − b) = Σ_ℓ λ_ℓ Σ_j Y_ℓj(z) Y_ℓj(y) with Y_ℓj orthonormal for the
uniform probability and λ_ℓ = E[sign(t − b) P_ℓ(t)], t = ⟨z, y⟩, density ∝ (1−t²)^{(d−3)/2}, P_ℓ(1) = 1. So degree ℓ
has the energy e_ℓ = N(d, ℓ) λ_ℓ², and Σ e_ℓ = 1.

*b = 0*: even degrees vanish; e_1 = d Γ(d/2)²/(π Γ((d+1)/2)²), λ_{ℓ+2}/λ_ℓ = −ℓ/(ℓ+d), so
e_{ℓ+2}/e_ℓ = (ℓ/(ℓ+d))² N(d, ℓ+2)/N(d, ℓ). Closed form for ℓ = 2m+1: |λ_ℓ| = Γ(d/2) Γ(m+1/2)/(π Γ(m+(d+1)/2)).
*b ≠ 0*: ((1−t²)^{(d−1)/2} P_ℓ')' = −ℓ(ℓ+d−2)(1−t²)^{(d−3)/2} P_ℓ is Gegenbauer's equation, and P_ℓ' is
ℓ(ℓ+d−2)/(d−1) times the P_{ℓ−1} of dimension d+2; so for ℓ ≥ 1

    λ_ℓ = 2 Γ(d/2)/(√π Γ((d−1)/2) (d−1)) · (1−b²)^{(d−1)/2} · P_{ℓ−1}^{(d+2)}(b),      λ_0 = 1 − 2 P(t < b).

Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) for the use of energies; the formulas are classical
(Müller 1966).
Bound: computed in balls; `low` and `high` are doubles rounded outward, and so is `rest`, what all higher degrees have
together, 1 − Σ. Size: 20,001 degrees for b = 0, 2,001 otherwise (each step of its recurrence may double a radius, so
the balls carry two bits per degree). Failure mode: at |b| → 1 everything is in the constant.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import require
from attnfun.language import precision
from attnfun.language.enclosures import arb, lower, upper
from attnfun.language.numbers import whole_number
from attnfun.limits.separation.harmonics import all_harmonics

MOST_DEGREES = 20_001
MOST_BIASED = 2_001
_BITS = 192


@dataclass(frozen=True, eq=False)
class Energies:
    """`degrees` with energies between `low` and `high`, `counts` = N(d, ℓ), `rest` = (low, high) of higher degrees."""

    dim: int
    bias: float
    degrees: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    counts: tuple[int, ...]
    rest: tuple[float, float]


@lru_cache(maxsize=8)
def energies(dim: int, bias: float = 0.0) -> Energies:
    """The energies of sign(t − bias) on the sphere in R^dim."""
    whole_number("dim", dim, 2)
    require(-1 < bias < 1, f"bias={bias!r}: a half-space that cuts the sphere has -1 < bias < 1")
    return _centred(dim) if bias == 0 else _biased(dim, bias)


def _centred(dim: int) -> Energies:
    counts = all_harmonics(dim, MOST_DEGREES)[1::2]
    degrees = np.arange(1, MOST_DEGREES + 1, 2)
    with precision(_BITS):
        d = arb(dim)
        value = d / arb.pi() * ((d / 2).lgamma() * 2 - ((d + 1) / 2).lgamma() * 2).exp()
        balls = [value]
        for k in range(1, MOST_DEGREES, 2):
            # (ℓ/(ℓ+d))² N(ℓ+2)/N(ℓ), the quotient of counts as in harmonics.all_harmonics, two steps
            above = k * k * (2 * k + dim + 2) * (k + dim - 2) * (k + dim - 1)
            below = (k + dim) ** 2 * (2 * k + dim - 2) * (k + 1) * (k + 2)
            value = value * above / below
            balls.append(value)
        return _enclosed(dim, 0.0, degrees, balls, tuple(counts))


def _biased(dim: int, bias: float) -> Energies:
    counts = all_harmonics(dim, MOST_BIASED)
    degrees = np.arange(0, MOST_BIASED + 1)
    with precision(_BITS + 2 * MOST_BIASED):
        b, d = arb(bias), arb(dim)
        scale = ((d / 2).lgamma() - ((d - 1) / 2).lgamma()).exp() * 2 / (arb.pi().sqrt() * (d - 1))
        scale = scale * (1 - b * b) ** ((d - 1) / 2)
        # P(t < b) = 1/2 + sign(b) I_{b²}(1/2, (d−1)/2)/2
        inside = (b * b).beta_lower(arb(0.5), (d - 1) / 2, regularized=1)
        constant = -inside if bias > 0 else inside
        balls = [constant * constant]
        before, now = arb(0), arb(1)
        for k in range(MOST_BIASED):
            balls.append(counts[k + 1] * (scale * now) ** 2)
            # (ℓ+D−2) P_{ℓ+1} = (2ℓ+D−2) t P_ℓ − ℓ P_{ℓ−1} with D = d+2
            before, now = now, ((2 * k + dim) * b * now - k * before) / (k + dim)
        return _enclosed(dim, bias, degrees, balls, tuple(counts))


def _enclosed(dim: int, bias: float, degrees: NDArray[np.int64], balls: list[Any], counts: tuple[int, ...]) -> Energies:
    rest = 1 - sum(balls, arb(0))
    low, high = np.maximum([lower(ball) for ball in balls], 0.0), np.array([upper(ball) for ball in balls])
    return Energies(dim, bias, degrees, low, high, counts, (max(0.0, lower(rest)), max(0.0, upper(rest))))
