"""Method *pieces*: a block of ReLU units of one variable, against its function, between consecutive breakpoints.

    net(u) = a u + b + Σ_j v_j relu(k_j (w u + c) + b_j),       breakpoints x_j = −(k_j c + b_j)/(k_j w)

All numbers are stored doubles; net is a broken line and is evaluated in balls, exactly but for their radii. Take
doubles y_0 < y_1 < … over the interval, among them the double nearest to every x_j inside, d_j away. Let P be the chord
of net on a piece [y_i, y_{i+1}] of width h.

* A unit that breaks inside the piece leaves its own chord by at most |v_j k_j w| times the distance of x_j to the
  nearer end, and no y lies inside, so by at most |v_j k_j w| d_j:   |net − P| ≤ σ := Σ_j |v_j k_j w| d_j.
* r = P − g has r'' = −g''. With m ≤ g'' ≤ M on the piece (power series over the ball of the piece; polynomials:
  `chebyshev_curve`), e = net − g at its ends and t = (u − y_i)/h,

      r(u) = (1 − t) e_i + t e_{i+1} + t (1 − t) h² g''(ξ)/2      ≤ max_t of the same with M in place of g'',

  and that maximum of a parabola has a closed form; from below likewise with m.
* Where g has no series on the piece (a kink inside, a root at 0): the range of g there against the ends of P.

So sup |net − g| ≤ σ + the largest of these over the pieces. Pieces are halved where that is above what the witnessed
errors at the y's ask for. They always cover the interval, so a search that stops early only returns a larger bound.

Failure modes: a function that is not bounded on the interval; more pieces than the budget, 300,000 for an expression
(then the bound is large).
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from flint import arb

from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma
from attnfun.certify.view import Array, Bound, Undecided, provided
from attnfun.language import BallAlgebra, Graph, Kink, SeriesAlgebra, precision, run
from attnfun.language.enclosures import abs_uppers, ball, balls, lowers, point_balls, upper, uppers
from attnfun.language.series import series_length

_BITS = 256
_PIECES = 300_000
_SLACK = 1.02  # proved bound over witnessed error that the halving aims at
_SAFE = 1 + 1e-9  # the bound of the rounding is itself computed in float64, all terms positive


@dataclass(frozen=True)
class BrokenLine:
    """net(u) = slope u + offset + Σ_j values_j relu(slopes_j (w u + c) + biases_j)."""

    slope: float
    offset: float
    w: float
    c: float
    slopes: Array
    biases: Array
    values: Array


class Curve(Protocol):
    """A function of one variable, many places at a time."""

    @property
    def most_pieces(self) -> int: ...

    @property
    def resolution(self) -> float:
        """The radius of the balls of `at`, as far as more pieces do not make it smaller."""

    def at(self, y: Array) -> Array:
        """(n,) balls with g at doubles."""

    def over(self, left: Array, right: Array) -> Array:
        """(n,) balls with the range of g on pieces."""

    def curvatures(self, left: Array, right: Array) -> tuple[Array, Array]:
        """(n,) lower and upper bounds of g'' on pieces; infinite where none is proved."""


class Units:
    """The units of a broken line on [left, right], sorted by breakpoint; use at _BITS bits."""

    def __init__(self, line: BrokenLine, left: float, right: float) -> None:
        w, c, a, z = arb(line.w), arb(line.c), arb(left), arb(right)
        self.slope, self.constant = arb(line.slope), arb(line.offset)
        inside: list[tuple[float, arb, arb, arb]] = []
        tolerance, slack = 0.0, arb(0)
        for k, b, v in zip(line.slopes.tolist(), line.biases.tolist(), line.values.tolist(), strict=True):
            rise, at_zero, value = arb(k) * w, arb(k) * c + arb(b), arb(v)
            first, last = rise * a + at_zero, rise * z + at_zero
            if first >= 0 and last >= 0:
                self.slope, self.constant = self.slope + value * rise, self.constant + value * at_zero
            elif not (first <= 0 and last <= 0):
                place = -at_zero / rise
                near = min(max(float(place.mid()), left), right)
                off = upper(abs(place - arb(near)))
                provided(math.isfinite(off), "pieces: a breakpoint could not be placed")
                inside.append((near, rise, at_zero, value))
                tolerance, slack = max(tolerance, off), slack + abs(value * rise) * arb(off)
        inside.sort(key=lambda unit: unit[0])
        self.inside = inside
        self.places = np.array([unit[0] for unit in inside], dtype=np.float64)
        self.tolerance, self.slack = tolerance, upper(slack)
        provided(math.isfinite(self.slack), "pieces: a breakpoint could not be placed")
        # sums over the units before each place that rise to the right, and over those after it that rise to the left
        self.rising, self.falling = _running(inside, 1), _running(inside[::-1], -1)[::-1]

    def at(self, places: Array) -> list[arb]:
        """Balls with net at doubles of [left, right]."""
        before = np.searchsorted(self.places, np.nextafter(places - self.tolerance, -np.inf), side="left")
        after = np.searchsorted(self.places, np.nextafter(places + self.tolerance, np.inf), side="right")
        out = []
        for y, i, j in zip(places.tolist(), before.tolist(), after.tolist(), strict=True):
            u = arb(y)
            (s, o), (t, p) = self.rising[i], self.falling[j]
            total = (self.slope + s + t) * u + self.constant + o + p
            for _, rise, at_zero, value in self.inside[i:j]:  # so near that only the sign of what they see can tell
                seen = rise * u + at_zero
                if not seen <= 0:
                    total = total + value * (seen if seen >= 0 else ball(0.0, upper(seen)))
            out.append(total)
        return out


def _running(units: list[tuple[float, arb, arb, arb]], sign: int) -> list[tuple[arb, arb]]:
    """Slope and constant of the sum of the first units, none to all, of those whose rise has the sign."""
    sums = [(arb(0), arb(0))]
    for _, rise, at_zero, value in units:
        s, o = sums[-1]
        sums.append((s + value * rise, o + value * at_zero) if sign * rise > 0 else (s, o))
    return sums


def prove_by_pieces(line: BrokenLine, g: Graph, left: float, right: float, enough: float) -> Bound:
    """A bound of sup |net − g| on [left, right], variable "u"; one at most `enough` needs no sharpening."""
    return pieces_of_curve(line, _Expression(g), left, right, enough)


def pieces_of_curve(line: BrokenLine, g: Curve, left: float, right: float, enough: float) -> Bound:
    """The same for any function whose values and curvatures are enclosed."""
    provided(math.isfinite(left) and math.isfinite(right) and left < right, "pieces: an argument that does not vary")
    with precision(_BITS):
        units = Units(line, left, right)
        places = np.concatenate([[left, right], np.linspace(left, right, 9)[1:-1], units.places])
        nodes = _nodes(units, g, np.unique(np.clip(places, left, right)))
        low, where = _witnessed(nodes)
        first, last = nodes[:, :-1], nodes[:, 1:]  # the ends of the pieces
        bounds, count = _bounds(g, first, last), first.shape[1]
        while True:
            goal = max(_SLACK * low, enough) + 4 * g.resolution
            middle = first[0] + (last[0] - first[0]) / 2
            bad = ~(bounds + units.slack <= goal) & (first[0] < middle) & (middle < last[0])
            bad &= ~(bounds < np.max(bounds[bad], initial=0.0) / 64)  # the worst first
            count += 2 * int(bad.sum())
            if not bad.any() or count > g.most_pieces:
                break
            nodes = _nodes(units, g, middle[bad])
            low, where = max((low, where), _witnessed(nodes))
            halves = np.concatenate([first[:, bad], nodes], axis=1), np.concatenate([nodes, last[:, bad]], axis=1)
            bounds = np.concatenate([bounds[~bad], _bounds(g, *halves)])
            first, last = (np.concatenate([a[:, ~bad], b], axis=1) for a, b in zip((first, last), halves, strict=True))
    worst = float(np.max(bounds))
    if not math.isfinite(worst):
        raise Undecided(f"pieces: no bound was found near u={float(first[0, int(np.argmax(bounds))]):.17g}")
    high = max(math.nextafter(worst + units.slack, math.inf), low)
    return Bound("pieces", low, high, np.array([where]), {"pieces": len(bounds)})


def beyond(line: BrokenLine, g: Graph, end: float, far: float) -> float:
    """A bound of |net(u) − g(end)| for u from `end`, where g ends, to `far`; 0 where `far` is not past it.

    A broken line is farthest from a constant at a breakpoint or at an end.
    """
    if end == far:
        return 0.0
    left, right = min(end, far), max(end, far)
    with precision(_BITS):
        value = run(g, BallAlgebra(clip_sqrt=True), {"u": arb(end)})[0]
        units = Units(line, left, right)
        y = np.unique(np.concatenate([[left, right], units.places]))
        off = abs_uppers(np.array([v - value for v in units.at(y)], dtype=object))
    worst = float(np.max(off)) + units.slack
    return math.nextafter(worst, math.inf) if math.isfinite(worst) else math.inf


# ---------------------------------------------------------------- many pieces at a time


def _nodes(units: Units, g: Curve, y: Array) -> Array:
    """(5, n): the doubles y, then lower and upper ends of net − g and of net there; what is undefined is infinite."""
    net = np.array(units.at(y), dtype=object)
    off = net - g.at(y)
    return np.stack([y, lowers(off), uppers(off), lowers(net), uppers(net)])  # NaN becomes infinite


def _witnessed(nodes: Array) -> tuple[float, float]:
    """(error proved at the node where it is largest, the node)."""
    least = np.maximum(np.maximum(nodes[1], -nodes[2]), 0.0)  # no larger than |net − g| at that point
    least = np.where(np.isfinite(least), least, 0.0)
    top = int(np.argmax(least))
    return float(least[top]), float(nodes[0, top])


def _bounds(g: Curve, first: Array, last: Array) -> Array:
    """(n,) bounds of |P − g| on the pieces; infinity where nothing is known."""
    m, M = g.curvatures(first[0], last[0])
    width = np.nextafter(last[0] - first[0], np.inf)
    with np.errstate(all="ignore"):
        square = np.nextafter(width * width, np.inf)
        above = _peak(first[2], last[2], np.nextafter(square * np.maximum(M, 0.0), np.inf))
        below = _peak(-first[1], -last[1], np.nextafter(square * np.maximum(-m, 0.0), np.inf))
        bounds = np.maximum(above, below)
        rough = np.flatnonzero(~np.isfinite(bounds))  # NaN too
        if len(rough):
            value = g.over(first[0, rough], last[0, rough])
            top = uppers(value) - np.minimum(first[3, rough], last[3, rough])
            bottom = np.maximum(first[4, rough], last[4, rough]) - lowers(value)
            bounds[rough] = np.nextafter(np.maximum(np.maximum(top, bottom), 0.0), np.inf)
    return np.where(np.isnan(bounds), np.inf, bounds)


def _peak(a: Array, b: Array, bend: Array) -> Array:
    """An upper bound of max over t in [0, 1] of (1 − t) a + t b + t (1 − t) bend/2; it grows with a, b and bend."""
    inner = np.abs(b - a) <= bend / 2
    part = (b - a) / np.where(bend > 0, bend, 1.0)  # at most 1/2 where it counts
    top = (a + b) / 2 + bend / 8 + np.where(inner & (bend > 0), (b - a) * part / 2, 0.0)
    peak = np.where(inner, top, np.maximum(a, b))
    return np.asarray(peak + 1e-14 * (np.abs(a) + np.abs(b) + bend) + 1e-300)


class _ClosedSeries(SeriesAlgebra):
    """Series on a closed piece: abs, relu, max and min may reach 0 at an end of it.

    Where an argument is at least 0 on the whole ball, |w| = w there: g is, on the piece, a smooth function whose
    derivatives are enclosed, and that is all that the bound asks for. A sign that reaches 0 stays a Kink: it jumps.
    """

    def positive(self, name: str, c: arb) -> bool:
        if name != "sign" and (c >= 0 or c <= 0):
            return bool(c >= 0)
        return super().positive(name, c)


@dataclass(frozen=True)
class _Expression:
    """An expression in u, as a curve."""

    graph: Graph
    most_pieces: int = _PIECES
    resolution: float = 0.0

    def at(self, y: Array) -> Array:
        return self._in_balls(point_balls(y))

    def over(self, left: Array, right: Array) -> Array:
        return self._in_balls(balls(left, right))

    def _in_balls(self, u: Array) -> Array:
        value = np.asarray(run(self.graph, BallAlgebra(clip_sqrt=True), {"u": u})[0], dtype=object)
        return np.broadcast_to(value, np.shape(u))

    def curvatures(self, left: Array, right: Array) -> tuple[Array, Array]:
        """By power series over the ball of each piece."""
        least, most = np.full(len(left), -np.inf), np.full(len(left), np.inf)
        with series_length(3):
            algebra = _ClosedSeries(3)
            for i, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
                try:
                    half = algebra.coefficients(run(self.graph, algebra, {"u": algebra.variable(ball(a, b))})[0])[2]
                except Kink:
                    continue
                least[i], most[i] = -upper(-2 * half), upper(2 * half)
        return least, most


def block_fits(slopes: Array, biases: Array, values: Array, q: float, dtype: str) -> bool:
    """Can no unit and no sum overflow for queries of at most this size?"""
    with np.errstate(over="ignore"):
        seen = np.abs(slopes) * q + np.abs(biases)
        total = q + float(np.max(seen)) + float(np.sum(np.abs(values) * seen)) + float(np.max(np.abs(values)))
        return bool(total < LARGEST[dtype])


def block_rounding(line: BrokenLine, left: float, right: float, dtype: str) -> tuple[float, float]:
    """(bound of |computed − block|, bound of |block|) for q = w u + c with u in [left, right].

    Rounding of a block of ReLU units of one variable, computed in its dtype in any order.

    | symbol | meaning |
    | --- | --- |
    | u, η, γ_n | unit roundoff of the dtype, its least positive number, n u/(1 − n u) |
    | q, p_j, r_j | the query as computed; k_j q + b_j; relu(p_j), in real arithmetic |
    | A(q) | Σ_j |v_j| r_j(q) |

    A unit is one product and one addition (or both with one rounding), so what it holds is off by at most

        u r_j + (1 + u) π_j + 3η,       π_j = u |k_j| max|q|, or 0 if |k_j| is a power of two: such products are exact,

    also where p_j ≤ 0: then relu returns 0, or something below (1 + u) π_j + 3η. The sum of n products v_j r_j costs
    γ_{n+1} of the sum of their sizes, and η each where they underflow; zeros of other blocks add nothing. Hence

        |computed − block(q)| ≤ (u + γ_{n+1}(1 + u)) A(q) + (1 + γ_{n+1}) Σ_j |v_j| ((1 + u) π_j + 3η) + 2(n + 1) η.

    A is a sum of convex functions of q, so it is largest at an end of the interval of q; and |block(q)| ≤ A(q). Units
    that break outward from a middle keep it as small as the bends of the function are, for those on the far side are
    silent. The error of q itself is no matter of this bound: *composition* counts it as an error of the argument.
    """
    u, tiny, n = ROUNDOFF[dtype], TINY[dtype], len(line.slopes)
    k, v = np.abs(line.slopes), np.abs(line.values)
    q = (abs(line.w) * max(abs(left), abs(right)) + abs(line.c)) * _SAFE
    blur = 16 * 2.0**-53 * (k * q + np.abs(line.biases))  # float64 error of p as computed here
    size = 0.0
    for end in (left, right):
        p = line.slopes * (line.w * end + line.c) + line.biases + blur
        size = max(size, float(np.sum(v * np.maximum(p, 0.0))) * _SAFE)
    exact = (np.frexp(k)[0] == 0.5) | (k == 0)
    lost = (1 + u) * u * np.where(exact, 0.0, k * q) + 3 * tiny
    g = gamma(n + 1, u)
    rounding = (u + g * (1 + u)) * size + (1 + g) * float(np.sum(v * lost)) + 2 * (n + 1) * tiny
    return rounding * _SAFE, size + (n + 1) * tiny
