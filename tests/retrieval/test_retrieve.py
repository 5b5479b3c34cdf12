"""The verb and the command: tables, columns and lines, the choice of beta, refusals with what would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main

UTILITY = "exp(-2*((x1-y1)**2+(x2-y2)**2))"
LEFT, RIGHT = {"x1": (0, 1), "x2": (0, 1)}, {"y1": (0, 1), "y2": (0, 1)}
LINE = "x*y - y**2/2", {"x": (0.0, 1.0)}, {"y": (0.0, 1.0)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Forty keys with names, a label, and their columns in another order than the variables."""
    rng = np.random.default_rng(6)
    rows = [f"doc {k},{b:.17g},{k % 7},{a:.17g}" for k, (a, b) in enumerate(rng.random((40, 2)))]
    path = tmp_path / "docs.csv"
    path.write_text("id,y2,label,y1\n" + "\n".join(rows) + "\n")
    return path


def test_columns_are_found_by_name_and_the_rest_may_be_values(table: Path) -> None:
    head = af.retrieve(UTILITY, LEFT, RIGHT, table, 1e-3, symmetric=True, values=table, beta=500.0, queries=50)
    rng = np.random.default_rng(6)
    assert np.array_equal(head.weights.points, rng.random((40, 2)))
    assert head.weights.outputs == ("label",) and head.ids is not None and head.ids[3] == "doc 3"
    answer = head.at(head.weights.points[3])
    assert answer.id == "doc 3" and answer.key == 3
    assert abs(answer.output[0] - 3) <= (answer.bound.value_error or 0) + 1e-12


def test_beta_gives_the_winner_its_weight_at_the_median_margin() -> None:
    rng = np.random.default_rng(0)
    head = af.retrieve(UTILITY, LEFT, RIGHT, rng.random((64, 2)), 1e-4, symmetric=True, queries=301)
    bound = head.bound
    assert bound is not None and bound.winner_weight is not None and head.study is not None
    assert bound.winner_weight >= 0.999 * (1 - 1e-9)
    assert head.study.served >= 150  # half of 301, the median itself included
    X = rng.random((300, 2))
    true = head.relation.target.table(X, head.weights.points)
    top = np.sort(true, axis=1)
    sure = top[:, -1] - top[:, -2] >= head.study.margins["0.5"]
    weights = head.attention(X)[np.arange(300), np.argmax(true, axis=1)]
    assert sure.any() and weights[sure].min() >= 0.999 * (1 - 1e-9)
    wrong = head.top(X) != np.argmax(true, axis=1)
    assert (top[wrong, -1] - top[wrong, -2] <= 2 * head.error).all()


def test_failures_of_fresh_queries_lie_in_the_interval() -> None:
    rng = np.random.default_rng(5)
    keys = rng.random((64, 2))
    head = af.retrieve(UTILITY, LEFT, RIGHT, keys, 1e-2, symmetric=True, queries=1000, beta=10.0, confidence=0.9999)
    true = np.sort(head.relation.target.table(rng.random((20_000, 2)), keys), axis=1)
    rate = np.mean(true[:, -1] - true[:, -2] <= 2 * head.error)
    assert head.study is not None
    low, high = head.study.failure_interval
    assert low <= rate <= high
    assert "note" in head.record() and "margins of at most" in head.record()["note"]


def test_scores_too_coarse_for_the_margins_are_refused_with_an_eps_that_does() -> None:
    keys = np.random.default_rng(0).random((64, 2))
    with pytest.raises(af.Infeasible, match="no beta singles out") as why:
        af.retrieve(UTILITY, LEFT, RIGHT, keys, 1e-2, symmetric=True, queries=200)
    assert why.value.nearest is not None
    head = af.retrieve(UTILITY, LEFT, RIGHT, keys, symmetric=True, queries=200, **why.value.nearest)
    assert head.certificate.status is af.Status.PROVED


def test_ties_everywhere_are_refused_with_a_beta() -> None:
    with pytest.raises(af.Infeasible, match="no best key") as why:
        af.retrieve(*LINE, [0.5, 0.5], 1e-6, values=[1.0, 2.0], queries=50)
    assert why.value.nearest is not None
    head = af.retrieve(*LINE, [0.5, 0.5], 1e-6, values=[1.0, 2.0], queries=50, **why.value.nearest)
    assert head([[0.3]])[0, 0] == pytest.approx(1.5, abs=1e-9) and head.record()["duplicates"] == 1


def test_features_alone_have_no_network_but_the_same_promises() -> None:
    left, right = {f"x{k}": (0, 1) for k in range(4)}, {f"y{k}": (0, 1) for k in range(4)}
    text = "exp(-(" + "+".join(f"(x{k}-y{k})**2" for k in range(4)) + ")/2)"
    keys = np.random.default_rng(0).random((20, 4))
    head = af.retrieve(text, left, right, keys, 1e-3, symmetric=True, features_only=True, beta=100.0, queries=50)
    assert head.record()["features_only"] and head.certificate.details["features_only"]
    with pytest.raises(af.InvalidRequest):
        _ = head.network
    X = np.random.default_rng(1).random((200, 4))
    true = head.relation.target.table(X, keys)
    assert np.abs(head.scores(X) - true).max() <= head.certificate.error[1]
    w = np.exp(100 * (true - true.max(axis=1, keepdims=True)))
    out = (w / w.sum(axis=1, keepdims=True)) @ keys
    assert np.abs(head(X) - out).max() <= head.certificate.details["output_error"]


def test_inner_functions_make_the_certificate_conditional() -> None:
    left, right = {"x1": (0, 1), "x2": (0, 1)}, {"y": (0, 2)}
    found = af.relation("exp(-(sin(x1) + x2**2 - y)**2)", left, right, 1e-4)
    head = af.retrieve(found, keys=np.linspace(0, 2, 9), beta=20.0, queries=50)
    assert head.certificate.status is found.certificate.status
    X = np.random.default_rng(0).random((100, 2))
    true = found.target.table(X, head.weights.points)
    assert np.abs(head.scores(X) - true).max() <= head.certificate.error[1]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("y1,y2\n0.1,0.2\n0.3,nan\n", "line 3"),
        ("y1,y2\n0.1,0.2\n0.3,inf\n", "line 3"),
        ("y1,y2\n0.1,0.2\n0.3,1.5\n", "line 3: y1=0.3, y2=1.5 lies outside"),
        ("y1,y2\n0.1,x\n", "line 2"),
        ("y1,y2\n0.1\n", "fewer cells"),
        ("y1,z\n0.1,0.2\n", "no column y2"),
        ("y1,y2,y1\n0.1,0.2,0.3\n", "there twice"),
        ("y1,y2\n", "no row"),
        ("", "no column"),
    ],
)
def test_keys_that_are_none_are_refused_with_their_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "keys.csv"
    path.write_text(text)
    with pytest.raises(af.InvalidRequest) as why:
        af.retrieve(UTILITY, LEFT, RIGHT, path, 1e-3)
    assert what in str(why.value) and "\n" not in str(why.value)


@pytest.mark.parametrize(
    "options",
    [
        {"keys": None},
        {"keys": [[0.1, 0.2, 0.3]]},
        {"keys": []},
        {"keys": [[0.1, np.nan]]},
        {"keys": [[0.1, 1.1]]},
        {"keys": "no such file.csv"},
        {"keys": [["a", "b"]]},
        {"values": [[1.0], [2.0]]},
        {"values": [[np.inf]]},
        {"queries": 0},
        {"queries": -3},
        {"queries": [[0.5, 2.0]]},
        {"queries": [[0.5]]},
        {"beta": 0.0},
        {"beta": -1.0},
        {"beta": float("nan")},
        {"beta": "hot"},
        {"delta": 0.0},
        {"delta": 2.0},
        {"confidence": 1.0},
        {"eps": 0.0},
        {"eps": None},
        {"seed": -1},
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any]) -> None:
    request = {"keys": [[0.1, 0.2]], "eps": 1e-3, **options}
    with pytest.raises(af.InvalidRequest) as why:
        af.retrieve(UTILITY, LEFT, RIGHT, **request)
    assert "\n" not in str(why.value)


def test_keys_on_the_boundary_are_keys() -> None:
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    head = af.retrieve(UTILITY, LEFT, RIGHT, corners, 1e-3, symmetric=True, queries=50)
    assert head.at([0.9, 0.95]).key == 3 and head.at([0.9, 0.95]).proved


def test_the_command(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "head.safetensors"
    sides = ["--left", "x1=0:1;x2=0:1", "--right", "y1=0:1;y2=0:1", "--keys", str(table)]
    coarse = ["retrieve", UTILITY, *sides, "--symmetric", "--queries", "300", "--eps", "1e-2"]
    common = [*coarse[:-1], "1e-4"]
    assert main([*common, "-o", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    for name in ("status", "error", "rank", "keys", "beta", "winner_weight", "output_error", "regret", "tv"):
        assert record[name] is not None, name
    assert record["status"] == "proved" and record["error"] <= 1e-4 and record["keys"] == 40
    low, high = record["failure_probability"]
    assert 0 <= low <= record["study"]["failures"] / 300 <= high <= 1
    assert main(["verify", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == record["error"]
    assert main(["verify", str(out)]) == 0 and "softmax regret" in capsys.readouterr().out
    assert main(["show", str(out)]) == 0 and main(common) == 0
    shown = capsys.readouterr().out
    assert "softmax regret" in shown and "failure probability" in shown
    assert main(["eval", str(out), "--at", "x1=0,x2=0"]) == 0
    assert main(coarse) == 3
    assert "nearest: eps=" in capsys.readouterr().err


def test_the_command_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.csv"
    path.write_text("y\n0.5\n1.5\n")
    assert main(["retrieve", "-x*y", "--left", "x=0:1", "--right", "y=0:1", "--keys", str(path), "--eps", "1e-3"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "line 3" in err
    assert main(["retrieve", "x*y", "--left", "x=0:1", "--right", "y=0:1", "--keys", "-", "--eps", "no"]) == 2
