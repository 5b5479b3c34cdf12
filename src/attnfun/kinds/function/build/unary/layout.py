"""Which pieces a function needs, at any resolution ρ, and on which points they are fitted and checked.

smooth function        one Gaussian head, or one whose keys are dense where the function changes fast (`mesh`);
                       for e^u also keys in geometric progression
root at s              a ladder on each side of s that the interval has, down to the distance at which f is within ε of
                       f(s) (its second difference decides, since the linear part is free)
singular point nearby  a ladder about it, from a tenth of its distance on
kink at s              a one-sided head, constant on the left of s, and a Gaussian head for the rest

All pieces are heads of their own and share one least-squares problem with the affine part: how a function splits into
smooth continuation and one-sided parts is left to it. A ladder or a constant side merged with anything else in one
softmax would add slopes of 1e13 to slopes of 1 and lose the latter.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.unary.features import features, known, values
from attnfun.kinds.function.build.unary.keys import Array, Keys, centre, gaussian, geometric, ladder, one_sided, placed
from attnfun.kinds.function.build.unary.project import Pieces, Sample
from attnfun.language import Graph

MOST = 400  # keys that are tried
MANY = 32  # kinks, of which each has fewer points of its own, and fewer layouts are tried
_NEAR = 12.0  # ratio of the distances to a nearby singular point above which only a ladder is tried
_FELT = 1.8  # and above which a ladder is one of the starts
_KINK_SHARE = 0.3  # of eps that the rounding of a kink may cost
_SKEW = 8.0  # right over left side of a kink, from which on its head stands on the left, where its values are small
_DEGREE = 6
_FINEST = {"float64": 1e-280, "float32": 1e-30}  # distance from a singular point that slopes of keys can resolve


@dataclass(frozen=True)
class Side:
    """One side of a feature inside the interval: distances from `inner` (where detail ends) to `outer`."""

    at: float
    side: int
    inner: float
    outer: float
    steepness: float = 0.0  # of the constant key, for kinks


@dataclass(frozen=True)
class Problem:
    """A function of one variable on an interval, with what the expression says about its smoothness."""

    graph: Graph
    low: float
    high: float
    eps: float
    dtype: str
    ladders: tuple[Side, ...]
    kinks: tuple[Side, ...]
    span: float  # range of f less its best affine part, roughly
    mesh: Array  # edges of cells on which f is about a polynomial of low degree
    near: tuple[Side, ...] = ()  # singular points outside, felt but not close

    @property
    def guess(self) -> int:
        """About how many tuned keys a smooth f needs: two a mesh cell and two more, at 1e-6 of its range."""
        digits = math.log10(self.span / self.eps)
        return max(2, round((2 * len(self.mesh)) * min(max(digits / 6, 0.4), 2.5)))

    @property
    def middle(self) -> float:
        return centre(self.low, self.high, self.dtype)

    def sample(self, keys: int, factor: int = 1) -> Sample:
        """Points graded towards every feature and both ends, about ten a key (times `factor`)."""
        u = self.points(max(14, int(10 * keys / (1 + len(self.ladders) + len(self.kinks)))) * factor)
        f = values(self.graph, u)
        return Sample(u, f, np.full(len(u), 1 / math.sqrt(len(u))), self.middle, (self.high - self.low) / 2)

    def points(self, count: int) -> Array:
        breaks = [self.low, *sorted({s.at for s in (*self.ladders, *self.kinks) if self.low < s.at < self.high})]
        breaks.append(self.high)
        shares = np.maximum(np.array(breaks[1:]) - np.array(breaks[:-1]), 0.25 * (self.high - self.low) / len(breaks))
        shares /= shares.sum()
        parts = [np.array(breaks)]
        few, more = (60, 40) if len(self.kinks) <= MANY else (16, 12)
        for a, b, share in zip(breaks[:-1], breaks[1:], shares, strict=True):
            m = max(few, int(count * share * (1 + len(self.ladders) + len(self.kinks))))
            parts.append(a + (b - a) * (1 - np.cos((np.arange(m) + 0.5) * np.pi / m)) / 2)
        if len(self.mesh) > 5:
            t = np.linspace(0, len(self.mesh) - 1, max(len(self.mesh) * 4, count // 2))
            parts.append(np.interp(t, np.arange(len(self.mesh)), self.mesh))
        for s in self.ladders:
            d = np.geomspace(s.inner / 10, s.outer, count)
            parts.append(s.at + s.side * d)
        for s in self.kinks:
            d = np.geomspace(0.02 / s.steepness, s.outer, max(more, count // 2))
            parts += [s.at + d, s.at - d]
        u = np.unique(np.concatenate(parts))
        return u[(u >= self.low) & (u <= self.high)]


Layout = Callable[[float], Pieces]


def refusal(why: str, reach: float, eps: float, fits: Callable[[float], bool] | None = None) -> Infeasible:
    """Refused before any search; what can be had is the least eps that `fits`, found by bisection, or a constant, which
    is within `reach`, and the reason says which.
    """
    if not eps < reach < math.inf:
        return Infeasible(why)
    low, high = math.log(eps), math.log(reach)
    while fits is not None and high - low > 0.05:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(math.exp(middle)) else (middle, high)
    near = float(f"{1.1 * math.exp(high):.2g}")
    what = "a constant is within" if high == math.log(reach) else "the budget is enough for about"
    return Infeasible(f"{why}; {what} {near:.2g}", {"eps": near})


def problem(graph: Graph, low: float, high: float, eps: float, dtype: str) -> Problem:
    """Features, their inner scales, and a mesh of the function."""
    width = high - low
    ladders, kinks, near = list[Side](), list[Side](), list[Side]()
    found = features(graph, low, high)
    bends = np.array([feature.at for feature in found if feature.kink])
    for at, steep in zip(bends.tolist(), _steepness(graph, bends, low, high, eps).tolist(), strict=True):
        if steep > 0:
            side, outer = (-1, at - low) if _SKEW * (at - low) < high - at else (1, high - at)
            kinks.append(Side(at, side, 1 / steep, outer, steep))
    feasible(len(kinks) <= MOST // 3, f"tangent: more than {MOST // 3} kinks; at most {MOST} keys are tried")
    for feature in found:
        if feature.kink:
            continue
        for side, far in ((1, high), (-1, low)):
            outer = side * (far - feature.at)
            distance = max(side * ((low if side > 0 else high) - feature.at), 0.0)
            if outer <= 1e-9 * width:
                continue
            if distance > 0 and outer < _NEAR * distance:
                if outer > _FELT * distance:
                    near.append(Side(feature.at, side, 0.25 * distance, 1.1 * outer))
                continue
            if 0 < distance < _FINEST[dtype]:
                reach = float(np.ptp(values(graph, np.concatenate([[low], np.linspace(low, high, 65)])))) / 2
                why = f"tangent: the interval begins {distance:.3g} from the singular point {feature.at:.6g}; heads in "
                raise refusal(why + f"{dtype} follow it down to about {_FINEST[dtype]:.0e}", reach, eps)
            inner = 0.1 * distance if distance > 0 else 0.4 * _inner(graph, feature.at, side, outer, eps, dtype)
            if inner < 0.3 * outer:
                ladders.append(Side(feature.at, side, inner, outer))
    u = np.linspace(low, high, 501)
    f = values(graph, u)
    over = u[np.isinf(f)]
    feasible(not len(over), f"tangent: the target is past what float64 can hold, at {over[:1].sum():.4g}")
    edges = _mesh(graph, low, high, eps, [s.at for s in (*ladders, *kinks)])
    fits = np.isfinite(f).all() and 2 / width < math.inf  # of a subnormal width the fit's slope is not a number
    bend = f - np.polynomial.Chebyshev.fit(u, f, 1)(u) if fits else f
    span = float(np.ptp(bend)) if np.isfinite(bend).all() else 1.0
    felt = sorted(near, key=lambda s: s.inner / s.outer)[:1]
    return Problem(graph, low, high, eps, dtype, tuple(ladders), tuple(kinks), max(span, eps), edges, tuple(felt))


def remeshed(p: Problem, eps: float) -> Array:
    """The mesh that the problem has at another eps."""
    return _mesh(p.graph, p.low, p.high, eps, [s.at for s in (*p.ladders, *p.kinks)])


def layouts(p: Problem) -> list[Layout]:
    """The families of pieces to try, each a function of the resolution ρ (about 8ρ keys for an easy function)."""
    if not p.ladders and not p.kinks:
        starts = ((1.3, 0.3), (1.15, 0.3), (1.3, 0.8), (1.8, 0.3))
        bells = (partial(gaussian, p.low, p.high, reach=r, sharpness=sharp, dtype=p.dtype) for r, sharp in starts)
        found, form = [*map(_single, bells)], known(p.graph)
        if len(p.mesh) > 4 and np.diff(p.mesh).max() > 1.5 * np.diff(p.mesh).min():
            found = [_single(partial(_meshed, p, sharp=0.3), 3), *found[:3]]
        if form is not None and form.op == "exp":
            rates = (partial(geometric, p.low, p.high, form.w, delta=delta, dtype=p.dtype) for delta in (0.1, 0.4))
            found = [*map(_single, rates), *found]
        near = (partial(ladder, s.at, s.side, s.inner, s.outer, growth=0.0, sharpness=0.15) for s in p.near)
        return [*map(_single, near), *found]
    if not p.kinks:
        return [_laddered(p, growth, 0.15, base) for growth, base in ((0.06, False), (0.0, False), (0.06, True))]
    base = not _piecewise_linear(p)
    return [_kinked(p, base, sharp) for sharp in (0.3, 0.6)]


def expected_keys(p: Problem) -> float:
    """About how many keys the search ends with, from features and mesh alone."""
    rho = min(max(math.log10(p.span / p.eps) / 6, 0.3), 3.0)
    total = 0.0
    for s in p.ladders:
        depth = math.log(1.5 * s.outer / s.inner)
        total += 3 + 1.3 * depth / (1 + 0.03 * depth) * rho
    if p.kinks:
        cells = max(1.0, (len(p.mesh) - 1) / 8)
        total += len(p.kinks) * (1 + 4 * rho * cells) + (0.0 if _piecewise_linear(p) else 5 * rho * cells)
    return total if total else float(p.guess)


def _single(make: Callable[..., Keys], least: int = 2) -> Layout:
    """One piece of about 8ρ keys."""
    return lambda rho: (make(n=max(least, round(8 * rho))),)


def _meshed(p: Problem, n: int, sharp: float) -> Keys:
    """Touching points at equal steps of a smoothed count of mesh cells, a sixth of them beyond each end."""
    cells = len(p.mesh) - 1
    y = np.linspace(0, cells, 8 * cells + 1)
    log_width = np.interp(y, np.arange(cells) + 0.5, np.log(np.diff(p.mesh)))
    kernel = np.hanning(15)[1:-1]
    padded = np.concatenate([np.full(6, log_width[0]), log_width, np.full(6, log_width[-1])])
    speed = np.exp(np.convolve(padded, kernel / kernel.sum(), mode="valid"))
    t = np.concatenate([[0.0], np.cumsum((speed[1:] + speed[:-1]) / 2)])
    t = p.low + (p.high - p.low) * t / t[-1]
    beyond = 0.15 * cells
    at = np.linspace(-beyond, cells + beyond, n)
    nodes = np.interp(at, y, t)
    first, last = t[1] - t[0], t[-1] - t[-2]
    nodes = np.where(at < 0, t[0] + at * first * 8, np.where(at > cells, t[-1] + (at - cells) * last * 8, nodes))
    return placed(p.low, p.high, nodes, sharp, p.dtype)


def _laddered(p: Problem, growth: float, sharp: float, base: bool) -> Layout:
    def pieces(rho: float) -> Pieces:
        out = []
        for s in p.ladders:
            depth = math.log(s.outer / s.inner)
            n = max(3, round(rho * (5 + 1.3 * depth / (1 + growth * depth / 2))))
            out.append(ladder(s.at, s.side, s.inner, 1.5 * s.outer, n, growth, sharp))
        if base:
            out.append(gaussian(p.low, p.high, max(3, round(6 * rho)), 1.3, 0.4, p.dtype))
        return tuple(out)

    return pieces


def _kinked(p: Problem, base: bool, sharp: float) -> Layout:
    def pieces(rho: float) -> Pieces:
        out = [*_laddered(p, 0.06, 0.15, False)(rho)]
        cells = max(1.0, (len(p.mesh) - 1) / 8)
        if base:
            out.append(gaussian(p.low, p.high, max(2, round(8 * rho * cells)), 1.3, sharp, p.dtype))
        for s in p.kinks:
            share = max(s.outer / (p.high - p.low), 0.1) ** 0.5
            n = max(2, round(6 * rho * max(1.0, cells * share)))
            out.append(one_sided(s.at, s.side, s.outer, n, 1.3, sharp, s.steepness))
        return tuple(out)

    return pieces


def _piecewise_linear(p: Problem) -> bool:
    edges = np.unique(np.clip([p.low, *(s.at for s in p.kinks), p.high], p.low, p.high))
    t = np.linspace(0, 1, 33)
    f = values(p.graph, (edges[:-1, None] + np.diff(edges)[:, None] * t).ravel()).reshape(-1, len(t))
    return bool(np.abs(f - f[:, :1] - (f[:, -1:] - f[:, :1]) * t).max() <= 0.1 * p.eps)


def _inner(graph: Graph, at: float, side: int, outer: float, eps: float, dtype: str) -> float:
    """The distance below which the second difference of f is within a third of eps."""
    d = outer * 2.0 ** -np.arange(1.0, 1000.0, 0.5)
    d = d[d > max(abs(at) * float(np.finfo(dtype).eps), 1e-290 if dtype == "float64" else 1e-34)]
    f = values(graph, np.concatenate([[at], at + side * d, at + 2 * side * d]))
    bend = np.abs(f[1 + len(d) :] - 2 * f[1 : 1 + len(d)] + f[0])
    large = np.flatnonzero(bend > 0.35 * eps)
    if len(large) and large[-1] == len(d) - 1 and bend[-1] > eps:
        why = f"tangent: neighbouring {dtype} numbers at the singular point {at:.6g} have values {bend[-1]:.2g} apart"
        raise Infeasible(why, {"eps": float(f"{4 * bend[-1]:.2g}")})
    return float(d[large[-1]]) if len(large) else float(outer)


def _steepness(graph: Graph, kinks: Array, low: float, high: float, eps: float) -> Array:
    """λ of the constant keys: 0.28 J/λ for a jump J of the slope, 0.54 K/λ² for one of half the second derivative."""
    if not len(kinks):
        return kinks
    h = 1e-5 * np.minimum(kinks - low, high - kinks)
    g, places = 300 * h, np.arange(-2.0, 3.0)[:, None]
    near, wide = (values(graph, (kinks + places * d).ravel()).reshape(5, -1) for d in (h, g))
    jump = np.abs((-3 * near[2] + 4 * near[3] - near[4]) - (3 * near[2] - 4 * near[1] + near[0])) / (2 * h)
    bend = np.abs((wide[2] - 2 * wide[3] + wide[4]) - (wide[2] - 2 * wide[1] + wide[0])) / (2 * g * g)
    least = 64 * np.spacing(np.abs(wide).max(axis=0))
    jump, bend = np.where(jump * h < least, 0.0, jump), np.where(bend * g * g < least, 0.0, bend)
    return np.maximum(0.28 * jump / (_KINK_SHARE * eps), np.sqrt(0.54 * bend / (_KINK_SHARE * eps)))


def _mesh(graph: Graph, low: float, high: float, eps: float, breaks: list[float]) -> Array:
    """Edges of cells, halved until a polynomial of degree 6 through the cell is near f; at most 12 levels."""
    nodes = (1 - np.cos((np.arange(_DEGREE + 1) + 0.5) * np.pi / (_DEGREE + 1))) / 2
    tests = np.array([0.0, 0.13, 0.5, 0.77, 1.0])
    matrix = _lagrange(nodes, tests)
    edges = np.unique(np.clip([low, high, *breaks], low, high))
    left, right = edges[:-1], edges[1:]
    done = [edges]
    f = values(graph, np.linspace(low, high, 65))
    size = float(np.ptp(f[np.isfinite(f)])) if np.isfinite(f).any() else 1.0
    tolerance = math.sqrt(max(eps, 1e-16 * size) * max(size, eps)) * 0.1
    for _ in range(12):
        if len(left) == 0:
            break
        width = right - left
        f = values(graph, (left[:, None] + width[:, None] * nodes).ravel()).reshape(len(left), -1)
        g = values(graph, (left[:, None] + width[:, None] * tests).ravel()).reshape(len(left), -1)
        bad = ~(np.abs(f @ matrix.T - g).max(axis=1) <= tolerance)
        if bad.sum() > 4000:
            break
        middle = left[bad] + width[bad] / 2
        done.append(middle)
        left, right = np.concatenate([left[bad], middle]), np.concatenate([middle, right[bad]])
    return np.unique(np.concatenate(done))


def _lagrange(nodes: Array, at: Array) -> Array:
    """(len(at), len(nodes)) values of the Lagrange polynomials."""
    out = np.ones((len(at), len(nodes)))
    for j, x in enumerate(nodes):
        for i, y in enumerate(nodes):
            if i != j:
                out[:, j] *= (at - y) / (x - y)
    return out
