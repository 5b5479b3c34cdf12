"""`attnfun doctor` says what is installed, and notices a processor on which nothing can be proved."""

from __future__ import annotations

import json
import platform
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import attnfun as af
from attnfun.cli import main
from attnfun.cli.doctor import CORE, MORE
from modes import arithmetic

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]


def test_versions_are_those_that_are_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["attnfun"]) == ("sound", af.__version__)
    assert found["python"].startswith(platform.python_version()) and found["dtype"] == "float64"
    installed = {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in metadata.distributions()}
    assert found["packages"] == {name: installed.get(name) for name in (*CORE, *MORE)}
    assert found["libraries"] and all(one["num_threads"] >= 1 for one in found["libraries"])


def test_every_package_that_is_declared_is_looked_at() -> None:
    def names(packages: list[str]) -> set[str]:
        return {re.split(r"[^\w.-]", one)[0].replace("_", "-").lower() for one in packages}

    assert names(PROJECT["dependencies"]) == set(CORE)
    for extra, packages in PROJECT["optional-dependencies"].items():
        assert extra in ("test", "docs") or names(packages) <= {*CORE, *MORE}, extra  # those are tools


def test_what_is_missing_is_said_to_be(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def version(name: str) -> str:
        if name in MORE:
            raise metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(metadata, "version", version)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.count("not installed") == len(MORE) and said.count("1.2.3") == len(CORE)


@pytest.mark.parametrize(
    ("mode", "reason"), [("up", "not to nearest"), ("zero", "not to nearest"), ("flush", "flushed")]
)
def test_an_arithmetic_in_which_nothing_is_proved_is_noticed(
    mode: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with arithmetic(mode):
        assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "unsound" and reason in found["floating_point"]
    assert main(["doctor"]) == 0
