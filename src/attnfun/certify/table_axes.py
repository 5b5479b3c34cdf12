"""How far one softmax axis is from functions given piece by piece: Taylor forms in doubles, all intervals together.

| symbol | meaning |
| --- | --- |
| p(x), U | softmax weights of the axis; values of its keys, (keys, columns) |
| F | what p(x)·U is compared with, a polynomial of degree ≤ 3 between knots, (columns,) |
| c, r, ξ | middle and half length of an interval between two knots, x = c + r ξ, |ξ| ≤ 1 |
| t_i, z_i | weights at c up to a common factor, of sum about 1; r w (k_i − k̄), k̄ any number, about their mean slope |

Statement. Let F(c + rξ) = Σ_j F_j ξ^j, and of the true weights T_i = t_i e^{±s_i}. With D(ξ) = Σ T_i e^{z_i ξ} and

    M(ξ) = Σ_i T_i (U_i − F(c + rξ)) e^{z_i ξ} = Σ_k m_k ξ^k,
    m_k = Σ_i T_i (U_i − F_0) z_i^k/k! − Σ_{j≥1} F_j Σ_i T_i z_i^{k−j}/(k−j)!

p·U − F = M/D. After n terms at most R = Σ T_i (|U_i − F_0| E_n + Σ_j |F_j| E_{n−j}) is left, with E_m =
|z_i|^m e^{|z_i|}/m!.
By Jensen D(ξ) ≥ ΣT_i − |Σ T_i z_i|. So on the interval

    |p·U − F| ≤ (max_{|ξ|≤1} |m_0 + m_1 ξ + m_2 ξ²| + Σ_{3≤k<n} |m_k| + R)/(ΣT_i − |Σ T_i z_i|).

Intervals are halved until the bound is near what their middles show.
Rounding. s_i bounds the rounding of logit differences and of exponentials (`exact.exponentials`). Every m_k is off by
at most Σ of the sizes of its terms times s_i + (keys + 40) u. Keys far away: sorted by slope, neighbours meet at b_m =
(bias_m − bias_{m+1})/(slope_{m+1} − slope_m). Where q ≤ b_m for all m ≥ h, logits fall from key h on, so keys from h on
weigh at most their number times e^{l_h − l} of a key with logit l; l_h − l is affine in q, so its ends decide. The
same below. They move p·U by at most that times the range of U.
Failure mode: Undecided where the slopes do not increase, or where `_MOST` intervals do not suffice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.exact import exponentials
from attnfun.certify.view import Array, LineAxis, provided
from attnfun.language.table import cells

_U = 2.0**-53
_ORDER = 7
_SAFE = 1 + 1e-9
_MOST = 400_000  # intervals
_ENTRIES = 2_000_000  # intervals × keys × columns that are looked at together
_CLOSE = 1.04  # bound over what a middle shows
_GONE = 1e-30  # what far keys may weigh
_NEAR = 6  # keys on either side that are looked at first

Pieces = Callable[[NDArray[np.intp], Array, Array], tuple[Array, Array]]
"""Of cells, middles and half lengths: F_0 … F_3, (4, intervals, columns), and how far each may be off."""


@dataclass(frozen=True)
class Sorted:
    """An axis by rising slopes of x: slopes and biases in q = w x + c, and where neighbours meet, made safe."""

    w: float
    c: float
    slopes: Array
    biases: Array
    meet: Array
    later: Array  # the least of `meet` from here on
    earlier: Array  # the largest up to here
    order: NDArray[np.intp]

    @classmethod
    def of(cls, axis: LineAxis) -> Sorted:
        w, c = (axis.w, axis.c) if axis.w > 0 else (-axis.w, -axis.c)
        slopes = axis.slopes if axis.w > 0 else -axis.slopes
        order = np.argsort(slopes, kind="stable")
        k, b = slopes[order], axis.biases[order]
        provided(bool((np.diff(k) > 0).all()), "tables: two keys of an axis have the same slope")
        with np.errstate(over="ignore"):
            meet = (b[:-1] - b[1:]) / np.diff(k)
        off = 4 * _U * np.abs(meet) + 1e-300
        provided(bool(np.isfinite(meet).all()), "tables: keys that meet nowhere")
        later = np.minimum.accumulate((meet - off)[::-1])[::-1]
        earlier = np.maximum.accumulate(meet + off)
        return cls(w, c, k, b, meet, later, earlier, order)

    def query(self, x: Array) -> tuple[Array, Array]:
        """q and how far it may be off."""
        return self.w * x + self.c, 3 * _U * (np.abs(self.w * x) + abs(self.c))


def sup_errors(
    axis: LineAxis, values: Array, pieces: Pieces, knots: Array, low: float, high: float, goal: float, together: bool
) -> tuple[float, float, float]:
    """(bound, seen, where) of sup_x max_columns |p(x)·values − F(x)| on [low, high], or of the sum over the columns if
    they count `together`. `goal`: a bound this small is not improved. `seen`, at `where`, only steers.
    """
    keys = Sorted.of(axis)
    values = values[keys.order]
    parts = list(cells(knots, low, high))
    cell = np.array([i for i, _, _ in parts])
    left, right = (np.array([part[k] for part in parts]) for k in (1, 2))
    bound, seen, where, spent = 0.0, 0.0, low, 0
    columns = values.shape[1]
    while len(left):
        spent += len(left)
        tops, shown = np.empty(len(left)), np.empty(len(left))
        step = max(1, _ENTRIES // (columns * 4 * _NEAR))
        for i in range(0, len(left), step):
            part = slice(i, i + step)
            tops[part], shown[part] = _on_intervals(keys, values, pieces, cell[part], left[part], right[part], together)
        best = int(np.argmax(shown))
        if shown[best] > seen:
            seen, where = float(shown[best]), float((left[best] + right[best]) / 2)
        aim = max(_CLOSE * seen, goal)
        good = tops <= aim
        if good.any():
            bound = max(bound, float(tops[good].max()))
        cell, left, right, tops = cell[~good], left[~good], right[~good], tops[~good]
        middle = left + (right - left) / 2
        if len(left) and (spent + 2 * len(left) > _MOST or not np.all((left < middle) & (middle < right))):
            worst = float(tops.max())
            provided(math.isfinite(worst), f"tables: not decided after {spent:,} intervals (near {float(left[0])!r})")
            return max(bound, worst), seen, where
        cell = np.concatenate([cell, cell])
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    return bound, seen, where


@np.errstate(all="ignore")  # what overflows is infinite, or NaN, which is made infinite
def _on_intervals(
    keys: Sorted, values: Array, pieces: Pieces, cell: NDArray[np.intp], left: Array, right: Array, together: bool
) -> tuple[Array, Array]:
    """(intervals,) the statement's bound, largest or summed over the columns, and what the middle shows."""
    centre = left + (right - left) / 2
    tops, shown = np.full(len(left), np.inf), np.zeros(len(left))
    todo, near = np.arange(len(left)), _NEAR
    while len(todo):
        size = min(2 * near + 1, len(keys.slopes))
        q = keys.query(centre[todo])[0]
        first = np.clip(np.searchsorted(keys.earlier, q) - near, 0, len(keys.slopes) - size)
        gone = _far(keys, first, size, left[todo], right[todo])
        enough = gone <= _GONE
        now = todo[enough]
        if len(now):
            step = max(1, _ENTRIES // (size * values.shape[1]))
            for i in range(0, len(now), step):
                use = now[i : i + step]
                tops[use], shown[use] = _bounds(
                    keys, values, pieces, cell[use], left[use], right[use], first[enough][i : i + step], size,
                    gone[enough][i : i + step], together,
                )  # fmt: skip
        todo, near = todo[~enough], 2 * near
    return tops, shown


def _logits(keys: Sorted, index: NDArray[np.intp], base: NDArray[np.intp], x: Array) -> tuple[Array, Array]:
    """(n, m) logits of keys less that of a base key each, at points of x, and how far they may be off."""
    q, dq = keys.query(x)
    dk, db = keys.slopes[index] - keys.slopes[base][:, None], keys.biases[index] - keys.biases[base][:, None]
    product = dk * q[:, None]
    logits = product + db
    off = 4 * _U * (np.abs(product) + np.abs(db)) + np.abs(dk) * dq[:, None] * (1 + 4 * _U)
    return logits, off * _SAFE


def _far(keys: Sorted, first: NDArray[np.intp], size: int, left: Array, right: Array) -> Array:
    """(n,) what the keys outside [first, first + size) weigh at most, relative to the weights within, all over [left,
    right]; infinity where that is not known.
    """
    count = len(keys.slopes)
    if size == count:
        return np.zeros(len(first))
    base = np.clip(first + size // 2, 0, count - 1)
    (q_left, off_left), (q_right, off_right) = keys.query(left), keys.query(right)
    total = np.zeros(len(first))
    for side in (-1, 1):
        edge = first - 1 if side < 0 else first + size
        there = (edge >= 0) if side < 0 else (edge < count)
        at = np.clip(edge, 0, count - 1)
        number = at + 1 if side < 0 else count - at
        if side < 0:  # logits rise up to key `edge`: q is right of where these meet
            sure = (edge < 1) | (q_left - off_left >= keys.earlier[np.clip(edge - 1, 0, count - 2)])
        else:
            sure = (edge > count - 2) | (q_right + off_right <= keys.later[np.clip(edge, 0, count - 2)])
        ends = [_logits(keys, at[:, None], base, x) for x in (left, right)]
        most = np.maximum(*((value + off)[:, 0] for value, off in ends))
        weight = number * np.exp(np.minimum(most, 700.0)) * _SAFE
        total = total + np.where(there, np.where(sure, weight, np.inf), 0.0)
    return total * _SAFE


def _bounds(
    keys: Sorted, values: Array, pieces: Pieces, cell: NDArray[np.intp], left: Array, right: Array,
    first: NDArray[np.intp], size: int, gone: Array, together: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """The same for intervals whose keys that count are `size` from `first` on; the others weigh `gone`."""
    centre = left + (right - left) / 2
    r = np.maximum(right - centre, centre - left) * (1 + 4 * _U)
    index = first[:, None] + np.arange(size)
    rough, _ = _logits(keys, index, first, centre)
    base = first + np.argmax(rough, axis=1)
    logits, unsure = _logits(keys, index, base, centre)
    top = logits.max(axis=1, keepdims=True)
    logits = logits - top
    t = exponentials(np.maximum(logits, -600.0))
    t = t / t.sum(axis=1, keepdims=True)
    s = unsure + _U * (np.abs(logits) + np.abs(top) + size + 40)  # exponentials, their sum, a quotient
    lost = np.any(~(s < 0.01), axis=1)  # NaN too
    sure = np.minimum(s, 0.01).max(axis=1)
    s = np.where(logits < -599, 1.0, np.minimum(s, 0.01) * 1.01)  # below e^-600 nothing but an upper bound is known
    mean = (t * keys.slopes[index]).sum(axis=1, keepdims=True)
    z = keys.w * (keys.slopes[index] - mean) * r[:, None]
    f, off_f = pieces(cell, centre, r)
    gap = values[index] - f[0][:, None, :]
    size_gap = np.abs(gap) * (1 + 4 * _U) + off_f[0][:, None, :]
    power = t
    sums, sizes, moments, doubts = [], [], [], []
    for k in range(_ORDER):
        if k:
            power = power * z / k
        steep = np.abs(power) * (s + (size + 40 + 8 * k) * _U)
        moments.append(power.sum(axis=1))
        doubts.append(steep.sum(axis=1))
        sums.append(np.einsum("ni,nic->nc", power, gap))
        sizes.append(np.einsum("ni,nic->nc", steep, size_gap) + np.abs(power).sum(axis=1)[:, None] * off_f[0])
    tail = []
    for m in range(_ORDER - 3, _ORDER + 1):
        term = t * np.abs(z) ** m * np.exp(np.abs(z)) / math.factorial(m)
        tail.append(term * (1 + 2 * s + 1e-9))
    rest = np.einsum("ni,nic->nc", tail[3], size_gap)
    for j in range(1, 4):
        rest = rest + (np.abs(f[j]) + off_f[j]) * tail[3 - j].sum(axis=1)[:, None]
    found = []
    for k in range(_ORDER):
        total, doubt = sums[k], sizes[k]
        for j in range(1, min(k, 3) + 1):
            part = np.abs(moments[k - j])
            total = total - f[j] * moments[k - j][:, None]
            doubt = doubt + np.abs(f[j]) * (doubts[k - j] + 8 * _U * part)[:, None]
            doubt = doubt + off_f[j] * (part + doubts[k - j])[:, None]
        found.append(total)
        rest = rest + doubt * _SAFE + 16 * _U * np.abs(total)
        if k > 2:
            rest = rest + np.abs(total)
    a, b, c = found[:3]
    peak = np.maximum(np.abs(a + b + c), np.abs(a - b + c))
    vertex = np.abs(a - b * b / (4 * c))
    peak = np.maximum(peak, np.where(np.abs(b) < 2 * np.abs(c) * (1 + 1e-9), np.where(vertex == vertex, vertex, 0), 0))
    peak = peak + 32 * _U * (np.abs(a) + np.abs(b) + np.abs(c))
    tilt = np.abs((t * z).sum(axis=1)) + (t * np.abs(z) * (s + (size + 48) * _U)).sum(axis=1) * _SAFE
    least = 1 - 2 * sure - (size + 40) * _U - tilt
    bound = (peak + rest) / least[:, None] * _SAFE + gone[:, None] * np.ptp(values, axis=0) + 1e-150
    bound = np.where((least > 0)[:, None] & (bound >= 0) & ~lost[:, None], bound, np.inf)
    seen = np.maximum(np.abs(a) - sizes[0], 0.0)
    seen = np.where(seen == seen, seen, 0.0)
    if together:
        return bound.sum(axis=1) * _SAFE, seen.sum(axis=1)
    return bound.max(axis=1), seen.max(axis=1)


def hermite(knots: Array, jets: Array) -> Pieces:
    """F of the columns of jets (n, r, C), r = 1 lines and r = 2 cubics, whose numbers are meant exactly."""
    h = np.diff(knots)
    rows = np.stack([jets[:-1], jets[1:]])
    if jets.shape[1] == 1:
        start, end = rows[0, :, 0], rows[1, :, 0]
        zero = np.zeros_like(start)
        power = np.stack([start, end - start, zero, zero])
        size = np.stack([np.abs(start), np.abs(end) + np.abs(start), zero, zero])
    else:
        (a, d), (b, e) = ((row[:, 0], row[:, 1] * h[:, None]) for row in rows)
        power = np.stack([a, d, 3 * (b - a) - (2 * d + e), 2 * (a - b) + (d + e)])
        a, d, b, e = (np.abs(v) for v in (a, d, b, e))
        size = np.stack([a, d, 3 * (b + a) + (2 * d + e), 2 * (a + b) + (d + e)])

    def pieces(cell: NDArray[np.intp], centre: Array, r: Array) -> tuple[Array, Array]:
        tau = ((centre - knots[cell]) / h[cell])[:, None]
        scale = (r / h[cell])[:, None]
        out, off = [], []
        for k in range(4):
            value, most = (
                sum(math.comb(j, k) * rows[j, cell] * step ** (j - k) for j in range(k, 4))
                for rows, step in ((power, tau), (size, np.abs(tau)))
            )
            out.append(value * scale**k)
            off.append(most * scale**k * 48 * _U)
        return np.stack(out), np.stack(off)

    return pieces
