"""The list of operations of the graph is the one that every algebra knows."""

from __future__ import annotations

import pytest

from attnfun.language import Algebra, ArrayAlgebra, BallAlgebra, ComplexBallAlgebra, GradientAlgebra, SeriesAlgebra
from attnfun.language.graph import BINARY, UNARY
from attnfun.language.intervals import IntervalAlgebra

ALGEBRAS: list[Algebra[object]] = [
    ArrayAlgebra(),
    IntervalAlgebra(),
    BallAlgebra(),
    BallAlgebra(clip_sqrt=True, sharp=True),
    ComplexBallAlgebra(),
    SeriesAlgebra(3),
    GradientAlgebra(ArrayAlgebra()),
]


@pytest.mark.parametrize("algebra", ALGEBRAS, ids=lambda algebra: type(algebra).__name__)
def test_every_operation_has_a_method(algebra: Algebra[object]) -> None:
    assert not [op for op in {*UNARY, *BINARY, "constant", "pi", "e"} if not callable(getattr(algebra, op, None))]
