"""Removable singularities: a target is meant with its continuous extension, so sin(x)/x is 1 at x = 0.

A quotient is removable at a point a of u if numerator and denominator are functions of the one node u, analytic at a,
and vanish there, the denominator to a finite order k and the numerator at least to it. All of it is proved by power
series in balls at a: the first k coefficients are *exactly* 0 (a ball that holds nothing else), the next one of the
denominator is not. So a must be rational and arithmetic exact there, as it is at 0.

    resolved    every division of that kind becomes one `ratio` node (`language/ratio.py`), in its place
    grouped     products are taken apart so that resolved finds more: the factors of K sin²(w)/(Δ² t²), w = Δ t/2, that
                vanish with the denominator, times the power of w it holds, are put into one division: K' (sin²(w)/w²)
    divided     quotients of several variables, (e^x − e^y)/(x − y) among them, as quotients of one each (`differences`)
    extended    resolved after grouped, of the divided ones where that helps; else the graph itself

Nothing here has to be believed: `certify.extension` proves that what came out is the target's continuous extension.
Failure mode: quotients that vanish together for another reason (zeros that are not rational) are left as they are, and
are refused as poles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from attnfun.errors import AttnfunError, Infeasible, feasible
from attnfun.language import BallAlgebra, Box, Builder, Graph, Kink, Node, SeriesAlgebra, precision, run, run_all
from attnfun.language.arrays import values_at
from attnfun.language.canonical import canonical
from attnfun.language.definedness import Condition, conditions, require_conditions
from attnfun.language.differences import divided
from attnfun.language.enclosures import Ball, ball, lower, point_balls, upper
from attnfun.language.graph import MAX_EXPONENT, NOT_ANALYTIC, Ratio
from attnfun.language.operations import OPERATIONS
from attnfun.language.operations.entry import POSITIVE
from attnfun.language.series import series_length
from attnfun.language.squares import factored, rooted

_BITS = 128
_ORDER = 12  # the most a denominator may vanish to
_GRID = 257
_PLACES = 8
_NESTED = 3  # continued quotients in continued quotients, at most
_MOST_STEPS = 300_000  # nodes looked at
_SERIES = 13  # of them a node in power series is worth
_PRODUCT = frozenset({"mul", "div", "powi", "neg"})
_ALGEBRA = BallAlgebra(clip_sqrt=True, sharp=True)

Powers = dict[int, int]


@dataclass(frozen=True)
class Extension:
    """An expression with the arguments of all its conditions as further outputs, and what continues them all.

    `conditions` are those of `definedness` on `source`; output len(outputs) + i of both graphs is the i-th's argument.
    """

    source: Graph
    whole: Graph
    conditions: tuple[Condition, ...]
    outputs: int

    @property
    def graph(self) -> Graph:
        """What continues the expression alone."""
        return self.whole.reachable(self.whole.outputs[: self.outputs])


def extended(graph: Graph, box: Box) -> Graph:
    """The graph of the continuous extension, if the graph has denominators that may vanish and it was found; roots of
    one square that may vanish are sizes in it.
    """
    singular, roots = poles(graph, box), _roots(graph, box)
    if not singular and rooted(graph, roots) == graph:
        return graph
    try:
        extension = extension_of(graph, box)
        require_dense(extension, box)
    except AttnfunError:  # constants past their limits, an expression that is not defined for other reasons
        return graph
    found = extension.graph
    return found if any(n.op == "ratio" for n in found.nodes) or not poles(found, box) else graph


def _roots(graph: Graph, box: Box) -> list[int]:
    """The roots (powers between 0 and 1) whose argument one ball over the whole box does not keep away from 0."""
    roots = [
        i
        for i, node in enumerate(graph.nodes)
        if node.op == "sqrt" or (node.op == "powr" and isinstance(node.value, Fraction) and 0 < node.value < 1)
    ]
    if not roots:
        return []
    with precision(_BITS):
        values = run_all(graph, _ALGEBRA, _whole(box))
        return [i for i in roots if not values[graph.nodes[i].args[0]].lower() > 0]


def extension_of(graph: Graph, box: Box) -> Extension:
    """The outputs and the arguments of all conditions, grouped and resolved."""
    nodes, found = conditions(graph, continuous=True)
    source = Graph(nodes.nodes, (*nodes.outputs, *(c.argument for c in found)))
    plain = canonical(rooted(source, _roots(source, box)), monic=True)
    whole, _ = resolved(_grouped(plain, box), box)
    left = poles(whole, box)
    if left:
        split = divided(plain, poles(plain, box))
        other = whole if split == plain else resolved(_grouped(canonical(split, monic=True), box), box)[0]
        whole = other if len(poles(other, box)) < len(left) else whole
    return Extension(source, whole, tuple(found), len(graph.outputs))


def require_dense(extension: Extension, box: Box) -> None:
    """Raise unless every condition holds on the whole box for the extension of its argument, or is that of a
    denominator whose extension vanishes on a thin set only.
    """
    whole, n = extension.whole, extension.outputs
    thin: list[int] = []
    kept: list[tuple[int, Condition]] = []
    with precision(_BITS):
        values = run(whole, _ALGEBRA, _whole(box))
    for value, node, c in zip(values[n:], whole.outputs[n:], extension.conditions, strict=True):
        if extension.source.nodes[c.at].op in ("div", "powi") and not value.abs_lower() > 0:
            thin.append(node)
        else:
            kept.append((node, c))
    require_conditions(whole, [node for node, _ in kept], extension.source, [c for _, c in kept], box)
    require_thin(whole, thin, box)


def require_thin(graph: Graph, nodes: Sequence[int], box: Box) -> None:
    """Raise unless each of the nodes, defined on the whole box, vanishes at most on a nowhere dense set of measure 0.

    It must be real-analytic on the box and not 0 at some point. All operations are analytic where they are defined but
    kinks, jumps, and roots and arcs at the ends of their domains: arguments of roots are proved to be positive.
    """
    X = box.sample(8, np.random.default_rng(0))
    for node in nodes:
        below = graph.reachable([node])
        text = below.text(below.outputs[0], 80)
        if any(n.op in NOT_ANALYTIC or (n.op in OPERATIONS and OPERATIONS[n.op].rough) for n in below.nodes):
            raise Infeasible(f"{text} is divided by, may vanish, and is not analytic")
        roots = [(i, n.args[0]) for i, n in enumerate(below.nodes) if n.op in ("sqrt", "powr")]
        found = [Condition(i, argument, POSITIVE) for i, argument in roots]
        require_conditions(below, [argument for _, argument in roots], below, found, box)
        with precision(_BITS):
            env = {name: point_balls(X[:, k]) for k, name in enumerate(box.names)}
            values = np.atleast_1d(np.asarray(run(below, _ALGEBRA, env)[0], dtype=object))
        feasible(any(value.abs_lower() > 0 for value in values), f"{text} is divided by and may vanish everywhere")


def poles(graph: Graph, box: Box) -> list[int]:
    """The nodes that are divided by and that one ball over the whole box does not keep away from 0."""
    wanted = [node.args[-1] for node in graph.nodes if node.divides]
    if not wanted:
        return []
    with precision(_BITS):
        values = run_all(graph, _ALGEBRA, _whole(box))
        return [n for n in dict.fromkeys(wanted) if not values[n].abs_lower() > 0]


def _whole(box: Box) -> dict[str, Ball]:
    return {name: ball(a, b) for name, a, b in zip(box.names, box.low, box.high, strict=True)}


def resolved(graph: Graph, box: Box) -> tuple[Graph, list[int]]:
    """Every removable division as a `ratio` node, and where each node came to lie; all else as it was."""
    facts = _Facts(box)
    builder = facts.builder

    def continued(node: Node, args: list[int]) -> int | None:
        return _ratio(facts, *args) if node.op == "div" and facts.may_vanish(args[1]) else None

    at = builder.copy(graph.nodes, continued)
    if not any(builder.node(i).op == "ratio" for i in range(len(builder))):
        return graph, list(range(len(graph.nodes)))
    return Graph(builder.nodes, tuple(at[o] for o in graph.outputs)), at


def _ratio(facts: _Facts, top: int, bottom: int) -> int | None:
    """top/bottom as a `ratio` node of the nearest node that both are functions of, or None."""
    for u in facts.passages([top, bottom]):
        pair = facts.as_function([top, bottom], u)
        if any(node.op in NOT_ANALYTIC for node in pair.nodes) or _depth(pair) >= _NESTED:
            continue
        for a in facts.zeros(bottom, u):
            facts.spend(_SERIES * len(pair.nodes))
            (above, _), (below, sharp) = vanishing(pair, a)
            if below and sharp and above >= below:
                return facts.builder.apply("ratio", u, value=Ratio(pair, a, below))
    return None


@lru_cache(maxsize=1024)
def _depth(graph: Graph) -> int:
    """How deep continued quotients stand in continued quotients: each evaluates the one in it several times."""
    return max((1 + _depth(node.value.graph) for node in graph.nodes if isinstance(node.value, Ratio)), default=0)


def vanishing(graph: Graph, a: Fraction) -> list[tuple[int, bool]]:
    """For every output, a function of u, (k, sharp): the coefficients at a before the k-th are proved to be exactly 0,
    and `sharp` if the k-th is proved not to be. (0, False) where nothing is proved.
    """
    orders = []
    with precision(_BITS), series_length(_ORDER + 1):
        algebra = SeriesAlgebra(_ORDER + 1)
        for output in graph.outputs:
            try:
                value = run(graph.reachable([output]), algebra, {"u": algebra.variable(algebra.balls.constant(a))})[0]
                row = algebra.coefficients(value)
            except Kink:
                orders.append((0, False))
                continue
            order = next((k for k, c in enumerate(row) if not (c.is_exact() and c == 0)), _ORDER)
            orders.append((order, bool(row[order].abs_lower() > 0)))
    return orders


class _Facts:
    """Facts about the nodes of one growing builder on a box, each worked out once."""

    def __init__(self, box: Box) -> None:
        self.box, self.builder = box, Builder()
        self._vanish: dict[int, bool] = {}
        self._varies: list[bool] = []
        self._between: dict[int, dict[int, None]] = {}
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Count work; Infeasible past what is worth spending on a target's singularities."""
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise Infeasible(f"removable singularities: more than {_MOST_STEPS:,} steps")

    def range(self, n: int) -> tuple[float, float]:
        """Ends of one ball over the whole box; infinite where it is not defined."""
        with precision(_BITS):
            graph = self.builder.graph([n])
            self.spend(len(graph.nodes))
            value = run(graph, _ALGEBRA, _whole(self.box))[0]
            return (lower(value), upper(value)) if value.is_finite() else (-math.inf, math.inf)

    def may_vanish(self, n: int) -> bool:
        if n not in self._vanish:
            low, high = self.range(n)
            self._vanish[n] = not (low > 0 or high < 0)
        return self._vanish[n]

    def varies(self, n: int) -> bool:
        """Does the node depend on a variable?"""
        for i in range(len(self._varies), len(self.builder)):
            node = self.builder.node(i)
            self._varies.append(node.op == "var" or any(self._varies[a] for a in node.args))
        return self._varies[n]

    def passages(self, outputs: Sequence[int]) -> Iterator[int]:
        """Nodes that every path from the outputs to a variable meets, the nearest to the outputs first.

        Arguments come before what uses them, so once all nodes after u are left behind, every path stands at a node of
        `waiting`; all meet u if that is u alone.
        """
        waiting = {n for n in outputs if self.varies(n)}
        while waiting:
            u = max(waiting)
            self.spend(len(waiting))
            waiting.remove(u)
            if not waiting:
                yield u
            if self.builder.node(u).op == "var":  # a path ends here, and meets nothing further
                return
            waiting.update(a for a in self.builder.node(u).args if self.varies(a))

    def is_function(self, n: int, u: int) -> bool:
        """Does every path from n to a variable meet u?"""
        if n not in self._between:
            self._between[n] = dict.fromkeys(self.passages([n]))
        return u in self._between[n]

    def as_function(self, outputs: Sequence[int], u: int) -> Graph:
        """The outputs as functions of the node u, which becomes the variable "u"."""
        self.spend(max(outputs) + 1)
        out = Builder()
        at = {u: out.var("u")}
        for m in range(max(outputs) + 1):
            node = self.builder.node(m)
            if m not in at and node.op != "var" and all(a in at for a in node.args):
                at[m] = out.apply(node.op, *(at[a] for a in node.args), value=node.value)
        return out.graph([at[o] for o in outputs])

    def zeros(self, n: int, u: int) -> list[Fraction]:
        """Rational places at which n, a function of u, seems to vanish, on the range of u: candidates, no more."""
        low, high = self.range(u)
        if not (math.isfinite(low) and math.isfinite(high)):
            return []
        x = np.linspace(low, high, _GRID)
        graph = self.as_function([n], u)
        self.spend(10 * len(graph.nodes))
        f = np.abs(values_at(graph, ("u",), x[:, None])[:, 0])
        f = np.where(np.isfinite(f), f, np.inf)
        padded = np.concatenate([[np.inf], f, [np.inf]])
        lowest = np.flatnonzero((f <= padded[:-2]) & (f <= padded[2:]))
        step = Fraction((high - low) / (_GRID - 1)) if high > low else Fraction(1)
        found = [Fraction(0)] if low <= 0 <= high else []
        for i in lowest[np.argsort(f[lowest])][:_PLACES]:
            near = _simplest(Fraction(float(x[i])) - step, Fraction(float(x[i])) + step)
            found += [near] if near not in found else []
        return found


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of least denominator in [low, high] (Stern and Brocot)."""
    if low <= 0 <= high:
        return Fraction(0)
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(min((whole, math.floor(high)), key=abs))
    base = math.floor(low)
    return base + 1 / _simplest(1 / (high - base), 1 / (low - base))


# ---------------------------------------------------------------- products


def _grouped(graph: Graph, box: Box) -> Graph:
    """The same function, products with a denominator that may vanish written as (the rest)·(removable divisions)."""
    groups = _Groups(_Facts(box))
    builder = groups.facts.builder

    def regrouped(node: Node, args: list[int]) -> int | None:
        return (
            groups.regrouped(builder.apply(node.op, *args, value=node.value)) if node.op in _PRODUCT - {"neg"} else None
        )

    at = builder.copy(graph.nodes, regrouped)
    return builder.graph([at[o] for o in graph.outputs])


class _Groups:
    def __init__(self, facts: _Facts) -> None:
        self.facts, self.builder = facts, facts.builder

    def product(self, c: Fraction, powers: Powers) -> int:
        """c · Π base^p, denominators last."""
        total: int | None = None if c == 1 else self.builder.const(c)
        for base, p in sorted(powers.items(), key=lambda item: item[1] < 0):
            power = base if abs(p) == 1 else self.builder.apply("powi", base, value=abs(p))
            if total is None and p < 0:
                total = self.builder.const(1)
            total = power if total is None else self.builder.apply("mul" if p > 0 else "div", total, power)
        return self.builder.const(1) if total is None else total

    def regrouped(self, n: int) -> int:
        c, powers = factored(self.builder, n, MAX_EXPONENT)
        divisions: list[int] = []
        while True:
            poles = [b for b, p in powers.items() if p < 0 and self.facts.may_vanish(b)]
            step = next(filter(None, (self._division(powers, b) for b in poles)), None)
            if step is None:
                break
            division, powers, factor = step
            c *= factor
            divisions.append(division)
        if not divisions:
            return n
        for division in divisions:
            powers[division] = powers.get(division, 0) + 1
        return self.product(c, powers)

    def _division(self, powers: Powers, pole: int) -> tuple[int, Powers, Fraction] | None:
        """A removable division that takes the pole out of the product, the powers left, and a factor."""
        tops = [b for b, p in powers.items() if p > 0 and self.facts.varies(b)]
        places = dict.fromkeys(w for b in (*tops, pole) for w in self.facts.passages([b]))
        for w in places:
            own = [b for b in powers if self.facts.is_function(b, w)]
            scale, inside = factored(self.builder, w, MAX_EXPONENT)
            if pole in own:
                zeros = self.facts.zeros(pole, w)
                trial = 0
            elif inside.get(pole, 0) > 0:
                zeros, trial = [Fraction(0)], -math.ceil(Fraction(-powers[pole], inside[pole]))
            else:
                continue
            for a in zeros:
                found = self._balanced(powers, own, w, a, trial)
                if found is None or not (trial or pole in found[1]):
                    continue
                top, bottom, m = found
                left = {b: p for b, p in powers.items() if b not in top and b not in bottom}
                for b, e in inside.items() if m else ():
                    left[b] = left.get(b, 0) - m * e
                if any(p < min(powers.get(b, 0), 0) and self.facts.may_vanish(b) for b, p in left.items()):
                    continue
                sides = {b: powers[b] for b in top}, {b: -powers[b] for b in bottom}
                if m:
                    side = sides[0] if m > 0 else sides[1]
                    side[w] = side.get(w, 0) + abs(m)
                division = self.builder.apply("div", *(self.product(Fraction(1), side) for side in sides))
                return division, {b: p for b, p in left.items() if p}, scale**-m
        return None

    def _balanced(
        self, powers: Powers, own: list[int], w: int, a: Fraction, m: int
    ) -> tuple[list[int], list[int], int] | None:
        """The factors among `own`, functions of w, that vanish at w = a: above, below, and the power of w to add."""
        orders: dict[int, tuple[int, bool]] = {}
        if own:
            graph = self.facts.as_function(own, w)
            self.facts.spend(5 * len(own) * len(graph.nodes))
            orders = dict(zip(own, vanishing(graph, a), strict=True))
        top = [b for b in own if powers[b] > 0 and orders[b][0]]
        bottom = [b for b in own if powers[b] < 0 and orders[b][0]]
        balance = sum(powers[b] * orders[b][0] for b in own) + m
        if not (bottom or m) or not all(orders[b][1] for b in bottom):
            return None
        if balance < 0 and m == 0 and a == 0 and self.builder.node(w).op in _PRODUCT:
            m, balance = -balance, 0
        return (top, bottom, m) if balance >= 0 else None
