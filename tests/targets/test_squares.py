"""Sums of squares: the rewritten sum is the same number, and nothing that may be negative is taken for one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from attnfun.language import ArrayAlgebra, Builder, Graph, parse, run
from attnfun.language.domain import Box
from attnfun.language.ranges import range_of
from attnfun.language.squares import sum_of_squares

BOX = Box.parse("x=1:5;y=0:5;u=-2:2;v=-1:3")


def squares_of(text: str) -> tuple[Graph, list[Fraction]] | None:
    """The graph of the p_i and the c_i."""
    build = Builder()
    graph = parse(text, BOX.names)
    at = build.copy(graph.nodes)
    found = sum_of_squares(build, at[graph.outputs[0]], lambda n: range_of(build.graph([n]), BOX)[0][0] >= 0)
    return None if found is None else (build.graph([p for _, p in found]), [c for c, _ in found])


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x**2 + y**2", 2),
        ("x**2 + y**2 - 2*x*y*cos(u - v)", 2),
        ("x**2 + y**2 + 2*x*y*cos(u*v)", 2),
        ("4*x**2 + 9*y**2 - 12*x*y*cos(u)", 2),
        ("2*x**2 + 3*y**2", 2),
        ("u**2 - 2*u*v + v**2", 1),
        ("u**2 + 2*u*v + v**2 + x**2", 2),
        ("(u - v)**2 + u**4*v**2/x**2", 2),
        ("x**2*u**2 + 1", 2),
        ("2*(u**2 + v**2)", 2),
        ("x**2 + y**2 + u**2 - 2*x*y*cos(v)", 3),
        ("1 - cos(u - v)", 1),
        ("2*y**2 + 2*y**2*cos(u)", 1),
        ("3 - 2*cos(u)", 2),
        ("1 - sin(u)**2", 1),
        ("u**2 - u**2*cos(v)**2", 1),
        ("cosh(u) - 1", 1),
        ("u**2 - 2*u + 1", 1),
        ("u**2 + v**2 + u*v", 2),
        ("u**2 + v**2 + x**2 + u*v - v*x", 3),
        ("4*u**2 + v**2 + x**2 + 4*u*v - 4*u*x - 2*v*x", 1),
        ("u**2 + v**2 - 2*u*v + 1 - cos(x)", 2),
    ],
)
def test_the_same_number(text: str, count: int) -> None:
    found = squares_of(text)
    assert found is not None
    graph, coefficients = found
    assert len(coefficients) == count and all(c > 0 for c in coefficients)
    X = BOX.probe(200, np.random.default_rng(0))
    env = {n: X[:, k] for k, n in enumerate(BOX.names)}
    total = sum(float(c) * p**2 for c, p in zip(coefficients, run(graph, ArrayAlgebra(), env), strict=True))
    (whole,) = run(parse(text, BOX.names), ArrayAlgebra(), env)
    np.testing.assert_allclose(total, whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "text",
    [
        "x**2 - y**2",
        "x**2 + y**2 - 2.0001*x*y*cos(u)",  # negative somewhere
        "x**2 + y**2 - 3*x*y",
        "u**2 + v**2 - 2*u*v*cos(x)",  # true, but u and v change sign: not by these rules
        "x**2 + y**2 - 2*x*y*sin(u)",
        "x**2 + y**2 - 2*x*y*cos(u) - 2*x*y*cos(v)",
        "x + y**2",
        "u**2 + v**2 + 2.001*u*v",
        "u**2 + v**2 + x**2 + 2*u*v + 2*v*x",
        "1 - 1.001*cos(u)",
        "1 - cosh(u)",
        "2 - cosh(u)",
        "1 - sin(u)",
        "1 + sin(u)**2 - 3*cos(v)",
        "x**3",
    ],
)
def test_others_are_left_alone(text: str) -> None:
    assert squares_of(text) is None
