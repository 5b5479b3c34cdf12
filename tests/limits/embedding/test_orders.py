"""The exact orders, against all permutations of small relations."""

from __future__ import annotations

import itertools

import numpy as np

from attnfun.limits.embedding.obstructions import not_a_line
from attnfun.limits.embedding.orders import circular_order, end_order, interval_order, sign_changes
from attnfun.limits.embedding.relevance import Relevance
from limits.relations import intervals, random_table


def _changes(table: np.ndarray, order: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    seen = table[:, list(order)]
    line = (seen[:, 1:] != seen[:, :-1]).sum(axis=1)
    return line, line + (seen[:, 0] != seen[:, -1])


def _intervals(table: np.ndarray, order: tuple[int, ...]) -> bool:
    return all((np.diff(np.flatnonzero(row)) == 1).all() for row in table[:, list(order)])


def test_an_order_is_found_iff_some_permutation_is_one() -> None:
    rng = np.random.default_rng(0)
    seen = {"interval": set(), "circle": set(), "line": set()}
    for _ in range(300):
        relation = Relevance.from_matrix(random_table(rng))
        core = relation.core
        if core.m == 0:
            continue
        orders = list(itertools.permutations(range(core.n)))
        found, failed = interval_order(core.rows, core.n)
        assert (failed == 0) == any(_intervals(core.dense, o) for o in orders)
        assert failed or _intervals(core.dense, tuple(found))
        seen["interval"].add(failed == 0)
        found, failed = circular_order(core)
        assert (failed == 0) == any(_changes(core.dense, o)[1].max() <= 2 for o in orders)
        assert failed or _changes(core.dense, tuple(found))[1].max() <= 2
        seen["circle"].add(failed == 0)
        line = end_order(core)
        assert (line is not None) == any(_changes(core.dense, o)[0].max() <= 1 for o in orders)
        assert line is None or _changes(core.dense, tuple(line))[0].max() <= 1
        assert (line is None) == (not_a_line(relation) is not None)
        seen["line"].add(line is None)
        assert sorted(found) == list(range(core.n))
    assert all(outcomes == {True, False} for outcomes in seen.values())


def test_changes_of_sign_are_counted() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        core = Relevance.from_matrix(rng.random((6, 9)) < 0.4).core
        order = rng.permutation(core.n)
        line, circle = sign_changes(core, order)
        true_line, true_circle = _changes(core.dense, tuple(order))
        assert (line == true_line).all() and (circle == true_circle).all()


def test_many_intervals_of_a_hidden_order_are_found() -> None:
    core = Relevance.from_matrix(intervals(300, 200, 3)).core
    assert interval_order(core.rows, core.n)[1] == 0


def test_rows_that_do_not_fit_leave_the_tree_as_it_was() -> None:
    from attnfun.limits.embedding.orders import PQTree

    rng = np.random.default_rng(2)
    for _ in range(40):
        tree, kept = PQTree(8), []
        for _ in range(12):
            row = rng.choice(8, int(rng.integers(2, 6)), replace=False).tolist()
            if tree.reduce(row):
                kept.append(row)
            order = tree.order()
            place = np.argsort(order)
            assert sorted(order) == list(range(8))
            assert all(np.ptp(place[r]) == len(r) - 1 for r in kept)
