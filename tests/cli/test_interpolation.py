"""The interpolation command: its table, its JSON, its picture, its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnfun.cli import main


def test_the_table_shows_published_proved_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interpolation", "--low", "-2", "--high", "3", "--points", "4,8"]) == 0
    out = capsys.readouterr().out
    for word in ("bound as published", "bound proved", "measured/Δ", "inclusive", "optimal"):
        assert word in out


def test_json_is_one_object_with_a_row_for_every_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interpolation", "--points", "6", "--heads", "1,2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "proved" and len(record["rows"]) == 6
    for row in record["rows"]:
        assert row["measured"] <= row["proved"] <= row["published"]
        assert row["proved_in_spacings"] == pytest.approx(row["proved"] / row["spacing"])
        assert row["keys"] == row["points"] * row["heads"]


@pytest.mark.parametrize("heads", [pytest.param((), marks=pytest.mark.slow), ("--heads", "2,3")])
def test_the_picture_shows_the_rate(heads: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "rates.png"
    assert main(["interpolation", "--points", "4,8", *heads, "--png", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["png"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "argv",
    [
        ("--points", "x"),
        ("--points", ""),
        ("--points", "0"),
        ("--points", "8", "--heads", "-1"),
        ("--variant", "best"),
        ("--low", "3", "--high", "2"),
        ("--dtype", "float16"),
        ("--points", "8", "--png", "/nowhere/at/all.png"),
    ],
)
def test_bad_input_is_one_line_and_code_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["interpolation", *argv]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and len(seen.err.strip().splitlines()) == 1


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    main(["interpolation", "--help"])
    assert "attnfun interpolation --points 6 --heads 1,2,4,8" in capsys.readouterr().out
