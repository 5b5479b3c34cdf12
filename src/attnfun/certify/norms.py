"""Norms as one node: a root of a sum of squares follows the points, not the squares.

Let g have no slope at U = 0 (a square root), U = Σ β_i φ_i + c with β_i > 0, c ≥ 0 and φ_i = U_i², and let the heads of
φ_i be *pinned*: |net_i(u) − u²| ≤ a_i + ρ_i u². Near 0 an error δ of U costs √δ, but errors δ_i of the U_i only √(Σ β_i
δ_i²), because √(Σ β_i u_i² + c) is a norm of (√β_i u_i, √c). With û_i what the heads of φ_i see, N̂² = Σ β_i û_i² + c,
A = Σ β_i (a_i + what rounding and mismatch add to φ_i) + m, m the mismatch of U's own query, and ρ = max ρ_i < 1,

    |û − N̂²| ≤ A + ρ N̂²,     |√ū − N̂| ≤ √A + ρ N̂/(2(1 − ρ)),     |N̂ − √U| ≤ D = √(Σ β_i δ_i²),

ū being û or 0, whichever is larger. So |g(ū) − g(U)| ≤ L (D + √A + ρ (√max U + D)/(2(1 − ρ))), L the largest slope of
h(t) = g(t²). Also û ≥ −A: no argument strays further below 0.

The pinned bound is read off the stored weights: Taylor models about 0 give a and ρ there, bounds of the residual
divided by u² elsewhere.
Failure mode: heads that are not pinned (a is then as large as their error); g∘square without a bounded slope.
"""

import math
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnfun.certify.moments import residual_bound, residual_models
from attnfun.certify.view import View
from attnfun.language import Builder, Graph, Node, precision
from attnfun.language.enclosures import upper
from attnfun.language.slopes import enclosed_slopes

_ORDER = 18
_PARTS = 4  # intervals an octave, away from 0


@dataclass(frozen=True)
class Pinned:
    """|net(u) − u²| ≤ a + ρ u² where the step's heads are looked at."""

    a: float
    rho: float


@dataclass(frozen=True)
class Component:
    """√β u_i of a norm: β, its pinned heads, δ_i, and what rounding and mismatch add to u_i²."""

    beta: float
    pinned: Pinned
    shift: float
    extra: float


def prove_pinned(seen: View, unary: Graph) -> Pinned | None:
    """The pinned bound of the heads of u² on the interval of `seen`; None where no form applies."""
    left, right = float(seen.low[0]), float(seen.high[0])
    reach = max(abs(left), abs(right))
    near = reach / 16
    with precision(192):
        models = residual_models(seen, unary, ("u",), _ORDER, -near, near)
        if models is None:
            return None
        c, power = models[0].coefficients, arb(models[0].radius)
        a = upper(abs(c[0]) + abs(c[1]) * power + models[0].rest)
        rho = upper(sum((abs(v) * power**i for i, v in enumerate(c[2:])), arb(0)))
        edges = near * 2.0 ** (np.arange(4 * _PARTS + 1) / _PARTS)
        edges[-1] = reach
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            for p, q in ((low, high), (-high, -low)):
                p, q = max(p, left), min(q, right)
                if p < q:
                    error = residual_bound(seen, unary, ("u",), _ORDER, p, q)
                    rho = max(rho, upper(arb(error) / (arb(low) * arb(low))) if math.isfinite(error) else math.inf)
    return Pinned(a, rho) if math.isfinite(a) and rho < 0.5 else None


def norm_shift(components: list[Component], mismatch: float, high: float) -> tuple[float, float] | None:
    """(bound of |√ū − √U|, A) of the module's statement for U ≤ high; None where it does not hold."""
    beta = [arb(c.beta) for c in components]
    rho = max(c.pinned.rho for c in components)
    if not (rho < 0.5 and high >= 0 and all(c.beta > 0 for c in components)):
        return None
    squared = sum((b * arb(c.shift) ** 2 for b, c in zip(beta, components, strict=True)), arb(0))
    below = sum((b * (arb(c.pinned.a) + arb(c.extra)) for b, c in zip(beta, components, strict=True)), arb(mismatch))
    d = arb(upper(squared)).sqrt()
    moved = d + arb(upper(below)).sqrt() + arb(rho) * (arb(high).sqrt() + d) / (2 * (1 - arb(rho)))
    return upper(moved), upper(below)


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
