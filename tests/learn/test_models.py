"""Towers of relations and networks of neighbours, trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.learn import Progress

torch = pytest.importorskip("torch")


class Killed(Exception):
    pass


def same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    pairs = (pair for one, other in zip(a, b, strict=True) for pair in zip(one.arrays(), other.arrays(), strict=True))
    return all(np.array_equal(x, y) for (_, x), (_, y) in pairs)


@pytest.fixture(scope="module", params=["two", "one", "signed"])
def relation(request: pytest.FixtureRequest) -> af.RelationApproximant:
    if request.param == "signed":
        return af.relation("sin(x + y)", "x=-1:1", "y=-1:1", 1e-2, symmetric=True, signed=True)
    return af.relation("exp(x*y)", "x=-1:1", "y=-1:1", 1e-2, symmetric=request.param == "one")


def test_towers_are_trained_in_their_own_architecture(relation: af.RelationApproximant, tmp_path: Path) -> None:
    request: dict[str, Any] = {"steps": 6, "batch": 32, "polish": 2}
    whole = af.train(relation, **request)
    assert whole.architecture == relation.architecture and len(whole.weights.networks) in (1, 2)
    path = tmp_path / "run.safetensors"

    def stop(progress: Progress) -> None:
        if progress.row.step == 4:
            raise Killed

    with pytest.raises(Killed):
        af.train(relation, **request, checkpoint=path, progress=stop)
    again = af.train(relation, **request, checkpoint=path)
    assert same(whole.weights.networks, again.weights.networks) and whole.history == again.history
    assert not same(whole.weights.networks, af.train(relation, **request, seed=1).weights.networks)


def test_the_constructed_towers_are_a_start_that_gets_no_worse(relation: af.RelationApproximant) -> None:
    learned = af.train(relation, start="constructed", steps=8, batch=64, lr=1e-7)
    X, Y = np.linspace(-1, 1, 9)[:, None], np.linspace(-1, 1, 11)[:, None]
    np.testing.assert_allclose(learned(X, Y), relation(X, Y), rtol=0, atol=1e-3)
    assert min(row.sup for row in learned.history) <= relation.certificate.error[1]
    modules: Any = learned.to_torch().towers
    np.testing.assert_allclose(modules[0](torch.tensor(X)).numpy(), learned.left(X), rtol=0, atol=1e-9)


def test_perceptrons_of_given_widths_learn_a_relation(relation: af.RelationApproximant) -> None:
    learned = af.train(relation, widths=(12, 8), steps=200, batch=64, lr=1e-2)
    assert learned.rank == relation.rank and learned.history[-1].loss < 0.1 * learned.history[0].loss
    assert learned.certificate.status is af.Status.SAMPLED and learned.weights.networks[0].is_mlp
    table = af.compare(relation, learned)
    assert table.entries[0].sup <= (table.entries[0].bound or 0) and table.entries[1].bound is None
    assert table.entries[1].sup == learned.sampled.error[1]


def test_what_towers_cannot_be_is_refused() -> None:
    relation = af.relation("exp(x*y)", "x=-1:1", "y=-1:1", 1e-1)
    learned = af.train(relation, widths=(4,), rank=2, steps=2)
    again = {"start": "constructed", "widths": (4,)}
    shapes = ({"rank": 3}, {"widths": ()}, {"widths": (0,)}, {"widths": (4,), "rank": -2}, {"widths": 5})
    for odd in (*shapes, {"noise": 0.1}, again):
        with pytest.raises(af.InvalidRequest):
            af.train(relation, steps=2, **odd)
    with pytest.raises(af.InvalidRequest):
        af.train(relation, steps=2, start=learned)
    assert same(af.train(learned, start=learned, steps=0).weights.networks, learned.weights.networks)


@pytest.mark.parametrize("which", ["furthest", "nearest"])
def test_random_heads_learn_and_keep_their_rank(which: str, tmp_path: Path) -> None:
    net = af.neighbours(5, 3, "random_heads", heads=3, rank=2, which=which)
    learned = af.train(net, steps=30, batch=64)
    if which == "nearest":
        twice = af.train(net, steps=30, batch=64)
        assert same((learned.network,), (twice.network,)) and learned.history == twice.history
    assert learned.fit.best_step == min(learned.history, key=lambda row: row.loss).step > 0
    q, one = net.network.coordinates.index("q1"), net.network.coordinates.index("one")
    for mine, built in zip(learned.network.heads, net.network.heads, strict=True):
        for array, old in ((mine.query, built.query), (mine.key, built.key)):  # the gate is as it was built
            assert np.array_equal(array[:, -1], old[:, -1])
        assert not np.delete(mine.query[:, :-1], slice(q, q + 5), axis=0).any() and mine.query[one, -1] < 0
        assert not mine.key[5:, :-1].any() and not mine.value[5:].any()
    assert not learned.network.heads[-1].query[:, :-1].any()
    seen, prediction = learned.measured(4000, seed=3), learned.predicted
    assert abs(seen.error - prediction.error) < 6 * (seen.error_se + prediction.uncertainty)
    assert prediction.proved is None and seen.error < 1.0 and net.limit and learned.limit is None
    assert learned.certificate.status is af.Status.SAMPLED and "standard error" in (learned.certificate.reason or "")
    assert learned.certificate.norm == 2.0
    assert len(af.compare(net, learned).entries) == 2
    learned.save(tmp_path / "n.safetensors")
    points = np.eye(5)[None, :3]
    assert np.array_equal(af.load(tmp_path / "n.safetensors")(points), learned(points))


def test_neighbours_of_every_point_are_trained_from_the_construction_too() -> None:
    net = af.neighbours(4, 4, eps=0.2)
    learned = af.train(net, start="constructed", steps=10, batch=64, lr=1e-4)
    assert min(row.loss for row in learned.history) <= learned.history[0].loss
    with pytest.raises(af.InvalidRequest):
        af.compare(net, af.neighbours(5, 4, eps=0.2))
