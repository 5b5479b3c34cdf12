"""What is proved of one prompt: given X, y, a query q and the number p that a network computed, |p − p*| ≤ bound.

p* is the exact prediction of the exact problem on these data: the given doubles are taken as they are. Nothing of the
network is read but p, so the bound holds for any network (trained ones, float32) and for data outside every declared
class. p* is enclosed in balls, and the bound is the upper end of |p − p*|: the error itself, but for its last digits.

| task | how p* is enclosed |
| --- | --- |
| linear, ridge | (XᵀX + αI) w = Xᵀy solved in balls, which proves that the matrix is invertible; p* = q·w |
| lasso | a point ŵ and its duality gap, below |
| logistic | f − ½\\|w\\|² is convex, so \\|ŵ − w*\\| ≤ \\|∇f(ŵ)\\| for any ŵ; ŵ by Newton's method, ∇f in balls |

**Lasso.** Times n it is ½|y − Xw|² + a|w|₁, a = n alpha. Let ŵ be any point, ρ = y − Xŵ, and τ ≤ 1 so small that
|x_jᵀτρ| ≤ a for all columns: then τρ is feasible in the dual, and

    gap = ½|ρ|² + a|ŵ|₁ − τ⟨y, ρ⟩ + ½τ²|ρ|² ≥ objective(ŵ) − objective(w*) ≥ ½|X(ŵ − w*)|²,

the last because the objective less its quadratic part is convex and w* is its minimum. With r = √(2 gap) every column
with |x_jᵀρ| + |x_j| r < a has |x_jᵀ(y − Xw*)| < a, and so w*_j = 0 for every minimum w*. Let E be the others and those
where ŵ is not 0. If q_E = X_Eᵀc then q·(ŵ − w*) = cᵀX(ŵ − w*), at most |c| r; the shortest c has
|c|² = q_J·(X_JᵀX_J)⁻¹q_J, J a basis of the columns of E. This is strong convexity on the columns that are left: more
columns than examples do no harm as long as those in E are independent. ŵ solves the equations of a support that
coordinate descent found and that is put right here until the conditions hold; then r has half of the bits.

**When nothing is determined.** Dependent columns leave directions z with Xz = 0 in which w is free. A prediction is
still determined where q is in the span of the rows. Both are decided exactly, in rationals (`_Span`). Other queries get
infinity and `UNDETERMINED`.

Failure modes: a lasso whose columns in E are dependent although its minimum is unique, which takes an exact tie, is
called undetermined; where Newton's method did not converge the bound of a logistic regression is true and large.
"""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnfun.kinds.in_context.exact import exact_coefficients, lasso_by_descent
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.enclosures import abs_upper, precision

Array = NDArray[np.float64]

UNDETERMINED = "the data do not determine this prediction"
NOT_FINITE = "the network's prediction is not a finite number"
NOT_FOUND = "no bound was found for this prompt"
_BITS = (256, 512, 1024, 2048, 4096, 8192)  # the last is enough for the products of any doubles
_GOOD = 2.0**-80  # of the sizes that are summed: then p* is known well enough
_ROUNDS, _SWEEPS = 60, 200


def prompt_bounds(
    task: InContextTask, X: Array, y: Array, queries: Array, predictions: Array
) -> tuple[Array, tuple[str, ...]]:
    """(queries,) upper bounds of |prediction − exact prediction|, and why one is infinite ("" where it is not)."""
    bounds, reasons = [], []
    for p, (exact, why) in zip(predictions, _enclosed(task, X, y, queries), strict=True):
        with precision(_BITS[0]):
            bound = abs_upper(arb(float(p)) - exact) if math.isfinite(p) and exact is not None else math.inf
        bounds.append(bound)
        reasons.append("" if bound < math.inf else NOT_FINITE if not math.isfinite(p) else why or NOT_FOUND)
    return np.array(bounds, dtype=np.float64), tuple(reasons)


def _enclosed(task: InContextTask, X: Array, y: Array, queries: Array) -> list[tuple[Any, str]]:
    """Of every query: a ball that holds the exact prediction, or None and why."""
    with np.errstate(all="ignore"):
        start = _start(task, X, y)
    columns, known, span = list(range(X.shape[1])), np.ones(len(queries), dtype=bool), None
    found: list[tuple[Any, str]] = [(None, NOT_FOUND)] * len(queries)
    for bits in _BITS[:2] if task.task == "logistic" else _BITS:
        with precision(bits):
            if task.task == "logistic":
                balls, good = _logistic(X, y, task.strength, queries, start, bits)
            elif task.task == "lasso":
                balls, good, known = _lasso(X, y, task.strength, queries, start, bits)
            else:
                try:
                    balls, good = _linear(X[:, columns], y, task.shift, queries[:, columns])
                except ZeroDivisionError:  # not seen to be invertible: it is singular, or more bits are needed
                    if task.shift == 0 and span is None:
                        span = _Span(X)
                        columns, known = span.basis, np.array([span.holds(q) for q in queries])
                    continue
        found = [(ball, "") if ok else (None, UNDETERMINED) for ball, ok in zip(balls, known, strict=True)]
        if good:
            break
    return found


def _start(task: InContextTask, X: Array, y: Array) -> Array:
    """A point near the minimum, in doubles; zeros where that fails. Nothing is proved of it."""
    if task.task in ("linear", "ridge"):
        return np.zeros(X.shape[1])
    try:
        if task.task == "lasso":
            w = lasso_by_descent((X.T @ X)[None], (X.T @ y)[None], len(X) * task.strength, _SWEEPS)[0]
        else:
            w = exact_coefficients(task, X, y)
    except np.linalg.LinAlgError:
        w = np.zeros(X.shape[1])
    return np.where(np.isfinite(w), w, 0.0)


def _column(values: Sequence[Any]) -> Any:
    return arb_mat(len(values), 1, list(values))


def _part(M: Any, rows: Sequence[int], columns: Sequence[int]) -> Any:
    return arb_mat(len(rows), len(columns), [M[i, j] for i in rows for j in columns])


def _sharp(balls: Sequence[Any], sizes: Sequence[Any]) -> bool:
    return all(b.is_finite() and bool(b.rad() <= _GOOD * s) for b, s in zip(balls, sizes, strict=True))


def _linear(X: Array, y: Array, alpha: float, queries: Array) -> tuple[list[Any], bool]:
    """Predictions by (XᵀX + αI) w = Xᵀy, and whether their balls are small; ZeroDivisionError if it may be singular."""
    if not X.shape[1]:
        return [arb(0)] * len(queries), True
    M = arb_mat(X.tolist())
    A = M.transpose() * M
    for j in range(X.shape[1]):
        A[j, j] += arb(alpha)
    w = A.solve(M.transpose() * arb_mat(y[:, None].tolist())).entries()
    balls, sizes = _products(queries, w)
    return balls, _sharp(balls, sizes)


def _products(queries: Array, w: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """q·w, and the sizes that were summed."""
    balls, sizes = [], []
    for q in queries:
        terms = [arb(float(a)) * b for a, b in zip(q, w, strict=True) if a != 0]
        balls.append(sum(terms, arb(0)))
        sizes.append(sum((abs(t).mid() for t in terms), arb(0)))
    return balls, sizes


class _Span:
    """The row space of X, exactly: a basis of its columns, and which q lie in it.

    In rationals, as all doubles are. XᵀX has the row space of X. If R is its reduced echelon form with pivots J, then q
    lies in it if and only if q = Σ_k q_{J_k} R_k.
    """

    def __init__(self, X: Array) -> None:
        M = fmpq_mat([_rationals(row) for row in X])
        self._form, rank = (M.transpose() * M).rref()
        self.basis = [next(j for j in range(X.shape[1]) if self._form[k, j] != 0) for k in range(rank)]

    def holds(self, q: Array) -> bool:
        given = _rationals(q)
        made = (sum((given[b] * self._form[k, j] for k, b in enumerate(self.basis)), fmpq(0)) for j in range(len(q)))
        return list(made) == given


def _rationals(values: Array) -> list[Any]:
    return [fmpq(*float(value).as_integer_ratio()) for value in values]


def _lasso(
    X: Array, y: Array, alpha: float, queries: Array, start: Array, bits: int
) -> tuple[list[Any], bool, NDArray[np.bool_]]:
    """Predictions, whether their balls are small, and which of them are determined."""
    n, d = X.shape
    M, t, a = arb_mat(X.tolist()), arb_mat(y[:, None].tolist()), arb(n) * arb(alpha)
    gram, moments = M.transpose() * M, M.transpose() * t
    w = _support(X, gram, moments, a, start)
    rho = t - M * _column(w)
    slopes = [abs(v) for v in (M.transpose() * rho).entries()]
    steepest = reduce(arb.max, slopes, arb(0))
    tau = arb(1) if steepest <= a else arb(1).min(a / steepest)
    length, along = _dot(rho, rho), _dot(t, rho)
    gap = length / 2 + a * sum((abs(v) for v in w), arb(0)) - tau * along + tau * tau * length / 2
    r = (2 * gap).upper().max(arb(0)).sqrt()
    left = [j for j in range(d) if w[j] != 0 or not slopes[j] + gram[j, j].sqrt() * r < a]
    known = np.ones(len(queries), dtype=bool)
    basis = left
    if left:
        try:
            inverse = _part(gram, left, left).inv()
        except ZeroDivisionError:
            span = _Span(X[:, left])
            known, basis = np.array([span.holds(q[left]) for q in queries]), [left[j] for j in span.basis]
            inverse = _inverse(_part(gram, basis, basis))
    balls, sizes = _products(queries, w)
    if basis:
        for k, q in enumerate(queries):
            part = arb_mat(q[basis][:, None].tolist())
            reach = _dot(part, inverse * part)  # |c|²
            balls[k] += arb(0, 1) * (reach.upper().max(arb(0)).sqrt() * r)
    seen = [(balls[k], sizes[k] + 1) for k in np.flatnonzero(known)]
    return balls, _sharp(*zip(*seen, strict=True)) if seen else True, known


def _inverse(M: Any) -> Any:
    """In balls; entries that are not finite where more bits are needed."""
    try:
        return M.inv()
    except ZeroDivisionError:
        return M * arb("nan")


def _dot(left: Any, right: Any) -> Any:
    return (left.transpose() * right)[0, 0]


def _support(X: Array, gram: Any, moments: Any, a: Any, start: Array) -> list[Any]:
    """A point near the lasso's minimum, exact numbers: the equations of a support, put right until its signs agree and
    no other column is steeper than a. Nothing is proved of it.
    """
    d = len(start)
    signs = {j: (1 if start[j] > 0 else -1) for j in range(d) if start[j] != 0}
    w = [arb(0)] * d
    for _ in range(_ROUNDS):
        on = sorted(signs)
        values = {}
        if on:
            try:
                right = _column([moments[j, 0] - a * signs[j] for j in on])
                found = _part(gram, on, on).solve(right).entries()
            except ZeroDivisionError:
                basis = _Span(X[:, on]).basis
                if len(basis) == len(on):  # more bits are needed
                    break
                signs = {on[j]: signs[on[j]] for j in basis}
                continue
            values = dict(zip(on, (v.mid() for v in found), strict=True))
            wrong = [j for j in on if not values[j] * signs[j] > 0]
            if wrong:
                signs = {j: s for j, s in signs.items() if j not in wrong}
                continue
        w = [values.get(j, arb(0)) for j in range(d)]
        slopes = (moments - gram * _column(w)).entries()
        steep = {j: abs(slopes[j]).mid() for j in range(d) if j not in signs and abs(slopes[j]) > a}
        if not steep:
            break
        most = max(steep, key=lambda j: float(steep[j]))
        signs[most] = 1 if slopes[most] > 0 else -1
    return w


def _logistic(X: Array, y: Array, C: float, queries: Array, start: Array, bits: int) -> tuple[list[Any], bool]:
    """Probabilities of +1, from ŵ ± |∇f(ŵ)|; and whether their balls are small."""
    signed = X * y[:, None]
    M = arb_mat(signed.tolist())
    w = [arb(float(v)) for v in start]
    best, radius = w, _slope(M, w, C)[1]
    for _ in range(_ROUNDS):
        slope, size, p = _slope(M, w, C)
        if size < radius:
            best, radius = w, size
        if radius <= 2.0 ** (-bits // 2):
            break
        curvature = p * (1 - p)
        with np.errstate(all="ignore"):
            hessian = np.eye(len(w)) + C * (signed.T * curvature) @ signed
        if not np.isfinite(hessian).all():
            break
        # the slope is far below a double's unit: scaled up, solved, scaled back
        scale = size if size > 0 else arb(1)
        scaled = np.array([float((v / scale).mid()) for v in slope])
        try:
            step = np.linalg.solve(hessian, scaled)
        except np.linalg.LinAlgError:
            break
        w = [(v - scale * arb(float(s))).mid() for v, s in zip(w, step, strict=True)]
    balls = []
    for q, z in zip(queries, _products(queries, best)[0], strict=True):
        length = sum((arb(float(c)) ** 2 for c in q), arb(0)).sqrt().upper()
        low, high = z - length * radius, z + length * radius
        balls.append(_sigmoid(low.lower()).union(_sigmoid(high.upper())))
    return balls, all(bool(b.rad() <= _GOOD) for b in balls)


def _sigmoid(z: Any) -> Any:
    """1/(1 + e^−z) in the form that does not overflow."""
    if z >= 0:
        return 1 / (1 + (-z).exp())
    grown = z.exp()
    return grown / (1 + grown)


def _slope(M: Any, w: list[Any], C: float) -> tuple[list[Any], Any, Array]:
    """∇f(ŵ) = ŵ − C Σ x̃_i σ(−⟨x̃_i, ŵ⟩) in balls, an upper bound of its length, and σ(−⟨x̃_i, ŵ⟩) in doubles."""
    p = [_sigmoid(-m) for m in (M * _column(w)).entries()]
    pull = (M.transpose() * _column(p)).entries()
    slope = [v - arb(C) * g for v, g in zip(w, pull, strict=True)]
    length = sum((v * v for v in slope), arb(0)).upper().sqrt().upper()
    return slope, length, np.array([float(v.mid()) for v in p])
