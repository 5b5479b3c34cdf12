"""Nearest neighbour on the Hamming cube: what heads cannot see of sign(⟨z, y⟩), z and y in {−1, 1}^d.

Statement. χ_S(z) = Π_{i in S} z_i, S ⊆ {1..d}, are orthonormal for the uniform measure on the cube, and

    sign(⟨z, y⟩) = Σ_S λ_{|S|} χ_S(z) χ_S(y),     λ_ℓ = 2^{1−d} K_m(ℓ−1; d−1) for odd ℓ, m = ⌈d/2⌉ − 1; 0 for even ℓ,

with Krawtchouk polynomials K_k(x; n) = Σ_j (−1)^j C(x, j) C(n−x, k−j) and sign(0) = 0. Degree ℓ has the energy e_ℓ =
C(d, ℓ) λ_ℓ²; Σ e_ℓ = 1 for odd d, and 1 − C(d, d/2)/2^d, the probability that there is no tie, for even d. Let
f = Σ_h φ_h(κ_h(z), y), φ_h any functions. Errors are E|sign(⟨z, y⟩) − f|², z and y independent and uniform.

| heads | κ_h(z) | no f has an error below |
| --- | --- | --- |
| `coordinates` | r of the d coordinates of z | Σ_ℓ e_ℓ (1 − H C(r, ℓ)/C(d, ℓ))₊ |
| `values` | any function of z with at most v values | the sum of all squares λ_ℓ² but the H v largest |

Derivation. *Expansion*: E sign(⟨z, y⟩) χ_S(z) χ_T(y) = E_w[sign(Σw) χ_S(w)] E_y[χ_S(y) χ_T(y)] with w = z∘y, which is
uniform and independent of y: 0 for S ≠ T, and a number λ of |S| alone for S = T. E sign(Σw) χ_S(w) is 2^{−d} Σ_k
sign(d − 2k) K_k(ℓ; d), as K_k(ℓ; d) sums χ_S over the w with k entries −1. K_{d−k}(ℓ) = (−1)^ℓ K_k(ℓ), so even degrees
vanish and odd ones are 2^{1−d} Σ_{k ≤ m} K_k(ℓ; d). By generating functions Σ_k K_k(ℓ; d) x^k = (1−x)^ℓ (1+x)^{d−ℓ},
and dividing by 1 − x sums coefficients: Σ_{k ≤ m} K_k(ℓ; d) = K_m(ℓ−1; d−1).
*Coordinates*: φ_h(z_R, y) = Σ_{S ⊆ R} χ_S(z) c_S(y). So f has no part χ_S(z) ⊗ anything unless S lies in one of the
R_h, and the error is at least Σ λ_{|S|}² over the S that lie in none; equality for c_S = λ χ_S given to one head that
sees S. Thus the least error for given sets R_h is exactly that sum (`uncovered`), and H sets of size r contain at most
H C(r, ℓ) sets of size ℓ. The bound is attained where no two of the R_h share ℓ coordinates for any odd ℓ that counts:
one head, or disjoint ones, H r ≤ d.
*Values*: functions of κ_h(z) are a space of dimension at most v, so Σ_h φ_h is a kernel of rank at most H v in z
against y, and the target's has the singular values |λ_ℓ|, each C(d, ℓ) times: Eckart and Young.
*Two candidates* (`candidates_lower`): x1, x2, y uniform and independent, target sign(⟨x1 − x2, y⟩), 0 for ties, heads
φ_h(r coordinates of x1, the same of x2, y). Given the set A of places where x1 and x2 differ, m of them, and the common
values elsewhere, z = x1 on A is uniform on {−1, 1}^A, the target is sign(⟨z, y_A⟩), and a head knows z on R_h ∩ A only:
its error is at least the sum of λ_{|S|}(m)² over the S ⊆ A that lie in no R_h. A set S of size ℓ lies in a random A of
size m with probability C(m, ℓ)/C(d, ℓ). So the bound is that of `coordinates` with ē_ℓ = Σ_m C(d, m) 2^{−d} e_ℓ(m) for
e_ℓ.
*Upper*: for R_h drawn at random and independently S is in none with probability (1 − C(r, ℓ)/C(d, ℓ))^H; the mean of
the least error is Σ e_ℓ (1 − C(r, ℓ)/C(d, ℓ))^H, and some choice is no worse.

What it does *not* say: a head of rank r with real weights is no head that reads r coordinates. K = (1, 2, …, 2^{d−1})
maps the cube one-to-one to numbers, so φ(⟨K, z⟩, y) is every function of z and y, and no bound on rank alone holds on
the cube. With whole-number weights of p bits ⟨K, z⟩ has at most d 2^p + 1 values, r of them the r-th power of that:
rank counts through the values it can tell apart (`values`), that is, through bits of ⟨K, z⟩. Bits of a floating-point
mantissa are no measure of it: 1, 2, 4, … take one each.

Source: asked as an open question by Bruna (slides on Amsel, Yehudai, Bruna 2024, arXiv 2407.16153); λ_ℓ are the Fourier
coefficients of majority (O'Donnell 2014, section 5.3); the bounds are derived here. Size: exact fractions, d up to a
few hundred. Bound: exact. Failure mode: none but size.

The calculator `cube`:

| question | heads know of z | lower bound | upper bound |
| --- | --- | --- | --- |
| `rank`, one candidate | r of the d coordinates | `coordinates_lower` | `coordinates_upper`: some heads do |
| `rank`, two candidates | r coordinates of x1 and the same of x2 | `candidates_lower` | none is proved |
| `values` | one of v values | `values_lower` | none is proved |
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import combinations

from attnfun.errors import InvalidRequest, require
from attnfun.language import precision
from attnfun.language.enclosures import arb, exact, upper
from attnfun.language.numbers import above, below, positive_or_none, whole_number
from attnfun.limits.record import Record, texts
from attnfun.limits.separation.rank import least_heads

MOST_DIM = 1000
MOST_CUBE = 256  # of the calculator
_BITS = 256
_TEXTS = texts("cube")


def krawtchouk(k: int, x: int, n: int) -> int:
    """K_k(x; n): the coefficient of t^k in (1 − t)^x (1 + t)^{n − x}."""
    return sum((-1) ** j * math.comb(x, j) * math.comb(n - x, k - j) for j in range(min(k, x) + 1))


@lru_cache(maxsize=64)
def cube_coefficients(dim: int) -> tuple[Fraction, ...]:
    """(λ_0, …, λ_d) of sign(⟨z, y⟩) on {−1, 1}^dim, sign(0) = 0."""
    d = whole_number("dim", dim, 1, MOST_DIM)
    middle = (d + 1) // 2 - 1
    zero = Fraction(0)
    return tuple(Fraction(krawtchouk(middle, k - 1, d - 1), 2 ** (d - 1)) if k % 2 else zero for k in range(d + 1))


def cube_energies(dim: int) -> tuple[Fraction, ...]:
    """(e_0, …, e_d), e_ℓ = C(d, ℓ) λ_ℓ²."""
    return tuple(math.comb(dim, k) * value**2 for k, value in enumerate(cube_coefficients(dim)))


@lru_cache(maxsize=64)
def candidate_energies(dim: int) -> tuple[Fraction, ...]:
    """(ē_0, …, ē_d) of sign(⟨x1 − x2, y⟩): the mean of e_ℓ over the number of places where x1 and x2 differ."""
    d = whole_number("dim", dim, 1, MOST_DIM)
    out = [Fraction(0)] * (d + 1)
    for m in range(1, d + 1):
        for k, value in enumerate(cube_energies(m)):
            out[k] += Fraction(math.comb(d, m), 2**d) * value
    return tuple(out)


def coordinates_lower(dim: int, rank: int, heads: int) -> Fraction:
    """No H heads that read r coordinates of z each, and all of y, have a smaller error."""
    return _missed(cube_energies(dim), dim, rank, heads)


def candidates_lower(dim: int, rank: int, heads: int) -> Fraction:
    """No H heads that read r coordinates of both candidates each, and all of y, tell the nearer one with less."""
    return _missed(candidate_energies(dim), dim, rank, heads)


def _missed(energies: tuple[Fraction, ...], dim: int, rank: int, heads: int) -> Fraction:
    H, shares = whole_number("heads", heads, 0), _shares(dim, rank)
    return sum((e * max(Fraction(0), 1 - H * share) for e, share in zip(energies, shares, strict=True)), Fraction(0))


def _shares(dim: int, rank: int) -> list[Fraction]:
    """C(r, ℓ)/C(d, ℓ): of the sets of size ℓ those that one head reads."""
    r = whole_number("rank", rank, 0, dim)
    return [Fraction(math.comb(r, k), math.comb(dim, k)) for k in range(dim + 1)]


def coordinates_upper(dim: int, rank: int, heads: int) -> Fraction:
    """Some H heads that read r coordinates each have at most this error: the mean over random choices of them."""
    H, pairs = whole_number("heads", heads, 0), zip(cube_energies(dim), _shares(dim, rank), strict=True)
    return sum((e * (1 - share) ** H for e, share in pairs), Fraction(0))


def values_lower(dim: int, values: int, heads: int = 1) -> Fraction:
    """No H heads that know of z one of `values` values each, and all of y, have a smaller error."""
    budget = whole_number("values", values, 1, None) * whole_number("heads", heads, 0, None)
    coefficients = cube_coefficients(dim)
    left = Fraction(0)
    for degree in sorted(range(dim + 1), key=lambda k: -abs(coefficients[k])):
        seen = min(budget, math.comb(dim, degree))
        budget -= seen
        left += (math.comb(dim, degree) - seen) * coefficients[degree] ** 2
    return left


def uncovered(dim: int, sets: Iterable[Iterable[int]]) -> Fraction:
    """The least error of heads that read these sets of coordinates (from 0 on), one each: exact."""
    chosen = [frozenset(one) for one in sets]
    if not all(isinstance(i, int) and 0 <= i < dim for one in chosen for i in one):
        raise InvalidRequest(f"coordinates are whole numbers from 0 to {dim - 1}")
    require(sum(2 ** len(one) for one in chosen) <= 1 << 22, "so many coordinates have too many subsets to be counted")
    coefficients = cube_coefficients(dim)
    seen = {part for one in chosen for k in range(1, len(one) + 1, 2) for part in combinations(sorted(one), k)}
    return sum(cube_energies(dim), Fraction(0)) - sum((coefficients[len(part)] ** 2 for part in seen), Fraction(0))


@dataclass(frozen=True)
class CubeBound(Record):
    """No `heads` heads have an error below `exact` ≥ `lower`; some have at most `upper` (None: none is proved).

    `rank` coordinates per head, or `values` values; `heads_needed`: the fewest heads that are not excluded at error
    `eps`, None where no number of them is enough. `floor`: any number errs by so much; `largest`: the error of none.
    """

    dim: int
    rank: int | None
    values: int | None
    heads: int
    setting: str
    lower: float
    upper: float | None
    exact: Fraction
    eps: float | None
    heads_needed: int | None
    floor: float
    largest: float
    hypotheses: tuple[str, ...]
    source: str = _TEXTS["source"]


def cube(
    dim: int,
    rank: int | None = None,
    heads: int = 1,
    eps: float | None = None,
    *,
    values: int | None = None,
    candidates: int = 1,
) -> CubeBound:
    """Bounds on the error of `heads` heads on the Hamming cube {−1, 1}^dim, and the heads that `eps` needs.

    `rank`: coordinates that a head reads, or `values`: values that what it knows of z can take; one of the two.
    `candidates`: 1 for sign(⟨z, y⟩), 2 for the nearer of two points (with `rank`).
    """
    d, h = whole_number("dim", dim, 1, MOST_CUBE), whole_number("heads", heads, 0)
    n = whole_number("candidates", candidates, 1, 2)
    require((rank is None) != (values is None), "either rank (coordinates that a head reads) or values, and not both")
    require(values is None or n != 2, "values: for one candidate only")
    eps = positive_or_none("eps", eps)
    r = None if rank is None else whole_number("rank", rank, 1, d)
    v = None if values is None else whole_number("values", values, 1)

    setting = "values" if v is not None else "coordinates" if n == 1 else "candidates"
    bound: Callable[[int, int, int], Fraction] = coordinates_lower if n == 1 else candidates_lower
    least = partial(bound if v is None else values_lower, d, r or v or 0)
    exact, floor = least(h), least(1 << d)  # so many heads see all that any number of them sees
    needed = None if eps is None or floor > Fraction(eps) else least_heads(lambda count: least(count) <= Fraction(eps))
    reached = _attained(d, r, h) if setting == "coordinates" and r is not None else None
    errors, ends = (below(exact), reached, exact), (below(floor), above(least(0)))
    hypotheses = _TEXTS["one" if n == 1 else "two"], _TEXTS[setting], _TEXTS["caveat"]
    return CubeBound(d, r, v, h, setting, *errors, eps, needed, *ends, hypotheses)


def _attained(dim: int, rank: int, heads: int) -> float:
    """`coordinates_upper` in balls, from above: its fraction has too many digits for many heads."""
    with precision(_BITS):
        pairs = zip(cube_energies(dim), _shares(dim, rank), strict=True)
        return upper(sum((exact(e) * exact(1 - share) ** heads for e, share in pairs), arb(0)))
