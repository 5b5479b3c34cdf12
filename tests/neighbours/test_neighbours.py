"""The verb: torch, files, bad input, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.neighbours.sphere import uniform_points

CASES: list[dict[str, Any]] = [
    {"dim": 8, "points": 6, "method": "full_rank", "beta": 50.0},
    {"dim": 8, "points": 6, "method": "full-rank", "beta": 50.0, "which": "nearest"},
    {"dim": 6, "points": 5, "method": "scores", "beta": 50.0},
    {"dim": 6, "points": 3, "method": "tally", "eps": 1e-3},
    {"dim": 6, "points": 3, "method": "majority_vote", "heads": 33, "which": "nearest"},
    {"dim": 6, "points": 3, "method": "random_heads", "heads": 9, "sampler": "compromise"},
    {"dim": 6, "points": 3, "method": "random_heads", "heads": 5, "rank": 3},
    {"dim": 6, "points": 2, "method": "biased", "bias": 0.2, "beta": 30.0},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_torch_and_the_file_give_the_same_network(case: dict[str, Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = af.neighbours(**case)
    points = uniform_points(np.random.default_rng(0), 200, net.points, net.dim)
    out = net(points)
    assert out.shape == {"full_rank": points.shape, "biased": (200,)}.get(net.method, (200, net.dim))
    assert out.shape == net.target.exact(points).shape
    run = net.to_torch()(torch.tensor(net.tokens(points))).numpy()
    run = run if net.method == "full_rank" else run[:, -1, 0] if net.method == "biased" else run[:, -1]
    assert np.mean(np.abs(run - out) <= 1e-6) >= 0.99  # hard choices may part at near ties
    path = tmp_path / "net.safetensors"
    net.save(path)
    again = af.load(path)
    assert isinstance(again, af.Neighbours)
    assert np.array_equal(again(points), out)
    said = net.predicted
    assert again.predicted == replace(said, proved=None, accuracy_proved=None)  # nothing is verified
    assert again.record() | {"predicted": 0} == net.record() | {"predicted": 0}
    assert af.verify(path) == net.certificate and net.certificate.norm == 2.0
    proved = "conditional" if "eps" in case else "bounded"
    assert net.certificate.status == (proved if said.proved is not None else "sampled")


def test_the_same_seed_gives_the_same_bits() -> None:
    a, b, c = (af.neighbours(6, 3, "majority_vote", heads=9, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(x, y) for (_, x), (_, y) in zip(a.network.arrays(), b.network.arrays(), strict=True))
    assert not np.array_equal(a.network.layers[0].heads[0].key, c.network.layers[0].heads[0].key)
    assert a.measured(100, 3) == b.measured(100, 3) != a.measured(100, 4)


@pytest.mark.parametrize(
    "case",
    [
        {"dim": 2},
        {"dim": 5.0},
        {"dim": True},
        {"points": 1},
        {"points": 2},
        {"method": "best"},
        {"method": 3},
        {"which": "middle"},
        {"eps": 0},
        {"eps": float("nan")},
        {"eps": -1.0},
        {"beta": float("inf")},
        {"eps": 0.1, "beta": 3.0},
        {"heads": 4},
        {"bias": 0.2},
        {"rank": 2},
        {"seed": -1},
        {"method": "tally", "points": 4},
        {"method": "scores", "points": 2},
        {"method": "biased", "points": 3},
        {"method": "biased", "points": 2, "bias": 1.0},
        {"method": "majority_vote", "heads": 8},
        {"method": "majority_vote", "beta": 1.0},
        {"method": "random_heads", "rank": 9},
        {"method": "random_heads", "sampler": "none"},
        {"method": "random_heads", "sampler": "compromise", "rank": 2},
        {"method": "random_heads", "heads": 0},
    ],
)
def test_bad_requests_are_refused_in_one_line(case: dict[str, Any]) -> None:
    with pytest.raises(af.InvalidRequest) as refused:
        af.neighbours(**{"dim": 8, "points": 3, **case})
    assert "\n" not in str(refused.value)


def test_what_cannot_be_reached_is_refused_with_what_can() -> None:
    with pytest.raises(af.Infeasible) as refused:
        af.neighbours(8, 3, "random_heads", heads=8, eps=1e-3)
    assert refused.value.nearest is not None
    net = af.neighbours(8, 3, "random_heads", heads=8, eps=refused.value.nearest["eps"])
    assert net.predicted.error is not None and net.predicted.error <= refused.value.nearest["eps"]
    with pytest.raises(af.Infeasible):
        af.neighbours(4096, 3, "random_heads", heads=1000)
    for method, points in (("full_rank", 3), ("biased", 2)):
        with pytest.raises(af.Infeasible) as refused:
            af.neighbours(8, points, method, eps=1e-15)
        assert refused.value.nearest is not None
        af.neighbours(8, points, method, eps=refused.value.nearest["eps"])


def test_the_verb_stays_a_verb_whatever_was_imported_before() -> None:
    from attnfun.kinds.neighbours.view import Neighbours

    assert isinstance(af.neighbours(4, 3, beta=2.0), Neighbours) and af.Neighbours is Neighbours


@pytest.mark.parametrize(
    "points",
    [np.zeros((2, 3, 4)), np.ones((2, 3, 4)), np.ones((3, 4)), np.full((1, 3, 4), np.nan), "points", [[["a"]]]],
)
def test_bad_points_are_refused(points: Any) -> None:
    with pytest.raises(af.InvalidRequest):
        af.neighbours(4, 3, beta=2.0)(points)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    asked = ["neighbours", "--dim", "8", "--points", "4", "--method", "full-rank", "--eps", "1e-2", "-o", str(path)]
    assert main([*asked, "--queries", "2000", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["predicted"]["proved"] <= 1e-2 and record["measured"]["queries"] == 2000
    assert record["rank"] == 8
    assert main(["show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verified"] is False and shown["predicted"]["proved"] is None and shown["claimed"] == "conditional"
    assert shown["error"] == record["error"] == record["predicted"]["proved"]
    assert main(["show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "as stored, not verified" in said and "mean square" in said and "  proved" not in said
    assert main(["verify", str(path)]) == 0 and "conditional" in capsys.readouterr().out
    assert main(["eval", str(path), "--at", "x=1"]) == 2 and "neighbours" in capsys.readouterr().err
    for method in ("scores", "tally", "majority-vote", "random-heads", "biased"):
        assert main(["neighbours", "--dim", "6", "--method", method, "--queries", "200"]) == 0
        assert "predicted" in capsys.readouterr().out
    assert main(["neighbours", "--dim", "6", "--method", "nothing"]) == 2
    assert main(["neighbours", "--dim", "6", "--method", "majority-vote", "--eps", "1e-4"]) == 3
    assert capsys.readouterr().err.count("\n") == 2
