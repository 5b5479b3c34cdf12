"""Towers realised as networks: how far they are from the stored features, rounding included, and what the score loses.

| symbol | meaning |
| --- | --- |
| P_bc, h_bc | column c of block b: the stored polynomial, and Σ_j weights_j V_b[j, c], what the tower has for it |
| δ_bc | ≥ sup |h_bc − P_bc| |
| s_bc | ≥ sup |P_bc| (`coefficients.sup_of_columns`) |

**Attention.** The softmax weights of variable v are analytic where |Im| is small (`ellipse`), and Σ_j |weights_j| ≤ F
on E_ρ. Their Chebyshev interpolants of N' nodes are enclosed in balls; so h_bc is a known table of coefficients, and

    δ_bc = Σ|table − P| + max_j |V_b[j, c]| Σ_v (Π_{before} Λ) 4 F_v ρ_v^{−(N'−1)}/(ρ_v − 1)  + float64 errors,

the tail as in `coefficients`, for a head is an average of its values where the other variables are real.
Feature i is off by |Π_b (P + δ) − Π_b P| ≤ Σ_b δ_b Π_{before} s Π_{after} (s + δ), plus the rounding of the products
that make the head's values, (B − 1) u max_j|V_ji| (weights are an average), plus the rounding of the network computed
in float64 by any route, `rounding`, and of its read-out. An affine part left to the read-out adds Σ_k |slope_ik| λ_k,
λ_k ≥ sup |Σ_j weights_j R_k[j] − x_k| found in the same way, and the rounding of the differences.

**Attention in two layers** (`TowerWeights.groups`): `tower_products`.

**MLP.** A tower of ReLU units of one variable is proved column by column by `pieces` against the polynomial itself;
several variables: `relu_products`.

**Score.** With η_i, θ_i the errors of φ_i, ψ_i and a_i, b_i ≥ sup |φ_i|, sup |ψ_i|:
|⟨φ̂, ψ̂⟩ − ⟨φ, ψ⟩| ≤ Σ_i (η_i b_i + θ_i a_i + η_i θ_i), the δ(2R + δ) of the theory coordinate by coordinate; the inner
product of r terms in float64 adds γ_{r+1} Σ (a + η)(b + θ).
"""

import math
from functools import lru_cache

import numpy as np
from flint import arb

from attnfun.certify.exact import weight_table
from attnfun.certify.nodes import chebyshev_nodes
from attnfun.certify.rounding import LARGEST, gamma, line_bounds, product_bounds
from attnfun.certify.view import Array, LineAxis, Undecided, view
from attnfun.kinds.relation.features import Features, Half
from attnfun.kinds.relation.prove_coefficients import ball_matrix, floats, padded, summed_tails, sup_of_columns, times
from attnfun.kinds.relation.prove_relu_products import Names, column_error, squares_errors
from attnfun.kinds.relation.prove_tower_products import head_ellipse, head_fits, product_tower_errors
from attnfun.kinds.relation.towers import Affine, TowerWeights, tower_network
from attnfun.language import precision
from attnfun.language.enclosures import upper
from attnfun.network import Network
from attnfun.network.head import frozen

_U = 2.0**-53


def tower_errors(features: Features, side: str, weights: TowerWeights, names: Names) -> tuple[Array, Array, int]:
    """(rank,) bounds of |tower computed − φ|, (rank,) bounds of sup |φ|, and keys; raises Undecided."""
    if weights.squares is not None:
        return squares_errors(features, side, weights, names)
    if weights.groups:
        return product_tower_errors(features.half(side), weights)
    network, half = tower_network(features, side, weights, names), features.half(side)
    selection = half.selection
    with precision(128):
        deltas = [_block_delta(half, weights, b) for b in range(len(half.tables))]
    sups = [sup_of_columns(P) for P in half.tables]
    off, size = np.zeros(half.rank), np.ones(half.rank)
    for b, (delta, sup) in enumerate(zip(deltas, sups, strict=True)):
        d, s = delta[selection[:, b]], sup[selection[:, b]]
        off = off * (s + d) + times(size, d)
        size = times(size, s)
    off, size = off * (1 + 1e-12), size * (1 + 1e-12)
    if not weights.mlp:
        off = off + _value_rounding(half, weights) + _attention_rounding(network, half.rank)
        if weights.affine is not None:
            off = off + _ramp_errors(half, weights, weights.affine)
    if not (np.isfinite(off).all() and np.isfinite(size).all()):
        raise Undecided("towers: the error of a tower is not bounded")
    return off, size, network.cost.keys


def score_error(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[float, float]:
    """(what the towers' errors cost, what the inner product costs in float64) from (errors, sizes) of both sides."""
    (eta, a), (theta, b) = left, right
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is no bound, and callers look
        carried = float(eta @ b + theta @ a + eta @ theta) * (1 + (3 * len(a) + 8) * _U)
        inner = gamma(len(a) + 1, _U) * float((a + eta) @ (b + theta)) * (1 + (2 * len(a) + 8) * _U)
    return carried, inner


def score_loss(left: tuple[Array, Array], right: tuple[Array, Array]) -> float:
    """Both together; raises Undecided where that is no bound."""
    loss = sum(score_error(left, right)) * (1 + 8 * _U)
    if not math.isfinite(loss):
        raise Undecided("the rounding of the towers is not bounded")
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
        out[used] = [column_error(keys, V[:, c], P[:, c], *ends, *map(float, weights.lines[:, c])) for c in used]
    else:
        out[used] = _head_gap(weights, half.places[b], half.box, weights.values[b][..., used], P[..., used])
    return out


def _head_gap(weights: TowerWeights, places: tuple[int, ...], box: tuple[Array, Array], V: Array, P: Array) -> Array:
    """(m,) sup |Σ_j weights_j V_j − P| for values (keys…, m) and Chebyshev coefficients (N…, m) of these variables."""
    m = V.shape[-1]
    found = [_weight_coefficients(weights.keys[v].line(), float(box[0][v]), float(box[1][v])) for v in places]
    top = np.abs(V.reshape(-1, m)).max(axis=0)
    total = summed_tails([(len(H), tail) for H, _, tail in found])
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
    mine = padded(value, (*shape, m))
    gap = np.abs(mine - padded(P, (*shape, m))).reshape(-1, m).sum(axis=0) * (1 + (mine.size + 8) * _U)
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
    table = ball_matrix(n) * weight_table(axis, chebyshev_nodes(n, low, high))
    mids, rads = floats(table)
    tail = 4 * factor * arb(rho) ** (1 - n) / (arb(rho) - 1)
    return frozen(mids), frozen(rads.sum(axis=0) * (1 + 1e-9)), tail


def _attention_rounding(network: Network, rank: int) -> Array:
    """(rank,) |computed − exact| of the head and of the identity that reads it out."""
    seen = view(network, network.low, network.high)
    (head,) = seen.heads
    if not head_fits(head, seen.low, seen.high):
        raise Undecided("towers: a head may overflow")
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
    if not (carried < LARGEST["float64"]).all():
        raise Undecided("towers: a read-out may overflow")
    return np.asarray(errors + gamma(seen.dim + 5, _U) * carried + (rank + 4 * seen.dim + 8) * 2.0**-1074)
