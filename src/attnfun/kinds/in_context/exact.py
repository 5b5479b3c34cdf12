"""The solutions that in-context networks are measured against: closed form, coordinate descent, Newton's method."""

from __future__ import annotations

import math

import numpy as np

from attnfun.kinds.in_context.target import EDGE, InContextTask
from attnfun.language.target import Array

Prompt = tuple[Array, Array, Array]


def exact_coefficients(task: InContextTask, X: Array, y: Array) -> Array:
    """The minimiser w, to about the last digits of float64."""
    if task.task in ("linear", "ridge"):
        A, b = X.T @ X + task.shift * np.eye(task.dim), X.T @ y
        try:
            return np.asarray(np.linalg.solve(A, b), dtype=np.float64)
        except np.linalg.LinAlgError:  # singular to working precision: the shortest solution
            return np.asarray(np.linalg.lstsq(A, b, rcond=None)[0], dtype=np.float64)
    return _lasso(X, y, task.strength) if task.task == "lasso" else _logistic(X, y, task.strength)


def exact_predictions(task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    z = queries @ exact_coefficients(task, X, y)
    return np.asarray(1 / (1 + np.exp(-z)) if task.task == "logistic" else z)


def doubt(task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    """(queries,) how far `exact_predictions` may itself be off, a bound.

    The objective is strongly convex, so |w* − w| ≤ |ρ|/low for a subgradient ρ at w. Linear, ridge and lasso (penalty
    n alpha |w|₁): low is the least eigenvalue of the class with twice EDGE to spare (infinity where that is not above
    0), and ρ = Xᵀ(Xw − y) + αw, for the lasso the subgradient nearest to 0. Logistic: low = 1, ρ = w − C Σ x̃_i p_i, and
    a prediction is off by ¼|q||w* − w|. ρ is computed with at most n + d + 8 roundings a term, q·w with d.
    """
    w = exact_coefficients(task, X, y)
    (n, d), u = X.shape, 2.0**-53
    wide, size = np.abs(X), np.abs(w)
    low, flat = task.spectrum[0] - 2 * EDGE * task.spectrum[1], 1.0
    if not low > 0:
        return np.full(len(queries), math.inf)
    if task.task == "logistic":
        p = 1 / (1 + np.exp(np.clip(y * (X @ w), -700, 700)))
        left = np.abs(w - task.strength * X.T @ (y * p))
        terms = size + task.strength * wide.T @ (p + wide @ size)
        low, flat = 1.0, 0.25
    else:
        penalty = n * task.strength if task.task == "lasso" else 0.0
        left = np.abs(_subgradient(X.T @ (X @ w - y) + task.shift * w, w, penalty))
        terms = wide.T @ (np.abs(y) + wide @ size) + task.shift * size + penalty
    lost = 1.01 * (n + d + 8) * u * terms
    lost = lost + (n + 2 + d * wide.sum(axis=0)) * 2.0**-1073  # by underflow
    lengths = np.linalg.norm(queries, axis=1)
    off = lengths * np.linalg.norm(left + lost) / low + 1.01 * (d + 1) * u * (np.abs(queries) @ size)
    off = np.asarray(off * flat * (1 + 1e-9) + 8 * u * (flat < 1) + (d + 1) * 2.0**-1073)
    return np.where(np.isfinite(off), off, math.inf)


def _subgradient(slope: Array, w: Array, penalty: float) -> Array:
    """The subgradient of least size of a function with this slope plus penalty |w|₁."""
    at_zero = np.sign(slope) * np.maximum(np.abs(slope) - penalty, 0.0)
    return np.asarray(np.where(w != 0, slope + penalty * np.sign(w), at_zero))


def _lasso(X: Array, y: Array, alpha: float, sweeps: int = 100_000) -> Array:
    """Cyclic coordinate descent, then the closed form on the support it settles on."""
    n, d = X.shape
    w, square = np.zeros(d), np.maximum((X**2).sum(axis=0), 1e-300)
    residual = y.copy()
    for _ in range(sweeps):
        moved = 0.0
        for j in range(d):
            rho = X[:, j] @ residual + square[j] * w[j]
            new = np.sign(rho) * max(abs(rho) - n * alpha, 0.0) / square[j]
            residual -= X[:, j] * (new - w[j])
            moved, w[j] = max(moved, abs(new - w[j])), new
        if moved <= 1e-13 * max(1.0, float(np.abs(w).max())):
            break
    on = np.flatnonzero(w)
    if len(on):
        part = X[:, on]
        w[on] = np.linalg.solve(part.T @ part, part.T @ y - n * alpha * np.sign(w[on]))
    return w


def _logistic(X: Array, y: Array, C: float) -> Array:
    """Newton's method with halved steps; the objective is strictly convex."""

    def value(w: Array) -> float:
        return float(C * np.logaddexp(0, -y * (X @ w)).sum() + w @ w / 2)

    w = np.zeros(X.shape[1])
    for _ in range(200):
        p = 1 / (1 + np.exp(np.clip(y * (X @ w), -700, 700)))
        gradient = w - C * X.T @ (y * p)
        step = np.linalg.solve(np.eye(len(w)) + C * (X.T * (p * (1 - p))) @ X, gradient)
        size = 1.0
        while value(w - size * step) > value(w) and size > 1e-6:
            size /= 2
        w = w - size * step
        if float(np.abs(step).max()) < 1e-15 * max(1.0, float(np.abs(w).max())):
            break
    return w


def example_prompts(task: InContextTask, count: int, queries: int = 16, seed: int = 0) -> list[Prompt]:
    """`count` prompts (X, y, queries) of the class, the same in every run: eigenvalues over the whole spectrum, y up to
    its range. Fewer, or none, where normal examples do not fit the declared ranges.
    """
    found: list[Prompt] = []
    for attempt in range(20 * count):
        if len(found) == count:
            break
        rng = np.random.default_rng([seed, attempt])
        prompt = _example(task, rng, queries)
        if prompt is not None:
            found.append(prompt)
    return found


def _example(task: InContextTask, rng: np.random.Generator, queries: int) -> Prompt | None:
    n, d = task.examples, task.dim
    left, values, right = np.linalg.svd(rng.normal(size=(n, d)), full_matrices=False)
    low, high = (end - task.shift for end in task.spectrum)
    if n < d:
        low = max(low, 0.0)
    spread = values[0] ** 2 - values[-1] ** 2
    place = (values**2 - values[-1] ** 2) / spread if spread > 0 else np.ones(len(values))
    X = left * np.sqrt(np.maximum(low + place * (high - low), 0.0)) @ right
    if not _in_class(task, X):
        return None
    signal = X @ rng.normal(size=d)
    signal /= max(float(np.abs(signal).std()), 1e-300)
    if task.task == "logistic":
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-1.5 * signal)), 1.0, -1.0)
    else:
        y = signal + 0.3 * rng.normal(size=n)
        y *= task.y_range / float(np.abs(y).max()) * (1 - 1e-12)
    scale = task.query_range / 2.5
    return X, y, np.clip(scale * rng.normal(size=(queries, d)), -task.query_range, task.query_range)


def hard_prompts(task: InContextTask, count: int, seed: int = 0) -> list[Prompt]:
    """Up to `count` prompts at the edges of the class: extreme spectra, examples that nearly lie in a plane or stand
    alone, y along one direction of the examples (logistic: labels that a plane separates), the largest queries.
    """
    found: list[Prompt] = []
    for attempt in range(8 * count):
        if len(found) == count:
            break
        one = _hard(task, np.random.default_rng([seed, 1, attempt]), attempt)
        if one is not None:
            found.append(one)
    return found


def _hard(task: InContextTask, rng: np.random.Generator, kind: int) -> Prompt | None:
    n, d = task.examples, task.dim
    k = min(n, d)
    low, high = (max(end - task.shift, 0.0) for end in task.spectrum)
    values = rng.choice([low, high], size=k) if kind % 3 else np.full(k, high)
    values[0] = low if kind % 2 == 0 else high
    left = np.linalg.qr(rng.normal(size=(n, k)))[0] if kind % 4 < 3 else np.eye(n)[:, rng.permutation(n)[:k]]
    right = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :k] if kind % 5 < 3 else np.eye(d)[:, rng.permutation(d)[:k]]
    X = (left * np.sqrt(values)) @ right.T
    if not _in_class(task, X):
        return None
    along = left[:, 0] + 1e-9 * rng.normal(size=n)
    y = np.sign(along) if task.task == "logistic" or kind % 7 < 5 else along / np.abs(along).max()
    queries = np.sign(rng.normal(size=(8, d)))
    queries[0] = np.sign(right[:, 0] + 1e-12)
    return X, y * task.y_range, queries * task.query_range


def moved(task: InContextTask, one: Prompt, rng: np.random.Generator) -> Prompt | None:
    """A prompt near another one, or None where it leaves the class: a step of a search for the worst.

    Two rows or two columns of X are turned against each other, which keeps all eigenvalues; or one eigenvalue goes
    somewhere else in the spectrum; or some y change; and one query.
    """
    X, y, queries = (np.array(part) for part in one)
    n, d = X.shape
    what = rng.integers(4)
    if what < 2:
        axis = int(what) if min(n, d) > 1 else 0
        size = X.shape[axis]
        if size > 1:
            a, b = rng.choice(size, 2, replace=False)
            angle = rng.normal() * rng.choice([0.03, 0.3, 3.0])
            turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            lines = X if axis == 0 else X.T  # a view
            lines[[a, b]] = turn @ lines[[a, b]]
    elif what == 2:
        left, values, right = np.linalg.svd(X, full_matrices=False)
        low, high = (max(end - task.shift, 0.0) for end in task.spectrum)
        values[rng.integers(len(values))] = math.sqrt(rng.choice([low, high, rng.uniform(low, high)]))
        X = (left * values) @ right
    else:
        places = rng.integers(n, size=int(rng.integers(1, 4)))
        y[places] = -y[places] if task.task == "logistic" else task.y_range * rng.choice([-1.0, 1.0], size=len(places))
    row = int(rng.integers(len(queries)))
    reach = task.query_range
    queries[row] = np.clip(queries[row] * rng.choice([-1.0, 1.0, 1.0, 3.0], size=d), -reach, reach)
    return (X, y, queries) if _in_class(task, X) else None


def _in_class(task: InContextTask, X: Array) -> bool:
    return bool(np.abs(X).max() <= task.x_range and task.covers(X))
