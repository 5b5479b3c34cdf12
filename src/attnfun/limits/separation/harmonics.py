"""Spherical harmonics counted: all of a degree, and those that are seen through a projection of rank r.

| symbol | meaning |
| --- | --- |
| N(d, ℓ) | C(d+ℓ−1, ℓ) − C(d+ℓ−3, ℓ−2): harmonics of degree ℓ on the sphere in R^d |
| M(r, ℓ) | C(r+ℓ−1, ℓ) for r < d, N(d, ℓ) for r ≥ d: those that are functions of Kᵀz for a d × r matrix K of rank r |

*M*: functions of Kᵀz are those that O(d−r) leaves alone, and projecting on a degree commutes with the group. Invariant
homogeneous polynomials of degree ℓ are polynomials in r coordinates and the square of the rest, in number
c(ℓ) = Σ_{j ≤ ℓ, j ≡ ℓ mod 2} C(r+j−1, j); the Laplacian maps those of degree ℓ onto those of degree ℓ−2, so
c(ℓ) − c(ℓ−2) = C(r+ℓ−1, ℓ) of them are harmonic. The count C(r+ℓ, ℓ) of the literature is larger.

*M/N never rises with ℓ* for r < d, d ≥ 2: M(r, ℓ+1)/M(r, ℓ) = (r+ℓ)/(ℓ+1) is largest for r = d−1, N(d, ℓ+1)/N(d, ℓ) =
(2ℓ+d)(ℓ+d−2)/((2ℓ+d−2)(ℓ+1)), and (d−1+ℓ)(2ℓ+d−2) − (2ℓ+d)(ℓ+d−2) = 2 − d ≤ 0.
*N(d, ℓ+1)/N(d, ℓ) never rises* for d ≥ 2, ℓ ≥ 1: it is (1 + 2/(2ℓ+d−2))(1 + (d−3)/(ℓ+1)), and 1 for d = 2.
*M rises*: M(r, ℓ+1) ≥ M(r, ℓ).

All numbers are Python integers: exact at any size.
"""

import math


def harmonics(dim: int, degree: int) -> int:
    """N(d, ℓ); 0 for negative degrees."""
    if degree < 0:
        return 0
    if degree < 2:
        return 1 if degree == 0 else dim
    return math.comb(dim + degree - 1, degree) - math.comb(dim + degree - 3, degree - 2)


def seen_harmonics(dim: int, rank: int, degree: int) -> int:
    """M(r, ℓ): harmonics of degree ℓ in R^dim that a projection of rank r sees; 0 for negative degrees."""
    if degree < 0:
        return 0
    return harmonics(dim, degree) if rank >= dim else math.comb(rank + degree - 1, degree)


def all_harmonics(dim: int, most: int) -> list[int]:
    """[N(d, 0), …, N(d, most)], each from the one before."""
    out = [1, dim]
    for k in range(1, most):
        out.append(out[k] * (2 * k + dim) * (k + dim - 2) // ((2 * k + dim - 2) * (k + 1)))
    return out[: most + 1]


def all_seen(dim: int, rank: int, most: int) -> list[int]:
    """[M(r, 0), …, M(r, most)], each from the one before."""
    if rank >= dim:
        return all_harmonics(dim, most)
    out = [1]
    for k in range(most):
        out.append(out[k] * (rank + k) // (k + 1))
    return out
