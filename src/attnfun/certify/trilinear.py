"""Ternary relations as trilinear forms: sup |r(x, y, z) − Σ_i a_i(x) b_i(y) c_i(z)| from stored coefficients.

Statement. With C the enclosed Chebyshev coefficients of r (`coefficients`), sup |r − C| ≤ e, and A, B, G the stored
coefficients of a, b, c: |T_j| ≤ 1 gives sup |r − Σ a b c| ≤ e + Σ |C − Σ_i A_i ⊗ B_i ⊗ G_i|. In float64 the triple
products of r terms are off by at most γ_{r+3} Σ_i ‖A_i‖₁‖B_i‖₁‖G_i‖₁.

**Rounding** (part "rounding"; the operations are those of `network.trilinear`): with s ≥ sup |a_i| and o the error of
a_i computed (`coefficients.column_errors`), a product of p computed within δ, |p| ≤ S, and of a_i is off by
δ(s + o) + S o + u (S + δ)(s + o), and the sum of r terms by γ_r Σ_i (S_i + δ_i) on top of Σ δ_i.

Failure modes: those of `coefficients`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.coefficients import Expansion, column_errors, expansion
from attnfun.certify.relation import IEEE, LIBM
from attnfun.certify.verdict import above, status_of
from attnfun.certify.view import Array, Undecided
from attnfun.expressions import BallAlgebra, Graph, precision, run
from attnfun.expressions.enclosures import abs_lower, arb, point_balls
from attnfun.network.trilinear import Sides, evaluate_trilinear
from attnfun.targets import Box

_U = 2.0**-53
_MOST = 1 << 27  # numbers in a table: a gigabyte


def trilinear_table(graph: Graph, box: Box, tolerance: float) -> Expansion:
    """C (N_1, N_2, N_3) and e; raises Undecided. `tolerance` steers, and proves nothing."""
    with precision(128):
        return expansion(graph, box.names, box.low_array, box.high_array, tolerance)


def trilinear_error(table: Array, error: float, stored: Sides) -> float:
    """A bound of sup |r − Σ_i a_i b_i c_i| for stored coefficients (N, rank) a side, padded to the table's shape."""
    shape = tuple(max(n, len(s)) for n, s in zip(table.shape, stored, strict=True))
    if math.prod(shape) > _MOST or shape[0] * shape[1] * stored[0].shape[1] > _MOST:
        raise Undecided(f"trilinear: {' by '.join(map(str, shape))} coefficients are more than are compared")
    C = np.pad(table, [(0, n - m) for n, m in zip(shape, table.shape, strict=True)])
    A, B, G = (np.pad(s, [(0, n - len(s)), (0, 0)]) for n, s in zip(shape, stored, strict=True))
    if not all(np.isfinite(s).all() for s in (A, B, G)):
        raise Undecided("trilinear: a coefficient is not finite")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound, below
        weight = float((np.abs(A).sum(axis=0) * np.abs(B).sum(axis=0) * np.abs(G).sum(axis=0)).sum())
        pairs = (A[:, None, :] * B[None]).reshape(-1, A.shape[1])
        gap = float(np.abs(C.reshape(-1, shape[2]) - pairs @ G.T).sum())
        lost = 1.01 * _U * ((A.shape[1] + 6) * weight + float(np.abs(C).sum()))
    total = (gap + lost) * (1 + (C.size + 8) * _U) + error
    return math.nextafter(total, math.inf) if math.isfinite(total) else math.inf


def trilinear_rounding(stored: Sides) -> float:
    """A bound of |computed − Σ_i a_i b_i c_i| in float64, infinite where it means nothing."""
    rank = stored[0].shape[1]
    size, off = np.ones(rank), np.zeros(rank)
    with np.errstate(all="ignore"):
        for P in stored:
            s, o = column_errors(P)
            off = off * (s + o) + size * o + 1.01 * _U * (size + off) * (s + o) + 1e-300
            size = size * s
        total = (float(off.sum()) + 1.01 * (rank + 2) * _U * float((size + off).sum())) * (1 + 1e-9)
    return total if total < 2.0**1000 else math.inf


def prove_trilinear(
    graph: Graph, box: Box, stored: Sides, eps: float | None = None, found: Expansion | None = None
) -> Certificate:
    """The certificate of a stored form computed in float64; `found` is the expansion if the caller has it already."""
    fields: dict[str, Any] = {"eps": eps, "norm": math.inf, "dtype": "float64", "construction": "trilinear"}
    fields |= {"target": graph.text(graph.outputs[0]), "domain": box.text}
    try:
        found = found or trilinear_table(graph, box, 1e-2 * (eps or 1e-6))
        high, loss = trilinear_error(found.table, found.error, stored), trilinear_rounding(stored)
    except Undecided as why:
        return Certificate(Status.UNDECIDED, (0.0, math.inf), method="trilinear", reason=str(why), **fields)
    total = math.nextafter(high + loss, math.inf) if high + loss < math.inf else math.inf
    low, at = _witness(graph, box, stored, loss)
    low = min(low, total)
    status = status_of(total, eps, low)
    reason = above(total, eps) if status in (Status.REFUTED, Status.UNDECIDED) else None
    return Certificate(
        status,
        (low, total),
        method="trilinear",
        parts={"construction": high, "rounding": loss},
        hypotheses=(*IEEE, *((LIBM,) if found.libm else ())),
        witness=None if at is None else tuple(float(v) for v in at),
        reason=reason,
        details={"target": found.error},
        **fields,
    )


def _witness(graph: Graph, box: Box, stored: Sides, loss: float) -> tuple[float, Array | None]:
    """(low, point): a proved lower bound of the error in real arithmetic, at a point found by sampling."""
    if not math.isfinite(loss):
        return 0.0, None
    Z = box.probe(2000, np.random.default_rng(0))
    seen = evaluate_trilinear(stored, box.low_array, box.high_array, Z)
    best, at = 0.0, None
    with precision(128):
        columns = {name: point_balls(Z[:, k]) for k, name in enumerate(box.names)}
        truth = np.broadcast_to(np.asarray(run(graph, BallAlgebra(), columns)[0], dtype=object), (len(Z),))
        gaps = [abs_lower(value - arb(float(one))) - loss for value, one in zip(truth, seen, strict=True)]
        i = int(np.argmax([gap if gap == gap else -1.0 for gap in gaps]))
        if gaps[i] > 0:
            best, at = math.nextafter(gaps[i], 0.0), Z[i]
    return best, at
