"""The Hamming cube: expansion, bounds and their sharpness, all in fractions, against the matrix of signs itself."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.limits.separation.krawtchouk import (
    candidate_energies,
    candidates_lower,
    coordinates_lower,
    coordinates_upper,
    cube_coefficients,
    cube_energies,
    krawtchouk,
    uncovered,
    values_lower,
)


def cube(dim: int) -> np.ndarray:
    return np.array(list(product((-1, 1), repeat=dim)))


def signs(dim: int) -> np.ndarray:
    z = cube(dim)
    return np.sign(z @ z.T).astype(float)


def left_over(dim: int, labels: list[np.ndarray]) -> float:
    """Least squares itself: what the indicators of the labels' values (columns, functions of z) leave of the matrix."""
    columns = np.concatenate([(one[:, None] == np.unique(one)[None]).astype(float) for one in labels], axis=1)
    target = signs(dim)
    basis = np.linalg.svd(columns, full_matrices=False)
    kept = basis[0][:, basis[1] > 1e-9 * basis[1][0]]
    return float(np.mean((target - kept @ (kept.T @ target)) ** 2))


def packed(columns: np.ndarray) -> np.ndarray:
    """One label a row of signs."""
    return (columns > 0) @ (1 << np.arange(columns.shape[1]))


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 7])
def test_the_expansion_is_the_matrix(dim: int) -> None:
    z, out = cube(dim), np.zeros((2**dim, 2**dim))
    for degree, value in enumerate(cube_coefficients(dim)):
        for S in combinations(range(dim), degree):
            chi = z[:, list(S)].prod(axis=1)
            out += float(value) * np.outer(chi, chi)
    assert np.abs(out - signs(dim)).max() < 1e-12


@pytest.mark.parametrize("dim", [1, 4, 9, 33, 64])
def test_energies_sum_to_the_probability_of_no_tie_and_are_those_of_majority(dim: int) -> None:
    ties = Fraction(math.comb(dim, dim // 2), 2**dim) if dim % 2 == 0 else Fraction(0)
    assert sum(cube_energies(dim)) == 1 - ties
    if dim % 2:  # the closed form of majority's coefficients
        half = (dim - 1) // 2
        for degree in range(1, dim + 1, 2):
            closed = Fraction(math.comb(half, (degree - 1) // 2), math.comb(dim - 1, degree - 1))
            closed *= Fraction(2 * math.comb(dim - 1, half), 2**dim)
            assert abs(cube_coefficients(dim)[degree]) == closed


def test_krawtchouk_polynomials_are_orthogonal() -> None:
    n = 9
    for k, m in product(range(n + 1), repeat=2):
        total = sum(math.comb(n, x) * krawtchouk(k, x, n) * krawtchouk(m, x, n) for x in range(n + 1))
        assert total == (2**n * math.comb(n, k) if k == m else 0)


@pytest.mark.parametrize(("dim", "rank", "heads"), [(5, 1, 2), (5, 2, 1), (5, 2, 3), (5, 3, 2), (4, 2, 2), (6, 3, 2)])
def test_no_choice_of_coordinates_is_below_and_the_mean_is_the_upper_one(dim: int, rank: int, heads: int) -> None:
    blocks = list(combinations(range(dim), rank))
    least, total = Fraction(2), Fraction(0)
    for chosen in product(blocks, repeat=heads):
        error = uncovered(dim, chosen)
        least, total = min(least, error), total + error
    assert coordinates_lower(dim, rank, heads) <= least
    assert total / len(blocks) ** heads == coordinates_upper(dim, rank, heads)
    if rank * heads <= dim:
        assert coordinates_lower(dim, rank, heads) == least


@pytest.mark.parametrize("sets", [[(0, 1, 2)], [(0, 1), (1, 2), (3,)], [(0, 1, 2, 3), (2, 3, 4)]])
def test_what_coordinates_leave_is_the_least_squares_error(sets: list[tuple[int, ...]]) -> None:
    z = cube(5)
    measured = left_over(5, [packed(z[:, list(one)]) for one in sets])
    assert measured == pytest.approx(float(uncovered(5, sets)), abs=1e-12)


@pytest.mark.parametrize("dim", [5, 7, 8])
def test_the_bound_by_values_is_the_tail_of_singular_values(dim: int) -> None:
    squares = np.linalg.svd(signs(dim), compute_uv=False) ** 2 / 4.0**dim
    for count in (1, 2, 3, 2**dim // 3, 2**dim - 1, 2**dim):
        assert float(values_lower(dim, count)) == pytest.approx(squares[count:].sum(), abs=1e-12)


@pytest.mark.parametrize("sets", [[(0, 1)], [(0,), (1,)], [(0, 1), (1, 2)], [(0, 1, 2)]])
def test_two_candidates_by_least_squares(sets: list[tuple[int, ...]]) -> None:
    """All of {−1, 1}^{3 × 3}: what any functions of r coordinates of both candidates and of y leave."""
    triples = np.array(list(product(range(8), repeat=3)))
    z = cube(3)
    x1, x2, y = (z[triples[:, k]] for k in range(3))
    target = np.sign(((x1 - x2) * y).sum(axis=1)).astype(float)
    columns = []
    for one in sets:
        label = packed(np.concatenate([x1[:, list(one)], x2[:, list(one)], y], axis=1))
        columns.append((label[:, None] == np.unique(label)[None]).astype(float))
    found = np.linalg.lstsq(np.concatenate(columns, axis=1), target, rcond=None)[0]
    left = float(np.mean((target - np.concatenate(columns, axis=1) @ found) ** 2))
    assert sum(candidate_energies(3)) == Fraction(int((target != 0).sum()), len(target))
    assert left >= float(candidates_lower(3, len(sets[0]), len(sets))) - 1e-12
    assert candidates_lower(3, len(sets[0]), len(sets)) > 0 or len(sets[0]) == 3


def test_any_labels_are_above_the_bound_by_values() -> None:
    random = np.random.default_rng(0)
    for heads, values in ((1, 4), (2, 8), (3, 3)):
        for _ in range(4):
            labels = [random.integers(values, size=128) for _ in range(heads)]
            assert left_over(7, labels) >= float(values_lower(7, values, heads)) - 1e-12


def test_one_number_with_weights_of_two_powers_sees_the_whole_cube() -> None:
    z = cube(7)
    assert left_over(7, [z @ 2 ** np.arange(7)]) < 1e-12 < float(coordinates_lower(7, 6, 1))


def test_bounds_keep_their_order() -> None:
    for rank, heads in product(range(10), (0, 1, 3, 50)):
        low, high = coordinates_lower(9, rank, heads), coordinates_upper(9, rank, heads)
        assert 0 <= low <= high <= 1 and (low == high or heads > 1)
        assert values_lower(9, 2**rank, max(heads, 0)) <= low  # r coordinates have 2^r values
        assert coordinates_lower(9, rank, heads + 1) <= low
    assert coordinates_lower(9, 9, 1) == 0 == coordinates_upper(9, 9, 1)


def test_bad_requests_are_refused() -> None:
    for bad in (lambda: cube_coefficients(0), lambda: coordinates_lower(5, 6, 1), lambda: values_lower(5, 0)):
        with pytest.raises(InvalidRequest):
            bad()
    with pytest.raises(InvalidRequest):
        uncovered(5, [(5,)])
    with pytest.raises(InvalidRequest):
        uncovered(30, [range(25)])
