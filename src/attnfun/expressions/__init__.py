"""The target language: a safe parser, one expression graph, one interpreter over many algebras, tracing."""

from __future__ import annotations

from .arrays import ArrayAlgebra
from .balls import BallAlgebra
from .complex_balls import ComplexBallAlgebra
from .enclosures import precision
from .gradient import GradientAlgebra
from .graph import Builder, Graph, Node
from .interpret import Algebra, NotAnalytic, run, run_all
from .parse import parse
from .series import Kink, SeriesAlgebra
from .trace import Untraceable, takes_vector, trace

__all__ = [
    "Algebra",
    "ArrayAlgebra",
    "BallAlgebra",
    "Builder",
    "ComplexBallAlgebra",
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
