"""Towers realised as networks: how far they are from the stored features, rounding included, and what the score loses.

| symbol | meaning |
| --- | --- |
| P_bc, h_bc | column c of block b: the stored polynomial, and Σ_j weights_j V_b[j, c], what the tower has for it |
| δ_bc | ≥ sup |h_bc − P_bc| |
| s_bc | ≥ sup |P_bc| (`prove_coefficients.sup_of_columns`) |

**Attention.** The softmax weights of variable v are analytic where |Im| is small (`ellipse`), and Σ_j |weights_j| ≤ F
on E_ρ. Their Chebyshev interpolants of N' nodes are enclosed in balls; so h_bc is a known table of coefficients, and

    δ_bc = Σ|table − P| + max_j |V_b[j, c]| Σ_v (Π_{before} Λ) 4 F_v ρ_v^{−(N'−1)}/(ρ_v − 1)  + float64 errors,

the tail as in `prove_coefficients`, for a head is an average of its values where the other variables are real.
Feature i is off by |Π_b (P + δ) − Π_b P| ≤ Σ_b δ_b Π_{before} s Π_{after} (s + δ), plus the rounding of the products
that make the head's values, (B − 1) u max_j|V_ji| (weights are an average), plus the rounding of the network computed
in float64 by any route, `rounding`, and of its read-out. An affine part left to the read-out adds Σ_k |slope_ik| λ_k,
λ_k ≥ sup |Σ_j weights_j R_k[j] − x_k| found in the same way, and the rounding of the differences.

**Attention in two layers** (`TowerWeights.groups`): `prove_tower_products`.

**MLP.** A tower of ReLU units of one variable is proved column by column by `pieces` against the polynomial itself;
several variables: `_squares_errors`.

**Score.** With η_i, θ_i the errors of φ_i, ψ_i and a_i, b_i ≥ sup |φ_i|, sup |ψ_i|:
|⟨φ̂, ψ̂⟩ − ⟨φ, ψ⟩| ≤ Σ_i (η_i b_i + θ_i a_i + η_i θ_i), the δ(2R + δ) of the theory coordinate by coordinate; the inner
product of r terms in float64 adds γ_{r+1} Σ (a + η)(b + θ).
"""

import math
from functools import lru_cache

import numpy as np
from flint import arb

from attnfun.certify.chebyshev_curve import ChebyshevCurve
from attnfun.certify.exact import weight_table
from attnfun.certify.nodes import chebyshev_nodes
from attnfun.certify.pieces import BrokenLine, block_fits, block_rounding, pieces_of_curve, prove_by_pieces
from attnfun.certify.rounding import LARGEST, gamma, line_bounds, product_bounds
from attnfun.certify.view import Array, LineAxis, Undecided, provided, view
from attnfun.kinds.relation import prove_coefficients as chebyshev
from attnfun.kinds.relation.features import Features, Half
from attnfun.kinds.relation.prove_coefficients import multiplied, times
from attnfun.kinds.relation.prove_tower_products import head_ellipse, product_tower_errors, require_fits
from attnfun.kinds.relation.towers import Affine, Keys, TowerWeights, parents, tower_network
from attnfun.language import parse, precision
from attnfun.language.enclosures import upper
from attnfun.network import Network
from attnfun.network.head import frozen

_U, _TINY = 2.0**-53, 2.0**-1074
Names = tuple[str, ...]


def tower_errors(features: Features, side: str, weights: TowerWeights, names: Names) -> tuple[Array, Array]:
    """(rank,) bounds of |tower computed − φ|, (rank,) bounds of sup |φ|; raises Undecided."""
    if weights.squares is not None:
        return _squares_errors(features, side, weights, names)
    if weights.groups:
        return product_tower_errors(features.half(side), weights)
    network, half = tower_network(features, side, weights, names), features.half(side)
    selection = half.selection
    with precision(128):
        deltas = [_block_delta(half, weights, b) for b in range(len(half.tables))]
    sups = [chebyshev.sup_of_columns(P) for P in half.tables]
    off, size = np.zeros(half.rank), np.ones(half.rank)
    for b, (delta, sup) in enumerate(zip(deltas, sups, strict=True)):
        off, size = multiplied(off, size, delta[selection[:, b]], sup[selection[:, b]])
    off, size = off * (1 + 1e-12), size * (1 + 1e-12)
    if not weights.mlp:
        off = off + _value_rounding(half, weights) + _attention_rounding(network, half.rank)
        if weights.affine is not None:
            off = off + _ramp_errors(half, weights, weights.affine)
    provided(np.isfinite(off).all() and np.isfinite(size).all(), "towers: the error of a tower is not bounded")
    return off, size


def score_error(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[float, float]:
    """(what the towers' errors cost, what the inner product costs in float64) from (errors, sizes) of both sides."""
    (eta, a), (theta, b) = left, right
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is not a bound, and callers look
        carried = float(eta @ b + theta @ a + eta @ theta) * (1 + (3 * len(a) + 8) * _U)
        inner = gamma(len(a) + 1, _U) * float((a + eta) @ (b + theta)) * (1 + (2 * len(a) + 8) * _U)
    return carried, inner


def score_loss(left: tuple[Array, Array], right: tuple[Array, Array]) -> float:
    """Both together; raises Undecided where that is not a bound."""
    loss = sum(score_error(left, right)) * (1 + 8 * _U)
    provided(math.isfinite(loss), "the rounding of the towers is not bounded")
    return loss


# ---------------------------------------------------------------- attention


def _block_delta(half: Half, weights: TowerWeights, b: int) -> Array:
    """(columns,) δ_bc; infinite for columns that the selection does not use."""
    P, (low, high) = half.tables[b], half.box
    used = np.unique(half.selection[:, b])
    out = np.full(P.shape[-1], math.inf)
    if weights.mlp:
        assert weights.lines is not None
        keys, V, ends = weights.keys[0], weights.values[0], (float(low[0]), float(high[0]))
        out[used] = [_column_error(keys, V[:, c], P[:, c], *ends, *map(float, weights.lines[:, c])) for c in used]
    else:
        out[used] = _head_gap(weights, half.places[b], half.box, weights.values[b][..., used], P[..., used])
    return out


def _head_gap(weights: TowerWeights, places: tuple[int, ...], box: tuple[Array, Array], V: Array, P: Array) -> Array:
    """(m,) sup |Σ_j weights_j V_j − P| for values (keys…, m) and Chebyshev coefficients (N…, m) of these variables."""
    m = V.shape[-1]
    found = [_weight_coefficients(weights.keys[v].line(), float(box[0][v]), float(box[1][v])) for v in places]
    top = np.abs(V.reshape(-1, m)).max(axis=0)
    total = chebyshev.summed_tails([(len(H), tail) for H, _, tail in found])
    shape = tuple(max(n, len(H)) for n, H in zip(P.shape, (table[0] for table in found), strict=False))
    value, weight, spread, relative = V, np.abs(V), np.abs(V), 8 * _U
    for j, (H, rad, _) in enumerate(found):
        value = np.moveaxis(np.tensordot(H, value, axes=(1, j)), 0, j)
        size = np.abs(H).sum(axis=0) * (1 + 1e-9)  # Σ_i |H_ij|: a key's own coefficients
        at = [-1 if i == j else 1 for i in range(V.ndim)]
        weight = weight * size.reshape(at)
        spread = spread * (size + rad).reshape(at)
        relative += (H.shape[1] + 2) * _U
    flat = (weight.reshape(-1, m).sum(axis=0), spread.reshape(-1, m).sum(axis=0))
    relative = 1.01 * relative + (V.size // m + 8) * 2 * _U
    enclosed = np.maximum(flat[1] - flat[0], 0.0) + relative * flat[1]
    mine = chebyshev.padded(value, (*shape, m))
    gap = np.abs(mine - chebyshev.padded(P, (*shape, m))).reshape(-1, m).sum(axis=0) * (1 + (mine.size + 8) * _U)
    return np.asarray((gap + enclosed + top * upper(total)) * (1 + 1e-9) + 1e-290)


def _value_rounding(half: Half, weights: TowerWeights) -> Array:
    """(rank,) what the products and differences that make the head's values lose: its weights are an average."""
    size, vanished = np.ones(half.rank), np.zeros(half.rank)
    for b, V in enumerate(weights.values):
        top = np.abs(V.reshape(-1, V.shape[-1])).max(axis=0)[half.selection[:, b]]
        size, vanished = times(size, top), times(vanished, top)  # what underflows is enlarged by later factors
    steps = len(half.tables) + 1
    if weights.affine is not None:
        lines = np.abs(weights.affine.lines)
        size = size + lines[:, -1] + lines[:, :-1] @ np.array([np.abs(r).max() for r in weights.affine.ramps])
        steps += 2 * lines.shape[1] + 2
    return np.asarray(steps * _U * size * (1 + 1e-9) + vanished + steps * 2.0**-1074)


def _ramp_errors(half: Half, weights: TowerWeights, affine: Affine) -> Array:
    """(rank,) Σ_k |slope_ik| λ_k, λ_k ≥ sup |Σ_j weights_j R_k[j] − x_k|."""
    low, high = half.box
    total = np.zeros(half.rank)
    with precision(128):
        for v, ramp in enumerate(affine.ramps):
            line = np.array([low[v] / 2 + high[v] / 2, high[v] / 2 - low[v] / 2])
            gap = float(_head_gap(weights, (v,), (low, high), ramp[:, None], line[:, None])[0])
            gap += 4 * _U * (abs(low[v]) + abs(high[v])) + 2.0**-1070
            total = total + np.abs(affine.lines[:, v]) * gap
    return np.asarray(total * (1 + 1e-9))


def _weight_coefficients(axis: LineAxis, low: float, high: float) -> tuple[Array, Array, arb]:
    """(H (N', keys) coefficients of the softmax weights, (keys,) Σ_i their radii, bound of the interpolation tail)."""
    if axis.size == 1:
        return np.ones((1, 1)), np.zeros(1), arb(0)
    return _weights_of(axis.w, axis.c, axis.slopes.tobytes(), axis.biases.tobytes(), low, high)


@lru_cache(maxsize=8)
def _weights_of(w: float, c: float, slopes: bytes, biases: bytes, low: float, high: float) -> tuple[Array, Array, arb]:
    """The same by content: blocks, ramps and both sides often have the same keys."""
    axis = LineAxis(0, w, c, np.frombuffer(slopes), np.frombuffer(biases))
    n, rho, factor = head_ellipse(axis, low, high, 1e-17)
    table = chebyshev.ball_matrix(n) * weight_table(axis, chebyshev_nodes(n, low, high))
    mids, rads = chebyshev.floats(table)
    tail = 4 * factor * arb(rho) ** (1 - n) / (arb(rho) - 1)
    return frozen(mids), frozen(rads.sum(axis=0) * (1 + 1e-9)), tail


def _attention_rounding(network: Network, rank: int) -> Array:
    """(rank,) |computed − exact| of the head and of the identity that reads it out."""
    seen = view(network, network.low, network.high)
    (head,) = seen.heads
    require_fits(head, seen.low, seen.high)
    if len(head.axes) == 1:
        axis = head.axes[0]
        relative = gamma(seen.dim + 1, _U)
        dq = gamma(seen.dim + 1, _U) * abs(axis.c) + (abs(axis.w) + 4) * 2.0**-1074
        k = axis.variable
        errors, sizes = line_bounds(axis, head, float(seen.low[k]), float(seen.high[k]), "float64", dq, relative)
    else:
        small = rank * math.prod(a.size for a in head.axes) < 2_000_000
        errors, sizes = product_bounds(seen, head, "float64", envelope=small)
    # the read-out: a product by 1, the affine part, exact zeros; two roundings to spare
    reaches = np.maximum(np.abs(seen.low), np.abs(seen.high))
    with np.errstate(over="ignore", invalid="ignore"):
        carried = sizes + errors + np.abs(seen.bias) + np.abs(seen.affine) @ reaches
    provided((carried < LARGEST["float64"]).all(), "towers: a read-out may overflow")
    return np.asarray(errors + gamma(seen.dim + 5, _U) * carried + (rank + 4 * seen.dim + 8) * 2.0**-1074)


# ---------------------------------------------------------------- ReLU units


def _squares_errors(features: Features, side: str, weights: TowerWeights, names: Names) -> tuple[Array, Array]:
    """(rank,) bounds of |tower computed − φ|, (rank,) bounds of sup |φ|; raises Undecided.

    Towers of ReLU units that multiply by squares: how far their features are from the stored ones, rounding included.

    | symbol | meaning |
    | --- | --- |
    | a, b; ε_a, ε_b | two factors as stored polynomials (or products of them), and how far off the network's are |
    | s_a, s_b | ≥ sup |a|, sup |b| |
    | λ, μ, g, s | the stored reading weights, gain and template of a product (`towers`) |
    | E, L | |s(q) + o − q²| ≤ E on [−1, 1] for some constant o (*pieces*); L = Σ|v_j k_j| ≥ the slope of s |

    **Layer 1.** Column by column: `pieces` against the stored polynomial, and the rounding of the block
    (`pieces.block_rounding`).

    **A product.** Let â, b̂ be what the stream holds, |â| ≤ s_a + ε_a and likewise b̂. q^± = λâ ± μb̂ is computed with
    an error of at most dq = γ_4 (λ|â| + μ|b̂|) + 8η; it must stay in [−1, 1], or Undecided. The constant o cancels in
    s(q⁺) − s(q⁻), and q⁺² − q⁻² = 4λμ âb̂, so with κ ≥ |4gλμ − 1|

        |computed − ab| ≤ |âb̂ − ab| + κ|âb̂| + g (2E + 2L dq) + ρ,     |âb̂ − ab| ≤ ε_a s_b + ε_b s_a + ε_a ε_b,

    ρ the rounding of the block of both copies, all at their largest, and u of its size for the products g v_j that are
    its values. The product is then a factor of the next layer with s = s_a s_b.
    """
    assert weights.squares is not None
    tower_network(features, side, weights, names)  # refuses weights that do not fit
    half = features.half(side)
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
        off[used] = [_column_error(weights.keys[v], values[:, c], P[:, c], float(low[v]), float(high[v])) for c in used]
        sups.append(chebyshev.sup_of_columns(P))
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
        provided(((left > 0) & (right > 0) & (gain > 0) & (gain < 1e100)).all(), "a product's weights are not usable")
        reach = left * a + right * b
        dq = gamma(4, _U) * reach + 8 * _TINY
        provided(((reach + dq) * (1 + 16 * _U) <= 1.0).all(), "towers: a product leaves the interval of its squares")
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
    provided(np.isfinite(out).all() and (most + out < LARGEST["float64"]).all(), "towers: an error is not bounded")
    return out, most


def _column_error(
    keys: Keys, values: Array, P: Array, low: float, high: float, slope: float = 0.0, offset: float = 0.0
) -> float:
    """sup |broken line − polynomial|, and the rounding of the line computed in float64."""
    provided(keys.w == 1.0 and keys.c == 0.0, "towers: ReLU units must read the variable itself")
    far, mine = max(abs(low), abs(high)), values != 0
    line = BrokenLine(slope, offset, keys.w, keys.c, keys.slopes[mine], keys.biases[mine], values[mine])
    provided(block_fits(keys.slopes, keys.biases, values, far, "float64"), "towers: ReLU units may overflow")
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
    provided(math.isfinite(offset) and block_fits(slopes, biases, values, 1.0, "float64"), "a template is not usable")
    line = BrokenLine(0.0, offset, 1.0, 0.0, slopes, biases, values)
    bound = prove_by_pieces(line, parse("u*u", ("u",)), -1.0, 1.0, 0.0).high
    two = BrokenLine(0.0, 0.0, 1.0, 0.0, *(np.concatenate([a, a]) for a in (slopes, biases, values)))
    lost, size = block_rounding(two, -1.0, 1.0, "float64")
    steep = float(np.abs(slopes * values).sum()) * (1 + 1e-9)
    return bound, steep, lost * (1 + 4 * _U), size
