"""reproduce and report on the command line: words, JSON, exit codes, refusals of one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from attnfun.cli import main
from attnfun.lab.studies import study as registry
from studies import made_up

pytest.importorskip("joblib")
pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def two_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of two made-up studies, of which one fails."""
    studies = {"roots": made_up.study("roots", 3), "raising": made_up.study("raising", 3, ("statistics",), raises=1)}
    monkeypatch.setattr(registry, "GROUPS", {"open-questions": tuple(studies)})
    monkeypatch.setattr(registry, "NAMES", tuple(studies))
    real = registry.find
    monkeypatch.setattr(registry, "find", lambda name: studies.get(name) or real(name))


def test_a_run_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert main(["reproduce", "roots", "--out", out, "--jobs", "2"]) == 0
    text = capsys.readouterr().out
    assert "roots  holds" in text and "The <roots> are small. They add up to" in text and f"{out}/roots/" in text
    assert main(["reproduce", "all", "--full", "--out", out, "--resume", "--jobs", "2", "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    roots, raising = record["studies"]
    assert (roots["status"], roots["kept"], roots["units"], len(roots["files"])) == ("holds", 3, 6, 5)
    assert raising["status"] == "failed" and raising["verdict"] is None and "ValueError" in raising["failures"][0]
    assert main(["reproduce", "all", "--out", out, "--resume"]) == 1
    assert "2 studies: 1 holds, 1 failed" in capsys.readouterr().out
    assert main(["report", out, "--markdown", str(tmp_path / "s.md")]) == 0
    text = capsys.readouterr().out
    assert "2 studies at quick size: 1 holds, 1 failed." in text and "report.html" in text and "s.md" in text
    assert main(["report", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["studies"] == {"roots": "holds", "raising": "failed"}


def test_studies_without_their_packages_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "statistics", None)
    argv = ["reproduce", "all", "--out", str(tmp_path / "out"), "--jobs", "2", "--json"]
    assert main(argv) == 2 and not (tmp_path / "out").exists()
    assert "raising needs statistics" in capsys.readouterr().err
    assert main([*argv, "--skip-missing"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == ["raising"]


def test_the_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    text = capsys.readouterr().out
    assert "open-questions" in text and "roots: Square roots & their sums are small." in text
    assert main(["reproduce", "--list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["studies"]] == ["roots", "raising"]


@pytest.mark.parametrize(
    "argv",
    [
        ["reproduce"],
        ["reproduce", "partition-3d"],
        ["reproduce", "all", "roots"],
        ["reproduce", "roots", "--quick", "--full"],
        ["reproduce", "roots", "--jobs", "0"],
        ["reproduce", "roots", "--jobs", "2", "--cluster", "tcp://127.0.0.1:1"],
        ["reproduce", "roots", "--cluster", "nonsense://"],
        ["reproduce", "roots", "--out", __file__],
        ["report", "/no/where"],
        ["report", "/", "-o", "/no/where.html"],
    ],
)
def test_refusals_are_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert not captured.out and len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "example"), [("reproduce", "attnfun reproduce all --quick"), ("report", "attnfun report results -o")]
)
def test_help_has_examples(command: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    assert example in capsys.readouterr().out
