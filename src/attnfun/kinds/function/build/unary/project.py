"""Values by ridge least squares, and slopes and biases tuned by variable projection.

The pieces' softmax columns and the columns 1, u make a matrix Φ(θ), θ the slopes and biases. For given θ the values v
minimise

    C(θ) = min_v |W(f − Φ v)|² + μ²|v_keys|²,

a linear problem (QR); the ridge μ keeps the values small and the affine part is free of it. C is then lowered over θ by
Gauss–Newton with Levenberg's damping in the projected form of Golub and Pereyra, Kaufman's Jacobian

    −(I − QQᵀ) ∂Φ v,      ∂(Φv)/∂k_m = q p_m (v_m − h),   ∂(Φv)/∂b_m = p_m (v_m − h),   h the head's value.

The budget is a number of iterations: results do not depend on the load of the machine.
Failure mode: C is not convex; a start may end in a poor minimum, so several starts are tried and the untuned head kept.
"""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.kinds.function.build.unary.keys import Array, Keys

Pieces = tuple[Keys, ...]


@dataclass(frozen=True)
class Sample:
    """Points u, target f and weights of a fit; `unit` maps u to about [−1, 1] for the affine column."""

    u: Array
    f: Array
    weight: Array
    middle: float
    half: float

    def unit(self, u: Array) -> Array:
        return (u - self.middle) / self.half

    @cached_property
    def weighted(self) -> tuple[Array, Array]:
        """The columns of 1 and of unit(u), and f, each times the weights."""
        return np.stack([self.weight, self.unit(self.u) * self.weight], axis=1), self.f * self.weight


@dataclass(frozen=True)
class Solution:
    """Values of all keys in a row, then the coefficients of 1 and of unit(u); residual of the weighted system; the
    softmax weights of every piece at the sample's points.
    """

    x: Array
    basis: Array
    residual: Array
    blocks: tuple[Array, ...] = ()

    @cached_property
    def cost(self) -> float:
        return float(self.residual @ self.residual)


def spans(pieces: Pieces) -> Iterator[tuple[Keys, slice]]:
    """Every piece, and the place of its keys among all keys in a row."""
    at = 0
    for keys in pieces:
        yield keys, slice(at, at + keys.size)
        at += keys.size


def columns(pieces: Pieces, sample: Sample, u: Array) -> Array:
    """(len(u), keys + 2): softmax weights of every piece, 1, unit(u)."""
    blocks = [keys.weights(u) for keys in pieces]
    return np.concatenate([*blocks, np.ones((len(u), 1)), sample.unit(u)[:, None]], axis=1)


def solve(pieces: Pieces, sample: Sample, ridge: float) -> Solution:
    """The ridge least-squares values of the pieces."""
    blocks = tuple(keys.weights(sample.u) for keys in pieces)
    rows, n = len(sample.u), sum(keys.size for keys in pieces)
    affine, f = sample.weighted
    system, right = np.zeros((rows + n, n + 2)), np.zeros(rows + n)
    for (_, span), block in zip(spans(pieces), blocks, strict=True):
        np.multiply(block, sample.weight[:, None], out=system[:rows, span])
    system[:rows, n:], right[:rows] = affine, f
    np.einsum("ii->i", system[rows:, :n])[:] = ridge
    return replace(least_squares(system, right), blocks=blocks)


def least_squares(system: Array, right: Array) -> Solution:
    q, r = _qr()(system)
    x = np.linalg.solve(r, q.T @ right)
    return Solution(x, q, right - system @ x)


@lru_cache(maxsize=1)
def _qr() -> Callable[[Array], Any]:
    """`np.linalg.qr` without what it looks at first, which takes longer than a small matrix; itself where NumPy's inner
    parts are not the known ones, or do not give the same bits.
    """

    def bare(system: Array) -> tuple[Array, Array]:
        r = system.copy()
        q = inner.qr_reduced(r, inner.qr_r_raw(r))
        return q, np.where(_upper(r.shape[1]), r[: r.shape[1]], 0.0)

    probe = np.cos(np.arange(35.0).reshape(7, 5))
    try:
        inner: Any = importlib.import_module("numpy.linalg._umath_linalg")
        same = all(np.array_equal(a, b) for a, b in zip(bare(probe), np.linalg.qr(probe), strict=True))
    except (ImportError, AttributeError, TypeError, ValueError):
        same = False
    return bare if same else np.linalg.qr


@lru_cache(maxsize=64)
def _upper(n: int) -> NDArray[np.bool_]:
    return np.tri(n, dtype=np.bool_).T


def tune(pieces: Pieces, sample: Sample, ridge: float, iterations: int, goal: float) -> tuple[Pieces, int]:
    """Lower C(θ) for at most `iterations` steps, or until the largest residual is below `goal`; also the steps made."""
    now = solve(pieces, sample, ridge)
    rows = len(sample.u)
    damping, used, idle = 1e-2, 0, 0
    while used < iterations:
        used += 1
        if float(np.abs(now.residual[:rows] / sample.weight).max()) <= goal:
            break
        jacobian = np.zeros((len(now.residual), 2 * sum(k.size - k.fixed for k in pieces)))
        jacobian[:rows] = _jacobian(pieces, sample, now)
        jacobian -= now.basis @ (now.basis.T @ jacobian)
        scale = np.sqrt(np.einsum("ij,ij->j", jacobian, jacobian))
        scale += 1e-9 * scale.max() + 1e-300
        jacobian /= scale
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ now.residual
        for _ in range(8):
            try:
                step = np.linalg.solve(normal + damping * np.eye(len(normal)), gradient) / scale
                trial = _moved(pieces, step)
                new = solve(trial, sample, ridge) if trial is not None else None
            except np.linalg.LinAlgError:  # a singular matrix is a step too far
                trial = new = None
            if new is not None and trial is not None and new.cost < now.cost:
                break
            damping *= 6
        else:
            break
        idle = idle + 1 if new.cost > (1 - 1e-3) * now.cost else 0
        pieces, now, damping = trial, new, max(damping / 6, 1e-12)
        if idle == 5:
            break
    return pieces, used


def _jacobian(pieces: Pieces, sample: Sample, now: Solution) -> Array:
    """(rows, 2·free keys) weighted derivatives of Φ v by every free slope, then bias, piece after piece."""
    parts = []
    for (keys, span), p in zip(spans(pieces), now.blocks, strict=True):
        v = now.x[span]
        g = (p * (v - (p @ v)[:, None]))[:, keys.fixed :] * sample.weight[:, None]
        parts += [g * keys.query(sample.u)[:, None], g]
    return np.concatenate(parts, axis=1)


def _moved(pieces: Pieces, step: Array) -> Pieces | None:
    """The pieces after a step; None if it leaves the finite numbers."""
    if not np.isfinite(step).all():
        return None
    out, at = [], 0
    for keys in pieces:
        n = keys.size - keys.fixed
        slopes, biases = keys.slopes.copy(), keys.biases.copy()
        slopes[keys.fixed :] += step[at : at + n]
        biases[keys.fixed :] += step[at + n : at + 2 * n]
        at += 2 * n
        out.append(Keys(keys.w, keys.c, slopes, biases, keys.fixed))
    return tuple(out)
