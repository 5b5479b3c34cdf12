"""Enclosures over boxes that are second order at every node: plain balls meet mean-value forms on the way.

For a node f over the box X with centre c: f(X) lies in the plain value F(X), and in f(c) + Σ_k ∂_k f(X) (X_k − c_k)
where all partials over X are finite. The intersection is what the nodes above see, values and partials alike, so that
log(r² + d² − 2 r d cos α) is defined on a box on which the plain sum reaches below 0. Nodes in which no variable occurs
twice are sharp already and left alone.
Failure mode: as of `gradient`; a node that is undefined on the box stays so.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from attnfun.language.balls import BallAlgebra
from attnfun.language.enclosures import Ball, ball, balls, lift, point_balls, span
from attnfun.language.gradient import Dual, GradientAlgebra
from attnfun.language.graph import Graph, reached
from attnfun.language.interpret import step
from attnfun.language.interval import Floats

Known = Mapping[int, tuple[float, float]]


def enclosures(graph: Graph, names: Sequence[str], low: Floats, high: Floats, known: Known | None = None) -> list[Ball]:
    """For every output an object array of balls, one for each of the boxes (n, d), or one ball if it is constant.

    `known`: nodes that are defined on all boxes, with ends that are known to hold there.
    """
    known = known or {}
    needed = sorted(reached(graph.outputs, lambda i: graph.nodes[i].args))
    over = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), len(names))
    at = BallAlgebra(clip_sqrt=True)
    whole = [balls(low[:, k], high[:, k]) for k in range(len(names))]
    twice, own = graph.repeated, graph.owners
    if len(low) == 1 and not any(twice[i] for i in needed):  # plain balls are sharp
        sides = dict(zip(names, whole, strict=True))
        values: dict[int, Ball] = {}
        for i in needed:
            value = step(graph.nodes[i], over.base, sides, values)
            values[i] = _CUT(value, ball(*known[i])) if i in known else value
        return [values[o] for o in graph.outputs]
    parts = {variables: _Part(variables, names, low, high) for variables in {own[i] for i in needed}}
    cuts = {i: ball(*ends) for i, ends in known.items()}

    def each_once(values: Sequence[Ball]) -> dict[str, Ball]:
        alone = zip(names, values, (parts.get(frozenset([name])) for name in names), strict=True)
        return {name: value if part is None else value[part.first] for name, value, part in alone}

    boxes = each_once(whole)
    if not any(twice[i] for i in needed):  # plain balls are sharp
        plain: dict[int, Ball] = {}
        for i in needed:
            part, node = parts[own[i]], graph.nodes[i]
            given = {a: part.rows(plain[a], parts[own[a]]) for a in node.args}
            value = step(node, over.base, boxes, given)
            plain[i] = _CUT(value, cuts[i]) if i in cuts else value
        return [parts[own[o]].everywhere(plain[o]) for o in graph.outputs]
    middle = [point_balls(low[:, k] + (high[:, k] - low[:, k]) / 2) for k in range(len(names))]
    away = [w - m for w, m in zip(whole, middle, strict=True)]
    variables, points = over.variables(names, boxes), each_once(middle)
    duals: dict[int, Dual[Ball]] = {}
    centres: dict[int, Ball] = {}
    for i in needed:
        part, node = parts[own[i]], graph.nodes[i]
        dual = step(node, over, variables, {a: part.dual(duals[a], parts[own[a]]) for a in node.args})
        centres[i] = step(node, at, points, {a: part.rows(centres[a], parts[own[a]]) for a in node.args})
        if twice[i]:
            form = centres[i]
            for partial, reach in zip(dual.partials, away, strict=False):
                if partial is not None:
                    form = form + partial * reach[part.first]
            dual = Dual(_MEET(dual.value, form), dual.partials)
        if i in cuts:
            dual = Dual(_CUT(dual.value, cuts[i]), dual.partials)
        duals[i] = dual
    return [parts[own[o]].everywhere(duals[o].value) for o in graph.outputs]


class _Part:
    """The boxes as the nodes of the same variables see them: those that differ there, each once.

    `first`: the first box of each; `each`: which of them every box is. Neighbours of a search share most of their
    sides, so that a node of few of the variables is worked out far less often than there are boxes.
    """

    def __init__(self, variables: frozenset[str], names: Sequence[str], low: Floats, high: Floats) -> None:
        sides = [k for k, name in enumerate(names) if name in variables]
        numbers: dict[bytes, int] = {}
        each, first = list[int](), list[int]()
        for i, row in enumerate(np.concatenate([low[:, sides], high[:, sides]], axis=1)):
            number = numbers.setdefault(row.tobytes(), len(first))
            each.append(number)
            if number == len(first):
                first.append(i)
        self.each, self.first = np.array(each, dtype=np.intp), np.array(first, dtype=np.intp)

    def rows(self, value: Ball, part: "_Part") -> Ball:
        """A value of the nodes of `part` as it stands here."""
        if part is self or not isinstance(value, np.ndarray):
            return value
        return value[part.each[self.first]]

    def dual(self, value: Dual[Ball], part: "_Part") -> Dual[Ball]:
        if part is self:
            return value
        partials = tuple(None if p is None else self.rows(p, part) for p in value.partials)
        return Dual(self.rows(value.value, part), partials)

    def everywhere(self, value: Ball) -> Ball:
        return value[self.each] if isinstance(value, np.ndarray) else value


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
