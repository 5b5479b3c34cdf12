"""Many prompts of a class at once, and their exact predictions: what training draws from.

The distribution is that of `in_context_exact.example_prompts` (eigenvalues over the whole spectrum, y up to its range),
with one query a prompt. Solutions are those of `in_context_exact`, computed side by side: closed form, cyclic
coordinate descent on the Gram matrices, Newton's method with halved steps.
"""

from __future__ import annotations

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.target import Array

_TRIES = 50
_SWEEPS = 2000


def draw_prompts(task: InContextTask, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """(count, examples, dim), (count, examples), (count, dim): X, y and one query each.

    InvalidRequest where normal examples with these eigenvalues hardly ever fit the declared ranges.
    """
    found: list[tuple[Array, Array, Array]] = []
    missing = count
    for _ in range(_TRIES):
        X, y, q = _drawn(task, rng, max(8, missing + missing // 4))
        good = task.inside(X) & (np.abs(X).max(axis=(1, 2)) <= task.x_range)
        found.append((X[good][:missing], y[good][:missing], q[good][:missing]))
        missing -= len(found[-1][0])
        if missing <= 0:
            parts = zip(*found, strict=True)
            examples, values, queries = (np.concatenate(part) for part in parts)
            return examples, values, queries
    raise InvalidRequest(
        f"normal examples with eigenvalues up to {task.spectrum[1]:g} do not fit x_range={task.x_range:.4g}; "
        "declare a larger x_range"
    )


def _drawn(task: InContextTask, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    n, d = task.examples, task.dim
    left, values, right = np.linalg.svd(rng.normal(size=(count, n, d)), full_matrices=False)
    low, high = (end - task.shift for end in task.spectrum)
    low = max(low, 0.0) if n < d else low
    squares = values**2
    spread = squares[:, :1] - squares[:, -1:]
    place = np.where(spread > 0, (squares - squares[:, -1:]) / np.where(spread > 0, spread, 1.0), 1.0)
    X = (left * np.sqrt(np.maximum(low + place * (high - low), 0.0))[:, None, :]) @ right
    signal = np.einsum("bnd,bd->bn", X, rng.normal(size=(count, d)))
    signal /= np.maximum(np.abs(signal).std(axis=1, keepdims=True), 1e-300)
    if task.task == "logistic":
        y = np.where(rng.random((count, n)) < 1 / (1 + np.exp(-1.5 * signal)), 1.0, -1.0)
    else:
        y = signal + 0.3 * rng.normal(size=(count, n))
        y *= task.y_range / np.abs(y).max(axis=1, keepdims=True) * (1 - 1e-12)
    reach = task.query_range
    return X, y, np.clip(reach / 2.5 * rng.normal(size=(count, d)), -reach, reach)


def exact_for_all(task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    """(count,) exact predictions: those of `exact_predictions`, prompt by prompt."""
    gram = np.swapaxes(X, 1, 2) @ X
    moments = np.einsum("bnd,bn->bd", X, y)
    if task.task in ("linear", "ridge"):
        w = np.linalg.solve(gram + task.shift * np.eye(task.dim), moments[:, :, None])[:, :, 0]
    elif task.task == "lasso":
        w = _lasso(gram, moments, X.shape[1] * task.strength)
    else:
        w = _logistic(X, y, task.strength)
    z = np.sum(queries * w, axis=1)
    return np.asarray(1 / (1 + np.exp(-z)) if task.task == "logistic" else z)


def _lasso(gram: Array, moments: Array, penalty: float) -> Array:
    """argmin ½ wᵀ G w − mᵀ w + penalty |w|₁, to about 1e-12 of the size of w."""
    w = np.zeros_like(moments)
    for _ in range(_SWEEPS):
        before = w.copy()
        for j in range(moments.shape[1]):
            square = np.maximum(gram[:, j, j], 1e-300)
            rho = moments[:, j] - np.einsum("bd,bd->b", gram[:, j], w) + gram[:, j, j] * w[:, j]
            w[:, j] = np.sign(rho) * np.maximum(np.abs(rho) - penalty, 0.0) / square
        if np.abs(w - before).max() <= 1e-13 * max(1.0, float(np.abs(w).max())):
            break
    return w


def _logistic(X: Array, y: Array, C: float) -> Array:
    w = np.zeros((len(X), X.shape[2]))

    def value(w: Array) -> Array:
        margins = y * np.einsum("bnd,bd->bn", X, w)
        return np.asarray(C * np.logaddexp(0, -margins).sum(axis=1) + np.sum(w * w, axis=1) / 2)

    now = value(w)
    for _ in range(100):
        p = 1 / (1 + np.exp(np.clip(y * np.einsum("bnd,bd->bn", X, w), -700, 700)))
        gradient = w - C * np.einsum("bnd,bn->bd", X, y * p)
        hessian = np.eye(X.shape[2]) + C * np.einsum("bnd,bn,bne->bde", X, p * (1 - p), X)
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        size = np.ones(len(X))
        for _ in range(20):
            worse = value(w - size[:, None] * step) > now
            if not worse.any():
                break
            size = np.where(worse, size / 2, size)
        w = w - size[:, None] * step
        now = value(w)
        if np.abs(step).max() < 1e-14 * max(1.0, float(np.abs(w).max())):
            break
    return w
