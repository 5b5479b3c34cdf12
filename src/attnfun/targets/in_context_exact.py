"""The solutions that in-context networks are measured against: closed form, coordinate descent, Newton's method."""

from __future__ import annotations

import math

import numpy as np

from attnfun.targets.in_context import EDGE, Array, InContextTask


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
    """(queries,) how far `exact_predictions` may itself be off.

    Linear and ridge, a bound: A(w* − w) = Xᵀ(y − Xw) − αw =: ρ, so |q·(w* − w)| ≤ |q| |ρ|/low, low the least eigenvalue
    of the class with twice EDGE to spare; ρ is computed with n + d + 4 roundings a term, q·w with d. Infinity where low
    is not above 0. Lasso and logistic, an estimate: 1e-9 of the sizes.
    """
    w = exact_coefficients(task, X, y)
    if task.task not in ("linear", "ridge"):
        size = np.maximum(1.0, np.abs(queries) @ np.abs(w)) if task.task == "lasso" else np.ones(len(queries))
        return np.asarray(1e-9 * np.maximum(size, task.y_range))
    (n, d), u, alpha = X.shape, 2.0**-53, task.shift
    low = task.spectrum[0] - 2 * EDGE * task.spectrum[1]
    if not low > 0:
        return np.full(len(queries), math.inf)
    wide, size = np.abs(X), np.abs(w)
    lost = 1.01 * (n + d + 4) * u * (wide.T @ (np.abs(y) + wide @ size) + alpha * size)
    lost = lost + (n + 2 + d * wide.sum(axis=0)) * 2.0**-1073  # by underflow
    left = np.abs(X.T @ (y - X @ w) - alpha * w) + lost
    lengths = np.linalg.norm(queries, axis=1)
    off = lengths * np.linalg.norm(left) / low + 1.01 * (d + 1) * u * (np.abs(queries) @ size)
    off = np.asarray(off * (1 + 1e-9) + (d + 1) * 2.0**-1073)
    return np.where(np.isfinite(off), off, math.inf)


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


def example_prompts(
    task: InContextTask, count: int, queries: int = 16, seed: int = 0
) -> list[tuple[Array, Array, Array]]:
    """`count` prompts (X, y, queries) of the class, the same in every run: eigenvalues over the whole spectrum, y up to
    its range. Fewer, or none, where normal examples do not fit the declared ranges.
    """
    found: list[tuple[Array, Array, Array]] = []
    for attempt in range(20 * count):
        if len(found) == count:
            break
        rng = np.random.default_rng([seed, attempt])
        prompt = _example(task, rng, queries)
        if prompt is not None:
            found.append(prompt)
    return found


def _example(task: InContextTask, rng: np.random.Generator, queries: int) -> tuple[Array, Array, Array] | None:
    n, d = task.examples, task.dim
    left, values, right = np.linalg.svd(rng.normal(size=(n, d)), full_matrices=False)
    low, high = (end - task.shift for end in task.spectrum)
    if n < d:
        low = max(low, 0.0)
    spread = values[0] ** 2 - values[-1] ** 2
    place = (values**2 - values[-1] ** 2) / spread if spread > 0 else np.ones(len(values))
    X = left * np.sqrt(np.maximum(low + place * (high - low), 0.0)) @ right
    if not (np.abs(X).max() <= task.x_range and task.covers(X)):
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
