"""The small checkers, against exact arithmetic written out, and against forged certificates."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction

import numpy as np
import pytest

from attnfun.errors import InvalidRequest, Refuted
from attnfun.limits.embedding import Obstruction, Relevance, check_embedding, check_obstruction
from attnfun.limits.embedding.check import forster_rank, least_dimension
from attnfun.limits.embedding.curve import moments
from attnfun.limits.embedding.obstructions import best_obstruction, cells, counting, forster, radon
from counting import counted
from limits.relations import of_rows, random_sets, subsets


def _exact(relation: Relevance, Q: np.ndarray, D: np.ndarray) -> tuple[int, Fraction]:
    """The smallest gap, and the square of the margin, in Python's integers."""
    gaps, squares = [], []
    longest = max(sum(int(x) ** 2 for x in d) for d in D)
    for i in relation.nontrivial:
        scores = [sum(int(a) * int(b) for a, b in zip(Q[i], d)) for d in D]
        inside = set(relation.rows[i].tolist())
        gap = min(s for j, s in enumerate(scores) if j in inside) - max(
            s for j, s in enumerate(scores) if j not in inside
        )
        gaps.append(gap)
        length = sum(int(x) ** 2 for x in Q[i])
        squares.append(Fraction(gap * abs(gap), max(length * longest, 1)))
    return min(gaps), min(squares)


@pytest.mark.parametrize("size", [4, 20, 26, 31, 45, 61])
def test_the_check_agrees_with_python_integers(size: int) -> None:
    """At all sizes of integers, exact in float64 or not, with ties and near ties."""
    rng = np.random.default_rng(size)
    seen = set()
    for _ in range(60):
        relation = of_rows([(0, 1)], 4)
        D, Q = rng.integers(-(2**size), 2**size, (4, 2)), rng.integers(-(2**size), 2**size, (1, 2))
        if rng.random() < 0.7:  # near ties: irrelevant documents beside relevant ones
            D[2:] = D[:2] + rng.integers(-1, 2, (2, 2))
        gap, square = _exact(relation, Q, D)
        if gap > 0:
            seen.add(True)
            ranking = check_embedding(relation, Q, D)
            assert 0 < ranking.gap <= gap and ranking.gap >= gap * 0.999
            assert 0 < Fraction(ranking.margin) ** 2 <= square
        else:
            seen.add(False)
            with pytest.raises(Refuted):
                check_embedding(relation, Q, D)
    assert seen == {True, False}


def test_python_integers_beyond_int64_are_checked() -> None:
    relation = subsets(9, 2)
    Q, D = moments(relation.core, np.arange(9), 4)
    Q, D = Q * 10**40, D * 10**30
    assert check_embedding(relation, Q, D).gap > 0
    D = D.copy()
    D[3] = D[4]
    with pytest.raises(Refuted):
        check_embedding(relation, Q, D)


@pytest.mark.filterwarnings("error")
def test_integers_whose_squares_no_float_holds_have_margins_that_are_no_larger_and_not_0() -> None:
    """Of any two sizes, rows of a matrix of other sizes too: checked without a warning, or refused as too large."""
    draw, checked = random.Random(4), {"large": 0, "refused": 0}
    relation = of_rows([(0, 1), (2, 3)], 4)
    for _ in range(60):
        sizes = [draw.randint(1, 1100) for _ in range(3)]
        rows = [[draw.getrandbits(size) + 1, -draw.getrandbits(min(40, size))] for size in sizes]
        Q = np.array([rows[0], [-x for x in rows[1]]], object)
        D = np.array([rows[2], [2 * x for x in rows[2]], [0, 0], [-x for x in rows[2]]], object)
        try:
            ranking = check_embedding(relation, Q, D)
        except InvalidRequest:
            checked["refused"] += 1
            assert max(sizes[:2]) + sizes[2] > 1000
            continue
        gap, square = _exact(relation, Q, D)
        assert 0 < ranking.gap <= gap
        assert square * Fraction(99, 100) <= Fraction(ranking.margin) ** 2 <= square
        checked["large"] += max(sizes) > 512
    assert min(checked.values()) > 5


def test_a_tie_of_one_unit_in_huge_integers_is_seen() -> None:
    relation = of_rows([(0,)], 2)
    Q, D = np.array([[2**40, 1]]), np.array([[2**60, 1], [2**60, 0]])
    assert check_embedding(relation, Q, D).gap == 1
    with pytest.raises(Refuted):
        check_embedding(relation, Q, D[[0, 0]])


def test_only_integers_of_the_right_shape_are_checked() -> None:
    relation = subsets(4, 1)
    with pytest.raises(InvalidRequest):
        check_embedding(relation, np.ones((4, 2)), np.ones((4, 2), int))
    with pytest.raises(InvalidRequest):
        check_embedding(relation, np.full((4, 2), np.nan), np.ones((4, 2), int))
    with pytest.raises(InvalidRequest):
        check_embedding(relation, np.ones((3, 2), int), np.ones((4, 2), int))


def test_obstructions_are_verified_and_forgeries_are_not() -> None:
    relation = subsets(8, 2)
    found = radon(relation, 4)
    assert found is not None and check_obstruction(relation, found) == 4
    assert check_obstruction(relation, dataclasses.replace(found, bound=9)) == 4
    assert check_obstruction(relation, dataclasses.replace(found, queries=found.queries[1:])) == 0
    assert check_obstruction(relation, dataclasses.replace(found, documents=(*found.documents, 7))) == 0
    assert check_obstruction(relation, dataclasses.replace(found, documents=(*found.documents[:-1], 0))) == 0
    crossing = cells(relation, 4)
    assert crossing is not None and check_obstruction(relation, crossing) == crossing.bound == 2
    assert check_obstruction(relation, dataclasses.replace(crossing, documents=crossing.documents[1:])) == 0
    assert check_obstruction(relation, dataclasses.replace(crossing, queries=crossing.queries * 2)) == 0
    assert check_obstruction(relation, Obstruction("magic", 7)) == 0


def test_no_obstruction_contradicts_an_embedding() -> None:
    """Relations made from vectors in d dimensions never need more than d."""
    rng = np.random.default_rng(4)
    for trial in range(24):
        d = int(rng.integers(1, 5))
        scores = rng.standard_normal((40, d)) @ rng.standard_normal((d, 25))
        relation = Relevance.from_matrix(scores > rng.normal(size=(40, 1)) * (trial % 3))
        if relation.core.m == 0:
            continue
        for found in (
            best_obstruction(relation, 9),
            radon(relation, 9),
            cells(relation, 9),
            counting(relation),
            forster(relation, 0),
        ):
            assert found is None or found.bound <= d


def test_counting_and_forster_bounds() -> None:
    assert [least_dimension(c, 3) for c in (1, 2, 4, 5, 7, 8)] == [0, 1, 1, 2, 2, 3]
    assert forster_rank(64, 64, 8.0) == 8 and forster_rank(64, 64, 8.0000001) == 8
    assert forster_rank(64, 64, float("inf")) == forster_rank(64, 64, float("nan")) == 0
    assert check_obstruction(subsets(12, 3), Obstruction("counting", 0)) == 3


def test_a_shattered_set_of_five_is_found_among_random_triples() -> None:
    """Seed 0 holds one, which an exhaustive search finds and greed need not."""
    found = radon(random_sets(100, 50, 3, 0), 5)
    assert found is not None and found.bound >= 3


def test_scores_that_float64_does_not_tell_apart_are_compared_row_by_row() -> None:
    """Calls grow with the queries, not with the pairs that are compared in Python's integers."""
    rng = np.random.default_rng(3)
    relation = of_rows([np.sort(rng.choice(300, 3, replace=False)).tolist() for _ in range(40)], 300)
    s = 6
    Q, D = moments(relation.core, np.arange(relation.core.n), s)
    Q, D = relation.core.widen(Q * 10**20, D)
    assert counted(lambda: check_embedding(relation, Q, D)) < 60 * len(relation.rows)
    gap, _ = _exact(relation, Q, D)
    assert gap > 0 and check_embedding(relation, Q, D).gap <= gap
