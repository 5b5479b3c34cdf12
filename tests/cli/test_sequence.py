"""attnfun sequence, and verify, show and eval of its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnfun as af
from attnfun.cli import main

SINE = ["sequence", "sin(x*mean(x))", "--tokens", "4", "--domain", "x=-1:1", "--eps", "1e-3"]


def answer(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> dict[str, Any]:
    assert main([*argv, "--json"]) == code
    record = json.loads(capsys.readouterr().out)
    assert isinstance(record, dict)
    return record


def test_a_sequence_is_built_saved_drawn_verified_shown_and_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    file, picture = str(tmp_path / "s.safetensors"), str(tmp_path / "s.png")
    made = answer(capsys, *SINE, "-o", file, "--png", picture)
    keys = {"name", "status", "error", "eps", "method", "layers", "heads", "rank", "keys", "parameters", "seconds"}
    assert keys <= set(made)
    assert made["status"] == "proved" and made["method"] == "two-layer" and made["equivariant"] is True
    assert Path(picture).stat().st_size > 10_000
    again = answer(capsys, "verify", file, "--target", "sin(x*mean(x))")
    assert again["status"] == "proved" and again["error"] == made["error"]
    shown = answer(capsys, "show", file)
    assert "gather: mean(x)" in shown["explanation"]
    point = "x_1=0.1,x_2=-0.4,x_3=1,x_4=0"
    values = answer(capsys, "eval", file, "--at", point, "--compare")
    assert values["outputs"] == ["output_1", "output_2", "output_3", "output_4"]
    assert max(values["errors"][0]) <= made["error"]
    assert main(["show", file]) == 0
    assert "as stored, not verified" in capsys.readouterr().out


def test_rows_and_a_leading_minus(capsys: pytest.CaptureFixture[str]) -> None:
    request = ["--rows", "--tokens", "2", "--domain", "x=-1:1", "--eps", "1e-9"]
    made = answer(capsys, "sequence", "-x_2; x_1", "x_1; -x_2", *request)
    assert made["status"] == "proved" and made["error"] < 1e-12


def test_an_example_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    made = answer(capsys, "sequence", "--example", "maximum", "--eps", "1e-2")
    assert made["status"] == "proved" and made["eps"] == 1e-2 and made["tokens"] == 6


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["sequence"], 2, "no expression"),
        (["sequence", "x", "--tokens", "2", "--domain", "x=0:1"], 2, "--eps is missing"),
        (["sequence", "x", "--eps", "1", "--domain", "x=0:1"], 2, "--tokens is missing"),
        (["sequence", "x", "--tokens", "2", "--eps", "1"], 2, "no domain"),
        (["sequence", "q", "--tokens", "2", "--eps", "1", "--domain", "x=0:1"], 2, "unknown name"),
        (["sequence", "--example", "nobody"], 2, "there are sine"),
        (["sequence", "x", "--example", "sine"], 2, "its own expressions"),
        (["sequence", "x", "--examples"], 2, "takes no expression"),
        (["sequence", "x", "--small"], 2, "--small goes with"),
        ([*SINE, "--method", "partition"], 3, "cells as published"),
        ([*SINE, "-o", "/nowhere/at/all.safetensors"], 2, "no folder"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(
    argv: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == code
    error = capsys.readouterr().err
    assert says in error and len(error.strip().splitlines()) == 1


def test_a_sequence_file_is_exported_as_a_program_on_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    file, out = str(tmp_path / "s.safetensors"), tmp_path / "s.pt2"
    answer(capsys, *SINE, "-o", file)
    assert main(["export", file, "-o", str(out)]) == 0
    net = af.load(file)
    X = net.target.draw(np.random.default_rng(0), 3)[0]
    found = torch.export.load(out).module()(torch.tensor(X)).numpy()
    assert np.allclose(found.reshape(np.shape(net(X))), net(X), rtol=0, atol=1e-12)


def test_eval_names_the_entries_it_misses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "s.safetensors")
    answer(capsys, *SINE, "-o", file)
    assert main(["eval", file, "--at", "x_1=0.1"]) == 2
    assert "no value for x_2, x_3, x_4" in capsys.readouterr().err
