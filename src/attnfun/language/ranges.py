"""Ranges of expressions over a box: rigorous, and tight by adaptive branch and bound with mean-value forms.

For every output g of a graph: an interval that contains g(box), and whose ends are within `tolerance` of the width of
what was sampled, or as close as the budget of boxes allows. On each sub-box plain balls meet mean-value forms at every
node (`language/mean_value.py`), which is second order in the size of the sub-box.
Failure mode: a budget that runs out gives a wider, still valid interval; an undefined sub-box gives infinite ends.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.language import BallAlgebra, Builder, Graph, Node, precision, run, run_all
from attnfun.language.arrays import values_at
from attnfun.language.domain import Array, Box, exchanged, halved
from attnfun.language.enclosures import ball, ball_ends, lower, upper
from attnfun.language.graph import reached
from attnfun.language.mean_value import Known, enclosures

_POINTS = 600
_LEAST, _WORK = 64, 100_000  # boxes at least, and operations times boxes
_NARROW = 2.0**-54  # of the box: what is narrower is not halved, for it comes down to one point
_SEPARATE = 10  # variables past which sums are taken apart into what has none in common
_COST = 8  # of a `ratio` in balls, in other operations


Pairs = tuple[tuple[int, tuple[float, float]], ...]
_EFFORT = 300_000  # operations times boxes times values and partials, of all ranges that one caller asks for


@dataclass
class Effort:
    """What is left for the ranges that one caller asks for; where nothing is, no box is halved."""

    left: int = _EFFORT


def range_of(
    graph: Graph,
    box: Box,
    tolerance: float = 0.01,
    budget: int = 1500,
    known: Known | None = None,
    within: tuple[float, float] = (-math.inf, math.inf),
    effort: Effort | None = None,
) -> list[tuple[float, float]]:
    """[(low, high)] for every output: proved to contain the output's values on the box.

    `known`: nodes of the graph that are defined on the whole box, with ranges already proved. `within`: ends that are
    worth some effort not to pass, if the samples do not; 0 is always one. `effort`: of all such calls, less what this
    one takes.
    """
    budget = budget if effort is None or effort.left > 0 else 1
    graph, pairs = _pruned(graph, known or {})
    found, spent = _ranges(graph, box, tolerance, budget, pairs, within)
    if effort is not None:
        effort.left -= spent
    return list(found)


def _pruned(graph: Graph, known: Known) -> tuple[Graph, Pairs]:
    """What the outputs need, and what is known of it: many outputs of a large graph are asked for one by one."""
    needed = sorted(reached(graph.outputs, lambda i: graph.nodes[i].args))
    at = {old: new for new, old in enumerate(needed)}
    nodes = (graph.nodes[i] for i in needed)
    kept = tuple(Node(node.op, tuple(at[a] for a in node.args), node.value) for node in nodes)
    pairs = tuple((at[i], known[i]) for i in needed if i in known)
    return Graph(kept, tuple(at[o] for o in graph.outputs)), pairs


@lru_cache(maxsize=256)  # a plan, its proof and the proof of what stands above it ask for the same ranges
def _ranges(
    graph: Graph, box: Box, tolerance: float, budget: int, pairs: Pairs, within: tuple[float, float]
) -> tuple[tuple[tuple[float, float], ...], int]:
    """The ranges, and what they took, which does not depend on what is remembered."""
    with precision(64):
        if not graph.variables:
            values = run(graph, BallAlgebra(clip_sqrt=True), {})
            return tuple((lower(value), upper(value)) for value in values), 0
        each = [_one(graph, o, box, tolerance, budget, dict(pairs), within) for o in graph.outputs]
        return tuple(ends for ends, _ in each), sum(spent for _, spent in each)


def plain_ranges(graph: Graph, box: Box) -> list[tuple[float, float]]:
    """Every node on the whole box by one pass of balls, max and min known for what they are."""
    whole = {n: ball(a, b) for n, a, b in zip(box.names, box.low, box.high, strict=True)}
    with precision(64):
        values = run_all(Graph(_joined(graph), graph.outputs), BallAlgebra(clip_sqrt=True), whole)
        return [(lower(value), upper(value)) for value in values]


def is_tight(graph: Graph, box: Box, low: float, high: float, tolerance: float = 0.1) -> bool:
    """Is [low, high] close to what samples of the first output show, and of the same sign where they have one?

    Of an output in which no variable occurs twice balls are sharp, whatever few samples of many variables show.
    It steers where a second enclosure is looked for, and proves nothing.
    """
    graph = Graph(_joined(graph), graph.outputs[:1]).reachable(graph.outputs[:1])
    if not graph.repeated[graph.outputs[0]]:
        return bool(np.isfinite(low) and np.isfinite(high))
    least, most = _sampled(graph, _own(graph, box))
    margin = tolerance * (most - least)
    kept = (low > 0 or least <= 0) and (high < 0 or most >= 0)
    return bool(np.isfinite(low) and np.isfinite(high) and kept and low >= least - margin and high <= most + margin)


def _one(
    graph: Graph, o: int, box: Box, tolerance: float, budget: int, known: Known, within: tuple[float, float]
) -> tuple[tuple[float, float], int]:
    graph = Graph(_joined(graph), (o,))
    alone = graph.reachable((o,))
    graph = Graph(graph.nodes, (o,)) if known else alone
    if not alone.variables:
        return range_of(alone, box)[0], 0
    own = _own(alone, box)
    if own.dim > _SEPARATE and alone.repeated[alone.outputs[0]]:  # else one pass of balls is sharp
        parts = _separated(graph, o if known else alone.outputs[0], known)
        if len(parts) > 1:
            return _added(parts, own, tolerance, budget)
    enclose = partial(_enclosures, graph, own.names, known, {})
    a, b = enclose(own.low_array[None], own.high_array[None])
    budget, cost = min(budget, max(_LEAST, _WORK // len(alone.nodes))), len(alone.nodes) * (2 + min(own.dim, _SEPARATE))
    relaxed = _relaxed(alone, own, tolerance, budget)
    if relaxed is not None:
        a[0], b[0] = max(a[0], relaxed[0]), min(b[0], relaxed[1])
        budget //= _COST
    if budget <= 1 or not graph.repeated[o if known else alone.outputs[0]]:
        return (float(a[0]), float(b[0])), cost  # sharp: no variable occurs in it by two ways
    seen_low, seen_high = _sampled(alone, own)
    margin = tolerance * (seen_high - seen_low)
    least, most = seen_low - margin, seen_high + margin
    near = 0.1 * margin  # what comes closer to an end may well reach it
    for end in (0.0, *within):  # a sign is worth knowing
        least = max(least, seen_low - (seen_low - end) / 4) if end < seen_low - near else least
        most = min(most, seen_high + (end - seen_high) / 4) if end > seen_high + near else most
    if a[0] >= least and b[0] <= most:
        return (float(a[0]), float(b[0])), cost
    bottom, below = _bound(enclose, own, least, budget, upper_end=False)
    top, above = _bound(enclose, own, most, budget, upper_end=True)
    return (max(bottom, float(a[0])), min(top, float(b[0]))), cost * (1 + below + above)


Part = tuple[Graph, Known]


def _separated(graph: Graph, o: int, known: Known) -> list[Part]:
    """The output as a sum of parts, each with what is known of its nodes.

    Parts have no variable in common, but for terms of many variables, which are parts of their own.
    """
    nodes = graph.nodes
    weights: dict[int, Fraction] = {o: Fraction(1)}
    leaves: dict[int, Fraction] = {}
    for i in range(o, -1, -1):  # arguments have smaller numbers
        c = weights.pop(i, None)
        if c is None:
            continue
        node = nodes[i]
        factor = nodes[node.args[0]] if node.op == "mul" else node
        if i in known and i != o:
            leaves[i] = c
        elif node.op in ("add", "sub", "neg"):
            signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}[node.op]
            for a, sign in zip(node.args, signs, strict=True):
                weights[a] = weights.get(a, Fraction(0)) + sign * c
        elif node.op == "mul" and factor.op == "const" and isinstance(factor.value, Fraction):
            weights[node.args[1]] = weights.get(node.args[1], Fraction(0)) + factor.value * c
        elif node.op == "div" and nodes[node.args[1]].op == "const":
            divisor = nodes[node.args[1]].value
            assert isinstance(divisor, Fraction)
            weights[node.args[0]] = weights.get(node.args[0], Fraction(0)) + c / divisor
        else:
            leaves[i] = c
    owners = graph.owners
    parts: dict[str, list[int]] = {}  # by one variable of each
    heads: dict[str, str] = {}

    def head(name: str) -> str:
        while heads.setdefault(name, name) != name:
            heads[name] = heads[heads[name]]
            name = heads[name]
        return name

    few = {leaf: owners[leaf] if len(owners[leaf]) <= _SEPARATE else frozenset[str]() for leaf in leaves}
    for leaf in leaves:
        names = sorted(few[leaf])
        for name in names[1:]:
            heads[head(name)] = head(names[0])
    for leaf in sorted(leaves):
        name = head(min(few[leaf])) if few[leaf] else f"alone {leaf}"
        parts.setdefault(name, []).append(leaf)
    return [_part(graph, group, leaves, known) for group in parts.values()]


def _part(graph: Graph, group: list[int], weights: Mapping[int, Fraction], known: Known) -> Part:
    """Σ c·leaf over a group of leaves, its variables renamed in their order: parts that are alike are equal."""
    build = Builder()
    needed = sorted(reached(group, lambda i: graph.nodes[i].args))
    at: dict[int, int] = {}
    for i in needed:
        node = graph.nodes[i]
        at[i] = build.apply(node.op, *(at[a] for a in node.args), value=node.value)
    total = build.const(0)
    for leaf in group:
        total = build.apply("add", total, build.apply("mul", build.const(weights[leaf]), at[leaf]))
    return Graph(build.nodes, (total,)), {at[i]: known[i] for i in needed if i in known}


def _added(parts: list[Part], box: Box, tolerance: float, budget: int) -> tuple[tuple[float, float], int]:
    """The sum of the ranges of parts, each on its own variables; one of those that are alike is enough."""
    found: dict[Any, tuple[float, float]] = {}
    low, high, spent = 0.0, 0.0, 0
    for graph, known in parts:
        graph, pairs = _pruned(graph, known)
        if graph.variables:
            own = box.part(graph.variables)
            names = tuple(f"v{k}" for k in range(own.dim))
            new = dict(zip(own.names, names, strict=True))
            nodes = (Node("var", (), new[str(n.value)]) if n.op == "var" else n for n in graph.nodes)
            graph, own = Graph(tuple(nodes), graph.outputs), Box(names, own.low, own.high)
        else:
            own = box
        key = graph, own, pairs
        if key not in found:
            (found[key],), cost = _ranges(graph, own, tolerance, budget, pairs, (-math.inf, math.inf))
            spent += cost
        low = math.nextafter(low + found[key][0], -math.inf)
        high = math.nextafter(high + found[key][1], math.inf)
    return (low, high), spent


def _joined(graph: Graph) -> tuple[Node, ...]:
    """The nodes, each in its place, with b + relu(a − b) written max(a, b) and a − relu(a − b) written min(a, b);
    a + relu(−a) is relu(a), and 2 relu(a) − a is |a|.

    All are identities, and balls of the right sides do not take a and b for independent of their difference.
    """
    out = list(graph.nodes)
    for i, node in enumerate(graph.nodes):
        if node.op not in ("add", "sub"):
            continue
        for plain, kink in (node.args, node.args[::-1])[: 2 if node.op == "add" else 1]:
            if out[kink].op != "relu":
                continue
            inner = out[out[kink].args[0]]
            if inner.op == "sub" and inner.args[1 if node.op == "add" else 0] == plain:
                out[i] = Node("max" if node.op == "add" else "min", inner.args)
            elif node.op == "add" and inner == Node("neg", (plain,)):
                out[i] = Node("relu", (plain,))
        twice = out[node.args[0]]
        if node.op == "sub" and twice.op == "mul":
            factor, unit = (out[a] for a in twice.args)
            if factor == Node("const", (), Fraction(2)) and unit == Node("relu", node.args[1:]):
                out[i] = Node("abs", node.args[1:])
    return tuple(out)


def _own(graph: Graph, box: Box) -> Box:
    """The box of the variables that occur."""
    used = set(graph.variables)
    return box.part([name for name in box.names if name in used])


def _relaxed(graph: Graph, box: Box, tolerance: float, budget: int) -> tuple[float, float] | None:
    """A range with every `ratio` as a variable of its own, on its own range: wider, but such a node costs much; None
    where there is none, or none of more than a variable.
    """
    builder = Builder()
    ranges = {n: (a, b) for n, a, b in zip(box.names, box.low, box.high, strict=True)}
    at: list[int] = []
    for i, node in enumerate(graph.nodes):
        if node.op == "ratio" and graph.nodes[node.args[0]].op != "var":
            ((a, b),) = range_of(graph.reachable([node.args[0]]), box, tolerance, budget)
            name = f"ratio_{i}"
            if name in box.names or not (math.isfinite(a) and math.isfinite(b)):
                return None
            ranges[name] = _range_of_ratio(node, a, b, tolerance, budget)
            at.append(builder.var(name))
        else:
            at.append(builder.apply(node.op, *(at[a] for a in node.args), value=node.value))
    if len(ranges) == box.dim:
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


def _bound(
    enclose: Callable[[Array, Array], tuple[Array, Array]], box: Box, goal: float, budget: int, upper_end: bool
) -> tuple[float, int]:
    """A proved upper (lower) bound, by halving the sub-boxes that exceed the goal, worst first, in batches; and the
    boxes it took.
    """
    lows, highs = box.low_array[None], box.high_array[None]
    a, b = enclose(lows, highs)
    score = b if upper_end else -a
    limit = goal if upper_end else -goal
    spent = 1
    width = box.high_array - box.low_array
    while spent < budget:
        wide = np.max((highs - lows) / width, axis=1) > _NARROW
        bad = np.flatnonzero(~(score <= limit) & wide)
        if len(bad) == 0:
            break
        bad = bad[np.argsort(score[bad])[-64:]]
        new = halved(lows[bad], highs[bad], 1 / width)
        a, b = enclose(*new)
        lows, highs, score = exchanged(bad, (lows, highs, score), (*new, b if upper_end else -a))
        spent += len(new[0])
    worst = float(np.max(score))
    return (worst if upper_end else -worst), spent


def _sampled(graph: Graph, box: Box) -> tuple[float, float]:
    values = values_at(graph, box.names, _probe(box))[:, 0]
    values = values[np.isfinite(values)]
    return (float(np.min(values)), float(np.max(values))) if len(values) else (0.0, 0.0)


@lru_cache(maxsize=64)  # many nodes of one graph are looked at on one box
def _probe(box: Box) -> Array:
    X = box.probe(_POINTS, np.random.default_rng(0))
    X.flags.writeable = False
    return X


def _enclosures(
    graph: Graph, names: tuple[str, ...], known: Known, seen: dict[bytes, tuple[float, float]], low: Array, high: Array
) -> tuple[Array, Array]:
    """Lower and upper ends on every box; what was `seen` of boxes, by their bytes, is not taken anew."""
    keys = [box.tobytes() for box in np.concatenate([low, high], axis=1)]
    new = [i for i, key in enumerate(keys) if key not in seen]
    if new:
        (value,) = enclosures(graph, names, low[new], high[new], known)
        ends = zip(*ball_ends(value, len(new)), strict=True)
        seen.update(zip((keys[i] for i in new), ends, strict=True))
    a, b = np.array([seen[key] for key in keys]).T
    return a, b
