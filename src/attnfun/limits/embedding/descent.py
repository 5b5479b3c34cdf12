"""Free optimisation: all coordinates of queries and documents, by Adam on a softened margin.

Construction. Unit vectors. With s_ij = q_i·D_j and a temperature T the margin of row i is softened to
−T·log Σ_{relevant} e^{−s/T} − T·log Σ_{irrelevant} e^{s/T}; `free` lowers the mean of softplus(1 − margin_i/T) from a random start, T
falling *quadratically* from 0.3 to 0.004, which is what decides between success and failure; `refine` raises the
softened minimum over all rows from a start that is already right. Both return the best vectors met, by the true
margin, so a refinement never loses its start.

Bound. None: margins are measured here and proved later, on integers.

Failure mode. Local optima: that nothing is found at a dimension proves nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnfun.limits.embedding.relevance import Core

Array = NDArray[np.float64]
MOST_ENTRIES = 400_000
"""Queries × documents of the core up to which a descent is tried: a step looks at all of them."""


def free(core: Core, dim: int, steps: int, seed: int, report: Callable[[float], None] | None = None) -> tuple[Array, Array, float]:
    """Queries, documents and their margin, best of the run; a margin ≤ 0 is a failure."""
    rng = np.random.default_rng(seed)
    Q, D = rng.standard_normal((core.m, dim)), rng.standard_normal((core.n, dim))
    return _adam(core, Q, D, steps, (0.3, 0.004), 0.05, False, report)


def refine(core: Core, Q: Array, D: Array, steps: int, rate: float = 0.01) -> tuple[Array, Array, float]:
    """A margin at least that of the start (of unit vectors)."""
    start = max(_least(core.dense, _unit(Q) @ _unit(D).T), 1e-6)
    return _adam(core, Q, D, steps, (start / 2, start / 20), rate, True, None)


def _adam(
    core: Core,
    Q: Array,
    D: Array,
    steps: int,
    temperatures: tuple[float, float],
    rate: float,
    worst: bool,
    report: Callable[[float], None] | None,
) -> tuple[Array, Array, float]:
    relevant = core.dense
    sign = np.where(relevant, -1.0, 1.0)
    Q, D = _unit(Q), _unit(D)
    best = (Q, D, _least(relevant, Q @ D.T))
    moments = [np.zeros_like(Q), np.zeros_like(D), np.zeros_like(Q), np.zeros_like(D)]
    hot, cold = temperatures
    for step in range(1, steps + 1):
        left = (1 - step / steps) ** 2
        T = cold + (hot - cold) * left
        S = Q @ D.T
        if step % 10 == 0:
            least = _least(relevant, S)
            if least > best[2]:
                best = (Q.copy(), D.copy(), least)
            if report is not None and step % 100 == 0:
                report(step / steps)
            if not worst and best[2] > 0 and least > 2 * T:
                break
        G = S * sign
        top = np.where(relevant, G, -np.inf).max(axis=1), np.where(relevant, -np.inf, G).max(axis=1)
        E = np.exp((G - np.where(relevant, top[0][:, None], top[1][:, None])) / T)
        inside = np.where(relevant, E, 0.0).sum(axis=1)
        outside = E.sum(axis=1) - inside
        loss = (top[0] + top[1]) / T + np.log(inside * outside)  # −(softened margin)/T
        if worst:
            pull = np.exp(loss - loss.max())
            pull /= pull.sum()
        else:
            pull = 1.0 / (1.0 + np.exp(-np.clip(loss + 1.0, -60, 60))) / core.m
        G = E * sign * np.where(relevant, (pull / inside)[:, None], (pull / outside)[:, None])
        slopes = G @ D, G.T @ Q
        scale = rate * (1 - step / steps + 1e-3)
        moved = []
        for at, (X, slope) in enumerate(zip((Q, D), slopes)):
            slope = slope - (slope * X).sum(axis=1, keepdims=True) * X  # along the sphere
            slope *= core.m
            first, second = moments[at], moments[at + 2]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope * slope - second)
            ahead = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            moved.append(_unit(X - scale * ahead))
        Q, D = moved
    return best


def _least(relevant: NDArray[np.bool_], S: Array) -> float:
    low = np.where(relevant, S, np.inf).min(axis=1)
    high = np.where(relevant, -np.inf, S).max(axis=1)
    return float((low - high).min())


def _unit(X: Array) -> Array:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
