"""Is DeepSets enough, or do pairs pay? How many sums over elements a set function takes, from below and from above.

DeepSets: f(X) = ρ(φ_1 … φ_H), φ_h = Σ_n ψ_h(x_n).

*From below* (`features_needed`), for ρ and ψ_h analytic on neighbourhoods of what they are given. Expand about a base
point c in power sums p_α = Σ_n (x_n − c)^α: φ_h = const + Σ C_hα p_α, and ∂f/∂p_α = Σ_h C_hα ∂ρ/∂φ_h. So the matrix M
of the coefficients of all these (rows α, columns products of power sums, none included) has rank at most H. Products of
power sums of total degree at most n are linearly independent, so a target that equals f near (c, …, c) has the same
entries of M where |α| + |product| ≤ n, and H is at least the least rank that a matrix with these entries can be proved
to have (Frobenius' inequality along the staircase, `PowerSums.least_rank`). For several outputs of the same features
the matrices stand side by side. The entries are exact: those of a polynomial (`power_sums.py`), or of a power
series with rational coefficients (`power_series.py`). Every other target has no count from below: unknown.

*From above* (`features_sufficient`), the least of
* the essential linear forms of a polynomial target, of which it is a polynomial, as many as the rank of its whole M;
* the sums over elements that all sums of the target are made of (`power_sums.sums_behind`), whatever is done to them;
* `general_features` = C(D+n, n) − 1, the power sums with 1 ≤ |α| ≤ n in the D coordinates that occur.
The last holds for every continuous symmetric f. Proof: take two different multisets of n points and a direction u whose
inner products with all these points differ wherever the points do. Σ_n ⟨u, x_n⟩^k, k ≤ n, is a combination of the p_α
with |α| = k, and by Newton's identities these n numbers give the multiset of the ⟨u, x_n⟩; so some p_α differs. The
power sums are thus a continuous one-to-one map of the compact space of multisets of the box, hence a homeomorphism on
its image, and ρ is f after its inverse, continued from the compact image by Tietze. ∎ (For a symmetric polynomial ρ is
one: these power sums generate them, Weyl 1939.) The count from below never exceeds it: M has no other known rows.

A sum over pairs has n times the terms of a sum over elements. *Pairs pay* is said only where the count from below is
above that of the sums as written, each over pairs counted n times; *DeepSets is enough* where the count from above is
not; between the two it is unknown.

Source: the rank argument of Zweig and Bruna 2022, arXiv 2206.01266; the exact version for a finite set is derived here.
"""

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from attnfun.kinds.set.pattern import rational_sets
from attnfun.kinds.set.power_series import power_series
from attnfun.kinds.set.power_sums import NotPolynomial, PowerSums, power_sums, rank, sums_behind
from attnfun.kinds.set.target import SetFunction, first, second
from attnfun.language.brief import Brief


@dataclass(frozen=True)
class SetAnalysis(Brief):
    """`kind`: what the count from below comes from: "exact" (a polynomial), "series" (a power series) or "none".

    `features_needed`: no DeepSets with analytic parts has fewer (proved; None: unknown). `features_sufficient`: a
    DeepSets of that many is exact, and never more than `general_features`, C(D+n, n) − 1, which are enough for every
    continuous symmetric function. `two_factor_rank`: of the part with two power sums, for polynomials.
    """

    kind: str
    two_factor_rank: int | None
    features_needed: int | None
    features_sufficient: int
    degree: int | None
    factors: int | None
    sums_over_elements: int
    sums_over_pairs: int
    general_features: int
    verdict: str
    note: str
    hypotheses: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "hypotheses": list(self.hypotheses)}


_HYPOTHESES = (
    "DeepSets means rho(sum psi_1 ... sum psi_H); enough: rho continuous if the target is, a polynomial if it is one",
    "needed: rho and psi_h analytic near what they are given on the box, and equality; approximation may take fewer",
)


@lru_cache(maxsize=32)
def analyse(target: SetFunction) -> tuple[SetAnalysis, PowerSums | None]:
    """How many features DeepSets needs for `target`, and its form in power sums where there is one."""
    n = target.points
    general = math.comb(_coordinates(target) + n, n) - 1
    behind = sums_behind(target)
    sufficient = general if behind is None else min(general, behind)
    found: PowerSums | None = None
    needed: int | None = None
    try:
        found = power_sums(target)
        needed, sufficient = found.least_rank(n), min(sufficient, len(found.forms()[0]))
        kind, note = "exact", f"exact, in power sums of degree {found.degree}"
        if found.degree > n:
            note += f"; products past degree {n} are dependent for {n} points, and only those up to it count below"
    except NotPolynomial as why:
        try:
            series, most = power_series(target)
            needed = series.least_rank(most)
            kind, note = "series", f"{why}; its power series up to degree {most}, exact, counts below"
        except NotPolynomial as other:
            kind, note = "none", f"no count from below: {other}"
    if needed == 0 < sufficient:  # nothing of low degree: a function that is not constant still needs one
        needed = 1 if found is not None and _varies(found, target.box.dim) else None
    if sufficient == general:
        note += f"; {_sums(general, 'power sum')} of degree up to {n} determine{'s' * (general == 1)} {n} points"
    two, degree, factors = (rank(found.two_factor_matrix()), found.degree, found.factors) if found else (None,) * 3
    verdict, over_pairs = _verdict(target, needed, sufficient, behind), sum(s.pairs for s in target.sums)
    sums = len(target.sums) - over_pairs, over_pairs, general
    return SetAnalysis(kind, two, needed, sufficient, degree, factors, *sums, verdict, note, _HYPOTHESES), found


def _coordinates(target: SetFunction) -> int:
    """How many coordinates of a point the target uses."""
    used = {v for s in target.sums for v in s.graph.variables}
    return sum(a in used or b in used for a, b in zip(first(target.box), second(target.box), strict=True))


def _varies(found: PowerSums, dim: int) -> bool:
    """Whether exact values of a polynomial differ: then it is not constant on any box."""
    values = [found.value(rows) for rows in rational_sets(found.points, dim, 0, 4)]
    return any(value != values[0] for value in values)


def _verdict(target: SetFunction, needed: int | None, sufficient: int, behind: int | None) -> str:
    least = "needed: unknown" if needed is None else f"needed: at least {needed}"
    enough = f"{_sums(sufficient)} over elements, exactly; {least}"
    if not target.has_pairs:
        if behind is None:
            return f"DeepSets has it with {enough}; as written there is a maximum, a minimum or a sum inside a sum"
        written = len(target.sums)
        fewer = "" if sufficient == written else f"{sufficient:,} are enough; "
        return f"DeepSets as written: {_sums(written)} over elements; {fewer}{least}"
    written = sum(target.points if s.pairs else 1 for s in target.sums)
    as_written = f"{_sums(len(target.sums))} as written, {sum(s.pairs for s in target.sums)} over pairs"
    if sufficient <= written:
        return f"DeepSets is enough: {enough}"
    if needed is not None and needed > written:
        return f"pairs pay: {as_written}; over elements alone at least {needed} are needed, {sufficient} are enough"
    return f"unknown whether pairs pay: {as_written}; over elements alone {sufficient} are enough; {least}"


def _sums(count: int, name: str = "sum") -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"
