"""Shipped keys for squares, logarithms, powers and exponentials: tuned once, values refitted for every use.

| kind | normal form, on | depends on |
| --- | --- | --- |
| square | s², [−1, 1] | nothing: the middle of the interval is affine |
| log | ln s, [1, R] | the ratio R of the ends |
| power p | s^p, [1, R] | R |
| exp | e^s, [−W, 0] | the width W |
| root | √s, [0, 1] | nothing |
| pinned | s² with an error relative to s² (see `fit`), [−1, 1] | nothing |

`tables.json` holds slopes and biases in s for some tolerances, ratios and widths; it is written by `make tables`. A
request takes the entries for its or a larger ratio, fewest keys first, and keeps the first that passes after its values
were fitted on the actual interval. Where none does, the general search follows.
"""

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

from attnfun.kinds.function.build.unary.features import Known, values
from attnfun.kinds.function.build.unary.keys import Array, Keys, centre
from attnfun.kinds.function.build.unary.layout import Problem, Side
from attnfun.kinds.function.build.unary.search import Candidate, finish, passes
from attnfun.language import Graph

TABLES = Path(__file__).with_name("tables.json")
_ORIGIN = 12.0  # ratio above which queries are measured from the singular point, below it from the middle


@dataclass(frozen=True)
class Normal:
    """A known operation in normal form: s = rate·(u − origin), error scale, and the parameter (ratio or width)."""

    kind: str
    parameter: float
    rate: float
    origin: float
    eps: float
    singular: bool  # s = 0 is a singular point that the grid must grade towards


@dataclass(frozen=True)
class Entry:
    parameter: float
    eps: float
    slopes: Array
    biases: Array


def kind_of(op: str, power: Fraction) -> str | None:
    """The name of the operation's table, if there could be one."""
    if op in ("powi", "powr"):
        return "square" if power == 2 else f"power {power}"
    return {"log": "log", "exp": "exp", "sqrt": "power 1/2"}.get(op)


def normal(form: Known, low: float, high: float, eps: float) -> Normal | None:
    """The normal form of A·op(w u + c) + affine on [low, high] to eps, or None if it has none in float64's range."""
    try:
        n = _normal(form, low, high, eps)
    except (ZeroDivisionError, OverflowError):
        return None
    return n if n is None or np.isfinite([n.parameter, n.rate, n.origin, n.eps]).all() else None


def _normal(form: Known, low: float, high: float, eps: float) -> Normal | None:
    kind = kind_of(form.op, form.power)
    if kind is None or form.scale == 0:
        return None
    ends = sorted((form.w * low + form.c, form.w * high + form.c))
    loss = eps / abs(form.scale)
    half = (high - low) / 2
    if kind == "square":
        return Normal(kind, 1.0, 1 / half, low + half, loss / (form.w * half) ** 2, False)
    origin = -form.c / form.w
    if kind == "exp":
        top = ends[1]
        rate, at = form.w, (top - form.c) / form.w
        return Normal(kind, ends[1] - ends[0], rate, at, loss / float(np.exp(min(max(top, -700.0), 700.0))), False)
    if kind == "power 1/2" and abs(ends[0]) <= 1e-15 * ends[1]:
        return Normal("root", 1.0, form.w / ends[1], origin, loss / ends[1] ** 0.5, True)
    if not ends[0] > 0:
        return None
    size = 1.0 if kind == "log" else ends[0] ** float(Fraction(kind.split()[1]))
    ratio = ends[1] / ends[0]
    return Normal(kind, ratio, form.w / ends[0], origin, loss / size, ratio > _ORIGIN)


@lru_cache(maxsize=1)
def entries() -> dict[str, tuple[Entry, ...]]:
    """The file's entries by kind; nothing where the file is missing (it is being made)."""
    if not TABLES.exists():
        return {}
    out: dict[str, list[Entry]] = {}
    for kind, parameter, eps, slopes, biases in json.loads(TABLES.read_text("utf-8")):
        out.setdefault(kind, []).append(Entry(parameter, eps, np.array(slopes), np.array(biases)))
    return {k: tuple(v) for k, v in out.items()}


def shipped_keys(form: Known, low: float, high: float, eps: float) -> int | None:
    """The size of the smallest entry made for such a request, or None."""
    n = normal(form, low, high, eps)
    if n is None:
        return None
    made = [e for e in entries().get(n.kind, ()) if e.parameter >= n.parameter and e.eps <= n.eps]
    return min((len(e.slopes) for e in made), default=None)


def look_up(
    graph: Graph, form: Known, low: float, high: float, eps: float, dtype: str
) -> tuple[Problem, Candidate] | None:
    """The first shipped head that passes on this interval, or None."""
    n = normal(form, low, high, eps)
    if n is None:
        return None
    fitting = [e for e in entries().get(n.kind, ()) if e.parameter >= n.parameter * (1 - 1e-9)]
    fitting = sorted((e for e in fitting if e.eps <= 12 * n.eps), key=lambda e: (len(e.slopes), -e.eps, e.parameter))
    made_for = next((i for i, e in enumerate(fitting) if e.eps <= n.eps), len(fitting))
    p = plain_problem(graph, n, low, high, eps, dtype)
    for entry in fitting[max(0, made_for - 3) : made_for + 3]:  # a smaller one may do: the interval may be smaller
        keys = place(entry, n, low, high, dtype)
        c = finish(p, (keys,), p.sample(keys.size, 3), p.sample(keys.size))
        if passes(p, c):
            return p, c
    return None


def plain_problem(graph: Graph, n: Normal, low: float, high: float, eps: float, dtype: str) -> Problem:
    """The problem without a look at the expression: its one singular point is known."""
    u = np.linspace(low, high, 129)
    f = values(graph, u)
    t = (u - u[64]) / (u[-1] - u[0])
    bend = f - f.mean() - t * float((t @ f) / (t @ t))
    side = 1 if n.rate > 0 else -1
    far, near = (high, low) if side > 0 else (low, high)
    ladders: tuple[Side, ...] = ()
    if n.singular:
        outer, distance = side * (far - n.origin), side * (near - n.origin)
        inner = 0.1 * distance if n.kind != "root" else 0.15 * (n.eps**2) * outer
        ladders = (Side(n.origin, side, inner, outer),)
    return Problem(graph, low, high, eps, dtype, ladders, (), max(float(np.ptp(bend)), eps), np.array([low, high]))


def place(entry: Entry, n: Normal, low: float, high: float, dtype: str) -> Keys:
    """The entry's keys in the query q = ±u + c: logits k s + b with s = rate (u − origin)."""
    if n.singular:
        side = 1.0 if n.rate > 0 else -1.0
        return Keys(side, -side * n.origin, entry.slopes * abs(n.rate), entry.biases)
    middle = centre(low, high, dtype)
    return Keys(1.0, -middle, entry.slopes * n.rate, entry.biases + entry.slopes * n.rate * (middle - n.origin))
