"""bernstein: one head that is exactly a polynomial, for smooth targets of one to four variables.

| symbol | meaning |
| --- | --- |
| t_k | variable k mapped to [-1, 1] |
| m_k, τ_k | degree and slope step of axis k |
| s_k | sigmoid(τ_k t_k), running over [σ(−τ_k), σ(τ_k)] |

Statement. Keys on the lattice j ∈ Π{0..m_k} with logits Σ_k (τ_k j_k t_k + ln C(m_k, j_k)) have

    softmax_j = Π_k C(m_k, j_k) s_k^{j_k} (1 − s_k)^{m_k − j_k},

the Bernstein basis in s: the head is a polynomial of degree m_k in each s_k, and any such polynomial is a head.
Source: the binomial theorem, (1 + e^{τt})^m = Σ C(m, j) e^{τ j t}; Bernstein 1912 for the basis.
Construction. Chebyshev coefficients of f in the variables s; the smallest degrees whose discarded part is below ε on
the sampling grid;
values from the truncated series by solving, in high-precision balls, for the *stored* biases (which are ln C only to 53
bits).
τ from a short list with few bits, so that the slopes τ j are exact; the one with the fewest keys, then the smallest
values.
Size: Π(m_k + 1) keys, a power of ln(1/ε) for analytic f.  Bound: proved afterwards by *nodes* from the stored
weights.
Failure mode: kinks and near-singular targets need large degrees, and values grow like (1/τ)^m: refused by the estimate.
Example: sin(3x) + cos(2y) e^{xy} on [-1,1]² at 1e-6: 169 keys or fewer.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from flint import arb, arb_mat

from attnfun.certify.staircase import jumps
from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request, admitting
from attnfun.language.domain import Array, Box
from attnfun.language.enclosures import precision
from attnfun.network import Axis, Head, Network, rounded

_STEPS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
_SAMPLES = {1: (32, 1024), 2: (24, 256), 3: (16, 64), 4: (12, 24)}
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_DEGREE = 200

_MOST_OUTPUTS = 64


@dataclass(frozen=True)
class Shape:
    """Degrees and steps of every axis, the truncated Chebyshev coefficients in s, and the error they leave on the
    grid.
    """

    steps: tuple[float, ...]
    degrees: tuple[int, ...]
    coefficients: Array  # (m_1+1, …, m_d+1, outputs)
    error: float

    @property
    def keys(self) -> int:
        return math.prod(m + 1 for m in self.degrees)


Fit = tuple[Shape, Array, float, float]  # shape, values, largest value, estimated rounding in units of eps


class Bernstein(Construction):
    name = "bernstein"
    summary = "one head, exactly a polynomial in sigmoids: smooth targets of one to four variables"

    def plan(self, request: Request) -> Plan:
        d = request.function.box.dim
        graph = request.expression("bernstein: a black box has no derivatives to rely on; use method='partition'")
        feasible(not jumps(graph), "bernstein: the target jumps")
        why = f"bernstein: {d} variables; a tensor head is offered for at most 4"
        feasible(d in _SAMPLES, why, {"method": "partition"})
        many = len(request.function.outputs)
        feasible(many <= _MOST_OUTPUTS, f"bernstein: {many} outputs; at most {_MOST_OUTPUTS} are fitted together")
        rough = rough_keys(request)
        if rough > 3 * request.max_keys:
            raise Infeasible(f"bernstein: about {rough:.2g} keys would be needed, more than {request.max_keys:,}")
        shapes = [s for tau in _STEPS if (s := _shape(request, (tau,) * d, request.eps)) is not None]
        best: Fit | None = None
        for start in sorted(shapes, key=lambda s: (s.keys, s.error)):
            if best is not None and start.keys >= _preference(best)[0]:
                break  # values are solved for only where they could matter
            fit = _fit(request, start)
            if fit is not None and (best is None or _preference(fit) < _preference(best)):
                best = fit
        if best is not None and d > 1:
            best = _axis_by_axis(request, best)
        least = min((s.keys for s in shapes), default=0) if best is None else best[0].keys
        why = f"bernstein: {least:,} keys are needed, more than {request.max_keys:,}"
        feasible(least <= request.max_keys, why, None if best is None else admitting(least))
        if best is None:
            why = f"bernstein: no degree up to {_DEGREE} with values that {request.dtype} can hold reaches "
            raise Infeasible(why + f"eps={request.eps:.3g} (a kink, a narrow feature or a nearby singularity)")
        shape, values, size, _ = best
        story: dict[str, Any] = {"degrees": list(shape.degrees), "tau": list(shape.steps)}
        story |= {"largest value": size, "sampled error": shape.error}
        return Plan(self.name, shape.keys, 1, 1, d + 1, size, (shape, values), story)

    def build(self, request: Request, plan: Plan) -> Network:
        shape, values = plan.data
        box, axes = request.function.box, []
        for k in range(box.dim):
            low, high = box.low[k], box.high[k]  # the stored query map t = w x + c of variable k
            w = rounded(2 / (high - low), request.dtype)
            query = np.zeros((1, box.dim))
            query[0, k] = w
            offset = rounded([-w * (low + (high - low) / 2)], request.dtype)
            slopes = shape.steps[k] * np.arange(shape.degrees[k] + 1.0)
            axes.append(Axis(query, offset, slopes[:, None], _biases(shape.degrees[k], request.dtype)))
        names = ", ".join(f"degree {{{k}}} in {n}" for k, n in enumerate(box.names))
        writes = tuple(f"head {o}" for o in request.function.outputs)
        return request.network_of(Head("bernstein", tuple(axes), rounded(values, request.dtype), writes, names))


# ---------------------------------------------------------------- pieces


def _rounding_estimate(shape: Shape) -> float:
    """What the rounding bound will be about, in units of u·max|V|: logits, exp and summation; for sizing only."""
    logits = sum(5 * m * (tau + math.log(2)) for m, tau in zip(shape.degrees, shape.steps, strict=True))
    exponentials = 10 * (1 + shape.keys // 64)
    return 0.5 * (logits + exponentials + 2 * (shape.keys + sum(shape.degrees) + 25))


def _biases(m: int, dtype: str) -> Array:
    return rounded(np.array([math.log(math.comb(m, j)) for j in range(m + 1)]), dtype)


def _nodes(tau: float, n: int) -> tuple[Array, Array, float, float]:
    """Chebyshev nodes y of the range of s, the t behind them, and that range's middle and half width."""
    low, high = 1 / (1 + math.exp(tau)), 1 / (1 + math.exp(-tau))
    y = np.cos((np.arange(n) + 0.5) * np.pi / n)
    s = (low + high) / 2 + (high - low) / 2 * y
    return y, np.clip(np.log(s / (1 - s)) / tau, -1, 1), (low + high) / 2, (high - low) / 2


def _dct(values: Array, axis: int) -> Array:
    """Chebyshev coefficients along one axis of samples at first-kind nodes."""
    return np.moveaxis(np.tensordot(_to_coefficients(values.shape[axis]), values, axes=(1, axis)), 0, axis)


@lru_cache(maxsize=32)
def _to_coefficients(n: int) -> Array:
    matrix = np.cos(np.outer(np.arange(n), (np.arange(n) + 0.5) * np.pi / n)) * (2 / n)
    matrix[0] /= 2
    return matrix


def rough_keys(request: Request) -> float:
    """Product of the degrees (τ = 1) along a few lines parallel to the axes: a quick look before sampling tensors."""
    box = request.function.box
    n, total = 65, 1.0
    t = _nodes(1.0, n)[1]
    lines = box.sample(3, np.random.default_rng(0))
    for k in range(box.dim):
        degree = 0
        X = np.repeat(lines, n, axis=0)
        X[:, k] = np.tile(_column(box, k, t), len(lines))
        with np.errstate(all="ignore"):
            values = request.function.values(X)
        for f in values.reshape(len(lines), n, -1):
            if np.isfinite(f).all():
                small = _tail(_dct(f, 0), 0) <= request.eps
                degree = max(degree, int(np.argmax(small)))
        total *= degree + 1
    return total


def _column(box: Box, k: int, t: Array) -> Array:
    """The values of variable k at t in [−1, 1]."""
    return np.clip(box.low[k] + (box.high[k] - box.low[k]) * (t + 1) / 2, box.low[k], box.high[k])


def _samples(request: Request, steps: tuple[float, ...], n: int) -> Array:
    """f on the tensor grid of n nodes per axis, shape (n, …, n, outputs)."""
    box = request.function.box
    columns = [_column(box, k, _nodes(tau, n)[1]) for k, tau in enumerate(steps)]
    X = np.stack([g.ravel() for g in np.meshgrid(*columns, indexing="ij")], axis=1)
    with np.errstate(all="ignore"):
        return request.function.values(X).reshape((n,) * box.dim + (-1,))


def _shape(request: Request, steps: tuple[float, ...], eps: float) -> Shape | None:
    """The smallest degrees that leave at most eps on the grid; None if the samples do not resolve the target."""
    d = len(steps)
    n, most = _SAMPLES[d]
    while True:
        f = _samples(request, steps, n)
        if not np.isfinite(f).all():
            return None
        coefficients = f
        for axis in range(d):
            coefficients = _dct(coefficients, axis)
        tails = [_tail(coefficients, axis) for axis in range(d)]
        last = sum(float(t[3 * n // 4]) for t in tails)
        if last <= 0.02 * eps:
            break
        n *= 2
        if n > most:
            return None
    degrees = [int(np.argmax(t <= eps / d)) for t in tails]
    degrees, error = _shrink(coefficients, degrees, eps)
    if max(degrees) > _DEGREE:
        return None
    kept = coefficients[tuple(slice(0, m + 1) for m in degrees)]
    return Shape(steps, tuple(degrees), kept, error)


def _tail(coefficients: Array, axis: int) -> Array:
    """t[m] = Σ |coefficients| with index > m along the axis (largest output), so t[m] bounds what degree m discards."""
    others = tuple(a for a in range(coefficients.ndim - 1) if a != axis)
    sums = np.abs(coefficients).sum(axis=others)  # (n, outputs)
    from_here = np.cumsum(sums[::-1], axis=0)[::-1].max(axis=1)
    return np.append(from_here[1:], 0.0)


def _shrink(coefficients: Array, degrees: list[int], eps: float) -> tuple[list[int], float]:
    """Lower degrees one at a time while the discarded part stays below eps at twice the nodes an axis needs."""
    error = _discarded(coefficients, degrees)
    if len(degrees) == 1:  # the discarded part falls with the degree, nearly: bisection
        low, high = 0, degrees[0]
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if _discarded(coefficients, [middle]) <= eps else (middle + 1, high)
        return [high], _discarded(coefficients, [high])
    while True:
        order = np.argsort([1 / (m + 1) for m in degrees])[::-1]  # the shortest axis saves the largest share
        for axis in order:
            if degrees[axis] == 0:
                continue
            trial = list(degrees)
            trial[axis] -= 1
            value = _discarded(coefficients, trial)
            if value <= eps:
                degrees, error = trial, value
                break
        else:
            return degrees, error


@lru_cache(maxsize=32)
def _cosines(points: int, n: int) -> Array:
    """cos(k θ_i) at `points` angles from 0 to π, k < n."""
    return np.cos(np.outer(np.linspace(0, np.pi, points), np.arange(n)))


def _discarded(coefficients: Array, degrees: list[int]) -> float:
    """max over a grid (end points included) of the part of the series above `degrees`."""
    rest = coefficients.copy()
    rest[tuple(slice(0, m + 1) for m in degrees)] = 0
    for axis in range(len(degrees)):
        n = rest.shape[axis]
        matrix = _cosines(2 * n + 1 if len(degrees) < 3 else n + 1, n)
        rest = np.moveaxis(np.tensordot(matrix, rest, axes=(1, axis)), 0, axis)
    return float(np.abs(rest).max())


def _fit(request: Request, shape: Shape | None) -> Fit | None:
    """Values for a shape; where they round too much, a shape of the same steps with a smaller truncation error; or
    None.
    """
    for _ in range(3):
        if shape is None or shape.keys > request.max_keys:
            return None
        unit = _rounding_estimate(shape) * _ROUNDOFF[request.dtype] / request.eps
        if unit * _corners(shape) > 2:  # known before anything is solved
            return None
        values = _values(request, shape)
        size = float(np.abs(values).max())
        rounding = unit * size
        if shape.error / request.eps + rounding <= 1.02:
            return shape, values, size, rounding
        if rounding > 0.85:
            return None
        shape = _shape(request, shape.steps, (0.95 - rounding) * request.eps)
    return None


def _corners(shape: Shape) -> float:
    """The largest value of a corner key, which is the series where all sigmoids are 0 or 1: no value is smaller."""
    out = shape.coefficients
    for tau in shape.steps:
        _, _, mid, half = _nodes(tau, 1)
        ends = np.array([-mid, 1 - mid]) / half
        out = np.asarray(np.polynomial.chebyshev.chebval(ends, out), dtype=np.float64)
    return float(np.abs(out).max())


def _preference(fit: Fit) -> tuple[float, float]:
    """Fewest keys, then smallest values; values that round, or tower over the target, count as further keys."""
    shape, _, size, rounding = fit
    towering = size > 1e4 * max(float(np.abs(shape.coefficients).sum()), 1e-300)
    return shape.keys * (1 + 3 * rounding) * (1.25 if towering else 1.0), size


def _axis_by_axis(request: Request, best: Fit) -> Fit:
    """Other steps for single axes, while they are preferred."""
    for k, direction in product(range(len(best[0].steps)), (1, -1)):
        while True:
            steps = best[0].steps
            place = _STEPS.index(steps[k]) + direction
            if not 0 <= place < len(_STEPS):
                break
            trial = _fit(request, _shape(request, (*steps[:k], _STEPS[place], *steps[k + 1 :]), request.eps))
            if trial is None or _preference(trial) >= _preference(best):
                break
            best = trial
    return best


def _values(request: Request, shape: Shape) -> Array:
    """V with Σ_j softmax_j V_j = the truncated series at m_k + 1 nodes per axis, for the stored slopes, biases and
    query maps.
    """
    d = len(shape.steps)
    out = shape.coefficients
    tables = []
    with precision(256 + 8 * max(shape.degrees)):
        for k in range(d):
            m, tau = shape.degrees[k], shape.steps[k]
            _, t, mid, half = _nodes(tau, m + 1)
            s = 1 / (1 + np.exp(-tau * t))
            y = np.clip((s - mid) / half, -1, 1)
            out = np.moveaxis(np.tensordot(np.cos(np.outer(np.arccos(y), np.arange(m + 1))), out, axes=(1, k)), 0, k)
            biases = [arb(float(b)).exp() for b in _biases(m, request.dtype)]
            rows = []
            for value in t:
                u = (arb(tau) * arb(float(value))).exp()
                terms = [b * u**j for j, b in enumerate(biases)]
                total = sum(terms[1:], terms[0])
                rows.append([v / total for v in terms])
            tables.append(arb_mat(rows).inv())
        tensor = np.frompyfunc(arb, 1, 1)(out)
        for k in range(d):
            flat = np.moveaxis(tensor, k, 0)
            product_ = tables[k] * arb_mat([list(row) for row in flat.reshape(flat.shape[0], -1)])
            tensor = np.moveaxis(np.array(product_.entries(), dtype=object).reshape(flat.shape), 0, k)
        return np.array([float(v.mid()) for v in tensor.ravel()]).reshape(tensor.shape)
