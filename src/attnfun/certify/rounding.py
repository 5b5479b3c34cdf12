"""Rounding: how far the network computed in its dtype, by any route, is from the network in real arithmetic.

| symbol | meaning |
| --- | --- |
| u, γ_n | unit roundoff of the dtype, n u/(1 − n u) |
| E[c](x) | Σ_j p_j(x) c_j, the *envelope*: the head with the values c_j ≥ 0 |

Model of one head with A axes and n keys, x a point in float64:
 1. query q_a: off by at most γ_{d+1}(|w||x| + |c|); in float32 γ_{d+2}, for x itself is rounded to it first;
 2. logit of key j: Σ_a |k| δq_a + γ_{2A+3} Σ_a (|k||q| + |b|) (the sum of the axis biases is rounded in the literal
    form);
 3. subtraction of a maximum, possibly of a running one: 2u·gap_j, gap_j = largest logit − logit of j; the local route
    has instead γ_{W+1} gap_j and the slack of its stored breakpoints (`network/key_windows.py`); the larger counts;
 4. exp: within 4 ulp, in float32 20 (hypotheses by route, `EXP_ULPS`), and as much again for every further block of 64
    keys in kernels that rescale running sums;
 5. numerator and denominator summed in any order, divided: γ of (n + Σ P_a + 8A + 16) relative to Σ p_j |V_j|.

Steps 2 to 4 multiply weight j by e^{±d_j}. A softmax whose logits move by at most d moves by at most (max V − min V)
tanh(d/2): the log-odds of any set of keys move by at most 2d and σ(s + d) − σ(s − d) is largest at s = 0. To first
order the move is E[|V − h| d], times e^{2 max d} for the higher orders. So, whichever is smaller,

    |head computed − head| ≤ spread·tanh(d_max/2) + 2g/(1−g) max|V|                                    (plain)
    |head computed − head| ≤ sup_x ( E[|V−v|d] + E[|V−v|] E[d] ) e^{2 d_max} + 2g/(1−g) e^{2 d_max} sup_x E[|V|]
    (envelope)

The suprema are taken over a grid of boxes: with Δ the spread of the slopes, p_j(x) ≤ p_j(c) e^{Δ|x−c|}, so a box costs
a factor e^{Σ Δ r} over its centre, no derivative needed. Keys below e^−700 (float32: e^−80) of the largest may vanish:
n of them, counted. The local route drops at most 2^−60 of the mass on every axis, counted too. Read-out: γ of its
length. Products that underflow lose at most the least positive number η each: 4(n + 4)η a head (denominators are at
least 1). Where a query, a logit or a numerator n max|V| could overflow, the bound is infinite.

Heads of one axis (`line_bounds`), which is every head of a composed network, are counted more closely:
 2. one product and one addition: u (|k q| + |l_j|), l_j the logit itself; adding the zeros of other heads is exact;
 5. numerator: γ of (n + 8) a term, n − 1 additions, its product, a division or a reciprocal with its product, and some
    to spare, relative to Σ p_j |V_j|; denominator, whose terms are positive: γ of (n + 8) relative to |head| alone.
V is measured from the head's own value on every box, |V − head| in place of |V − v| + E[|V − v|], and boxes are halved
until the bound is within a few per cent (float64: a half) of what it is at a centre. Coordinates of the stream are then
as large as the heads that write them, not as their values; affine forms of the stream: `form_rounding`.

Failure modes: float32 with large values or slopes: the bound is honest and large. Deeper networks: `composition`
asks for one head at a time.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.certify.view import Array, HeadView, LineAxis, View
from attnfun.language.enclosures import upper_at
from attnfun.network import Head, local_plan

EXP_ULPS = {"float64": 4, "float32": 20}
"""Hypotheses, printed by route. torch's fused attention in float32 takes an exp whose source promises 20 ulp; all other
routes, and that one in float64, take an exp whose source promises 1 or less. About 2 were seen in every route."""
EXP_UNITS = {dtype: 2 * ulps + 2 for dtype, ulps in EXP_ULPS.items()}  # of u: an ulp is at most 2u, and the argument


TRUSTED = "trusted: FLINT's balls contain the true result, NumPy computes as IEEE says, Python runs this program"


def hypotheses(dtype: str, softmax: bool = True) -> tuple[str, ...]:
    """What the rounding part rests on; printed with every certificate. An MLP has no `softmax` to compute."""
    arithmetic = (
        "IEEE arithmetic, rounding to nearest, subnormal numbers kept, plain matrix products (no TF32, no Strassen)"
    )
    if not softmax:
        return arithmetic, TRUSTED
    fused = f"; fused attention within {EXP_ULPS[dtype]} ulp, as its source states" if dtype == "float32" else ""
    return (
        arithmetic,
        "NumPy: exp, log and tanh within 4 ulp",
        "compiled kernels do the operations that they list, with an exp of their own within 4 units of roundoff",
        f"torch on the CPU: exp within 4 ulp in {dtype}{fused}",
        "attention kernels that rescale running sums do so at most once for every further 64 keys",
        TRUSTED,
    )


ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
FAR = {"float64": 700.0, "float32": 80.0}  # keys this far below the largest may vanish
VANISH = {"float64": 1e-304, "float32": 1.9e-35}  # e^-FAR = 9.9e-305 and 1.81e-35, rounded up
TINY = {"float64": 2.0**-1074, "float32": 2.0**-149}  # what a product may lose by underflow
LARGEST = {"float64": 2.0**1018, "float32": 2.0**122}  # overflow, with room for rounding and differences
_BOXES = 400_000
_TOGETHER = 200_000  # entries of a table made at once: what fits in a cache
_TIGHT = {"float64": 1.5, "float32": 1.06}  # boxes are halved until their bound is at most this above what is seen
_FOOT = 100.0  # times what is seen: boxes that are still halved when there are many others
_TERM = 8  # roundings of a term besides the additions: product, division or reciprocal and product, and some to spare
_SAFE = 1 + 1e-9  # the bound itself is computed in float64, all terms positive


def rounding_bound(view: View, dtype: str) -> float:
    """An upper bound, over the box and over the outputs, of |computed network − network|."""
    u = ROUNDOFF[dtype]
    reach = np.maximum(np.abs(view.low), np.abs(view.high))
    if not (reach.max() < LARGEST[dtype] and all(_fits(view, head, dtype) for head in view.heads)):
        return math.inf  # also for inputs that nothing reads: 0 times infinity is no 0
    per_head = [_head_bound(view, head, dtype) for head in view.heads]
    columns = view.dim + sum(h.values.shape[-1] for h in view.heads)
    g = gamma(columns + 2, u)
    total = np.zeros(view.outputs)
    for o in range(view.outputs):
        carried = abs(view.bias[o]) + np.abs(view.affine[o]) @ reach
        error = 0.0
        for head, (errors, sizes) in zip(view.heads, per_head, strict=True):
            weight = np.abs(head.mix[o])
            error += float(weight @ errors)
            carried += float(weight @ (sizes + errors))
        total[o] = (error + g * carried + ((columns + 2) * TINY[dtype] if carried else 0.0)) * _SAFE
        if not carried < LARGEST[dtype]:  # NaN must not pass
            return math.inf
    return float(total.max())


def _fits(view: View, head: HeadView, dtype: str) -> bool:
    """`product_fits` on the box of `view`."""
    far = [max(abs(v) for v in _ends(view, axis.variable)) for axis in head.axes]
    with np.errstate(over="ignore"):
        queries = [abs(axis.w) * x + abs(axis.c) for axis, x in zip(head.axes, far, strict=True)]
    return product_fits(head.axes, head.values, queries, dtype)


def product_fits(axes: Sequence[LineAxis], values: Array, queries: Sequence[float], dtype: str) -> bool:
    """Can no query, logit or sum of a head overflow whose queries, the sums within them too, are at most `queries` in
    size? Terms e_j are at most 1, so numerators at most n max|V|.
    """
    limit, n = LARGEST[dtype], math.prod(float(axis.size) for axis in axes)
    with np.errstate(over="ignore"):
        logit = sum(
            float(np.max(np.abs(axis.slopes) * q + np.abs(axis.biases))) + q
            for axis, q in zip(axes, queries, strict=True)
        )
        return bool(logit < limit and n * float(np.abs(values).max()) < limit)


def kernel_move(n: int, dtype: str, spare: int = 0) -> float:
    """Step 4 of the model for one axis of n keys: what exp and rescaled sums do to the logarithm of a term."""
    return (EXP_UNITS[dtype] + spare) * (1 + n // 64) * ROUNDOFF[dtype]


def gamma(n: float, u: float) -> float:
    """n u/(1 − n u), rounded up; infinity where it means nothing."""
    return n * u / (1 - n * u) * _SAFE if n * u < 0.5 else math.inf


def form_rounding(row: Array, offset: float, sizes: Array, fresh: Array, result: float, dtype: str) -> float:
    """How far Σ_k row_k s_k + offset comes out from its value, |s_k| ≤ sizes_k, |its value| ≤ result; in any order.

    `fresh` marks inputs, which float32 rounds first. A product with ± a power of two is exact (but for underflow, which
    is counted). An addition costs u of what it yields. In any tree of additions of n summands these results sum to at
    most T_2 + … + T_n, T_j the sum of the j largest in size: the last one is at most T_n; if it joins a summands and
    b = n − a, these have by induction at most T_2 + … + T_a and T_2 + … + T_b ≤ T_{a+1} + … + T_{n−1}. In place of T_n
    stands `result`.
    """
    u = ROUNDOFF[dtype]
    used = np.flatnonzero(row)
    if (len(used) + 4) * u > 0.01:
        return math.inf
    terms = np.abs(row[used]) * sizes[used]
    units = (np.abs(np.frexp(row[used])[0]) != 0.5).astype(np.float64)
    if dtype == "float32":
        units += fresh[used]
    error = float(terms @ units) * u
    largest = np.cumsum(np.sort(np.append(terms, abs(offset)) if offset != 0 else terms)[::-1])
    if len(largest) > 1:
        error += u * (float(largest[1:-1].sum()) + min(result, float(largest[-1])))
    lost = (2 * float(np.abs(row).sum()) + len(used) + 2) * TINY[dtype]  # by underflow, of the inputs too
    return (error * (1 + 4 * (len(used) + 4) * u) + lost) * _SAFE


def _head_bound(view: View, head: HeadView, dtype: str) -> tuple[Array, Array]:
    """(c,) error bounds of the head's outputs and (c,) bounds of their size."""
    if len(head.axes) > 1:
        return product_bounds(view, head, dtype)
    axis = head.axes[0]
    low, high = _ends(view, axis.variable)
    relative = gamma(view.dim + (1 if dtype == "float64" else 2), ROUNDOFF[dtype])
    dq = _query_rounding(view.dim, axis, 0.0, dtype)
    return line_bounds(axis, head, low, high, dtype, dq, relative)


def product_bounds(view: View, head: HeadView, dtype: str, envelope: bool = True) -> tuple[Array, Array]:
    """(c,) bounds of |head computed − head| and of |head| on the box of `view`, for a head of several axes.

    Without `envelope` the plain bound alone: what a head of hundreds of outputs can afford.
    """
    u = ROUNDOFF[dtype]
    n = int(np.prod([a.size for a in head.axes], dtype=np.int64))
    flat = head.values.reshape(-1, head.values.shape[-1])
    spread, size = flat.max(0) - flat.min(0), np.abs(flat).max(0)
    g = gamma(_roundings([axis.size for axis in head.axes]), u)
    g = g / (1 - g) if g < 0.5 else math.inf
    common = EXP_UNITS[dtype] * max(len(head.axes), 1 + n // 64) * u
    with np.errstate(over="ignore", invalid="ignore"):  # boxes past every double: NaN, which is not a bound
        worst = common + sum(
            _axis_move(view, head, a, dtype, *_ends(view, axis.variable)).max() for a, axis in enumerate(head.axes)
        )
    vanish = 2 * n * VANISH[dtype] * spread + 2 * len(head.axes) * 2.0**-60 * spread
    plain = spread * upper_at("tanh", min(worst / 2, 20.0)) + 2 * g * size
    if envelope:
        plain = np.minimum(plain, _envelope(view, head, dtype, common, worst, g))
    return np.asarray(plain * _SAFE + vanish + 4 * (n + 4) * TINY[dtype]), size


def _ends(view: View, k: int) -> tuple[float, float]:
    return float(view.low[k]), float(view.high[k])


def cell_rounding(view: View, head: HeadView, dtype: str) -> tuple[float, list[float], Array]:
    """(d, δ, lost) of the only head of `view`: what the computed weights may be off, by axis and all together.

    Every key of an axis sees the same computed query, which is that of a point x̂ with |x̂_a − x_a| ≤ δ_a (step 1 of the
    model). Steps 2 to 4 multiply the weight of key j at x̂ by e^{±d_j}, d_j ≤ d, but for keys below the least weight η
    that the dtype keeps. So the computed weights p̂_j have, for any set B of the n keys,

        Σ_B p̂_j ≤ e^{2d} Σ_B p_j(x̂) + 2nη:

    let m̂ be the largest computed logit and W = Σ exp(l_j(x̂) − m̂). The computed terms e_j sum to at least 1 and have
    Σ_B e_j ≤ e^d W Σ_B p_j(x̂) + nη and e^{−d} W ≤ Σ e_j + nη ≤ (1 + nη) Σ e_j; divide. (Where e^{2d} Σ_B p_j(x̂) ≥ 1
    there is nothing to prove.) The output is within `lost` of Σ p̂_j V_j, vanished keys, step 5 and the read-out, which
    must be the identity, included. All are infinite where anything could overflow.
    """
    u, columns = ROUNDOFF[dtype], view.dim + view.outputs
    size, spread = np.abs(head.values).reshape(-1, view.outputs).max(0), head.spread
    reach = float(np.maximum(np.abs(view.low), np.abs(view.high)).max())
    if not (reach < LARGEST[dtype] and _fits(view, head, dtype)):
        return math.inf, [math.inf] * len(head.axes), np.full(view.outputs, math.inf)
    n = math.prod(axis.size for axis in head.axes)
    d, shifts = EXP_UNITS[dtype] * max(len(head.axes), 1 + n // 64) * u, []
    for a, axis in enumerate(head.axes):
        low, high = _ends(view, axis.variable)
        dq = _query_rounding(view.dim, axis, max(abs(low), abs(high)), dtype)
        shifts.append(dq / abs(axis.w) * _SAFE)
        d += float(_key_move(head, a, dtype, low - 2 * shifts[a], high + 2 * shifts[a], dq).max())
    return d * _SAFE, shifts, _sums([axis.size for axis in head.axes], size, spread, columns, dtype)


def head_rounding(head: Head, reach: Array, dtype: str, columns: int) -> tuple[float, Array]:
    """(d, lost) as in `cell_rounding` for a head whose axes read any affine forms of x, |x| ≤ reach; no δ, for what the
    query rounds by counts in d: with R the length of the whole query, logits take fewer than width + 2R + 2A + 10
    roundings, each at most u (|k||q| + |b|), subtract a maximum or go through breakpoints, and are exponentiated.
    The read-out of `columns` coordinates must pick the head's outputs. Infinite where anything could overflow.
    """
    u, n = ROUNDOFF[dtype], head.keys
    flat = np.abs(head.values).reshape(-1, head.outputs).max(0)
    d, largest, roundings = 0.0, float(reach.max()), head.width + 2 * head.query_dim + 2 * len(head.axes) + 10
    with np.errstate(over="ignore", invalid="ignore"):
        for a, axis in enumerate(head.axes):
            query = np.abs(axis.query) @ reach + np.abs(axis.offset)
            lost = (np.abs(axis.query).sum(axis=1) + axis.width + 4) * TINY[dtype]
            logit = np.abs(axis.slopes) @ query + np.abs(axis.biases)
            d += gamma(roundings, u) * float(logit.max()) + float((np.abs(axis.slopes) @ lost).max())
            d += float(_local_move(head, a, dtype, u, np.full(axis.keys, FAR[dtype] + 20)).max())
            largest += float(logit.max()) + float(query.max())
    if not (largest < LARGEST[dtype] and n * float(flat.max()) < LARGEST[dtype]):
        return math.inf, np.full(head.outputs, math.inf)
    d += 2 * u * (FAR[dtype] + 20) + EXP_UNITS[dtype] * max(len(head.axes), 1 + n // 64) * u
    return d * _SAFE, _sums(head.grid, flat, head.spread * (1 + 4 * u), columns, dtype)


def _sums(grid: Sequence[int], size: Array, spread: Array, columns: int, dtype: str) -> Array:
    """What vanished keys, step 5 and a read-out that picks the outputs cost a head of values up to `size`."""
    u, n = ROUNDOFF[dtype], math.prod(grid)
    g = gamma(_roundings(grid), u)
    summed = (2 * g / (1 - g) if g < 0.5 else math.inf) * size
    vanish = 2 * (n * VANISH[dtype] + len(grid) * 2.0**-60) * spread + 4 * (n + 4) * TINY[dtype]
    read = gamma(columns + 2, u) * (size + summed + vanish) + (columns + 2) * TINY[dtype]
    return np.asarray((summed + vanish + read) * _SAFE)


def _roundings(grid: Sequence[int]) -> int:
    """Step 5 of the model."""
    return math.prod(grid) + sum(grid) + 8 * len(grid) + 16


def _axis_move(view: View, head: HeadView, a: int, dtype: str, low: Any, high: Any) -> Array:
    """(…, P) bounds of the logit perturbation d_j from axis a, for x_k in [low, high], whose ends are (…)."""
    axis = head.axes[a]
    dq = np.asarray(_query_rounding(view.dim, axis, np.maximum(np.abs(low), np.abs(high)), dtype))
    return np.asarray(np.abs(axis.slopes) * dq[..., None] * _SAFE + _key_move(head, a, dtype, low, high, dq))


def _key_move(head: HeadView, a: int, dtype: str, low: Any, high: Any, dq: Any) -> Array:
    """(…, P) what steps 2 and 3 do to logits of axis a for x_k in [low, high], its query off by at most dq."""
    u = ROUNDOFF[dtype]
    axis = head.axes[a]
    q_ends = np.stack([axis.w * np.asarray(low) + axis.c, axis.w * np.asarray(high) + axis.c])
    q = np.abs(q_ends).max(axis=0) * _SAFE
    k, b = np.abs(axis.slopes), np.abs(axis.biases)
    logits = axis.slopes * q_ends[..., None] + axis.biases  # (2, …, P): affine in x, so gaps peak at an end
    gap = (logits.max(axis=-1, keepdims=True) - logits).max(axis=0)
    limit = FAR[dtype] + 20
    gap = np.minimum(gap, limit)  # beyond it the key has vanished, which is counted elsewhere
    reference = gamma(2 * len(head.axes) + 3, u) * (k * np.asarray(q + dq)[..., None] + b) + 2 * u * gap
    local = _local_move(head.head, a, dtype, u, gap)
    return np.asarray(np.maximum(reference, local) * _SAFE)


def _query_rounding(dim: int, axis: LineAxis, far: Any, dtype: str) -> Any:
    """Step 1 of the model, for |x| ≤ far."""
    roundings = dim + (1 if dtype == "float64" else 2)
    return gamma(roundings, ROUNDOFF[dtype]) * (abs(axis.w) * far + abs(axis.c)) + (abs(axis.w) + 4) * TINY[dtype]


def line_bounds(
    axis: LineAxis, head: HeadView, low: float, high: float, dtype: str, dq: float, relative: float = 0.0
) -> tuple[Array, Array]:
    """(c,) bounds of |head computed − head| and (c,) of |head|, for a head of one axis and u in [low, high].

    Its query may be off by dq + relative·|w u|. Boxes are halved, best first in spirit: only those whose bound is well
    above what some centre shows, so a ladder's steep keys cost boxes at its foot alone.
    """
    values = head.values
    spread = values.max(0) - values.min(0)
    n = axis.size
    error, size, seen, shown = np.zeros((4, values.shape[1]))
    most, chunk = min(4000, 1 + 4_000_000 // n), max(1, 500_000 // n)  # past `most` boxes they stay as wide as they are
    level, spent = np.array([[low, high]]), 0
    while len(level):
        spent += len(level)
        parts = [_on_boxes(axis, head, level[i : i + chunk], dtype, dq, relative) for i in range(0, len(level), chunk)]
        bound, reach, centre_error, centre_size = (np.concatenate(p) for p in zip(*parts, strict=True))
        seen, shown = np.maximum(seen, centre_error.max(0)), np.maximum(shown, centre_size.max(0))
        good = (bound <= _TIGHT[dtype] * seen).all(axis=1) & (reach <= _TIGHT[dtype] * shown).all(axis=1)
        middle = level[:, 0] + (level[:, 1] - level[:, 0]) / 2
        split = ~good & (level[:, 0] < middle) & (middle < level[:, 1])
        if spent + 2 * int(split.sum()) > most:  # the foot of a ladder alone, while a long flat side stays as it is
            split &= (bound > _FOOT * seen).any(axis=1) | (reach > _FOOT * shown).any(axis=1)
        if spent + 2 * int(split.sum()) > most:
            split[:] = False
        if not split.all():
            error = np.maximum(error, bound[~split].max(0))
            size = np.maximum(size, reach[~split].max(0))
        halves = [np.stack([level[split, 0], middle[split]], 1), np.stack([middle[split], level[split, 1]], 1)]
        level = np.concatenate(halves)
    lost = 2 * n * VANISH[dtype] * spread + 2.0**-59 * spread + 4 * (n + 4) * TINY[dtype]
    return np.asarray(error * (1 + 1e-6) + lost), np.minimum(size * (1 + 1e-6) + lost, np.abs(values).max(0))


def shell_bounds(axis: LineAxis, head: HeadView, boxes: Array, dtype: str, dq: float) -> tuple[Array, Array]:
    """(B, c) bounds of |head computed − head| and of |head| on every one of the intervals (B, 2) of u, for a head of
    one axis whose query may be off by dq: where a head is small, so may its rounding be.

    `line_bounds` counts 2^−59 of the spread for what the local route drops and for products that underflow where the
    largest logit is not subtracted. Here a head that has windows has no bound, and products that underflow lose η each,
    over a denominator of e^l at least, l the largest logit: some key has l ≥ least on the whole interval.
    """
    if local_plan(head.head, dtype) is not None:
        nothing = np.full((len(boxes), head.values.shape[1]), math.inf)
        return nothing, nothing
    n, spread = axis.size, head.values.max(0) - head.values.min(0)
    rows = max(1, 500_000 // n)
    found = [_on_boxes(axis, head, boxes[i : i + rows], dtype, dq, 0.0)[:2] for i in range(0, len(boxes), rows)]
    bound, size = (np.concatenate(part) for part in zip(*found, strict=True))
    ends = (axis.w * boxes + axis.c)[:, :, None] * axis.slopes + axis.biases
    least = np.minimum(ends.min(axis=1).max(axis=1), 0.0) * (1 + 1e-6) - 1.0 - np.abs(axis.slopes).min() * dq
    with np.errstate(over="ignore"):
        lost = 4 * (n + 4) * TINY[dtype] * np.exp(-least)[:, None] + 2 * n * VANISH[dtype] * spread
    return np.asarray(bound * (1 + 1e-6) + lost), np.asarray(size * (1 + 1e-6) + lost)


def _on_boxes(
    axis: LineAxis, head: HeadView, boxes: Array, dtype: str, fixed: float, relative: float
) -> tuple[Array, Array, Array, Array]:
    """(B, c) each, for (B, 2) intervals of u: bounds of the rounding and of |head|; the same at the centres, as shown.

    Weights on a box: `weights_on_boxes`. For h = Σ P_j V_j as computed, D its own error, and since Σ p_j = 1,
    |head(u) − h| ≤ Σ_j |p_j(u) − P_j||V_j − h| + D =: S, and |V_j − head(u)| ≤ |V_j − h| + S.
    """
    u, limit = ROUNDOFF[dtype], FAR[dtype]
    n, values = axis.size, head.values
    spread, size = values.max(0) - values.min(0), np.abs(values).max(0)
    g = gamma(n + _TERM, u)
    common = kernel_move(n, dtype)
    k, b, slope = np.abs(axis.slopes), np.abs(axis.biases), axis.slopes * axis.w
    left, right = boxes[:, :1], boxes[:, 1:]
    far = np.maximum(np.abs(left), np.abs(right))
    dq = fixed + relative * abs(axis.w) * far * _SAFE
    centre = left + (right - left) / 2
    r = np.maximum(right - centre, centre - left) * _SAFE
    parts = abs(axis.w) * far + abs(axis.c)  # q may cancel, its parts do not
    q_left, q_right = axis.w * left + axis.c, axis.w * right + axis.c
    q = (np.maximum(np.abs(q_left), np.abs(q_right)) + 4 * 2.0**-53 * parts) * _SAFE
    doubt = 16 * 2.0**-53 * (k * parts + b)  # float64 error of the logits as computed here
    one, two = axis.slopes * q_left + axis.biases, axis.slopes * q_right + axis.biases
    gap = np.maximum(one.max(axis=1, keepdims=True) - one, two.max(axis=1, keepdims=True) - two)

    def moved_by(q: Array, dq: Array, logit: Array, gap: Array) -> Array:
        gap = np.minimum(gap, limit + 20)  # beyond it the key has vanished
        reference = u * (1 + 8 * u) * (k * (q + dq) + logit) + 2 * u * gap
        move = (k * dq + np.maximum(reference, _local_move(head.head, 0, dtype, u, gap)) + common) * _SAFE
        return np.asarray(np.minimum(move, 1e9))

    move = moved_by(q, dq, np.maximum(np.abs(one), np.abs(two)) + k * dq + doubt, gap)
    logits = axis.slopes * (axis.w * centre + axis.c) + axis.biases
    top = np.argmax(logits, axis=1)[:, None]
    lag = np.take_along_axis(logits, top, 1) - logits
    behind = lag * (1 - 1e-6) - np.abs(slope[top] - slope) * r
    behind = behind - (doubt + move) - np.take_along_axis(doubt + move, top, 1)
    active = ~(behind > limit)  # all others vanish in real arithmetic and also as computed
    unsure = 8 * 2.0**-53 * (k * (np.abs(axis.w * centre) + abs(axis.c)) + b)
    p, grown, least, off = weights_on_boxes(np.where(active, lag, np.inf), slope, r, unsure)
    worst = np.where(active, move, 0.0).max(axis=1, keepdims=True)
    again = np.exp(np.minimum(2 * (worst + np.where(active, doubt, 0.0).max(axis=1, keepdims=True)), 50.0))
    near = fixed + relative * np.abs(axis.w * centre)
    shown = moved_by(np.abs(axis.w * centre + axis.c), near, np.abs(logits), lag)
    alone = active.sum(axis=1) == 1  # nothing to weigh it against
    out: list[list[Array]] = [[], [], [], []]
    for column in range(values.shape[1]):
        v = values[:, column]
        here = p @ v
        away = np.abs(v - here[:, None])
        shift = (np.maximum(grown - p, p - least) * away).sum(axis=1) * (1 + 1e-9) + off[:, 0] * (p @ np.abs(v))
        shift = np.minimum(shift, spread[column])
        moved = ((grown * move) * (away + shift[:, None])).sum(axis=1) * again[:, 0]
        moved = np.where(worst[:, 0] < 1, moved, spread[column])
        moved = np.minimum(moved, spread[column] * np.tanh(np.minimum(worst[:, 0] / 2, 20.0)))
        moved = np.where(alone, 0.0, moved)
        whole = np.minimum(again[:, 0] * (grown @ np.abs(v)), size[column])
        reach = np.minimum(np.abs(here) + shift, size[column])
        summed = (g * whole + g * np.minimum(reach + moved, size[column])) / (1 - g) if g < 0.5 else math.inf
        out[0].append(moved + summed)
        out[1].append(reach)
        out[2].append((p * shown * away).sum(axis=1) + g * (p @ np.abs(v) + np.abs(here)))
        out[3].append(np.abs(here))
    bound, reach, error, at = (np.stack(o, axis=1) for o in out)
    return bound, reach, error, at


def weights_on_boxes(lag: Array, slope: Array, r: Array, unsure: Array) -> tuple[Array, Array, Array, Array]:
    """p, grown, least (B, n) and off (B, 1): least ≤ p_j(u) ≤ grown for every u of a box of radius r, all as computed.

    This holds up to 2^−1022: what underflows is far below the e^−700 that the caller counts as lost. `lag` holds, for
    the centre m of each box, how far each logit is below the largest one (infinity: no such key), with logits that are
    off by at most `unsure`; `slope` the derivatives of the logits in u, each off by at most 2^−53 of itself.

    Let P_j = e^{log_p_j} for the numbers log_p that are computed here, p_j their computed exponentials. Up to a common
    factor the weight of key j at m is P_j e^{±s_j}: s_j has `unsure`, and the roundings of lag, of log_p and of the
    exponentials taken of it below, each at most (4 lag + 4 |κ| r + 64) 2^−53, exp and log within 4 ulp. The sum Σ P_j
    is 1 up to a factor e^{±t}, t the mean of such roundings and of the n additions. Let c be the number computed for
    Σ P_i slope_i, and κ_j = slope_j − c. Then the weights at u = m + s, |s| ≤ r, are P_j e^{κ_j s ± s_j} up to a common
    factor, whatever number c is, so with Z = Σ_i P_i e^{|κ_i| r + s_i}

        P_j e^{−|κ_j| r − s_j}/Z  ≤  p_j(u)  ≤  P_j e^{|κ_j| r + s_j + T}.

    The second: Σ_i P_i e^{κ_i s ± s_i} ≥ e^{−T} by Jensen, T = t + mean of s_i + r |mean of κ_i|. The mean of the κ_i
    is 0 but for the error of c: at most `off` times Σ P_i |slope_i|, `off` = (2n + 64) 2^−53 + 2t. So is that of any
    other mean Σ P_i v_i, `off` times Σ P_i |v_i|.
    """
    u, n = 2.0**-53, lag.shape[1]
    shifted = np.exp(-lag)
    log_p = -lag - np.log(shifted.sum(axis=1, keepdims=True))
    p = np.exp(log_p)  # may underflow where a weight is large elsewhere in the box: bounds are taken in logarithms
    there = np.isfinite(lag)
    kappa = np.where(there, np.abs(slope - p @ slope[:, None]) * (1 + 4 * u) + 4 * u * np.abs(slope), 0.0)
    rounded = u * (4 * np.where(there, lag, 0.0) + 4 * kappa * r + 64)
    t = (p * rounded).sum(axis=1, keepdims=True) + 2 * n * u
    off = 2 * t + (2 * n + 64) * u
    sure = unsure + 2 * rounded
    lost = np.any(there & ~(sure < 50), axis=1)  # nothing is known of the weights; NaN too
    sure = np.minimum(sure, 50.0)
    tilt = r * off * (p @ np.abs(slope)[:, None] + n * 2.0**-1022 * np.abs(slope).max(initial=0.0))
    most = 2 * t + (p * sure).sum(axis=1, keepdims=True) * (1 + off) + 50 * n * 2.0**-1022 + tilt
    lost |= ~np.isfinite(most[:, 0])
    wide = kappa * r + sure
    with np.errstate(over="ignore"):
        widest = np.exp(log_p + wide).sum(axis=1, keepdims=True) * (1 + 4 * n * u)
    grown = np.exp(np.minimum(log_p + wide + np.where(lost[:, None], 0.0, most), 0.0))
    least = np.exp(log_p - wide) / widest * (1 - 4 * u)
    grown[lost], least[lost] = 1.0, 0.0
    return p, grown, least, off


def _local_move(head: Head, a: int, dtype: str, u: float, gap: Array) -> Array:
    """(…, P) what steps 2 and 3 cost on the local route: breakpoint slack between a key and its nearest, and γ_{W+1}
    gap.
    """
    plan = local_plan(head, dtype)
    if plan is None:
        return np.zeros(gap.shape)
    axis = plan.axes[a]
    if len(axis.steps) == 0:
        return np.zeros(gap.shape)
    total = np.concatenate([[0.0], np.cumsum(axis.steps * axis.slack)])
    count = gap.shape[-1]
    j = np.arange(count)
    w = axis.window
    between = total[np.minimum(j + w, count - 1)] - total[np.maximum(j - w, 0)]
    # the cumulative sum is in float64: its own rounding is bounded by the last entry times P u
    return np.asarray(between + 4 * count * 2.0**-53 * total[-1] + gamma(w + 1, u) * gap)


def _envelope(view: View, head: HeadView, dtype: str, common: float, worst: float, g: float) -> Array:
    """The second bound of the module's statement, (c,); infinity where too many boxes would be needed."""
    counts = []
    infinite = np.full(head.values.shape[-1], math.inf)
    for axis in head.axes:
        low, high = _ends(view, axis.variable)
        wanted = float(np.ptp(axis.slopes)) * abs(axis.w) * (high - low) / 2 / 0.35
        if not wanted < _BOXES:  # also infinite: boxes may be widened by any error
            return infinite
        counts.append(max(1, math.ceil(wanted)))
    if math.prod(counts) > _BOXES or max(counts) * max(a.size for a in head.axes) > 20_000_000 or not worst <= 1:
        return infinite
    factor, tables, moves = 1.0, [], []
    for a, axis in enumerate(head.axes):
        low, high = _ends(view, axis.variable)
        edges = np.linspace(low, high, counts[a] + 1)
        centre = (edges[:-1] + edges[1:]) / 2
        radius = float(np.max(np.diff(edges))) / 2 * _SAFE
        factor *= upper_at("exp", float(np.ptp(axis.slopes)) * abs(axis.w) * radius * _SAFE)
        tables.append(axis.weights(centre))
        rows = max(1, _TOGETHER // axis.size)
        parts = [
            _axis_move(view, head, a, dtype, edges[:-1][i : i + rows], edges[1:][i : i + rows])
            for i in range(0, counts[a], rows)
        ]
        moves.append(np.concatenate(parts))
    values = head.values - head.centre
    result = np.empty(head.values.shape[-1])
    for c in range(len(result)):
        away, whole = np.abs(values[..., c]), np.abs(head.values[..., c])
        mean_away = _contract(away, tables)
        mean_whole = _contract(whole, tables)
        shape = mean_away.shape
        mean_d, both = np.full(shape, common), mean_away * common
        for a in range(len(head.axes)):
            shifted = [t * m if i == a else t for i, (t, m) in enumerate(zip(tables, moves, strict=True))]
            both = both + _contract(away, shifted)
            one = (tables[a] * moves[a]).sum(axis=1)
            mean_d = mean_d + one.reshape([-1 if i == a else 1 for i in range(len(shape))])
        first = factor * both + factor * factor * mean_away * mean_d
        again = upper_at("exp", 4 * worst)  # higher orders, and the float64 error of the tables (below d_max)
        result[c] = again * (float(first.max()) + 2 * g * factor * float(mean_whole.max()))
    return result * (1 + 1e-6)


def _contract(values: Array, tables: list[Array]) -> Array:
    """Σ_j values_j Π_a tables_a[i_a, j_a] for every grid point i."""
    out = values
    for table in tables:  # contract the first axis, the new one goes last: order is kept after all
        out = np.moveaxis(np.tensordot(table, out, axes=(1, 0)), 0, -1)
    return out
