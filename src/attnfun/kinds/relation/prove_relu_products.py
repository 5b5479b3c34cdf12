"""Towers of ReLU units that multiply by squares: how far their features are from the stored ones, rounding included.

| symbol | meaning |
| --- | --- |
| a, b; ε_a, ε_b | two factors as stored polynomials (or products of them), and how far what the network holds is off |
| s_a, s_b | ≥ sup |a|, sup |b| |
| λ, μ, g, s | the stored reading weights, gain and template of a product (`network.towers`) |
| E, L | |s(q) + o − q²| ≤ E on [−1, 1] for some constant o (*pieces*); L = Σ|v_j k_j| ≥ the slope of s |

**Layer 1.** Column by column: `pieces` against the stored polynomial, and its rounding (`pieces.block_rounding`).

**A product.** Let â, b̂ be what the stream holds, |â| ≤ s_a + ε_a and likewise b̂. q^± = λâ ± μb̂ is computed with an
error of at most dq = γ_4 (λ|â| + μ|b̂|) + 8η; it must stay in [−1, 1], or Undecided. The constant o cancels in
s(q⁺) − s(q⁻), and q⁺² − q⁻² = 4λμ âb̂, so with κ ≥ |4gλμ − 1|

    |computed − ab| ≤ |âb̂ − ab| + κ|âb̂| + g (2E + 2L dq) + ρ,     |âb̂ − ab| ≤ ε_a s_b + ε_b s_a + ε_a ε_b,

ρ the rounding of the block of both copies, all at their largest, and u of its size for the products g v_j that are its
values. The product is then a factor of the next layer with s = s_a s_b.
"""

import math

import numpy as np

from attnfun.certify.chebyshev_curve import ChebyshevCurve
from attnfun.certify.pieces import BrokenLine, block_fits, block_rounding, pieces_of_curve, prove_by_pieces
from attnfun.certify.rounding import LARGEST, gamma
from attnfun.certify.view import Array, Undecided
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.prove_coefficients import sup_of_columns, times
from attnfun.kinds.relation.towers import Keys, TowerWeights, parents, tower_network
from attnfun.language import parse

_U, _TINY = 2.0**-53, 2.0**-1074
Names = tuple[str, ...]


def squares_errors(features: Features, side: str, weights: TowerWeights, names: Names) -> tuple[Array, Array, int]:
    """(rank,) bounds of |tower computed − φ|, (rank,) bounds of sup |φ|, and units; raises Undecided."""
    assert weights.squares is not None
    keys, half = tower_network(features, side, weights, names).cost.keys, features.half(side)
    (low, high), blocks = half.box, half.alive
    sups, offs = [], []
    for b, values in zip(blocks, weights.values, strict=True):
        (v,), P = half.places[b], half.tables[b]
        used = np.unique(half.selection[:, b])
        far = max(abs(float(low[v])), abs(float(high[v])))
        for c in range(P.shape[-1]):  # what no product reads must not overflow either: 0 times infinity is no 0
            if not block_fits(weights.keys[v].slopes, weights.keys[v].biases, values[:, c], far, "float64"):
                raise Undecided("towers: ReLU units may overflow")
        off = np.full(P.shape[-1], math.inf)
        off[used] = [column_error(weights.keys[v], values[:, c], P[:, c], float(low[v]), float(high[v])) for c in used]
        sups.append(sup_of_columns(P))
        offs.append(off)
    templates = [_template(t) for t in weights.squares.templates]
    rows = half.distinct(blocks[:1])[0][:, 0]
    size, off = sups[0][rows], offs[0][rows]
    for k in range(1, len(blocks)):
        parent, last = parents(half, k)
        left, right, gain, kind = weights.squares.steps[k - 1]
        E, L, lost, whole = (np.array([t[i] for t in templates])[kind.astype(np.int64)] for i in range(4))
        sa, ea, sb, eb = size[parent], off[parent], sups[k][last], offs[k][last]
        a, b = sa + ea, sb + eb
        if not ((left > 0) & (right > 0) & (gain > 0) & (gain < 1e100)).all():
            raise Undecided("towers: the weights of a product are not usable")
        reach = left * a + right * b
        dq = gamma(4, _U) * reach + 8 * _TINY
        if not ((reach + dq) * (1 + 16 * _U) <= 1.0).all():
            raise Undecided("towers: a product leaves the interval of its squares")
        kappa = np.abs(4 * gain * left * right - 1) + 8 * _U
        rounded = gain * (lost + 2 * _U * whole)
        off = ea * sb + eb * sa + ea * eb + kappa * a * b + gain * (2 * E + 2 * L * dq) + rounded
        off = off * (1 + 1e-12) + 1e-290
        size = times(sa, sb)
    place, scale = half.distinct(blocks)[1], np.abs(math.prod(half.constants(), start=np.ones(half.rank)))
    slack = (len(features.blocks) + 4) * _U
    vanished = np.zeros(half.rank)  # what underflow may take off a constant, enlarged by those after it
    for constant in half.constants():
        vanished = times(vanished, np.abs(constant))
    scale = scale * (1 + slack) + vanished
    out = times(scale, off[place]) * (1 + 1e-12) + times(vanished, size[place])
    most = times(scale, size[place]) * (1 + slack)
    out = (out + 2 * slack * (most + out)) * (1 + 1e-12) + 1e-290  # the constants' products and the read-out
    if not (np.isfinite(out).all() and (most + out < LARGEST["float64"]).all()):
        raise Undecided("towers: the error of a tower is not bounded")
    return out, most, keys


def column_error(
    keys: Keys, values: Array, P: Array, low: float, high: float, slope: float = 0.0, offset: float = 0.0
) -> float:
    """sup |broken line − polynomial|, and the rounding of the line computed in float64."""
    if keys.w != 1.0 or keys.c != 0.0:
        raise Undecided("towers: ReLU units must read the variable itself")
    far, mine = max(abs(low), abs(high)), values != 0
    line = BrokenLine(slope, offset, keys.w, keys.c, keys.slopes[mine], keys.biases[mine], values[mine])
    if not block_fits(keys.slopes, keys.biases, values, far, "float64"):  # silent units too
        raise Undecided("towers: ReLU units may overflow")
    lost, size = block_rounding(line, low, high, "float64")
    bound = pieces_of_curve(line, ChebyshevCurve(P, low, high), low, high, lost).high
    lost += gamma(5, _U) * (size + lost + abs(slope) * far + abs(offset)) + 8 * _TINY
    return (bound + lost) * (1 + 1e-12)


def _template(template: Array) -> tuple[float, float, float, float]:
    """(E, L, rounding of two copies with the larger block's sums, their size) on [−1, 1]."""
    slopes, biases, values = template
    points = np.linspace(-1.0, 1.0, 4 * len(slopes) + 1)
    seen = np.maximum(points[:, None] * slopes + biases, 0.0) @ values - points * points
    offset = -float(seen.max() + seen.min()) / 2
    if not math.isfinite(offset) or not block_fits(slopes, biases, values, 1.0, "float64"):
        raise Undecided("towers: a template is not usable")
    line = BrokenLine(0.0, offset, 1.0, 0.0, slopes, biases, values)
    bound = prove_by_pieces(line, parse("u*u", ("u",)), -1.0, 1.0, 0.0).high
    two = BrokenLine(0.0, 0.0, 1.0, 0.0, *(np.concatenate([a, a]) for a in (slopes, biases, values)))
    lost, size = block_rounding(two, -1.0, 1.0, "float64")
    steep = float(np.abs(slopes * values).sum()) * (1 + 1e-9)
    return bound, steep, lost * (1 + 4 * _U), size
