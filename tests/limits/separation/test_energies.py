"""Harmonics and energies: exact counts, closed forms, quadrature, sums to one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import eval_gegenbauer

from attnfun.errors import InvalidRequest
from attnfun.limits.separation.energies import MOST_DEGREES, energies
from attnfun.limits.separation.harmonics import all_harmonics, all_seen, harmonics, seen_harmonics
from limits.separation.closed_forms import asymptotic_energy, sign_coefficient


@pytest.mark.parametrize("dim", [2, 3, 5, 8, 64])
def test_counts_agree_with_the_other_closed_form(dim: int) -> None:
    for degree in range(1, 30):
        other = (2 * degree + dim - 2) * math.comb(degree + dim - 3, degree - 1)
        assert harmonics(dim, degree) * degree == other
    assert all_harmonics(dim, 40) == [harmonics(dim, k) for k in range(41)]


@pytest.mark.parametrize("dim", [3, 8, 64])
def test_what_a_projection_sees(dim: int) -> None:
    for rank in (1, 2, dim - 1, dim, dim + 3):
        assert all_seen(dim, rank, 25) == [seen_harmonics(dim, rank, k) for k in range(26)]
        shares = [seen_harmonics(dim, rank, k) / harmonics(dim, k) for k in range(1, 40)]
        assert all(a >= b for a, b in itertools.pairwise(shares))
        assert shares[0] <= 1


@pytest.mark.parametrize("dim", [5, 8])
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_gram_matrices_have_the_counted_rank(dim: int, degree: int) -> None:
    """P_ℓ(⟨θ_i, θ_j⟩) for θ in a subspace of dimension r has rank M(r, ℓ); for H of them H M, up to N."""
    rng = np.random.default_rng(0)
    for rank in (1, 2, dim // 2):
        for heads in (1, 2, 3):
            points = []
            for _ in range(heads):
                basis = np.linalg.qr(rng.standard_normal((dim, rank)))[0]
                theta = basis @ rng.standard_normal((rank, 3 * seen_harmonics(dim, rank, degree)))
                points.append((theta / np.linalg.norm(theta, axis=0)).T)
            all_points = np.concatenate(points)
            inner = np.clip(all_points @ all_points.T, -1, 1)
            gram = eval_gegenbauer(degree, dim / 2 - 1, inner) / eval_gegenbauer(degree, dim / 2 - 1, 1.0)
            values = np.linalg.eigvalsh(gram)
            found = int((values > 1e-9 * values.max()).sum())
            assert found == min(harmonics(dim, degree), heads * seen_harmonics(dim, rank, degree))


@pytest.mark.parametrize(("dim", "within"), [(3, 1e-6), (8, 1e-6), (64, 1e-6), (512, 1e-5)])
def test_energies_sum_to_one(dim: int, within: float) -> None:
    found = energies(dim)
    beyond = asymptotic_energy(dim) / (2 * (MOST_DEGREES + 1))
    assert abs(found.low.sum() + beyond - 1) <= within
    assert found.rest[0] <= found.rest[1] and found.high.sum() + found.rest[1] >= 1 - 1e-12
    assert (found.low <= found.high).all()


@pytest.mark.parametrize("dim", [3, 8, 16, 64, 512])
def test_recurrence_against_closed_form(dim: int) -> None:
    found = energies(dim)
    for degree in (1, 3, 21, 101, 401):
        closed = harmonics(dim, degree) * sign_coefficient(dim, degree) ** 2
        i = (degree - 1) // 2
        assert found.degrees[i] == degree
        assert math.isclose(closed, found.low[i], rel_tol=1e-11)


@pytest.mark.parametrize("bias", [0.0, 0.3, -0.45])
@pytest.mark.parametrize("dim", [3, 4, 8, 16])
def test_energies_against_quadrature(dim: int, bias: float) -> None:
    found = energies(dim, bias)
    whole = quad(lambda t: (1 - t * t) ** ((dim - 3) / 2), -1, 1)[0]
    for degree in (0, 1, 2, 3, 6, 9):

        def weighted(t: float, degree: int = degree) -> float:
            p = eval_gegenbauer(degree, dim / 2 - 1, t) / eval_gegenbauer(degree, dim / 2 - 1, 1.0)
            return float(p * (1 - t * t) ** ((dim - 3) / 2))

        above, below = quad(weighted, bias, 1, limit=200)[0], quad(weighted, -1, bias, limit=200)[0]
        energy = harmonics(dim, degree) * ((above - below) / whole) ** 2
        at = np.flatnonzero(found.degrees == degree)
        mine = float(found.low[at[0]]) if len(at) else 0.0
        assert math.isclose(mine, energy, rel_tol=1e-7, abs_tol=1e-9)


def test_table_of_energies() -> None:
    """Figures of the literature's table: e_1 … e_9 in three dimensions."""
    for dim, row in {
        8: (0.67757, 0.11711, 0.05226, 0.03037, 0.02006),
        16: (0.65682, 0.11364, 0.05201, 0.03113, 0.02114),
        64: (0.64161, 0.10843, 0.04937, 0.02969, 0.02038),
    }.items():
        assert np.allclose(energies(dim).low[:5], row, atol=1.1e-5)


@pytest.mark.parametrize(("dim", "bias"), [(1, 0.0), (8, 1.0), (8, -2.0), (8, float("nan"))])
def test_no_such_sphere(dim: int, bias: float) -> None:
    with pytest.raises(InvalidRequest):
        energies(dim, bias)
