"""Towers of attention: polynomials of one variable by Bernstein heads, products of them by one head on a product grid.

Statement: the keys τ(j − m/2) with biases ln C(m, j) weigh like the Bernstein polynomials of s = sigmoid(τ t), so a
head is a polynomial in s, which for small τ is nearly linear in t; least squares give values for all features at once.
Source: `bernstein` (its docstring); Bernstein 1912.
Size: m + 1 keys per variable, a little more than the degree that the features really have. Values stay of the features'
own size for τ about 1: they are float32-safe.
Bound: `prove_towers`, from the stored weights. Failure mode: more than three variables (`product_towers`), or
tolerances near rounding.
"""

import math
from collections.abc import Iterator

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.relation.features import Features, Half, chebyshev_columns
from attnfun.kinds.relation.towers import Affine, Keys, TowerWeights
from attnfun.network.head import Array, rounded, softmax

_STEPS = (1.0, 1.5, 0.75, 2.0, 0.5)
_CUTS = (1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14)
_WIDE = (2.0, 3.0, 4.5, 1.0, 1.5)  # for steep features: a key is as wide as 2/(τ √keys)
_ROOM = 10.0  # how much larger than the features the values of several variables may be
_STEEP = 1e30  # slopes past it stay in the head: float32 could not hold them
_MOST = ((20.0, 160, 16), (400.0, 260, 16), (400.0, 900, 3))  # room of the values, keys up to, a step is 1/this of them
_STEEPEST = 260  # past it only features too steep for fewer keys: few steps are tried


def attention_tower(features: Features, side: str, tolerance: float, affine: bool = True) -> TowerWeights:
    """Keys and values with every block's columns within about `tolerance` of the features'.

    `affine`: affine parts are left to the read-out; not for towers on top of networks, whose heads alone are read.
    """
    half = features.half(side)
    low, high = half.box
    keys: dict[int, Keys] = {}
    ramps: dict[int, Array] = {}
    values = []
    for k, (P, places) in enumerate(zip(half.tables, half.places, strict=True)):
        used = np.unique(half.selection[:, k])
        out = np.zeros(P.shape)
        out[..., used] = P[..., used]
        fits, own = fitted(out, tolerance)
        for v, (tau, matrix) in zip(places, fits, strict=True):
            keys[v] = bernstein_keys(tau, len(matrix), float(low[v]), float(high[v]))
            line = np.array([(low[v] + high[v]) / 2, (high[v] - low[v]) / 2])[: matrix.shape[1]]
            ramps[v] = matrix[:, : len(line)] @ line
        values.append(own)
    every = range(len(low))
    rest = Affine(_lines(half), tuple(ramps[v] for v in every)) if affine else None
    return TowerWeights(tuple(keys[v] for v in every), tuple(values), affine=rest)


def _lines(half: Half) -> Array:
    """(rank, variables + 1) the affine parts of the Chebyshev series, as float32 holds them."""
    low, high = half.box
    lines = np.zeros((half.rank, len(low) + 1))
    firsts, steps = [], []  # per block: the constant coefficient, and that of every variable alone
    for b, table in enumerate(half.tables):
        P = table[..., half.selection[:, b]]
        a = P.ndim - 1
        firsts.append(P[(0,) * a])
        steps.append([P[tuple(int(i == j) for i in range(a))] if P.shape[j] > 1 else 0 * P[(0,) * a] for j in range(a)])
    for b, places in enumerate(half.places):
        others = math.prod((f for i, f in enumerate(firsts) if i != b), start=np.ones(half.rank))
        for v, step in zip(places, steps[b], strict=True):
            lines[:, v] = others * step / ((high[v] - low[v]) / 2)
    lines[~(np.abs(lines) < _STEEP)] = 0.0
    lines = rounded(lines, "float32")
    middle = math.prod(firsts, start=np.ones(half.rank))
    lines[:, -1] = middle - lines[:, :-1] @ ((low + high) / 2)
    lines[~(np.abs(lines) < _STEEP)] = 0.0
    return rounded(lines, "float32")


def fitted(table: Array, tolerance: float) -> tuple[list[tuple[float, Array]], Array]:
    """(τ and the matrix (keys, N) of every variable, values (keys…, m)) for Chebyshev coefficients (N_1, …, N_a, m).

    Variables are fitted each by itself to the coefficients. Where the values then come out large, because what is large
    in one variable meets what is large in the next, each variable is fitted to the values that the ones before left.
    """
    a = table.ndim - 1
    seen = max(float(np.abs(table).sum(axis=tuple(range(a))).max()), 1e-300)
    for apart in (True, False):
        out, fits = table, []
        for j in range(a):
            goal = table if apart else out
            tau, matrix = _fit(np.moveaxis(goal, j, 0).reshape(goal.shape[j], -1), tolerance / a)
            out = np.moveaxis(np.tensordot(matrix, out, axes=(1, j)), 0, j)
            fits.append((tau, matrix))
        if a < 2 or np.abs(out).max() <= _ROOM * seen:
            break
    return fits, out


def bernstein_keys(tau: float, count: int, low: float, high: float) -> Keys:
    j = np.arange(count, dtype=np.float64)
    biases = np.array([-math.lgamma(i + 1) - math.lgamma(count - i) for i in range(count)])
    biases = rounded(biases - biases.max(), "float32")
    # float32 holds every key, and those that weigh most have small logits: what float32 towers lose is little
    slopes = tau * (j - (count - 1) / 2)
    return Keys(2 / (high - low), -(high + low) / (high - low), slopes, biases)


def _fit(coefficients: Array, tolerance: float) -> tuple[float, Array]:
    """(τ, A (keys, N)): softmax weights @ A ≈ T_0 … T_{N−1}, as far as the coefficients (N, m) ask for it."""
    size = np.abs(coefficients).max(axis=1)
    size = np.maximum(size, 1e-30 * max(float(size.max()), 1e-200))  # every T_j has its values, for the ramps at least
    n = len(size)
    if n == 1:
        return 1.0, np.ones((1, 1))
    degree = max(1, int(np.count_nonzero(np.cumsum(size[::-1])[::-1] > tolerance / 4)))
    for count, room in _trials(max(2, degree - 2)):
        points = 5 * count if count <= _STEEPEST else 3 * count
        t = np.cos((2 * np.arange(points) + 1) * np.pi / (2 * points))
        T = chebyshev_columns(t, n)
        goal = T @ coefficients
        for tau in _STEPS if degree < 24 else _WIDE if count <= _STEEPEST else _WIDE[:2]:
            keys = bernstein_keys(tau, count, -1.0, 1.0)
            weights = softmax(np.outer(t, keys.slopes) + keys.biases)
            seen = max(float(np.abs(goal).max()), 1e-300)
            U, s, W = np.linalg.svd(weights, full_matrices=False)
            right = U.T @ (T * size)  # weighted columns: T_j matters as much as its coefficients
            for cut in _CUTS:  # a better fit than is asked for costs larger values
                kept = s > cut * s[0]
                A = W[kept].T @ (right[kept] / s[kept, None])
                A = A / size
                V = A @ coefficients
                if np.abs(weights @ V - goal).max() <= tolerance:
                    if np.abs(V).max() <= room * seen:
                        return tau, A
                    break
    most = max(most for _, most, _ in _MOST)
    raise Infeasible(f"towers: no head of up to {most} keys comes within {tolerance:.2g}", {"features_only": True})


def _trials(first: int) -> Iterator[tuple[int, float]]:
    """Numbers of keys to try, with the size that values may have: in growing steps."""
    for room, most, part in _MOST:
        count = first if most <= _STEEPEST else max(first, _STEEPEST + 80)
        if most > _STEEPEST and first < 40:
            return  # few keys are enough for such features, or none
        while count < most:
            yield count, room
            count += 1 + count // (part if first < 80 else min(part, 4))
