"""Rounding of a block of ReLU units of one variable, computed in its dtype in any order.

| symbol | meaning |
| --- | --- |
| u, η, γ_n | unit roundoff of the dtype, its least positive number, n u/(1 − n u) |
| q, p_j, r_j | the query as computed; k_j q + b_j; relu(p_j), in real arithmetic |
| A(q) | Σ_j |v_j| r_j(q) |

A unit is one product and one addition (or both with one rounding), so what it holds is off by at most

    u r_j + (1 + u) π_j + 3η,       π_j = u |k_j| max|q|, or 0 if |k_j| is a power of two: such products are exact,

also where p_j ≤ 0: then relu returns 0, or something below (1 + u) π_j + 3η. The sum of n products v_j r_j costs
γ_{n+1} of the sum of their sizes, and η each where they underflow; zeros of other blocks add nothing. Hence

    |computed − block(q)| ≤ (u + γ_{n+1}(1 + u)) A(q) + (1 + γ_{n+1}) Σ_j |v_j| ((1 + u) π_j + 3η) + 2(n + 1) η.

A is a sum of convex functions of q, so it is largest at an end of the interval of q; and |block(q)| ≤ A(q). Units that
break outward from a middle keep it as small as the bends of the function are, for those on the far side are silent. The
error of q itself is no matter of this file: *composition* counts it as an error of the argument.
"""

import numpy as np

from attnfun.certify.pieces import BrokenLine
from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma
from attnfun.certify.view import Array

_SAFE = 1 + 1e-9  # the bound itself is computed in float64, all terms positive


def block_fits(slopes: Array, biases: Array, values: Array, q: float, dtype: str) -> bool:
    """Can no unit and no sum overflow for queries of at most this size?"""
    with np.errstate(over="ignore"):
        seen = np.abs(slopes) * q + np.abs(biases)
        total = q + float(np.max(seen)) + float(np.sum(np.abs(values) * seen)) + float(np.max(np.abs(values)))
        return bool(total < LARGEST[dtype])


def block_rounding(line: BrokenLine, left: float, right: float, dtype: str) -> tuple[float, float]:
    """(bound of |computed − block|, bound of |block|) for q = w u + c with u in [left, right]."""
    u, tiny, n = ROUNDOFF[dtype], TINY[dtype], len(line.slopes)
    k, v = np.abs(line.slopes), np.abs(line.values)
    q = (abs(line.w) * max(abs(left), abs(right)) + abs(line.c)) * _SAFE
    blur = 16 * 2.0**-53 * (k * q + np.abs(line.biases))  # float64 error of p as computed here
    size = 0.0
    for end in (left, right):
        p = line.slopes * (line.w * end + line.c) + line.biases + blur
        size = max(size, float(np.sum(v * np.maximum(p, 0.0))) * _SAFE)
    exact = (np.frexp(k)[0] == 0.5) | (k == 0)
    lost = (1 + u) * u * np.where(exact, 0.0, k * q) + 3 * tiny
    g = gamma(n + 1, u)
    rounding = (u + g * (1 + u)) * size + (1 + g) * float(np.sum(v * lost)) + 2 * (n + 1) * tiny
    return rounding * _SAFE, size + (n + 1) * tiny
