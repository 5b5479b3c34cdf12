"""A kind that attnfun has never heard of, from one folder (`tests/house/doubling/`), through the ordinary verbs."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.kinds import commands, find, named, register
from house.doubling import KIND
from house.doubling.verb import doubling
from house.sources import PACKAGE
from house.test_layers import violations
from house.test_one_place import asked_for, faults_of_the_view


@pytest.fixture(scope="module", autouse=True)
def known() -> None:
    register(KIND)


def test_it_is_built_called_and_proved() -> None:
    model = doubling(3.0, 1e-3)
    assert model.certificate.status == "proved" and model.cost.layers == 1
    assert np.abs(model([-1.0, 0.5]) - np.tanh([-3.0, 1.5])).max() <= model.certificate.error[1]
    assert "tanh" in repr(model) and "tanh" in model.explain()


def test_its_file_comes_back_as_what_it_was_and_is_verified(tmp_path: Path) -> None:
    model = doubling(3.0, 1e-3)
    model.save(tmp_path / "d.safetensors")
    again = af.load(tmp_path / "d.safetensors")
    assert type(again) is type(model) and again.certificate.status == "stored"
    assert np.array_equal(again([0.25]), model([0.25]))
    assert af.verify(tmp_path / "d.safetensors") == model.certificate
    assert af.verify(tmp_path / "d.safetensors", eps=1e-30).status == "undecided"


def test_the_command_line_shows_and_verifies_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "d.safetensors")
    doubling(3.0, 1e-3).save(path)
    assert main(["verify", path]) == 0
    capsys.readouterr()
    assert main(["show", path, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["kind"] == "doubling" and record["status"] == "stored"
    assert main(["eval", path, "--at", "x=0.5"]) == 0
    assert "0.9" in capsys.readouterr().out


def test_its_command_is_derived_from_its_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "d.safetensors")
    assert main(["doubling", "3", "--eps", "1e-3", "-o", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == af.verify(path).error[1]
    assert main(["doubling", "--help"]) == 0
    assert "The slope s." in capsys.readouterr().out


def test_it_is_trained_compared_and_diagnosed() -> None:
    model = doubling(3.0, 1e-3)
    learned = af.train(model, steps=3, seed=0)
    assert type(learned) is type(model) and learned.trained and learned.certificate.status in ("bounded", "sampled")
    assert [row.name for row in af.compare(model, learned).entries][1] == "learned from random start"
    assert af.diagnose(model).about


def test_a_name_that_is_taken_is_refused() -> None:
    from dataclasses import replace

    with pytest.raises(af.InvalidRequest, match="already"):
        register(replace(KIND, name="function"))
    assert find("doubling") is KIND


def test_a_copy_of_its_folder_is_a_kind_that_the_house_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied anywhere it names nothing of where it came from, and it keeps the rules that kinds are held to."""
    copy = tmp_path / "copied_kind"
    shutil.copytree(Path(__file__).parent / "doubling", copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert not [path for path in copy.iterdir() if "house" in path.read_text("utf-8")]
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = import_module("copied_kind").KIND
    try:
        parts = ("target", "view", "prover", "lesson", "subjects")
        assert all(kind.loaded(part).__module__.startswith("copied_kind.") for part in parts)
        (command,) = commands(kind.commands)
        assert named(command.verb).__module__ == "copied_kind.verb" and kind.module is not None
        assert faults_of_the_view(kind) == [] == asked_for({kind.loaded("view").__name__})
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "copied_kind"]:
            del sys.modules[name]
    for path in copy.glob("*.py"):
        tree, place = ast.parse(path.read_text("utf-8")), PACKAGE / "kinds" / "doubling" / path.name
        assert violations(ast.walk(tree), place) == []
