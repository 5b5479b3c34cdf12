"""Ranges of the arguments of a ReLU network over a box: linear relaxations, carried back level by level.

Let φ_i = relu(z_i), z_i ∈ [l, u] proved. For any slope s ∈ [0, 1]

    s z ≤ relu(z) ≤ s z + max(−s l, (1 − s) u)        on [l, u],

since relu(z) − s z is convex and not negative. An affine form of units is bounded from above by putting in the upper
line (s = u/(u − l)) for units of positive weight and the lower one (s = 0 or 1) for the others, highest level first,
until only inputs are left, which range over the box (Zhang et al. 2018; Singh et al. 2019). A unit that never changes
sign has l ≥ 0 or u ≤ 0, and both its lines are itself. The cost is a few matrix products a level, where branch and
bound would look at thousands of boxes.

Rounding. The invariant is  form ≤ Λ·y + C + slack  with the floats Λ, C as they are stored and y the inputs and units
that are left. A step replaces Λ by fl(Λ + (Λ_m s) W), W the rounded weights: each entry is off by at most γ times the
same sum of absolute values, γ = γ_{2n+16} for n units of the level, and that times |y| ≤ M goes into `slack`; so does
the constant. Underflow is covered by a tiny absolute term. NaN and overflow give no bound.
Failure mode: relaxations lose more with every level; they are met with plain intervals, and are never wrong.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from attnfun.language.domain import Array, Box
from attnfun.language.graph import Graph
from attnfun.language.relu_units import ReluUnits, read_units

_U: Final = 2.0**-53
_TINY: Final = 1e-290


class ReluRanges:
    """Proved ranges of z_j for every unit, and of any other node of the graph."""

    def __init__(self, network: ReluUnits, box: Box) -> None:
        self.network, self.dense = network, network.dense(box.names)
        self._names, self._low, self._high = box.names, box.low_array, box.high_array
        units = len(network.units)
        self.low, self.high = np.zeros(units), np.zeros(units)  # of no meaning before its level is finished
        self._finished: list[NDArray[np.intp]] = []
        for rows in self.dense.levels:
            self.low[rows], self.high[rows] = self._bounds(self.dense.weights[rows], self.dense.constants[rows])
            self._finished.append(rows)
        self._at = {unit.argument: j for j, unit in enumerate(network.units)}

    @classmethod
    def of(cls, graph: Graph, box: Box) -> ReluRanges | None:
        """None if the graph is no ReLU network of the box's variables, or has weights that no double holds."""
        network = read_units(graph)
        if network is None or not set(network.variables.values()) <= set(box.names):
            return None
        try:
            return cls(network, box)
        except OverflowError:
            return None

    def __call__(self, node: int) -> tuple[float, float]:
        """An interval that holds the node's values on the box; ends may be infinite."""
        if node not in self._at:
            columns, width = self.network.columns(self._names), self.dense.weights.shape[1]
            row, constant = self.network.row(self.network.form(node), columns, width)
            low, high = self._bounds(row[None], np.array([constant]))
            return float(low[0]), float(high[0])
        return float(self.low[self._at[node]]), float(self.high[self._at[node]])

    def sign(self, node: int) -> int:
        """1 if the node is ≥ 0 on the whole box, −1 if it is ≤ 0, 0 if neither was proved."""
        low, high = self(node)
        return 1 if low >= 0 else -1 if high <= 0 else 0

    def _bounds(self, rows: Array, constants: Array) -> tuple[Array, Array]:
        """Lower and upper ends of the forms, which use units of finished levels only."""
        with np.errstate(all="ignore"):
            both, ends = np.concatenate([rows, -rows]), np.concatenate([constants, -constants])
            top = np.fmin(self._above(both, ends, relaxed=True), self._above(both, ends, relaxed=False))
        top = np.where(np.isnan(top), np.inf, top)
        return -top[len(rows) :], top[: len(rows)]

    def _above(self, weights: Array, constants: Array, relaxed: bool) -> Array:
        """Upper bounds of the forms; units by their lines, or, not `relaxed`, by their ranges alone."""
        d = len(self._low)
        size = np.concatenate([np.maximum(np.abs(self._low), np.abs(self._high)), np.maximum(self.high, 0.0)])
        most, n = weights.copy(), constants.copy()
        slack = 4 * _U * (np.abs(most) @ size + np.abs(n))  # weights are rounded to doubles
        for level in reversed(self._finished if relaxed else []):
            columns = d + level
            own = most[:, columns]
            if not own.any():
                continue
            low, high = self.low[level], self.high[level]
            steep = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, np.clip(high / (high - low), 0.0, 1.0)))
            flat = np.where(low >= 0, 1.0, np.where(high <= 0, 0.0, np.where(high > -low, 1.0, 0.0)))
            lift = np.where((low >= 0) | (high <= 0), 0.0, np.maximum(-steep * low, (1 - steep) * high))
            lift = lift * (1 + 8 * _U) + _TINY * (lift > 0)
            carried = own * np.where(own > 0, steep, flat)
            raised = np.where(own > 0, own, 0.0) @ lift
            gamma = _gamma(2 * len(level) + 16)
            most[:, columns] = 0.0
            inner, offset = self.dense.weights[level], self.dense.constants[level]
            slack += gamma * (
                np.abs(most) @ size + np.abs(carried) @ (np.abs(inner) @ size + np.abs(offset)) + np.abs(n) + raised
            )
            most = most + carried @ inner
            n = n + carried @ offset + raised
        first = np.concatenate([self._low, np.maximum(self.low, 0.0)])
        last = np.concatenate([self._high, size[d:]])
        total = np.maximum(most * first, most * last).sum(axis=1)
        slack += _gamma(2 * len(size) + 16) * (np.abs(most) @ size + np.abs(n))
        tiny = _TINY * (1.0 + float(size.sum())) * (1.0 + len(size))
        return np.asarray(np.nextafter((total + n + slack * (1 + 1e-9)) + tiny, np.inf))


def _gamma(n: int) -> float:
    return n * _U / (1 - n * _U)
