"""Towers that are trained: one tower is symmetric, the same seed gives the same weights, and nothing beats its rank."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.rank import error_lower
from attnfun.kinds.relation.target import Relation

LINE = ((1 - np.cos(np.pi * np.arange(20) / 19)) / 2)[:, None]
FRESH = np.linspace(0, 1, 41)[:, None]


def gaussian() -> Relation:
    return Relation.read("exp(-2*(x - y)**2)", {"x": (0, 1)}, {"y": (0, 1)}, symmetric=True)


def test_one_trained_tower_is_symmetric_learns_and_keeps_to_the_least_error_of_its_rank() -> None:
    pytest.importorskip("torch")
    from attnfun.lab.studies.relations.inner_products import train_inner_product

    relation = gaussian()
    table = relation.table(LINE, LINE)
    found = train_inner_product((LINE, LINE), table, 2, 16, steps=80, polish=30, seed=1, shared=True)
    again = train_inner_product((LINE, LINE), table, 2, 16, steps=80, polish=30, seed=1, shared=True)
    other = train_inner_product((LINE, LINE), table, 2, 16, steps=80, polish=30, seed=2, shared=True)
    scores = found(FRESH, FRESH)
    assert np.allclose(scores, scores.T, rtol=0, atol=1e-12) and found.towers[0] is found.towers[1]
    assert (again(FRESH, FRESH) == scores).all() and (other(FRESH, FRESH) != scores).any()
    error = np.abs(scores - relation.table(FRESH, FRESH)).max()
    assert error_lower(relation, 2) <= error < 0.2
    assert np.mean((found(LINE, LINE) - table) ** 2) == pytest.approx(found.loss, rel=1e-6)
    assert np.allclose(found.pairs(FRESH, FRESH), np.diag(scores))


def test_two_towers_learn_what_is_not_symmetric_and_three_a_trilinear_form() -> None:
    pytest.importorskip("torch")
    from attnfun.lab.studies.relations.inner_products import train_inner_product

    table = np.tanh(2 * (LINE - LINE.T))
    two = train_inner_product((LINE, LINE), table, 3, 16, steps=100, polish=40, activation="relu")
    assert np.abs(two(FRESH, FRESH) - np.tanh(2 * (FRESH - FRESH.T))).max() < 0.2
    cube = LINE[:, None, None, 0] * LINE[None, :, None, 0] * LINE[None, None, :, 0]
    three = train_inner_product((LINE, LINE, LINE), cube, 1, 8, steps=100, polish=40)
    assert np.abs(three(LINE, LINE, LINE) - cube).max() < 0.05
    with pytest.raises(InvalidRequest):
        train_inner_product((LINE, LINE), table.T[:3], 3, 16, steps=1)
