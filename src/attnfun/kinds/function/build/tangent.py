"""tangent: functions of one variable by heads whose keys are tangent lines of a convex potential.

| symbol | meaning |
| --- | --- |
| k_j, b_j, V_j | slopes, biases, values of a head: h(q) = Σ V_j e^{k_j q + b_j} / Σ e^{k_j q + b_j} |
| φ | the potential: key j is its tangent line at t_j |

Statement. Every f that is piecewise analytic, with kinks and with root or power singularities at known points, is
within ε of an affine function plus a sum of such heads of one layer: one for the smooth part, one *ladder* for each
side of a singular point, one one-sided head for each kink.
Source: the max-affine function of Boyd's piecewise-linear fits made smooth by the softmax (φ'' = (local bandwidth)^−2);
values by least squares; slopes and biases by variable projection (Golub and Pereyra 1973, Kaufman 1975).
Derivation. φ = c t² makes the weights Gaussian bells on an equispaced grid; φ = −α ln t makes them self-similar, and by
∫ e^{−x e^u} e^{αu} u du / ∫ e^{−x e^u} e^{αu} du = ψ(α) − ln x such a ladder holds logarithms and powers over any
number of decades; φ = λ|t| is a kink. tanh and sigmoid are heads of two keys exactly. The affine part of f rides in the
residual stream. See `unary/` for each of these.
Size: found by search, a power of ln(1/ε) for analytic f: x² 4 keys, sin(20x) 26, sqrt on [0,1] 21, |x| 4 at 1e-6.
Bound: none a priori; the error is sampled and then proved from the stored weights by *nodes* or *moments*.
Many outputs (13 and more) share the keys of one head where they are smooth, each with values of its own.
Failure mode: the search is not convex and may miss the smallest head; targets with hundreds of oscillations are past
its limit of 400 keys and refused with the error that was reached.
Example: af.compile("abs(sin(3*x))", domain={"x": (-1, 2)}, eps=1e-6).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.certify.staircase import jumps
from attnfun.errors import feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.unary.fit import fit_unary
from attnfun.kinds.function.build.unary.keys import Array, Fit, gaussian, head_of
from attnfun.network import Head, Layer, Network, ReluBlock, rounded

_MOST_OUTPUTS = 64  # that are fitted one by one


class Tangent(Construction):
    name = "tangent"
    summary = "heads of tangent-line keys, kinks and end-point singularities included: targets of one variable"

    def plan(self, request: Request) -> Plan:
        function = request.function
        graph = request.expression("tangent: a black box has no expression to read singular points from")
        feasible(function.box.dim == 1, f"tangent: {function.box.dim} variables; heads of this kind read one")
        feasible(not jumps(graph), "tangent: the target jumps")
        (low,), (high,), count = function.box.low, function.box.high, len(function.outputs)
        writes = tuple(f"heads of {o}" for o in function.outputs)
        if count > SHARED:  # all outputs as values of one head, their affine parts in the read-out
            shared = fit_shared(function.values, low, high, request.eps, request.dtype)
            if shared is not None and shared[0].keys <= request.max_keys:
                fit, slopes, offsets = shared
                story: dict[str, Any] = {"shared by": count, **_told([fit])}
                readout = np.concatenate([slopes[:, None], np.eye(count)], axis=1)
                head = _named(fit.pieces[0], "tangent", writes)
                return Plan.of(self.name, request, [fit], 1, ([head], readout, offsets), story, settles=True)
        why = f"tangent: {count} outputs that no small head can share; compile at most {_MOST_OUTPUTS} at a time"
        feasible(count <= _MOST_OUTPUTS, why)
        quick, graphs = count > SHARED, (graph.reachable([o]) for o in graph.outputs)
        fits = [fit_unary(g, low, high, request.eps, dtype=request.dtype, quick=quick) for g in graphs]
        heads, columns = [], []
        for row, (o, fit) in enumerate(zip(function.outputs, fits, strict=True)):
            heads += [_named(p, f"tangent {o}, piece {i + 1}", (writes[row],)) for i, p in enumerate(fit.pieces)]
            columns += [np.arange(count) == row] if fit.pieces else []
        readout = np.column_stack([[fit.slope for fit in fits], *columns])
        story = {"pieces": [[piece.keys for piece in fit.pieces] for fit in fits], **_told(fits)}
        data, layers = (heads, readout, [fit.offset for fit in fits]), int(bool(heads))
        return Plan.of(self.name, request, fits, layers, data, story, rank=2 * layers)

    def build(self, request: Request, plan: Plan) -> Network:
        heads, *read = plan.data
        return request.network([Layer(tuple(heads))] if heads else [], *read)


def _told(fits: Sequence[Fit]) -> dict[str, float]:
    return {"largest value": max(f.max_value for f in fits), "sampled error": max(f.error for f in fits)}


def _named(piece: Head | ReluBlock, name: str, writes: tuple[str, ...]) -> Head:
    assert isinstance(piece, Head)
    return replace(piece, name=name, writes=writes, key_names="tangent {0}")


SHARED = 12  # functions above which they are tried together
_SIZES = (4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 103)
_WORK = 1_500_000  # keys² times functions: a proof takes about as many operations
_ROOM = 0.9  # of eps
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}


def fit_shared(
    functions: Callable[[Array], Array], low: float, high: float, eps: float, dtype: str
) -> tuple[Fit, Array, Array] | None:
    """One head for all columns of `functions`, (n, 1) → (n, p), on [low, high], and their slopes and offsets; None
    where no small one was found. The keys are the same for all, and each has values of its own:

        f_o(u) ≈ slope_o u + offset_o + Σ_j softmax_j(slopes_j q + biases_j) values_jo,      q = w u + c

    Gaussian keys of rising number; the values of all functions are one least-squares problem with as many right sides,
    so that 200 functions cost little more than one. The first number of keys that is good enough on points four times
    as dense is taken: nothing here is a bound.
    Failure mode: kinks and singular points, and functions that need many keys; then there is none (None).
    """
    for size in _SIZES:
        head = gaussian(low, high, size, 1.3, 0.3, dtype).stored(dtype)
        lines = (np.cos(np.linspace(0, np.pi, 10 * size * dense)) for dense in (1, 4))  # denser towards the ends
        u, check = (np.clip(low + (high - low) * (1 - line) / 2, low, high) for line in lines)
        with np.errstate(all="ignore"):
            wanted, seen = functions(u[:, None]), functions(check[:, None])
        outputs = wanted.shape[1]
        if size * size * outputs > _WORK or not (np.isfinite(wanted).all() and np.isfinite(seen).all()):
            return None
        span = max(float(np.ptp(wanted, axis=0).max()), eps)
        ridge = np.concatenate([np.diag(np.full(size, eps / (30 * span))), np.zeros((size, 2))], axis=1)
        unit = (u - (low + (high - low) / 2)) / ((high - low) / 2)
        columns = np.concatenate([head.weights(u), np.ones((len(u), 1)), unit[:, None]], axis=1)
        system = np.concatenate([columns / np.sqrt(len(u)), ridge])
        right = np.concatenate([wanted / np.sqrt(len(u)), np.zeros((size, outputs))])
        x = np.linalg.lstsq(system, right, rcond=None)[0]
        slopes = rounded(x[-1] / ((high - low) / 2), dtype)
        offsets = rounded(x[-2] - slopes * (low + (high - low) / 2), dtype)
        values = rounded(x[:-2], dtype)
        found = head.weights(check) @ values + check[:, None] * slopes + offsets
        error = float(np.abs(found - seen).max())
        rounding = 4 * (size + 8) * _ROUNDOFF[dtype] * float(np.abs(values).max())
        if error + rounding <= _ROOM * eps and float(np.abs(values).max()) <= 100 * span:
            return Fit((head_of(head, values, dtype),), error=error), slopes, offsets
    return None
