"""The package's files as syntax trees, parsed and walked once for all tests that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
PACKAGE = SRC / "attnfun"
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file, the module first."""
    return list(ast.walk(ast.parse(path.read_text("utf-8"))))
