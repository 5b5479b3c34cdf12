"""The laboratory uses attnfun as anybody can: by its public names, and by nothing else."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

import attnfun as af

LAB = Path(af.__file__).parent / "lab"
FILES = sorted(LAB.rglob("*.py"))
ROOMS = [name for name in af.__all__ if isinstance(getattr(af, name), ModuleType)]


def violations(source: str) -> list[str]:
    """Imports of attnfun by other ways than the public ones, and attributes of it that are not public."""
    tree, found = ast.parse(source), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == "attnfun" and (a.name, a.asname) != OURS]
        elif isinstance(node, ast.ImportFrom):
            home = "." * node.level + (node.module or "")
            if home == "attnfun":
                found += [a.name for a in node.names if a.name not in af.__all__]
            elif home.split(".")[0] in ("attnfun", "") and home.split(".")[:2] != ["attnfun", "lab"]:
                found.append(home)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "af":
            if node.attr not in (*af.__all__, "__file__", "__version__"):
                found.append(f"af.{node.attr}")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in {f"af.{room}" for room in ROOMS}:
            room = getattr(af, ast.unparse(node.value).removeprefix("af."))
            if node.attr not in room.__all__:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            said = ast.unparse(node.args[0]).strip("f'\"")
            if said.startswith("attnfun") and not said.startswith("attnfun.lab."):
                found.append(said)
    return found


OURS = ("attnfun", "af")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LAB)))
def test_the_laboratory_imports_public_names_only(path: Path) -> None:
    assert violations(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import attnfun",
        "import attnfun.certify",
        "import attnfun.certify as af",
        "from attnfun import certify",
        "from attnfun.learn import descend",
        "def f():\n    from attnfun.kinds.relation import rank",
        "from ..kinds import relation",
        "import attnfun as af\naf.certify.prove",
        "import attnfun as af\naf.learn.torch_fit",
        "import importlib\nimportlib.import_module('attnfun.verbs')",
        "from importlib import import_module\nimport_module(f'attnfun.kinds.{name}')",
    ],
)
def test_the_rule_sees_every_way_around_it(source: str) -> None:
    assert len(violations(source)) == 1


def test_every_public_name_is_there_and_is_said_once() -> None:
    assert len(set(af.__all__)) == len(af.__all__) and set(af.__all__) <= set(dir(af))
    for room in (getattr(af, name) for name in ROOMS):
        assert len(set(room.__all__)) == len(room.__all__) > 0
        for name in room.__all__:
            assert getattr(room, name) is not None
        with pytest.raises(AttributeError):
            _ = room.nothing_of_this_name
