"""The train command: its table, its JSON, its files, its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attnfun as af
from attnfun.cli import main

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("train") / "f.safetensors"
    af.compile("sin(3*x)", "x=-1:1", 1e-2).save(path)
    return str(path)


def test_json_has_both_networks_and_the_history(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, run = str(tmp_path / "g.safetensors"), str(tmp_path / "run.safetensors")
    argv = ["train", file, "--steps", "40", "--polish", "10", "-o", out, "--checkpoint", run, "--json"]
    assert main(argv) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["keys"] for row in first["rows"]] == [af.load(file).cost.keys] * 2
    assert first["history"][0]["step"] == 0 and first["history"][-1]["step"] == 50
    assert first["rows"][1]["bound"] == af.verify(out).error[1]
    assert main(argv) == 0  # from its checkpoint
    assert json.loads(capsys.readouterr().out)["history"] == first["history"]
    assert first["status"] == "bounded" and main(["verify", out]) == 5
    assert main(["verify", out, "--eps", "9"]) == 0 and main(["verify", out, "--eps", "1e-9"]) == 4
    assert first["rows"][0]["status"] == "stored" and first["rows"][1]["status"] == "bounded"
    for other in (["show", out], ["eval", out, "--at", "x=0.5"], ["train", out, "--steps", "3"]):
        assert main(other) == 0


def test_the_table_names_both(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "c.png"
    assert main(["train", file, "--steps", "5", "--start", "constructed", "--png", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "constructed (" in out and "learned from constructed" in out and picture.exists()


@pytest.mark.parametrize(
    "argv",
    [["--steps", "-1"], ["--optimiser", "sgd"], ["--start", "warm"], ["--lr", "0"], ["--checkpoint", "/no/where"]],
)
def test_refusals_are_one_line(file: str, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", file, *argv]) == 2
    captured = capsys.readouterr()
    assert not captured.out and len(captured.err.splitlines()) == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", "--help"])
    assert "attnfun train f.safetensors --steps 2000" in capsys.readouterr().out


def test_networks_of_other_kinds_are_trained_from_their_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {
        "s": af.sequence("x*mean(x)", 3, "x=-1:1", 0.1),
        "r": af.in_context("ridge", 2, 6, eps=0.5),
        "n": af.neighbours(4, 3, eps=0.2),
        "t": af.relation("exp(x*y)", "x=-1:1", "y=-1:1", 0.1),
        "m": af.matching(4, 5),
        "k": af.retrieve("x*y", "x=-1:1", "y=-1:1", [[0.0], [1.0], [-1.0]], 1e-2, beta=5.0),
        "f": af.ternary("x*y*z", "x=-1:1;y=-1:1;z=-1:1", 0.1),
    }
    for name, net in made.items():
        file, out = str(tmp_path / f"{name}.safetensors"), str(tmp_path / f"{name}2.safetensors")
        net.save(file)
        assert main(["train", file, "--steps", "3", "--batch", "8", "-o", out, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["status"] == ("bounded" if name == "f" else "sampled")
        assert [row["steps"] for row in record["rows"]] == [None, 3]
        for command in ("show", "diagnose"):
            assert main([command, out, "--json"]) == 0
            json.loads(capsys.readouterr().out)
    file = str(tmp_path / "t.safetensors")
    assert main(["train", file, "--steps", "2", "--widths", "5,4", "--rank", "2", "--json"]) == 0
    capsys.readouterr()
    for argv in (["--widths", "a"], ["--rank", "2"]):
        assert main(["train", file, "--steps", "2", *argv]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    at = ["--at", "x_1=0.1,x_2=0.2,x_3=0.3"]
    assert main(["eval", str(tmp_path / "s2.safetensors"), *at]) == 0
