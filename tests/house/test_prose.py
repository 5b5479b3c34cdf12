"""What docstrings and pages name exists, and no line of a docstring ends in the middle of its sentence."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import attnfun as af
from house.sources import FILES, PACKAGE, nodes_of

ROOT = PACKAGE.parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
GONE = {"targets", "constructions", "expressions"}
"""Rooms that there were once."""
MODULES = {path.stem for path in FILES} | {path.parent.name for path in FILES}
PLACES = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*")}
TREES = [*FILES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
WIDTH, SHORT = 120, 72


def known(place: str) -> bool:
    """Whether a module stands there, counted from any folder; the last part may be a name in it."""
    parts = place.removesuffix(".py").replace(".", "/").split("/")
    return any(f"/{end}".endswith("/" + "/".join(parts[:k])) for k in (len(parts), len(parts) - 1) for end in PLACES)


def dead_places(text: str) -> list[str]:
    """`certify.nodes`, `language/graph.py`, `kinds.set.target`, `constructions/`: a room, and what stands in it."""
    found = re.findall(rf"`(({'|'.join(ROOMS | GONE)})[./]([\w./]*?)/?)`", text)
    return [whole for whole, room, rest in found if rest != "py" and (room in GONE or (rest and not known(whole)))]


def test_docstrings_and_pages_name_only_rooms_and_modules_that_exist() -> None:
    assert [(path.name, dead) for path in (*FILES, *PAGES) if (dead := dead_places(path.read_text("utf-8")))] == []


def names(path: Path) -> set[str]:
    """What the code of a file names: variables, attributes, arguments, keywords, words in short texts."""
    found: set[str] = set()
    for node in nodes_of(path):
        found |= {str(getattr(node, part, "")) for part in ("id", "attr", "arg", "name", "asname", "module")}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 60:
            found |= set(re.findall(r"\w+", node.value))
    return {part for name in found for part in name.split(".")}


def test_a_bare_name_in_a_module_s_docstring_is_one_of_its_code_or_a_module() -> None:
    nodes = [node for path in FILES for node in nodes_of(path)]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    fields = {getattr(node.target, "id", "") for node in nodes if isinstance(node, ast.AnnAssign)}
    general = MODULES | defined | fields | {str(status) for status in af.Status} | set(keyword.kwlist)
    dead = []
    for path in FILES:
        text = ast.get_docstring(nodes_of(path)[0]) or ""  # type: ignore[arg-type]
        words = {first for first, _ in re.findall(r"`([a-z][a-z_]{4,})(\.\w+)?`", text)}
        dead += [f"{path.relative_to(PACKAGE)}: {word}" for word in sorted(words - general - names(path))]
    assert dead == []


def broken(text: str, indent: int) -> list[str]:
    """Lines of running text that end far short in mid-sentence, though the next word would fit."""
    lines = text.splitlines()
    lines[:1] = [" " * indent + "___" + line for line in lines[:1]]  # behind the quotes
    found = []
    for line, after in pairwise(lines):
        both = (line, after)
        running = all(one.strip() and len(one) - len(one.lstrip()) == indent for one in both)
        table = any("|" in one[: indent + 1] or "  " in one.strip() for one in both)
        listed = running and re.match(r"[-*|]|\d+\.|\(?[ivx]+\)", after.strip())
        ended = not running or table or listed or line.rstrip()[-1] in ".:;!?)|∎"
        if not ended and len(line) < SHORT and len(line) + 1 + len(after.split()[0]) <= WIDTH:
            found.append(line.strip())
    return found


def docstrings(tree: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in tree:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield node.body[0].value  # type: ignore[attr-defined]


def test_no_line_of_a_docstring_breaks_off() -> None:
    found = [(path.name, broken(one.value, one.col_offset)) for path in TREES for one in docstrings(nodes_of(path))]
    assert [place for place in found if place[1]] == []


def test_a_line_that_breaks_off_is_seen() -> None:
    assert broken("A\n\nThe head tends to the\nstep function.", 0) == ["The head tends to the"]
    assert broken("A\n\nThe head tends to this.\nThe step is a function.\n\n    a = b\n    c = d", 0) == []
    assert broken("A thing.\n\n    name   what it is\n    other  what that is", 0) == []
