"""Which graphs are A·op(w u + c) + B u + C, one operation under affine maps, and the heads that are exact.

    sigmoid(z) = e^{z/2}/(e^{z/2} + e^{−z/2}),      tanh(z) = 2 sigmoid(2z) − 1:      two keys, any steepness
    r/(s + t e^z), s t > 0:                          r/s · sigmoid(−z − ln(t/s))

Numbers are read as floats: whether a rewriting is exact is for the proof to say.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from attnfun.kinds.function.build.unary.keys import Keys
from attnfun.language import Graph

_ONE = frozenset(
    {"sin", "cos", "tan", "exp", "log", "sqrt", "abs", "relu", "tanh", "sigmoid", "powi", "powr", "log1p", "expm1",
     "atan", "erf", "softplus", "sinh", "cosh", "asin", "acos"}
)  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A·op(w u + c) + B u + C; `power` is the exponent of powi and powr. op "affine" has A = 0."""

    op: str
    power: Fraction
    w: float
    c: float
    scale: float
    slope: float
    offset: float


def known(graph: Graph) -> Known | None:
    """The one operation of the graph's first output, or None if there are more."""
    forms: list[Known | None] = []
    for node in graph.nodes:
        args = [forms[a] for a in node.args]
        forms.append(_form(node.op, node.value, args))
    return forms[graph.outputs[0]]


def _affine(slope: float, offset: float) -> Known:
    return Known("affine", Fraction(0), 0.0, 0.0, 0.0, slope, offset)


def _form(op: str, value: object, args: list[Known | None]) -> Known | None:
    if op == "const":
        assert isinstance(value, Fraction)
        return _affine(0.0, float(value))
    if op in ("pi", "e"):
        return _affine(0.0, math.pi if op == "pi" else math.e)
    if op == "var":
        return _affine(1.0, 0.0)
    if any(a is None for a in args):
        return None
    first, second = args[0], args[1] if len(args) > 1 else None
    assert first is not None
    if op == "neg":
        return _scaled(first, -1.0)
    if op in ("add", "sub") and second is not None:
        return _added(first, second if op == "add" else _scaled(second, -1.0))
    if op == "mul" and second is not None:
        if _constant(first):
            return _scaled(second, first.offset)
        if first == second and first.op == "affine":
            return Known("powi", Fraction(2), first.slope, first.offset, 1.0, 0.0, 0.0)
        return _scaled(first, second.offset) if _constant(second) else None
    if op == "div" and second is not None:
        return _quotient(first, second)
    if op in ("max", "min") and second is not None:
        return _larger(first, second, op)
    if op in _ONE and first.op == "affine":
        power = Fraction(value) if isinstance(value, Fraction | int) else Fraction(0)
        return Known(op, power, first.slope, first.offset, 1.0, 0.0, 0.0) if first.slope != 0 else None
    return None


def _constant(k: Known) -> bool:
    return k.op == "affine" and k.slope == 0


def _scaled(k: Known, factor: float) -> Known:
    return replace(k, scale=k.scale * factor, slope=k.slope * factor, offset=k.offset * factor)


def _added(a: Known, b: Known) -> Known | None:
    if a.op != "affine":
        a, b = b, a
    if a.op != "affine":
        return None
    return replace(b, slope=a.slope + b.slope, offset=a.offset + b.offset)


def _quotient(a: Known, b: Known) -> Known | None:
    if _constant(b):
        return _scaled(a, 1 / b.offset) if b.offset != 0 else None
    if not _constant(a):
        return None
    if b.op == "affine":
        return Known("powi", Fraction(-1), b.slope, b.offset, a.offset, 0.0, 0.0)
    if b.op == "exp" and b.slope == 0 and b.offset * b.scale > 0:  # r/(s + t e^z)
        return Known("sigmoid", Fraction(0), -b.w, -b.c - math.log(b.scale / b.offset), a.offset / b.offset, 0.0, 0.0)
    if b.op == "exp" and b.slope == 0 and b.offset == 0:
        return Known("exp", Fraction(0), -b.w, -b.c, a.offset / b.scale, 0.0, 0.0)
    return None


def _larger(a: Known, b: Known, op: str) -> Known | None:
    """max(a, b) = b + relu(a − b), min(a, b) = a − relu(a − b)."""
    difference = _added(a, _scaled(b, -1.0))
    if a.op != "affine" or b.op != "affine" or difference is None or difference.slope == 0:
        return None
    base, sign = (b, 1.0) if op == "max" else (a, -1.0)
    return Known("relu", Fraction(0), difference.slope, difference.offset, sign, base.slope, base.offset)


def exact(k: Known) -> tuple[Keys, ...] | None:
    """The keys that represent the operation with no error but rounding, or None."""
    if k.op == "affine":
        return ()
    if k.op not in ("tanh", "sigmoid"):
        return None
    half = 1.0 if k.op == "tanh" else 0.5
    # the query holds the offset of z in units of u: logits ±half·w (u + c/w)
    return (Keys(1.0, k.c / k.w, half * k.w * np.array([-1.0, 1.0]), np.zeros(2)),)
