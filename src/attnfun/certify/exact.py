"""Heads and residuals in ball arithmetic: at points (witnesses) and on tensor grids (nodes); in doubles, bounded."""

import math
from typing import Any

import numpy as np
from flint import arb, arb_mat
from numpy.typing import NDArray

from attnfun.certify.rounding import gamma
from attnfun.certify.view import Array, HeadView, LineAxis, View
from attnfun.language import BallAlgebra, Graph, run
from attnfun.language.balls import values_at_point
from attnfun.language.enclosures import point_balls

Balls = Any  # NumPy object array of arb

_DROP = 90.0  # keys more than e^-90 below the largest are bounded, not summed
_DROPPED = 8.3e-40  # e^-90 = 8.2e-40, and the rounding of the comparison
_U = 2.0**-53
_LN2 = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")  # 32 bits of ln 2, and what is left


def weight_table(axis: LineAxis, x: list[arb]) -> arb_mat:
    """(len(x), P) softmax weights of the axis at the exact points x, as balls."""
    biases = [arb(float(b)) for b in axis.biases]
    tau = axis.lattice_step
    rows = []
    if tau is not None:
        scale = [b.exp() for b in biases]
        for point in x:
            u = ((axis.w * point + axis.c) * tau).exp()
            terms, power = [], arb(1)
            for s in scale:
                terms.append(s * power)
                power = power * u
            rows.append(_normalised(terms))
    else:
        slopes = [arb(float(k)) for k in axis.slopes]
        for point in x:
            q = axis.w * point + axis.c
            rows.append(_softmax([k * q + b for k, b in zip(slopes, biases, strict=True)]))
    return arb_mat(rows)


def _softmax(logits: list[arb]) -> list[arb]:
    top = max(logits, key=float)
    return _normalised([(v - top).exp() for v in logits])


def _normalised(terms: list[arb]) -> list[arb]:
    total = sum(terms, arb(0))
    return [t / total for t in terms]


def head_on_grid(head: HeadView, nodes: list[list[arb]]) -> list[Balls]:
    """The head's contribution to every output on the tensor grid of `nodes`, each of shape (n_1, …, n_d), 1 where
    unused.
    """
    tables = {axis.variable: weight_table(axis, nodes[axis.variable]) for axis in head.axes}
    shape = [len(nodes[k]) if k in tables else 1 for k in range(len(nodes))]
    order = [axis.variable for axis in head.axes]
    parts = []
    for c in range(head.values.shape[-1]):
        tensor = point_balls(head.values[..., c])
        for axis in head.axes:  # contract axis 0 of the tensor; the new axis goes last
            rest = tensor.shape[1:]
            flat = arb_mat([list(row) for row in tensor.reshape(tensor.shape[0], -1)])
            product = tables[axis.variable] * flat
            tensor = np.array(product.entries(), dtype=object).reshape((product.nrows(), *rest))
            tensor = np.moveaxis(tensor, 0, -1)
        # axes now stand in the head's order; bring them to the variables' order and insert the unused ones
        tensor = np.transpose(tensor, np.argsort(order)).reshape(shape)
        parts.append(tensor)
    outputs = []
    for o in range(head.mix.shape[0]):
        total: Balls = np.full(shape, arb(0), dtype=object)
        for c, part in enumerate(parts):
            if head.mix[o, c] != 0:
                total = total + part * arb(float(head.mix[o, c]))
        outputs.append(total)
    return outputs


def residual_on_grid(view: View, graph: Graph, names: tuple[str, ...], nodes: list[list[arb]]) -> list[Balls]:
    """f_o − net_o on the tensor grid, an object array (n_1, …, n_d) for each output."""
    d = view.dim
    shape = tuple(len(n) for n in nodes)
    grids = [np.array(nodes[k], dtype=object).reshape([-1 if i == k else 1 for i in range(d)]) for k in range(d)]
    f = run(graph, BallAlgebra(clip_sqrt=True), dict(zip(names, grids, strict=True)))
    heads = [head_on_grid(h, nodes) for h in view.heads]
    out = []
    for o in range(view.outputs):
        net: Balls = arb(float(view.bias[o]))
        for k in range(d):
            if view.affine[o, k] != 0:
                net = net + grids[k] * arb(float(view.affine[o, k]))
        for h in heads:
            net = net + h[o]
        out.append(np.broadcast_to(np.asarray(f[o] - net, dtype=object), shape))
    return out


def network_in_doubles(view: View, x: Array) -> tuple[Array, Array]:
    """(outputs, n) a network of one variable at points within 2^-52 max|x| of the x_i, and how far its values are off.

    No library is trusted here beyond IEEE arithmetic. Up to a common factor the weight of key j is e^{d_j ± s_j}, d_j
    the computed logit less the largest one and s_j = 8u (|k_j| (|w| max|x| + |c|) + |b_j|) + u |d_j| for the roundings
    of x, q, the logit and d_j. The computed t_j is e^{d_j} up to 8u (`exponentials`). With T_j the true weights,
    η_j = s_j + 16u and h' = Σ t_j V_j/Σ t_j,

        |h − h'| = |Σ (T_j − t_j)(V_j − h')|/Σ T_j ≤ 2 Σ t_j η_j |V_j − h'|/Σ t_j        where all η_j ≤ 0.02,

    and sums and quotient are within 2γ_{P+4} (Σ t_j |V_j|/Σ t_j + |h'|). Both are taken twice, which covers that they
    are computed too, and from the computed h'. Keys with d_j < -600 weigh below 1e-259 and count as if at -600.
    """
    slope, far = view.affine[:, :1], np.abs(x).max()
    out, size = slope * x + view.bias[:, None], np.abs(slope) * far + np.abs(view.bias[:, None])
    doubt, terms = np.zeros(out.shape), 4
    for head in view.heads:
        (axis,), values = head.axes, head.values
        logits = (axis.w * x + axis.c)[:, None] * axis.slopes + axis.biases
        d = logits - logits.max(axis=1, keepdims=True)
        parts = abs(axis.w) * far + abs(axis.c)
        off = _U * (8 * (parts * np.abs(axis.slopes) + np.abs(axis.biases)) + np.abs(d) + 16)
        t = exponentials(np.maximum(d, -600.0))
        total = t.sum(axis=1, keepdims=True)
        value = (t @ values) / total
        swing = np.stack(
            [
                ((t * off) * np.abs(column - at[:, None])).sum(axis=1)
                for column, at in zip(values.T, value.T, strict=True)
            ],
            axis=1,
        )
        lost = 4 * swing / total + 4 * gamma(axis.size + 4, _U) * ((t @ np.abs(values)) / total + np.abs(value))
        lost = np.where(
            np.all(off <= 0.02, axis=1, keepdims=True), lost + axis.size * 1e-250 * np.ptp(values, axis=0), np.inf
        )
        out, size = out + head.mix @ value.T, size + np.abs(head.mix) @ np.abs(value).T
        doubt, terms = doubt + np.abs(head.mix) @ lost.T, terms + values.shape[1] + 1
    return out, (doubt + gamma(terms, _U) * size) * (1 + 1e-9) + 1e-300


def exponentials(d: Array) -> Array:
    """e^d for -600 ≤ d ≤ 0, within a factor 1 ± 8·2^-53, by IEEE arithmetic alone.

    d = k ln 2 + r, |r| < 0.3466: k times the first part of ln 2 is exact, and r is off by less than u. Of Σ r^i/i! what
    is left out after i = 13 is below u/20, and Horner's rule loses less than 3u (|r| is small). 2^k is exact.
    """
    k = np.rint(d * 1.4426950408889634)
    r = (d - k * _LN2[0]) - k * _LN2[1]
    total = np.full(d.shape, 1 / math.factorial(13))
    for i in range(12, -1, -1):
        total = total * r + 1 / math.factorial(i)
    return np.ldexp(total, k.astype(np.int32))


def active_weights(axis: LineAxis, x: arb, at: float) -> tuple[NDArray[np.intp], list[arb], float]:
    """Indices, balls and dropped mass of the softmax at the exact point x ≈ `at`.

    A key is dropped only if its logit lies more than _DROP below the largest even after the float error of both.
    """
    logits, error = axis.logits(at)
    top = np.max(logits - error)
    keep = np.flatnonzero(~(logits + error < top - _DROP))  # NaN keeps the key
    exact_q = axis.w * x + axis.c
    slopes, biases = axis.slopes[keep].tolist(), axis.biases[keep].tolist()
    weights = _softmax([arb(k) * exact_q + arb(b) for k, b in zip(slopes, biases, strict=True)])
    return keep, weights, (len(logits) - len(keep)) * _DROPPED


def contracted(tensor: Balls, weights: list[arb]) -> Balls:
    """Σ_i weights_i tensor_i over the first axis."""
    return sum((tensor[i] * weights[i] for i in range(1, len(weights))), tensor[0] * weights[0])


def network_at(view: View, x: Array) -> list[arb]:
    """The network's exact outputs at the float64 point x, as balls (dropped keys widen them)."""
    points = [arb(float(v)) for v in x]
    outputs = [arb(float(b)) for b in view.bias]
    for o in range(view.outputs):
        for k in range(view.dim):
            if view.affine[o, k] != 0:
                outputs[o] = outputs[o] + points[k] * arb(float(view.affine[o, k]))
    for head in view.heads:
        kept, weights, dropped = [], [], 0.0
        for axis in head.axes:
            index, w, lost = active_weights(axis, points[axis.variable], float(x[axis.variable]))
            kept.append(index)
            weights.append(w)
            dropped += lost
        block = head.values[np.ix_(*kept)]
        for c in range(block.shape[-1]):
            tensor = point_balls(block[..., c])
            for w in weights:
                tensor = contracted(tensor, w)
            value = tensor + arb(0, dropped * float(np.ptp(head.values[..., c])) * 1.001)
            for o in np.flatnonzero(head.mix[:, c]).tolist():
                outputs[o] = outputs[o] + arb(float(head.mix[o, c])) * value
    return outputs


def residual_at(view: View, graph: Graph, names: tuple[str, ...], x: Array) -> list[arb]:
    """f_o(x) − net_o(x) at the exact float64 point x."""
    return [a - b for a, b in zip(values_at_point(graph, names, x), network_at(view, x), strict=True)]
