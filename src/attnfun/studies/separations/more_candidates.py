"""An error no layer of low rank avoids with any number of candidates: the argument by degrees, one candidate at a time.

| symbol | meaning |
| --- | --- |
| n, y, x_i | n ≥ 2 candidates and a query, independent and uniform on the sphere in R^d; t_i = ⟨x_i, y⟩, of density u |
| f | the candidate with the least t_i, E|f|² = 1 |
| g | Σ_h V_h Σ_j a_hj x_j (y among the x_j or not) + any function of y; a_hj any functions of K_hᵀx_1…K_hᵀx_n, y, |
| | each term square-integrable; nothing after the sum: no MLP |
| ρ | min(d, rank V_h) |
| N, M | harmonics of degree ℓ, and those that are functions of K_hᵀx: `bounds.harmonics`, `bounds.seen_harmonics` |
| E_ℓ | energy of f in the parts whose largest degree, over x_1, …, x_n, is ℓ |

Statement. E|f − g|² ≥ Σ_ℓ E_ℓ (1 − H (M(ℓ) + ρ (M(ℓ−1) + M(ℓ+1)))/N(ℓ))₊.
Proof. Split L²(x_1, …, x_n, y; R^d) by the degrees (ℓ_1, …, ℓ_n) in the candidates, and give every part to the first
candidate of largest degree. Take candidate i and degree ℓ, and read a function as an operator from the harmonics of
degree ℓ of x_i to functions of the others and y with values in R^d, of the degrees that belong there. Rotating all
points and values at once, f is carried to itself; harmonics of one degree are irreducible, so f's operator T has T*T =
c Id with c N(ℓ) = its energy. Of g, terms j ≠ i have a factor that is a function of K_hᵀx_i, whose part of degree ℓ
lies in M(ℓ) harmonics; the term j = i has such a factor times one of ρ linear forms of x_i (V_h x_i in a basis of V_h's
range), and that part lies in ρ (M(ℓ−1) + M(ℓ+1)). So g's operator has rank at most H times their sum, and Eckart and
Young's theorem leaves c for every harmonic beyond it. The parts are orthogonal: the energies of all i and ℓ add up. ∎
*Degrees beyond L*: together they have 1 − Σ_{ℓ≤L} E_ℓ, and the factor at least of 1 − H (1 + 2ρ) M(L+2)/N(L), as in
`limits.separation.rank`.

Energies. f = Σ_i x_i Π_{j≠i} 1[t_j > t_i], x = t y + √(1−t²) ω. With p_ℓ orthonormal polynomials for u, c_ℓ(τ) =
∫_τ^1 p_ℓ u = (1−τ²) u(τ) p_ℓ'(τ)/(ℓ(ℓ+d−2)) (c_0 = P(t > τ)) and q_ℓ = p_ℓ'/√(ℓ(ℓ+d−2)) orthonormal for (1−t²)u,
the part of f of degrees up to L in every candidate has the energy

    n ∬ { (1−τ²)(1−τ'²) (q·q') (c·c')^{n−1} + ττ' [(p·p') (c·c')^{n−1} + (n−1) (p·c') (c·p') (c·c')^{n−2}] } uu' dτdτ',

sums up to L; E_ℓ are its differences. Two-dimensional integrals, by quadrature in the angle: *computed, not enclosed*.
What fewer nodes change is taken off once for every degree, and rounding with it: an estimate of the error, no bound of
it. So the statement is proved and its figures are not, in the sense in which those of `af.bounds.rank` are.

Source: derived here, after Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153), whose theorem has two candidates and whose
authors expect the extension. Failure mode: for ρ = d degree 1 is never excluded, nor degree 2 where H r is above about
d/4: with free V_h the bound is weak; with V_h of rank r it is not.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from attnfun.constructions.neighbours import sphere
from attnfun.targets.numbers import whole_number

DEGREES = 40
_NODES = (320, 240)
_ROUNDING = 1e-12  # of one energy: seen to be 1e-13 where fewer nodes change less


@lru_cache(maxsize=32)
def energies(dim: int, candidates: int, degrees: int = DEGREES) -> tuple[tuple[float, ...], float]:
    """(E_0, …, E_L), and the largest change that fewer nodes make."""
    fine, coarse = (_energies(dim, candidates, degrees, nodes) for nodes in _NODES)
    return tuple(fine.tolist()), float(np.abs(fine - coarse).max())


def _energies(dim: int, n: int, degrees: int, nodes: int) -> sphere.Array:
    ends = math.acos(sphere.reach(dim)), math.acos(-sphere.reach(dim))
    theta, weight = sphere.panels(np.linspace(*ends, 2), nodes)
    t, sine = np.cos(theta), np.sin(theta)
    u = weight * sphere.peak(dim) * sine ** (dim - 2)  # u(t) dt at the nodes
    density = sphere.density(dim, t)
    p, slope = _polynomials(dim, t, degrees)
    pp, cc, pc, qq = (np.zeros((len(t), len(t))) for _ in range(4))
    total = []
    for degree in range(degrees + 1):
        size = degree * (degree + dim - 2)
        c = sine**2 * density * slope[degree] / size if degree else sphere.above(dim, t)
        q = slope[degree] / math.sqrt(size) if degree else np.zeros_like(t)
        pp += np.outer(p[degree], p[degree])
        cc += np.outer(c, c)
        pc += np.outer(p[degree], c)
        qq += np.outer(q, q)
        along = np.outer(t, t) * (pp * cc ** (n - 1) + (n - 1) * pc * pc.T * cc ** (n - 2))
        across = np.outer(sine**2, sine**2) * qq * cc ** (n - 1)
        total.append(n * float(u @ (along + across) @ u))
    return np.diff(np.array([0.0, *total]))


def _polynomials(dim: int, t: sphere.Array, degrees: int) -> tuple[sphere.Array, sphere.Array]:
    """Orthonormal p_ℓ and p_ℓ' at t, ℓ = 0 … degrees: √N(ℓ) times the P_ℓ with P_ℓ(1) = 1."""
    import attnfun as af

    P, D = np.ones((degrees + 1, len(t))), np.zeros((degrees + 1, len(t)))
    if degrees:
        P[1], D[1] = t, 1.0
    for k in range(1, degrees):
        P[k + 1] = ((2 * k + dim - 2) * t * P[k] - k * P[k - 1]) / (k + dim - 2)
        D[k + 1] = ((2 * k + dim - 2) * (P[k] + t * D[k]) - k * D[k - 1]) / (k + dim - 2)
    norm = np.sqrt([float(af.bounds.harmonics(dim, k)) for k in range(degrees + 1)])[:, None]
    return P * norm, D * norm


def least_error(dim: int, candidates: int, rank: int, heads: int, value_rank: int | None = None) -> float:
    """The statement's sum, less what is in doubt, for `heads` heads of rank `rank`, values of rank `value_rank` (None:
    any); 0 for rank dim."""
    from attnfun.bounds import harmonics, seen_harmonics

    if rank >= dim:
        return 0.0
    forms = dim if value_rank is None else min(dim, value_rank)
    parts, doubt = energies(dim, whole_number("candidates", candidates, 2))
    seen = [seen_harmonics(dim, rank, k) for k in range(len(parts) + 2)]
    found = 0.0
    for degree in range(1, len(parts)):
        taken = heads * (seen[degree] + forms * (seen[degree - 1] + seen[degree + 1]))
        found += parts[degree] * max(0.0, 1 - taken / harmonics(dim, degree))
    last = len(parts) - 1
    beyond = 1 - heads * (1 + 2 * forms) * seen_harmonics(dim, rank, last + 2) / harmonics(dim, last)
    found += max(0.0, 1 - sum(parts)) * max(0.0, beyond)
    return max(0.0, found - len(parts) * (doubt + _ROUNDING))
