"""Ranges of expressions over a box: rigorous, and tight by adaptive branch and bound with mean-value forms.

For every output g of a graph: an interval that contains g(box), and whose ends are within `tolerance` of the width of
what was
sampled, or as close as the budget of boxes allows. On each sub-box the smaller of two enclosures is used: plain balls,
and the
mean-value form g(c) + Σ_k ∂_k g(box)(x_k − c_k), which is second order in the size of the sub-box.
Failure mode: a budget that runs out gives a wider, still valid interval; an undefined sub-box gives infinite ends.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from flint import arb

from attnfun.errors import InvalidRequest
from attnfun.expressions import ArrayAlgebra, BallAlgebra, Builder, GradientAlgebra, Graph, Node, precision, run
from attnfun.expressions.enclosures import balls, lowers, uppers
from attnfun.targets.domain import Array, Box, halved

_POINTS = 600
_COST = 8  # of a `ratio` in balls, in other operations


def range_of(graph: Graph, box: Box, tolerance: float = 0.01, budget: int = 1500) -> list[tuple[float, float]]:
    """[(low, high)] for every output: proved to contain the output's values on the box."""
    used = set(graph.variables)
    keep = [k for k, n in enumerate(box.names) if n in used]
    names = [box.names[k] for k in keep]
    low, high = box.low_array[keep], box.high_array[keep]
    with precision(64):
        if not keep:
            values = run(graph, BallAlgebra(clip_sqrt=True), {})
            return [
                (float(lowers(np.array([v], dtype=object))[0]), float(uppers(np.array([v], dtype=object))[0]))
                for v in values
            ]
        return [_one(graph.reachable((o,)), names, low, high, tolerance, budget) for o in graph.outputs]


def _one(graph: Graph, names: list[str], low: Array, high: Array, tolerance: float, budget: int) -> tuple[float, float]:
    own = [k for k, n in enumerate(names) if n in set(graph.variables)]
    if not own:
        return range_of(graph, Box(("x",), (0.0,), (1.0,)))[0]
    names, low, high = [names[k] for k in own], low[own], high[own]
    seen_low, seen_high = _sampled(graph, names, low, high)
    a, b = _enclosures(graph, names, low[None], high[None])
    margin = tolerance * (seen_high - seen_low)
    relaxed = _relaxed(graph, names, low, high, tolerance, budget)
    if relaxed is not None:
        a[0], b[0] = max(a[0], relaxed[0]), min(b[0], relaxed[1])
        budget //= _COST
    if a[0] >= seen_low - margin and b[0] <= seen_high + margin:
        return float(a[0]), float(b[0])
    bottom = _bound(graph, names, low, high, seen_low - margin, budget, upper_end=False)
    top = _bound(graph, names, low, high, seen_high + margin, budget, upper_end=True)
    return max(bottom, float(a[0])), min(top, float(b[0]))


def _relaxed(
    graph: Graph, names: list[str], low: Array, high: Array, tolerance: float, budget: int
) -> tuple[float, float] | None:
    """A range with every `ratio` as a variable of its own, on its own range: wider, but such a node costs much; None
    where there is none, or none of more than a variable.
    """
    builder, at = Builder(), list[int]()
    ranges = {n: (float(a), float(b)) for n, a, b in zip(names, low, high, strict=True)}
    for node in graph.nodes:
        if node.op == "ratio" and graph.nodes[node.args[0]].op != "var":
            box = Box(tuple(names), tuple(low), tuple(high))
            ((a, b),) = range_of(graph.reachable([node.args[0]]), box, tolerance, budget)
            name = f"ratio_{len(at)}"
            if name in names or not (math.isfinite(a) and math.isfinite(b)):
                return None
            ranges[name] = _range_of_ratio(node, a, b, tolerance, budget)
            at.append(builder.var(name))
        else:
            at.append(builder.apply(node.op, *(at[a] for a in node.args), value=node.value))
    if len(ranges) == len(names):
        return None
    whole = builder.graph([at[graph.outputs[0]]])
    kept = whole.variables
    try:
        box = Box(kept, tuple(ranges[n][0] for n in kept), tuple(ranges[n][1] for n in kept))
    except InvalidRequest:  # not finite, or too narrow
        return None
    return range_of(whole, box, tolerance, budget)[0]


@lru_cache(maxsize=256)
def _range_of_ratio(node: Node, low: float, high: float, tolerance: float, budget: int) -> tuple[float, float]:
    builder = Builder()
    alone = builder.graph([builder.apply("ratio", builder.var("u"), value=node.value)])
    try:
        return range_of(alone, Box(("u",), (low,), (high,)), tolerance, budget)[0]
    except InvalidRequest:
        return -math.inf, math.inf


def _bound(graph: Graph, names: list[str], low: Array, high: Array, goal: float, budget: int, upper_end: bool) -> float:
    """A proved upper (lower) bound, by halving the sub-boxes that exceed the goal; worst first, in batches."""
    lows, highs = low[None], high[None]
    a, b = _enclosures(graph, names, lows, highs)
    score = b if upper_end else -a
    limit = goal if upper_end else -goal
    spent = 1
    width = high - low
    while spent < budget:
        bad = np.flatnonzero(~(score <= limit))
        if len(bad) == 0:
            break
        bad = bad[np.argsort(score[bad])[-64:]]
        new_low, new_high = halved(lows[bad], highs[bad], 1 / width)
        a, b = _enclosures(graph, names, new_low, new_high)
        keep = np.setdiff1d(np.arange(len(lows)), bad)
        lows, highs = np.concatenate([lows[keep], new_low]), np.concatenate([highs[keep], new_high])
        score = np.concatenate([score[keep], b if upper_end else -a])
        spent += len(new_low)
    worst = float(np.max(score))
    return worst if upper_end else -worst


def _sampled(graph: Graph, names: list[str], low: Array, high: Array) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    X = Box(tuple(names), tuple(low), tuple(high)).probe(_POINTS, rng)
    with np.errstate(all="ignore"):
        values = np.asarray(run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(names)})[0], dtype=np.float64)
    values = values[np.isfinite(values)] if values.ndim else values
    return (float(np.min(values)), float(np.max(values))) if np.size(values) else (0.0, 0.0)


def _enclosures(graph: Graph, names: list[str], low: Array, high: Array) -> tuple[Array, Array]:
    """Lower and upper ends on every box: the intersection of the plain and the mean-value enclosure."""
    d, n = len(names), len(low)
    boxes = [balls(low[:, k], high[:, k]) for k in range(d)]
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), d)
    dual = run(graph, algebra, algebra.variables(names, dict(zip(names, boxes, strict=True))))[0]
    plain = np.broadcast_to(np.asarray(dual.value, dtype=object), (n,))
    centre = low + (high - low) / 2
    point = np.frompyfunc(arb, 1, 1)
    middles = [point(centre[:, k]) for k in range(d)]
    form = run(graph, BallAlgebra(clip_sqrt=True), dict(zip(names, middles, strict=True)))[0]
    for k, partial in enumerate(dual.partials):
        if partial is not None:
            form = form + partial * (boxes[k] - middles[k])
    mean = np.broadcast_to(np.asarray(form, dtype=object), (n,))
    a, b = lowers(plain), uppers(plain)
    mean_a, mean_b = lowers(mean), uppers(mean)
    a = np.where(np.isfinite(mean_a) & (mean_a > a), mean_a, a)
    b = np.where(np.isfinite(mean_b) & (mean_b < b), mean_b, b)
    return np.where(np.isnan(a), -math.inf, a), np.where(np.isnan(b), math.inf, b)
