"""Local refinement: a composition's errors with their signs, on sub-boxes of the inputs, worst first.

Method *composition* adds the largest errors of all steps. They need not peak at one point, nor with one sign. On a
sub-box B, in stream order and with intervals (r_i = heads − g_i the step's signed residual, e_i = φ̂_i − φ_i its error,
m, ω, ρ the mismatch of its query, its modulus and its rounding as proved on the whole box):

    U_i ∈ Σ_j β_j φ_j + Σ_k γ_k x_k + const,       e(U_i) ∈ Σ_j β_j e_j + [−m, m],       û_i ∈ U_i + e(U_i)
    φ_i ∈ g_i(U_i),       e_i ∈ r_i(û_i) + (g_i'(hull of U_i, û_i) e(U_i) ∩ [−ω, ω]) + [−|a| m − ρ, |a| m + ρ]

and the outputs are affine in φ's, errors likewise. Where g_i ends (a root at 0), û is clipped there, as in the
statement of `composition`: then e(U_i) is joined with 0 in the product. Near such an end, where g_i' is of no use,

    e_i ∈ heads(û_i) − g_i(U_i) + [−|a| m − ρ, |a| m + ρ]

is better, and both are intersected. r_i, g_i, g_i' and the heads are tabulated once on cells of u: r_i from Taylor
models (`moments.residual_models`) whose polynomials are enclosed on 32 parts each, g_i and g_i' by balls. A sub-box
costs only look-ups of maxima over runs of cells and outward rounded sums. Sub-boxes always cover the box; a search that
stops early returns a larger bound. Every step's interval is cut to the bound of the whole box, so the result is never
above the plain one.

Failure mode: many variables that matter at once; then the boxes stay large and nothing is gained.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from attnfun.certify.moments import net_range, residual_models
from attnfun.certify.reading import Form
from attnfun.certify.view import Array, View
from attnfun.certify.witness import Aim
from attnfun.errors import InvalidRequest
from attnfun.language import ArrayAlgebra, BallAlgebra, GradientAlgebra, Graph, precision, run
from attnfun.language.domain import Box, cut, exchanged
from attnfun.language.enclosures import abs_upper, ball, ball_ends, balls, lower, upper
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.outward import next_above, next_below

_MODELS = 160  # Taylor models a step, at most
_PARTS = 32  # parts of a model's interval
_ORDER = 12
_NARROW = 32  # times as wide, a side is halved before one that gains more
_ARITHMETIC = {"var", "const", "neg", "add", "sub", "mul", "div", "powi", "sqrt", "abs", "relu", "max", "min"}
_RESIDUAL, _SLOPE, _VALUE, _HEADS = range(4)
_SLOP = 1e-13  # above the rounding of shifting a polynomial of degree < 12: some 100 operations of 2^-53


@dataclass(frozen=True)
class Errors:
    """What the plain proof gives one step: ε, m, ω, rounding, the rest (|a| m + rounding), and the sum E."""

    own: float
    mismatch: float
    carried: float
    rounding: float
    rest: float
    total: float

    @classmethod
    def of(cls, own: float, slope: float, mismatch: float, carried: float, rounding: float) -> Errors:
        """E = ε + ω + |a| m + rounding, rounded up."""
        rest = (abs(slope) * mismatch + rounding) * (1 + 1e-12)
        return cls(own, mismatch, carried, rounding, rest, (own + carried + rest) * (1 + 1e-12))


@dataclass(frozen=True)
class LocalStep:
    """One coordinate: its argument, its heads as a function of u on [left, right] with own error `own`, its errors.

    `clipped`: g ends at an end of [left, right], where û may stray beyond by `reach` (below, above). `plain`,
    `computed`: in real arithmetic and as computed.
    """

    name: str
    argument: Form
    unary: Graph
    seen: View
    range: tuple[float, float]
    clipped: bool
    reach: tuple[float, float]
    own: float
    plain: Errors
    computed: Errors


@dataclass(frozen=True)
class LocalOutput:
    """One output: its affine form, and what read-out weights and rounding add (in real arithmetic, as computed)."""

    form: Form
    plain: float
    computed: float


# ---------------------------------------------------------------- intervals: pairs of arrays, rounded outward

Pair = tuple[Array, Array]


def _sum(a: Pair, b: Pair) -> Pair:
    return next_below(a[0] + b[0]), next_above(a[1] + b[1])


def _scaled(c: tuple[float, float], b: Pair) -> Pair:
    """The product of an interval of two numbers, often one, with b; see `_hull`."""
    return _hull(c[0] * b[0], c[0] * b[1]) if c[0] == c[1] else _times(c, b)


def _times(a: Pair | tuple[float, float], b: Pair) -> Pair:
    return _hull(a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])


def _hull(*ends: Array) -> Pair:
    """Around rounded products; 0 · ∞ is taken as undefined and becomes (−∞, ∞)."""
    low, high = next_below(reduce(np.minimum, ends)), next_above(reduce(np.maximum, ends))
    if np.isnan(low).any():
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return low, high


def _within(a: Pair, ends: Pair | tuple[float, float]) -> Pair:
    """a ∩ ends, both of which contain the value; NaN falls back to the ends."""
    low, high = ends
    return np.fmin(np.fmax(a[0], low), high), np.fmax(np.fmin(a[1], high), low)


# ---------------------------------------------------------------- tables over u


class Table:
    """Ranges of r, g', g and of the heads over any run of cells of u: maxima of 2^k neighbours for every k."""

    def __init__(self, unary: Graph, edges: Array, rows: Array) -> None:
        """rows: (8, cells) upper ends of −r, r, −g', g', −g, g, −heads, heads, and beyond the edges a guard each."""
        self.edges = edges
        self.unary = unary if all(node.op in _ARITHMETIC for node in unary.nodes) else None
        n = rows.shape[1]
        levels = np.full((8, n.bit_length(), n), np.inf)  # what is never read stays infinite
        levels[:, 0] = rows
        for k in range(1, n.bit_length()):
            half, count = 2 ** (k - 1), n - 2**k + 1
            levels[:, k, :count] = np.maximum(levels[:, k - 1, :count], levels[:, k - 1, half : half + count])
        self.levels = levels.reshape(8, -1)
        self.powers = np.frexp(np.arange(n + 1.0))[1] - 1  # the largest k with 2^k ≤ number

    def cells(self, u: Pair) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Two places in `levels` that together cover the cells that meet u."""
        low, high = u
        first = np.searchsorted(self.edges, low, side="left")
        last = np.searchsorted(self.edges, high, side="right")
        first = np.where(low >= self.edges[0], np.maximum(first, 1), first)  # the guard only for what is beyond
        last = np.where(high <= self.edges[-1], np.minimum(last, len(self.edges) - 1), last)
        last = np.maximum(last, first)
        k = self.powers[last - first + 1]
        row = k * (len(self.powers) - 1)
        return row + first, row + last + 1 - (1 << k)

    def __call__(self, kind: int, cells: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Pair:
        """The range of r, g', g or the heads (kind 0, 1, 2, 3) over `cells`."""
        below, above = (np.maximum(*(row.take(at) for at in cells)) for row in self.levels[2 * kind : 2 * kind + 2])
        return -below, above

    def value(self, u: Pair) -> Pair:
        """The range of g over u: that of the cells and, where no libm is needed, float intervals, exact at 0."""
        low, high = self(_VALUE, self.cells(u))
        if self.unary is not None:
            found = run(self.unary, IntervalAlgebra(clip_sqrt=True), {"u": Interval(*u)})[0]
            low, high = np.fmax(low, found.lo), np.fmin(high, found.hi)
        return low, high


def tabulate(step: LocalStep) -> Table:
    """The table of one step; NaN and what no form covers become the widest that was proved."""
    left, right = float(step.seen.low[0]), float(step.seen.high[0])
    edges, low, high = _residuals(step, left, right)
    boxes = balls(edges[:-1], edges[1:])
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True, sharp=True), 1)
    dual = run(step.unary, algebra, algebra.variables(["u"], {"u": boxes}))[0]
    partial = dual.partials[0] if dual.partials else None
    (below, above), slope = (ball_ends(v, len(low)) for v in (dual.value, arb(0) if partial is None else partial))
    heads = _sum((low, high), (below, above))
    for k in np.flatnonzero((high >= step.own) & (low <= -step.own)):  # no model: a kink or a root nearby
        heads[0][k], heads[1][k] = net_range(step.seen, float(edges[k]), float(edges[k + 1]))
    inner = np.stack([-low, high, -slope[0], slope[1], -below, above, -heads[0], heads[1]])
    inner = np.where(np.isnan(inner), np.inf, inner)
    guards = []
    for a, b in ((left - step.reach[0], left), (right, right + step.reach[1])):
        ends = (-math.inf, math.inf)
        if step.clipped and a < b:
            ends = net_range(step.seen, math.nextafter(a, -math.inf), math.nextafter(b, math.inf))
        nothing = [-math.inf] * 4  # of g: U and the hull stay inside
        guards.append(np.array([step.own, step.own, *nothing, -ends[0], ends[1]])[:, None])
    return Table(step.unary, edges, np.concatenate([guards[0], inner, guards[1]], axis=1))


def _residuals(step: LocalStep, left: float, right: float) -> tuple[Array, Array, Array]:
    """Edges of cells over [left, right] and the range of net − g on each, cut to ±own."""
    own = step.own
    cells: list[tuple[float, float, Array, Array]] = []
    waiting = deque((float(a), float(b)) for a, b in zip(*_even(left, right, 8), strict=True))
    models = 0
    while waiting:  # wide ones first, so that a singular end does not use up the budget
        a, b = waiting.popleft()
        middle = a + (b - a) / 2
        found = None
        if models < _MODELS:
            models += 1
            found = residual_models(step.seen, step.unary, ("u",), _ORDER, a, b)
        if found is not None and upper(found[0].rest) <= 0.03 * own:
            low, high = _parts(found[0].coefficients, found[0].radius, upper(found[0].rest), a, b)
            cells.append((a, b, np.maximum(low, -own), np.minimum(high, own)))
        elif models >= _MODELS or not (a < middle < b) or b - a < 2.0**-40 * (right - left):
            cells.append((a, b, np.full(_PARTS, -own), np.full(_PARTS, own)))
        else:
            waiting += [(a, middle), (middle, b)]
    cells.sort(key=lambda cell: cell[0])
    edges = [np.array([left])]
    lows, highs = [], []
    for a, b, low, high in cells:
        inner = _even(a, b, _PARTS)[1]
        keep = np.diff(inner, prepend=a) > 0  # an interval of a few ulps may have fewer parts
        keep[-1] = True
        last = np.flatnonzero(keep)  # of every group of parts that share an edge
        first = np.concatenate([[0], last[:-1] + 1])
        edges.append(inner[keep])
        lows.append(np.minimum.reduceat(low, first))
        highs.append(np.maximum.reduceat(high, first))
    return np.concatenate(edges), np.concatenate(lows), np.concatenate(highs)


def _even(a: float, b: float, n: int) -> Pair:
    edges = np.linspace(a, b, n + 1)
    edges[0], edges[-1] = a, b
    return edges[:-1], edges[1:]


@lru_cache(maxsize=8)
def _shifts(n: int) -> Pair:
    """C(i, j), 0 for j > i, and m^max(i − j, 0) for the centres m of the parts of [−1, 1]: (n, n) and (parts, n, n)."""
    centres = (np.arange(_PARTS) + 0.5) * 2 / _PARTS - 1
    binomials = np.array([[math.comb(i, j) for j in range(n)] for i in range(n)], dtype=np.float64)
    return binomials, centres[:, None, None] ** np.maximum(np.arange(n)[:, None] - np.arange(n), 0)


def _parts(coefficients: list[arb], radius: float, rest: float, a: float, b: float) -> Pair:
    """Ranges of Σ c_i s^i ± rest on the parts of [a, b]: the polynomial shifted to each part's centre, in doubles."""
    n = len(coefficients)
    power, scaled = arb(1), []
    for value in coefficients:
        scaled.append(value * power)
        power = power * arb(radius)
    middle = np.array([float(v) for v in scaled])
    slop = sum(upper(abs(v - arb(m))) for v, m in zip(scaled, middle.tolist(), strict=True))
    rho = 1 / _PARTS + 8 * 2.0**-52 * (abs(a) + abs(b)) / radius + 1e-12  # edges are rounded
    slop += _SLOP * float(np.abs(middle) @ (1 + rho) ** np.arange(n)) + rest
    shifted = np.einsum("i,ij,pij->pj", middle, *_shifts(n))
    swing = (np.abs(shifted[:, 1:]) @ rho ** np.arange(1, n) + slop) * (1 + 1e-12)
    return _hull(shifted[:, 0] - swing, shifted[:, 0] + swing)


# ---------------------------------------------------------------- boxes


def fewer_variables(steps: Sequence[LocalStep], box: Box) -> tuple[Sequence[LocalStep], Box]:
    """The same steps in terms of the distinct affine forms of the inputs that they read, if these are fewer.

    Inputs are exact, so errors depend on x only through the arguments: x2 − x1 alone, say. With t = Σ c_k x_k in
    doubles, another form Σ γ_k x_k is λ t + Σ (γ_k − λ c_k) x_k, the last sum enclosed as a constant. A form whose
    last sum is not tiny is a variable of its own.
    """
    low, high = box.low_array, box.high_array
    whole = {n: ball(float(a), float(b)) for n, a, b in zip(box.names, low, high, strict=True)}
    prefix = "t" + "_" * max(len(step.name) for step in steps)  # longer than any coordinate's name
    names = [f"{prefix}{k}" for k in range(len(steps))]
    found: list[dict[str, arb]] = []
    new = []
    for step in steps:
        weights = {n: w for n, w in step.argument.phis.items() if n not in whole}
        part = {n: w for n, w in step.argument.phis.items() if n in whole and not w.is_zero()}
        constant = step.argument.meant
        for number, one in enumerate(found):
            if part and set(one) == set(part):
                first = next(iter(one))
                scale = arb(float((part[first] / one[first]).mid()))
                left = sum(((part[n] - scale * one[n]) * whole[n] for n in one), arb(0))
                if abs_upper(left) <= 1e-13 * sum(abs_upper(part[n] * whole[n]) for n in one):
                    weights[names[number]], constant = scale, constant + left
                    break
        else:
            if part:
                found.append({n: arb(float(w)) for n, w in part.items()})
                left = sum(((w - found[-1][n]) * whole[n] for n, w in part.items()), arb(0))
                weights[names[len(found) - 1]], constant = arb(1), constant + left
        new.append(replace(step, argument=Form(weights, constant)))
    if not 0 < len(found) < box.dim:
        return steps, box
    ranges = [sum((c * whole[n] for n, c in one.items()), arb(0)) for one in found]
    try:
        return new, Box(tuple(names[: len(found)]), tuple(map(lower, ranges)), tuple(map(upper, ranges)))
    except InvalidRequest:  # too large for a box, or no width at all
        return steps, box


class Refinement:
    """Errors of all outputs on sub-boxes."""

    def __init__(self, steps: Sequence[LocalStep], outputs: Sequence[LocalOutput], box: Box) -> None:
        self.outputs, inputs = outputs, box.names
        with precision(128):
            self.tables: list[Table] = []
            known: dict[Any, Table] = {}
            for step in steps:  # squares of many variables often have one table
                key = step.unary, step.seen.bits, step.clipped and step.reach, step.own
                if key not in known:
                    known[key] = tabulate(step)
                self.tables.append(known[key])
            both = zip(steps, self.tables, strict=True)
            self.aims = [_aim(s, t) for s, t in both if {*s.argument.phis} <= {*inputs}]
            self.steps, self.box = fewer_variables(steps, box)
            written = {step.name for step in steps}
            arguments = [_coefficients(step.argument) for step in self.steps]
            self.forms = arguments, [_coefficients(out.form, written) for out in outputs]

    def search(self, goal: float, budget: int = 20_000) -> tuple[float, float, int]:
        """Halve the worst boxes, each across the side that helps most, until all are below `goal` or `budget` is
        spent: bounds of the largest error, in real arithmetic and as computed; boxes looked at.
        """
        low, high = self.box.low_array[None], self.box.high_array[None]
        plain, computed = self.errors(low, high)
        spent, d, width = 1, self.box.dim, (high - low)[0]
        while spent < budget:
            bad = np.flatnonzero(~(computed <= goal))
            if len(bad) == 0:
                break
            bad = bad[np.argsort(computed[bad])[-256:]]
            below, above = _halves(low[bad], high[bad])
            found = self.errors(below.reshape(-1, d), above.reshape(-1, d))
            spent += found.shape[1]
            values = found.reshape(2, len(bad), d, 2)
            side = _best_side(values[1], (high[bad] - low[bad]) / width)
            rows = np.arange(len(bad))
            new = *(ends[rows, side].reshape(-1, d) for ends in (below, above)), *values[:, rows, side].reshape(2, -1)
            low, high, plain, computed = exchanged(bad, (low, high, plain, computed), new)
        return float(plain.max()), float(computed.max()), spent

    @np.errstate(invalid="ignore", over="ignore")
    def errors(self, low: Array, high: Array) -> Array:
        """(2, n): in real arithmetic and as computed, bounds of the largest error of any output on every box (n, d)."""
        n = len(low)
        phi: dict[str, Pair] = {name: (low[:, k], high[:, k]) for k, name in enumerate(self.box.names)}
        errors: dict[str, Pair] = {name: (np.zeros((2, n)), np.zeros((2, n))) for name in self.box.names}
        for step, table, form in zip(self.steps, self.tables, self.forms[0], strict=True):
            u = _combined(form, phi, (n,))
            u = _within(u, step.range)
            phi[step.name] = table.value(u)
            shift = _combined((form[0], (0.0, 0.0)), errors, (2, n))
            errors[step.name] = self._step(step, table, u, shift, phi[step.name])
        worst = np.zeros((2, n))
        for out, form in zip(self.outputs, self.forms[1], strict=True):
            extra = np.array([[out.plain], [out.computed]])
            a, b = _sum(_combined((form[0], (0.0, 0.0)), errors, (2, n)), (-extra, extra))
            worst = np.maximum(worst, np.maximum(np.abs(a), np.abs(b)))
        return worst

    def _step(self, step: LocalStep, table: Table, u: Pair, shift: Pair, value: Pair) -> Pair:
        known = (step.plain, step.computed)
        mismatch, most, rest, total = (
            np.array([[getattr(one, name)] for one in known]) for name in ("mismatch", "carried", "rest", "total")
        )
        shift = _sum(shift, (-mismatch, mismatch))
        seen = table.cells(_sum(u, shift))
        reach = np.minimum(shift[0], 0.0), np.maximum(shift[1], 0.0)
        hull = _sum(u, reach)
        hull = _within(hull, (float(step.seen.low[0]), float(step.seen.high[0])))
        carried = _within(_times(table(_SLOPE, table.cells(hull)), reach if step.clipped else shift), (-most, most))
        error = _sum(table(_RESIDUAL, seen), carried)
        apart = _sum(table(_HEADS, seen), (-value[1], -value[0]))
        error = np.fmax(error[0], apart[0]), np.fmin(error[1], apart[1])
        return _within(_sum(error, (-rest, rest)), (-total, total))


def _coefficients(
    form: Form, only: set[str] | None = None
) -> tuple[dict[str, tuple[float, float]], tuple[float, float]]:
    weights = {n: (lower(value), upper(value)) for n, value in form.phis.items() if only is None or n in only}
    return weights, (lower(form.meant), upper(form.meant))


def _combined(
    form: tuple[dict[str, tuple[float, float]], tuple[float, float]], values: Mapping[str, Pair], shape: tuple[int, ...]
) -> Pair:
    weights, (a, b) = form
    total: Pair = np.full(shape, a), np.full(shape, b)
    for name, weight in weights.items():
        total = _sum(total, _scaled(weight, values[name]))
    return total


def _aim(step: LocalStep, table: Table) -> Aim:
    """Where an argument that is affine in the inputs meets the largest residuals of its step; for witnesses only."""
    u = np.unique(np.concatenate([table.edges, (table.edges[:-1] + table.edges[1:]) / 2]))
    with np.errstate(all="ignore"):
        size = np.abs(step.seen.floats(u) - run(step.unary, ArrayAlgebra(), {"u": u})[0])
    padded = np.concatenate([[0.0], np.where(np.isfinite(size), size, 0.0), [0.0]])
    peaks = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] > padded[2:]))
    values = u[peaks[np.argsort(padded[1:-1][peaks])[-24:]]]
    weights = {name: float(w) for name, w in step.argument.phis.items()}
    return Aim(weights, values - float(step.argument.meant.mid()))


def _best_side(found: Array, width: Array) -> NDArray[np.intp]:
    """The side whose halves (n, d, 2) have the smallest bounds; the widest where no side helps by a hundredth, or where
    that one is much narrower: a little gain at every halving may hide a large one that needs several.
    """
    one, two = found[..., 0], found[..., 1]
    score = np.maximum(one, two) + np.minimum(one, two)
    helps = score.min(axis=1) <= 0.99 * score.max(axis=1)
    best, widest, rows = np.argmin(score, axis=1), np.argmax(width, axis=1), np.arange(len(width))
    helps &= width[rows, widest] <= _NARROW * width[rows, best]
    return np.where(helps, best, widest)


def _halves(low: Array, high: Array) -> Pair:
    """(n, d, 2, d): for every box and side, its two halves."""
    n, d = low.shape
    sides = zip(*(cut(low, high, np.full(n, k)) for k in range(d)), strict=True)
    below, above = (np.stack([half.reshape(2, n, d) for half in ends]).transpose(2, 0, 1, 3) for ends in sides)
    return below, above
