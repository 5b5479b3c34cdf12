"""What stands about the project beside its code says what the code says: citation, security, continuous integration."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml  # a package of the extra `test` brings it
from packaging.specifiers import SpecifierSet  # pytest brings it
from packaging.version import Version

import attnfun as af
from attnfun import files
from attnfun.cli.doctor import CORE
from attnfun.language import graph, mlp
from attnfun.limits.embedding import files as matrices
from attnfun.network import sealed

parse = import_module("attnfun.language.parse")  # the room has a function of this name
ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_citation_is_of_this_version() -> None:
    cited = read("CITATION.cff")
    assert cited["version"] == PROJECT["version"] == af.__version__
    assert cited["license"] == PROJECT["license"] and cited["authors"] == PROJECT["authors"]
    assert set(PROJECT["keywords"]) <= {*cited["keywords"], "attention"}


def test_papers_that_the_readme_cites_are_in_the_citation() -> None:
    said = set(re.findall(r"arxiv\.org/abs/([\d.]+\d)", (ROOT / "README.md").read_text("utf-8")))
    entries = {one["doi"].removeprefix("10.48550/arXiv."): one for one in read("CITATION.cff")["references"]}
    assert said and said <= set(entries)
    assert all(one["url"] == f"https://arxiv.org/abs/{number}" for number, one in entries.items())


def test_limits_that_the_security_page_names_are_those_of_the_code() -> None:
    """A row's numbers, in their order, from the modules that its last column names."""
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    found = {row[2].strip("`"): [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", row[1])] for row in rows[2:]}
    mega = 1 << 20
    assert found == {
        "language/parse.py": [parse.MAX_CHARACTERS, parse.MAX_TERMS, parse.MAX_DEPTH, parse.MAX_DIGITS],
        "language/graph.py": [graph.MAX_NODES, graph.MAX_OUTPUTS],
        "network/sealed.py": [sealed.FILE_LIMIT // mega, sealed.HEADER_LIMIT // mega],
        "language/mlp.py": [mlp.FILE_LIMIT // mega, mlp.MAX_WEIGHTS],
        "files.py": [files.TEXT_LIMIT // mega],
        "limits/embedding/files.py": [matrices._MATRIX_LIMIT // mega],
    }


def test_every_python_that_is_declared_is_tested() -> None:
    prefix = "Programming Language :: Python :: "
    declared = [one.removeprefix(prefix) for one in PROJECT["classifiers"] if one.startswith(f"{prefix}3.")]
    jobs = read(".github/workflows/ci.yml")["jobs"]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == jobs["wheel"]["strategy"]["matrix"]["python"] == declared
    assert PROJECT["requires-python"] == f">={declared[0]}"


def test_the_workflow_runs_targets_of_the_makefile_and_nothing_else() -> None:
    jobs = read(".github/workflows/ci.yml")["jobs"]
    steps = [shlex.split(step["run"]) for job in jobs.values() for step in job["steps"] if "run" in step]
    assert len(steps) == len(jobs) and all(words[0] == "make" for words in steps)
    assert {words[1] for words in steps} <= {"test", "docs", "test-dist"}


def test_the_workflow_installs_the_torch_of_the_constraints_without_cuda() -> None:
    """A version with +cpu sorts above the same without it, so pip takes it wherever `==` without + is asked for."""
    assert read(".github/workflows/ci.yml")["env"]["PIP_EXTRA_INDEX_URL"] == "https://download.pytorch.org/whl/cpu"
    (pinned,) = re.findall(r"^torch(.*)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    version = pinned.removeprefix("==")
    asked = SpecifierSet(pinned)
    assert Version(version) < Version(f"{version}+cpu") and all(
        asked.contains(one) for one in (version, f"{version}+cpu")
    )


def test_hooks_of_a_commit_are_the_checks_of_the_environment() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    programs = [shlex.split(hook["entry"])[0] for hook in local["hooks"]]
    assert set(programs) == {".venv/bin/ruff", ".venv/bin/mypy"}
    assert {Path(one).name for one in programs} <= {
        one.split(">")[0] for one in PROJECT["optional-dependencies"]["test"]
    }


@pytest.mark.parametrize("name", ["fault", "wish"])
def test_issues_ask_for_the_request_and_what_doctor_says(name: str) -> None:
    asked = {part.get("id"): part for part in read(f".github/ISSUE_TEMPLATE/{name}.yml")["body"]}
    for one in ("request", "doctor"):
        assert asked[one]["validations"]["required"] is True
    assert "attnfun doctor" in asked["doctor"]["attributes"]["label"]


def test_joblib_is_no_part_of_the_core_and_stands_where_it_is_needed() -> None:
    assert "joblib" not in CORE
    for extra in ("studies", "cluster", "test"):
        assert any(one.startswith("joblib") for one in PROJECT["optional-dependencies"][extra]), extra
