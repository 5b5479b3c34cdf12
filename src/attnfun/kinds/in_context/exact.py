"""The solutions that in-context networks are measured against: closed form, coordinate descent, Newton's method.

Prompts of a class, one by one (`example_prompts`: eigenvalues over the whole spectrum, y up to its range;
`hard_prompts`), and many at once, with one query per prompt (`draw_prompts`: what training draws from). Solutions are
computed side by side: closed form, cyclic coordinate descent on the Gram matrices, Newton's method with halved steps.
"""

import math
from collections.abc import Callable
from itertools import islice

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.target import EDGE, InContextTask
from attnfun.language.target import Array

Prompt = tuple[Array, Array, Array]
_TRIES = 50


def exact_coefficients(task: InContextTask, X: Array, y: Array) -> Array:
    """The minimiser w, to about the last digits of float64."""
    return _solved(task, X[None], y[None], 1e-15, 100_000)[0]


def exact_for_all(task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    """(count,) exact predictions of prompts with one query each: those of `exact_predictions`, side by side."""
    return _predicted(task, np.sum(queries * _solved(task, X, y, 1e-14, 2000), axis=1))


def _solved(task: InContextTask, X: Array, y: Array, close: float, sweeps: int) -> Array:
    """(count, d) minimisers; `close` is where Newton's method ends, `sweeps` how often coordinates descend at most."""
    if task.task == "logistic":
        return _logistic(X, y, task.strength, close)
    A, b = np.swapaxes(X, 1, 2) @ X + task.shift * np.eye(task.dim), _times(X, y)
    if task.task == "lasso":
        penalty = X.shape[1] * task.strength
        found = lasso_by_descent(A, b, penalty, sweeps)
        return np.stack([_settled(*one, penalty) for one in zip(X, y, found, strict=True)])
    try:
        return np.asarray(np.linalg.solve(A, b[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:  # singular to working precision: the shortest solution
        return np.stack([np.linalg.lstsq(one, right, rcond=None)[0] for one, right in zip(A, b, strict=True)])


def _times(X: Array, v: Array) -> Array:
    """Xᵀv."""
    return np.asarray((np.swapaxes(X, 1, 2) @ v[:, :, None])[:, :, 0])


def exact_predictions(task: InContextTask, X: Array, y: Array, queries: Array) -> Array:
    return _predicted(task, queries @ exact_coefficients(task, X, y))


def _predicted(task: InContextTask, z: Array) -> Array:
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
    low, flat = (1.0, 0.25) if task.from_zero else (task.spectrum[0] - 2 * EDGE * task.spectrum[1], 1.0)
    if not low > 0:
        return np.full(len(queries), math.inf)
    if task.task == "logistic":
        p = 1 / (1 + np.exp(np.clip(y * (X @ w), -700, 700)))
        left = np.abs(w - task.strength * X.T @ (y * p))
        terms = size + task.strength * wide.T @ (p + wide @ size)
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


def lasso_by_descent(gram: Array, moments: Array, penalty: float, sweeps: int) -> Array:
    """argmin ½ wᵀ G w − mᵀ w + penalty |w|₁ of every G and m, to about 1e-12 of the size of w: cyclic descent."""
    w = np.zeros_like(moments)
    for _ in range(sweeps):
        before = w.copy()
        for j in range(moments.shape[1]):
            square = np.maximum(gram[:, j, j], 1e-300)
            rho = moments[:, j] - np.einsum("bd,bd->b", gram[:, j], w) + gram[:, j, j] * w[:, j]
            w[:, j] = np.sign(rho) * np.maximum(np.abs(rho) - penalty, 0.0) / square
        if np.abs(w - before).max() <= 1e-13 * max(1.0, float(np.abs(w).max())):
            break
    return w


def _settled(X: Array, y: Array, w: Array, penalty: float) -> Array:
    """The closed form on the support that descent has settled on."""
    on = np.flatnonzero(w)
    if len(on):
        part = X[:, on]
        w[on] = np.linalg.solve(part.T @ part, part.T @ y - penalty * np.sign(w[on]))
    return w


def _logistic(X: Array, y: Array, C: float, close: float) -> Array:
    """Newton's method with halved steps, prompt by prompt; the objective is strictly convex."""

    def margins(w: Array) -> Array:
        return np.asarray(y * (X @ w[:, :, None])[:, :, 0])

    def value(w: Array) -> Array:
        return np.asarray(C * np.logaddexp(0, -margins(w)).sum(axis=1) + (w[:, None] @ w[:, :, None])[:, 0, 0] / 2)

    w, eye = np.zeros((len(X), X.shape[2])), np.eye(X.shape[2])
    going = np.ones(len(X), dtype=bool)
    for _ in range(200):
        p = 1 / (1 + np.exp(np.clip(margins(w), -700, 700)))
        hessian = eye + C * (np.swapaxes(X, 1, 2) * (p * (1 - p))[:, None]) @ X
        step = np.linalg.solve(hessian, (w - _times(C * X, y * p))[:, :, None])[:, :, 0]
        size, now = going.astype(np.float64), value(w)
        while (worse := (value(w - size[:, None] * step) > now) & (size > 1e-6)).any():
            size = np.where(worse, size / 2, size)
        w = w - size[:, None] * step
        going &= np.abs(step).max(axis=1) >= close * np.maximum(1.0, np.abs(w).max(axis=1))
        if not going.any():
            break
    return w


def draw_prompts(task: InContextTask, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """(count, examples, dim), (count, examples), (count, dim): X, y and one query each.

    InvalidRequest where normal examples with these eigenvalues hardly ever fit the declared ranges.
    """
    found: list[tuple[Array, ...]] = []
    missing = count
    for _ in range(_TRIES):
        X, *rest = _drawn(task, rng, max(8, missing + missing // 4))
        good = task.inside(X) & (np.abs(X).max(axis=(1, 2)) <= task.x_range)
        found.append(tuple(part[good][:missing] for part in (X, *rest)))
        missing -= len(found[-1][0])
        if missing <= 0:
            examples, values, queries = (np.concatenate(part) for part in zip(*found, strict=True))
            return examples, values, queries
    raise InvalidRequest(
        f"normal examples with eigenvalues up to {task.spectrum[1]:g} do not fit x_range={task.x_range:.4g}; "
        "declare a larger x_range"
    )


def _drawn(task: InContextTask, rng: np.random.Generator, count: int, queries: int | None = None) -> Prompt:
    """`count` prompts with eigenvalues over the whole spectrum and y up to its range, some of them past the ranges of
    the class; one query each, or so many that all of them share.
    """
    n, d, reach = task.examples, task.dim, task.query_range
    left, values, right = np.linalg.svd(rng.normal(size=(count, n, d)), full_matrices=False)
    low, high = (end - task.shift for end in task.spectrum)
    low = max(low, 0.0) if n < d else low
    squares = values**2
    spread = squares[:, :1] - squares[:, -1:]
    place = np.where(spread > 0, (squares - squares[:, -1:]) / np.where(spread > 0, spread, 1.0), 1.0)
    X = (left * np.sqrt(np.maximum(low + place * (high - low), 0.0))[:, None, :]) @ right
    signal = (X @ rng.normal(size=(count, d))[:, :, None])[:, :, 0]
    signal /= np.maximum(np.abs(signal).std(axis=1, keepdims=True), 1e-300)
    if task.task == "logistic":
        y = np.where(rng.random((count, n)) < 1 / (1 + np.exp(-1.5 * signal)), 1.0, -1.0)
    else:
        y = signal + 0.3 * rng.normal(size=(count, n))
        y *= task.y_range / np.abs(y).max(axis=1, keepdims=True) * (1 - 1e-12)
    return X, y, np.clip(reach / 2.5 * rng.normal(size=(queries or count, d)), -reach, reach)


def example_prompts(task: InContextTask, count: int, queries: int = 16, seed: int = 0) -> list[Prompt]:
    """`count` prompts (X, y, queries) of the class, the same in every run: eigenvalues over the whole spectrum, y up to
    its range. Fewer, or none, where normal examples do not fit the declared ranges.
    """

    def example(attempt: int) -> Prompt:
        X, y, asked = _drawn(task, np.random.default_rng([seed, attempt]), 1, queries)
        return X[0], y[0], asked

    return _first(task, count, 20, example)


def _first(task: InContextTask, count: int, tries: int, make: Callable[[int], Prompt]) -> list[Prompt]:
    """The first `count` of the class among `tries` times as many that are made."""
    made = (make(attempt) for attempt in range(tries * count))
    return list(islice((one for one in made if _in_class(task, one[0])), count))


def hard_prompts(task: InContextTask, count: int, seed: int = 0) -> list[Prompt]:
    """Up to `count` prompts at the edges of the class: extreme spectra, examples that nearly lie in a plane or stand
    alone, y along one direction of the examples (logistic: labels that a plane separates), the largest queries.
    """
    return _first(task, count, 8, lambda attempt: _hard(task, np.random.default_rng([seed, 1, attempt]), attempt))


def _hard(task: InContextTask, rng: np.random.Generator, kind: int) -> Prompt:
    n, d = task.examples, task.dim
    k = min(n, d)
    low, high = (max(end - task.shift, 0.0) for end in task.spectrum)
    values = rng.choice([low, high], size=k) if kind % 3 else np.full(k, high)
    values[0] = low if kind % 2 == 0 else high
    left = np.linalg.qr(rng.normal(size=(n, k)))[0] if kind % 4 < 3 else np.eye(n)[:, rng.permutation(n)[:k]]
    right = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :k] if kind % 5 < 3 else np.eye(d)[:, rng.permutation(d)[:k]]
    X = (left * np.sqrt(values)) @ right.T
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
