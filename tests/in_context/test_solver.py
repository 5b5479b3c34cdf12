"""The verb, its refusals, its files, and the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds.in_context.exact import exact_coefficients, example_prompts
from attnfun.kinds.in_context.target import InContextTask, normal_range, normal_spectrum, prompt
from attnfun.network import TokenNetwork, store
from attnfun.network.claim import Claim
from in_context.prompts import changed, write


@pytest.fixture(scope="module")
def ridge() -> af.InContextSolver:
    return af.in_context("ridge", 3, 20, alpha=1.0, spectrum=(5, 40), eps=1e-6, x_range=6)


def data(seed: int = 0, n: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.clip(X @ [1.0, -0.5, 0.2], -3, 3), np.clip(rng.normal(size=(4, 3)), -2.5, 2.5)


def test_standard_normal_examples_are_in_the_default_class() -> None:
    task = InContextTask.make("ridge", 8, 64)
    assert task.spectrum == normal_spectrum(8, 64, 1.0) and task.x_range == normal_range(8, 64)
    rng = np.random.default_rng(0)
    outside = 0
    for _ in range(500):
        X = rng.normal(size=(64, 8))
        outside += not (task.covers(X) and np.abs(X).max() <= task.x_range)
    assert outside <= 0.021 * 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, q: (np.vstack([X, X]), np.concatenate([y, y]), q), "at most 20.*examples=40"),
        (lambda X, y, q: (X * 5, y, q), "outside the declared x_range=6.*x_range="),
        (lambda X, y, q: (X, y * 5, q), "y_range"),
        (lambda X, y, q: (X, y, q * 9), "query_range"),
        (lambda X, y, q: (X * 1.8, y, q), r"eigenvalues .* outside the declared spectrum \(5, 40\); declare .* layers"),
        (lambda X, y, q: (X[:2], y[:2], q), r"eigenvalues .* declare spectrum=\(1, 40\)"),
        (lambda X, y, q: (X[:, :2], y, q), "shape"),
        (lambda X, y, q: (X, y[:-1], q), "one number per row"),
        (lambda X, y, q: (np.where(X > 2, np.nan, X * 0 + np.inf), y, q), "not finite"),
        (lambda X, y, q: ("words", y, q), "array of numbers"),
    ],
)
def test_prompts_outside_the_class_are_refused_with_what_would_do(
    ridge: af.InContextSolver, change: object, message: str
) -> None:
    X, y, q = data()
    with pytest.raises(af.InvalidRequest, match=message):
        ridge.predict(*change(X, y, q))  # type: ignore[operator]


def test_the_advice_for_another_spectrum_works(ridge: af.InContextSolver) -> None:
    X, y, q = data()
    with pytest.raises(af.InvalidRequest) as why:
        ridge.predict(X * 1.8, y, q)
    text = str(why.value).split("declare spectrum=(")[1]
    low, high = (float(part) for part in text.split(")")[0].split(", "))
    net = af.in_context("ridge", 3, 20, alpha=1.0, spectrum=(low, high), eps=1e-6, x_range=6)
    assert abs(len(net.network.layers) - int(text.split("about ")[1].split()[0])) <= 1
    assert np.abs(net.predict(X * 1.8, y, q) - q @ exact_coefficients(net.task, X * 1.8, y)).max() <= 1e-6


@pytest.mark.parametrize(
    "request_",
    [
        {"task": "ridges"},
        {"dim": 0},
        {"dim": True},
        {"examples": 2.5},
        {"eps": 0},
        {"eps": float("nan")},
        {"eps": None},
        {"spectrum": (5,)},
        {"spectrum": (40, 5)},
        {"spectrum": (0, 5)},
        {"spectrum": (0.5, 5)},
        {"spectrum": (float("nan"), 5)},
        {"alpha": -1.0},
        {"alpha": "1"},
        {"C": 1.0},
        {"task": "linear", "alpha": 1.0},
        {"task": "lasso", "alpha": 0.0},
        {"task": "logistic", "C": -1.0},
        {"task": "logistic", "algorithm": "chebyshev"},
        {"task": "logistic", "y_range": 2.0},
        {"task": "lasso", "layers": 4},
        {"layers": 1, "eps": None},
        {"layers": 10_000},
        {"heads": 9},
        {"dtype": "float16"},
        {"algorithm": "newton"},
        {"accept": "maybe"},
        {"y_range": 0.0},
        {"query_range": float("inf")},
        {"dim": 8, "examples": 4, "alpha": 0.0, "spectrum": None},
    ],
)
def test_bad_requests_are_refused_in_one_line(request_: dict[str, object]) -> None:
    asked = {"task": "ridge", "dim": 3, "examples": 20, "spectrum": (5, 40), "eps": 1e-3} | request_
    with pytest.raises(af.InvalidRequest) as why:
        af.in_context(**asked)  # type: ignore[arg-type]
    assert "\n" not in str(why.value)


def test_too_few_layers_and_too_small_an_eps_are_infeasible_with_what_would_do() -> None:
    shape = {"dim": 3, "examples": 20, "spectrum": (5, 40)}
    with pytest.raises(af.Infeasible, match=r"5 layers do not reach .* condition number 8") as why:
        af.in_context("ridge", **shape, eps=1e-6, layers=5)
    layers = why.value.nearest["layers"]
    assert af.in_context("ridge", **shape, eps=1e-6, layers=layers).certificate.status == "proved"
    with pytest.raises(af.Infeasible, match="floor") as why:
        af.in_context("ridge", **shape, eps=1e-15)
    assert af.in_context("ridge", **shape, eps=why.value.nearest["eps"]).certificate.status == "proved"
    with pytest.raises(af.Infeasible, match="layers, more than"):
        af.in_context("ridge", 3, 20, spectrum=(1.001, 1e9), eps=1e-6)
    with pytest.raises(af.Infeasible):
        af.in_context("lasso", **shape, eps=1e-9, layers=5)
    with pytest.raises(af.Infeasible):
        af.in_context("ridge", **shape, eps=1e-12, dtype="float32")


def test_the_depth_is_proved_unless_measured_is_enough() -> None:
    shape = {"dim": 3, "examples": 20, "spectrum": (5, 40)}
    proved = af.in_context("ridge", **shape, eps=1e-6)
    assert proved.certificate.status == "proved" and proved.certificate.eps == 1e-6
    fewer = len(proved.network.layers) - 1
    assert af.in_context("ridge", **shape, eps=1e-6, layers=fewer, accept="sampled").certificate.status == "sampled"
    only = af.in_context("ridge", **shape, layers=fewer)
    assert only.certificate.status == "bounded" and only.certificate.eps is None and only.certificate.error[1] > 1e-6


@pytest.mark.parametrize("task", ["linear", "ridge", "lasso", "logistic"])
def test_files_come_back_and_are_judged_again(task: str, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    net = af.in_context(task, 3, 20, spectrum=(5, 40), eps=1e-2, x_range=6)
    net.save(path)
    again = af.load(path)
    assert isinstance(again, af.InContextSolver) and again.task == net.task
    X, y, queries = example_prompts(net.task, 1)[0]
    assert np.array_equal(again.predict(X, y, queries), net.predict(X, y, queries))
    verdict = af.verify(path)
    assert verdict.status == net.certificate.status and verdict.error == net.certificate.error
    with pytest.raises(af.InvalidRequest):
        af.verify(path, "sin(x)")
    said = again.explain()
    assert said.replace(again.certificate.heading, net.certificate.heading) == net.explain() != said and "\n" in said


def test_verify_reads_no_number_of_the_certificate(ridge: af.InContextSolver, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    target = ridge.task.to_json()
    forged = changed(ridge.network, np.random.default_rng(0), 1e-2)
    write(path, forged, target, request={"eps": 1e-6}, certificate=ridge.certificate.to_file())
    assert af.load(path).certificate.status == "stored" and af.load(path).certificate.claimed == "proved"
    assert af.verify(path).status == "refuted"
    write(path, ridge.network, target)
    assert af.verify(path).error == ridge.certificate.error and af.verify(path).status == "bounded"
    assert af.load(path).certificate.status == "undecided"


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"task": "ridge"},
        {"task": "other", "dim": 3},
        None,
        "x",
    ],
)
def test_foreign_tasks_are_damaged_files(ridge: af.InContextSolver, tmp_path: Path, target: object) -> None:
    path = tmp_path / "t.safetensors"
    write(path, ridge.network, target, request={"eps": 1e-6})
    for verb in (af.load, af.verify):
        with pytest.raises(af.DamagedFile):
            verb(path)


def test_a_task_with_changed_fields_is_damaged_or_judged_for_what_it_says(
    ridge: af.InContextSolver, tmp_path: Path
) -> None:
    path = tmp_path / "t.safetensors"
    for change in (
        {"dim": 4},
        {"spectrum": [5]},
        {"spectrum": [40, 5]},
        {"y_range": "3"},
        {"examples": -1},
        {"more": 1},
    ):
        write(path, ridge.network, ridge.task.to_json() | change, request={"eps": 1e-6})
        with pytest.raises(af.DamagedFile):
            af.verify(path)
    wider = ridge.task.to_json() | {"spectrum": [2, 400]}
    write(path, ridge.network, wider, request={"eps": 1e-6})
    assert af.verify(path).status in ("refuted", "undecided")
    claim = Claim.made({"eps": 1e-6}, math.inf).to_json() | {"eps": "small"}
    write(path, ridge.network, wider, claim=claim)
    with pytest.raises(af.DamagedFile):
        af.verify(path)


def test_tokens_are_mirrored_padded_and_marked(ridge: af.InContextSolver) -> None:
    X, y, q = data(n=18)
    task = InContextTask.make("ridge", 3, 20, spectrum=(5, 40))
    tokens = prompt(ridge.network.coordinates, task, X, y, q)
    place = {name: k for k, name in enumerate(ridge.network.coordinates)}
    assert tokens.shape == (44, ridge.network.width)
    assert np.array_equal(tokens[:20, place["x1"]], -tokens[20:40, place["x1"]])
    assert np.array_equal(tokens[:18, [place["x1"], place["y"]]], np.c_[X[:, 0], y])
    assert (
        not tokens[18:20, place["x1"]].any()
        and tokens[:40, place["data"]].all()
        and not tokens[40:, place["data"]].any()
    )
    assert np.array_equal(tokens[40:, [place[f"q{j}"] for j in (1, 2, 3)]], q)


def test_exact_solutions_meet_their_optimality_conditions() -> None:
    for task in ("lasso", "logistic"):
        spec = InContextTask.make(task, 5, 40, spectrum=(10, 60))
        for X, y, _ in example_prompts(spec, 5):
            w = exact_coefficients(spec, X, y)
            if task == "lasso":
                slope = X.T @ (y - X @ w) / len(X)
                assert np.abs(slope[w != 0] - 0.1 * np.sign(w[w != 0])).max(initial=0) < 1e-12
                assert np.abs(slope).max() <= 0.1 + 1e-12
            else:
                assert np.abs(w - X.T @ (y / (1 + np.exp(y * (X @ w))))).max() < 1e-12


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, png = tmp_path / "r.safetensors", tmp_path / "r.png"
    asked = ("in-context", "ridge", "--dim", "3", "--examples", "20", "--spectrum", "5:40", "--eps", "1e-6")
    code, out, _ = run(capsys, *asked, "-o", str(file), "--json")
    record = json.loads(out)
    assert code == 0 and record["status"] == "proved" and record["error"] <= 1e-6 and record["layers"] > 2
    assert set(record["predicted"]) == {"optimisation", "bias", "rounding", "total", "prompts"}
    code, out, _ = run(capsys, "verify", str(file), "--json")
    assert code == 0 and json.loads(out)["error"] == record["error"]
    pytest.importorskip("matplotlib")
    code, out, _ = run(capsys, "show", str(file), "--png", str(png))
    assert code == 0 and "ridge" in out and png.stat().st_size > 10_000
    code, _, err = run(capsys, "eval", str(file), "--at", "x=1")
    assert code == 2 and err.count("\n") == 1 and "attnfun in-context" in err
    code, _, err = run(capsys, *asked, "--layers", "4")
    assert code == 3 and "layers=" in err and err.count("\n") == 1
    for wrong in (("--spectrum", "5"), ("--layers", "0"), ("--dtype", "int8"), ("--query", "q.csv")):
        code, _, err = run(capsys, *asked, *wrong)
        assert code == 2 and err.count("\n") == 1
    code, out, _ = run(capsys, "in-context", "--help")
    assert code == 0 and "Examples" in out


def test_data_and_queries_from_csv(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    X, y, q = data(3)
    train, query = tmp_path / "train.csv", tmp_path / "q.csv"
    np.savetxt(train, np.c_[X, y], delimiter=",", header="a,b,c,y", comments="", fmt="%.17g")
    np.savetxt(query, q, delimiter=",", header="a,b,c", comments="", fmt="%.17g")
    code, out, _ = run(capsys, "in-context", "ridge", "--data", str(train), "--query", str(query), "--eps", "1e-8")
    lines = out.strip().splitlines()
    assert code == 0 and lines[0] == "a,b,c,prediction,bound" and len(lines) == 5
    found = np.array([float(line.split(",")[-2]) for line in lines[1:]])
    w = np.linalg.solve(X.T @ X + np.eye(3), X.T @ y)
    assert np.abs(found - q @ w).max() <= 1e-8
    file = tmp_path / "r.safetensors"
    asked = ("in-context", "ridge", "--dim", "3", "--examples", "20", "--spectrum", "2:90", "--eps", "1e-6")
    assert run(capsys, *asked, "-o", str(file))[0] == 0
    code, out, _ = run(capsys, "in-context", str(file), "--data", str(train), "--query", str(query), "--json")
    assert code == 0 and np.abs(np.array(json.loads(out)["predictions"]) - q @ w).max() <= 1e-6
    train.write_text("a,b\n1,2\n", encoding="utf-8")
    code, _, err = run(capsys, "in-context", "ridge", "--data", str(train), "--eps", "1")
    assert code == 2 and "column y" in err


def test_the_structure_of_the_file_is_a_token_network(ridge: af.InContextSolver, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    ridge.save(path)
    network, meta = store.read(path, (TokenNetwork,))
    assert meta["target"]["task"] == "ridge" and [len(layer.heads) for layer in network.layers][-1] == 2
    ridge.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(1)
    for place in rng.integers(0, len(data), 40):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(af.AttnfunError):
            af.load(path)


def test_a_condition_number_past_the_depth_names_what_would_do() -> None:
    asked = {"task": "ridge", "dim": 8, "examples": 64, "alpha": 1.0}
    with pytest.raises(af.Infeasible, match="20 layers") as short:
        af.in_context(**asked, eps=1e-6, spectrum=(1, 1e6), layers=20)
    assert short.value.nearest is not None
    assert af.in_context(**asked, spectrum=(1, 1e6), layers=20, **short.value.nearest).certificate.status == "proved"
    with pytest.raises(af.Infeasible, match="narrower spectrum") as deep:
        af.in_context(**asked, eps=1e-6, spectrum=(1, 1e9))
    assert deep.value.nearest is not None and deep.value.nearest["spectrum"][0] > 1
