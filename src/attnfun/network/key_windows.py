"""Which keys matter: windows for one-variable axes whose keys are tangent lines of a convex potential.

| symbol | meaning |
| --- | --- |
| k_0 < k_1 < ..., b_i | slopes and biases of one axis, l_i(q) = k_i q + b_i |
| t_i = (b_i - b_(i+1)) / (k_(i+1) - k_i) | breakpoint: where key i hands over to key i+1 |
| T_i | t_i as stored, a number of the dtype; |T_i - t_i| <= `slack[i]` |
| w | radius: keys i-w .. i+w are kept when T_(i-1) < q <= T_i |

**Dropped mass.** Let T_(i-1) < q <= T_i (T_(-1) = -inf, T_(P-1) = inf). For m > i

    l_i(q) - l_m(q) = (b_i - b_m) - (k_m - k_i) q  >=  (b_i - b_m) - (k_m - k_i) T_i  =: G(i, m),

whatever T_i is. Moreover G(i, m+1) - G(i, m) = (k_(m+1) - k_m)(t_m - T_i), that is G(i, m) = sum_(l=i)^(m-1)
(k_(l+1) - k_l)(t_l - T_i), so G(i, .) increases beyond i as soon as t_m >= T_(m-1) for all m >= 1 and T increases;
both are checked with t_m rounded down. Hence every key above i+w weighs at most exp(-G(i, i+w+1)) times key i. The
same below. With g = the least such G over all i and both sides, computed in float64 and lowered by its rounding error,

    dropped mass  <=  (P - 2w - 1) exp(-g)      for EVERY real q,

and w is the least radius that makes this <= 2^-60 (zero when the window holds all keys). For a product of axes the
masses add. Leaving out a mass eta moves a head by at most eta (max V - min V).

Failure mode: no plan (None) when an axis has r > 1, slopes that do not increase, breakpoints that do not increase or
are too close for the dtype, a radius above RADIUS_LIMIT, or when no axis would drop anything.
"""

import math
from dataclasses import dataclass

import numpy as np

from attnfun.language.numbers import bisected
from attnfun.network.head import Array, Axis, Head, frozen, once_per_dtype

DROPPED = 2.0**-60
RADIUS_LIMIT = 256
_U = 2.0**-53
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LocalAxis:
    """The window of one axis; `breakpoints` T and `steps` k_(i+1) - k_i hold numbers of the dtype."""

    breakpoints: Array
    steps: Array
    slack: Array
    radius: int
    window: int
    dropped: float


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """Windows of a head and a proved bound of the mass they leave out, for every query."""

    axes: tuple[LocalAxis, ...]
    dropped: float

    @property
    def cells(self) -> int:
        """Keys that are looked at for one point."""
        return math.prod(axis.window for axis in self.axes)


@once_per_dtype
def local_plan(head: Head, dtype: str) -> LocalPlan | None:
    """The windows of `head` in `dtype`, or None where the local route does not apply; computed once per head."""
    axes = []
    for axis in head.axes:
        local = _local_axis(axis, dtype)
        if local is None:
            return None
        axes.append(local)
    if all(local.window == axis.keys for local, axis in zip(axes, head.axes, strict=True)):
        return None
    return LocalPlan(tuple(axes), _up(sum(local.dropped for local in axes)))


def _local_axis(axis: Axis, dtype: str) -> LocalAxis | None:
    if axis.dim != 1:
        return None
    k, b, keys = axis.slopes[:, 0], axis.biases, axis.keys
    if keys == 1:
        return LocalAxis(frozen([]), frozen([]), frozen([]), 0, 1, 0.0)
    steps = k[1:] - k[:-1]
    if not (steps > 0.0).all():
        return None
    with np.errstate(all="ignore"):
        exact = (b[:-1] - b[1:]) / steps
        error = 4 * _U * np.abs(exact) + _TINY
        stored = exact.astype(dtype).astype(np.float64)
        slack = (np.abs(stored - exact) + error) * (1 + 4 * _U)
        short = steps.astype(dtype).astype(np.float64)
    usable = np.isfinite(stored).all() and np.isfinite(short).all() and (short > 0.0).all()
    apart = (exact[1:] - error[1:] >= stored[:-1]).all() and (exact[:-1] + error[:-1] <= stored[1:]).all()
    if not (usable and apart and (stored[1:] > stored[:-1]).all()):
        return None
    radius = _radius(k, b, stored)
    if radius is None:
        return None
    window = min(2 * radius + 1, keys)
    dropped = 0.0 if window == keys else _mass(keys - window, _gap(k, b, stored, radius))
    return LocalAxis(frozen(stored), frozen(short), frozen(slack), radius, window, dropped)


def _gap(k: Array, b: Array, stored: Array, radius: int) -> float:
    """A lower bound of every G(i, i +- (radius + 1)); infinity if no key is that far, minus infinity on overflow."""
    reach = radius + 1
    if reach >= len(k):
        return math.inf
    drop = b[:-reach] - b[reach:]
    rise = k[reach:] - k[:-reach]
    last = len(k) - reach
    least = math.inf
    # Upward from i to i + reach the query is at most T_i; downward from i + reach to i it is above T_(i + reach - 1).
    with np.errstate(all="ignore"):
        for first, second in ((drop, rise * stored[:last]), (rise * stored[reach - 1 :], drop)):
            gaps = (first - second) - 8 * _U * (np.abs(first) + np.abs(second))
            if not np.isfinite(gaps).all():
                return -math.inf
            least = min(least, float(gaps.min()))
    return least


def _radius(k: Array, b: Array, stored: Array) -> int | None:
    """The least radius whose dropped mass is proved small enough (gaps grow with the radius: bisection), if any."""
    keys = len(k)
    high = min(RADIUS_LIMIT, keys // 2)

    def enough(radius: int) -> bool:
        return 2 * radius + 1 >= keys or _mass(keys, _gap(k, b, stored, radius)) <= DROPPED

    return bisected(-1, high, enough) if enough(high) else None


def _mass(count: int, gap: float) -> float:
    """count * exp(-gap), rounded up (math.exp is within a few ulp; the factor covers a million of them)."""
    return _up(count * math.exp(min(-gap, 700.0)) * (1 + 1e-9)) if gap < math.inf else 0.0


def _up(value: float) -> float:
    return math.nextafter(value, math.inf) if value > 0.0 else (0.0 if value == 0.0 else math.inf)
