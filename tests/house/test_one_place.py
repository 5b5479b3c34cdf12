"""What is written once stays written once: certificates, file formats, knowledge of kinds."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from inspect import get_annotations
from itertools import combinations
from typing import Any

import pytest

from attnfun.kinds import NAMES, Kind, find
from attnfun.model import Model
from house.sources import FILES, PACKAGE, nodes_of

MOST_REPEATS = 20


def files() -> Iterator[tuple[str, list[ast.AST]]]:
    return ((str(path.relative_to(PACKAGE)), nodes_of(path)) for path in FILES)


def calls(nodes: list[ast.AST], *names: str) -> Iterator[ast.Call]:
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in names:
            yield node


def test_certificates_are_issued_in_one_function_and_read_back_in_one() -> None:
    made = [
        (file, node.name)
        for file, nodes in files()
        for node in functions(nodes)
        if any(calls(list(ast.walk(node)), "Certificate"))
    ]
    assert made == [("certify/verdict.py", "verdict")]
    nodes = nodes_of(PACKAGE / "certify" / "certificate.py")
    assert [node.name for node in functions(nodes) if any(calls(list(ast.walk(node)), "cls"))] == ["stored"]


def asked_for(classes: set[str]) -> list[str]:
    """Where an `isinstance` names one of these classes."""
    return [
        f"{file}:{call.lineno}"
        for file, nodes in files()
        for call in calls(nodes, "isinstance", "issubclass")
        if {n.id for n in ast.walk(call.args[1]) if isinstance(n, ast.Name)} & classes
    ]


def test_nobody_asks_a_result_for_its_class() -> None:
    """No `isinstance` names a view: what differs by kind is a method of the target, or a field of the kind."""
    assert asked_for({find(name).view.partition(":")[2] for name in NAMES}) == []


def faults_of_the_view(kind: Kind) -> list[str]:
    """A view has a class of its own, adds no fields, and overrides nothing that `Model` wrote."""
    view = kind.loaded("view")
    own = {key for key in vars(view) if not key.startswith("__")}
    faults = {
        "is no Model": not issubclass(view, Model),
        "is no class of the kind's own": view is Model,
        "has fields of its own": get_annotations(view),
        f"overrides {own & set(vars(Model))}": own & set(vars(Model)) and view is not Model,
    }
    return [f"{kind.name}: its view {what}" for what, so in faults.items() if so]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_a_model_in_one_class_and_thin_views(name: str) -> None:
    assert faults_of_the_view(find(name)) == []


def test_one_module_knows_the_file_format() -> None:
    written = {file for file, nodes in files() for call in calls(nodes, "write") if "sealed" in ast.unparse(call)}
    assert written <= {"network/store.py", "learn/torch_fit.py"}


def functions(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef]:
    yield from (node for node in nodes if isinstance(node, ast.FunctionDef))


def statements(node: ast.FunctionDef) -> int:
    return sum(isinstance(one, ast.stmt) for one in ast.walk(node)) - 1


def _renamed(node: Any) -> Any:
    """The syntax tree below a node, in which names, attributes, arguments, texts and numbers are all alike."""
    if isinstance(node, list):
        return [_renamed(one) for one in node]
    if isinstance(node, ast.Name | ast.Constant | ast.arg):
        return "0" if isinstance(node, ast.Constant) else "n"
    if not isinstance(node, ast.AST):
        return ""
    return type(node).__name__, [_renamed(value) for _, value in ast.iter_fields(node)]


def shape(node: ast.FunctionDef) -> str:
    """The syntax tree of a function after renaming; docstring, decorators and return type do not count."""
    body = node.body if ast.get_docstring(node) is None else node.body[1:]
    return repr([_renamed(node.args), _renamed(body)])


def test_few_functions_are_written_twice() -> None:
    alike: dict[str, list[str]] = defaultdict(list)
    for file, nodes in files():
        for node in functions(nodes):
            if statements(node) >= 8:
                alike[shape(node)].append(f"{file}:{node.name}")
    pairs = [pair for group in alike.values() for pair in combinations(group, 2)]
    assert len(pairs) <= MOST_REPEATS, pairs


def test_the_count_of_repeats_sees_a_renamed_copy() -> None:
    one = "def f(a):\n" + "".join(f"    x{k} = a + {k}\n" for k in range(9))
    other = "def g(b):\n" + "".join(f"    y{k} = b + {k + 7}\n" for k in range(9))
    first, second = (next(functions(ast.parse(text).body)) for text in (one, other))
    assert shape(first) == shape(second) != shape(next(functions(ast.parse(one.replace("+", "-")).body)))
