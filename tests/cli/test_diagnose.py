"""The diagnose command: its words, its JSON, its picture, its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.diagnosis import scaled


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A healthy network, and the same with its keys a thousand times too small."""
    folder = tmp_path_factory.mktemp("diagnose")
    net = af.compile("sin(3*x)", "x=-1:1", 0.1, method="partition", temperature="sharp")
    net.save(folder / "good.safetensors")
    replace(net, weights=scaled(net.network, 0, 0, 1e-5)).save(folder / "soft.safetensors")
    return str(folder / "good.safetensors"), str(folder / "soft.safetensors")


def test_findings_and_mends_are_said_in_words(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    good, soft = files
    assert main(["diagnose", good, "--strict"]) == 0
    assert "healthy" in capsys.readouterr().out
    assert main(["diagnose", soft]) == 0  # findings are not a failure
    out = capsys.readouterr().out
    assert "fuzzy partition (serious)" in out and "Fix: multiply keys and biases by" in out
    assert main(["diagnose", soft, "--strict"]) == 1
    assert main(["diagnose", soft, "--strict", "--eps", "5"]) == 0


def test_json_holds_every_figure(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", files[1], "--dtype", "bfloat16", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    head = record["heads"][0]
    assert record["dtype"] == "bfloat16" and record["serious"] is True
    assert {"effective_mean", "sharpness", "sharpness_needed", "resolution", "sweep"} <= set(head["figures"])
    assert head["findings"][0]["fixes"] and head["findings"][0]["figures"]


def test_pictures_of_one_and_two_variables(files: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plane = tmp_path / "plane.safetensors"
    af.compile("x*y", "x=0:1;y=0:1", 0.2, method="partition").save(plane)
    for file in (files[1], str(plane)):
        picture = tmp_path / "d.png"
        picture.unlink(missing_ok=True)
        assert main(["diagnose", file, "--png", str(picture)]) == 0
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


@pytest.mark.parametrize(
    "argv", [["--dtype", "int8"], ["--eps", "zero"], ["--eps", "-1"], ["--domain", "x"], ["--png", "/no/where.png"]]
)
def test_refusals_are_one_line(files: tuple[str, str], argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", files[0], *argv]) == 2
    captured = capsys.readouterr()
    assert not captured.out and len(captured.err.splitlines()) == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    main(["diagnose", "--help"])
    assert "attnfun diagnose f.safetensors --dtype bfloat16" in capsys.readouterr().out
