"""One step of a composition: heads of one variable against the function g they stand for, and g's modulus.

The heads are compared with g on the range of their argument, widened where g is defined beyond it, by *nodes* or
*moments*; past an end of g's domain with g's end value, by the heads' Taylor ranges.
Failure mode: Undecided where neither method applies.
"""

import math
from functools import lru_cache, partial

import numpy as np
from flint import arb

from attnfun.certify.moments import prove_by_moments, range_bound
from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.view import Array, Undecided, View
from attnfun.errors import AttnfunError
from attnfun.language import BallAlgebra, Graph, run
from attnfun.language.arrays import values_at
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box
from attnfun.language.slopes import enclosed_slopes


def widened(g: Graph, low: float, high: float, delta: float) -> tuple[float, float]:
    """[low, high] widened by δ at each end beyond which g is still defined."""
    ends = []
    for left, right, wide in (
        (math.nextafter(low - delta, -math.inf), high, 0),
        (low, math.nextafter(high + delta, math.inf), 1),
    ):
        try:
            require_defined(g, Box(("u",), (left,), (right,)))
            ends.append((left, right)[wide])
        except AttnfunError:
            ends.append((low, high)[wide])
    return ends[0], ends[1]


def prove_unary(
    seen: View, g: Graph, reach: tuple[float, float], enough: float, true: tuple[float, float]
) -> tuple[float, str]:
    """A bound of |g(clip(u)) − seen(u)|, clip to seen's interval, for u that passes the `true` range by `reach` (below,
    above) at most; and its method.

    `enough`: a bound that small needs no sharpening; it steers and proves nothing.
    """
    low, high = float(seen.low[0]), float(seen.high[0])
    own, method = _prove_line(seen, g, enough)
    if reach[0] > 0 and low >= true[0]:
        own = max(own, _beyond(seen, g, low, -reach[0], own))
    if reach[1] > 0 and high <= true[1]:
        own = max(own, _beyond(seen, g, high, reach[1], own))
    return own, method


def _prove_line(seen: View, g: Graph, enough: float) -> tuple[float, str]:
    low, high = float(seen.low[0]), float(seen.high[0])
    if not high > low:
        raise Undecided("composition: an argument that does not vary")
    estimate, starts = _sampled(seen, g)
    reasons, aim = [], max(2 * estimate, enough)
    methods = (
        partial(prove_by_nodes, seen, g, ("u",), estimate, aim, witnessed=False),
        partial(prove_by_moments, seen, g, ("u",), estimate, aim, starts),
    )
    for prove in methods:
        try:
            bound = prove()
        except Undecided as why:
            reasons.append(str(why))
            continue
        return bound.high, bound.method
    raise Undecided(f"composition: {g.text(g.outputs[0], 60)} on [{low:.6g}, {high:.6g}]: " + "; ".join(reasons))


def _sampled(seen: View, g: Graph) -> tuple[float, Array]:
    """Float estimate of sup|g − seen| and points behind it, on a grid graded to both ends."""
    low, high = float(seen.low[0]), float(seen.high[0])
    s = np.concatenate([np.linspace(0, 1, 1201), np.geomspace(1e-14, 0.5, 300), 1 - np.geomspace(1e-14, 0.5, 300)])
    u = np.clip(low + (high - low) * np.sort(s), low, high)
    with np.errstate(all="ignore"):
        error = np.abs(values_at(g, ("u",), u[:, None])[:, 0] - seen.floats(u))
    error = np.where(np.isfinite(error), error, 0.0)
    top = np.argsort(error)[-3:]
    return float(error[top[-1]]), u[top][:, None]


def _beyond(seen: View, g: Graph, end: float, reach: float, goal: float) -> float:
    """A bound of |g(end) − seen(u)| for u between `end` and end + reach: Taylor forms of the heads against a
    constant.
    """
    value = run(g, BallAlgebra(clip_sqrt=True), {"u": arb(end)})[0]
    a, b = (end, end + reach) if reach > 0 else (end + reach, end)
    return range_bound(seen, [value], math.nextafter(a, -math.inf), math.nextafter(b, math.inf), goal)


@lru_cache(maxsize=256)
def modulus(g: Graph, low: float, high: float, delta: float) -> float:
    """ω_g(δ) on [low, high]: over pieces that overlap by δ, the smaller of the oscillation and δ times the slope."""
    if delta == 0:
        return 0.0
    width = high - low
    fine = np.concatenate([np.linspace(0, 1, 33), 2.0 ** -np.arange(6.0, 60.0), 1 - 2.0 ** -np.arange(6.0, 50.0)])
    edges = np.unique(np.clip(low + width * fine, low, high))
    edges[0], edges[-1] = low, high
    left, right = edges[:-1], np.minimum(np.nextafter(edges[1:] + delta, np.inf), high)
    slopes, swing = enclosed_slopes(g, ("u",), left[:, None], right[:, None])
    return float(np.max(np.minimum(swing[:, 0], slopes[:, 0, 0] * delta))) * (1 + 1e-12)
