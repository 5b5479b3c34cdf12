"""Random expression graphs and boxes for the property tests: hypothesis draws integers, a small recursion builds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from attnfun.language.graph import Builder, Graph

SMOOTH = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "erf",
    "sigmoid",
    "softplus",
]
KINKED = ["abs", "relu", "sign", "floor", "round"]
BINARY = ["add", "sub", "mul", "div", "add", "mul", "sub"]
POWERS = [-3, -2, -1, 2, 3, 4, 5]
ROOTS = [Fraction(1, 2), Fraction(1, 3), Fraction(-1, 2), Fraction(5, 2), Fraction(7, 10)]
CONSTANTS = [Fraction(v) for v in ("1", "2", "-1", "1/3", "0.1", "3", "0.5", "-2.7", "0")]


@st.composite
def graphs(draw: Any, names: tuple[str, ...] = ("x", "y"), depth: int = 5, kinks: bool = True) -> Graph:
    """A random expression of at most the given depth; undefined values are common and wanted."""
    build = Builder()

    def node(level: int) -> int:
        kind = draw(st.integers(0, 9)) if level else draw(st.integers(0, 2))
        if kind <= 1:
            return build.var(draw(st.sampled_from(names)))
        if kind == 2:
            which = draw(st.integers(0, 10))
            return build.apply("pi") if which == 10 else build.const(CONSTANTS[which % len(CONSTANTS)])
        if kind <= 5:
            ops = [*BINARY, "pow", "max", "min", "where"] if kinks else [*BINARY, "pow"]
            op = draw(st.sampled_from(ops))
            if op == "where":
                return apply(op, node(level - 1), node(level - 1), node(level - 1))
            return apply(op, node(level - 1), node(level - 1))
        if kind == 6:
            return apply("powi", node(level - 1), value=draw(st.sampled_from(POWERS)))
        if kind == 7:
            return apply("powr", node(level - 1), value=draw(st.sampled_from(ROOTS)))
        return apply(draw(st.sampled_from(SMOOTH + KINKED if kinks else SMOOTH)), node(level - 1))

    def apply(op: str, *args: int, value: Any = None) -> int:
        try:
            return build.apply(op, *args, value=value)
        except Exception:  # an exact constant fold that is not defined, such as 1/0: take the argument itself
            return args[0]

    return build.graph([node(depth)])


@st.composite
def intervals(draw: Any) -> tuple[float, float]:
    """Intervals thin, fat, exact and touching the usual ends of domains (0, 1, -1)."""
    edge = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 0.1, -0.1, 3.0])
    lo = draw(st.one_of(edge, st.floats(-4, 4, allow_subnormal=False)))
    width = draw(st.sampled_from([0.0, 2.0**-60, 1e-12, 1e-6, 1e-3, 0.1, 0.3, 1.0, 2.0]))
    return lo, lo + width


@st.composite
def points(draw: Any, box: tuple[float, float], count: int = 3) -> list[float]:
    """Points of the interval: its ends, and `count` points inside (doubles, exactly)."""
    lo, hi = box
    inside = [min(hi, max(lo, lo + draw(st.floats(0, 1)) * (hi - lo))) for _ in range(count)]
    return [lo, hi, *inside]
