"""Polynomials of the eigenvalue μ of XᵀX at Chebyshev nodes of pieces of the spectrum, with their rounding; suprema.

A `Poly` holds values and radii at the nodes and its degree. On a piece of length ℓ, |p| ≤ f max over the M Chebyshev
nodes, f = 1/cos(πm/(2M)), for degree m < M (Ehlich and Zeller 1964). The nodes that are used are doubles within δ of
those; |p'| ≤ 2m²/ℓ sup |p| (Markov), so sup |p| ≤ f max/(1 − 2fm²δ/ℓ) with the maximum over the doubles. Degrees are
counted by the operations, so a polynomial can only have a smaller one than it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.language.target import Array

_U = 2.0**-53
_RATIO = 1.3
_SAFE = 1 + 1e-9
_TINY = 1e-290  # more than what underflow can take from a few operations


@dataclass(frozen=True)
class Poly:
    """Values at the nodes, within `radius`; leading axes are a batch."""

    value: Array
    radius: Array
    degree: int

    def times(self, other: Poly) -> Poly:
        value = self.value * other.value
        radius = np.abs(self.value) * other.radius + self.radius * (np.abs(other.value) + other.radius)
        return Poly(value, (radius + 2 * _U * np.abs(value)) * _SAFE + _TINY, self.degree + other.degree)

    def plus(self, other: Poly) -> Poly:
        value = self.value + other.value
        radius = self.radius + other.radius + 2 * _U * np.abs(value)
        return Poly(value, radius * _SAFE + _TINY, max(self.degree, other.degree))

    def scaled(self, factor: Fraction) -> Poly:
        number = float(factor)
        value = number * self.value
        radius = abs(number) * self.radius + 4 * _U * np.abs(value)
        return Poly(value, radius * _SAFE + _TINY, self.degree)


class Pieces:
    """[low, high] (of λ = μ + alpha) in pieces, with nodes for polynomials up to `degree`."""

    def __init__(self, low: float, high: float, alpha: float, degree: int, over: float = 3.0) -> None:
        count = max(1, math.ceil(math.log(high / low) / math.log(_RATIO)))
        ends = low * (high / low) ** (np.arange(count + 1) / count)
        ends[0], ends[-1] = low, high
        self.ends, self.alpha, self.bounds = ends, alpha, (low, high)
        self.count, self.most = count, degree
        self.M = math.ceil(over * degree) + 1
        angle = (2 * np.arange(self.M) + 1) * (math.pi / (2 * self.M))
        middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
        lam = (middle[:, None] + half[:, None] * np.cos(angle)).reshape(-1)
        self.mu = lam - alpha
        self.off = 64 * _U * (high + alpha) / (ends[1:] - ends[:-1]).min()  # δ/ℓ
        mu_high = np.maximum(ends[1:] - alpha, 0.0) * _SAFE
        self.root = np.sqrt(mu_high) * _SAFE  # (pieces,) ≥ √μ
        self.weight = self.root / ends[:-1] * _SAFE  # (pieces,) ≥ √μ/λ

    def coarser(self, degree: int) -> Pieces:
        """The same pieces with nodes for a smaller degree, and fewer of them."""
        return Pieces(*self.bounds, self.alpha, degree, 2.0)

    def constant(self, value: float | Fraction) -> Poly:
        number = np.full(self.mu.shape, float(value))
        return Poly(number, np.abs(number) * 2 * _U + _TINY, 0)

    def affine(self, constant: Fraction, slope: Fraction) -> Poly:
        """constant + slope μ."""
        a, b = float(constant), float(slope)
        value = a + b * self.mu
        radius = 4 * _U * (abs(a) + np.abs(b * self.mu)) + 2 * _U * np.abs(value)
        return Poly(value, radius * _SAFE + _TINY, 1)

    def factor(self, degree: int) -> float:
        """sup over a piece ≤ factor · maximum over its nodes, for polynomials of this degree."""
        if degree >= self.M:
            return math.inf
        f = _SAFE / math.cos(math.pi * degree / (2 * self.M))
        lost = 2 * f * degree**2 * self.off
        return f / (1 - lost) if lost < 0.5 else math.inf

    def peaks(self, values: Array) -> Array:
        """(…, nodes) values → (…, pieces) largest sizes at the nodes; infinity for what is not finite."""
        largest = np.abs(values).reshape(*values.shape[:-1], self.count, self.M).max(axis=-1)
        return np.where(np.isfinite(largest), largest, math.inf)

    def sup(self, poly: Poly) -> Array:
        """(pieces,) upper bounds of |poly|."""
        return np.asarray(self.peaks(np.abs(poly.value) + poly.radius) * self.factor(poly.degree))
