"""Uniform points on the sphere in R^d: the law of an inner product, integrals against it, samples.

| symbol | meaning |
| --- | --- |
| f(t) | c (1 − t²)^{(d−3)/2}, c = Γ(d/2)/(√π Γ((d−1)/2)): density of ⟨x, y⟩ for uniform x and any unit y |
| F, S | its distribution function and 1 − F |
| λ_ℓ | E[sign(t) P_ℓ(t)], P_ℓ(1) = 1: coefficients of sign, 0 for even ℓ; λ_{ℓ+2} = −λ_ℓ ℓ/(ℓ+d) |
| N_ℓ | number of harmonics of degree ℓ |

f falls in |t| for d ≥ 3, which the bounds of this folder use.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from attnfun.language.domain import Array


def peak(dim: int) -> float:
    """c = f(0), the largest value of the density."""
    return math.exp(math.lgamma(dim / 2) - math.lgamma((dim - 1) / 2)) / math.sqrt(math.pi)


def density(dim: int, t: Array) -> Array:
    return np.asarray(peak(dim) * (np.maximum(0.0, (1 - t) * (1 + t))) ** ((dim - 3) / 2))


def below(dim: int, t: Array) -> Array:
    """F(t)."""
    half = special.betainc(0.5, (dim - 1) / 2, np.minimum(1.0, t * t)) / 2
    small = special.betaincc(0.5, (dim - 1) / 2, np.minimum(1.0, t * t)) / 2
    return np.asarray(np.where(t < 0, small, 0.5 + half))


def above(dim: int, t: Array) -> Array:
    """S(t) = 1 − F(t), exact far out as well."""
    return below(dim, -t)


def collision(dim: int) -> float:
    """∫ f²: the density at 0 of ⟨x1 − x2, y⟩, and its largest value (Cauchy and Schwarz); c² B(1/2, d−2)."""
    return peak(dim) ** 2 * float(special.beta(0.5, dim - 2))


def reach(dim: int) -> float:
    """Beyond it f has no weight that float64 could hold; at most 1."""
    return min(1.0, 14 / math.sqrt(dim))


def panels(edges: Array, nodes: int) -> tuple[Array, Array]:
    """Gauss–Legendre nodes and weights on consecutive intervals."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


def mean(dim: int, g: Callable[[Array], Array], at: float = 0.0, scale: float = 1.0) -> tuple[float, float]:
    """E g(t) for t of density f, where g varies at the point `at` on the given scale; and what more nodes change.

    By the angle, so that the ends ±1 are smooth, on intervals that shrink towards `at`.
    """

    def once(nodes: int) -> float:
        lo, hi = math.acos(reach(dim)), math.acos(-reach(dim))
        middle = min(max(math.acos(at), lo), hi)
        steps = max(6, int(math.log2(4 / min(1.0, scale))) + 4)
        halves = 2.0 ** -np.arange(steps)
        edges = [middle + (end - middle) * halves for end in (lo, hi)]
        plain = np.linspace(lo, hi, 17)
        theta, w = panels(np.unique(np.concatenate([*edges, plain, [middle]])), nodes)
        return float(np.sum(w * peak(dim) * np.sin(theta) ** (dim - 2) * g(np.cos(theta))))

    fine = once(24)
    return fine, abs(fine - once(12))


@lru_cache(maxsize=32)
def sign_coefficients(dim: int, degrees: int = 2001) -> tuple[Array, Array]:
    """(λ_ℓ, N_ℓ λ_ℓ²) for ℓ = 1, 3, …, degrees."""
    first = math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)
    lam, energy = [first], [dim * first * first]
    for k in range(1, degrees, 2):
        ratio = (2 * k + dim + 2) / (2 * k + dim - 2) * (k + dim - 1) * (k + dim - 2) / ((k + 2) * (k + 1))
        energy.append(energy[-1] * (k / (k + dim)) ** 2 * ratio)
        lam.append(-lam[-1] * k / (k + dim))
    return np.array(lam), np.array(energy)


def uniform_points(rng: np.random.Generator, *shape: int) -> Array:
    """(…, d) independent uniform unit vectors."""
    points = rng.standard_normal(shape)
    return np.asarray(points / np.linalg.norm(points, axis=-1, keepdims=True))
