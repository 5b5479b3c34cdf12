"""The sign of an expression on a box, proved in balls.

    POSITIVE        g > 0 at every point of the box at which g is defined
    NONNEGATIVE     g ≥ 0 there;   NONPOSITIVE, NEGATIVE likewise;   UNKNOWN: nothing was proved

One ball over the whole box first; then, unless float samples show both signs, bisection of the sides the expression
depends on, at most BOXES of them; then, while there are `ranges` left, its range. Samples only ever end a search early:
no sign rests on them.
Failure mode: a function that touches 0 through cancellation (x*x - 2*x*y + y*y) stays UNKNOWN.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np

from attnfun.language import BallAlgebra, Builder, Graph, precision, run
from attnfun.language.arrays import values_at
from attnfun.language.domain import Array, Box, halved
from attnfun.language.enclosures import ball, balls
from attnfun.language.ranges import range_of
from attnfun.language.removable import resolved

BITS: Final = 96
BOXES: Final = 400
STRICT_BOXES: Final = 100  # spent on turning a proved ≥ into >
OPERATIONS: Final = 200_000  # on balls, for all the questions put to one `Signs`


class Sign(IntEnum):
    NEGATIVE, NONPOSITIVE, UNKNOWN, NONNEGATIVE, POSITIVE = range(-2, 3)

    @classmethod
    def between(cls, low: Any, high: Any) -> Sign:
        """The sign of all that lies in [low, high]: doubles, or balls whose comparisons are true only if certain."""
        if low >= 0:
            return cls.POSITIVE if low > 0 else cls.NONNEGATIVE
        if high <= 0:
            return cls.NEGATIVE if high < 0 else cls.NONPOSITIVE
        return cls.UNKNOWN

    def __neg__(self) -> Sign:
        return Sign(-int(self))

    @property
    def strict(self) -> bool:
        return abs(int(self)) == 2

    def times(self, other: Sign) -> Sign:
        """The sign of a product."""
        size = min(abs(int(self)), abs(int(other)))
        return Sign(size if (self > 0) == (other > 0) else -size)


class Signs:
    """Signs of the nodes of one growing builder on one box; every answer is kept."""

    def __init__(self, box: Box) -> None:
        self.box, self.builder = box, Builder()
        self._known: dict[int, Sign] = {}
        self.ranges = 0  # how many questions that bisection leaves open may be put to ranges: seconds each
        self._left = OPERATIONS
        self._algebra = BallAlgebra(clip_sqrt=True, sharp=True)

    def of(self, node: int) -> Sign:
        sign = self._known.get(node)
        if sign is None:
            with precision(BITS):
                sign = self._known[node] = self._prove(self.builder.graph([node]))
        return sign

    def unit(self, node: int) -> bool:
        """Is -1 ≤ g ≤ 1 proved?"""
        one = self.builder.const(1)
        below = self.of(self.builder.apply("sub", one, node))
        return below > 0 and self.of(self.builder.apply("add", one, node)) > 0

    @cached_property
    def _samples(self) -> Array:
        return self.box.probe(64, np.random.default_rng(5))[:256]

    def _prove(self, graph: Graph) -> Sign:
        box = self.box
        env = {n: ball(a, b) for n, a, b in zip(box.names, box.low, box.high, strict=True)}
        value = run(graph, self._algebra, env)[0]
        if not value.is_finite():  # a removable division is equal to its continuation wherever it is defined
            graph = resolved(graph, box)[0]
            graph = graph.reachable(graph.outputs)
            value = run(graph, self._algebra, env)[0]
        sign = Sign.between(value, value)
        if sign.strict or not graph.variables:
            return sign
        floats = values_at(graph, box.names, self._samples)[:, 0]
        above, below = bool(np.any(floats > 0)), bool(np.any(floats < 0))
        touches = bool(np.any(floats == 0))
        if sign:
            return sign if touches else self._bisect(graph, sign, touches)
        if above and below:
            return Sign.UNKNOWN
        return self._bisect(graph, Sign.NONPOSITIVE if below else Sign.NONNEGATIVE, touches) or self._by_range(graph)

    def _by_range(self, graph: Graph) -> Sign:
        """By the range, which is how whoever wrote a program for the target decides its branches."""
        if not self.ranges:
            return Sign.UNKNOWN
        self.ranges -= 1
        return Sign.between(*range_of(graph, self.box)[0])

    def _bisect(self, graph: Graph, weak: Sign, touches: bool) -> Sign:
        """`weak` or its strict form if sub-boxes prove it, else UNKNOWN. `touches`: do not even try the strict one."""
        box = self.box
        used = [k for k, name in enumerate(box.names) if name in graph.variables]
        weight = np.array([float(k in used) for k in range(box.dim)]) / (box.high_array - box.low_array)
        lows, highs = box.low_array[None], box.high_array[None]
        strict, done = not touches, 0
        while len(lows):
            self._left -= len(lows) * len(graph.nodes)
            if self._left < 0:
                return Sign.UNKNOWN
            env = {n: balls(lows[:, k], highs[:, k]) for k, n in enumerate(box.names) if k in used}
            values = run(graph, self._algebra, env)[0]
            values = values if weak > 0 else -values
            done += len(lows)
            positive = np.asarray(values > 0, dtype=bool)
            kept = np.asarray(values >= 0, dtype=bool)
            if strict and not positive.all():
                strict = done + 2 * int((~positive).sum()) <= (STRICT_BOXES if kept.all() else BOXES // 2)
            open_ = ~positive if strict else ~kept
            lows, highs = lows[open_], highs[open_]
            if done + 2 * len(lows) > BOXES:
                return Sign.UNKNOWN
            if len(lows):
                lows, highs = halved(lows, highs, weight)
        return Sign(2 * int(weak)) if strict else weak
