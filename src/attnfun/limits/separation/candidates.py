"""What rank and heads buy on the furthest of any number of candidates: an error no layer avoids.

| symbol | meaning |
| --- | --- |
| y, x_1 … x_n | a query and n ≥ 2 candidates, independent and uniform on the sphere in R^d |
| f | the candidate furthest from y, E|f|² = 1 (the nearest is the same question with −y for y) |
| g | Σ_h V_h (Σ_j a_hj x_j + a_h0 y) + any function of y; a_hj any functions of K_hᵀx_1, …, K_hᵀx_n, y, K_h of rank |
| | at most r; each term square-integrable; nothing after the sum: no MLP |
| ρ | min(rank V_h, d − r) |
| N, M | harmonics of degree ℓ, and those that are functions of K_hᵀx (`harmonics`) |
| E_ℓ | energy of f in the parts whose largest degree, over x_1, …, x_n, is ℓ (`candidate_energies`) |

Statement. E|f − g|² ≥ Σ_{ℓ≥1} E_ℓ (1 − H (M(ℓ) + ρ M(ℓ−1))/N(ℓ))₊.
Proof. *Parts*: split L²(x_1, …, x_n, y; R^d) by the degrees (ℓ_1, …, ℓ_n) in the candidates, and give every part to the
first candidate of largest degree. So the part A of candidate i and degree ℓ has ℓ_i = ℓ, ℓ_j < ℓ for j < i and ℓ_j ≤ ℓ
for j > i. These A are orthogonal and fill the space, and since degrees are kept when one candidate is rotated, so is A.
Read a function in A as an operator Y ↦ ∫ F Y(x_i) dx_i from the harmonics of degree ℓ to functions of the other points
with values in R^d; its Hilbert–Schmidt norm is that of F.
*f*: rotating all points and the value at once carries f to itself (ties have probability 0), and so its part in A. So
the operator T of that part commutes with the orthogonal group, T*T is symmetric and does, and as the harmonics of one
degree are irreducible it is c times the identity, c N(ℓ) the energy.
*g*: projecting on A keeps ranks from growing, for on x_i it selects a degree and what it does to the others comes after
the operator. A term a_hj V_h x_j with j ≠ i, and that of y, depends on x_i through K_hᵀx_i, so its operator vanishes on
all Y that are orthogonal to the M(ℓ) harmonics that are functions of K_hᵀx. For j = i let K_h have rank r exactly (add
columns) and split V_h x_i along the range of K_h, which is again a function of K_hᵀx_i, and across it: at most ρ linear
forms ⟨w, x_i⟩ with w ⟂ K_h, times functions φ of K_hᵀx_i. The part of degree ℓ of φ⟨w, x⟩ is linear in w and invariant
where O(d−r) turns w and x alike, so it is ⟨w, x⟩ψ with ψ a polynomial in K_hᵀx and the square of the rest, of degree
ℓ − 1; the Laplacian maps such products of degree ℓ onto those of degree ℓ − 2, so that, as for M itself, M(ℓ−1) of them
are harmonic for each w. All that head h takes is thus in the span of M(ℓ) + ρ M(ℓ−1) harmonics, for all its terms at
once. A function of y alone has degree 0 and no part in ℓ ≥ 1.
*Together*: g's operator on A has rank at most H (M(ℓ) + ρ M(ℓ−1)), and Eckart and Young's theorem leaves c for every
harmonic beyond it; orthogonal parts add up. ∎
*Degrees beyond L* have 1 − Σ_{ℓ≤L} E_ℓ together, and the factor at least of 1 − H (1+ρ) M(L+1)/N(L+1): M rises, and M/N
never does for r < d (`harmonics`).

Source: derived here, after Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153), whose theorem has two candidates and whose
authors expect the extension. Size: exact integers, 41 degrees, d and n up to 128. Bound: energies enclosed, rounded
down. Failure mode: degree 1 is never excluded for values of full rank, degree 2 not where H r is above about d/2: the
bound is weak for many heads, and nothing for r ≥ d − 1 with free values; one head of full rank does it.
"""

import math
from dataclasses import dataclass

from attnfun.language.numbers import positive_or_none, whole_number
from attnfun.limits.record import Record, texts
from attnfun.limits.separation.candidate_energies import DEGREES, MOST_CANDIDATES, MOST_DIM, candidate_energies
from attnfun.limits.separation.harmonics import harmonics, seen_harmonics
from attnfun.limits.separation.rank import least_heads

_U = 2.0**-53
_TEXTS = texts("neighbours")


@dataclass(frozen=True)
class NeighbourBound(Record):
    """No layer of `heads` heads of rank `rank` has an error E|f − g|² below `lower`.

    `heads_needed`: the fewest heads that are not excluded at error `eps`. `largest`: the error of no heads at all,
    where g is a function of the query, rounded up.
    """

    dim: int
    candidates: int
    rank: int
    heads: int
    value_rank: int
    lower: float
    eps: float | None
    heads_needed: int | None
    largest: float
    hypotheses: tuple[str, ...]
    source: str = _TEXTS["source"]


def neighbours(
    dim: int, candidates: int, rank: int, heads: int, eps: float | None = None, *, value_rank: int | None = None
) -> NeighbourBound:
    """A lower bound on the error of one layer on the furthest of `candidates` points, and the heads that `eps` needs.

    `value_rank`: of V_h; None for any. The query is not among the candidates, and may be attended to.
    """
    d, n = whole_number("dim", dim, 2, MOST_DIM), whole_number("candidates", candidates, 2, MOST_CANDIDATES)
    r, h = whole_number("rank", rank, 1), whole_number("heads", heads, 0)
    values = d if value_rank is None else min(d, whole_number("value_rank", value_rank, 1))
    eps = positive_or_none("eps", eps)
    needed = None if eps is None else least_heads(lambda count: least_error(d, n, r, count, values) < eps)
    least, largest = least_error(d, n, r, h, values), math.nextafter(1 - float(candidate_energies(d, n).low[0]), 2)
    hypotheses = tuple(text.format(n=n, d=d, r=r, v=values) for text in _TEXTS["hypotheses"])
    return NeighbourBound(d, n, r, h, values, least, eps, needed, min(1.0, largest), hypotheses)


def taken(dim: int, rank: int, value_rank: int, degree: int) -> int:
    """M(ℓ) + ρ M(ℓ−1): the harmonics of degree ℓ of one candidate that one head takes at most."""
    forms = min(value_rank, max(0, dim - rank))
    return seen_harmonics(dim, rank, degree) + forms * seen_harmonics(dim, rank, degree - 1)


def least_error(dim: int, candidates: int, rank: int, heads: int, value_rank: int) -> float:
    """The statement's sum, rounded down."""
    found = candidate_energies(dim, candidates)
    if heads == 0:
        return max(0.0, math.nextafter(1 - float(found.high[0]), -1))
    total = 0.0
    for degree in range(1, DEGREES + 1):
        left = _left(harmonics(dim, degree), heads * taken(dim, rank, value_rank, degree))
        total += float(found.low[degree]) * left
    forms, last = min(value_rank, max(0, dim - rank)), DEGREES + 1
    most = heads * (1 + forms) * seen_harmonics(dim, rank, last)
    total += found.rest[0] * _left(harmonics(dim, last), most)
    return total * (1 - (DEGREES + 16) * _U)


def _left(count: int, lost: int) -> float:
    """(1 − lost/count)₊, to the nearest double."""
    return max(0, count - lost) / count
