"""Free optimisation: all coordinates of queries and documents, by Adam.

`free` looks for any embedding in d dimensions, from random starts. It works one dimension up, where lengths and
thresholds are no longer special. Statement: queries q_i and thresholds t_i with q_i·D_j > t_i for relevant j and
q_i·D_j < t_i for irrelevant j exist in R^d if and only if unit vectors u_i, v_j and w of R^(d+1) exist with u_i·v_j > 0
for relevant j, u_i·v_j < 0 for irrelevant j and w·v_j > 0 for all j. Argument: take v_j along (D_j, 1), u_i along
(q_i, −t_i) and w = (0, 1); conversely write v_j = (w·v_j) (D_j + w) and u_i = q_i − t_i w with D_j and q_i orthogonal
to w, then u_i·v_j = (w·v_j) (q_i·D_j − t_i). So documents of all lengths, the origin among them, are reached on the
unit sphere, and queries and documents play the same part. Lowered is the mean of softplus(1 − s_ij u_i·v_j / T) over
all signs s_ij = ±1, the temperature T falling with the fourth power of the steps left, from 0.3 to 0.1 down to 0.003.

`widen` raises the margin of separate.py: queries of length 1, documents in the unit ball. With s_ij = q_i·D_j the
margin of row i is softened to −T·log Σ_{relevant} e^{−s/T} − T·log Σ_{irrelevant} e^{s/T}. From a random start the mean
of softplus(1 − margin_i/T) is lowered, from a start that is already right the softened minimum over all rows is raised.
The best vectors met are returned, by the true margin, so that a start is never lost.

Bound. None: margins are measured here and proved later, on integers.

Failure mode. Local optima: that nothing is found at a dimension proves nothing about it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnfun.limits.embedding.relevance import Array, Core

MOST_ENTRIES = 400_000
"""Queries × documents of the core up to which a descent is tried: a step looks at all of them."""
_FINE = 1e-4
"""The temperature below which a margin is widened in float64: scores in float32 are off by 1e-7."""


def free(core: Core, dim: int, steps: int, starts: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Queries and documents of each start, the best first; stops early when one start is right by a third of T.

    It is descended in float32, in half the time: T is far above its roundoff.
    """
    signs = np.concatenate([np.where(core.dense, 1.0, -1.0), np.ones((1, core.n))]).astype(np.float32)
    rng = np.random.default_rng(seed)
    X = np.concatenate([_unit(rng.standard_normal((starts, count, dim + 1))) for count in signs.shape], axis=1)
    X = X.astype(np.float32)
    best, reached, adam = X.copy(), np.full(starts, -np.inf), _Adam(X)
    hot = np.geomspace(0.3, 0.1, starts).astype(np.float32)[:, None, None]  # the hottest end alike, the others differ
    for step in range(1, steps + 1):
        T = 0.003 + (hot - 0.003) * (1 - step / steps) ** 4
        U, V = X[:, : core.m + 1], X[:, core.m + 1 :]
        S = U @ V.transpose(0, 2, 1)
        S *= signs
        least = S.min(axis=(1, 2))
        better = least > reached
        best[better], reached[better] = X[better], least[better]
        if (3 * least > T[:, 0, 0]).any():
            break
        S /= T
        S -= 1.0
        np.exp(np.minimum(S, 60.0, out=S), out=S)
        S += 1.0
        np.divide(-signs, S, out=S)
        slope = np.concatenate([S @ V, S.transpose(0, 2, 1) @ U], axis=1)
        X = _unit(adam.moved(X, _along(slope, X), 0.05, step, steps))
    for start in np.argsort(-reached, kind="stable"):
        U, V = np.split(best[start].astype(np.float64), [core.m + 1])
        lengths = V @ U[-1]
        if lengths.min() > 0:
            across = np.linalg.svd(U[-1:])[2][1:].T
            yield U[:-1] @ across, _centred((V @ across) / lengths[:, None])


def widen(core: Core, dim: int, steps: int, seed: int) -> tuple[Array, Array, float]:
    """From a random start: queries, documents and their margin, best of the run; a margin ≤ 0 is a failure."""
    rng = np.random.default_rng(seed)
    Q, D = rng.standard_normal((core.m, dim)), rng.standard_normal((core.n, dim))
    return _widen(core, Q, _unit(D), steps, (0.3, 0.004), 0.05, stop=True)


def refine(core: Core, Q: Array, D: Array, steps: int, reached: float) -> tuple[Array, Array, float]:
    """From vectors of margin `reached`, documents in the unit ball: a margin at least that."""
    return _widen(core, Q, D, steps, (reached / 2, reached / 20), min(0.01, reached), stop=False)


def _widen(
    core: Core, Q: Array, D: Array, steps: int, temperatures: tuple[float, float], rate: float, stop: bool
) -> tuple[Array, Array, float]:
    """`stop`: the mean loss, until every row is right by two temperatures; otherwise the worst rows, to the end."""
    lengths = np.array([len(row) for row in core.rows])
    owner = np.repeat(np.arange(core.m), lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    inner = owner * core.n + np.concatenate(core.rows)  # flat places of the relevant scores, row by row
    dtype: Any = np.float32 if temperatures[1] > _FINE else np.float64
    X, m = np.concatenate([_unit(Q), _in_ball(D)]).astype(dtype), core.m
    best, reached, adam = X, -np.inf, _Adam(X)
    hot, cold = temperatures
    for step in range(1, steps + 1):
        T = cold + (hot - cold) * (1 - step / steps) ** 2
        Q, D = X[:m], X[m:]
        S = Q @ D.T
        flat = S.reshape(-1)
        good = flat[inner]
        flat[inner] = -np.inf
        low, high = np.minimum.reduceat(good, starts), S.max(axis=1)
        least = float((low - high).min())
        if least > reached:
            best, reached = X, least
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
        X = adam.moved(X, np.concatenate([_along(S @ D, Q), S.T @ Q]), rate, step, steps)
        X /= np.sqrt(np.concatenate([_squares(X[:m]), np.maximum(_squares(X[m:]), 1.0)]))
    Q, D = np.split(best.astype(np.float64), [m])
    return Q, D, reached


class _Adam:
    """The two moments of an array."""

    def __init__(self, X: Any) -> None:
        self._first, self._second = np.zeros_like(X), np.zeros_like(X)

    def moved(self, X: Any, slope: Any, rate: float, step: int, steps: int) -> Any:
        """One step down, at a rate that falls to a thousandth; `slope` is used up."""
        scale = rate * (1 - step / steps + 1e-3) / (1 - 0.9**step)
        self._first *= 0.9
        self._first += 0.1 * slope
        self._second *= 0.99
        slope *= slope
        slope *= 0.01
        self._second += slope
        ahead = np.sqrt(self._second, out=slope)
        ahead /= (1 - 0.99**step) ** 0.5
        ahead += 1e-8
        np.divide(self._first, ahead, out=ahead)
        ahead *= scale
        return X - ahead


def _squares(X: Any) -> Any:
    return np.einsum("...i,...i->...", X, X)[..., None]


def _along(slope: Array, X: Array) -> Array:
    """The part of a slope that runs along the sphere."""
    return slope - np.einsum("...i,...i->...", slope, X)[..., None] * X


def _unit(X: Array) -> Array:
    return X / np.maximum(np.sqrt(_squares(X)), 1e-30)


def _in_ball(X: Array) -> Array:
    return X / np.sqrt(np.maximum(_squares(X), 1.0))


def _centred(D: Array) -> Array:
    """Moved towards the centre of the smallest ball around (M. Bădoiu and K. Clarkson 2003): no ranking changes."""
    centre = D.mean(axis=0)
    for k in range(1, 101):
        centre = centre + (D[np.linalg.norm(D - centre, axis=1).argmax()] - centre) / (k + 1)
    return D - centre
