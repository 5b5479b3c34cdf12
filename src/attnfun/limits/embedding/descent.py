"""Free optimisation: all coordinates of queries and documents, by Adam on a softened margin.

Construction. Unit vectors. With s_ij = q_i·D_j and a temperature T the margin of row i is softened to
−T·log Σ_{relevant} e^{−s/T} − T·log Σ_{irrelevant} e^{s/T}. `free` lowers the mean of softplus(1 − margin_i/T) from a
random start, T falling *quadratically* from 0.3 to 0.004, which is what decides between success and failure. `refine`
raises the softened minimum over all rows from a start that is already right. Both return the best vectors met, by the
true margin, so a refinement never loses its start.

Bound. None: margins are measured here and proved later, on integers.

Failure mode. Local optima: that nothing is found at a dimension proves nothing about it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnfun.limits.embedding.relevance import Core

Array = NDArray[np.float64]
MOST_ENTRIES = 400_000
"""Queries × documents of the core up to which a descent is tried: a step looks at all of them."""


def free(core: Core, dim: int, steps: int, seed: int) -> tuple[Array, Array, float]:
    """Queries, documents and their margin, best of the run; a margin ≤ 0 is a failure."""
    rng = np.random.default_rng(seed)
    Q, D = rng.standard_normal((core.m, dim)), rng.standard_normal((core.n, dim))
    return _adam(core, Q, D, steps, (0.3, 0.004), 0.05, stop=True)


def refine(core: Core, Q: Array, D: Array, steps: int, reached: float) -> tuple[Array, Array, float]:
    """From vectors of margin `reached`: a margin at least that of their unit vectors."""
    return _adam(core, Q, D, steps, (reached / 2, reached / 20), min(0.01, reached), stop=False)


def _adam(
    core: Core, Q: Array, D: Array, steps: int, temperatures: tuple[float, float], rate: float, stop: bool
) -> tuple[Array, Array, float]:
    """`stop`: the mean loss, until every row is right by two temperatures; otherwise the worst rows, to the end."""
    lengths = np.array([len(row) for row in core.rows])
    owner = np.repeat(np.arange(core.m), lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    inner = owner * core.n + np.concatenate(core.rows)  # flat places of the relevant scores, row by row
    Q, D = _unit(Q), _unit(D)
    best = (Q, D, -np.inf)
    moments = [np.zeros_like(Q), np.zeros_like(D), np.zeros_like(Q), np.zeros_like(D)]
    hot, cold = temperatures
    for step in range(1, steps + 1):
        T = cold + (hot - cold) * (1 - step / steps) ** 2
        S = Q @ D.T
        flat = S.reshape(-1)
        good = flat[inner]
        flat[inner] = -np.inf
        low, high = np.minimum.reduceat(good, starts), S.max(axis=1)
        least = float((low - high).min())
        if least > best[2]:
            best = (Q, D, least)
        if stop and least > 2 * T:
            break
        S -= high[:, None]
        S /= T
        np.exp(S, out=S)
        outside = S.sum(axis=1)
        weights = np.exp((low[owner] - good) / T)
        inside = np.add.reduceat(weights, starts)
        loss = (high - low) / T + np.log(inside * outside)  # −(softened margin)/T
        if stop:
            pull = 1.0 / (1.0 + np.exp(-np.clip(loss + 1.0, -60, 60)))
        else:
            pull = np.exp(loss - loss.max())
            pull *= core.m / pull.sum()
        S *= (pull / outside)[:, None]
        flat[inner] = -weights * (pull / inside)[owner]
        slopes = S @ D, S.T @ Q
        scale = rate * (1 - step / steps + 1e-3)
        moved = []
        for at, (X, slope) in enumerate(zip((Q, D), slopes)):
            slope = slope - (slope * X).sum(axis=1, keepdims=True) * X  # along the sphere
            first, second = moments[at], moments[at + 2]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope * slope - second)
            ahead = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            moved.append(_unit(X - scale * ahead))
        Q, D = moved
    return best


def _unit(X: Array) -> Array:
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
