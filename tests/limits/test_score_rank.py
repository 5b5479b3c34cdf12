"""rank_of and the singular values behind it, against exact and multiprecision arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import hilbert

import attnfun as af
from attnfun.limits.score_rank import max_entry_error, rank_below
from attnfun.limits.singular import singular_values, spectral_norm_bound


def _exact_error(M: np.ndarray, left: np.ndarray, right: np.ndarray) -> Fraction:
    worst = Fraction(0)
    for i in range(len(M)):
        for j in range(M.shape[1]):
            near = sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(left[i], right[:, j])), Fraction(0))
            worst = max(worst, abs(Fraction(float(M[i, j])) - near))
    return worst


@pytest.mark.parametrize("eps", [0.5, 1e-2, 1e-6, 1e-13])
def test_the_error_is_never_below_the_exact_one(eps: float) -> None:
    rng = np.random.default_rng(0)
    for M in (hilbert(7), rng.standard_normal((6, 9)), np.outer(np.arange(5.0), np.arange(4.0)), 1e8 * hilbert(5)):
        eps_here = eps * float(np.abs(M).max())
        answer = af.rank_of(M, eps_here)
        assert _exact_error(M, answer.left, answer.right) <= Fraction(answer.error) <= Fraction(eps_here)
        assert 0 <= answer.lower <= answer.rank <= min(M.shape)


def test_singular_values_contain_those_of_known_matrices() -> None:
    import mpmath

    rng = np.random.default_rng(1)
    with mpmath.workdps(40):
        for M in (hilbert(8), rng.integers(-9, 9, (6, 4)).astype(float), np.diag([1.0, 1e-9, 0.0])):
            low, high = singular_values(M)
            true = sorted(mpmath.svd_r(mpmath.matrix(M.tolist()), compute_uv=False), reverse=True)
            assert all(mpmath.mpf(float(a)) <= s <= mpmath.mpf(float(b)) for a, s, b in zip(low, true, high))
            assert (high - low).max() < 1e-12 * high[0]


def test_a_norm_that_cannot_be_told_is_infinite() -> None:
    assert spectral_norm_bound(np.array([[np.nan, 1.0]])) == np.inf
    assert spectral_norm_bound(np.full((2, 2), 1e308)) == np.inf


def test_no_lower_bound_excludes_a_rank_that_is_there() -> None:
    """Matrices of rank k, moved by at most eps in every entry: k must not be excluded."""
    rng = np.random.default_rng(2)
    for _ in range(150):
        k, m, n = int(rng.integers(0, 5)), int(rng.integers(1, 12)), int(rng.integers(1, 12))
        eps = 10.0 ** rng.uniform(-12, 0)
        M = rng.standard_normal((m, k)) @ rng.standard_normal((k, n))
        moved = M + eps * 0.999 * rng.choice([-1.0, 1.0], (m, n))
        answer = af.rank_of(moved, eps) if eps > 1e-10 else None
        lower = rank_below(moved, eps, min(m, n))
        assert lower <= k
        assert answer is None or answer.lower <= k


def test_lower_bounds_find_what_there_is() -> None:
    assert af.rank_of(np.eye(3), 0.3).lower == 3
    assert af.rank_of(np.eye(50), 0.3).lower >= 3
    M = np.outer([1.0, 2.0, 3.0], [1.0, -1.0])
    assert (af.rank_of(M, 1e-6).lower, af.rank_of(M, 1e-6).rank) == (1, 1)
    zero = af.rank_of(np.zeros((3, 2)), 1e-9)
    assert (zero.lower, zero.rank, zero.left.shape, zero.right.shape) == (0, 0, (3, 0), (0, 2))


def test_spoilt_factors_are_seen() -> None:
    M = hilbert(6)
    answer = af.rank_of(M, 1e-6)
    spoilt = answer.left.copy()
    spoilt[3, 0] += 1e-3
    assert max_entry_error(M, spoilt, answer.right) >= float(_exact_error(M, spoilt, answer.right))
    spoilt[0, 0] = np.nan
    assert max_entry_error(M, spoilt, answer.right) == np.inf


@pytest.mark.parametrize("matrix", [[[1.0, np.nan]], [1.0, 2.0], [[]], [["a"]], "missing.csv"])
def test_bad_matrices_are_refused(matrix: object) -> None:
    with pytest.raises(af.InvalidRequest):
        af.rank_of(matrix, 0.1)


@pytest.mark.parametrize("eps", [0.0, -1.0, np.nan, np.inf, "1"])
def test_bad_tolerances_are_refused(eps: float) -> None:
    with pytest.raises(af.InvalidRequest):
        af.rank_of([[1.0]], eps)


def test_a_tolerance_below_rounding_is_infeasible() -> None:
    with pytest.raises(af.Infeasible, match="full factorisation"):
        af.rank_of(hilbert(6), 1e-30)


@pytest.mark.parametrize("size", [1e150, 1e155, 1e200, 1e300])
def test_huge_entries_need_no_rank_where_eps_is_larger(size: float) -> None:
    """Squares of singular values past 1e154 overflow, and must not exclude what is within eps."""
    answer = af.rank_of(np.eye(3) * size, 10 * size)
    assert (answer.lower, answer.rank) == (0, 0)


def test_complex_scores_are_refused() -> None:
    """Their imaginary parts would be dropped, and the error proved for the rest."""
    with pytest.raises(af.InvalidRequest, match="complex"):
        af.rank_of(np.array([[1.0, 2.0j], [0.0, 1.0]]), 0.1)
