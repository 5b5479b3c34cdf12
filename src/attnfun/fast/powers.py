"""Heads of one query as polynomials of it, with a proved error.

A head of one axis is N(q)/D(q), N = Σ_j V_j e^(l_j), D = Σ_j e^(l_j), l_j = k_j q + b_j. Let P be the polynomial
through it at Chebyshev's points, cut where its coefficients are tiny, then written in powers of y = (q − mid)·scale and
rounded to the dtype. Whatever P is,

    |head − P| = |N − P D| / D,

and N − P D is entire. On a piece q = c + r t, |t| <= 1, the exponential of key j is e^(l_j(c)) Σ_i (k_j r t)^i/i!; cut
after degree L it is off by at most e^(l_j(c)) (|k_j| r)^(L+1)/(L+1)! · e^(|k_j| r). So N − P D is a polynomial, its
coefficients in balls, plus that: the sum of their sizes bounds it, and D >= Σ_j e^(l_j(c) − |k_j| r).
Pieces are as wide as the points of Chebyshev are apart: then the sums are a small factor above the maximum.

**Error.** The above; Horner's rule, in which the coefficient of y^k meets at most 2k + 1 roundings: Σ γ_(2k+2) |c_k|;
y, two roundings of itself: 2.01 u Σ k |c_k|; all times reach^degree. It is taken where that is at most what
certificates count for the sums of the head at every point (`lattice.py`).

Failure mode: None where the head turns too fast for degree DEGREE, or cancels more than its certificate counts.
"""

import math
from itertools import pairwise

import numpy as np
from flint import arb, arb_mat, arb_poly

from attnfun.certify.rounding import ROUNDOFF, gamma
from attnfun.fast.lattice import PAST, Polynomial, counted, of_chebyshev
from attnfun.language import precision
from attnfun.language.enclosures import upper
from attnfun.network.head import Array, Head

DEGREE = 40
_BITS = 160


def powers(head: Head, reached: tuple[float, float], dtype: str) -> Polynomial | None:
    """The head as a polynomial of its query in this range, or None."""
    low, high = reached
    kind = np.dtype(dtype)
    if head.query_dim != 1 or head.keys > 4 * DEGREE or not high - low > 1e-6 * (abs(low) + abs(high)):
        return None
    allowed = counted(head, [reached], ROUNDOFF[dtype])
    mid, scale = float(kind.type(low + (high - low) / 2)), float(kind.type(2 / (high - low)))
    with precision(_BITS):
        waves = _waves(head, mid, scale)
        sizes = np.array([[upper(abs(c)) for c in own] for own in waves])
        tails = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1]
        enough = np.flatnonzero((tails <= 0.2 * allowed[:, None]).all(axis=0))
        if not len(enough) or not 1 <= enough[0] <= DEGREE:
            return None
        n = 4 * math.ceil(int(enough[0]) / 4)
        basis = of_chebyshev(n - 1)
        stored = np.empty((head.outputs, n))
        for o, own in enumerate(waves):
            exact = (basis * arb_mat(n, 1, own[:n])).entries()
            stored[o] = [float(kind.type(float(c.mid()))) for c in exact]
        error = _apart(head, mid, scale, stored)
    u, k = ROUNDOFF[dtype], np.arange(n)
    rho = PAST**n * 1.001
    error = error + np.abs(stored) @ np.array([gamma(2 * i + 2, u) for i in range(n)]) * rho
    error = (error + 2.01 * u * (np.abs(stored) @ k) * rho) * (1 + 1e-9)
    if not (error <= allowed).all():
        return None
    far = float(kind.type(max(abs(low), abs(high)) * (1 + 1e-5)))
    return Polynomial((0,), ((0.0, 0.0, mid, scale, far),), ((stored[:, ::-1].copy(), 0),), PAST, error)


def _waves(head: Head, mid: float, scale: float) -> list[list[arb]]:
    """For each output the Chebyshev coefficients of the polynomial through the head at DEGREE + 8 points."""
    n = DEGREE + 8
    angles = [(arb(2 * i + 1) / (2 * n)) * arb.pi() for i in range(n)]
    points = [arb(mid) + a.cos() / arb(scale) for a in angles]
    slopes, biases = head.axes[0].slopes[:, 0].tolist(), head.axes[0].biases.tolist()
    terms = [[(arb(k) * q + arb(b)).exp() for k, b in zip(slopes, biases, strict=True)] for q in points]
    totals = [sum(own, arb(0)) for own in terms]
    values = arb_mat(terms) * arb_mat(head.values.tolist())
    table = [[values[i, o] / totals[i] for i in range(n)] for o in range(head.outputs)]
    waves = arb_mat([[(a * k).cos() * (2 if k else 1) / n for k in range(n)] for a in angles])
    found = arb_mat(table) * waves
    return [[found[o, k] for k in range(n)] for o in range(head.outputs)]


def _apart(head: Head, mid: float, scale: float, stored: Array) -> Array:
    """(p,) upper bounds of |head − P| for |y| <= PAST."""
    n = stored.shape[1]
    count = 2 * n
    edges = -PAST * np.cos(np.pi * np.arange(count + 1) / count)
    edges[0], edges[-1] = -PAST, PAST
    slopes, biases = head.axes[0].slopes[:, 0].tolist(), head.axes[0].biases.tolist()
    polynomials = [arb_poly([arb(float(c)) for c in own]) for own in stored]
    worst = np.zeros(head.outputs)
    for a, b in pairwise(edges):
        centre, radius = arb(float(a + (b - a) / 2)), arb(float((b - a) / 2 * (1 + 1e-9)))
        c, r = arb(mid) + centre / arb(scale), radius / arb(scale)
        steep = max(abs(k) for k in slopes) * float(upper(r))
        L = max(8, math.ceil(4 * steep)) + 24
        total, tops = arb_poly([0]), [arb_poly([0])] * head.outputs
        least, lost, lost_values = arb(0), arb(0), [arb(0)] * head.outputs
        for k, bias, values in zip(slopes, biases, head.values.tolist(), strict=True):
            weight, step = (arb(k) * c + arb(bias)).exp(), arb(k) * r
            size = abs(step)
            least += weight * (-size).exp()
            rest = weight * size ** (L + 1) / arb(L + 2).gamma() * size.exp()
            series, term = [], weight
            for i in range(L + 1):
                series.append(term)
                term = term * step / (i + 1)
            own = arb_poly(series)
            total, lost = total + own, lost + rest
            tops = [top + own * arb(v) for top, v in zip(tops, values, strict=True)]
            lost_values = [one + rest * abs(arb(v)) for one, v in zip(lost_values, values, strict=True)]
        for o, (top, polynomial) in enumerate(zip(tops, polynomials, strict=True)):
            shifted = polynomial(arb_poly([centre, radius]))
            size = sum((abs(shifted[i]) for i in range(n)), arb(0))
            gap = top - shifted * total
            bound = sum((abs(gap[i]) for i in range(len(gap))), lost_values[o] + size * lost) / least
            worst[o] = max(worst[o], upper(bound))
    return worst
