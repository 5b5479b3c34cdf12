"""Norms as one node: a root of a sum of squares follows the points, not the squares.

Let g have no slope at U = 0 (a square root), U = Σ β_i φ_i + c with β_i > 0, c ≥ 0 and φ_i = U_i², and let the heads of
φ_i be *pinned*: net_i(u) as computed, or in real arithmetic, has

    |net_i(u) − u²| ≤ a_i + σ_i |u| + ρ_i u².

Near 0 an error δ of U costs √δ, but errors δ_i of the U_i only √(Σ β_i δ_i²), because √(Σ β_i u_i² + c) is a norm of
(√β_i u_i, √c). Let û_i be what the heads of φ_i see, N̂² = Σ β_i û_i² + c, and û what the heads of g see, with

    |û − c − Σ β_i net_i(û_i)| ≤ m + θ Σ β_i |net_i(û_i)|.

With A = (1 + θ) Σ β_i a_i + m, S = (1 + θ) √(Σ β_i σ_i²) and ρ = max ρ_i + θ (1 + max ρ_i) < 1

    |û − N̂²| ≤ A + S N̂ + ρ N̂²,     |N̂ − √U| ≤ D = √(Σ β_i δ_i²),     so N̂ ≤ M = √max U + D.

Let ū be û or 0, whichever is larger, A' = max(A, S²/(4(1 + ρ))), and t the positive root of (1 − ρ) t² = S t + A. Then

    |√ū − N̂| ≤ E = max(t, √(A' + S M + (1 + ρ) M²) − M, M − √max((1 − ρ) M² − S M − A, 0)),

and |g(ū) − g(U)| ≤ L (D + E), L the largest slope of h(x) = g(x²). Also û ≥ −A − S²/(4(1 − ρ)): no argument strays
further below 0.

Proof. Σ β_i σ_i |û_i| ≤ √(Σ β_i σ_i²) N̂ by Cauchy and Schwarz: the first. A' + S x + (1 + ρ) x² is a square and a
number that is not negative, so its root is convex in x, and so is that root less x: between 0 and M it is largest at an
end, and √A' ≤ t. The root of (1 − ρ) x² − S x − A is concave for x ≥ t, so x less it is largest at t or at M; and for
N̂ ≤ t, N̂ − √ū ≤ t. The last: (1 − ρ) x² − S x − A is least at x = S/(2(1 − ρ)).

The pinned bound is read off the stored weights. Where the heads have a Taylor model about 0, that gives a and ρ there,
and bounds of the residual divided by u² elsewhere do; what rounding adds to φ_i counts in a_i, as it may be anything
near 0. Heads that have none there are ladders, self-similar: the residual and its rounding are bounded on geometric
shells, both in proportion to what they should be, and so is the rounding of Σ β_i φ_i, whose terms are not negative
but for a_i: θ = γ in place of a constant.
Of all a, σ, ρ that hold on every shell those are taken that cost about least.
Failure mode: heads that are not pinned (a is then as large as their error); g∘square without a bounded slope.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnfun.certify.moments import residual_bound, residual_models
from attnfun.certify.rounding import ROUNDOFF, gamma, shell_bounds
from attnfun.certify.view import Array, HeadView, View
from attnfun.language import Builder, Graph, Node, precision
from attnfun.language.enclosures import lower, upper
from attnfun.language.slopes import enclosed_slopes

_ORDER = 18
_PARTS = 4  # intervals an octave, away from 0
_OCTAVES = 200  # of shells, at most
_HALVINGS = 4  # of a shell's polynomial
_HALVES = 4  # parts of a shell on which rounding is bounded


@dataclass(frozen=True)
class Pinned:
    """|net(u) − u²| ≤ a + σ |u| + ρ u² where the step's heads are looked at; `computed`: with its rounding."""

    a: float
    sigma: float
    rho: float
    computed: bool = False


@dataclass(frozen=True)
class Square:
    """A step φ = U² that may be part of a norm: its heads as a function of u, and each with the bound of how far its
    argument is from the first one's, in units of its query; of each kind ("computed", "exact") δ and what rounding and
    mismatch add to φ. `bare`: the stream carries no affine part of it.
    """

    seen: View
    unary: Graph
    pieces: tuple[tuple[HeadView, float], ...]
    bare: bool
    errors: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Component:
    """√β u_i of a norm: β, its pinned heads, δ_i, and what rounding and mismatch add to u_i²."""

    beta: float
    pinned: Pinned
    shift: float
    extra: float


def prove_pinned(square: Square, dtype: str) -> Pinned | None:
    """The pinned bound of the heads of u² on the interval of `seen`; None where no form applies."""
    seen, unary = square.seen, square.unary
    left, right = float(seen.low[0]), float(seen.high[0])
    reach = max(abs(left), abs(right))
    near = reach / 16
    with precision(192):
        models, a, rho = residual_models(seen, unary, ("u",), _ORDER, -near, near), math.inf, math.inf
        if models is not None:
            c, power = models[0].coefficients, arb(models[0].radius)
            a = upper(abs(c[0]) + abs(c[1]) * power + models[0].rest)
            rho = upper(sum((abs(v) * power**i for i, v in enumerate(c[2:])), arb(0)))
        if not (math.isfinite(a) and rho < 0.5):
            return _graded(square, reach, dtype) if square.bare else None
        edges = near * 2.0 ** (np.arange(4 * _PARTS + 1) / _PARTS)
        edges[-1] = reach
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            for p, q in ((low, high), (-high, -low)):
                p, q = max(p, left), min(q, right)
                if p < q:
                    error = residual_bound(seen, unary, ("u",), _ORDER, p, q)
                    rho = max(rho, upper(arb(error) / (arb(low) * arb(low))) if math.isfinite(error) else math.inf)
    return Pinned(a, 0.0, rho) if rho < 0.5 else None


def _graded(square: Square, reach: float, dtype: str) -> Pinned | None:
    """The pinned bound of ladders, rounding included, from shells down to where the steepest key is flat."""
    left, right = float(square.seen.low[0]), float(square.seen.high[0])
    steepest = max(float(np.abs(axis.slopes * axis.w).max()) for head, _ in square.pieces for axis in head.axes)
    octaves = math.ceil(math.log2(max(16 * steepest * reach, 2.0))) if steepest * reach < 2.0**_OCTAVES else _OCTAVES
    edges = reach * 2.0 ** (np.arange(-octaves * _PARTS, 1) / _PARTS)
    edges[-1] = reach
    inner = float(edges[0])
    low, high = np.r_[-edges[:0:-1], -inner, edges[:-1]], np.r_[-edges[-2::-1], inner, edges[1:]]
    low, high = np.maximum(low, left), np.minimum(high, right)
    some = low < high
    low, high = low[some], high[some]
    from_zero = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    error = np.array([
        residual_bound(square.seen, square.unary, ("u",), _ORDER, p, q, halvings=_HALVINGS)
        for p, q in zip(low.tolist(), high.tolist(), strict=True)
    ])  # fmt: skip
    parts = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _HALVES + 1)
    parts[:, -1] = high
    boxes = np.stack([parts[:, :-1].ravel(), parts[:, 1:].ravel()], axis=1)
    lost, sizes = np.zeros(len(boxes)), np.zeros(len(boxes))
    for head, dq in square.pieces:
        moved, size = shell_bounds(head.axes[0], head, boxes, dtype, dq)
        lost, sizes = lost + moved[:, 0], sizes + moved[:, 0] + size[:, 0]
    lost = lost + gamma(len(square.pieces) - 1, ROUNDOFF[dtype]) * sizes
    error = (error + lost.reshape(-1, _HALVES).max(axis=1)) * (1 + 1e-12)
    return _least(from_zero, error, reach) if np.isfinite(error).all() else None


def _least(at: Array, error: Array, reach: float) -> Pinned | None:
    """a, σ, ρ with error ≤ a + σ p + ρ p² on every shell |u| ≥ p, of which √a + σ + ρ·reach/2 is about least."""
    order = np.argsort(at)
    at, error = at[order], error[order]
    best, found = math.inf, None
    for i in range(0, len(at), 2):
        a = float(error[: i + 1].max())
        p, left = at[i + 1 :], np.maximum(error[i + 1 :] - a, 0.0)
        if not len(p) or not p[0] > 0:
            continue
        sigma = np.append(float((left / p).max()) * 2.0 ** -np.arange(0, 12, 0.25), 0.0)
        over = np.maximum(left - sigma[:, None] * p, 0.0) + 16 * 2.0**-53 * error[i + 1 :]
        rhos = (over / p**2).max(axis=1) * (1 + 1e-12)
        cost = math.sqrt(a) + sigma + rhos * reach / 2
        k = int(np.argmin(cost))
        if cost[k] < best and rhos[k] < 0.5:
            best, found = float(cost[k]), Pinned(a, float(sigma[k]), float(rhos[k]), True)
    return found


def norm_shift(components: list[Component], mismatch: tuple[float, float], high: float) -> tuple[float, float] | None:
    """(D + E, how far û may stray below 0) of the module's statement for U ≤ high and (m, θ); None where it does not
    hold.
    """
    beta = [arb(c.beta) for c in components]
    more = 1 + arb(mismatch[1])
    rho = upper(max(c.pinned.rho for c in components) * more + arb(mismatch[1]))
    if not (rho < 0.5 and high >= 0 and all(c.beta > 0 for c in components)):
        return None
    squared = sum((b * arb(c.shift) ** 2 for b, c in zip(beta, components, strict=True)), arb(0))
    below = sum((b * (arb(c.pinned.a) + arb(c.extra)) for b, c in zip(beta, components, strict=True)), arb(0))
    below = below * more + arb(mismatch[0])
    slanted = sum((b * arb(c.pinned.sigma) ** 2 for b, c in zip(beta, components, strict=True)), arb(0))
    d, s, a = arb(upper(squared)).sqrt(), arb(upper(arb(upper(slanted)).sqrt() * more)), arb(upper(below))
    most, more, less = arb(upper(arb(high).sqrt() + d)), 1 + arb(rho), 1 - arb(rho)
    first = (s + (s * s + 4 * less * a).sqrt()) / (2 * less)
    above = (arb(max(upper(a), upper(s * s / (4 * more)))) + s * most + more * most**2).sqrt() - most
    under = most - arb(max(lower(less * most**2 - s * most - a), 0.0)).sqrt()
    return upper(d + arb(max(map(upper, (first, above, under))))), upper(a + s * s / (4 * less))


def root_slope(g: Graph, high: float) -> float:
    """sup |h'| on [0, √high] of h(t) = g(t²), √u taken as t; infinity where it is not bounded."""
    out = Builder()
    t = out.var("u")

    def of_square(node: Node, args: list[int]) -> int | None:
        if node.op == "var":
            return out.apply("powi", t, value=2)
        return t if node.op == "sqrt" and g.nodes[node.args[0]].op == "var" else None

    at = out.copy(g.nodes, of_square)
    edges = np.linspace(0.0, math.nextafter(upper(arb(high).sqrt()), math.inf), 129)
    graph = out.graph([at[o] for o in g.outputs])
    return float(np.max(enclosed_slopes(graph, ("u",), edges[:-1, None], edges[1:, None])[0][:, 0]))
