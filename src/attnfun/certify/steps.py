"""One step of a composition: heads against the function g they stand for, of one argument or of several.

One argument: the heads are compared with g on the range of their argument, widened where g is defined beyond it, by
*nodes* or *moments*; past an end of g's domain with g's end value, by the heads' Taylor ranges.
Failure mode: Undecided where neither method applies.

Several arguments: one tensor head against g(u_1, …, u_d).

Statement. Let U be in the box B, |û_k − U_k| ≤ δ_k, B' the box B widened by δ_k on both sides of axis k, g analytic on
B', h the head as a function of û. Then

    |h(û) − g(U)| ≤ sup_{B'} |h − g| + sup_{B'} Σ_k |∂_k g| δ_k,

for û and U lie in B', and the segment between them too: along it g moves by ∫ ∇g · (û − U). The first term is proved by
*nodes*, the second by balls for the gradient on a grid of sub-boxes of B'.
Failure modes: Undecided for more than four arguments, for kinks, and where g is not defined on all of B'.
"""

import math
from functools import lru_cache, partial

import numpy as np
from flint import arb

from attnfun.certify.moments import prove_by_moments, range_bound
from attnfun.certify.nodes import prove_by_nodes
from attnfun.certify.view import Array, Undecided, View, provided
from attnfun.errors import AttnfunError
from attnfun.language import ArrayAlgebra, BallAlgebra, Graph, run
from attnfun.language.arrays import values_at
from attnfun.language.definedness import require_defined
from attnfun.language.domain import Box, sub_boxes
from attnfun.language.slopes import enclosed_slopes

_HALVINGS = 120
_CELLS = {2: 24, 3: 8, 4: 5}  # sub-boxes per axis for the gradient


def widened(g: Graph, low: float, high: float, delta: float) -> tuple[float, float]:
    """[low, high] widened by δ at each end beyond which g is still defined."""
    left, right = math.nextafter(low - delta, -math.inf), math.nextafter(high + delta, math.inf)
    below, above = _defined(g, ("u",), (left,), (high,)), _defined(g, ("u",), (low,), (right,))
    return left if below else low, right if above else high


def _defined(g: Graph, names: tuple[str, ...], low: tuple[float, ...], high: tuple[float, ...]) -> bool:
    """Is g proved to be defined and continuous on a box? No box is one on which it is not."""
    try:
        require_defined(g, Box(names, low, high))
    except AttnfunError:
        return False
    return True


def prove_beyond(seen: View, g: Graph, reach: tuple[float, float], true: tuple[float, float], own: float) -> float:
    """A bound of |g(clip(u)) − seen(u)|, clip to seen's interval, for u that passes the `true` range by `reach` (below,
    above) at most; `own` is one for u in seen's interval.
    """
    low, high = float(seen.low[0]), float(seen.high[0])
    if reach[0] > 0 and low >= true[0]:
        own = max(own, _beyond(seen, g, low, -reach[0], own))
    if reach[1] > 0 and high <= true[1]:
        own = max(own, _beyond(seen, g, high, reach[1], own))
    return own


def prove_line(seen: View, g: Graph, enough: float) -> tuple[float, str]:
    """A bound of |g(u) − seen(u)| on seen's interval, and its method.

    `enough`: a bound that small needs no sharpening; it steers and proves nothing.
    """
    low, high = float(seen.low[0]), float(seen.high[0])
    provided(high > low, "composition: an argument that does not vary")
    estimate, starts = _sampled(seen, g)
    reasons, aim = [], max(2 * estimate, enough)
    methods = (
        partial(prove_by_nodes, seen, g, ("u",), estimate, aim, witnessed=False),
        partial(prove_by_moments, seen, g, ("u",), estimate, aim, starts),
    )
    for prove in methods:
        try:
            bound = prove()
            return bound.high, bound.method
        except Undecided as why:
            reasons.append(str(why))
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
    steep, swings = slopes[:, 0, 0] * delta, swing[:, 0]
    for _ in range(_HALVINGS):  # towards a point inside where there is no slope
        worst = int(np.argmax(np.minimum(swings, steep)))
        a, b = left[worst], edges[worst + 1]
        if not (swings[worst] < steep[worst] and b - a > 4 * delta and a < (a + b) / 2 < b):
            break
        edges = np.insert(edges, worst + 1, (a + b) / 2)
        left, right = edges[:-1], np.minimum(np.nextafter(edges[1:] + delta, np.inf), high)
        both = slice(worst, worst + 2)
        slopes, swing = enclosed_slopes(g, ("u",), left[both, None], right[both, None])
        steep = np.concatenate([steep[:worst], slopes[:, 0, 0] * delta, steep[worst + 1 :]])
        swings = np.concatenate([swings[:worst], swing[:, 0], swings[worst + 1 :]])
    return float(np.max(np.minimum(swings, steep))) * (1 + 1e-12)


def prove_tensor(seen: View, g: Graph, names: tuple[str, ...], enough: float) -> float:
    """sup |g − seen| on the box of `seen`; `enough` needs no sharpening, it steers and proves nothing."""
    defined = _defined(g, names, tuple(seen.low.tolist()), tuple(seen.high.tolist()))
    provided(defined, f"composition: {g.text(g.outputs[0], 60)} is not defined around its arguments")
    estimate = _sampled_on_grid(seen, g, names)
    return prove_by_nodes(seen, g, names, estimate, max(2 * estimate, enough), witnessed=False).high


def gradient_shifts(g: Graph, names: tuple[str, ...], seen: View, shifts: tuple[Array, ...]) -> list[float]:
    """For every δ of `shifts`: sup Σ_k |∂_k g| δ_k over the box of `seen`, infinite where balls cannot tell."""
    cells = _CELLS[len(names)]
    edges = [np.linspace(a, b, cells + 1) for a, b in zip(seen.low, seen.high, strict=True)]
    for edge, a, b in zip(edges, seen.low, seen.high, strict=True):
        edge[0], edge[-1] = a, b
    slopes = np.ascontiguousarray(enclosed_slopes(g, names, *sub_boxes(edges), clip_sqrt=False)[0][:, 0].T)
    found = []
    for delta in shifts:
        used = delta > 0
        total = (slopes[used] * delta[used][:, None]).sum(axis=0)
        found.append(float(total.max()) * (1 + 1e-12) if used.any() else 0.0)
    return [value if value == value else math.inf for value in found]


def _sampled_on_grid(seen: View, g: Graph, names: tuple[str, ...]) -> float:
    """A float estimate of sup |g − seen| on a grid, for `nodes` to size itself by."""
    count = {2: 41, 3: 15, 4: 9}[seen.dim]
    t = (1 - np.cos(np.linspace(0, np.pi, count))) / 2
    lines = [np.clip(a + (b - a) * t, a, b) for a, b in zip(seen.low, seen.high, strict=True)]
    grid = {n: m.ravel() for n, m in zip(names, np.meshgrid(*lines, indexing="ij"), strict=True)}
    with np.errstate(all="ignore"):
        f = np.asarray(run(g, ArrayAlgebra(), grid)[0], dtype=np.float64)
        (head,) = seen.heads
        out = head.values[..., 0]
        for axis in head.axes:
            out = np.moveaxis(np.tensordot(axis.weights(lines[axis.variable]), out, axes=(1, 0)), 0, -1)
        error = np.abs(np.broadcast_to(f, (count**seen.dim,)) - (out.ravel() + seen.bias[0]))
    return float(np.max(np.where(np.isfinite(error), error, 0.0)))
