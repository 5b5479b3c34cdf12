"""Enclosures over boxes that are second order at every node: plain balls meet mean-value forms on the way.

For a node f over the box X with centre c: f(X) lies in the plain value F(X), and in f(c) + Σ_k ∂_k f(X) (X_k − c_k)
where all partials over X are finite. The intersection is what the nodes above see, values and partials alike, so that
log(r² + d² − 2 r d cos α) is defined on a box on which the plain sum reaches below 0. Nodes in which no variable occurs
twice are sharp already and left alone.
Failure mode: as of `gradient`; a node that is undefined on the box stays so.
"""

from collections.abc import Mapping, Sequence

from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import Ball, ball, balls, lift, point_balls, span
from attnfun.language.gradient import Dual, GradientAlgebra
from attnfun.language.graph import Graph, reached
from attnfun.language.interpret import step
from attnfun.language.intervals import Floats

Known = Mapping[int, tuple[float, float]]


def enclosures(graph: Graph, names: Sequence[str], low: Floats, high: Floats, known: Known | None = None) -> list[Ball]:
    """For every output an object array of balls, one for each of the boxes (n, d), or one ball if it is constant.

    `known`: nodes that are defined on all boxes, with ends that are known to hold there.
    """
    known = known or {}
    needed = reached(graph.outputs, lambda i: graph.nodes[i].args)
    d = len(names)
    whole = [balls(low[:, k], high[:, k]) for k in range(d)]
    middle = [point_balls(low[:, k] + (high[:, k] - low[:, k]) / 2) for k in range(d)]
    away = [w - m for w, m in zip(whole, middle, strict=True)]
    over = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), d)
    at = BallAlgebra(clip_sqrt=True)
    boxes = over.variables(names, dict(zip(names, whole, strict=True)))
    points = dict(zip(names, middle, strict=True))
    twice = repeated(graph)
    if not any(twice[i] for i in needed):  # plain balls are sharp
        plain: dict[int, Ball] = {}
        for i in sorted(needed):
            value = step(graph.nodes[i], over.base, dict(zip(names, whole, strict=True)), plain)
            plain[i] = _CUT(value, ball(*known[i])) if i in known else value
        return [plain[o] for o in graph.outputs]
    duals: dict[int, Dual[Ball]] = {}
    centres: dict[int, Ball] = {}
    for i, node in enumerate(graph.nodes):
        if i not in needed:
            continue
        dual = step(node, over, boxes, duals)
        centres[i] = step(node, at, points, centres)
        if twice[i]:
            form = centres[i]
            for k, partial in enumerate(dual.partials):
                if partial is not None:
                    form = form + partial * away[k]
            dual = Dual(_MEET(dual.value, form), dual.partials)
        if i in known:
            dual = Dual(_CUT(dual.value, ball(*known[i])), dual.partials)
        duals[i] = dual
    return [duals[o].value for o in graph.outputs]


def variables_in(graph: Graph) -> list[frozenset[str]]:
    """The variables that occur in every node."""
    own: list[frozenset[str]] = []
    for node in graph.nodes:
        own.append(frozenset([str(node.value)] if node.op == "var" else ()).union(*(own[a] for a in node.args)))
    return own


def repeated(graph: Graph) -> list[bool]:
    """For every node: does a variable occur in it by more than one way?"""
    own = variables_in(graph)
    out: list[bool] = []
    for i, node in enumerate(graph.nodes):
        several = node.op != "var" and sum(len(own[a]) for a in node.args) > len(own[i])
        out.append(several or any(out[a] for a in node.args))
    return out


def _meet(x: Ball, y: Ball) -> Ball:
    """A ball around what lies in both; x where y is of no use."""
    return _common(x, y) if x.is_finite() and y.is_finite() and y.rad() < x.rad() else x


def _cut(x: Ball, whole: Ball) -> Ball:
    """What lies in both; `whole` where x says nothing."""
    if not x.is_finite() or not whole.is_finite():
        return whole if whole.is_finite() else x
    return _common(x, whole)


def _common(x: Ball, y: Ball) -> Ball:
    low, high = max(x.lower(), y.lower()), min(x.upper(), y.upper())
    return span(low, high) if low <= high else x


_MEET, _CUT = lift(_meet, 2), lift(_cut, 2)
