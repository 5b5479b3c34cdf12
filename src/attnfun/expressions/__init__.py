"""The target language: a safe parser, one expression graph, one interpreter over many algebras."""

from __future__ import annotations

from .graph import Builder, Graph, Node
from .interpret import Algebra, NotAnalytic, run, run_all
from .parse import parse

__all__ = ["Algebra", "Builder", "Graph", "Node", "NotAnalytic", "parse", "run", "run_all"]
