"""What sums over elements cannot do and sums over pairs can: DeepSets of H features on two hard functions.

DeepSets: f(X) = ρ(φ_1 … φ_H), φ_h = Σ_n ψ_h(x_n), ρ and ψ_h analytic. Expanded in products of power sums p_α, its
part with exactly two factors is Σ F_αβ p_α p_β with F = Cᵀ (Hess ρ/2) C, C the coefficients of the ψ_h: of rank at
most H. A target whose two-factor matrix G is a multiple of the identity of size K is missed by at least the share 1 −
H/K of |G|_F² (Eckart and Young); one pair feature Σ_{n,n'} κ(x_n, x_n') computes it.

| setting | measure | target | K | error |
| --- | --- | --- | --- | --- |
| unitary | eigenvalues of a Haar unitary N×N matrix (D = 1) | (2K)^{-1/2} Σ_{k ≤ K} p_k²/k | ⌊N/2⌋ | = 1 − H/K |
| torus | coordinates uniform on the circle | Σ_{α in B} p_α²/sqrt((2N²−N)K), B = {0,1}^D∖0 | 2^D−1 | ≥ c (1 − H/K) |
| torus, degree k | the same | the same, B = {α in {0,1}^D : Σ α = k} | C(D, k) | ≥ c (1 − H/K) |

*unitary*: with |λ|, |μ| ≤ N the products of power sums are orthogonal with <p_λ, p_λ> = Π k^m m! (Diaconis and
Shahshahani 1994), so |Σ (F − G)_kl p_k p_l/sqrt(kl)|² = 2 |F − G|_F² over k, l ≤ K, and nothing else of f helps:
equality, by K − H missing terms.
*torus*: products of two power sums are not orthogonal to those of one, three or
more. Of a multidegree δ the distance from all of these is a quadratic form S_δ (`products`), so with δ running over
the sums α + β, α, β in B,

    |f − g|² ≥ min_δ λ_min(S_δ) |F − G|_F²  ≥  c (1 − H/K),        c = min_δ λ_min(S_δ)/(2N² − N),

|p_α²|² being 2N² − N. `sharper_constant` is the same with the entries of F outside B × B left free (they do not count
in |F − G|), which is larger. S_δ depends on δ up to order and zeros only: (2^a, 1^b). Both are 0 for N below the
degree of g. Upper side, both: f = the sum over H of the K terms has the error 1 − H/K exactly; and C(D+N, N) − 1
features, the power sums of degree up to N, have error 0: g is a symmetric polynomial, and they generate these (Weyl).

Sources: Zweig and Bruna 2022, arXiv 2206.01266 (the separation; their measure and constant are other ones, quoted in
`published`); targets, constants and proofs here are derived anew. Size: exact rationals, D ≤ 5 or k ≤ 4, seconds.
Bound: rounded down below, up above; eigenvalues enclosed. Failure mode: InvalidRequest past these sizes. The lower
bounds are about functions that are analytic in the complex coordinates: not about ReLU networks, and not about
real-analytic functions of cosines and sines.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import ClassVar

from attnfun.errors import InvalidRequest, require
from attnfun.language.numbers import above, below, one_of, positive_or_none, whole_number
from attnfun.limits.record import Record, texts
from attnfun.limits.separation.products import least_eigenvalue
from attnfun.limits.separation.published import Quoted, deep_sets_error, deep_sets_features

SETTINGS = ("unitary", "torus")
MOST_DIM = 5
MOST_DEGREE = 4
_MOST = 10**9
_TEXTS = texts("sets")


@dataclass(frozen=True)
class SetBound(Record):
    """No DeepSets of `features` features has an error below `lower` on the hard target; some has `upper`.

    `terms` is K, `constant` the proved c (1 where the bound is exact); `sharper_lower` is the same with
    `sharper_constant`: proved as well, and never smaller. One pair feature has error 0. `features_needed`: the fewest
    that the sharper bound does not exclude at error `eps`; `features_sufficient`: that have it, at most C(D+N, N) − 1.
    """

    also: ClassVar[tuple[str, ...]] = ("pair_features", "published")
    pair_features: ClassVar[int] = 1

    points: int
    dim: int
    features: int
    degree: int | None
    setting: str
    target: str
    terms: int
    lower: float
    upper: float
    constant: float
    sharper_constant: float
    sharper_lower: float
    eps: float | None
    features_needed: int | None
    features_sufficient: int | None
    hypotheses: tuple[str, ...]
    source: str = _TEXTS["source"]

    @property
    def published(self) -> tuple[Quoted, ...]:
        """The printed statements for these numbers: no bounds."""
        numbers = self.points, self.dim
        return deep_sets_error(*numbers, self.features), deep_sets_features(*numbers)


def sets(
    points: int,
    dim: int,
    features: int,
    eps: float | None = None,
    *,
    degree: int | None = None,
    setting: str | None = None,
) -> SetBound:
    """Bounds on the error of DeepSets with `features` features on the hard function of `points` points, and the
    features that `eps` takes.

    `setting`: "unitary" (dim 1; the default there) or "torus". `degree`: only power sums of degree k in the torus
    target, for which the constant does not fall with the dimension.
    """
    n, d = whole_number("points", points, 2, _MOST), whole_number("dim", dim, 1, _MOST)
    h = whole_number("features", features, 0, None)
    eps = positive_or_none("eps", eps)
    if setting is None:
        setting = "unitary" if d == 1 and degree is None else "torus"
    one_of("setting", setting, SETTINGS)
    if setting == "unitary":
        require(d == 1 and degree is None, "setting='unitary' is about dim=1 and takes no degree")
        terms, low, sharp = n // 2, Fraction(1), Fraction(1)
        text = "(2K)^(-1/2) sum_{k<=K} p_k^2/k, K = floor(N/2)"
        measure = "the points are the eigenvalues of a Haar-distributed unitary N x N matrix"
    else:
        k = None if degree is None else whole_number("degree", degree, 1, MOST_DEGREE)
        if k is None and d > MOST_DIM:
            raise InvalidRequest(
                f"dim={d}: the constant of the whole cube is computed up to dim={MOST_DIM}; pass degree=2 or 3, whose "
                "constant does not depend on dim"
            )
        require(k is None or k <= d, f"degree={k} is above dim={d}")
        terms = 2**d - 1 if k is None else math.comb(d, k)
        low, sharp = constants(n, d, k)[0][0], constants(n, d, k)[1][0]
        which = "{0,1}^D without 0" if k is None else f"the 0-1 vectors of sum {k}"
        text = f"sum of p_a^2 over a in {which}, over sqrt((2N^2-N)K)"
        measure = "all coordinates of all points are independent and uniform on the unit circle"
    share = max(Fraction(0), 1 - Fraction(h, terms))
    every = math.comb(d + n, n) - 1 if min(n, d) <= MOST_DIM else terms  # which is less: C(d, k), k <= MOST_DEGREE
    numbers = below(low * share), 0.0 if h >= every else above(share), below(low), below(sharp), below(sharp * share)
    enough = _features(terms, Fraction(1), eps)
    asked = eps, _features(terms, sharp, eps), None if enough is None else min(enough, every)
    return SetBound(n, d, h, degree, setting, text, terms, *numbers, *asked, (measure, *_TEXTS["common"]))


def _features(terms: int, constant: Fraction, eps: float | None) -> int | None:
    """The least H with c (1 − H/K) ≤ eps."""
    if eps is None:
        return None
    return 0 if constant <= Fraction(eps) else math.ceil(terms * (1 - Fraction(eps) / constant))


Bracket = tuple[Fraction, Fraction]


@lru_cache(maxsize=256)
def constants(points: int, dim: int, degree: int | None = None) -> tuple[Bracket, Bracket]:
    """Brackets (low, high) of c and of its sharper version for the torus, both ends proved."""
    plain: list[Bracket] = []
    sharp: list[Bracket] = []
    for twos, ones in _shapes(dim, degree):
        total = (2,) * twos + (1,) * ones
        inside = frozenset(a for a in product((0, 1), repeat=len(total)) if any(a) and degree in (None, sum(a)))
        plain.append(least_eigenvalue(total, points))
        sharp.append(least_eigenvalue(total, points, inside))
    size = 2 * points**2 - points
    return _least(plain, size), _least(sharp, size)


def _shapes(dim: int, degree: int | None) -> list[tuple[int, int]]:
    """(a, b) of all δ = (2^a, 1^b): of any degree from 2 on, or of degree 2k, which takes no more than dim entries."""
    if degree is None:
        return [(a, b) for a in range(dim + 1) for b in range(dim - a + 1) if 2 * a + b >= 2]
    return [(a, 2 * (degree - a)) for a in range(degree + 1) if 2 * degree - a <= dim]


def _least(brackets: list[Bracket], size: int) -> Bracket:
    return min(low for low, _ in brackets) / size, min(high for _, high in brackets) / size
