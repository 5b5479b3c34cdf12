"""CLAIMS.md is what the code says of itself, and names nothing that does not exist."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from attnfun.kinds.function.build import CONSTRUCTIONS
from attnfun.lab import claims

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = (ROOT / "CLAIMS.md").read_text("utf-8")


def test_the_file_is_what_the_code_generates() -> None:
    assert claims.text() == WRITTEN, "run `make claims`"


def test_every_construction_and_every_method_of_proof_is_listed() -> None:
    assert {path.stem for path in claims.methods()} >= {"nodes", "moments", "cells"}
    for name in CONSTRUCTIONS:
        assert f"### `{name}`" in WRITTEN
    for path in (ROOT / "src" / "attnfun").rglob("*.py"):
        if "\ndef prove_by_" in path.read_text("utf-8"):
            assert f"`{path.relative_to(ROOT).as_posix()}`" in WRITTEN


def test_no_section_is_empty_and_none_stands_twice() -> None:
    _, *sections = re.split(r"^(###? .+)$", WRITTEN, flags=re.MULTILINE)
    titles = sections[::2]
    assert len(titles) == len(set(titles)) > 20
    assert all(body.strip() for body in sections[1::2])


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_every_construction_states_its_theorem(name: str) -> None:
    module = sys.modules[type(CONSTRUCTIONS[name]).__module__]
    parts = claims.labelled(module.__doc__ or "")
    assert all(parts.get(label) for label in ("Statement", "Source", "Size", "Bound", "Failure mode", "Example"))


def test_every_module_and_test_it_names_exists() -> None:
    named = re.findall(r"`((?:src|tests|docs)/[^`:]+)(?:::(\w+))?`", WRITTEN)
    assert len(named) > 30
    tests: dict[str, set[str]] = {}
    for path, test in named:
        assert (ROOT / path).is_file(), path
        if test and path not in tests:
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            tests[path] = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert not test or test in tests[path], f"{path}::{test}"


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


FILES = [path.as_posix() for folder in ("src", "tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_link_and_name_only_what_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    prose = re.sub(r"^```.*?^```|^ {4}.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert (ROOT / page).parent.joinpath(link).exists(), f"{page} links {link}"
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", prose):
        assert any(path.endswith("/" + name) for path in FILES), f"{page} names {name}"
