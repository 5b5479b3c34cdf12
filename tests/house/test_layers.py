"""The layer rule: folders are in pipeline order, and a lower one never imports a higher one.

Read by AST, so an import inside a function or under TYPE_CHECKING counts as much as one at the top of a file.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from attnfun.kinds import NAMES
from house.sources import FILES, PACKAGE, SRC, nodes_of

# Lowest first. Rooms on one line may import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "files"),
    ("language",),
    ("network",),
    ("certify",),
    ("fast",),
    ("<core>",),  # the registry of kinds, model.py, search.py, verbs.py: no kind is named there
    ("limits", "learn", "diagnosis", "plots", "export"),
    ("kinds",),
    ("<front>",),  # __init__, bounds: the public names
    ("lab",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
CORE = ("model", "search", "verbs")
ABOVE = {"limits/plan.py", "limits/plan_tasks.py", "limits/preorders/target.py", "limits/preorders/verb.py"}
"""Verbs of `limits/` that put constructions beside their bounds: they stand above the kinds."""
DEPENDENTS = {
    "sequence": {"function"},
    "set": {"function", "sequence"},
    "relation": {"function"},
    "ternary": {"relation"},
    "retrieval": {"relation"},
}
"""A kind that another one is built on."""


def module_name(path: Path) -> tuple[str, ...]:
    parts = path.relative_to(SRC).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def room_of(module: tuple[str, ...]) -> str:
    """attnfun.certify.nodes → certify; attnfun.model → <core>; attnfun.kinds → <core>, attnfun.kinds.set → kinds."""
    if len(module) == 1:
        return "<front>"
    if module[1] == "__main__":
        return "cli"
    if module[1] in CORE or module[1:] == ("kinds",):
        return "<core>"
    if module[1] == "kinds":
        if len(module) == 3 and not (PACKAGE / "kinds" / module[2]).is_dir():
            return "<core>"
        return "cli" if module[3:] == ("front",) else "kinds"  # what its command does besides calling the verb
    return module[1] if module[1] in LEVEL else "<front>"


def imported_modules(nodes: Iterable[ast.AST], path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every attnfun module the file names in an import, with its line; `importlib.import_module("…")` included."""
    here = module_name(path)
    package = here if path.name == "__init__.py" else here[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:
                # `from attnfun import certify` names the room, `from attnfun.certify import x` already did
                yield node.lineno, (*base, alias.name) if base == ("attnfun",) else base
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    target = first.value
                    yield node.lineno, package if target.startswith(".") else tuple(target.split("."))


def violations(nodes: Iterable[ast.AST], path: Path) -> list[str]:
    if path == PACKAGE / "__init__.py":
        return []  # the front door names what every room offers and loads it when it is used
    here, where = module_name(path), str(path.relative_to(PACKAGE))
    room = "kinds" if where in ABOVE else room_of(here)
    found = []
    for line, module in imported_modules(nodes, path):
        if module[0] != "attnfun":
            continue
        other = room_of(module)
        allowed = LEVEL[other] <= LEVEL[room]
        if other == "kinds" == here[1] and where not in ABOVE:
            mine, theirs = here[2], module[2]
            allowed = mine == theirs or theirs in DEPENDENTS.get(mine, ())
            allowed = allowed and not (_is(here, "prove") and _is(module, "build"))
        if not allowed:
            found.append(f"{path.relative_to(SRC)}:{line} imports {'.'.join(module)}")
    return found


def _is(module: tuple[str, ...], word: str) -> bool:
    """Whether it is a module of proofs, or of constructions."""
    return len(module) > 3 and module[3].startswith(word)


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert rooms - {"data"} <= set(LEVEL), f"rooms without a level: {rooms - set(LEVEL)}"


def test_lower_rooms_never_import_higher_ones() -> None:
    assert [v for path in FILES for v in violations(nodes_of(path), path)] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("certify/a.py", "import attnfun.kinds.function.build.partition"),
        ("certify/a.py", "def f():\n    from attnfun.kinds.function import verb"),
        ("certify/a.py", "from ..kinds.function import prove"),
        ("certify/a.py", "import importlib\nimportlib.import_module('attnfun.kinds.function.build')"),
        ("kinds/function/prove_a.py", "from attnfun.kinds.function.build import choose"),
        ("kinds/function/prove.py", "def f():\n    from attnfun.kinds.function.build.plan import Plan"),
        ("kinds/function/a.py", "from attnfun.kinds.relation.target import Relation"),
        ("kinds/relation/a.py", "from attnfun.kinds.retrieval.verb import retrieve"),
        ("network/a.py", "if TYPE_CHECKING:\n    from attnfun.certify.certificate import Certificate"),
        ("plots/a.py", "from attnfun.kinds.function.view import Approximant"),
        ("plots/a.py", "import attnfun"),
        ("language/a.py", "from attnfun import compile"),
        ("errors.py", "from attnfun.language import graph"),
        ("verbs.py", "from attnfun.kinds.function.view import Approximant"),
        ("model.py", "from attnfun.cli import render"),
        ("learn/a.py", "from attnfun.kinds.set.target import SetFunction"),
        ("kinds/set/a.py", "from attnfun.cli.derive import Answer"),
        ("kinds/set/front.py", "from attnfun.kinds.ternary.verb import ternary"),
        ("kinds/sequence/verb.py", "from attnfun.kinds.sequence.front import mapped"),
    ],
)
def test_the_rule_sees_every_way_of_importing(file: str, source: str) -> None:
    assert len(violations(ast.walk(ast.parse(source)), PACKAGE / file)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("certify/a.py", "from attnfun.network import Head\nfrom ..errors import AttnfunError\nfrom . import nodes"),
        ("cli/__init__.py", "from attnfun import verbs\nimport attnfun"),
        ("kinds/retrieval/a.py", "from attnfun.kinds.relation.target import Relation"),
        ("kinds/set/a.py", "from attnfun.model import Model\nfrom attnfun.learn.lesson import Lesson"),
        ("verbs.py", "from attnfun.kinds import find\nfrom attnfun.network import store"),
        ("__init__.py", "from .verbs import load"),
        ("kinds/set/front.py", "from attnfun.cli.derive import Answer\nfrom attnfun.kinds.set import verb"),
    ],
)
def test_the_rule_allows_what_lies_below(file: str, source: str) -> None:
    assert violations(ast.walk(ast.parse(source)), PACKAGE / file) == []


def named_kinds(text: str) -> list[str]:
    """Where a text names the module of a kind, or asks for one by name."""
    kind = rf"(?:[\"']\w+[\"'], )*[\"'](?:{'|'.join(NAMES)})[\"']"
    asked = rf"\b(?:kind|name) (?:==|!=|in|not in) [\[({{]?{kind}|\bcase {kind}|\bfind\([\"']"
    return re.findall(rf"kinds[./](?:{'|'.join(NAMES)})\b|{asked}", text)


def test_no_room_but_the_kinds_names_a_kind() -> None:
    """What differs by kind, its commands too, stands in its folder. The public names lead there."""
    apart = ("kinds", "lab")
    rooms = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml") and path.parent != PACKAGE]
    rooms += [PACKAGE / f"{name}.py" for name in CORE]
    for path in rooms:
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in apart and place.as_posix() not in ABOVE:
            assert named_kinds(path.read_text("utf-8")) == [], place


@pytest.mark.parametrize(
    "text",
    ["from attnfun.kinds.set import build", 'verb = "attnfun.kinds.matching.verb:matching"', 'find("relation")',
     'if model.target.kind == "sequence":', "if kind in ('mean', 'set'):", 'if kind.name != "average":',
     "kind not in {'set'}"],
)  # fmt: skip
def test_the_rule_sees_a_kind_that_is_named(text: str) -> None:
    assert named_kinds(text) and not named_kinds('find(kind)\nd.kind == "mean"\n# a set, a relation')


def test_the_checker_imports_nothing_by_a_computed_name() -> None:
    """A name built at run time would escape the rule above, so `certify/` may not import that way at all."""
    for path in (PACKAGE / "certify").glob("**/*.py"):
        names = {getattr(n, "id", getattr(n, "attr", "")) for n in nodes_of(path)}
        assert not names & {"import_module", "__import__", "importlib"}, path


BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}


def pickled_or_evaluated(node: ast.AST, own: set[str]) -> str | None:
    """What the node does that nothing here may do."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS - own:
            return f"calls {node.func.id}"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "eval"):
            called = ast.unparse(node.func)
            if called in ("torch.load", "builtins.eval"):
                return f"calls {called}"
        if any(k.arg == "allow_pickle" and getattr(k.value, "value", True) for k in node.keywords):
            return "allows pickles"
    if isinstance(node, ast.Import) and any(a.name.split(".")[0] in BANNED_MODULES for a in node.names):
        return "imports a pickler"
    if isinstance(node, ast.ImportFrom):
        loads = node.module == "torch" and any(a.name == "load" for a in node.names)
        if loads or (node.module or "").split(".")[0] in BANNED_MODULES:
            return "imports a pickler"
    return None


def test_no_code_is_ever_evaluated_or_unpickled() -> None:
    found = []
    for path in FILES:
        nodes = nodes_of(path)
        own = {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        own |= {a.asname or a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
        for node in nodes:
            fault = pickled_or_evaluated(node, own)
            if fault is not None:
                found.append(f"{path.relative_to(SRC)}:{getattr(node, 'lineno', 0)} {fault}")
    assert found == []


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "torch.load(f)", "builtins.eval('1')", "np.load(f, allow_pickle=True)", "import pickle",
     "from dill import loads", "from torch import load"],
)  # fmt: skip
def test_the_ban_sees_every_way(source: str) -> None:
    assert any(pickled_or_evaluated(node, set()) for node in ast.walk(ast.parse(source)))


def test_complex_branches_are_only_taken_with_the_analytic_flag() -> None:
    """flint's acb.log and acb.sqrt without it give finite, false balls across their cuts.

    Complex balls are made in three files and in the entries of operations only. There rectangles are called z; roots
    and logarithms of what z stands in are taken with the flag. What Arb has no flag for stands beside a predicate.
    """
    nodes = {str(path.relative_to(PACKAGE)): nodes_of(path) for path in FILES}
    names = {
        file: {n.id for n in own if isinstance(n, ast.Name)} | {n.attr for n in own if isinstance(n, ast.Attribute)}
        for file, own in nodes.items()
    }
    entries = {file for file in nodes if file.startswith("language/operations/")}
    algebra, ellipses, constants = "language/complex_balls.py", "certify/ellipse.py", "language/enclosures.py"
    assert {file for file, used in names.items() if "acb" in used} - entries == {algebra, ellipses, constants}
    calls = [
        (file, n)
        for file in (algebra, *entries)
        for n in nodes[file]
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("log", "sqrt", "rsqrt")
    ]
    roots = [(file, n) for file, n in calls if {"z"} & {m.id for m in ast.walk(n) if isinstance(m, ast.Name)}]
    assert len(roots) >= 5
    for file, call in roots:
        flagged = any(k.arg == "analytic" and getattr(k.value, "value", None) is True for k in call.keywords)
        assert flagged, (file, call.lineno)


def loaded_after(code: str) -> set[str]:
    """The modules a fresh interpreter holds after running `code`."""
    script = f"{code}\nimport sys\nprint(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.split())


def test_import_attnfun_is_light() -> None:
    loaded = loaded_after("import attnfun; attnfun.compile, attnfun.load, attnfun.verify")
    assert not loaded & {"torch", "matplotlib", "scipy.interpolate", "typer"}


def test_the_command_line_starts_without_heavy_imports() -> None:
    loaded = loaded_after("import attnfun.cli")
    assert not loaded & {"torch", "matplotlib", "scipy.interpolate"}
