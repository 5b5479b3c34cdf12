"""Mean-value enclosures hold every value on every box, and see through cancellation that plain balls do not."""

from __future__ import annotations

import numpy as np
import pytest

from attnfun.language import ArrayAlgebra, parse, precision, run
from attnfun.language.enclosures import lowers, uppers
from attnfun.language.mean_value import enclosures

NAMES = ["x", "y"]
TARGETS = [
    "x**2 + y**2 - 2*x*y*cos(x - y)",
    "log(x**2 + y**2 - x*y)",
    "x/y + y/x - sin(x)**2",
    "abs(x - y)*x - max(x, y**2)",
    "sqrt(x*x - 2*x*y + y*y + 1e-3)",
    "exp(x)*exp(-x) + tanh(x*y) - x",
    "(x - y)/(x + y)",
]


def boxes(seed: int, count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    low = 1 + rng.random((count, 2))
    return low, low + rng.random((count, 2)) * 10.0 ** -rng.integers(0, 8, (count, 1))


@pytest.mark.parametrize("target", TARGETS)
def test_every_value_is_inside(target: str) -> None:
    graph = parse(target, NAMES)
    low, high = boxes(len(target))
    rng = np.random.default_rng(1)
    with precision(128):
        (value,) = enclosures(graph, NAMES, low, high)
        a, b = lowers(value), uppers(value)
    for _ in range(60):
        X = low + rng.choice([0.0, 1.0, 0.5, rng.random()], size=low.shape) * (high - low)
        (f,) = run(graph, ArrayAlgebra(), {"x": X[:, 0], "y": X[:, 1]})
        slack = 1e-13 * (1 + np.abs(f))
        assert ((f >= a - slack) & (f <= b + slack)).all()


@pytest.mark.parametrize("target", [*TARGETS, "exp(x*y) - 1/y", "x**3"])
def test_boxes_that_share_sides_are_what_each_is_alone(target: str) -> None:
    graph = parse(target, NAMES)
    sides = 1 + np.arange(5.0) / 4
    low = np.array([(a, b) for a in sides[:-1] for b in sides[:-1]])[[3, *range(16), 7]]
    with precision(64):
        known = {graph.outputs[0]: (-3.0, 3.0)} if "log" not in target else {}
        (together,) = enclosures(graph, NAMES, low, low + 0.25, known)
        alone = [enclosures(graph, NAMES, row[None], row[None] + 0.25, known)[0][0] for row in low]
    assert [(v.lower().str(30), v.upper().str(30)) for v in together] == [
        (v.lower().str(30), v.upper().str(30)) for v in alone
    ]
    assert len({v.str(30) for v in together}) > 3


def test_second_order() -> None:
    """x − x² about x = 1/2 has no slope: the width falls with the square of the side."""
    graph = parse("x - x*x", ["x"])
    widths = []
    with precision(128):
        for h in (1e-2, 1e-3, 1e-4):
            (value,) = enclosures(graph, ["x"], np.array([[0.5 - h]]), np.array([[0.5 + h]]))
            widths.append(float((uppers(value) - lowers(value))[0]))
    assert widths[1] < widths[0] / 50 and widths[2] < widths[1] / 50


def test_nodes_above_profit() -> None:
    """The plain sum reaches below 0 on this box, so its logarithm needs the mean-value form inside."""
    graph = parse("log(x*x + y*y - 2*x*y + 1/5)", NAMES)
    low, high = np.array([[1.0, 1.0]]), np.array([[1.05, 1.05]])
    with precision(128):
        (value,) = enclosures(graph, NAMES, low, high)
        assert np.isfinite(lowers(value)).all()


def test_known_ranges_are_used_and_only_where_told() -> None:
    graph = parse("log(x - y)", NAMES)
    inner = next(i for i, node in enumerate(graph.nodes) if node.op == "sub")
    low, high = np.array([[1.0, 0.0]]), np.array([[2.0, 1.5]])
    with precision(128):
        (plain,) = enclosures(graph, NAMES, low, high)
        (told,) = enclosures(graph, NAMES, low, high, {inner: (0.5, 2.0)})
        assert not np.isfinite(lowers(plain)).all()
        assert lowers(told)[0] == pytest.approx(np.log(0.5)) and uppers(told)[0] == pytest.approx(np.log(2.0))


def test_repeated() -> None:
    graph = parse("x*y + sin(x)", NAMES)
    assert graph.repeated[graph.outputs[0]]
    graph = parse("x*y + 3", NAMES)
    assert not any(graph.repeated)
