"""Networks of every verb, trained: heads on tokens, averages, tables, sets and forms; what stays, what is proved."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.kinds import find
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.kinds.matching.view import held_of
from attnfun.learn import Progress
from attnfun.network.store import taken_apart
from attnfun.search import Goal
from products import few

torch = pytest.importorskip("torch")

KEYS = np.linspace(-1, 1, 6)[:, None]
QUICK: dict[str, Any] = {"steps": 8, "batch": 16, "polish": 2}
MAKE: dict[str, Any] = {
    "pairs": lambda: af.matching(5, 6),
    "pairs without self": lambda: af.matching(4, 6, self_allowed=False),
    "triples": lambda: af.matching(3, 5, order=3),
    "one head": lambda: af.lexicographic(5, 2),
    "cascade": lambda: af.lexicographic(50, 2, dtype="float64", method="cascade"),
    "average": lambda: af.sparse_average(6, 2),
    "averages": lambda: af.sparse_average(6, 2, keys="curve", heads=2),
    "table": lambda: af.retrieve("exp(-(x - y)**2)", "x=-1:1", "y=-1:1", KEYS, 1e-2, beta=30.0),
    "sum": lambda: af.set_function("sum(x**2)", 3, "x=-1:1", 0.1),
    "pair sum": lambda: af.set_function("sum(sin(x[i]*x[j]))", 2, "x=-1:1", 0.1),
    "form": lambda: af.ternary("exp(x*y*z)", "x=-1:1;y=0:1;z=-1:1", 1e-2),
    "clip": lambda: af.interpolation(-1, 1, 5),
}
BY_TOKEN = ("pairs", "pairs without self", "triples", "one head", "cascade", "average", "averages")


@cache
def built(name: str) -> Any:
    return MAKE[name]()


def inputs(name: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(4)
    if name in ("pairs", "pairs without self", "triples"):
        return (rng.integers(0, 50, (7, 3)),)
    if name in ("one head", "cascade"):
        return (rng.integers(0, 5, (6, 2)),)
    if name in ("average", "averages"):
        return rng.uniform(-1, 1, 6), [(0, 1), (0, 5), (2, 3), (1, 4), (3, 5), (0, 2)]
    shape = {"sum": (4, 3, 1), "pair sum": (4, 2, 1)}.get(name, (9, 1))
    return (rng.uniform(0, 1, shape),) * (3 if name == "form" else 1)


def arrays(learned: Any) -> list[Any]:
    return list(taken_apart(learned.weights)[1].values())


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True)) and a.history == b.history


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", few(MAKE, 5))
def test_every_network_is_trained_at_random_and_compared_with_itself(name: str, tmp_path: Path) -> None:
    net = built(name)
    learned = af.train(net, **QUICK, seed=3)
    assert learned.architecture == net.architecture and learned.cost.parameters > 0
    assert learned.fit.best_step > 0 and min(row.loss for row in learned.history) < learned.history[0].loss
    assert learned(*inputs(name)).shape == net(*inputs(name)).shape
    table = af.compare(net, learned)
    assert table.entries[1].sup == learned.sampled.error[1] and table.entries[1].steps == 10
    assert learned.sampled.status is af.Status.SAMPLED and "largest error at" in (learned.sampled.reason or "")
    assert type(learned) is type(net)
    if name in ("form", "clip"):
        assert learned.certificate.status is af.Status.BOUNDED
        assert learned.certificate.error[1] >= learned.sampled.error[1] * (1 - 1e-12)
    else:
        assert learned.certificate.status is af.Status.SAMPLED and "not proved: " in (learned.certificate.reason or "")
    if name not in ("pairs", "table", "form"):  # a kind of problem each
        return
    path = tmp_path / "run.safetensors"

    def stop(progress: Progress) -> None:
        if progress.row.step == 5:
            raise Killed

    with pytest.raises(Killed):
        af.train(net, **QUICK, seed=3, checkpoint=path, progress=stop)
    assert same(learned, af.train(net, **QUICK, seed=3, checkpoint=path))


@pytest.mark.parametrize("name", MAKE)
def test_the_constructed_weights_are_a_start_with_the_constructed_answers(name: str) -> None:
    net, given = built(name), inputs(name)
    learned = af.train(net, start="constructed", steps=0)
    np.testing.assert_allclose(learned(*given), net(*given), rtol=0, atol=1e-9)
    proved = af.compare(net).entries[0].bound
    assert proved is None or learned.history[0].sup <= proved
    onward = af.train(learned, start=learned, steps=2, batch=4, lr=1e-12)
    assert onward.history[0].sup == learned.history[0].sup and onward.fit.start == "given"


def test_the_checkers_prove_the_constructed_weights_and_not_those_that_moved() -> None:
    for name in BY_TOKEN:
        net = built(name)
        kept = af.train(net, start="constructed", steps=0)
        assert kept.certificate.status is af.Status.BOUNDED
        assert kept.certificate.error[1] == pytest.approx(net.certificate.error[1], rel=1e-9)
        moved = replace(net.network, readout=2 * net.network.readout)
        weights = moved if net.network is net.weights else replace(net.weights, network=moved)
        found = find(net.target.kind).loaded("prover")(net.target, weights, Goal(), print)
        assert found.high == np.inf and found.reason
    for name in ("pairs", "triples"):
        moved = af.train(built(name), start="constructed", steps=3, batch=8, lr=1e-3)
        assert moved.fit.best_step > 0 and moved.certificate.status is af.Status.SAMPLED
    form = af.train(built("form"), start="constructed", steps=30, lr=1e-4)
    X = np.random.default_rng(5).uniform((-1, 0, -1), 1, (500, 3))
    gap = np.abs(form(*X.T) - np.exp(X.prod(axis=1))).max()
    assert gap <= form.certificate.error[1] and form.certificate.construction == "learned"


@pytest.mark.parametrize("name", ["pairs", "pairs without self", "triples", "cascade"])
def test_gates_and_constant_tokens_stay_as_they_were_built(name: str) -> None:
    net = built(name)
    learned, own = af.train(net, steps=6, batch=16, lr=0.1), dict(net.network.arrays())
    mine = dict(learned.network.arrays())
    token: dict[str, Any] = {"constants": (None, np.zeros(net.network.constants.shape, dtype=bool))}
    held = token if name == "cascade" else held_of(net.target, net.network)
    assert learned.fit.best_step > 0 and "constants" in held
    for part, (_, free) in held.items():
        assert np.array_equal(mine[part][~free], own[part][~free])
        assert part == "constants" or (mine[part][free] != own[part][free]).any()


def test_a_trained_head_over_a_table_hands_out_the_same_values() -> None:
    net = built("table")
    learned = af.train(net, steps=20, batch=64, lr=0.03)
    last, built_ = learned.network.heads[-1], net.network.heads[-1]
    assert np.array_equal(last.values, built_.values) and not last.axes[0].biases.any()
    assert not np.array_equal(last.axes[0].slopes, built_.axes[0].slopes)
    X = np.linspace(-1, 1, 50)[:, None]
    weights = learned.attention(X)
    np.testing.assert_allclose(weights @ net.weights.values, learned(X), rtol=0, atol=1e-9)
    np.testing.assert_allclose(learned.exact(X), net(X), rtol=0, atol=0.2)
    assert np.array_equal(learned.top(X), weights.argmax(axis=1))
    assert "queries whose most attended key is not the best" in learned.sampled.reason
    narrow = af.retrieve("exp(-(x-y)**2)", "x=-1:1", "y=-1:1", [[0.0], [1.0]], 1e-2, beta=9.0, features_only=True)
    with pytest.raises(af.InvalidRequest, match="no tower"):
        af.train(narrow, steps=1)


def test_a_form_is_trained_as_three_perceptrons_too() -> None:
    form = built("form")
    learned = af.train(form, widths=(8,), rank=3, steps=80, batch=32, lr=0.02)
    assert len(learned.weights.networks) == 3 and learned.rank == 3
    assert learned.history[-1].loss < 0.2 * learned.history[0].loss
    assert len(af.compare(form, learned).entries) == 2
    X, Y, Z = inputs("form")
    a, b, c = (learned.weights.values(k, one) for k, one in enumerate((X, Y, Z)))
    np.testing.assert_allclose((a * b * c).sum(axis=1), learned(X, Y, Z), rtol=0, atol=1e-12)
    with pytest.raises(af.InvalidRequest, match="2 given; needed: X, Y, Z"):
        learned(X, Y)


@pytest.mark.parametrize(("name", "ffn"), few([("cascade", 3), ("triples", 0), ("neighbours", 3)], 2))
def test_a_head_s_task_is_learned_in_a_shape_of_one_s_own(name: str, ffn: int, tmp_path: Path) -> None:
    net = af.neighbours(4, 3, "random_heads", heads=2) if name == "neighbours" else built(name)
    given = (np.eye(4)[None, :3],) if name == "neighbours" else inputs(name)
    own = net.network
    options: dict[str, Any] = {"layers": 2, "heads": 2, "rank": 2, "width": own.width + 1, "ffn": ffn}
    shape = af.TokenArchitecture.plain(own.coordinates, own.outputs, **options)
    learned = af.train(shape, net, **QUICK)
    assert learned.architecture == shape and learned(*given).shape == net(*given).shape
    assert learned.certificate.status is af.Status.SAMPLED and len(af.compare(net, learned).entries) == 2
    learned.save(tmp_path / "h.safetensors")
    back = af.load(tmp_path / "h.safetensors")
    assert np.array_equal(back(*given), learned(*given))
    onward = af.train(back, steps=2, batch=4)  # nothing of such a shape is held
    assert onward.architecture == shape and not np.array_equal(arrays(onward)[0], arrays(learned)[0])
    with pytest.raises(af.InvalidRequest, match="coordinates"):
        af.train(af.TokenArchitecture.plain(("a", "b"), own.outputs), net, steps=1)


@pytest.mark.parametrize("name", BY_TOKEN)
def test_draws_are_of_the_domain_and_wanted_is_the_exact_target(name: str) -> None:
    net = built(name)
    target = net.target
    drawn = target.draw(np.random.default_rng(1), 200)
    wanted, out = target.exact(*drawn), net(*drawn)
    assert out.shape == wanted.shape and target.errors(out, wanted).max() <= net.certificate.error[1]
    if name in ("pairs", "pairs without self", "triples"):
        assert 0.1 < wanted.mean() < 0.95
    given = inputs(name)
    np.testing.assert_allclose(target.exact(*given), net.exact(*given), atol=1e-12)
    if name in ("one head", "cascade"):
        assert tuple(net.exact(*given)) == max(map(tuple, given[0].tolist()))
    wrong = target.wrong(out, wanted)
    assert wrong is None or not wrong.any()
    assert wrong is None or target.wrong(np.full(wanted.shape, np.nan), np.ones(wanted.shape)).all()
    assert not np.isfinite(target.errors(np.full(wanted.shape, np.inf), wanted)).any()


def test_ties_in_first_coordinates_are_drawn() -> None:
    (keys,) = BestKey(1000, 3).draw(np.random.default_rng(0), 200)
    few = [len(np.unique(one[:, 0])) <= 2 for one in keys]
    assert 0.3 < np.mean(few) < 0.7


def test_a_network_that_does_not_fit_the_kind_of_the_target_is_refused_in_one_sentence() -> None:
    clip, table, form, total = (built(name) for name in ("clip", "table", "form", "sum"))
    fit = ((clip, total), (clip.network, total), ("a word", table), (clip.architecture, form), ("a word", clip))
    for net, target in fit:
        with pytest.raises(af.InvalidRequest, match=r"trained towards|learned by"):
            af.train(net, target, steps=1)


def test_what_has_no_network_and_what_does_not_fit_is_refused() -> None:
    nothing = (
        af.preorder(utility="x", right="x=0:1"),
        af.finite_preorder([[1, 1], [0, 1]]),
        af.embed_dim([[1, 0], [0, 1]]),
        af.rank_of([[1.0, 0.0], [0.0, 1.0]], 0.1),
        "a word",
    )
    for odd in nothing:
        with pytest.raises(af.InvalidRequest, match="nothing in it can be trained"):
            af.train(odd, steps=1)
    pairs, table, form = built("pairs"), built("table"), built("form")
    for net in (pairs, table, form):
        for odd in ({"noise": 0.1}, {"start": "warm"}, {"start": built("sum")}, {"target": "x"}, {"domain": "x=0:1"}):
            with pytest.raises(af.InvalidRequest):
                af.train(net, steps=1, **odd)
    for net, odd in ((pairs, {"widths": (4,)}), (table, {"rank": 2}), (form, {"rank": 2})):
        with pytest.raises(af.InvalidRequest):
            af.train(net, steps=1, **odd)
    for other in (built("triples"), built("form")):
        with pytest.raises(af.InvalidRequest, match="one target"):
            af.compare(pairs, other)
    learned = af.train(pairs, steps=1, batch=4)
    for odd in ((), ([0.5],), ([[[1]]],), ([1] * 6,)):
        with pytest.raises(af.InvalidRequest):
            learned(*odd)


@pytest.mark.parametrize(
    "odd", [{"checkpoint": 5}, {"lipschitz": "a"}, {"lipschitz": True}, {"lipschitz": float("nan")}], ids=str
)
def test_odd_options_are_sentences(odd: dict[str, Any]) -> None:
    def opaque(x: Any) -> Any:
        return np.array([float(v) for v in x])

    with pytest.raises(af.InvalidRequest):
        af.train(af.Architecture.one_head(("x",), 3), opaque, "x=0:1", steps=1, **{"lipschitz": 2.0, **odd})


@pytest.mark.parametrize("shape", [(3, 2), (7,), (400, 2, 2), (0,)], ids=str)
def test_a_black_box_of_the_wrong_shape_is_a_sentence(shape: tuple[int, ...]) -> None:
    def odd(x: Any) -> Any:
        float(np.asarray(x).sum())
        return np.ones(shape)

    with pytest.raises(af.InvalidRequest, match=r"shape|give|to 1 output"):
        af.train(af.Architecture.one_head(("x",), 3), odd, "x=0:1", steps=1, lipschitz=2.0)
