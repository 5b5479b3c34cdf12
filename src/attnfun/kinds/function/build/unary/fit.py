"""fit_unary: a function of one variable as a sum of heads and an affine part, with few keys and small values.

In order: exact heads (tanh, sigmoid, affine), shipped keys for one known operation (`tables`), then the general search
(`layout`, `search`). The affine part is exact and free. Nothing here is a bound: `error` is what dense points showed.

**Squares.** u² by symmetric keys, *pinned* at 0: |head(u) − u²| ≤ a + ρ u², with a at the level of rounding.

On [−1, 1] keys k = ±τ_1, ±τ_2, … (and 0) with equal biases and values for ± make an even head, and its value at 0 is
subtracted from all values (softmax weights sum to 1), so the error is O(u²) with no constant or linear part. Values and
keys minimise the error divided by u² + 1e−3 (variable projection). What it is for: sqrt(a² + b²) at 0, where an
absolute error δ of the squares would cost √δ.

Three keys of weights (1, 10, 1) cancel the fourth order, so their error is ∝ τ⁴ at values ≈ 12/τ²; five keys reach 1e−6
with values of 40.

**Graded squares.** L(u) + L(−u), L a ladder for max(u, 0)², u → (keys k_j = e^{y_j}/reach, weights ∝ k_j^α e^{−k_j u},
values about (α−1)(α−2)/k_j²). The values of a square by a few keys are of size 10, so near 0 rounding is 1e−15 of them;
those of a ladder are as small as what it computes, and so is its rounding: |head − u²| ≤ a + σ |u| + ρ u² also as it is
computed, √a and σ of the size of ρ·reach. About ln(1/ρ)² / 10 keys a side, and some more.

Failure mode: values of at most 100 (float32: 25) times the range hold the relative error above about 1e−10 (1e−5).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.function.build.unary.features import exact, known, values
from attnfun.kinds.function.build.unary.keys import Array, Fit, Keys, head_of
from attnfun.kinds.function.build.unary.layout import Problem, expected_keys, problem
from attnfun.kinds.function.build.unary.project import Solution, least_squares, spans
from attnfun.kinds.function.build.unary.search import Candidate, search
from attnfun.kinds.function.build.unary.tables import entries, look_up, shipped_keys
from attnfun.language import Graph
from attnfun.network import Head, rounded

_FLOOR = {"float64": 0.0, "float32": 24 * 2.0**-24}  # of error and rounding, as a part of the range: about


class Missed(Infeasible):
    """The best that was found is not as good as was asked; `fit` holds it."""

    def __init__(self, message: str, nearest: Mapping[str, float], fit: Fit) -> None:
        super().__init__(message, nearest)
        self.fit = fit


@lru_cache(maxsize=1024)
def fit_unary(
    graph: Graph,
    low: float,
    high: float,
    eps: float,
    *,
    dtype: str = "float64",
    pinned: bool = False,
    graded: bool = False,
    quick: bool = False,
    settle: bool = False,
) -> Fit:
    """Heads for the first output of `graph`, a function of one variable, on [low, high], within eps on dense points.

    `pinned`, for a multiple of u² on an interval about 0: |head − u²| ≤ a + ρ u² with a far below eps (see above);
    `graded`, the same to a far below eps² as it is computed, by more keys.
    `quick` takes the first size that works instead of the smallest. Raises Missed with the fit that was reached if eps
    was missed, but with `settle` returns the fit of least cost (error and rounding); deterministic.
    """
    (low, high, eps), form = map(float, (low, high, eps)), known(graph)
    if form is not None:
        keys = exact(form)
        if keys is not None:
            heights = np.array([-1.0 if form.op == "tanh" else 0.0, 1.0])
            pieces = tuple(head_of(k, form.scale * heights, dtype) for k in keys)
            return _measured(graph, pieces, form.slope, form.offset, low, high, dtype)
    if pinned:
        if form is None or form.op != "powi" or form.power != 2 or form.c != 0 or form.slope != 0:
            raise Infeasible("tangent: only a multiple of u**2 can be pinned at 0")
        scale = form.scale * form.w * form.w
        if graded:
            ladder, heights = graded_square(max(abs(low), abs(high)), eps / abs(scale))
            sides = (head_of(replace(ladder, w=side), scale * heights, dtype) for side in (1.0, -1.0))
            return _measured(graph, tuple(sides), 0.0, form.offset, low, high, dtype)
        keys_, values_ = pinned_square(max(abs(low), abs(high)), eps / abs(scale), dtype)
        return _measured(graph, (head_of(keys_, scale * values_, dtype),), 0.0, form.offset, low, high, dtype)
    if form is not None:
        found = look_up(graph, form, low, high, eps, dtype)
        if found is not None:
            fit = read(*found)
            if fit.error <= eps:
                return fit
    p = problem(graph, low, high, eps, dtype)
    floor = _FLOOR[dtype] * p.span
    if settle and eps < floor:  # no head is that accurate: all such requests are one
        return fit_unary(graph, low, high, floor, dtype=dtype, pinned=pinned, quick=quick, settle=settle)
    best = search(p, quick)
    fit = read(p, best)
    for share in _SHARES:  # more points see a little more than those of the search
        if settle or not 1.0001 * eps < fit.error + best.rounding <= 1.1 * eps:
            break
        p = problem(graph, low, high, share * eps, dtype)
        best = search(p, quick)
        fit = read(p, best)
    total = fit.error + best.rounding
    if not settle and not total <= 1.0001 * eps:
        reached = f"{fit.error:.2g} (and {best.rounding:.1g} for rounding in {dtype}) was reached with {fit.keys} keys"
        raise Missed(f"tangent: {reached}, not {eps:.2g}", {"eps": float(f"{1.1 * total:.2g}")}, fit)
    return fit


def estimate_keys(graph: Graph, low: float, high: float, eps: float) -> float:
    """About how many keys `fit_unary` will use, without fitting, for choosing between plans; inf if it would refuse."""
    form = known(graph)
    if form is not None:
        if exact(form) is not None:
            return 0.0 if form.op == "affine" else 2.0
        held = shipped_keys(form, float(low), float(high), float(eps))
        if held is not None:
            return float(held)
    whole = form.power if form is not None and form.op == "powi" else 0
    try:
        expected = expected_keys(problem(graph, float(low), float(high), float(eps), "float64"))
        return max(expected, 2.0 * whole)  # powers of three and more were found to take two keys per degree
    except Infeasible:
        return math.inf


def read(p: Problem, c: Candidate) -> Fit:
    """A candidate as stored weights, and its error measured on them."""
    pieces = tuple(head_of(keys, c.x[span], p.dtype) for keys, span in spans(c.pieces))
    slope = c.x[-1] / ((p.high - p.low) / 2)
    check = p.sample(c.keys, 5)
    return _stored(pieces, slope, c.x[-2] - slope * p.middle, check.u, check.f, p.dtype)


def _measured(
    graph: Graph, pieces: tuple[Head, ...], slope: float, offset: float, low: float, high: float, dtype: str
) -> Fit:
    t = (1 - np.cos(np.linspace(0, np.pi, 2001))) / 2
    u = np.clip(np.concatenate([low + (high - low) * t, np.linspace(low, high, 2001)]), low, high)
    return _stored(pieces, slope, offset, u, values(graph, u), dtype)


def _stored(pieces: tuple[Head, ...], slope: float, offset: float, u: Array, f: Array, dtype: str) -> Fit:
    slope, offset = (float(rounded(np.array(v), dtype)) for v in (slope, offset))
    fit = Fit(pieces, slope, offset)
    return replace(fit, error=float(np.abs(fit(u) - f).max()))


_SLANT, _FLAT = 0.25, 0.125  # of ρ·reach: σ, and √a
_DECAY = 3.0  # α
_PAST, _THINNING = 1.0, 0.03  # e-folds of keys past the reach; how much their distance grows with every e-fold
_FINE = 48  # distances that are tried, each a little smaller


def graded_square(reach: float, eps: float) -> tuple[Keys, Array]:
    """Keys and values of a one-sided ladder for u² (u > 0; 0 for u < 0) within a + σ|u| + ρu², ρ = eps/reach²."""
    rho = eps / reach**2
    depth = math.log(1 / (_FLAT * rho))
    most = math.inf
    for step in 0.6 * 0.96 ** np.arange(_FINE):
        y = [-_PAST]
        while y[-1] < depth:
            y.append(y[-1] + step * (1 + _THINNING * max(y[-1], 0.0)))
        slopes, biases = -np.exp(y) / reach, _DECAY * np.array(y) + np.log(np.gradient(y))
        keys = Keys(1.0, 0.0, slopes, biases).stored("float64")
        if not _ripples(step) < rho:
            continue
        heights, error = _graded_values(keys, np.array(y), rho, reach)
        most = min(most, error)
        if error <= 1:
            return keys, heights
    raise Infeasible(f"tangent: a graded square reached {most:.2g} times the relative error {rho:.2g}")


def _ripples(step: float) -> float:
    """About the relative error of a ladder of equal steps, on the low side."""
    return math.exp(-(math.pi**2) / step) * (2 * math.pi / step) ** (_DECAY - 0.5) / 4


def _graded_values(keys: Keys, y: Array, rho: float, reach: float) -> tuple[Array, float]:
    """Values, and the largest error in units of a + σ|u| + ρu² on dense points, reweighted as in `search.finish`."""
    at = np.exp(-np.linspace(-0.0, y[-1] + 4, 24 * len(y)))
    u = np.concatenate([[0.0], at, 1 - np.geomspace(1e-4, 0.5, 40), -at[::6]])
    f, allowed = np.maximum(u, 0.0) ** 2, rho * (u**2 + _SLANT * np.abs(u) + _FLAT**2 * rho)
    weights = keys.weights(u * reach)
    usual = (_DECAY - 1) * (_DECAY - 2) * np.exp(-2 * y)
    columns, short = weights * (usual / allowed[:, None]), (f - weights @ usual) / allowed
    weight, best, error = np.full(len(u), 1 / math.sqrt(len(u))), usual, math.inf
    ridge = np.eye(len(y)) * 0.03
    for _ in range(8):
        system = np.concatenate([columns * weight[:, None], ridge])
        x = least_squares(system, np.concatenate([short * weight, np.zeros(len(y))])).x
        heights = usual * (1 + x)
        off = np.abs(f - weights @ heights) / allowed
        if off.max() < error:
            best, error = heights, float(off.max())
        weight = weight * np.sqrt(0.1 + 0.9 * off / off.max())
        weight /= math.sqrt(float(weight @ weight))
    return best * reach**2, error


_STEPS = 80
_SHARES = 0.97, 0.85  # of eps, tried one after the other where it was missed by little


def pinned_square(reach: float, eps: float, dtype: str) -> tuple[Keys, Array]:
    """Keys and values of the smallest pinned head for u² on [−reach, reach] with relative error ρ = eps/reach²."""
    goal = eps / reach**2
    t = (1 - np.cos(np.linspace(0, np.pi, 161)[1:])) / 2
    cap = 100.0 if dtype == "float64" else 25.0
    least = math.inf
    held = sorted((e for e in entries().get("pinned", ()) if e.eps <= 12 * goal), key=lambda e: (len(e.slopes), -e.eps))
    for entry in held:
        m = (len(entry.slopes) - 1) // 2
        theta = np.concatenate([np.log(entry.slopes[m + 1 :]), entry.biases[m + 1 :]])
        keys, heights = _settled(theta, m, t, goal / 30, reach, dtype)
        if _relative(keys, heights, reach) <= goal and np.abs(heights).max() <= cap * reach**2:
            return keys, heights
    for n in (3, 5, 7, 9, 11, 13):
        for tau in (0.2, 0.5, 0.8, 1.2, 1.6):
            keys, heights = _tuned(n, tau, t, goal, reach, dtype)
            error = _relative(keys, heights, reach)
            least = min(least, error)
            if error <= goal and np.abs(heights).max() <= cap * reach**2:
                return keys, heights
    raise Infeasible(f"tangent: a pinned square reached the relative error {least:.2g}, not {goal:.2g}")


def _even(theta: Array, odd_count: int, t: Array) -> tuple[Array, Array]:
    """(len(t), m+1) weights of the classes 0, ±k_1, …, ±k_m, and their slopes; θ = ln slopes, then biases."""
    m = odd_count
    k, b = np.exp(theta[:m]), theta[m:]
    logits = np.concatenate([np.zeros((len(t), 1)), np.outer(t, k) + np.log1p(np.exp(-2 * np.outer(t, k))) + b], axis=1)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), k


def _solve(theta: Array, m: int, t: Array, ridge: float) -> Solution:
    """Values of the classes ±k_i against that of 0."""
    p, _ = _even(theta, m, t)
    origin, _ = _even(theta, m, np.zeros(1))
    weight = 1 / ((t**2 + 1e-3) * np.sqrt(len(t)))
    phi = (p - origin)[:, 1:] * weight[:, None]
    system = np.concatenate([phi, ridge * np.eye(m)])
    right = np.concatenate([t**2 * weight, np.zeros(m)])
    return least_squares(system, right)


def _tuned(n: int, tau: float, t: Array, goal: float, reach: float, dtype: str) -> tuple[Keys, Array]:
    m = (n - 1) // 2
    j = np.arange(1, m + 1)
    theta = np.concatenate([np.log(tau * j), -0.5 * tau * j**2 * 0.9 - (np.log(10.0) if m == 1 else 0.0)])
    ridge, damping = goal / 30, 1e-2
    now = _solve(theta, m, t, ridge)
    for _ in range(_STEPS):
        jacobian = _jacobian(theta, now.x, m, t)
        jacobian -= now.basis @ (now.basis.T @ jacobian)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now.residual
        scale = np.diag(normal).copy() + 1e-300
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(scale), gradient)
            trial = theta + np.clip(step, -1, 1)
            new = _solve(trial, m, t, ridge)
            if new.cost < now.cost:
                break
            damping *= 6
        else:
            break
        stop = new.cost > (1 - 1e-5) * now.cost
        theta, now, damping = trial, new, max(damping / 6, 1e-12)
        if stop:
            break
    return _settled(theta, m, t, ridge, reach, dtype)


def _settled(theta: Array, m: int, t: Array, ridge: float, reach: float, dtype: str) -> tuple[Keys, Array]:
    """Keys as they are stored and the values that fit them, zero at 0."""
    k, b = rounded(np.exp(theta[:m]) / reach, dtype), rounded(theta[m:], dtype)
    stored = np.concatenate([np.log(k * reach), b])
    v = _solve(stored, m, t, ridge).x
    origin = _even(stored, m, np.zeros(1))[0][0, 1:] @ v  # the head's value at 0, taken off all values
    heights = rounded(reach**2 * np.concatenate([v[::-1] - origin, [-origin], v - origin]), dtype)
    return Keys(1.0, 0.0, np.concatenate([-k[::-1], [0.0], k]), np.concatenate([b[::-1], [0.0], b])), heights


def _jacobian(theta: Array, v: Array, m: int, t: Array) -> Array:
    """Derivatives of (Φ − Φ(0)) v by ln k and b, weighted; rows of the ridge are zero."""
    weight = 1 / ((t**2 + 1e-3) * np.sqrt(len(t)))

    def part(x: Array) -> tuple[Array, Array]:
        p, k = _even(theta, m, x)
        g = p[:, 1:] * (v - (p[:, 1:] @ v)[:, None])
        return g * np.tanh(np.outer(x, k)) * np.outer(x, k), g

    (dk, db), (_, at_zero) = part(t), part(np.zeros(1))
    return np.concatenate([np.concatenate([dk, db - at_zero], axis=1) * weight[:, None], np.zeros((m, 2 * m))])


def _relative(keys: Keys, heights: Array, reach: float) -> float:
    """max |head − u²|/(u² + 1e-3 reach²) on dense points."""
    u = reach * np.concatenate([np.linspace(0, 1, 801), np.geomspace(1e-6, 1, 200)])
    return float(np.max(np.abs(keys.weights(u) @ heights - u**2) / (u**2 + 1e-3 * reach**2)))
