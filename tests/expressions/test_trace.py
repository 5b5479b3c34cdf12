"""Tracing: a NumPy function becomes the graph its source would parse to, or says why it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from attnfun.errors import InvalidRequest
from attnfun.language import ArrayAlgebra, Node, Untraceable, parse, run, takes_vector, trace

SAME = [
    (lambda x, y: np.sin(3 * x) + y**2, "sin(3*x) + y**2"),
    (lambda x, y: np.float64(2) * x - np.array(3.0) * y, "2*x - 3*y"),
    (lambda x, y: 1 / (1 + 25 * x**2) + -y, "1/(1 + 25*x**2) + -y"),
    (lambda x, y: abs(x) ** 0.5 + 2**y, "abs(x)**0.5 + 2**y"),
    (lambda x, y: np.clip(x, -1, 1) + np.clip(y, None, 2), "clip(x, -1, 1) + min(y, 2)"),
    (lambda x, y: np.maximum(x, y) - np.minimum(x, 0), "max(x, y) - min(x, 0)"),
    (lambda x, y: np.arcsin(x) + np.arccos(x) + np.arctan(y), "asin(x) + acos(x) + atan(y)"),
    (lambda x, y: np.square(x) + np.reciprocal(y), "x**2 + 1/y"),
    (lambda x, y: np.hypot(x, y), "sqrt(x**2 + y**2)"),
    (lambda x, y: np.logaddexp(0, x) + np.log10(y), "softplus(x) + log(y)/log(10)"),
    (lambda x, y: scipy.special.erf(x) * scipy.special.expit(y), "erf(x)*sigmoid(y)"),
    (lambda x, y: np.sign(x) + np.fabs(y), "sign(x) + abs(y)"),
    (lambda x, y: np.sin(np.asarray(x)) + y, "sin(x) + y"),
    (lambda x, y: sum(c * x**k for k, c in enumerate((1, 2, 3), 1)), "x + 2*x**2 + 3*x**3"),
    (lambda x, y: np.polyval([1, 2, 3], x), "(1*x + 2)*x + 3"),
    (lambda x, y, scale=2: scale * x * y, "2*x*y"),
    (lambda *xs: xs[0] * xs[1], "x*y"),
    (lambda v: v[0] * v[1], "x*y"),
    (lambda v: v[..., 0] - v[..., 1], "x - y"),
    (lambda v: v[:, 0] / v[:, -1], "x/y"),
    (lambda v: np.sum(v**2, axis=-1), "x**2 + y**2"),
    (lambda v: np.exp(-(v**2)).sum(-1), "exp(-x**2) + exp(-y**2)"),
    (lambda v: np.linalg.norm(v, axis=-1), "sqrt(x**2 + y**2)"),
    (lambda v: v @ np.array([2.0, 3.0]), "x*2 + y*3"),
    (lambda v: np.prod(np.cos(v), axis=-1), "cos(x)*cos(y)"),
    (lambda v: np.tanh(v @ np.array([[1.0, 0.0], [2.0, 3.0]])) @ np.array([1.0, -1.0]),
     "tanh(x + y*2)*1 + tanh(y*3)*-1"),
    (lambda v: np.array([[1.0, 2.0], [0.0, 3.0]]) @ v @ np.ones(2), "(1*x + 2*y)*1 + 3*y*1"),
    (lambda v: (v - np.mean(v, axis=1, keepdims=True)).T[0], "x - (x + y)/2"),
    (lambda v: np.logaddexp.reduce(v, axis=-1), "log(exp(x) + exp(y))"),
    (lambda v: np.max(np.abs(v), axis=1), "max(abs(x), abs(y))"),
    (lambda v: np.sum(v[:, 1:] * v[:, :-1], axis=1), "y*x"),
    (lambda v: np.sum(v[1:] * v[:-1]), "y*x"),
    (lambda v: np.einsum("ni,i->n", v, np.array([2.0, 3.0])), "x*2 + y*3"),
    (lambda v: sum(v[i] ** 2 for i in range(len(v))), "0 + x**2 + y**2"),
    (lambda v: np.diff(v, axis=-1)[..., 0] ** 2, "(y - x)**2"),
    (lambda v: np.concatenate([v, v[:, :1]], axis=1).sum(axis=1), "x + y + x"),
    (np.add, "x + y"),
    (lambda x, y: 3, "3"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "text"), SAME, ids=[text for _, text in SAME])
def test_a_traced_function_is_the_graph_of_its_text(function: Callable[..., Any], text: str) -> None:
    assert trace(function, ["x", "y"]) == parse(text, ["x", "y"])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: [x, y * 2, 1],
        lambda x, y: (x, y * 2, 1.0),
        lambda x, y: np.array([x, y * 2, 1], dtype=object),
    ],
)
def test_several_outputs(function: Callable[..., Any]) -> None:
    assert trace(function, ["x", "y"]) == parse(["x", "y*2", "1"], ["x", "y"])
    assert trace(lambda x, y: np.stack([x, y], axis=-1), "xy") == parse(["x", "y"], "xy")


def test_floats_are_the_exact_rationals_of_the_doubles() -> None:
    graph = trace(lambda x: 0.1 + 0 * x, ["x"])
    assert Node("const", (), Fraction(*(0.1).as_integer_ratio())) in graph.nodes
    assert (
        Node("const", (), Fraction(*np.float32(0.1).as_integer_ratio()))
        in trace(lambda x: np.float32(0.1) * x, ["x"]).nodes
    )


def branch(x: Any, y: Any) -> Any:
    return x if x > 0 else y


def endless(x: Any, y: Any) -> Any:
    while True:
        x = np.sin(x) + y


def wrong(x: Any, y: Any) -> Any:
    raise RuntimeError("two\nlines")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (branch, "branches"), (endless, "operations"), (wrong, "RuntimeError"), (lambda x, y: math.sin(x), "float"),
        (lambda x, y: x and y, "branches"), (lambda x, y: (x > 0) + (y > 0), "truth values"),
        (lambda x, y: [1, 2][x], "index"),
        (lambda x, y: np.where(x, x, y), "comparisons"), (lambda x, y: np.copysign(x, y), "np.copysign"),
        (lambda x, y: -(x > y), "truth values"), (lambda x, y: x & y, "comparisons"),
        (lambda x, y: round(x, y), "digits"), (lambda x, y: (x > y).astype(int), "int"),
        (lambda x, y: np.select([x > 0], [x, y]), "as many"),
        (lambda x, y: np.piecewise(x, [x > 0], [1, 2, 3]), "as many"),
        (lambda x, y: x * np.ones(3), "shape"), (lambda x, y: x * math.inf, "inf"), (lambda x, y: x * math.nan, "nan"),
        (lambda x, y: x * 1j, "complex"), (lambda x, y: x * "a", "str"), (lambda x, y: None, "None"),
        (lambda x, y: [], "0 values"), (lambda x, y: x / 0, "division by zero"), (lambda x, y: x * 1e-310, "1e-300"),
        (lambda x, y: np.add(x, y, dtype=np.float32), "dtype"), (lambda x, y: x**2000, "exponent"),
        (lambda x, y: np.array([x, y], dtype=float), "float"), (lambda x, y: x.imag, "imag"),
        (lambda v: v[2], "IndexError"), (lambda v: v["x"], "indexes"), (lambda v: np.sum(v, axis=5), "axis"),
        (lambda v: v @ np.eye(3), "matrices"), (lambda v: v[:, 5], "IndexError"),
        (lambda v: v * np.ones(3), "entries"), (lambda v: float(v), "float"),
        (lambda v: np.sort(v), "np.sort"), (lambda v: np.linalg.norm(v, ord=1), "norm"), (lambda x, y: {x}, "set"),
    ],
)  # fmt: skip
def test_what_a_graph_cannot_hold_is_untraceable_with_the_reason(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(Untraceable) as caught:
        trace(function, ["x", "y"])
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_stand_in_kept_from_an_earlier_call_is_refused() -> None:
    kept: list[Any] = []

    def function(x: Any) -> Any:
        kept.append(x)
        return x + kept[0]

    trace(function, ["x"])
    with pytest.raises(Untraceable, match="earlier"):
        trace(function, ["x"])


def test_how_a_function_is_called() -> None:
    assert not takes_vector(lambda x: x, 1)
    assert takes_vector(lambda x: x, 3)
    assert not takes_vector(lambda x, y, z: x, 3)
    assert not takes_vector(lambda *xs: xs, 3)
    assert not takes_vector(lambda x, y, scale=1: x, 2)
    assert takes_vector(lambda x, a=1, b=2: x, 2)
    assert not takes_vector(np.hypot, 2)
    for bad in (lambda: 1, lambda x, y: x, lambda x, *, key: x, 3):
        with pytest.raises(InvalidRequest):
            takes_vector(bad, 3)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-10, 10).filter(lambda a: a == 0 or abs(a) > 1e-3))
def test_the_graph_computes_what_the_function_computes(x: float, y: float, a: float) -> None:
    def function(x: Any, y: Any) -> Any:
        total = a * x
        for k in range(1, 4):
            total = total + np.cos(k * y) * np.exp(-((x - a) ** 2) / k)
        return np.tanh(total) - np.maximum(x, a)

    env = {"x": np.float64(x), "y": np.float64(y)}
    traced = run(trace(function, ["x", "y"]), ArrayAlgebra(), env)[0]
    np.testing.assert_allclose(traced, function(env["x"], env["y"]), rtol=1e-12, atol=1e-14)
