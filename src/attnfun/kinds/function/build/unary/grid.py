"""Grids of interpolation points: the truncated linear function clip(u, a, b) by softmax heads, in three variants.

| symbol | meaning |
| --- | --- |
| a, b | the ends: clip(u, a, b) = min(max(u, a), b) |
| L_k, Δ | interpolation points and their spacing |
| c = β Δ² | sharpness: logits −β(u − L_k)² up to a common term, c the gap between neighbours at a point |
| p; n, H | points of a single head; points per head, and heads |

A head has the query q = (u − centre)/Δ and the keys 2c m, −c m², m = (L_k − centre)/Δ: exact multiples of c, whatever a
and b are. Its weights are Gaussian in u − L_k. See `kinds/function/build/interpolation.py` for the theorem.

    published   single: L_k = a + kΔ, Δ = (b − a)/p, values L_k, c = ln(p/ε₀). The end b is left out: error Δ there.
                many: M = (n − 2)H cells, Δ = (b − a)/M, points at their midpoints g_j. Head h has the n points
                j = h(n − 2) − 1 … (h + 1)(n − 2); its first and last are *caps* of value 0, at which it rests where
                others are on duty; only the very first and last keep the values g_0 and g_{M−1}. c = 30.
    inclusive   single: L_k from a to b, both included, Δ = (b − a)/(p − 1), c = ln(p/ε₀).
                many: M = (n − 2)H points from a to b, both included, caps and c as published.
    optimal     single: the points of inclusive, c of the least error (about 2.7).
                many: head h is the truncated linear function of its own n points on [a_h, a_{h+1}], less its middle:
                clip(u, a, b) = (a + b)/2 + Σ_h (clip(u, a_h, a_{h+1}) − (a_h + a_{h+1})/2), Δ = (b − a)/(H(n − 1)).
                It rests at its own ends, so there are no caps to leak, and where two heads meet their errors cancel.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.function.build.unary.keys import Array, Fit, Keys, head_of
from attnfun.language.numbers import one_of
from attnfun.network import Head, rounded

VARIANTS = ("published", "inclusive", "optimal")
LEAK = 1e-3
"""ε₀ of the published statement: the weight that single heads may leave to points that are not the two nearest."""
MANY_SHARPNESS = 30.0
_SOFT = 32  # sharpness is a whole number of 32nds: keys are then exact
_LOCAL = 24  # errors are local: the constant of more points is that of so many, the sharpness kept
_PER_CELL = 96


@dataclass(frozen=True)
class Grid:
    """What is asked for: clip(u, low, high), p points in a single head (heads None) or in each of some heads."""

    low: float
    high: float
    points: int
    heads: int | None = None
    variant: str = "optimal"
    leak: float = LEAK
    sharpness: float | None = None

    def __post_init__(self) -> None:
        one_of("variant", self.variant, VARIANTS)
        ends = f"low={self.low!r:.30}, high={self.high!r:.30}"
        require(-math.inf < self.low < self.high < math.inf, f"{ends}: two finite numbers, low below high")
        require(1e-140 < self.high - self.low < 1e140, f"{ends}: an interval too wide or too narrow")
        least = 1 if self.variant == "published" and self.heads is None else 2
        if self.heads is not None and self.variant != "optimal":
            least = 3  # two of the points are caps
        require(self.points >= least, f"points={self.points}: the variant {self.variant} needs at least {least} a head")
        require(self.heads is None or self.heads >= 1, f"heads={self.heads}: at least one is needed")
        if self.variant == "inclusive" and self.cells < 1:
            raise InvalidRequest("one head of three points holds one point between its caps; two ends need two")
        require(0 < self.leak < 1, f"leak={self.leak!r:.30}: a number between 0 and 1 is needed")
        if self.sharpness is not None and not 1e-3 <= self.sharpness <= 1e6:
            raise InvalidRequest(f"sharpness={self.sharpness!r:.30}: a number from 1e-3 to 1e6 is needed")

    @property
    def keys(self) -> int:
        return self.points * (self.heads or 1)

    @property
    def cells(self) -> int:
        """How many times Δ fits into b − a."""
        if self.heads is None:
            return self.points if self.variant == "published" else self.points - 1
        if self.variant == "optimal":
            return self.heads * (self.points - 1)
        inner = self.heads * (self.points - 2)
        return inner if self.variant == "published" else inner - 1

    @property
    def spacing(self) -> float:
        return (self.high - self.low) / self.cells

    @property
    def c(self) -> float:
        """The sharpness β Δ²: as given, as published, or that of the least error."""
        if self.sharpness is not None:
            return self.sharpness
        if self.variant == "optimal":
            return best_sharpness(min(self.points, _LOCAL), None if self.heads is None else min(self.heads, 3))
        if self.heads is not None:
            return MANY_SHARPNESS
        return math.ceil(_SOFT * math.log(max(self.points, 2) / self.leak)) / _SOFT

    @property
    def published(self) -> float:
        """The bound of the paper for this many points: max(|a|, |b|) ε₀ + (b − a)/p, or /((n − 2) H)."""
        cells = self.points if self.heads is None else (self.points - 2) * self.heads
        if cells < 1:
            return math.inf
        return max(abs(self.low), abs(self.high)) * self.leak + (self.high - self.low) / cells

    @property
    def claim(self) -> float:
        """The bound that is asked of the proof: the paper's for its own single head, else what is derived here."""
        if self.sharpness is not None:
            return 1.1 * constant(self) * self.spacing
        if self.variant == "optimal":
            return 0.08 * self.spacing
        if self.heads is not None:  # what leaks past a cap is e^{−2c} of the largest value
            return 0.505 * self.spacing + 1e-9 * max(abs(self.low), abs(self.high))
        if self.variant == "published":
            return max(self.published, 1.003 * self.spacing)  # a proof needs some room
        return self.spacing / 2 + self.leak * (self.high - self.low)


def grid_fit(grid: Grid, dtype: str = "float64") -> Fit:
    """The heads of a grid; `error` is sampled, no bound."""
    return replace(_fit(grid, dtype), error=constant(grid) * grid.spacing)


def constant(grid: Grid) -> float:
    """The sampled sup error in units of Δ, on a line that reaches past both ends."""
    few = min(grid.points, _LOCAL)
    heads = None if grid.heads is None else min(grid.heads, 4)
    size = 0.0 if heads is None or grid.variant == "optimal" else max(abs(grid.low), abs(grid.high)) / grid.spacing
    return _constant(few, heads, grid.variant, grid.c, round(size, 6))


def _fit(grid: Grid, dtype: str) -> Fit:
    """The same without its error; the middle of a chain of heads is left to the stream."""
    chain = grid.heads is not None and grid.variant == "optimal"
    middle = float(rounded((grid.low + grid.high) / 2, dtype)) if chain else 0.0
    return Fit(tuple(_pieces(grid, dtype)), 0.0, middle)


def _pieces(grid: Grid, dtype: str) -> list[Head]:
    step, c = grid.spacing, grid.c
    if grid.heads is None:
        single = np.asarray(grid.low + np.arange(grid.points) * step, dtype=np.float64)
        return [_piece(single, single, step, c, dtype)]
    if grid.variant == "optimal":
        own = np.asarray((np.arange(grid.points) - (grid.points - 1) / 2) * step, dtype=np.float64)
        starts = (grid.low + step * (grid.points - 1) * (h + 0.5) for h in range(grid.heads))
        return [_piece(own + middle, own, step, c, dtype) for middle in starts]
    inner = grid.points - 2
    first = grid.low + (step / 2 if grid.variant == "published" else 0.0)
    pieces = []
    for h in range(grid.heads):
        at = np.asarray(first + np.arange(h * inner - 1, (h + 1) * inner + 1) * step, dtype=np.float64)
        values = at.copy()
        values[0] = values[1] if h == 0 else 0.0
        values[-1] = values[-2] if h == grid.heads - 1 else 0.0
        pieces.append(_piece(at, values, step, c, dtype))
    return pieces


def _piece(at: Array, values: Array, step: float, c: float, dtype: str) -> Head:
    m = np.arange(len(at)) - (len(at) - 1) / 2
    middle = (float(at[0]) + float(at[-1])) / 2
    w = float(rounded(np.array(1 / step), dtype))
    return head_of(Keys(w, -middle * w, rounded(2 * c * m, dtype), rounded(-c * m * m, dtype)), values, dtype)


@lru_cache(maxsize=4096)
def _constant(points: int, heads: int | None, variant: str, c: float, size: float) -> float:
    """As `constant`, for a grid of spacing 1 whose values reach `size` (of no matter without caps)."""
    probe = Grid(0.0, 1.0, points, heads, variant, LEAK, c)
    low = size - probe.cells if size else 0.0
    probe = Grid(low, low + probe.cells, points, heads, variant, LEAK, c)
    u = np.linspace(probe.low - 3, probe.high + 3, _PER_CELL * (probe.cells + 6) + 1)
    return float(np.abs(_fit(probe, "float64")(u) - np.clip(u, probe.low, probe.high)).max())


@lru_cache(maxsize=256)
def best_sharpness(points: int, heads: int | None) -> float:
    """c of the least sampled error, a whole number of 32nds; errors of one and of many heads balance near 2.7."""

    def cost(k: int) -> float:
        return _constant(points, heads, "optimal", k / _SOFT, 0.0)

    coarse = min(range(_SOFT, 6 * _SOFT, 8), key=cost)
    return min(range(coarse - 8, coarse + 9), key=cost) / _SOFT
