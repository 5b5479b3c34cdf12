"""Scattered data with a declared Lipschitz constant: every function that takes these values and is no steeper.

| symbol | meaning |
| --- | --- |
| (x_i, y_i), L | the data, the declared constant: |f(x) − f(x')| ≤ L |x − x'|_2 |
| lower, upper | max_i (y_i − L |x − x_i|), min_i (y_i + L |x − x_i|) |
| m | (lower + upper)/2 |

lower and upper are the least and the largest such function (McShane 1934), and m is one too. So a network within e of
m is, for every such f, within e + sup (upper − lower)/2, and no network is closer than that supremum to all of them.
It is at most L h, h the *fill distance* sup_x min_i |x − x_i|. Both suprema are proved on boxes: (upper − lower)/2
changes by at most L, the distance by at most 1, times half the diagonal. Boxes are halved until the bound is near what
their middles show.
Failure mode: data that two rows contradict are refused with these rows; in many variables boxes
stay large, and the bound loose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.domain import Array, Box, halved

MOST_POINTS: Final = 20_000
_BOXES: Final = 60_000
_CLOSE: Final = 1.02
_ENTRIES: Final = 4_000_000


@dataclass(frozen=True, eq=False)
class Scattered:
    """Points (n, d), values (n,), the constant, and the names of the variables."""

    points: Array
    values: Array
    lipschitz: float
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        X, y = self.points, self.values
        fits = X.ndim == 2 and 0 < len(X) <= MOST_POINTS and y.shape == X.shape[:1] and X.shape[1] == len(self.names)
        require(fits, f"table: points of shape {X.shape}, values of shape {y.shape}; at most {MOST_POINTS:,} are taken")
        size = max(float(np.abs(X).max()), float(np.abs(y).max()), self.lipschitz)
        require(size <= 1e100, "table: numbers beyond 1e100")
        for first in range(0, len(X), step := max(1, _ENTRIES // X.size)):
            part = slice(first, first + step)
            apart = _distances(X[part], X)
            wrong = np.abs(y[part, None] - y) > self.lipschitz * apart * (1 + 1e-12)
            same = (apart == 0) & (np.arange(first, first + len(apart))[:, None] < np.arange(len(X)))
            if same.any() or wrong.any():
                i, j = (int(k) for k in np.argwhere(same if same.any() else wrong)[0])
                raise InvalidRequest(self._said(first + i, j, float(apart[i, j])))

    def _said(self, i: int, j: int, apart: float) -> str:
        if apart == 0:
            return f"table: rows {i + 1} and {j + 1} are the same point {self.points[i].tolist()}"
        change = abs(float(self.values[i] - self.values[j]))
        return (
            f"lipschitz={self.lipschitz:g} is contradicted: between rows {i + 1} and {j + 1}, {apart:.4g} apart, the "
            f"value changes by {change:.4g}; {change / apart:.4g} is needed"
        )

    def box(self, domain: Any) -> Box:
        """The domain: the box around the points unless another is given."""
        if domain is not None:
            box = Box.parse(domain)
            require(box.dim == len(self.names), f"domain: {box.dim} variables for points of {len(self.names)}")
            return box.part(self.names) if set(box.names) == set(self.names) else box
        ends = self.points.min(axis=0), self.points.max(axis=0)
        return Box(self.names, *(tuple(float(v) for v in end) for end in ends))

    def envelope(self, X: Array) -> tuple[Array, Array]:
        """lower and upper at points (n, d)."""
        low, high = np.empty(len(X)), np.empty(len(X))
        for first in range(0, len(X), step := max(1, _ENTRIES // self.points.size)):
            part = slice(first, first + step)
            reach = self.lipschitz * _distances(X[part], self.points)
            low[part], high[part] = (self.values - reach).max(axis=1), (self.values + reach).min(axis=1)
        return low, high

    def middle(self, X: Array) -> Array:
        """m, (n, 1)."""
        low, high = self.envelope(X)
        return ((low + high) / 2)[:, None]

    def between(self, box: Box) -> tuple[float, float]:
        """(sup (upper − lower)/2, the fill distance) on the box, proved, the rounding of m included in the first."""

        def gap(X: Array) -> Array:
            low, high = self.envelope(X)
            return np.maximum((high - low) / 2, 0.0)

        def away(X: Array) -> Array:
            step = max(1, _ENTRIES // self.points.size)
            parts = [_distances(X[i : i + step], self.points).min(axis=1) for i in range(0, len(X), step)]
            return np.concatenate(parts)

        far = float(np.abs(np.concatenate([self.points, [box.low_array, box.high_array]])).max())
        units = (box.dim + 16) * 2.0**-52
        rounding = units * (float(np.abs(self.values).max()) + 4 * self.lipschitz * far * box.dim)
        open_, fill = _supremum(gap, box, self.lipschitz), _supremum(away, box, 1.0)
        return open_ * (1 + units) + 2 * rounding, fill * (1 + units) + units * far

    @cached_property
    def text(self) -> str:
        return f"any function of Lipschitz constant {self.lipschitz:g} through {len(self.values):,} points"

    def to_json(self) -> dict[str, Any]:
        return {"points": self.points.tolist(), "values": self.values.tolist()}

    @classmethod
    def from_json(cls, data: Any, lipschitz: float, names: tuple[str, ...]) -> Scattered | None:
        """The data that `to_json` wrote; None for what it cannot have written."""
        try:
            points, values = (np.array(data[name], dtype=np.float64) for name in ("points", "values"))
            good = bool(np.isfinite(points).all() and np.isfinite(values).all())
            return cls(points, values, lipschitz, names) if good else None
        except (InvalidRequest, KeyError, TypeError, ValueError):
            return None


def _distances(X: Array, Y: Array) -> Array:
    """(n, m), without the cancellation of squares multiplied out."""
    total = np.zeros((len(X), len(Y)))
    for x, y in zip(X.T, Y.T, strict=True):
        total += (x[:, None] - y) ** 2
    return np.sqrt(total)


def _supremum(function: Callable[[Array], Array], box: Box, slope: float) -> float:
    """A bound of the supremum over the box of a function that changes by at most `slope`, up to its own rounding."""
    low, high = box.low_array[None], box.high_array[None]
    shown, found, spent = 0.0, 0.0, 0
    while len(low):
        middle = low + (high - low) / 2
        spent += len(low)
        value = function(middle)
        shown = max(shown, float(value.max()))
        half = np.sqrt((np.maximum(high - middle, middle - low) ** 2).sum(axis=1)) * (1 + 1e-12)
        top = value + slope * half * (1 + 1e-12)
        open_ = top > _CLOSE * shown
        if spent + 2 * int(open_.sum()) > _BOXES:
            open_[:] = False
        found = max(found, float(top[~open_].max(initial=0.0)))
        low, high = halved(low[open_], high[open_], np.ones(box.dim))
    return found
