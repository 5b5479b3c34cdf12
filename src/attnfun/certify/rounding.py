"""Rounding: how far the network computed in its dtype, by any route, is from the network in real arithmetic.

| symbol | meaning |
| --- | --- |
| u, γ_n | unit roundoff of the dtype, n u/(1 − n u) |
| E[c](x) | Σ_j p_j(x) c_j, the *envelope*: the head with the values c_j ≥ 0 |

Model of one head with A axes and n keys, x a point in float64:
 1. query q_a: off by at most γ_{d+1}(|w||x| + |c|); in float32 γ_{d+2}, for x itself is rounded to it first;
 2. logit of key j: Σ_a |k| δq_a + γ_{2A+3} Σ_a (|k||q| + |b|) (the sum of the axis biases is rounded in the literal
 form);
 3. subtraction of a maximum, possibly of a running one: 2u·gap_j, gap_j = largest logit − logit of j;
    the local route has instead γ_{W+1} gap_j and the slack of its stored breakpoints (`network/local.py`); the larger
    counts;
 4. exp: within 4 ulp (hypothesis), and as much again for every further block of 64 keys in kernels that rescale running
 sums;
 5. numerator and denominator summed in any order, divided: γ of (n + Σ P_a + 8A + 16) relative to Σ p_j |V_j|.
Steps 2 to 4 multiply weight j by e^{±d_j}. A softmax whose logits move by at most d moves by at most (max V − min V)
tanh(d/2): the log-odds
of any set of keys move by at most 2d and σ(s + d) − σ(s − d) is largest at s = 0. To first order the move is E[|V − h|
d], times
e^{2 max d} for the higher orders. So, whichever is smaller,

    |head computed − head| ≤ spread·tanh(d_max/2) + 2g/(1−g) max|V|                                    (plain)
    |head computed − head| ≤ sup_x ( E[|V−v|d] + E[|V−v|] E[d] ) e^{2 d_max} + 2g/(1−g) e^{2 d_max} sup_x E[|V|]     
    (envelope)

The suprema are taken over a grid of boxes: with Δ the spread of the slopes, p_j(x) ≤ p_j(c) e^{Δ|x−c|}, so a box costs
a factor
e^{Σ Δ r} over its centre, no derivative needed. Keys below e^−700 (float32: e^−80) of the largest may vanish: n of
them, counted.
The local route drops at most 2^−60 of the mass on every axis, counted too. Read-out: γ of its length.
Products that underflow lose at most the least positive number η each: 4(n + 4)η a head (denominators are at least 1).
Where a query, a logit or a numerator n max|V| could overflow, the bound is infinite.

Failure modes: float32 with large values or slopes: the bound is honest and large. Deeper networks: `composition`
asks for one head at a time.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from attnfun.certify.view import Array, HeadView, LineAxis, View
from attnfun.network import local_plan

_EXP_ULPS = 4  # a hypothesis, printed; about 2 were seen in NumPy and in torch's kernels, in both dtypes


def hypotheses(dtype: str, softmax: bool = True) -> tuple[str, ...]:
    """What the rounding part rests on; printed with every certificate. An MLP has no `softmax` to compute."""
    arithmetic = (
        "IEEE arithmetic, rounding to nearest, subnormal numbers kept, plain matrix products (no TF32, no Strassen)"
    )
    if not softmax:
        return (arithmetic,)
    return (
        arithmetic,
        f"exp within {_EXP_ULPS} ulp in {dtype}",
        "attention kernels that rescale running sums do so at most once for every further 64 keys",
    )


ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_VANISH = {"float64": math.exp(-700.0), "float32": math.exp(-80.0)}
TINY = {"float64": 2.0**-1074, "float32": 2.0**-149}  # what a product may lose by underflow
LARGEST = {"float64": 2.0**1018, "float32": 2.0**122}  # overflow, with room for rounding and differences
_BOXES = 400_000
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
    """Can no query, logit or sum of the head overflow? Terms e_j are at most 1, so numerators at most n max|V|."""
    limit = LARGEST[dtype]
    n = float(np.prod([a.size for a in head.axes], dtype=np.float64))
    logit = 0.0
    with np.errstate(over="ignore"):
        for axis in head.axes:
            far = max(abs(v) for v in _ends(view, axis.variable))
            q = abs(axis.w) * far + abs(axis.c)
            logit += float(np.max(np.abs(axis.slopes) * q + np.abs(axis.biases))) + q
        return bool(logit < limit and n * float(np.abs(head.values).max()) < limit)


def line_fits(axis: LineAxis, values: Array, q: float, dtype: str) -> bool:
    """`_fits` for a head of one axis whose query is at most q in size."""
    with np.errstate(over="ignore"):
        logit = float(np.max(np.abs(axis.slopes) * q + np.abs(axis.biases))) + q
        return bool(logit < LARGEST[dtype] and axis.size * float(np.abs(values).max()) < LARGEST[dtype])


def gamma(n: float, u: float) -> float:
    """n u/(1 − n u), rounded up; infinity where it means nothing."""
    return n * u / (1 - n * u) * _SAFE if n * u < 0.5 else math.inf


def _head_bound(view: View, head: HeadView, dtype: str) -> tuple[Array, Array]:
    """(c,) error bounds of the head's outputs and (c,) bounds of their size."""
    if len(head.axes) == 1:
        axis = head.axes[0]
        low, high = _ends(view, axis.variable)
        relative = gamma(view.dim + (1 if dtype == "float64" else 2), ROUNDOFF[dtype])
        dq = _query_rounding(view.dim, axis, 0.0, dtype)
        return line_rounding(axis, head, low, high, dtype, dq, relative), np.abs(head.values).max(axis=0)
    u = ROUNDOFF[dtype]
    n = int(np.prod([a.size for a in head.axes], dtype=np.int64))
    flat = head.values.reshape(-1, head.values.shape[-1])
    spread, size = flat.max(0) - flat.min(0), np.abs(flat).max(0)
    g = gamma(n + sum(a.size for a in head.axes) + 8 * len(head.axes) + 16, u)
    g = g / (1 - g) if g < 0.5 else math.inf
    common = (_EXP_ULPS * 2 + 2) * max(len(head.axes), 1 + n // 64) * u
    worst = common + sum(
        _axis_move(view, head, a, dtype, *_ends(view, axis.variable)).max() for a, axis in enumerate(head.axes)
    )
    vanish = 2 * n * _VANISH[dtype] * spread + 2 * len(head.axes) * 2.0**-60 * spread
    plain = spread * math.tanh(min(worst / 2, 20.0)) + 2 * g * size
    envelope = _envelope(view, head, dtype, common, worst, g)
    return np.asarray(np.minimum(plain, envelope) * _SAFE + vanish + 4 * (n + 4) * TINY[dtype]), size


def _ends(view: View, k: int) -> tuple[float, float]:
    return float(view.low[k]), float(view.high[k])


def _axis_move(view: View, head: HeadView, a: int, dtype: str, low: float, high: float) -> Array:
    """(P,) bounds of the logit perturbation d_j from axis a, for x_k in [low, high]."""
    u = ROUNDOFF[dtype]
    axis = head.axes[a]
    far = max(abs(low), abs(high))
    q_ends = np.array([axis.w * low + axis.c, axis.w * high + axis.c])
    q = float(np.abs(q_ends).max()) * _SAFE
    dq = _query_rounding(view.dim, axis, far, dtype)
    k, b = np.abs(axis.slopes), np.abs(axis.biases)
    logits = axis.slopes * q_ends[:, None] + axis.biases  # (2, P): affine in x, so gaps peak at an end
    gap = (logits.max(axis=1, keepdims=True) - logits).max(axis=0)
    limit = -math.log(_VANISH[dtype]) + 20
    gap = np.minimum(gap, limit)  # beyond it the key has vanished, which is counted elsewhere
    reference = gamma(2 * len(head.axes) + 3, u) * (k * (q + dq) + b) + 2 * u * gap
    local = _local_move(head, a, dtype, u, gap)
    return np.asarray((k * dq + np.maximum(reference, local)) * _SAFE)


def _query_rounding(dim: int, axis: LineAxis, far: float, dtype: str) -> float:
    """Step 1 of the model, for |x| ≤ far."""
    roundings = dim + (1 if dtype == "float64" else 2)
    return gamma(roundings, ROUNDOFF[dtype]) * (abs(axis.w) * far + abs(axis.c)) + (abs(axis.w) + 4) * TINY[dtype]


def line_rounding(
    axis: LineAxis, head: HeadView, low: float, high: float, dtype: str, dq: float, relative: float = 0.0
) -> Array:
    """(c,) the bounds of the module's statement for a head of one axis, its query off by at most dq + relative·|w x|.

    Boxes are made as small as the keys that count there ask for: a ladder's steep keys have vanished everywhere but at
    its foot.

    On a box of centre c and radius r, p_j(x) ≤ p_j(c) e^{|κ_j| r} with κ_j = slope_j − Σ p_i(c) slope_i, because
    Σ p_i(c) e^{κ_i s} ≥ 1 (Jensen); and v of the statement may be any number of the box's own.
    """
    u, limit = ROUNDOFF[dtype], -math.log(_VANISH[dtype])
    n, values = axis.size, head.values
    spread, size = values.max(0) - values.min(0), np.abs(values).max(0)
    g = gamma(2 * n + 24, u)
    g = g / (1 - g) if g < 0.5 else math.inf
    common = (_EXP_ULPS * 2 + 2) * (1 + n // 64) * u
    k, b, slope = np.abs(axis.slopes), np.abs(axis.biases), axis.slopes * axis.w
    first, whole, boxes = np.zeros(values.shape[1]), np.zeros(values.shape[1]), 0
    stack, fixed = [(low, high)], dq
    most = min(4000, 1 + 4_000_000 // n)  # past it the plain bound serves
    while stack:
        left, right = stack.pop()
        boxes += 1
        dq = fixed + relative * abs(axis.w) * max(abs(left), abs(right)) * _SAFE
        centre = left + (right - left) / 2
        r = max(right - centre, centre - left) * _SAFE
        q_ends = np.array([axis.w * left + axis.c, axis.w * right + axis.c])
        parts = abs(axis.w) * max(abs(left), abs(right)) + abs(axis.c)  # q may cancel, its parts do not
        q = (float(np.abs(q_ends).max()) + 4 * 2.0**-53 * parts) * _SAFE
        doubt = 16 * 2.0**-53 * (k * parts + b)  # float64 error of the logits as computed here
        ends = axis.slopes * q_ends[:, None] + axis.biases
        gap = np.minimum((ends.max(axis=1, keepdims=True) - ends).max(axis=0), limit + 20)
        reference = gamma(5, u) * (k * (q + dq) + b) + 2 * u * gap
        move = (k * dq + np.maximum(reference, _local_move(head, 0, dtype, u, gap)) + common) * _SAFE
        logits = (axis.w * centre + axis.c) * axis.slopes + axis.biases
        top = int(np.argmax(logits))
        behind = (logits[top] - logits) * (1 - 1e-6) - np.abs(slope[top] - slope) * r
        behind = behind - (doubt + move) - (doubt[top] + move[top])
        active = ~(behind > limit)  # all others vanish in real arithmetic and also as computed
        if int(active.sum()) == 1:  # nothing to weigh it against
            whole = np.maximum(whole, np.abs(values[top]))
            continue
        p = np.exp(logits[active] - logits[top])
        total = float(p.sum())
        p /= total
        mean_slope = float(p @ slope[active])
        # `unsure` bounds the float error of the logits at c, which moves the weights and the mean slope
        unsure = 8 * 2.0**-53 * (k * (abs(axis.w * centre) + abs(axis.c)) + b)[active]
        kappa = np.abs(slope[active] - mean_slope)
        drift = r * float(p @ (np.expm1(np.minimum(4 * unsure, 50.0)) * kappa))
        blur = math.log(float(p @ np.exp(np.minimum(unsure, 50.0)))) + drift
        growth = kappa * r + unsure + blur
        grown = np.exp(np.minimum(logits[active] - logits[top] - math.log(total) + growth, 0.0))
        move = move[active]
        tight = float(grown.sum()) <= 1.7 and float(grown @ move) <= 3 * float(p @ move) and float(move.max()) < 0.1
        if not tight and boxes < most and left < centre < right:
            stack += [(left, centre), (centre, right)]
            continue
        worst = float(move.max())
        away = np.abs(values[active] - p @ values[active])
        moved = (grown * move) @ away + (grown @ away) * float(grown @ move)
        again = math.exp(2 * (worst + float(doubt[active].max()))) if worst < 1 else math.inf
        moved = moved * again if worst < 1 else spread  # higher orders, and the float64 error of p itself
        first = np.maximum(first, np.minimum(moved, spread * math.tanh(min(worst / 2, 20.0))))
        whole = np.maximum(whole, np.minimum(again * (grown @ np.abs(values[active])), size))
    lost = 2 * n * _VANISH[dtype] * spread + 2.0**-59 * spread + 4 * (n + 4) * TINY[dtype]
    return np.asarray((first + 2 * g * whole) * (1 + 1e-6) + lost)


def _local_move(head: HeadView, a: int, dtype: str, u: float, gap: Array) -> Array:
    """(P,) what steps 2 and 3 cost on the local route: breakpoint slack between a key and its nearest, and γ_{W+1}
    gap.
    """
    plan = local_plan(head.head, dtype)
    if plan is None:
        return np.zeros(len(gap))
    axis = plan.axes[a]
    if len(axis.steps) == 0:
        return np.zeros(len(gap))
    total = np.concatenate([[0.0], np.cumsum(axis.steps * axis.slack)])
    j = np.arange(len(gap))
    w = axis.window
    between = total[np.minimum(j + w, len(gap) - 1)] - total[np.maximum(j - w, 0)]
    # the cumulative sum is in float64: its own rounding is bounded by the last entry times P u
    return np.asarray(between + 4 * len(gap) * 2.0**-53 * total[-1] + gamma(w + 1, u) * gap)


def _envelope(view: View, head: HeadView, dtype: str, common: float, worst: float, g: float) -> Array:
    """The second bound of the module's statement, (c,); infinity where too many boxes would be needed."""
    counts = []
    for axis in head.axes:
        low, high = _ends(view, axis.variable)
        counts.append(max(1, math.ceil(float(np.ptp(axis.slopes)) * abs(axis.w) * (high - low) / 2 / 0.35)))
    infinite = np.full(head.values.shape[-1], math.inf)
    if math.prod(counts) > _BOXES or max(counts) * max(a.size for a in head.axes) > 20_000_000 or worst > 1:
        return infinite
    factor, tables, moves = 1.0, [], []
    for a, axis in enumerate(head.axes):
        low, high = _ends(view, axis.variable)
        edges = np.linspace(low, high, counts[a] + 1)
        centre = (edges[:-1] + edges[1:]) / 2
        radius = float(np.max(np.diff(edges))) / 2 * _SAFE
        factor *= math.exp(float(np.ptp(axis.slopes)) * abs(axis.w) * radius)
        logits = (axis.w * centre + axis.c)[:, None] * axis.slopes + axis.biases
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        tables.append(weights / weights.sum(axis=1, keepdims=True))
        moves.append(
            np.stack(
                [
                    _axis_move(view, head, a, dtype, float(lo), float(hi))
                    for lo, hi in itertools.pairwise(edges)
                ]
            )
        )
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
        again = math.exp(4 * worst)  # higher orders, and the float64 error of the tables themselves (below d_max)
        result[c] = again * (float(first.max()) + 2 * g * factor * float(mean_whole.max()))
    return result * (1 + 1e-6)


def _contract(values: Array, tables: list[Array]) -> Array:
    """Σ_j values_j Π_a tables_a[i_a, j_a] for every grid point i."""
    out = values
    for table in tables:  # contract the first axis, the new one goes last: order is kept after all
        out = np.moveaxis(np.tensordot(table, out, axes=(1, 0)), 0, -1)
    return out
