"""The furthest of any number of candidates: enclosed energies against exact ones, and layers that try to get below."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import mpmath
import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.kinds.neighbours.sphere import uniform_points
from attnfun.language import precision
from attnfun.limits.separation import candidate_energies as module
from attnfun.limits.separation.candidate_energies import DEGREES, candidate_energies
from attnfun.limits.separation.candidates import taken
from attnfun.limits.separation.harmonics import harmonics, seen_harmonics

Poly = list[Fraction]  # coefficients, constant first


def times(*factors: Poly) -> Poly:
    out = [Fraction(1)]
    for factor in factors:
        new = [Fraction(0)] * (len(out) + len(factor) - 1)
        for (i, a), (j, b) in itertools.product(enumerate(out), enumerate(factor)):
            new[i + j] += a * b
        out = new
    return out


def integral(p: Poly) -> Fraction:
    """Over [−1, 1]."""
    return sum((2 * a / (k + 1) for k, a in enumerate(p) if k % 2 == 0), Fraction(0))


def from_above(p: Poly) -> Poly:
    """∫_τ^1 p."""
    primitive = [Fraction(0), *(a / (k + 1) for k, a in enumerate(p))]
    out = [-a for a in primitive]
    out[0] += sum(primitive)
    return out


def orthogonal(dim: int, most: int) -> tuple[Poly, list[Poly], list[Fraction]]:
    """(u, polynomials orthogonal for u by Gram and Schmidt, their squared norms), for odd dimensions."""
    u = times(*[[Fraction(1), Fraction(0), Fraction(-1)]] * ((dim - 3) // 2))
    u = [a / integral(u) for a in u]
    found: list[Poly] = []
    norms: list[Fraction] = []
    for k in range(most + 1):
        p = [Fraction(0)] * k + [Fraction(1)]
        for q, norm in zip(found[:k], norms, strict=True):
            share = integral(times(p, q, u)) / norm
            p = [a - share * b for a, b in itertools.zip_longest(p, q, fillvalue=Fraction(0))]
        found.append(p)
        norms.append(integral(times(p, p, u)))
    return u, found, norms


def within(found: Any, degree: int, value: Fraction) -> bool:
    return bool(Fraction(found.low[degree]) <= value <= Fraction(found.high[degree]))


@pytest.mark.parametrize(("dim", "n", "most"), [(3, 2, 4), (5, 2, 3), (7, 3, 2), (3, 4, 2)])
def test_energies_contain_the_exact_fractions_of_odd_dimensions(dim: int, n: int, most: int) -> None:
    """By Fourier coefficients of f itself, one choice of degrees at a time: neither min t = −1 + ∫ nor a rule."""
    u, p, norms = orthogonal(dim, most)
    c = [from_above(times(q, u)) for q in p]
    t, across = [Fraction(0), Fraction(1)], [Fraction(1), Fraction(0), Fraction(-1)]
    slopes = [[k * a for k, a in enumerate(q)][1:] for q in p]
    energies = [Fraction(0)] * (most + 1)
    for degrees in itertools.product(range(most + 1), repeat=n):
        others = [times(*(c[degrees[j]] for j in range(n) if j != i)) for i in range(n)]
        along = sum(integral(times(t, p[degrees[i]], others[i], u)) for i in range(n))
        energies[max(degrees)] += along**2 / math.prod(norms[k] for k in degrees)
        for i, k in enumerate(degrees):
            if k:
                size = integral(times(across, slopes[k], slopes[k], u))
                found = integral(times(across, slopes[k], others[i], u))
                rest = math.prod((norms[m] for j, m in enumerate(degrees) if j != i), start=Fraction(1))
                energies[max(degrees)] += found**2 / (size * rest)
    found = candidate_energies(dim, n)
    for degree, value in enumerate(energies):
        assert within(found, degree, value) and found.high[degree] - found.low[degree] < 1e-10


@pytest.mark.parametrize("n", [2, 128])
def test_degrees_up_to_one_are_exact_for_many_candidates(n: int) -> None:
    u, p, norms = orthogonal(3, 1)
    c = [from_above(times(q, u)) for q in p]
    base, total = [Fraction(1, 2), Fraction(-1, 2)], Fraction(0)
    assert c[0] == base
    # c_0^{n−j} c_1^j with c_1 ∝ (1−τ)(1+τ): beta integrals 2^{a+b+1} a! b!/(a+b+1)! of (1−τ)^a (1+τ)^b
    factor = c[1][0] ** 2 / norms[1]

    def beta(j: int) -> Fraction:
        whole = Fraction(2) ** (n + j + 1) * math.factorial(n) * math.factorial(j) / math.factorial(n + j + 1)
        return whole / Fraction(2) ** (n - j)

    for j in range(n + 1):
        along = math.comb(n, j) * factor**j * beta(j) ** 2
        total += along * (1 + 2 * j)  # n C(n−1, j−1) = j C(n, j), and λ_1 = 2
    J = beta(0)
    found = candidate_energies(3, n)
    assert within(found, 0, (1 - J) ** 2) and within(found, 1, total - J**2)


@pytest.mark.parametrize(("dim", "n"), [(2, 3), (16, 2)])
def test_energies_contain_a_reference_of_thirty_digits(dim: int, n: int) -> None:
    """Even dimensions, degrees 0 and 1, by mpmath: J and ∫ c_0^{n−j} c_1^j with c_1 = (1−τ²)u/√d · d/(d−1)."""
    with mpmath.workdps(30):
        peak = mpmath.gamma(mpmath.mpf(dim) / 2) / mpmath.gamma(mpmath.mpf(dim - 1) / 2) / mpmath.sqrt(mpmath.pi)

        def share(t: Any) -> Any:
            side = mpmath.betainc(mpmath.mpf(dim - 1) / 2, 0.5, 0, 1 - t * t, regularized=True) / 2
            return side if t > 0 else 1 - side

        def moment(j: int) -> Any:
            def inside(a: Any) -> Any:
                sine = mpmath.sin(a)
                one = mpmath.sqrt(dim) * peak * sine ** (dim - 1) / (dim - 1)
                return share(mpmath.cos(a)) ** (n - j) * one**j * sine

            return mpmath.quad(inside, [0, mpmath.pi / 2, mpmath.pi])

        moments = [moment(j) for j in range(n + 1)]
        zero = (1 - moments[0]) ** 2
        one = sum(math.comb(n, j) * (1 + (dim - 1) * j) * moments[j] ** 2 for j in range(1, n + 1))
        found = candidate_energies(dim, n)
        for degree, value in enumerate((zero, one)):
            assert found.low[degree] - mpmath.mpf(10) ** -25 <= value <= found.high[degree] + mpmath.mpf(10) ** -25


def test_energies_are_what_least_squares_explain() -> None:
    """On drawn points, with no integral at all: what polynomials of degree 2 in every candidate leave of f."""
    dim, n, most, count = 6, 3, 2, 40_000
    t = uniform_points(np.random.default_rng(0), count, n, dim)[..., 0]

    def monomials(limits: list[int]) -> Any:
        return np.stack([np.prod(t ** np.array(a), axis=1) for a in itertools.product(*map(range, limits))], axis=1)

    def left(known: Any, goal: Any) -> Any:
        gram = known.T @ known
        return (goal - known @ np.linalg.solve(gram, known.T @ goal)) ** 2

    missed = left(monomials([most + 1] * n), t.min(axis=1))
    for i in range(n):  # along the part of x_i across the query: one degree less in t_i
        across = np.sqrt(1 - t[:, i] ** 2)
        known = monomials([most if j == i else most + 1 for j in range(n)]) * across[:, None]
        missed += left(known, (t.argmin(axis=1) == i) * across)
    energies = float(candidate_energies(dim, n).low[: most + 1].sum())
    assert abs(1 - missed.mean() - energies) <= 4 * missed.std() / math.sqrt(count) < 0.01


@pytest.mark.parametrize(("dim", "n"), [(2, 2), (16, 7)])
def test_energies_are_positive_add_up_to_one_and_do_not_depend_on_the_rule(
    dim: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = candidate_energies(dim, n)
    assert (found.low > 0).all() and (found.low <= found.high).all() and 0 < found.rest[0] <= found.rest[1]
    assert found.low.sum() + found.rest[0] <= 1 <= found.high.sum() + found.rest[1]
    with precision(module._BITS):  # too few nodes: the enclosure widens, and still contains the fine one
        error = module._nodes(dim, n, 0.125)[1]
    monkeypatch.setattr(module, "_AIM", 2.0**-12)
    rough = candidate_energies.__wrapped__(dim, n)
    assert (rough.low <= found.low).all() and (rough.high >= found.high).all() and error <= 2.0**-46
    assert (rough.high - rough.low)[1:].min() > 100 * (found.high - found.low)[1:].max()


def test_the_strip_bounds_the_expansion() -> None:
    """|c_ℓ(θ)| at random complex angles is below what the rule's error assumes; c_0' = γ sin^{d−2}."""
    rng = np.random.default_rng(1)
    for dim in (2, 5, 16):
        with precision(module._BITS):
            for eta in (0.05, 0.3):
                points = 8 * (dim + DEGREES - 2)
                line = max(_energy(dim, x, eta) for x in np.arange(points // 2 + 1) * (math.pi / points))
                for _ in range(40):
                    inside = _energy(dim, rng.uniform(-4, 4), rng.uniform(-eta, eta))
                    assert inside <= line / math.cos(math.pi / 8)
            for angle in (0.3, 1.7, 3.0):  # the recurrence of c_0, by the beta function
                x = module.arb(angle)
                half = (x.sin() ** 2).beta_lower((module.arb(dim) - 1) / 2, module.arb(0.5), regularized=1) / 2
                assert module._expansion(dim, x)[0].overlaps(half if angle < math.pi / 2 else 1 - half)


def _energy(dim: int, x: float, y: float) -> float:
    """Σ_{ℓ≥1} |c_ℓ|² by complex balls at an angle, and the parts that the rule's error is made of agree with it."""
    angle, before, now, total = flint.acb(x, y), flint.acb(0), flint.acb(1), module.arb(0)
    for k, scale in enumerate(module._scales(dim)):
        total += abs(scale * angle.sin() ** (dim - 1) * now) ** 2
        before, now = now, ((2 * k + dim) * angle.cos() * now - k * before) / (k + dim)
    assert total.overlaps(sum(module._squares(dim, module.arb(x), module.arb(y)), module.arb(0)))
    return float(total.mid())


# ---------------------------------------------------------------- what a head takes


@pytest.mark.parametrize(("dim", "rank", "forms"), [(3, 1, 1), (4, 2, 1), (4, 2, 4), (4, 1, 2), (4, 3, 4)])
def test_what_a_head_takes_is_the_dimension_of_what_it_makes(dim: int, rank: int, forms: int) -> None:
    """Polynomials φ(Kᵀx) and φ(Kᵀx)⟨w, x⟩, for so many forms w across K, projected on a degree: their rank."""
    rng, most = np.random.default_rng([dim, rank]), 5
    x = uniform_points(rng, 800, dim)
    blocks = []
    for degree in range(most + 1):
        z = uniform_points(rng, harmonics(dim, degree), dim)
        blocks.append(_zonal(dim, degree, x @ z.T))
    basis = np.concatenate(blocks, axis=1)
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    powers = [a for a in itertools.product(range(most + 1), repeat=rank) if sum(a) <= most]
    known = np.stack([np.prod(x[:, :rank] ** np.array(a), axis=1) for a in powers], axis=1)
    small = known[:, [sum(a) < most for a in powers]]
    made = [known] + [small * x[:, [rank + k]] for k in range(min(forms, dim - rank))]
    weights = np.linalg.lstsq(basis, np.concatenate(made, axis=1), rcond=None)[0]
    for degree in range(1, most + 1):
        part = blocks[degree] @ weights[ends[degree] : ends[degree + 1]]
        assert np.linalg.matrix_rank(part, tol=1e-7) == taken(dim, rank, forms, degree)
    assert taken(dim, dim - 1, dim, 4) == harmonics(dim, 4) == taken(dim, dim + 3, dim, 4)


def _zonal(dim: int, degree: int, t: Any) -> Any:
    before, now = np.zeros_like(t), np.ones_like(t)
    for k in range(degree):
        before, now = now, ((2 * k + dim - 2) * t * now - k * before) / (k + dim - 2) if k else t
    return now


def test_what_is_taken_rises_with_rank_and_with_values_and_never_past_all() -> None:
    for dim, degree in itertools.product((4, 9), (1, 2, 7)):
        for rank in range(1, dim + 2):
            for forms in range(1, dim + 1):
                here = taken(dim, rank, forms, degree)
                assert here <= taken(dim, rank + 1, forms, degree) <= harmonics(dim, degree)
                assert here <= taken(dim, rank, forms + 1, degree)


# ---------------------------------------------------------------- the bound


def least(rank: int, heads: int, value_rank: int | None = None, dim: int = 8, n: int = 5) -> float:
    return af.bounds.neighbours(dim, n, rank, heads, value_rank=value_rank).lower


def test_the_bound_falls_with_heads_rank_and_value_rank_and_is_nothing_at_full_rank() -> None:
    assert least(8, 1) == least(7, 1) == 0 and 0 < least(4, 2) < least(4, 1) < least(2, 1) < least(1, 1) < 1
    assert least(1, 4) < least(1, 4, 4) < least(1, 4, 1) and least(1, 4, 8) == least(1, 4) == least(1, 4, 99)
    nothing = af.bounds.neighbours(8, 5, 1, 0)
    assert nothing.lower <= 1 - candidate_energies(8, 5).low[0] <= nothing.largest <= nothing.lower + 1e-9


def test_the_sum_in_fractions_is_not_below_the_bound() -> None:
    for dim, n, rank, heads, values in ((8, 3, 2, 3, 8), (16, 2, 1, 1, 1), (16, 7, 4, 400, 16), (16, 15, 9, 2, 5)):
        found, total = candidate_energies(dim, n), Fraction(0)
        for degree in range(1, DEGREES + 1):
            share = 1 - Fraction(heads * taken(dim, rank, values, degree), harmonics(dim, degree))
            total += Fraction(found.low[degree]) * max(Fraction(0), share)
        share = 1 - Fraction(heads * (1 + min(values, dim - rank)) * seen_harmonics(dim, rank, 41), harmonics(dim, 41))
        total += Fraction(found.rest[0]) * max(Fraction(0), share)
        lower = af.bounds.neighbours(dim, n, rank, heads, value_rank=values).lower
        assert total * (1 - Fraction(1, 10**12)) <= Fraction(lower) <= total
        for degree in (41, 42, 60, 200):  # the factor of the tail is the least of all
            assert share <= 1 - Fraction(heads * taken(dim, rank, values, degree), harmonics(dim, degree))


def test_the_table_of_the_documentation_is_computed_again() -> None:
    page = (Path(__file__).parents[3] / "docs" / "limits.md").read_text("utf-8")
    counts = [int(n) for n in re.findall(r"\d+", page.split("| error ≥, values of any rank |")[1].splitlines()[0])]
    rows = re.findall(r"^\| d = (\d+), (\d+) heads of rank (\d+) \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) >= 3 and len(counts) >= 3
    for dim, heads, rank, cells in rows:
        figures = [least(int(rank), int(heads), None, int(dim), n) for n in counts]
        assert [cell.strip() for cell in cells.split("|")] == [f"{figure:.4f}"[1:] for figure in figures]


@pytest.mark.parametrize(("dim", "n", "rank"), [(4, 2, 1), (5, 3, 1), (4, 3, 2), (8, 4, 4)])
def test_one_head_with_the_best_weights_of_all_is_above_the_bound(dim: int, n: int, rank: int) -> None:
    """Given Kᵀx and y the best weights, of y's own token too, are least squares over the rest of x."""
    rng = np.random.default_rng([dim, n])
    for value_rank in (1, dim):
        values, errors = np.diag([1.0] * value_rank + [0.0] * (dim - value_rank)), []
        for _ in range(150):
            y, known = uniform_points(rng, dim), uniform_points(rng, n, dim)[:, :rank]
            rest = uniform_points(rng, 100, n, dim - rank) * np.sqrt(1 - np.sum(known**2, axis=1))[:, None]
            x = np.concatenate([np.broadcast_to(known, (100, n, rank)), rest], axis=-1)
            goal = x[np.arange(100), (x @ y).argmin(axis=1)].ravel()
            tokens = np.concatenate([x, np.broadcast_to(y, (100, 1, dim))], axis=1) @ values
            columns = np.swapaxes(tokens, 1, 2).reshape(-1, n + 1)
            weights = np.linalg.lstsq(columns, goal, rcond=None)[0]
            errors.append(np.sum((columns @ weights - goal) ** 2) / 100)
        assert 0 < least(rank, 1, value_rank, dim, n) < np.mean(errors) < 1


def test_two_heads_with_fitted_polynomials_for_weights_are_above_the_bound() -> None:
    rng, count, n, dim = np.random.default_rng(3), 4000, 2, 3

    def drawn() -> tuple[Any, Any]:
        x, y = uniform_points(rng, count, n, dim), uniform_points(rng, count, dim)
        columns = []
        for h in (0, 1):
            z = np.concatenate([x[:, :, h], y], axis=1)
            chosen = [c for k in range(4) for c in itertools.combinations_with_replacement(range(n + dim), k)]
            a = np.stack([np.prod(z[:, c], axis=1) for c in chosen], axis=1)
            columns += [(token[:, :, None] * a[:, None]).reshape(count * dim, -1) for token in (x[:, 0], x[:, 1], y)]
        goal = x[np.arange(count), (x @ y[:, :, None])[..., 0].argmin(axis=1)]
        return np.concatenate(columns, axis=1), goal.ravel()

    known, goal = drawn()
    weights = np.linalg.solve(known.T @ known + 1e-6 * np.eye(known.shape[1]), known.T @ goal)
    known, goal = drawn()
    assert 0 < least(1, 2, None, dim, n) < np.sum((known @ weights - goal) ** 2) / count < 0.5


@pytest.mark.parametrize(
    "bad",
    [
        {"candidates": 1},  # one candidate is linear: an identity head has no error
        {"candidates": 0},
        {"candidates": 129},
        {"candidates": 2.0},
        {"dim": 1},
        {"dim": 129},
        {"rank": 0},
        {"heads": -1},
        {"heads": True},
        {"value_rank": 0},
        {"eps": 0.0},
        {"eps": float("nan")},
        {"eps": "0.1"},
        {"eps": 10**400},
    ],
)
def test_bad_requests(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(bad))):
        af.bounds.neighbours(**{"dim": 8, "candidates": 5, "rank": 2, "heads": 2, **bad})


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bounds", "neighbours", "--dim", "8", "--candidates", "5", "--rank", "2", "--heads", "3", "--eps", "0.1"]
    assert main([*words, "--value-rank", "2", "--json"]) == 0
    record, found = json.loads(capsys.readouterr().out), af.bounds.neighbours(8, 5, 2, 3, 0.1, value_rank=2)
    assert record == json.loads(json.dumps(found.record())) and "2407.16153" in record["source"]
    assert found.heads_needed is not None and least(2, found.heads_needed, 2) < 0.1
    assert least(2, found.heads_needed - 1, 2) >= 0.1
    assert main(words) == 0 and "hypotheses" in capsys.readouterr().out
    assert main([*words[:4], "--candidates", "1", *words[6:]]) == 2
    assert capsys.readouterr().err.count("\n") == 1
