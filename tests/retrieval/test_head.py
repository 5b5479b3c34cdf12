"""Heads over keys attacked: no certificate below what is seen, at any temperature, for spoilt and forged weights."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb
from safetensors import safe_open
from safetensors.numpy import save_file

import attnfun as af
from attnfun.certify import Certificate, Status
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.retrieval.prove_bounds import places_of, query_margin, query_margins
from attnfun.kinds.retrieval.weights import RetrievalWeights
from attnfun.language import BallAlgebra, precision, run
from attnfun.language.enclosures import point_balls
from attnfun.network import local_plan
from attnfun.search import Goal, certified
from products import pairs

ONE = {"x": (0.0, 1.0)}, {"y": (0.0, 1.0)}
ODD = {"x": (-0.7, 2.1)}, {"y": (-0.7, 2.1)}
TWO = {"x1": (0.0, 1.0), "x2": (0.0, 1.0)}, {"y1": (0.0, 1.0), "y2": (0.0, 1.0)}
CASES = {
    "gauss": ("exp(-2*(x-y)**2)", *ONE, 1e-4, {"symmetric": True}),
    "nearest": ("x*y - y**2/2", *ODD, 1e-6, {}),
    "rank one": ("x*y", {"x": (0.1, 2.0)}, {"y": (0.0, 1.0)}, 1e-6, {}),
    "signed": ("tanh(4*x*y - 1)", *ONE, 1e-3, {"symmetric": True, "signed": True}),
    "skew": ("tanh(3*(x-y))", *ONE, 1e-3, {}),
    "large": ("1000*cos(x-y)", *ONE, 1e-2, {}),
    "plane": ("exp(-2*((x1-y1)**2+(x2-y2)**2))", *TWO, 1e-3, {"symmetric": True}),
    "polynomials": ("exp(x*y)", *ONE, 1e-5, {"features_only": True}),
}


@lru_cache
def built(name: str) -> af.RelationApproximant:
    target, left, right, eps, options = CASES[name]
    return af.relation(target, left, right, eps, **{"method": "polynomial"} | options)


def exact(target: Relation, x: np.ndarray, weights: RetrievalWeights) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Utilities, softmax and output at one query, in balls, as the nearest doubles."""
    with precision(240 + max(0, math.frexp(weights.beta)[1])):  # so that β times a radius is small
        env = {n: point_balls(x[k : k + 1])[0] for k, n in enumerate(target.left.names)}
        env |= {n: point_balls(weights.points[:, k]) for k, n in enumerate(target.right.names)}
        value = np.asarray(run(target.graph, BallAlgebra(), env)[0], dtype=object)
        u = np.broadcast_to(value, (weights.keys,))
        top = max(u, key=float)
        terms = [((b - top) * arb(weights.beta)).exp() for b in u]
        total = sum(terms, arb(0))
        out = []
        for column in weights.values.T:
            out.append(float(sum((t * arb(float(v)) for t, v in zip(terms, column, strict=True)), arb(0)) / total))
        assert np.isfinite(out).all()
        return np.array([float(b) for b in u]), np.array([float(t / total) for t in terms]), np.array(out)


def assert_sound(head: af.Retrieval, certificate: Certificate, X: np.ndarray, torch_too: bool = False) -> None:
    """No query of X shows an error above what is proved."""
    details, beta, n = certificate.details, head.beta, head.weights.keys
    bound = dataclasses.replace(head, certificate=certificate).bound
    assert bound is not None
    outs = [head(X)]
    if torch_too and not head.relation.features_only:
        import torch

        outs.append(head.to_torch()(torch.tensor(X)).numpy().reshape(len(X), -1))
    scores, attention = head.scores(X), head.attention(X)
    for i, x in enumerate(X):
        u, w, v = exact(head.relation.target, x, head.weights)
        assert np.abs(scores[i] - u).max() <= certificate.error[1] * (1 + 1e-12)
        for out in outs:
            assert np.abs(out[i] - v).max() <= details["output_error"] + 1e-16 * np.abs(v).max()
        assert np.abs(attention[i] - w).sum() / 2 <= bound.tv + 1e-15
        assert u.max() - u[np.argmax(scores[i])] <= bound.regret + 1e-15 * np.abs(u).max()
        assert attention[i] @ (u.max() - u) <= bound.softmax_regret * (1 + 1e-12) + n * 1e-16 / beta


@pytest.mark.parametrize(("name", "beta"), pairs(list(CASES), [1e-200, 1e-3, 1.0, 40.0, 1e4, 1e12, 1e300]))
def test_no_query_is_beyond_the_certificate_at_any_temperature(name: str, beta: float) -> None:
    found = built(name)
    rng = np.random.default_rng(4)
    box = found.target.right
    Y = np.concatenate([box.probe(4, rng), box.sample(14, rng)])  # corners and edges among them
    values = 1000.0 + rng.normal(size=(len(Y), 2))
    head = af.retrieve(found, keys=Y, values=values, beta=beta, queries=10)
    assert head.certificate.status is Status.PROVED
    assert_sound(head, head.certificate, found.target.left.probe(5, rng), torch_too=beta == 40.0)


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("name", ["gauss", "nearest", "plane"])
def test_spoilt_key_vectors_are_seen_by_the_proof(name: str, size: float) -> None:
    found = built(name)
    rng = np.random.default_rng(8)
    head = af.retrieve(found, keys=found.target.right.sample(12, rng), beta=30.0, queries=10)
    K = head.weights.vectors
    spoilt = dataclasses.replace(head.weights, vectors=K + size * np.abs(K).max() * rng.normal(size=K.shape))
    assert certified(head.target, spoilt, Goal()).status is Status.BOUNDED
    again = certified(head.target, spoilt, Goal(head.certificate.eps))
    assert again.error[1] > head.certificate.error[1]
    assert_sound(dataclasses.replace(head, weights=spoilt), again, found.target.left.probe(6, rng))


def test_vectors_of_other_keys_or_of_another_temperature_are_not_within_eps() -> None:
    found = built("gauss")
    head = af.retrieve(found, keys=np.linspace(0, 1, 9), beta=30.0, queries=10)
    for forged in (
        dataclasses.replace(head.weights, vectors=head.weights.vectors[::-1]),
        dataclasses.replace(head.weights, beta=31.0),
        dataclasses.replace(head.weights, points=head.weights.points * 0.9),
    ):
        verdict = certified(head.target, forged, Goal(1e-4))
        assert verdict.status is Status.REFUTED and verdict.error[0] > 1e-4
    outside = dataclasses.replace(head.weights, points=head.weights.points * 2)
    verdict = certified(head.target, outside, Goal(1e-4))
    assert verdict.status is Status.UNDECIDED and "outside" in str(verdict.reason)


def test_a_temperature_that_overflows_is_refused() -> None:
    found = built("large")
    with pytest.raises(af.AttnfunError):
        af.retrieve(found, keys=np.linspace(0, 1, 5), beta=1e307, queries=5)


def test_one_key_is_handed_out_exactly_up_to_rounding() -> None:
    head = af.retrieve(built("gauss"), keys=[0.25], queries=5)
    assert head.certificate.details["tv"] == 0 and head.certificate.details["output_error"] < 1e-13
    assert head([[0.7]])[0, 0] == pytest.approx(0.25, abs=1e-13)
    assert head.study is not None and head.study.failures == 0


def test_equal_keys_are_counted_and_only_unequal_values_tie() -> None:
    keys = np.array([0.2, 0.2, 0.8])
    same = af.retrieve(built("gauss"), keys=keys, beta=50.0, queries=200)
    assert same.duplicates == 1 and same.study is not None and same.study.failures < 50
    apart = af.retrieve(built("gauss"), keys=keys, values=[1.0, 2.0, 3.0], beta=50.0, queries=200)
    assert apart.study is not None and apart.study.failures > 80  # wherever 0.2 is nearest
    assert not apart.at([0.2]).proved and same.at([0.2]).proved


def test_no_head_of_rank_one_has_another_route() -> None:
    """The proof counts the dense route alone."""
    rng = np.random.default_rng(0)
    for keys in ([0.3], [0.0, 1.0], np.linspace(0, 1, 40), rng.random(7)):
        head = af.retrieve(built("rank one"), keys=np.sort(keys), beta=1e6, queries=5)
        assert head.relation.rank == 1
        assert local_plan(head.network.layers[-1].attention[0]) is None


@pytest.mark.parametrize("name", ["gauss", "plane", "skew"])
def test_answers_that_are_proved_are_right(name: str) -> None:
    found = built(name)
    rng = np.random.default_rng(2)
    Y = found.target.right.sample(20, rng)
    head = af.retrieve(found, keys=Y, beta=2e3, queries=20)
    proved = 0
    for x in found.target.left.probe(25, rng):
        answer = head.at(x)
        u, _, _ = exact(head.relation.target, x, head.weights)
        second, first = np.sort(u)[-2:]
        assert answer.margin[0] <= first - second + 1e-15 and first - second - 1e-15 <= answer.margin[1]
        if answer.proved:
            proved += 1
            assert answer.key == int(np.argmax(u))
            assert answer.bound.winner_weight is not None and answer.weight >= answer.bound.winner_weight - 1e-12
            assert answer.bound.value_error is not None
            assert np.abs(answer.output - Y[answer.key]).max() <= answer.bound.value_error + 1e-12
    assert proved > 0 or name == "skew"  # tanh is flat: its best key is the least one for every query


def test_intervals_and_balls_enclose_the_same_margins() -> None:
    target = built("plane").target
    rng = np.random.default_rng(1)
    X, Y = target.left.probe(20, rng), target.right.sample(30, rng)
    places = places_of(Y)
    many = query_margins(target, X, Y, places)
    for i, x in enumerate(X):
        one = query_margin(target, x, Y, places)
        assert many.low[i] <= one.high[0] and one.low[0] <= many.high[i]
        assert one.high[0] - one.low[0] <= 1e-15


def test_a_file_is_proved_again_without_its_certificate(tmp_path: Path) -> None:
    head = af.retrieve(built("plane"), keys=np.random.default_rng(0).random((30, 2)), beta=100.0, queries=20)
    path = tmp_path / "head.safetensors"
    head.save(path)
    again = af.verify(path)
    assert again.status is Status.PROVED
    assert (again.error, again.details["tv"]) == (head.certificate.error, head.certificate.details["tv"])
    loaded = af.load(path)
    X = np.random.default_rng(1).random((50, 2))
    assert np.array_equal(loaded(X), head(X)) and loaded.record()["beta"] == 100.0
    bare = tmp_path / "bare.safetensors"
    _rewritten(path, bare, lambda record: [record.pop(k) for k in ("certificate", "story", "request")])
    assert af.verify(bare).error == head.certificate.error  # the eps is in the claim, and cannot be deleted
    nothing = af.load(bare)
    assert nothing.record()["tv"] is None and nothing.bound.tv == head.bound.tv  # proved when it is asked for
    assert nothing.at([0.1, 0.2]).key == head.at([0.1, 0.2]).key


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    head = af.retrieve(built("gauss"), keys=[0.1, 0.9], beta=10.0, queries=5)
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    head.save(path)
    _rewritten(path, other, lambda record: record["weights"].update(outputs=["z"]))
    with pytest.raises(af.DamagedFile):
        af.verify(other)
    with safe_open(path, "np") as file:
        arrays, meta = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()  # noqa: SIM118
    arrays["vectors"] = arrays["vectors"] * (1 + 1e-9)
    save_file(arrays, other, meta)
    with pytest.raises(af.DamagedFile):
        af.load(other)
    whole = path.read_bytes()
    other.write_bytes(whole[:-8])
    with pytest.raises(af.DamagedFile):
        af.verify(other)
    with pytest.raises(af.InvalidRequest):
        af.verify(path, "exp(x*y)")


def _rewritten(path: Path, to: Path, change: Any) -> None:
    with safe_open(path, "np") as file:
        arrays, meta = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()  # noqa: SIM118
    record = json.loads(meta["attnfun"])
    change(record)
    save_file(arrays, to, {"attnfun": json.dumps(record, sort_keys=True, separators=(",", ":"))})


@pytest.mark.slow
def test_a_hundred_thousand_keys() -> None:
    found = built("plane")
    rng = np.random.default_rng(0)
    head = af.retrieve(found, keys=rng.random((100_000, 2)), beta=1e4, queries=100)
    assert head.certificate.status is Status.PROVED
    assert math.isfinite(head.certificate.details["output_error"])
    X = found.target.left.probe(3, rng)
    error = np.abs(head.scores(X) - found.target.table(X, head.weights.points)).max()
    assert error <= head.certificate.error[1]
