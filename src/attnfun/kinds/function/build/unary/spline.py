"""fit_spline: a function of one variable as a broken line, one ReLU unit a breakpoint.

    g(u) ≈ slope·u + offset + Σ_j values_j relu(slopes_j u + biases_j),    slopes_j = ±1,    breakpoints t_j = ∓biases_j

Statement. A broken line that stays in the corridor g ± E needs, for smooth g and small E, one breakpoint for every
length h with h² |g''| = 16 E: a chord leaves g by h²|g''|/8, and the line that runs from one edge of the corridor to
the other and back has half of that on each side. So the units are ¼ ∫ √|g''| du / √E, breakpoints as dense as √|g''|;
a root at 0 (√u: g'' = −¼ u^{−3/2}) adds a constant factor only, for √|g''| is integrable there.
Construction. March through the corridor: from the last breakpoint, the line that stays inside for longest; the next
breakpoint stands where it leaves, on the edge by which it leaves. Every line is the longest from its start, so only the
start points are not optimal (shortest paths in a corridor: Imai and Iri 1986). Kinks of the expression are breakpoints
from the start, so that |u| takes one unit and is exact.
Cancellation. Units left of a middle piece look left, relu(t_j − u), the others right, relu(u − t_j), and the middle
piece is the affine part. At any u only the units between it and the middle speak, with values g'' h: nothing large
cancels, and where g is convex nothing cancels at all. Values are made one by one outward, each mending the rounding of
those before it. With slopes ±1 the breakpoints are stored exactly.
Failure mode: features narrower than the first 512 cells are missed unless the expression has a kink or root there; in
float32 many units round away what they gain. Nothing here is a bound: `error` is what the samples showed.

**compose as an MLP**: the same program with a broken line of ReLU units for every step.

A step of tolerance E takes about F + R/√E units, F and R measured. With S_i the sensitivity of the output to step i the
tolerances minimise the units Σ R_i/√E_i under Σ S_i E_i = 0.97 ε: by Lagrange E_i ∝ (R_i/S_i)^{2/3}. Steps that are
broken lines themselves (R = 0: relu, abs) need no tolerance and get a small one. The total is known before anything is
built: units grow like 1/√ε, where keys grow like a power of ln(1/ε).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.features import features, values
from attnfun.kinds.function.build.unary.keys import Array, Fit, Keys, axis_of
from attnfun.language import Graph
from attnfun.network import ReluBlock, rounded

_CELLS = 512  # of the first grid
_FINE = 300  # a cell's chord is within E/300 of g: some 25 to 50 samples per piece
_POINTS = 6_000_000
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}


@dataclass(frozen=True)
class Growth:
    """About how many units a tolerance E takes: fixed + rate/√E."""

    fixed: float
    rate: float

    def __call__(self, eps: float) -> float:
        if not self.rate:
            return self.fixed
        return self.fixed + self.rate / math.sqrt(eps) if eps > 0 else math.inf


def rough_units(graph: Graph, low: float, high: float) -> float:
    """Units at 1e-3 of the range: what the walk of `compose` weighs its alternatives by."""
    return growth(graph, low, high)(1e-3 * _extent(graph, low, high)) if high > low else 1.0


@lru_cache(maxsize=1024)
def fit_spline(graph: Graph, low: float, high: float, eps: float, *, dtype: str = "float64") -> Fit:
    """Units for the first output of `graph` on [low, high], within eps on the samples, rounding in the dtype included.

    Deterministic. Raises Infeasible, with the nearest eps, where rounding would eat most of it.
    """
    corridor, rounding = 0.98 * eps, 0.0
    for _ in range(4):
        t, y, grid = _knots(graph, low, high, corridor, dtype)
        fit, carried = _stored(t, y, grid, dtype)
        rounding = (fit.keys + 2) * _ROUNDOFF[dtype] * carried
        if fit.error + rounding <= eps:
            return fit
        corridor = 0.98 * max(eps - 1.1 * rounding, 0.35 * eps)
    share = rounding * math.sqrt(corridor)  # rounding grows like the units, with 1/√E
    nearest = (share / 0.35) ** (2 / 3) * 1.3
    reached = f"{fit.error:.2g} is reached with ReLU units ({fit.keys:,}), and rounding in {dtype} adds {rounding:.1g}"
    raise Infeasible(f"compose: {reached}, not {eps:.2g}", {"eps": max(nearest, 1.05 * (fit.error + rounding))})


@lru_cache(maxsize=4096)
def growth(graph: Graph, low: float, high: float, scale: float = 1e-3) -> Growth:
    """Measured by two marches, at `scale` and scale/16 of the range of g."""
    size = _extent(graph, low, high)
    if not size > 0:
        return Growth(1.0, 0.0)
    coarse, fine = (len(_knots(graph, low, high, e * size, "float64")[0]) - 2 for e in (scale, scale / 16))
    rate = max(fine - coarse, 0) * math.sqrt(scale * size) / 3
    return Growth(max(coarse - rate / math.sqrt(scale * size), 1.0), rate)


def _extent(graph: Graph, low: float, high: float) -> float:
    return float(np.ptp(_sampled(graph, np.linspace(low, high, 257))))


def _sampled(graph: Graph, u: Array) -> Array:
    f = values(graph, u)
    feasible(np.isfinite(f).all(), "compose: a step is not defined on the range of its argument")
    return f


# ---------------------------------------------------------------- breakpoints


def _knots(graph: Graph, low: float, high: float, E: float, dtype: str) -> tuple[Array, Array, tuple[Array, Array]]:
    """Breakpoints with both ends, heights there, and the samples (u, g) behind them."""
    kinks = [f.at for f in features(graph, low, high) if f.kink]
    u, g = _grid(graph, low, high, E / _FINE, dtype)
    forced = np.unique(np.searchsorted(u, rounded(np.array(kinks), dtype))) if kinks else np.zeros(0, dtype=np.intp)
    forced = forced[(forced > 0) & (forced < len(u) - 1)]
    edge = E * (1 - 2 / _FINE)
    paths = [_march(u, g, [*forced.tolist(), len(u) - 1], edge, start) for start in (0.0, -edge, edge)]
    index, heights = min(paths, key=lambda path: len(path[0]))
    return u[index], np.array(heights), (u, g)


def _grid(graph: Graph, low: float, high: float, tolerance: float, dtype: str) -> tuple[Array, Array]:
    """Samples between which g is within `tolerance` of its chords, as seen half-way; inner ones are of the dtype."""
    places = [f.at for f in features(graph, low, high) if low < f.at < high]
    inner = rounded(np.concatenate([np.linspace(low, high, _CELLS + 1), places]), dtype)
    u = np.unique(np.concatenate([[low, high], inner[(inner > low) & (inner < high)]]))
    g = _sampled(graph, u)
    kept = [(u, g)]
    a, b, fa, fb = u[:-1], u[1:], g[:-1], g[1:]
    count = len(u)
    while len(a):
        m = rounded(a + (b - a) / 2, dtype)
        open_ = (a < m) & (m < b)
        a, b, fa, fb, m = a[open_], b[open_], fa[open_], fb[open_], m[open_]
        if not len(m):
            break
        f = _sampled(graph, m)
        bent = np.abs(f - (fa + (fb - fa) * ((m - a) / (b - a)))) > tolerance
        a, b, fa, fb, m, f = a[bent], b[bent], fa[bent], fb[bent], m[bent], f[bent]
        kept.append((m, f))
        count += len(m)
        feasible(count <= _POINTS, "compose: the corridor is too narrow to be sampled")
        a, b, fa, fb = (np.concatenate(pair) for pair in ((a, m), (m, b), (fa, f), (f, fb)))
    u, g = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.argsort(u)
    return u[order], g[order]


def _march(u: Array, g: Array, stops: list[int], E: float, start: float) -> tuple[list[int], list[float]]:
    """Indices and heights of the breakpoints, both ends included; a breakpoint stands at every stop."""
    at, y = 0, float(g[0]) + start
    index, heights, window = [0], [y], 64
    for stop in stops:
        while at < stop:
            reach = min(at + window, stop)
            while True:
                span = u[at + 1 : reach + 1] - u[at]
                least = (g[at + 1 : reach + 1] - E - y) / span
                most = (g[at + 1 : reach + 1] + E - y) / span
                low, high = np.maximum.accumulate(least), np.minimum.accumulate(most)
                shut = low > high
                if shut.any() or reach == stop:
                    break
                reach = min(at + 2 * (reach - at), stop)
            if shut.any():
                k = max(int(np.argmax(shut)) - 1, 0)
                below = least[k + 1] > high[k]  # it would leave through the lower edge, so it runs as high as it may
                slope = float(high[k] if below else low[k])
            else:
                k = len(low) - 1
                slope = float((low[k] + high[k]) / 2)
            y += slope * float(span[k])
            at += k + 1
            index.append(at)
            heights.append(y)
            window = 2 * k + 16
    return index, heights


# ---------------------------------------------------------------- weights


def _stored(t: Array, y: Array, grid: tuple[Array, Array], dtype: str) -> tuple[Fit, float]:
    """The broken line through (t, y) as weights, and the largest Σ |values| relu(…): what rounding is relative to."""
    if len(t) == 2:  # a straight line will do; a block has at least one unit
        t, y = np.array([t[0], float(rounded((t[0] + t[1]) / 2, dtype)), t[1]]), np.array([y[0], y.mean(), y[1]])
    slopes = np.diff(y) / np.diff(t)
    bends = np.abs(np.diff(slopes))
    left = np.concatenate([[0.0], np.cumsum(bends * (t[1:-1] - t[0]))])
    right = np.concatenate([np.cumsum((bends * (t[-1] - t[1:-1]))[::-1])[::-1], [0.0]])
    m = int(np.argmin(np.maximum(left, right)))
    slope = float(rounded(slopes[m], dtype))
    offset = float(rounded(y[m] - slope * t[m], dtype))
    held = slope * t + offset
    heights = np.zeros(len(t) - 2)
    for way, first in ((1, m + 1), (-1, len(t) - 1 - m)):  # outward to the right, then mirrored to the left
        at, wanted, line, jumps, now = way * t[::way], y[::way], held[::way], heights[::way], way * slope
        for j in range(first, len(t) - 1):
            jumps[j - 1] = _near((wanted[j + 1] - line[j]) / (at[j + 1] - at[j]) - now, dtype)
            now += jumps[j - 1]
            line[j + 1] = line[j] + now * (at[j + 1] - at[j])
    side = np.where(np.arange(1, len(t) - 1) <= m, -1.0, 1.0)
    used = heights != 0
    used[0] |= not used.any()
    error = float(np.abs(np.interp(grid[0], t, held) - grid[1]).max())
    signs, biases, heights = (a[used] for a in (side, -side * t[1:-1], heights))
    block = ReluBlock("", axis_of(Keys(1.0, 0.0, signs, biases)), heights[:, None], ("g1",))
    return Fit((block,), slope, offset, error), max(float(left[m]), float(right[m]))


def _near(value: float, dtype: str) -> float:
    return value if dtype == "float64" else float(np.float32(value))


MOST_UNITS = 100_000
"""The most hidden units that are built, whatever `max_keys` allows: past it the proof would take minutes."""
_USED = 0.97  # of eps; broken lines use up what they are given
_LEAST = {"float64": 0.02, "float32": 0.2}  # of an equal share, for steps that are exact but for rounding


def shares(
    intervals: Sequence[tuple[Graph, float, float]], weights: Sequence[float], request: Request
) -> tuple[float, ...]:
    """The tolerance of every step (g, low, high) with its sensitivity; Infeasible, with the nearest eps, if the units
    would be too many.
    """
    sizes = [growth(*interval) for interval in intervals]
    allowed = _USED * request.eps
    sensitive = [max(w, 1e-300) for w in weights]
    wanted = [(size.rate / s) ** (2 / 3) for size, s in zip(sizes, sensitive, strict=True)]
    total = sum(w * s for w, s in zip(wanted, sensitive, strict=True))
    kept = _LEAST[request.dtype]
    least = [kept * allowed / (len(sizes) * s) for s in sensitive]
    scale = (1 - kept) * allowed / total if total > 0 else 0.0
    tolerances = tuple(max(scale * w, e) for w, e in zip(wanted, least, strict=True))
    _require_room(sizes, tolerances, request)
    return tolerances


def _require_room(sizes: Sequence[Growth], tolerances: Sequence[float], request: Request) -> None:
    limit = min(request.max_keys, MOST_UNITS)
    units = sum(size(e) for size, e in zip(sizes, tolerances, strict=True))
    if not units <= 1.1 * limit + 8:  # an estimate; what is built is counted exactly
        nearest = nearest_request(units, sum(size.fixed for size in sizes), request)
        raise Infeasible(f"compose: about {units:,.0f} ReLU units would be needed, more than {limit:,}", nearest)


def nearest_request(units: float, fixed: float, request: Request) -> dict[str, float | str]:
    """The eps at which the units that grow, like 1/√eps, leave room for the `fixed` ones; attention where none does."""
    room = min(request.max_keys, MOST_UNITS) - fixed
    if not (room > 1 and units < math.inf):
        return {"realise": "attention"}
    return {"eps": float(f"{1.15 * request.eps * ((units - fixed) / room) ** 2:.2g}")}
