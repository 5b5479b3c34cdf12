"""What is written once stays written once: certificates, file formats, knowledge of kinds."""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from inspect import get_annotations
from itertools import combinations
from pathlib import Path

from attnfun.kinds import NAMES, find

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "attnfun"
ROOMS_WITHOUT_KINDS = ("cli", "learn", "plots", "export", "diagnosis", "network", "certify", "language")
MOST_REPEATS = 20


@cache
def trees() -> dict[str, ast.Module]:
    return {str(p.relative_to(PACKAGE)): ast.parse(p.read_text("utf-8")) for p in sorted(PACKAGE.rglob("*.py"))}


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in names:
            yield node


def test_certificates_are_made_in_one_function() -> None:
    made = [file for file, tree in trees().items() for _ in calls(tree, "Certificate")]
    assert made == ["certify/verdict.py"]


def test_nobody_asks_a_result_for_its_class() -> None:
    """No `isinstance` names a view: what differs by kind is a method of the target, or a field of the kind."""
    views = {find(name).view.partition(":")[2] for name in NAMES}
    asked = [
        f"{file}:{call.lineno}"
        for file, tree in trees().items()
        for call in calls(tree, "isinstance", "issubclass")
        if {n.id for n in ast.walk(call.args[1]) if isinstance(n, ast.Name)} & views
    ]
    assert asked == []


def test_a_model_is_a_model_in_one_class_and_thin_views() -> None:
    """Views add no fields, and override nothing that `Model` wrote."""
    from attnfun.model import Model

    for name in NAMES:
        view = find(name).loaded("view")
        assert issubclass(view, Model), name
        assert not get_annotations(view), f"{name}: a view with fields of its own"
        own = {key for key in vars(view) if not key.startswith("__")}
        assert not own & set(vars(Model)), f"{name} overrides {own & set(vars(Model))}"


def test_one_module_knows_the_file_format() -> None:
    written = {file for file, tree in trees().items() for call in calls(tree, "write") if "sealed" in ast.unparse(call)}
    assert written <= {"network/store.py", "learn/torch_fit.py"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def statements(node: ast.FunctionDef) -> int:
    return sum(isinstance(one, ast.stmt) for one in ast.walk(node)) - 1


class _Renamed(ast.NodeTransformer):
    """Names, attributes, arguments, texts and numbers are all alike."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name("n", ast.Load()), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = "a"
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg("p", None)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        node.arg = "k" if node.arg else None
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(0)


def shape(node: ast.FunctionDef) -> str:
    """The syntax tree of a function after renaming; the docstring does not count."""
    own = copy.deepcopy(node)
    if ast.get_docstring(own) is not None:
        own.body = own.body[1:] or [ast.Pass()]
    own.name, own.decorator_list, own.returns = "f", [], None
    return ast.dump(_Renamed().visit(own))


def test_few_functions_are_written_twice() -> None:
    alike: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees().items():
        for node in functions(tree):
            if statements(node) >= 8:
                alike[shape(node)].append(f"{file}:{node.name}")
    pairs = [pair for group in alike.values() for pair in combinations(group, 2)]
    assert len(pairs) <= MOST_REPEATS, pairs


def test_the_count_of_repeats_sees_a_renamed_copy() -> None:
    one = "def f(a):\n" + "".join(f"    x{k} = a + {k}\n" for k in range(9))
    other = "def g(b):\n" + "".join(f"    y{k} = b + {k + 7}\n" for k in range(9))
    first, second = (next(functions(ast.parse(text))) for text in (one, other))
    assert shape(first) == shape(second) != shape(next(functions(ast.parse(one.replace("+", "-")))))
