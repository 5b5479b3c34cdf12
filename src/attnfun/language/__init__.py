"""The target language: a safe parser, one expression graph, one interpreter over many algebras, tracing."""

from typing import Any

from attnfun.language.arrays import ArrayAlgebra
from attnfun.language.balls import BallAlgebra
from attnfun.language.complex_balls import ComplexBallAlgebra
from attnfun.language.domain import Array, Box
from attnfun.language.enclosures import precision
from attnfun.language.gradient import GradientAlgebra
from attnfun.language.graph import Builder, Graph, Node
from attnfun.language.interpret import Algebra, NotAnalytic, run, run_all
from attnfun.language.parse import parse
from attnfun.language.series import Kink, SeriesAlgebra
from attnfun.language.trace import Untraceable, takes_vector, trace

__all__ = [
    "Algebra",
    "Array",
    "ArrayAlgebra",
    "BallAlgebra",
    "Box",
    "Builder",
    "ComplexBallAlgebra",
    "Function",
    "GradientAlgebra",
    "Graph",
    "Kink",
    "Node",
    "NotAnalytic",
    "SeriesAlgebra",
    "Untraceable",
    "parse",
    "precision",
    "run",
    "run_all",
    "takes_vector",
    "trace",
]


def __getattr__(name: str) -> Any:
    """Function stands on the names above, so it is loaded when it is first used."""
    if name == "Function":
        from attnfun.language.function import Function

        return Function
    raise AttributeError(f"module 'attnfun.language' has no attribute {name!r}")
