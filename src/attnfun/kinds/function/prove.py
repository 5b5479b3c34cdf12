"""From weights and target to a certificate: which method, then rounding, then the verdict.

Everything is read from the network and the target given; nothing from a construction, nothing from an old certificate.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attnfun.certify.affine import prove_by_affine
from attnfun.certify.boxes import prove_by_boxes
from attnfun.certify.branches import decide_branches, has_kinks
from attnfun.certify.cells import prove_by_cells, walls
from attnfun.certify.certificate import Certificate
from attnfun.certify.composition import prove_by_composition
from attnfun.certify.extension import require_extension
from attnfun.certify.moments import prove_by_moments
from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.rounding import hypotheses, rounding_bound
from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Array, Bound, Undecided, View, provided, view
from attnfun.certify.witness import best_witness, computed_witness, worst_points
from attnfun.errors import AttnfunError, present
from attnfun.language import Graph, precision
from attnfun.language.definedness import require_defined
from attnfun.language.function import Function
from attnfun.language.numbers import at_least
from attnfun.network import Network, evaluate
from attnfun.search import Goal, Say, certified

_MANY = 50_000  # values of a head, up to which an L^p norm is proved by boxes first
_FEW = 300  # the most keys of a sharp partition that the moments are tried on
_SHARP = 6.0  # least logit step over a cell above which a product head is judged as a partition first


def prove(
    network: Network,
    function: Function,
    *,
    norm: float = math.inf,
    eps: float | None = None,
    construction: str = "",
    relative: Mapping[str, Any] | None = None,
    report: Say | None = None,
) -> Certificate:
    """The certificate of `network` as an approximation of `function` on its box, proved, refuted or undecided."""
    return certified(function, network, Goal(eps, norm, relative), construction, report)


def proof(function: Function, network: Network, goal: Goal, say: Say) -> Proof:
    """What is proved of `network` as an approximation of `function` on its box.

    `goal.eps` only decides how hard the methods try; with None they try for any bound.
    """
    eps = goal.eps
    try:
        _require_fit(network, function)
        require_extension(function)
        bound, rounding = _bound_and_rounding(network, function, goal.norm, eps, say)
    except (Undecided, AttnfunError) as why:
        return undecided(why)
    enough = eps if eps is not None else 1.1 * (bound.high + bound.rounding)
    at_walls = bound.rounding < rounding and not bound.high + rounding <= enough
    lost = bound.rounding if at_walls else rounding
    total = bound.high + lost
    if not (0 <= bound.low <= bound.high and rounding >= 0 and total >= 0):  # NaN must not pass; two different codes
        raise AssertionError(f"{bound.method}: low {bound.low}, high {bound.high}, rounding {rounding}: no certificate")
    return Proof(
        bound.method,
        high=math.nextafter(total, math.inf) if total > 0 else 0.0,
        low=bound.low,
        seen=max(bound.low - rounding, bound.firm),  # low is about real arithmetic
        parts={
            "construction": bound.high,
            "rounding at walls" if at_walls else "rounding": lost,
        },
        hypotheses=(*hypotheses(network.dtype, softmax=not network.is_mlp), *bound.hypotheses),
        witness=None if bound.witness is None else tuple(float(v) for v in bound.witness),
        details=bound.details,
        conditional=function.graph is None,
        refuted=_refutation(function, bound),
        unmet=f" (rounding {lost:.2g})",
    )


def _refutation(function: Function, bound: Bound) -> str:
    if bound.witness is None:
        return f"the error is at least {at_least(bound.low, 6)} in this norm"
    at = ", ".join(f"{n}={float(v)!r}" for n, v in zip(function.box.names, bound.witness, strict=True))
    return f"at {at} the error is at least {at_least(bound.low, 6)}"


def _require_fit(network: Network, function: Function) -> None:
    network.validate()
    low, high = function.box.low_array, function.box.high_array
    provided(np.all(network.low <= low) and np.all(network.high >= high), "the network was made for a smaller box")
    if network.inputs != function.box.names or len(network.outputs) != len(function.outputs):
        raise Undecided("the network's inputs or outputs are not those of the target")
    known = function.graph is not None or function.call is not None
    provided(known, "the target is a Python function that is not in the file; pass it as target= to check against it")


def _bound_and_rounding(
    network: Network, function: Function, norm: float, eps: float | None, say: Say
) -> tuple[Bound, float]:
    if network.labels is not None and math.isinf(norm):
        say("proof by composition, head by head")
        if function.graph is not None:
            require_defined(function.graph, function.box)
        try:
            return prove_by_composition(network, function, network.labels, eps if eps is not None else math.inf)
        except Undecided:  # a label that cannot be derived is never passed over, but the network may be refuted
            if eps is None or any(len(head.axes) != 1 or head.axes[0].dim != 1 for head in network.heads):
                raise
            low, witness = computed_witness(network, function, worst_points(network, function))
            if not low > eps:
                raise
            return Bound("witness", low, math.inf, witness), 0.0  # this low holds however the network is computed
    try:
        seen = view(network, function.box.low_array, function.box.high_array)
    except Undecided:
        if len(network.layers) != 1 or len(network.heads) != 1:
            raise
        return _by_boxes_alone(network, function, norm, eps, say), math.inf
    if not seen.heads and function.graph is not None and math.isinf(norm):
        require_defined(function.graph, function.box)
        return prove_by_affine(seen, function), rounding_bound(seen, network.dtype)
    say("rounding of the evaluation")
    rounding = rounding_bound(seen, network.dtype)
    if function.graph is not None:
        require_defined(function.graph, function.box, continuous=math.isinf(norm))
    estimate, starts = _sampled(network, function)
    goal = eps if eps is not None else max(2 * estimate, 4 * rounding, 1e-300)
    stop = eps if eps is not None else math.inf
    wanted, goal = goal, max(goal - rounding, goal * 0.1)
    names: tuple[str, ...] = function.box.names
    with precision(128):
        graph = None if function.graph is None else decide_branches(function.graph, names, seen.low, seen.high)
    methods: dict[str, Callable[[], Bound]] = {
        "cells": partial(prove_by_cells, seen, function, norm, wanted, network.dtype),
        "boxes": partial(prove_by_boxes, network, function, norm, wanted),
        "affine": partial(prove_by_affine, seen, function),  # its witness is a point: an L^p norm drops it below
    }
    if graph is not None:
        methods["nodes"] = partial(prove_by_nodes, seen, graph, names, estimate, goal)
        methods["moments"] = partial(prove_by_moments, seen, graph, names, estimate, goal, starts, stop)
    best: Bound | None = None
    reasons = []
    for name in _order(seen, graph, norm):
        say(f"proof by {name}")
        try:
            bound = methods[name]()
        except Undecided as why:
            reasons.append(str(why))
            continue
        if not math.isinf(norm) and bound.method not in ("cells", "boxes"):
            # a sup bound bounds every L^p norm, its witness none
            bound = Bound(bound.method, 0.0, bound.high, None, bound.details, bound.hypotheses)
        total = bound.high + min(rounding, bound.rounding)
        if best is None or total < best.high + min(rounding, best.rounding):
            best = bound
        if bound.high <= goal or total <= wanted or bound.low > stop:  # below the goal, or as computed what is wanted
            return bound, rounding
    if graph is not None and math.isinf(norm) and (best is None or best.low <= goal):
        low, witness = best_witness(seen, graph, names, starts, (seen.high - seen.low) / 200, evaluations=80)
        if best is None and low > stop:
            return Bound("witness", low, math.inf, witness), rounding
        if best is not None and low > best.low:
            best = replace(best, low=low, witness=witness)
    return present(best, Undecided("; ".join(reasons) or "no method applies")), rounding


def _by_boxes_alone(network: Network, function: Function, norm: float, eps: float | None, say: Say) -> Bound:
    """For a head whose axes read several variables."""
    if function.graph is not None:
        require_defined(function.graph, function.box, continuous=math.isinf(norm))
    say("proof by boxes")
    return prove_by_boxes(network, function, norm, eps or max(2 * _sampled(network, function)[0], 1e-300))


def _order(seen: View, graph: Graph | None, norm: float) -> list[str]:
    """The methods that apply, in the order in which they are tried."""
    if graph is None:
        return ["cells", "boxes"]
    line = seen.dim == 1
    if not math.isinf(norm):
        smooth, jumps = not has_kinks(graph), any(n.op == "sign" for n in graph.nodes)
        tables = ["boxes", "cells"] if sum(head.values.size for head in seen.heads) <= _MANY else ["cells", "boxes"]
        return [*tables, *("nodes",) * smooth, *("moments",) * (line and not jumps), *("affine",) * (not seen.heads)]
    if _is_sharp(seen):
        few = line and seen.heads[0].axes[0].size <= _FEW  # many steps need many intervals: minutes
        return ["cells", "nodes", *("moments",) * few, "boxes"]
    return ["nodes", *("moments",) * line, "cells", "boxes"]


def _is_sharp(seen: View) -> bool:
    if len(seen.heads) != 1:
        return False
    try:
        with precision(64):
            return all(walls(axis).least > _SHARP for axis in seen.heads[0].axes)
    except Undecided:
        return False


def _sampled(network: Network, function: Function) -> tuple[float, Array]:
    """A float estimate of the sup error and the points behind it: steers the search for a proof, is not part of it."""
    rng = np.random.default_rng(0)
    X = function.box.probe(4000, rng)
    if function.box.dim == 1:
        grid = np.linspace(function.box.low[0], function.box.high[0], 8001)[:, None]
        X = np.concatenate([X, grid])
    with np.errstate(all="ignore"):
        error = np.max(np.abs(evaluate(network, X).astype(np.float64) - function.values(X)), axis=1)
    error = np.where(np.isfinite(error), error, 0.0)
    top = np.argsort(error)[-3:][::-1]
    return float(error[top[0]]), X[top]
