"""Heads on binomial lattices as polynomials in y, with a proved error.

Axis a has m + 1 keys with logits (k_0 + τ j) q + b_j, τ > 0, exactly. With s = 1/(1 + e^−(τ q + β)) its weights are
proportional to ω_j C(m, j) s^j (1 − s)^(m−j), where ln ω_j = b_j − ln C(m, j) − β j, up to a common factor. So

    head(q) = N(s)/D(s),  N = Σ_j ω_j V_j Π_a C(m_a, j_a) s_a^j_a (1 − s_a)^(m_a − j_a),  D the same with V = 1,

and for binomial biases all ω_j are nearly 1. With the ω of the middle key of each axis as that factor, D is within
e^±dev of 1, dev = Σ_a max_j |ln ω_j|. N is a polynomial; in y_a = (s_a − mid_a)·scale_a, |y_a| <= `reach`, it is
Σ_k c_k y^k with coefficients that balls enclose (mid, scale: doubles, taken as they are).

**Error.** For queries q as they are computed, |computed − head(q)| is at most the sum of
 1. |head| (e^dev − 1);
 2. coefficients rounded to the dtype: Σ |c_k − stored c_k|;
 3. Horner: every step is a product and an addition, and c_k meets 2k_a + 2 of them on each axis at the most, so
    Σ γ_(2 Σ k_a + 2A) |c_k| ρ, ρ = reach^(Σ m_a); NumPy takes powers of the last y and a sum of m + 1 terms, k + m + 1
    in place of 2k there: the larger counts;
 4. y: t = τ q + β is off by at most u (|τ q| + |t|), exp by 8u, the sum, the quotient, the difference and the product
    by u each: δy <= scale (s (1 − s)(u (|τ q| + |t|) + 9u) + 3u s) 1.001 + 2u reach, and it moves N by at most
    δy Σ_a Σ_k k_a |c_k| ρ 1.001.

**When it is taken**: where that is, at every point, at most what certificates count for the sums alone: for one axis
γ_(n+8) E|V|, for more 2 γ_(n + ΣP_a + 8A + 16) E|V|. They count logits, exp and more besides (`certify/rounding.py`),
so no certificate changes.

**Fewer coefficients.** In the basis of Chebyshev's polynomials T_k most coefficients of a head that approximates
something smooth are tiny. Those outside a set that holds with an index all lower ones are left out; the error grows by
their sum, times max |T_k| for |y| <= reach. Such sets stay such sets in powers of y.

Failure mode: None for other keys, for coefficients that cancel, for axes of more than MOST keys.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, arb_poly, fmpz
from numpy.typing import NDArray

from attnfun.certify.rounding import ROUNDOFF, gamma
from attnfun.certify.view import LineAxis
from attnfun.fast.exp_bound import REACH
from attnfun.language import precision
from attnfun.language.enclosures import upper
from attnfun.language.numbers import bisected
from attnfun.network.head import Array, Head

MOST = 128
MOST_KEYS = 1 << 14
PAST = 1 + 1e-6  # how far past 1 in size y may be
_MOST_GRID = 400
_BITS = 160
_EXP = 8  # units of roundoff of an exp: NumPy's, 4 ulp; that of the kernels is within 4 units


@dataclass(frozen=True, eq=False)
class Polynomial:
    """`runs`: coefficients (p, length), the highest first, along the last axis of `order`, each with how many of the
    outer axes end with it; for each axis of `order` τ, β, mid, scale, largest |q|.
    """

    order: tuple[int, ...]
    constants: tuple[tuple[float, ...], ...]
    runs: tuple[tuple[Array, int], ...]
    reach: float
    error: Array

    @property
    def plain(self) -> bool:
        """A polynomial in the query itself (`powers.py`): τ = 0."""
        return self.constants[0][0] == 0.0

    @property
    def size(self) -> int:
        """Coefficients of one output."""
        return sum(own.shape[1] for own, _ in self.runs)


def lattice(head: Head, reached: list[tuple[float, float]], dtype: str) -> Polynomial | None:
    """The head as a polynomial, for queries in these ranges, if its error is at most what every certificate counts."""
    if head.keys > MOST_KEYS or any(axis.dim != 1 or axis.keys > MOST for axis in head.axes):
        return None
    lines = [LineAxis(0, 1.0, 0.0, axis.slopes[:, 0], axis.biases) for axis in head.axes]
    steps = [line.lattice_step for line in lines]
    if None in steps:
        return None
    order = sorted(range(len(lines)), key=lambda a: lines[a].size)  # the longest axis last
    with precision(_BITS):
        sides = []
        for a in order:
            side = _side(lines[a], float(steps[a] or 0.0), *reached[a], dtype)
            if side is None:
                return None
            sides.append(side)
        return _covered(head, order, sides, counted(head, reached, ROUNDOFF[dtype]), dtype)


@dataclass(frozen=True)
class _Side:
    """One axis: τ, β, mid, scale, largest |q|; weights to Chebyshev coefficients; how far ln ω and y may be off."""

    constants: tuple[float, ...]
    matrix: arb_mat
    deviation: float
    slip: float


def _side(line: LineAxis, tau: float, low: float, high: float, dtype: str) -> _Side | None:
    u, kind, m = ROUNDOFF[dtype], np.dtype(dtype), line.size - 1
    binomials = [arb(fmpz.bin_uiui(m, j)) for j in range(m + 1)]
    own = line.biases - np.array([float(b.log()) for b in binomials])
    beta = float(kind.type((own[-1] - own[0]) / m))
    ends = [1 / (1 + math.exp(-min(max(tau * q + beta, -500.0), 500.0))) for q in (low, high)]
    half, far = (ends[1] - ends[0]) / 2, float(kind.type(max(abs(low), abs(high)) * (1 + 1e-5)))
    t = np.linspace(beta - tau * far, beta + tau * far, 513)
    step = float(t[1] - t[0])
    if not (half > 1e-6 and max(-t[0], t[-1]) < REACH[dtype] and step < 0.5):
        return None
    mid, scale = float(kind.type((ends[0] + ends[1]) / 2)), float(kind.type(1 / half))
    logs = [arb(float(b)) - c.log() - arb(beta) * j for j, (b, c) in enumerate(zip(line.biases, binomials))]
    logs = [one - logs[m // 2] for one in logs]
    s, rest = arb_poly([arb(mid), 1 / arb(scale)]), arb_poly([1 - arb(mid), -1 / arb(scale)])
    columns = []
    for j, (own_log, binomial) in enumerate(zip(logs, binomials, strict=True)):
        poly = s**j * rest ** (m - j) * (binomial * own_log.exp())
        columns.append([poly[k] for k in range(m + 1)])
    matrix = _to_chebyshev(m) * arb_mat(columns).transpose()
    sigma = 1 / (1 + np.exp(-t))
    # s(1 − s) and s change by less than a factor e^step within a step
    slope = sigma * (1 - sigma) * (u * (np.abs(t - beta) + np.abs(t) + 2 * step) + (_EXP + 1) * u)
    slip = scale * float((slope + 3 * u * sigma).max()) * math.exp(step) * 1.001 + 2 * u * PAST
    return _Side((tau, beta, mid, scale, far), matrix, max(upper(abs(one)) for one in logs), slip)


def _covered(head: Head, order: list[int], sides: list[_Side], allowed: Array, dtype: str) -> Polynomial | None:
    """The polynomial of the fewest coefficients whose error is allowed."""
    p, u, kind = head.outputs, ROUNDOFF[dtype], np.dtype(dtype)
    sizes = [head.grid[a] for a in order]
    degrees = [n - 1 for n in sizes]
    values = np.transpose(head.values, (len(order), *order))
    deviation = sum(side.deviation for side in sides)
    if not deviation < 1e-3:
        return None
    waves = _contracted([arb(float(v)) for v in values.ravel()], p, sizes, [side.matrix for side in sides])
    largest = np.array([upper(abs(c)) for c in waves]).reshape(p, *sizes)
    rho = PAST ** sum(degrees) * 1.001
    past = math.prod(math.cosh(m * math.acosh(PAST)) for m in degrees) * 1.001  # |T_k| for |y| <= PAST
    flat = np.abs(head.values.reshape(-1, p)).max(axis=0)
    k = np.indices(sizes)
    counts = 2 * k.sum(axis=0) + 2 * len(sizes)
    if len(sizes) > 1:  # NumPy: powers of the last y, and a sum of as many terms as there are
        counts = np.maximum(counts, counts - k[-1] + sizes[-1])
    meets = np.vectorize(lambda count: gamma(count, u))(counts)
    fixed = flat * math.expm1(deviation) * 1.001
    for share in (0.7, 0.3, 0.0):
        kept = _kept(largest, share * allowed)
        dropped = np.where(kept, 0.0, largest).reshape(p, -1).sum(axis=1) * past
        chosen = [c if keep else arb(0) for c, keep in zip(waves, np.broadcast_to(kept, largest.shape).ravel())]
        powers = _contracted(chosen, p, sizes, [of_chebyshev(m) for m in degrees])
        stored = np.array([float(kind.type(float(c.mid()))) for c in powers]).reshape(p, *sizes)
        doubt = np.array([upper(abs(c - arb(float(v)))) for c, v in zip(powers, stored.ravel(), strict=True)])
        size = np.abs(stored)
        error = fixed + dropped + doubt.reshape(p, -1).sum(axis=1) * rho
        error = error + (size * meets).reshape(p, -1).sum(axis=1) * rho
        for a, side in enumerate(sides):
            weight = size * np.arange(sizes[a]).reshape([-1 if k == a + 1 else 1 for k in range(len(sizes) + 1)])
            error = error + side.slip * weight.reshape(p, -1).sum(axis=1) * rho * 1.001
        if np.isfinite(stored.astype(kind)).all() and (error * (1 + 1e-9) <= allowed).all():
            runs = tuple(_runs(stored, kept))
            return Polynomial(tuple(order), tuple(side.constants for side in sides), runs, PAST, error * (1 + 1e-9))
    return None


def _kept(largest: Array, room: Array) -> NDArray[np.bool_]:
    """Which coefficients are kept: a set that holds with an index all lower ones; the others sum to `room` at most."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = (largest / room.reshape(-1, *[1] * (largest.ndim - 1))).max(axis=0)
    size = np.where(np.isnan(size), np.inf, size)
    for a in range(size.ndim):
        size = np.flip(np.maximum.accumulate(np.flip(size, a), axis=a), a)
    levels = np.unique(size)
    best = bisected(-1, len(levels), lambda k: not _fits(largest, size > levels[k], room)) - 1
    return np.asarray(size > levels[best] if best >= 0 else np.ones(size.shape, dtype=bool))


def _fits(largest: Array, kept: NDArray[np.bool_], room: Array) -> bool:
    """At least one is kept, and the sum of the others is within `room`."""
    gone = np.where(kept, 0.0, largest).reshape(len(room), -1).sum(axis=1)
    return bool(kept.flat[0] and (gone <= room).all())


def _runs(stored: Array, kept: NDArray[np.bool_]) -> Iterator[tuple[Array, int]]:
    """Along the last axis, the outer places from the last one down; lengths are filled up to a multiple of four."""
    outer = kept.shape[:-1]
    for place in reversed(list(np.ndindex(outer))):
        length = int(kept[place].sum())
        if length == 0:
            continue
        own = np.zeros((len(stored), 4 * math.ceil(length / 4)))
        own[:, -length:] = stored[(slice(None), *place)][:, length - 1 :: -1]
        ends = next((k for k, i in enumerate(reversed(place)) if i > 0), len(place) - 1) if place else 0
        yield own, min(ends, max(len(outer) - 1, 0))


def _contracted(flat: list[arb], p: int, sizes: list[int], matrices: list[arb_mat]) -> list[arb]:
    """Every matrix applied along its axis of an array (p, *sizes), given and returned flat."""
    # The last axis is contracted and comes to the front of the others; after all of them the order is as before.
    for matrix in reversed(matrices):
        n, rest = matrix.ncols(), len(flat) // (p * matrix.ncols())
        entries = (arb_mat(p * rest, n, flat) * matrix.transpose()).entries()
        flat = [entries[(o * rest + i) * n + k] for o in range(p) for k in range(n) for i in range(rest)]
    assert len(flat) == p * math.prod(sizes)
    return flat


def of_chebyshev(m: int) -> arb_mat:
    """Chebyshev coefficients → coefficients of powers, up to degree m: whole numbers."""
    before, own, columns = [1], [0, 1], [[1], [0, 1]]
    for _ in range(m - 1):
        twice = [0, *(2 * c for c in own)]
        before, own = own, [c - (before[k] if k < len(before) else 0) for k, c in enumerate(twice)]
        columns.append(own)
    return arb_mat([[c[k] if k < len(c) else 0 for c in columns[: m + 1]] for k in range(m + 1)])


def _to_chebyshev(m: int) -> arb_mat:
    return arb_mat(of_chebyshev(m).inv())


def counted(head: Head, reached: list[tuple[float, float]], u: float) -> Array:
    """(p,) what certificates count for the sums of this head, at the least, wherever its queries are.

    A weight is at least e^−(Δ |q − c|) times what it is at c, Δ the spread of the slopes: a grid of c bounds E|V|.
    """
    whole, factor, A = np.moveaxis(np.abs(head.values), -1, 0), 1.0, len(head.axes)
    for axis, (least, most) in zip(head.axes, reached, strict=True):
        pad = 1e-5 * (most - least) + 8 * u * (abs(least) + abs(most))  # mid and scale are rounded, |y| may pass 1
        low, high = least - pad, most + pad
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
