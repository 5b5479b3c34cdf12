"""Towers of two layers of attention: how far their features are from the stored ones, rounding included.

| symbol | meaning |
| --- | --- |
| p_gc | the head of group g in layer 1, output c, in real arithmetic |
| z_gc = δ_g Π_b P_bc | what tanh p_gc stands for: the stored columns of the group's blocks, times the stored scale |
| ζ_gc ≥ sup |z_gc| | from `coefficients.sup_of_columns`; at most 0.6, or Undecided |
| e_gc | ≥ sup |tanh p̂_gc − z_gc|, p̂ the head as computed |
| S_i | the stored value of layer 2: Π 1/δ_g times the factors of blocks without variables, up to (k + 2) u relatively |

**Layer 1.** tanh and its inverse g = atanh: |tanh p − z| ≤ |p − g(z)|, for tanh has slope at most 1. Both p and g(z)
are analytic in each variable while the others are real:
  |p| ≤ max|V| F_v on the ellipse E_ρ of variable v (`ellipse.axis_factor`: the weights there sum to F_v at most);
  |g(z)| ≤ atanh(δ A_v Π s) where that argument is below 1, with A_v = Σ_J |P_J| ρ^{J_v} for the block that holds v and
  s ≥ sup |P_b| for the others, because g has a power series of positive coefficients and |T_j| ≤ ρ^j on E_ρ.
So each is within t = Σ_v (Π_{before} Λ) 4 M_v ρ_v^{−(n_v−1)}/(ρ_v − 1) of a polynomial of degree below n_v in every
variable (interpolation at n_v Chebyshev nodes, Λ ≤ 1 + (2/π) ln n its norm). The difference of the two polynomials is
taken at K n_v nodes per axis: there it keeps Π_v cos((n_v − 1)π/(2 K n_v)) of its maximum (Ehlich and Zeller 1964), and
it differs from p − g(z) by at most t_p + t_g, hence

    sup |p − g(z)| ≤ (max_grid |p − g(z)| + t_p + t_g)/Π cos + t_p + t_g.

On the grid: softmax weights are enclosed in balls and rounded, p is their contraction with V, off by at most the radii
plus (Σ_v (keys_v + 4)) u, times max|V|; P_b by its cosines (each within 2u), off by 1.01 Σ(N + 4) u Σ|P_J|; g by its
power series up to the first term below 2^-60 of the sum, in Horner's form, all terms of one sign: relatively γ.

**Layer 2** is Π tanh p̂ exactly for the computed p̂, so |S Π tanh p̂ − Π P| telescopes over the groups. Its own rounding:
queries are exact (one weight 1, no offset), logits Σσp̂ are off by γ_{2m+5} R, R ≥ Σ|p̂|, the maximum is subtracted with
2u·2R, exp within 4 ulp: all logits move by at most d, so the head by 2|S| tanh(d/2), and the sums over n = 2^m keys by
2γ/(1−γ)|S|, γ of 2n + 24 (`rounding`, whose model covers every route). R ≤ 300: no key vanishes.
"""

import itertools
import math

import numpy as np
from flint import arb

from attnfun.certify.ellipse import axis_factor
from attnfun.certify.exact import weight_table
from attnfun.certify.nodes import chebyshev_nodes
from attnfun.certify.rounding import LARGEST, gamma, product_bounds, product_fits
from attnfun.certify.view import Array, HeadView, LineAxis, Undecided, View, provided
from attnfun.kinds.relation.features import Ends, Half, Index, along
from attnfun.kinds.relation.prove_coefficients import LEAST, floats, kept, multiplied, on_grid, sup_of_columns, times
from attnfun.kinds.relation.towers import TowerWeights, group_heads, product_scales
from attnfun.language import precision
from attnfun.language.enclosures import upper, upper_at

_U = 2.0**-53
_RHO = (1.05, 1.1, 1.2, 1.3, 1.45, 1.6, 1.8, 2.0, 2.25, 2.5, 2.8, 3.2, 3.6, 4.0, 5.0, 6.5)
_ZETA = 0.6
_OVER = (6, 4, 3, 2)
_GRID = 12_000_000  # numbers on the fine grid of a group, all columns
_GOALS = (1e-16, 1e-13, 1e-10, 1e-7)  # of the tails: steers, and proves nothing


def product_tower_errors(half: Half, weights: TowerWeights) -> tuple[Array, Array]:
    """(rank,) bounds of |tower computed − φ|, (rank,) bounds of sup |φ|; raises Undecided."""
    assert weights.scales is not None
    low, high = half.box
    heads = group_heads(half, weights)
    rank, m = half.rank, len(weights.groups)
    stored = np.abs(product_scales(half, weights))
    if not (np.isfinite(weights.scales).all() and (weights.scales > 0).all() and stored.max() < LARGEST["float64"]):
        raise Undecided("towers: the scales of a product are not usable")
    slack = (len(half.tables) + len(weights.groups) + 4) * 2 * _U
    vanished = _vanished(half, weights.scales)
    off, size, reach = vanished, stored * (1 + slack) + vanished, np.zeros(rank)
    for g, head in enumerate(heads):
        axes = tuple(weights.keys[v].line(v) for v in half.variables(weights.groups[g]))
        with precision(128):
            zeta, apart = _group_error(half, weights.groups[g], float(weights.scales[g]), weights.values[g], axes)
        rounded = _head_rounding(low, high, HeadView(head.name, axes, head.values, np.zeros((1, head.outputs)), head))
        e = (apart + rounded) * (1 + 1e-12)
        place = half.distinct(weights.groups[g])[1]
        d, s = e[place], zeta[place]
        off, size = multiplied(off, size, d, s)
        reach = reach + np.arctanh(s) * (1 + 1e-9) + d
    off = (off + slack * (size + off)) * (1 + 1e-12)
    provided((reach <= 300).all(), "towers: the logits of a product are too large")
    n = 2**m
    moved = gamma(2 * m + 5, _U) * reach + 4 * _U * reach + 10 * (1 + n // 64) * _U
    g_sum = gamma(2 * n + 24, _U)
    off = off + stored * (2 * np.tanh(moved / 2 * (1 + 1e-9)) + 2 * g_sum / (1 - g_sum)) * (1 + 1e-9)
    off = off + 4 * (n + 4) * 2.0**-1074
    # the read-out adds exact zeros to one product by 1; roundings to spare
    off = (off + gamma(4, _U) * (size + off)) * (1 + 1e-12) + (rank + 8) * 2.0**-1074
    provided(np.isfinite(off).all() and np.isfinite(size).all(), "towers: the error of a tower is not bounded")
    return off, size * (1 + 1e-12)


def _vanished(half: Half, scales: Array) -> Array:
    """(rank,) what underflow may take off S: every step's loss, enlarged by those after it (`product_scales`)."""
    out = np.zeros(half.rank)
    for scale in scales:
        out = out / scale * (1 + 4 * _U) + LEAST
    for constant in half.constants():
        out = times(out, np.abs(constant))
    return out


def require_fits(head: HeadView, low: Array, high: Array) -> None:
    """Undecided where a logit of a head may overflow on this box."""
    queries = [abs(a.w) * max(abs(low[a.variable]), abs(high[a.variable])) + abs(a.c) for a in head.axes]
    provided(product_fits(head.axes, head.values, list(map(float, queries)), "float64"), "towers: a head may overflow")


def _head_rounding(low: Array, high: Array, head: HeadView) -> Array:
    """(outputs,) |computed − exact| of a head of layer 1."""
    require_fits(head, low, high)
    seen = View(low, high, np.zeros((1, len(low))), np.zeros(1), (head,))
    return product_bounds(seen, head, "float64", envelope=False)[0]


def _group_error(
    half: Half, group: tuple[int, ...], delta: float, V: Array, axes: tuple[LineAxis, ...]
) -> tuple[Array, Array]:
    """(tuples,) ζ and bounds of sup |p − atanh z| in real arithmetic."""
    low, high = half.box
    tables, tuples = [half.tables[b] for b in group], half.distinct(group)[0]
    sups = [sup_of_columns(P) for P in tables]
    ones = [np.abs(P.reshape(-1, P.shape[-1])).sum(axis=0) * (1 + (P.size + 4) * _U) for P in tables]
    zeta = np.full(len(tuples), delta)
    for k, s in enumerate(sups):
        zeta = times(zeta, s[tuples[:, k]])
    zeta = zeta * (1 + 8 * (len(tables) + 2) * _U)
    provided((zeta <= _ZETA).all(), "towers: a factor is too large for its scale")
    top = np.abs(V.reshape(-1, len(tuples))).max(axis=0)
    rests = [np.full(len(tuples), delta * (1 + 1e-12)) for _ in tables]  # what multiplies the columns of every block
    for k, i in itertools.permutations(range(len(tables)), 2):
        rests[k] = times(rests[k], sups[i][tuples[:, i]])
    homes = [(P, j, tuples[:, k], rests[k]) for k, P in enumerate(tables) for j in range(P.ndim - 1)]
    counts, fine, tail = _degrees(axes, homes, half.box, top)
    keep = kept([n - 1 for n in counts], fine)

    weight, radii = [], 0.0
    for axis, f in zip(axes, fine, strict=True):
        nodes = chebyshev_nodes(f, float(low[axis.variable]), float(high[axis.variable]))
        table, rads = floats(weight_table(axis, nodes))
        provided(np.isfinite(rads).all(), "towers: the weights of a head could not be enclosed")
        weight.append(table)
        radii += float(rads.sum(axis=1).max()) * (1 + 1e-9)
    lost_p = top * (1.01 * (radii + _U * sum(a.size + 4 for a in axes)) * (1 + radii))
    values, left = [], iter(fine)
    lost_z, whole = np.zeros(len(tuples)), np.full(len(tuples), delta)
    for k, P in enumerate(tables):
        values.append(on_grid(P, [next(left) for _ in P.shape[1:]]))
        own = 1.01 * _U * sum(n + 4 for n in P.shape[:-1]) * ones[k][tuples[:, k]]
        lost_z, whole = multiplied(lost_z, whole, own, sups[k][tuples[:, k]])
    lost_z = (lost_z + 2 * _U * (len(tables) + 1) * (whole + lost_z)) * (1 + 1e-9)
    biggest = np.zeros(len(tuples))
    step = max(1, _GRID // (4 * math.prod(fine)))
    for start in range(0, len(tuples), step):
        columns = slice(start, start + step)
        p = along(weight, V[..., columns])
        z = np.full((1,) * len(axes) + (p.shape[-1],), delta)
        place = 0
        for k, value in enumerate(values):
            a = value.ndim - 1
            shape = (1,) * place + value.shape[:-1] + (1,) * (len(axes) - place - a) + (p.shape[-1],)
            z = z * value[..., tuples[columns, k]].reshape(shape)
            place += a
        p = np.abs(p - _atanh(z, float(zeta.max()) + float(lost_z.max())))
        biggest[columns] = p.reshape(-1, p.shape[-1]).max(axis=0)
    far = zeta + lost_z
    provided((far < 0.7).all(), "towers: a factor is too large for its scale")
    lost_g = lost_z / (1 - far * far) + np.arctanh(far) * 400 * _U
    seen = biggest * (1 + 4 * _U) + lost_p + lost_g + 2.0**-1000
    return zeta, ((seen + tail) / keep + tail) * (1 + 1e-12)


def _atanh(z: Array, most: float) -> Array:
    """Σ z^{2k+1}/(2k+1) for |z| ≤ most < 0.7, within 400 u relatively: what is cut off is below 2^-60 of the sum.

    At most 60 terms: z² once, then a product and an addition a term, divisions in the coefficients.
    """
    terms = max(2, math.ceil(-60 * math.log(2) / (2 * math.log(max(most, 1e-8)))) + 1)
    square = z * z
    out = np.full(z.shape, 1.0 / (2 * terms + 1))
    for k in range(terms - 1, -1, -1):
        out *= square
        out += 1.0 / (2 * k + 1)
    return np.asarray(out * z)


def head_ellipse(axis: LineAxis, low: float, high: float, goal: float) -> tuple[int, float, arb]:
    """(n, ρ, F): the fewest nodes with 4 F ρ^{1−n}/(ρ − 1) ≤ goal for the weights of an axis; raises Undecided."""
    half = math.nextafter((high - low) / 2, math.inf)
    best: tuple[int, float, arb] | None = None
    for rho in _RHO:
        factor = axis_factor(axis, half, (arb(rho) - 1 / arb(rho)) / 2)
        if factor is None:
            continue
        n = math.ceil(math.log(4 * upper(factor) / (goal * (rho - 1))) / math.log(rho)) + 1
        if best is None or n < best[0]:
            best = (max(2, n), rho, factor)
    if best is None or best[0] > 600:
        raise Undecided("towers: no ellipse is known on which the weights of a head are analytic")
    return best


def _degrees(
    axes: tuple[LineAxis, ...], homes: list[tuple[Array, int, Index, Array]], box: Ends, top: Array
) -> tuple[list[int], list[int], Array]:
    """(n_v, K n_v, (tuples,) t_p + t_g): the smallest tails for which the fine grid can be walked."""
    for goal in _GOALS:
        counts, parts = [], []
        for axis, home in zip(axes, homes, strict=True):
            lo, hi = float(box[0][axis.variable]), float(box[1][axis.variable])
            n, rho, M = _target_ellipse(*home, goal)
            if axis.size > 1:
                own, wide, factor = head_ellipse(axis, lo, hi, goal)
                n = max(n, own)
                head = upper(4 * factor * arb(wide) ** (1 - n) / (arb(wide) - 1))
            else:
                head = 0.0
            counts.append(n)
            tail = upper(4 * arb(rho) ** (1 - n) / (arb(rho) - 1))
            parts.append(tail * M * (1 + 1e-12) + head * top * (1 + 1e-12))
        total, lebesgue = np.zeros(len(top)), 1.0
        for n, part in zip(counts, parts, strict=True):
            total = total + lebesgue * part
            lebesgue *= (0.63662 * upper_at("log", n) + 1) * (1 + 1e-12)  # 2/π < 0.63662
        for over in _OVER:
            fine = [over * n for n in counts]
            if math.prod(fine) * (len(top) if len(axes) > 2 else 1) <= _GRID:
                return counts, fine, np.asarray(total * (1 + 1e-12))
    raise Undecided("towers: the grid of a group is out of reach")


def _target_ellipse(P: Array, j: int, columns: Index, rest: Array, goal: float) -> tuple[int, float, Array]:
    """(n, ρ, (tuples,) M ≥ sup |atanh z| on E_ρ in variable j of the block): the fewest nodes for `goal`."""
    if P.shape[j] == 1:
        return 1, 2.0, np.zeros(len(columns))
    lines = np.moveaxis(np.abs(P), j, 0).reshape(P.shape[j], -1, P.shape[-1]).sum(axis=1)  # (N_j, columns)
    best: tuple[int, float, Array] | None = None
    for rho in _RHO:
        powers = rho ** np.arange(len(lines))
        with np.errstate(over="ignore", invalid="ignore"):
            far = (powers @ lines)[columns] * rest * (1 + (4 * len(lines) + P.size + 16) * _U) + LEAST
        if not (far <= 0.95).all():
            break
        M = np.arctanh(far) * (1 + 1e-12)
        worst = max(float(M.max()), 1e-300)
        n = max(2, math.ceil(math.log(max(4 * worst / (goal * (rho - 1)), 1.0)) / math.log(rho)) + 1)
        if best is None or n < best[0]:
            best = (n, rho, M)
    if best is None or best[0] > 2000:
        raise Undecided("towers: no ellipse is known on which the factors of a product stay small")
    return best
