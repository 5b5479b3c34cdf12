"""DeepSets against pairs: Gram matrices by brute force, constants, an attack on the bounds, the hard functions."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from scipy.optimize import minimize

import attnfun as af
from attnfun.cli import main
from attnfun.errors import InvalidRequest
from attnfun.limits.separation.hard_sets import HardSet
from attnfun.limits.separation.products import (
    _positive,
    forms,
    inverse_form,
    least_eigenvalue,
    vector_partitions,
)
from attnfun.limits.separation.sets import constants
from limits.separation.closed_forms import by_power_sums

Vector = tuple[int, ...]
TABLE = {  # c(N, D) to three digits, from Gram matrices by set partitions and numerical Schur complements
    1: {8: 0.933, 16: 0.968, 32: 0.984, 64: 0.992, 256: 0.998},
    2: {8: 0.412, 16: 0.666, 32: 0.822, 64: 0.908, 256: 0.977},
    3: {8: 0.053, 16: 0.279, 32: 0.543, 64: 0.741, 256: 0.928},
    4: {8: 0.0005, 16: 0.048, 32: 0.227, 64: 0.474, 128: 0.686, 256: 0.827},
}


def expanded(parts: list[Vector], points: int) -> dict[tuple[Vector, ...], int]:
    """A product of power sums as a polynomial in the points: exponents of each point → coefficient."""
    dim = len(parts[0])
    total = {((0,) * dim,) * points: 1}
    for part in parts:
        after: dict[tuple[Vector, ...], int] = {}
        for monomial, c in total.items():
            for n in range(points):
                moved = tuple(a + b for a, b in zip(monomial[n], part, strict=True))
                key = (*monomial[:n], moved, *monomial[n + 1 :])
                after[key] = after.get(key, 0) + c
        total = after
    return total


def brute_force(total: Vector, points: int) -> tuple[list[tuple[Vector, Vector]], fmpq_mat]:
    """The inverse of S by multiplying polynomials out, an exact Gram matrix and an exact inverse: no combinatorics."""
    lists = [[a for a, m in parts.items() for _ in range(m)] for parts in vector_partitions(total)]
    polynomials = [expanded(parts, points) for parts in lists]
    gram = fmpq_mat(
        len(lists),
        len(lists),
        [fmpq(sum(c * q.get(m, 0) for m, c in p.items())) for p in polynomials for q in polynomials],
    )
    inverse = gram.inv()
    two = [i for i, parts in enumerate(lists) if len(parts) == 2]
    entries = [inverse[i, j] for i in two for j in two]
    return [(lists[i][0], lists[i][1]) for i in two], fmpq_mat(len(two), len(two), entries)


@pytest.mark.parametrize(
    ("total", "points"),
    [((2,), 2), ((2,), 5), ((1, 1), 3), ((2, 1), 3), ((2, 1), 5), ((2, 2), 4), ((2, 2), 5), ((1, 1, 1), 4)],
)
def test_the_counted_form_is_the_inverse_of_the_schur_complement_exactly(total: Vector, points: int) -> None:
    pairs, expected = brute_force(total, points)
    found, weights = inverse_form(total, points)
    places = [forms(total)[0].index(pair if pair[0] >= pair[1] else (pair[1], pair[0])) for pair in pairs]
    assert sorted(places) == list(range(len(found)))
    for i, a in enumerate(places):
        assert weights[a] == (1 if pairs[i][0] == pairs[i][1] else 2)
        for j, b in enumerate(places):
            value = expected[i, j]
            assert found[a][b] == Fraction(int(value.p), int(value.q))


def test_the_number_of_vector_partitions() -> None:
    """OEIS A020555: multigraphs on n labelled edges, which are the partitions of (2, …, 2)."""
    assert [sum(1 for _ in vector_partitions((2,) * d)) for d in (1, 2, 3, 4)] == [2, 9, 66, 712]


@pytest.mark.parametrize("dim", TABLE)
def test_the_table_of_constants(dim: int) -> None:
    for points, expected in TABLE[dim].items():
        found = af.bounds.sets(points=points, dim=dim, features=0, setting="torus")
        digits = 4 if expected < 0.001 else 3
        assert round(found.constant, digits) == expected
        (low, high), (sharp_low, sharp_high) = constants(points, dim)
        assert 0 < low <= high <= low * (1 + Fraction(1, 10**6))
        assert low <= sharp_high and sharp_low <= sharp_high


def test_one_dimension_has_a_closed_form() -> None:
    """Of p_1² and p_2 alone: |p_1²|² − <p_1², p_2>²/|p_2|² = 2N² − N − N."""
    for points in (2, 3, 10, 10**6):
        (low, high), sharp = constants(points, 1)
        exact = Fraction(2 * points - 2, 2 * points - 1)
        assert low <= exact <= high and sharp == (low, high)


def test_the_first_sizes_with_a_sixth() -> None:
    for dim, first in ((1, 2), (2, 5), (3, 12), (4, 27)):
        assert constants(first, dim)[0][0] >= Fraction(1, 6) > constants(first - 1, dim)[0][1]


def test_the_constants_of_one_degree_do_not_depend_on_the_dimension() -> None:
    for degree, rows in ((2, {4: 0.059, 5: 0.130, 8: 0.315}), (3, {8: 0.021, 12: 0.086, 16: 0.160})):
        for points, expected in rows.items():
            near, far = (af.bounds.sets(points, dim, 1, degree=degree) for dim in (2 * degree, 1000))
            assert round(near.constant, 3) == expected and near.constant == far.constant
            assert far.terms == math.comb(1000, degree)


def test_a_degree_in_a_very_high_dimension_is_as_in_a_low_one() -> None:
    low, high = af.bounds.sets(10, 4, 3, degree=2), af.bounds.sets(10, 10**9, 3, degree=2)
    assert (high.constant, high.sharper_constant) == (low.constant, low.sharper_constant)
    assert high.terms == math.comb(10**9, 2)


def test_below_the_degree_nothing_is_excluded() -> None:
    for dim in (1, 2, 3):
        for points in range(2, 2 * dim):
            assert af.bounds.sets(points, dim, 0, setting="torus").lower == 0
        assert af.bounds.sets(max(2, 2 * dim), dim, 0, setting="torus").lower > 0


@pytest.mark.parametrize(("points", "features"), [(4, 1), (4, 2), (6, 1)])
def test_no_function_of_few_features_is_nearer_than_the_bound(points: int, features: int) -> None:
    """D = 2: descent over the linear parts C of the features and the Hessian A; all other coefficients are free."""
    vectors = [a for a in product(range(3), repeat=2) if any(a)]
    place = {a: i for i, a in enumerate(vectors)}
    inside = [a for a in vectors if max(a) == 1]
    scale = math.sqrt((2 * points**2 - points) * len(inside))
    blocks = []
    for total in product(range(3), repeat=2):
        if sum(total) >= 2:
            X, weights = inverse_form(total, points)
            S = np.linalg.inv(np.array([[float(v) for v in row] for row in X]))
            pairs = forms(total)[0]
            rows, columns = ([place[pair[k]] for pair in pairs] for k in (0, 1))
            wanted = np.array([1 / scale if a == b and a in inside else 0.0 for a, b in pairs])
            blocks.append((rows, columns, np.array(weights), wanted, S))

    def error(flat: np.ndarray) -> float:
        C = flat[: features * len(vectors)].reshape(features, -1)
        A = flat[features * len(vectors) :].reshape(features, features)
        F = C.T @ (A + A.T) @ C
        total = 0.0
        for rows, columns, weights, wanted, S in blocks:
            v = weights * F[rows, columns] - wanted
            total += float(v @ S @ v)
        return total

    rng = np.random.default_rng(0)
    bound = af.bounds.sets(points, 2, features)
    starts = [rng.normal(size=features * (len(vectors) + features)) / math.sqrt(scale) for _ in range(2)]
    least = min(float(minimize(error, start, method="L-BFGS-B").fun) for start in starts)
    assert bound.lower <= bound.sharper_lower <= least <= bound.upper * (1 + 1e-6)


def test_the_gram_matrix_by_sampling() -> None:
    """N = 5, D = 2: |p_11²|² and its product with p_22 against the exact expansion."""
    X = HardSet(5, 2).sample(100_000, seed=3)
    square = np.sum(X[..., 0] * X[..., 1], axis=1) ** 2
    other = np.sum(X[..., 0] ** 2 * X[..., 1] ** 2, axis=1)
    a, b = expanded([(1, 1), (1, 1)], 5), expanded([(2, 2)], 5)
    assert np.mean(np.abs(square) ** 2) == pytest.approx(sum(c * c for c in a.values()), rel=0.02)
    assert np.mean(square * other.conj()).real == pytest.approx(sum(c * a.get(m, 0) for m, c in b.items()), rel=0.05)


def test_bounds_keep_their_order() -> None:
    for points, dim in ((8, 1), (9, 1), (12, 2), (16, 3)):
        before = math.inf
        for features in range(0, 12):
            found = af.bounds.sets(points, dim, features)
            assert 0 <= found.lower <= found.sharper_lower <= found.upper <= 1
            assert found.lower <= before
            before = found.lower
            if features >= found.terms:
                assert found.upper == 0
            if dim == 1:
                assert found.upper == pytest.approx(max(0, 1 - features / (points // 2)))
                assert found.upper - found.lower <= 1e-15


@pytest.mark.parametrize(("points", "dim"), [(9, 1), (12, 2), (16, 3)])
@pytest.mark.parametrize("eps", [0.01, 0.25, 0.5, 2.0])
def test_features_for_a_tolerance(points: int, dim: int, eps: float) -> None:
    found = af.bounds.sets(points, dim, 0, eps)
    assert found.features_needed is not None and found.features_sufficient is not None
    assert found.features_needed <= found.features_sufficient <= found.terms
    assert af.bounds.sets(points, dim, found.features_sufficient).upper <= eps
    assert af.bounds.sets(points, dim, found.features_needed).sharper_lower <= eps
    if found.features_needed:
        assert af.bounds.sets(points, dim, found.features_needed - 1).sharper_lower > eps
    if found.features_sufficient:
        assert af.bounds.sets(points, dim, found.features_sufficient - 1).upper > eps


@pytest.mark.parametrize(("points", "dim"), [(8, 1), (9, 1), (5, 2), (4, 3)])
def test_pairs_and_power_sums_are_one_function(points: int, dim: int) -> None:
    g = HardSet(points, dim)
    X = g.sample(2000, seed=1)
    whole = by_power_sums(g, X)
    assert np.abs(g.by_pairs(X) - whole).max() < 1e-12
    np.testing.assert_allclose(np.abs(X), 1, atol=1e-12)


@pytest.mark.parametrize(("points", "dim"), [(8, 1), (5, 2), (4, 3)])
def test_the_error_of_the_best_terms_by_sampling(points: int, dim: int) -> None:
    g = HardSet(points, dim)
    X = g.sample(20_000, seed=2)
    whole = by_power_sums(g, X)
    for features in range(g.terms + 1):
        missing = np.abs(whole - by_power_sums(g, X, features)) ** 2
        expected = af.bounds.sets(points, dim, features).upper
        assert abs(missing.mean() - expected) <= 5 * missing.std() / math.sqrt(len(X)) + 1e-12


def test_power_sums_of_unitary_eigenvalues() -> None:
    """E|p_k|² = min(k, N), E p_1² conj(p_2) = 0: products of low degree only, the others have heavy tails."""
    X = HardSet(6, 1).sample(20_000, seed=4)[:, :, 0]
    p = {k: np.sum(X**k, axis=1) for k in range(1, 9)}
    for k in p:
        assert np.mean(np.abs(p[k]) ** 2) == pytest.approx(min(k, 6), rel=0.06)
    assert abs(np.mean(p[1] ** 2 * p[2].conj())) < 0.05


def test_a_matrix_that_is_not_positive_is_told() -> None:
    one = Fraction(1)
    assert _positive([[2 * one, one], [one, one]])
    assert not _positive([[one, one], [one, one]])
    assert not _positive([[one, 2 * one], [2 * one, one]])
    assert not _positive([[-one]])
    low, high = least_eigenvalue((2, 2), 7)
    X, weights = inverse_form((2, 2), 7)
    for theta, good in ((1 / low, True), (1 / high * (1 - Fraction(1, 10**6)), False)):
        shifted = [
            [(w * theta if i == j else Fraction(0)) - x for j, x in enumerate(row)]
            for (i, row), w in zip(enumerate(X), weights, strict=True)
        ]
        assert _positive(shifted) is good


@pytest.mark.parametrize(
    "request_",
    [
        {"points": 1, "dim": 1, "features": 1},
        {"points": 8, "dim": 0, "features": 1},
        {"points": 8, "dim": 6, "features": 1},
        {"points": 8, "dim": 2, "features": -1},
        {"points": 8.0, "dim": 2, "features": 1},
        {"points": 8, "dim": 2, "features": 1, "setting": "sphere"},
        {"points": 8, "dim": 2, "features": 1, "setting": "unitary"},
        {"points": 8, "dim": 2, "features": 1, "degree": 3},
        {"points": 8, "dim": 9, "features": 1, "degree": 5},
        {"points": 8, "dim": 2, "features": 1, "eps": math.nan},
        {"points": 8, "dim": 2, "features": 1, "eps": 0.0},
    ],
)
def test_bad_requests_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        af.bounds.sets(**request_)  # type: ignore[arg-type]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bounds", "sets", "--points", "16", "--dim", "3", "--features", "2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads(json.dumps(af.bounds.sets(16, 3, 2).record()))
    assert record["lower"] == pytest.approx(record["constant"] * (1 - 2 / 7), rel=1e-12)
    assert {"upper", "hypotheses", "source", "published", "setting"} <= set(record)
    quoted = {q["name"]: q["value"] for q in af.bounds.sets(20, 16, 512, degree=2).record()["published"]}
    assert quoted["DeepSets"] == pytest.approx((1 - 512 / 1024) / 6)
    assert main(["bounds", "sets", "--points", "16", "--dim", "3", "--features", "2"]) == 0
    assert "proved" in capsys.readouterr().out
    assert main(["bounds", "sets", "--points", "16", "--dim", "9", "--features", "2"]) == 2
    assert "degree" in capsys.readouterr().err
