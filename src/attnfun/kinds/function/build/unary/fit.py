"""fit_unary: a function of one variable as a sum of heads and an affine part, with few keys and small values.

In order: exact heads (tanh, sigmoid, affine), shipped keys for one known operation (`tables`), then the general search
(`layout`, `search`). The affine part is exact and free. Nothing here is a bound: `error` is what dense points showed.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.function.build.unary.features import values
from attnfun.kinds.function.build.unary.keys import Array
from attnfun.kinds.function.build.unary.known import exact, known
from attnfun.kinds.function.build.unary.layout import Problem, expected_keys, problem
from attnfun.kinds.function.build.unary.pieces import Fit, head_of
from attnfun.kinds.function.build.unary.project import spans
from attnfun.kinds.function.build.unary.search import Candidate, search
from attnfun.kinds.function.build.unary.square import pinned_square
from attnfun.kinds.function.build.unary.tables import look_up, shipped_keys
from attnfun.language import Graph
from attnfun.network import Head, rounded

_FLOOR = {"float64": 0.0, "float32": 24 * 2.0**-24}  # of error and rounding, as a part of the range: about


@lru_cache(maxsize=1024)
def fit_unary(
    graph: Graph,
    low: float,
    high: float,
    eps: float,
    *,
    dtype: str = "float64",
    pinned: bool = False,
    quick: bool = False,
    settle: bool = False,
) -> Fit:
    """Heads for the first output of `graph`, a function of one variable, on [low, high], within eps on dense points.

    `pinned`, for a multiple of u² on an interval about 0: |head − u²| ≤ a + ρ u² with a far below eps (see `square`).
    `quick` takes the first size that works instead of the smallest. Raises Infeasible with the error that was reached
    if eps was missed, but with `settle` returns the fit of least cost (error and rounding); deterministic.
    """
    (low, high, eps), form = map(float, (low, high, eps)), known(graph)
    if form is not None:
        keys = exact(form)
        if keys is not None:
            heights = np.array([-1.0 if form.op == "tanh" else 0.0, 1.0])
            pieces = tuple(head_of(k, form.scale * heights, dtype) for k in keys)
            return _measured(graph, pieces, form.slope, form.offset, low, high, dtype)
    if pinned:
        if form is None or form.op != "powi" or form.power != 2 or form.c != 0 or form.slope != 0:
            raise Infeasible("tangent: only a multiple of u**2 can be pinned at 0")
        scale = form.scale * form.w * form.w
        keys_, values_ = pinned_square(max(abs(low), abs(high)), eps / abs(scale), dtype)
        return _measured(graph, (head_of(keys_, scale * values_, dtype),), 0.0, form.offset, low, high, dtype)
    if form is not None:
        found = look_up(graph, form, low, high, eps, dtype)
        if found is not None:
            fit = read(*found)
            if fit.error <= eps:
                return fit
    p = problem(graph, low, high, eps, dtype)
    floor = _FLOOR[dtype] * p.span
    if settle and eps < floor:  # no head is that accurate: all such requests are one
        return fit_unary(graph, low, high, floor, dtype=dtype, pinned=pinned, quick=quick, settle=settle)
    best = search(p, quick)
    fit = read(p, best)
    total = fit.error + best.rounding
    if not settle and not total <= 1.0001 * eps:
        reached = f"{fit.error:.2g} (and {best.rounding:.1g} for rounding in {dtype}) was reached with {fit.keys} keys"
        raise Infeasible(f"tangent: {reached}, not {eps:.2g}", {"eps": float(f"{1.1 * total:.2g}")})
    return fit


def estimate_keys(graph: Graph, low: float, high: float, eps: float) -> float:
    """About how many keys `fit_unary` will use, without fitting, for choosing between plans; inf if it would refuse."""
    form = known(graph)
    if form is not None:
        if exact(form) is not None:
            return 0.0 if form.op == "affine" else 2.0
        held = shipped_keys(form, float(low), float(high), float(eps))
        if held is not None:
            return float(held)
    whole = form.power if form is not None and form.op == "powi" else 0
    try:
        expected = expected_keys(problem(graph, float(low), float(high), float(eps), "float64"))
        return max(expected, 2.0 * whole)  # powers of three and more were found to take two keys a degree
    except Infeasible:
        return math.inf


def read(p: Problem, c: Candidate) -> Fit:
    """A candidate as stored weights, and its error measured on them."""
    pieces = tuple(head_of(keys, c.x[span], p.dtype) for keys, span in spans(c.pieces))
    slope = c.x[-1] / ((p.high - p.low) / 2)
    check = p.sample(c.keys, 5)
    return _stored(pieces, slope, c.x[-2] - slope * p.middle, check.u, check.f, p.dtype)


def _measured(
    graph: Graph, pieces: tuple[Head, ...], slope: float, offset: float, low: float, high: float, dtype: str
) -> Fit:
    t = (1 - np.cos(np.linspace(0, np.pi, 2001))) / 2
    u = np.clip(np.concatenate([low + (high - low) * t, np.linspace(low, high, 2001)]), low, high)
    return _stored(pieces, slope, offset, u, values(graph, u), dtype)


def _stored(pieces: tuple[Head, ...], slope: float, offset: float, u: Array, f: Array, dtype: str) -> Fit:
    slope, offset = (float(rounded(np.array(v), dtype)) for v in (slope, offset))
    fit = Fit(pieces, slope, offset)
    return replace(fit, error=float(np.abs(fit(u) - f).max()))
