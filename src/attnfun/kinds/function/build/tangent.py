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

from __future__ import annotations

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.function.build.plan import Plan, Request
from attnfun.kinds.function.build.unary import Piece, UnaryFit, fit_unary
from attnfun.kinds.function.build.unary.keys import Array, Keys
from attnfun.kinds.function.build.unary.shared import SHARED, SharedFit, fit_shared
from attnfun.network import Axis, Head, Layer, Network

_MOST_OUTPUTS = 64  # that are fitted one by one


class Tangent:
    name = "tangent"
    summary = "heads of tangent-line keys, kinks and end-point singularities included: targets of one variable"
    realisations: tuple[str, ...] = ("attention",)

    def plan(self, request: Request) -> Plan:
        function = request.function
        graph = request.expression("tangent: a black box has no expression to read singular points from")
        if function.box.dim != 1:
            raise Infeasible(f"tangent: {function.box.dim} variables; heads of this kind read one")
        low, high = function.box.low[0], function.box.high[0]
        outputs = len(function.outputs)
        if outputs > SHARED:
            head = fit_shared(function.values, low, high, request.eps, request.dtype)
            if head is not None and head.keys <= request.max_keys:
                shared = {"shared by": outputs, "largest value": head.max_value, "sampled error": head.error}
                return Plan.of(self.name, request, [head], 1, head, shared, settles=True)
        if outputs > _MOST_OUTPUTS:
            raise Infeasible(
                f"tangent: {outputs} outputs that no small head can share; compile at most {_MOST_OUTPUTS} at a time"
            )
        quick, graphs = outputs > SHARED, (graph.reachable([o]) for o in graph.outputs)
        fits = tuple(fit_unary(g, low, high, request.eps, dtype=request.dtype, quick=quick) for g in graphs)
        story = {
            "pieces": [[len(p.slopes) for p in f.pieces] for f in fits],
            "largest value": max(f.max_value for f in fits),
            "sampled error": max(f.error for f in fits),
        }
        layers = int(any(f.pieces for f in fits))
        return Plan.of(self.name, request, fits, layers, fits, story, rank=2 * layers)

    def build(self, request: Request, plan: Plan) -> Network:
        outputs = request.function.outputs
        if isinstance(plan.data, SharedFit):  # all outputs as values of one head, their affine parts in the read-out
            shared = plan.data
            head = _head(shared.head, shared.values, "tangent", tuple(f"heads of {o}" for o in outputs))
            readout = np.concatenate([shared.slopes[:, None], np.eye(len(outputs))], axis=1)
            return request.network([Layer((head,))], readout, shared.offsets)
        fits: tuple[UnaryFit, ...] = plan.data
        heads = tuple(
            _head(piece, piece.values[:, None], f"tangent {o}, piece {i + 1}", (f"heads of {o}",))
            for o, fit in zip(outputs, fits, strict=True)
            for i, piece in enumerate(fit.pieces)
        )
        written = list(dict.fromkeys(h.writes[0] for h in heads))
        readout = np.zeros((len(outputs), 1 + len(written)))
        for row, (o, fit) in enumerate(zip(outputs, fits, strict=True)):
            readout[row, 0] = fit.slope
            if fit.pieces:
                readout[row, 1 + written.index(f"heads of {o}")] = 1.0
        return request.network([Layer(heads)] if heads else [], readout, [f.offset for f in fits])


def _head(keys: Piece | Keys, values: Array, name: str, writes: tuple[str, ...]) -> Head:
    axis = Axis(np.array([[keys.w]]), np.array([keys.c]), keys.slopes[:, None], keys.biases)
    return Head(name, (axis,), values, writes, "tangent {0}")
