"""Heads on binomial lattices as polynomials in y, with a proved error.

Axis a has m + 1 keys with logits (k_0 + τ j) q + b_j, τ > 0, exactly. With s = 1/(1 + e^−(τ q + β)) its weights are
proportional to ω_j C(m, j) s^j (1 − s)^(m−j), where ln ω_j = b_j − ln C(m, j) − β j, up to a common factor. So

    head(q) = N(s)/D(s),  N = Σ_j ω_j V_j Π_a C(m_a, j_a) s_a^j_a (1 − s_a)^(m_a − j_a),  D the same with V = 1,

and for binomial biases all ω_j are nearly 1. Divided by a number between the least and the largest ω, D is within
e^±dev of 1, dev = (max − min of Σ ln ω)/2. N is a polynomial; in y_a = (s_a − mid_a)·scale_a, |y_a| <= `reach`, it is
Σ_k c_k y^k with coefficients that balls enclose (mid, scale: doubles, taken as they are).

**Error.** For queries q as they are computed, |computed − head(q)| is at most the sum of
 1. |head| (e^dev − 1);
 2. coefficients rounded to the dtype: Σ |c_k − stored c_k|;
 3. Horner: every step is a product and an addition, so γ_(2 Σ m_a + 2A + 2) Σ |c_k| ρ, ρ = reach^(Σ m_a);
 4. y: t = τ q + β is off by at most u (|τ q| + |t|), exp by 4u, the sum, the quotient, the difference and the product
    by u each: δy <= scale (s (1 − s)(u (|τ q| + |t|) + 5u) + 3u s) 1.001 + 2u reach, and it moves N by at most
    δy Σ_a Σ_k k_a |c_k| ρ 1.001.

**When it is taken**: where that is, at every point, at most what certificates count for the sums alone: for one axis
γ_(n+8) E|V|, for more 2 γ_(n + ΣP_a + 8A + 16) E|V|. They count logits, exp and more besides (`certify/rounding.py`),
so no certificate changes.

Failure mode: None for other keys, for cancelling coefficients, for axes of more than MOST keys.
"""

import math
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, arb_poly, fmpz

from attnfun.certify.rounding import ROUNDOFF, gamma
from attnfun.certify.view import LineAxis
from attnfun.fast.exp_bound import EXP_ROUNDOFFS, REACH
from attnfun.language import precision
from attnfun.language.enclosures import upper
from attnfun.network.head import Array, Head

MOST = 128
_CELLS = 1 << 14
_PAST = 1 + 1e-3  # how far past 1 in size y may be
_MOST_GRID = 400
_BITS = 160


@dataclass(frozen=True, eq=False)
class Polynomial:
    """`coefficients` (p, m_1 + 1, ..., m_A + 1), the lowest first; for each axis τ, β, mid, scale, largest |q|."""

    coefficients: Array
    constants: tuple[tuple[float, ...], ...]
    reach: float
    error: Array


def polynomial(head: Head, reached: list[tuple[float, float]], dtype: str) -> Polynomial | None:
    """The head as a polynomial, for queries in these ranges, if its error is at most what every certificate counts."""
    if head.keys > _CELLS or any(axis.dim != 1 or axis.keys > MOST for axis in head.axes):
        return None
    lines = [LineAxis(0, 1.0, 0.0, axis.slopes[:, 0], axis.biases) for axis in head.axes]
    steps = [line.lattice_step for line in lines]
    if None in steps:
        return None
    with precision(_BITS):
        found = _converted(head, lines, [float(s or 0.0) for s in steps], reached, dtype)
    return found if found is not None and (found.error <= _counted(head, reached, ROUNDOFF[dtype])).all() else None


def _converted(
    head: Head, lines: list[LineAxis], steps: list[float], reached: list[tuple[float, float]], dtype: str
) -> Polynomial | None:
    u, kind = ROUNDOFF[dtype], np.dtype(dtype)
    constants, matrices, moved, deviation = [], [], [], 0.0
    slips = []
    for line, tau, (low, high) in zip(lines, steps, reached, strict=True):
        m = line.size - 1
        logs = [float(np.log(float(fmpz.bin_uiui(m, j)))) for j in range(m + 1)]
        own = line.biases - np.array(logs)
        beta = float(kind.type((own[-1] - own[0]) / m))
        ends = [1 / (1 + math.exp(-min(max(tau * q + beta, -500.0), 500.0))) for q in (low, high)]
        half = (ends[1] - ends[0]) / 2
        if not half > 1e-6:
            return None
        mid, scale = float(kind.type((ends[0] + ends[1]) / 2)), float(kind.type(1 / half))
        weights = [(arb(float(b)) - arb(fmpz.bin_uiui(m, j)).log() - arb(beta) * j) for j, b in enumerate(line.biases)]
        middle = weights[m // 2]
        weights = [w - middle for w in weights]
        sizes = [upper(abs(w)) for w in weights]
        deviation += max(sizes)
        moved.append([w.exp() for w in weights])
        s, other = arb_poly([arb(mid), 1 / arb(scale)]), arb_poly([1 - arb(mid), -1 / arb(scale)])
        rows = []
        for j in range(m + 1):
            poly = (s**j) * (other ** (m - j)) * arb(fmpz.bin_uiui(m, j)) * moved[-1][j]
            rows.append([poly[k] for k in range(m + 1)])
        matrices.append(arb_mat(rows).transpose())
        far = max(abs(low), abs(high)) * 1.001
        constants.append((tau, beta, mid, scale, float(kind.type(far))))
        t = np.linspace(beta - tau * far, beta + tau * far, 513)
        step = float(t[1] - t[0])
        if not (max(-t[0], t[-1]) < REACH[dtype] and step < 0.5):
            return None
        sigma = 1 / (1 + np.exp(-t))
        # s(1 − s) and s change by less than a factor e^step within a step
        slope = sigma * (1 - sigma) * (u * (np.abs(t - beta) + np.abs(t) + 2 * step) + (EXP_ROUNDOFFS + 1) * u)
        slip = scale * float((slope + 3 * u * sigma).max()) * math.exp(step) * 1.001 + 2 * u * _PAST
        slips.append(slip)
    if not deviation < 1e-3:
        return None
    coefficients = _contracted(head.values, matrices)
    p = head.outputs
    shape = (p, *head.grid)
    stored, doubt = np.empty(shape), np.empty(shape)
    for place, ball in zip(np.ndindex(shape), coefficients, strict=True):
        stored[place] = float(kind.type(float(ball.mid())))
        doubt[place] = upper(abs(ball - arb(float(stored[place]))))
    degrees = [n - 1 for n in head.grid]
    rho = _PAST ** sum(degrees) * 1.001
    size = np.abs(stored).reshape(p, -1).sum(axis=1)
    flat = np.abs(head.values.reshape(-1, p)).max(axis=0)
    steps_in_all = 2 * sum(degrees) + 2 * len(degrees) + 2
    error = np.minimum(flat, size * rho) * math.expm1(deviation) * 1.001
    error = error + doubt.reshape(p, -1).sum(axis=1) * rho
    error = error + gamma(steps_in_all, u) * size * rho
    for a, slip in enumerate(slips):
        powers = np.arange(head.grid[a]).reshape([-1 if i == a + 1 else 1 for i in range(len(shape))])
        error = error + slip * (np.abs(stored) * powers).reshape(p, -1).sum(axis=1) * rho * 1.001
    if not np.isfinite(error).all() or not np.isfinite(stored.astype(kind)).all():
        return None
    return Polynomial(stored, tuple(constants), _PAST, error * (1 + 1e-9))


def _contracted(values: Array, matrices: list[arb_mat]) -> list[arb]:
    """Every matrix applied along its axis of `values` (P_1, …, P_A, p); flat, the outputs first."""
    flat = [arb(float(v)) for v in np.moveaxis(values, -1, 0).ravel()]
    p, sizes = values.shape[-1], list(values.shape[:-1])
    # The last axis is contracted and comes to the front of the others; after all of them the order is as before.
    for matrix in reversed(matrices):
        n = matrix.ncols()
        rest = len(flat) // (p * n)
        block = arb_mat(p * rest, n, flat) * matrix.transpose()
        entries = block.entries()
        flat = [entries[(o * rest + i) * n + k] for o in range(p) for k in range(n) for i in range(rest)]
    assert math.prod(sizes) * p == len(flat)
    return flat


def _counted(head: Head, reached: list[tuple[float, float]], u: float) -> Array:
    """(p,) what certificates count for the sums of this head, at the least, wherever its queries are.

    A weight is at least e^−(Δ |q − c|) times what it is at c, Δ the spread of the slopes: a grid of c bounds E|V|.
    """
    whole, factor, A = np.moveaxis(np.abs(head.values), -1, 0), 1.0, len(head.axes)
    for axis, (low, high) in zip(head.axes, reached, strict=True):
        wide = float(np.ptp(axis.slopes)) * (high - low) / 2
        count = max(1, math.ceil(wide * A / 0.3))
        if count > _MOST_GRID:
            return np.zeros(head.outputs)
        centres = low + (high - low) * (np.arange(count) + 0.5) / count
        logits = np.outer(centres, axis.slopes[:, 0]) + axis.biases
        terms = np.exp(logits - logits.max(axis=1, keepdims=True))
        # the first axis of the keys is contracted; the grid's goes last, so that the next one is first then
        whole = np.moveaxis(np.tensordot(terms / terms.sum(axis=1, keepdims=True), whole, axes=(1, 1)), 0, -1)
        factor *= math.exp(-wide / count)
    n = head.keys
    units = n + 8 if A == 1 else 2 * (n + sum(head.grid) + 8 * A + 16)
    return np.asarray(units * u * factor * whole.reshape(head.outputs, -1).min(axis=1) * (1 - 1e-3))
