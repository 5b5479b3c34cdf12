"""af.preorder: what a report says, which utility it offers, and when it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.limits.preorders.target import Preorder

SQUARE = "x=0:1;y=0:1"


def lexicographic(a: Any, b: Any) -> bool:
    return tuple(a) >= tuple(b)


def test_the_lexicographic_order_is_refused_with_a_witness_and_what_would_do() -> None:
    report = af.preorder(lexicographic, right=SQUARE)
    assert report.status == "violated" and report.check() and report.lexicographic == ("x", "y")
    assert [f.status for f in report.findings.values()][:3] == ["sampled"] * 3
    for ask in (lambda: report.utility([0.5, 0.5]), lambda: report.rank(0.1), report.require):
        with pytest.raises(af.NoUtility, match="not key-continuous") as why:
            ask()
    assert why.value.witness.check(report.preorder)
    nearest = why.value.nearest
    assert nearest is not None
    for way in ("grid", "cascade"):
        assert af.lexicographic(**nearest[way]).record()["status"] == "proved"
    assert af.preorder(utility=nearest["utility"], right=SQUARE).status == "proved"
    assert 0 < nearest["misordered"] < 0.01


def test_a_jump_for_some_queries_only_is_found() -> None:
    def sometimes(q: Any, a: Any, b: Any) -> bool:
        return tuple(a) >= tuple(b) if q[0] > 0.2 else bool(a.sum() >= b.sum())

    report = af.preorder(sometimes, queries="q=0:1", keys=SQUARE, net=False)
    assert report.status == "violated" and report.check()
    assert all(w.queries[0][0] > 0.2 for w in report.witnesses if w.kind == "jump")


def test_a_well_behaved_callable_gets_a_continuous_utility_that_agrees() -> None:
    def nearer(q: Any, a: Any, b: Any) -> bool:
        return bool(abs(a[0] - q[0]) <= abs(b[0] - q[0]))

    report = af.preorder(nearer, left="q=0:1", right="k=0:1", trials=10)
    assert report.status == "sampled" and report.net is not None and report.agreement is not None
    agreement = report.agreement
    assert agreement.low <= agreement.share <= agreement.high and agreement.share > 0.9
    assert agreement.pairs + agreement.ties == 1000
    keys = np.linspace(0, 1, 400)
    near, far = report.utility(0.5, keys), report.utility(0.5 + 1e-9, keys + 0.0)
    assert isinstance(near, np.ndarray) and isinstance(far, np.ndarray)
    assert near.shape == (400,) and near.min() >= 0 and near.max() <= 1
    assert np.abs(near - far).max() < 1e-6 and np.abs(np.diff(near)).max() < 0.05
    assert np.ndim(report.utility(0.5, 0.25)) == 0
    assert 1 < report.rank(0.1).rank <= report.net.table.shape[0]
    with pytest.raises(af.InvalidRequest, match="callable"):
        report.relation(1e-3)
    assert "proved" not in {f.status for f in report.findings.values()}


def test_the_net_orders_its_own_points_exactly_ties_included() -> None:
    def steps(a: Any, b: Any) -> bool:
        return bool(round(3 * a[0]) + a[1] >= round(3 * b[0]) + b[1])

    from attnfun.limits.preorders.net import product_grid, ranked

    preorder = Preorder.read(None, steps, SQUARE, None)
    grid = product_grid(preorder.keys, 4)
    ranks, _ = ranked(preorder, None, grid)
    score = np.array([round(3 * k[0]) + k[1] for k in grid])
    assert np.array_equal(np.sign(ranks[:, None] - ranks), np.sign(score[:, None] - score))
    assert len(np.unique(ranks)) < len(ranks) and ranks.mean() == pytest.approx(0.5)


def test_an_expression_is_proved_and_its_relation_too() -> None:
    report = af.preorder(utility="exp(-2*(q-k)**2) + sin(5*q)", left="q=0:1", right="k=0:1")
    assert report.status == "proved" and report.witnesses == () and report.net is None
    towers = report.relation(1e-3)
    assert towers.certificate.status == "proved" and "sin" not in towers.target.text
    alone = af.relation("exp(-2*(q-k)**2)", "q=0:1", "k=0:1", 1e-3)
    assert towers.rank == alone.rank  # sin(5 q) alone would cost one more
    Q, K = np.array([[0.3]]), np.linspace(0, 1, 9)[:, None]
    utility = report.utility([0.3], K)
    assert np.array_equal(np.argsort(towers(Q, K)[0]), np.argsort(utility))


@pytest.mark.parametrize(
    ("utility", "left"), [("sin(3*k) - k**2", None), ("q**2 + sin(k)", "q=0:1"), ("k - (exp(q) - 2)", "q=0:1")]
)
def test_a_preorder_that_no_query_changes_has_rank_one(utility: str, left: str | None) -> None:
    report = af.preorder(utility=utility, left=left, right="k=0:1")
    assert "rank 1" in report.note and report.relation(1e-3).rank == 1


@pytest.mark.parametrize(
    "utility", ["q**2 - (k - q)", "-(q - (k*q - sin(q))) + 3", "k*q/(1+q) - exp(q) + k", "-(-(q+k))", "2*(q+k)", "q"]
)
def test_addends_of_the_query_alone_change_no_difference(utility: str) -> None:
    preorder = Preorder.read(utility, None, "k=0:1", "q=0:1")
    short = Preorder(preorder.keys, preorder.queries, preorder.essential())
    rng = np.random.default_rng(0)
    for _ in range(20):
        q, K = rng.random(1), rng.random((2, 1))
        assert np.diff(preorder.values(q, K)) == pytest.approx(np.diff(short.values(q, K)), abs=1e-14)


def test_keys_that_do_not_matter_have_no_relation() -> None:
    report = af.preorder(utility="sin(q)", left="q=0:1", right="k=0:1")
    assert report.status == "proved"
    with pytest.raises(af.InvalidRequest, match="indifferent"):
        report.relation(1e-3)


def test_a_product_with_the_query_is_not_called_separable() -> None:
    report = af.preorder(utility="q*k + k", left="q=-2:0", right="k=0:1")
    assert report.note == "" and report.status == "proved"
    keys = np.array([[0.2], [0.8]])
    low, high = report.utility([-2.0], keys), report.utility([0.0], keys)
    assert np.sign(np.diff(low)) == -np.sign(np.diff(high))  # type: ignore[arg-type]


def test_a_utility_that_jumps_is_probed_and_its_preorder_may_still_be_continuous() -> None:
    jump = af.preorder(utility="sign(x - 0.5) + y/2", right=SQUARE)
    assert jump.status == "violated" and jump.check() and "jumps" in jump.note
    with pytest.raises(af.NoUtility):
        jump.relation(1e-2)
    harmless = af.preorder(utility="x + sign(x - 0.3)", right="x=0:1", trials=5)
    assert harmless.status == "sampled" and not harmless.witnesses


def test_a_traced_function_is_a_utility() -> None:
    report = af.preorder(utility=lambda q, k: -((q - k) ** 2), left="q=0:1", right="k=0:1")
    assert report.status == "proved"


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"right": "k=0:1"},
        {"utility": "k"},
        {"utility": "k", "right": "k=0:1", "keys": "k=0:1"},
        {"utility": "k", "right": "k=0:1", "left": "k=0:1"},
        {"utility": "m", "right": "k=0:1"},
        {"utility": "k", "prefers": lexicographic, "right": "k=0:1"},
        {"utility": 5, "right": "k=0:1"},
        {"prefers": 5, "right": "k=0:1"},
        {"prefers": lexicographic, "right": "k=0:1", "budget": 3},
        {"prefers": lexicographic, "right": "k=0:1", "seed": -1},
        {"prefers": lexicographic, "right": "k=0:1", "trials": True},
        {"utility": "1/k", "right": "k=-1:1"},
        {"utility": "log(k)", "right": "k=0:1"},
        {"utility": ["k", "k"], "right": "k=0:1"},
    ],
)
def test_requests_that_are_none(request_: dict[str, Any]) -> None:
    with pytest.raises(af.InvalidRequest):
        af.preorder(**request_)


def test_points_that_are_none() -> None:
    report = af.preorder("q*k", left="q=0:1", right="k=0:1")
    for points in ([0.5], (2.0, 0.5), (0.5, 2.0), (0.5, "a"), ([[0.1], [0.2]], 0.5), (0.5, np.nan), (0.5, 0.5, 0.5)):
        with pytest.raises(af.InvalidRequest):
            report.utility(*points)


def test_finite_comparisons() -> None:
    found = af.finite_preorder([(0, 1), (1, 2), (3, 2)])
    assert found.status == "proved" and found.check() and found.levels is not None
    assert found.levels.tolist() == [2, 1, 0, 1]
    cycle = af.finite_preorder([(0, 1), (1, 2), (2, 0), (3, 2)])
    assert cycle.status == "violated" and set(cycle.cycle) == {0, 1, 2} and cycle.check()


def test_the_verbs_stay_verbs_when_their_modules_are_loaded() -> None:
    assert af.LexicographicHead.__name__ and af.PreorderReport.__name__
    assert callable(af.lexicographic) and callable(af.preorder)
