"""Is DeepSets enough, or are pairs needed? How many sums over elements a set function takes.

DeepSets: f(X) = ρ(φ_1 … φ_H), φ_h = Σ_n ψ_h(x_n), with ρ and ψ_h analytic on neighbourhoods of what they are given.
Expand about a base point c in power sums p_α = Σ_n (x_n − c)^α: φ_h = const + Σ C_hα p_α, and

* the part with exactly two factors is Σ F_αβ p_α p_β with F = Cᵀ (Hess ρ/2) C, of rank at most H (`two_factor_rank`,
  of the target);
* more generally ∂f/∂p_α = Σ_h C_hα ∂ρ/∂φ_h: the matrix M of the coefficients of all these (rows α, columns products of
  power sums, none included) has rank at most H. Its columns with one factor are twice the two-factor matrix.

Products of power sums of total degree at most n are linearly independent, so a target that equals f on the box has
the same entries of M where |α| + |product| ≤ n, and H is at least the least rank that a matrix with these entries can
be proved to have (`features_needed`: Frobenius' inequality along the staircase, `PowerSums.least_rank`). For several
outputs of the same features the matrices stand side by side. On the other side a polynomial is exactly a polynomial
of its essential linear forms, as many as the rank of its whole M (`features_sufficient`, `targets.power_sums`).

*exact*: rational polynomials, all ranks over the rationals. *estimated*: everything else that is smooth: the second
variation of the target in the weights of added points, M_ab = ∂²f/∂w_a∂w_b at a random set, has rank at most H by the
same formula; its numerical rank is *estimated from samples*, a number that is no bound. Target with max or min: none.

Source: the rank argument of Zweig and Bruna 2022, arXiv 2206.01266; the exact version for a finite set is derived here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.limits.separation.published import deep_sets_features
from attnfun.targets.power_sums import NotPolynomial, PowerSums, exact_value, power_sums, rank
from attnfun.targets.set_function import SetFunction

_STEP = 2.0**-7
_SAMPLES = 24
_RELATIVE = 1e-5


@dataclass(frozen=True)
class SetAnalysis:
    """`kind`: "exact", "estimated" (from samples: no bound) or "none". `features_needed`: no DeepSets with analytic
    parts has fewer (proved if exact, else an estimate); `features_sufficient`: a DeepSets of that many is exact
    (None: not known). `two_factor_rank`: of the whole matrix G. `general_features`: C(D+n, n), enough for every
    symmetric polynomial of degree n (quoted).
    """

    kind: str
    two_factor_rank: int | None
    features_needed: int | None
    features_sufficient: int | None
    degree: int | None
    factors: int | None
    sums_over_elements: int
    sums_over_pairs: int
    general_features: float
    verdict: str
    note: str
    hypotheses: tuple[str, ...] = ()
    singular_values: tuple[float, ...] = ()

    def record(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "hypotheses": list(self.hypotheses),
            "singular_values": list(self.singular_values),
        }

    to_json = record


_HYPOTHESES = (
    "DeepSets means rho(sum psi_1 ... sum psi_H) with rho and psi_h analytic near what they are given on the box",
    "the lower count is about functions that equal the target; approximation may take fewer features",
)


def analyse(target: SetFunction, seed: int = 0) -> tuple[SetAnalysis, PowerSums | None]:
    """How many features DeepSets needs for `target`, and its form in power sums where there is one."""
    written: dict[str, Any] = {
        "sums_over_elements": sum(not s.pairs for s in target.sums),
        "sums_over_pairs": sum(s.pairs for s in target.sums),
        "general_features": deep_sets_features(target.points, target.box.dim).value,
    }
    try:
        found = power_sums(target)
    except NotPolynomial as why:
        return _estimated(target, written, str(why), seed), None
    n = target.points
    needed, sufficient, unique = found.least_rank(), len(found.forms()[0]), found.degree <= target.points
    note = f"exact, in power sums of degree {found.degree}"
    if not unique:
        note += f"; products past degree {n} are dependent for {n} points, and only those up to it count below"
    analysis = SetAnalysis(
        "exact",
        rank(found.two_factor_matrix()),
        needed,
        sufficient,
        found.degree,
        found.factors,
        **written,
        verdict=_verdict(target, needed, sufficient, "at least"),
        note=note,
        hypotheses=_HYPOTHESES,
    )
    return analysis, found


def _verdict(target: SetFunction, needed: int, sufficient: int | None, word: str) -> str:
    written = _sums(len(target.sums))
    if not target.has_pairs:
        return f"DeepSets as written: {written} over elements; needed: {word} {needed}"
    if sufficient is not None and sufficient <= target.points:
        return f"DeepSets is enough: {_sums(sufficient)} over elements, exactly; needed: {word} {needed}"
    exact = "" if sufficient is None else f", exactly {sufficient} in power sums"
    return f"pairs pay: {written} as written; over elements alone, needed: {word} {needed}{exact}"


def _sums(count: int) -> str:
    return f"{count} sum{'' if count == 1 else 's'}"


def _estimated(target: SetFunction, written: dict[str, Any], why: str, seed: int) -> SetAnalysis:
    if any(s.kind in ("max", "min") for s in target.sums):
        text = "max and min have no second variation: no rank is estimated"
        return SetAnalysis("none", None, None, None, None, None, **written, verdict=text, note=why)
    rng = np.random.default_rng(seed)
    box, n, m = target.box, target.points, _SAMPLES
    points = box.low_array + (box.high_array - box.low_array) * rng.random((n + m, box.dim))
    a, b = np.triu_indices(m)
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    weights = np.zeros((len(signs), len(a), n + m))
    weights[:, :, :n] = 1.0
    for k, (s, t) in enumerate(signs):
        np.add.at(weights[k], (np.arange(len(a)), n + a), s * _STEP)
        np.add.at(weights[k], (np.arange(len(a)), n + b), t * _STEP)
    flat = weights.reshape(-1, n + m)
    values = np.concatenate(
        [target.values(np.broadcast_to(points, (len(w), n + m, box.dim)), w) for w in np.array_split(flat, 40)]
    ).reshape(len(signs), len(a), -1)
    second = (values[0] - values[1] - values[2] + values[3]) / (4 * _STEP**2)
    if not np.isfinite(second).all():
        text = "the target is not defined for weighted points near a set of the box: no rank is estimated"
        return SetAnalysis("none", None, None, None, None, None, **written, verdict=text, note=why)
    blocks = np.zeros((m, m, second.shape[1]))
    blocks[a, b], blocks[b, a] = second, second
    singular = np.linalg.svd(blocks.reshape(m, -1), compute_uv=False)
    noise = 8 * m * 2.0**-52 * float(np.abs(values).max()) / _STEP**2  # of the differences, which are of rounded values
    found = int(np.sum(singular > max(_RELATIVE * singular[0], noise)))
    at_least = "at least " if found == m else ""
    return SetAnalysis(
        "estimated",
        found,
        max(found, 1),
        None if target.has_pairs else len(target.sums),
        None,
        None,
        **written,
        verdict=_verdict(target, max(found, 1), None if target.has_pairs else len(target.sums), "about"),
        note=f"{why}; rank {at_least}{found} estimated from samples: {m} points, relative threshold {_RELATIVE:g}, "
        f"seed {seed}; no bound",
        hypotheses=_HYPOTHESES,
        singular_values=tuple(float(v) for v in singular),
    )


def check_exact(target: SetFunction, found: PowerSums, seed: int = 0, trials: int = 3) -> bool:
    """Whether the power sums give the target's values at random rational sets, compared exactly."""
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        numbers = rng.integers(-99, 100, size=(target.points, target.box.dim))
        rows = [[Fraction(int(v), 7) for v in row] for row in numbers]
        named = [dict(zip(target.box.names, row, strict=True)) for row in rows]
        if found.value(rows) != exact_value(target, named):
            return False
    return True
