"""Slices of relations: measured and never proved, said so everywhere, and only where nothing could be proved."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.certify import Status
from attnfun.cli import main
from attnfun.cli.records import model_record
from attnfun.kinds.relation.prove import measured
from attnfun.kinds.relation.target import Relation
from attnfun.search import Goal, certified

ONE = {"x": (0.0, 1.0)}, {"y": (0.0, 1.0)}
FOUR = {f"x{k}": (0.0, 1.0) for k in range(4)}, {f"y{k}": (0.0, 1.0) for k in range(4)}
MANY = "tanh(" + " + ".join(f"x{k}*y{(k + 1) % 4}" for k in range(4)) + " + x0*x1*y2*y3)"


def seen(found: af.RelationApproximant, seed: int, count: int = 4000) -> float:
    sides = (found.target.left, found.target.right)
    X, Y = (box.probe(count, np.random.default_rng(seed + k)) for k, box in enumerate(sides))
    return float(np.abs(found.pairs(X, Y) - found.target.values(X, Y)).max())


@pytest.mark.parametrize(
    ("text", "eps", "most", "options"),
    [
        ("exp(x*y)", 1e-6, 6, {}),
        ("tanh(5*(x-y))", 1e-4, 24, {}),
        ("exp(-2*(x-y)**2)", 1e-8, 10, {"symmetric": True}),
        ("cos(3*(x+y))", 1e-6, 2, {"symmetric": True, "signed": True}),
    ],
)
def test_slices_are_sampled_and_near_the_least_rank(text: str, eps: float, most: int, options: dict) -> None:
    found = af.relation(text, *ONE, eps, method="cross", **options)
    assert found.certificate.status is Status.SAMPLED and found.method == "cross"
    assert found.rank_lower <= found.rank <= most
    assert found.features_only and found.record()["features_only"]
    assert found.certificate.error[1] <= eps and seen(found, 5) <= eps
    assert "not proved" in str(found.certificate.reason)
    assert any("not a bound" in h for h in found.certificate.hypotheses)


def test_auto_samples_where_the_grid_is_out_of_reach_if_asked_to_and_says_so() -> None:
    with pytest.raises(af.Infeasible, match="measured, not proved") as refused:
        af.relation(MANY, *FOUR, 1e-2)
    assert refused.value.nearest == {"accept": "sampled"}
    found = af.relation(MANY, *FOUR, 1e-2, **refused.value.nearest)
    record = model_record(found)
    assert record["status"] == "sampled" and record["method"] == "cross" and record["features_only"]
    assert "8 variables" in record["reason"] and "measured, not proved" in record["reason"]
    assert seen(found, 3) <= 1e-2
    with pytest.raises(af.Infeasible) as refused:
        af.relation(MANY, *FOUR, 1e-2, accept="proved")
    assert "cells" in str(refused.value)


def test_auto_never_samples_what_it_can_prove() -> None:
    for accept in (None, "proved", "sampled"):
        assert af.relation("exp(x*y)", *ONE, 1e-4, accept=accept).certificate.status is Status.PROVED
        assert af.relation("abs(x-y)", *ONE, 1e-1, accept=accept).certificate.status is Status.PROVED
    with pytest.raises(af.Infeasible):  # a coarser eps could be proved: no silent sample
        af.relation("abs(x-y)", *ONE, 1e-5)
    with pytest.raises(af.InvalidRequest):
        af.relation("exp(x*y)", *ONE, 1e-4, method="cross", accept="proved")
    with pytest.raises(af.InvalidRequest):
        af.relation("exp(x*y)", *ONE, 1e-4, accept="guess")


@pytest.mark.slow
def test_a_refused_cross_names_what_was_measured_and_that_succeeds() -> None:
    with pytest.raises(af.Infeasible, match="measured") as refused:
        af.relation("sqrt(abs(x-y))", *ONE, 1e-3, method="cross")
    nearest = refused.value.nearest
    assert nearest is not None and nearest["method"] == "cross"
    assert af.relation("sqrt(abs(x-y))", *ONE, **nearest).certificate.status is Status.SAMPLED


def test_a_file_is_small_and_measured_again_alike(tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    found = af.relation(MANY, *FOUR, 1e-2, method="cross")
    found.save(path)
    assert path.stat().st_size < 40_000 + 16 * found.rank**2 + 128 * found.rank
    first, second, back = af.verify(path), af.verify(path), af.load(path)
    assert first.status is Status.SAMPLED and first.error == second.error == found.certificate.error
    X = found.target.left.probe(40, np.random.default_rng(0))
    Y = found.target.right.probe(40, np.random.default_rng(1))
    assert np.array_equal(back(X, Y), found(X, Y)) and back.features_only
    with pytest.raises(af.InvalidRequest):
        back.left.network  # noqa: B018
    cut = dataclasses.replace(found.weights.left, core=found.weights.left.core * 1.5)
    wrong = dataclasses.replace(found, weights=dataclasses.replace(found.weights, left=cut))
    wrong.save(path)
    assert af.verify(path).status is Status.REFUTED


def test_slices_of_another_relation_are_refuted_or_undecided() -> None:
    made = af.relation("exp(x*y)", *ONE, 1e-4, method="cross").weights
    other = Relation.read("exp(x*y) + 1e-2*sin(9*x)", *ONE)
    judged = certified(other, made, Goal(1e-4))
    assert judged.status is Status.REFUTED and judged.error[0] > 1e-4 and judged.witness is not None
    elsewhere = Relation.read("exp(x*y)", {"x": (0.0, 2.0)}, {"y": (0.0, 1.0)})
    assert certified(elsewhere, made, Goal(1e-4)).status is Status.UNDECIDED


def test_what_is_measured_is_attained() -> None:
    found = af.relation("tanh(5*(x-y))", *ONE, 1e-3, method="cross")
    error, X, Y, tried = measured(found.target, found.weights, 0)
    gaps = np.abs(found.pairs(X, Y) - found.target.values(X, Y))
    assert gaps.max() == pytest.approx(error, rel=1e-9) and tried > 20_000
    assert found.certificate.error == (error, error)


def test_the_command_says_sampled(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    asked = ["relation", "exp(x*y)", "--left", "x=0:1", "--right", "y=0:1", "--eps", "1e-4", "--method", "cross"]
    assert main([*asked, "--json", "-o", str(path)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "sampled" and record["features_only"] and "measured" in record["reason"]
    assert main(["verify", str(path), "--json"]) == 5  # measured: no proof
    assert json.loads(capsys.readouterr().out)["status"] == "sampled"
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "not a bound" in text and "≤" not in text.split("rank")[0]
    assert main(["show", str(path)]) == 0
    assert "sampled" in capsys.readouterr().out
    assert main([*asked, "--accept", "proved"]) == 2
