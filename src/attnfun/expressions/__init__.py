"""The target language: a safe parser, one expression graph, one interpreter over many algebras, tracing."""

from __future__ import annotations

from .arrays import ArrayAlgebra
from .graph import Builder, Graph, Node
from .interpret import Algebra, NotAnalytic, run, run_all
from .parse import parse
from .trace import Untraceable, takes_vector, trace

__all__ = [
    "Algebra",
    "ArrayAlgebra",
    "Builder",
    "Graph",
    "Node",
    "NotAnalytic",
    "Untraceable",
    "parse",
    "run",
    "run_all",
    "takes_vector",
    "trace",
]
