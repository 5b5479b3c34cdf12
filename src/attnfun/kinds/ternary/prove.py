"""Ternary relations as trilinear forms: sup |r(x, y, z) − Σ_i a_i(x) b_i(y) c_i(z)| from stored coefficients.

Statement. With C the enclosed Chebyshev coefficients of r (`relation/prove_coefficients.py`), sup |r − C| ≤ e, and A,
B, G the stored coefficients of a, b, c: |T_j| ≤ 1 gives sup |r − Σ a b c| ≤ e + Σ |C − Σ_i A_i ⊗ B_i ⊗ G_i|. In float64
the triple products of r terms are off by at most γ_{r+3} Σ_i ‖A_i‖₁‖B_i‖₁‖G_i‖₁.

**Rounding** (part "rounding"; the operations are those of `Trilinear.run`): with s ≥ sup |a_i| and o the error of
a_i computed (`column_errors`), a product of p computed within δ, |p| ≤ S, and of a_i is off by
δ(s + o) + S o + u (S + δ)(s + o), and the sum of r terms by γ_r Σ_i (S_i + δ_i) on top of Σ δ_i.

Failure modes: those of `relation/prove_coefficients.py`.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from attnfun.certify.verdict import Proof
from attnfun.certify.view import Array, Undecided, provided
from attnfun.kinds.relation.prove import proof as judged
from attnfun.kinds.relation.prove_coefficients import Expansion, column_errors, expansion, padded
from attnfun.kinds.relation.prove_polynomials import IEEE, LIBM
from attnfun.kinds.relation.witness import bounded, seen_at
from attnfun.kinds.ternary.target import Coefficients, Ternary, Trilinear
from attnfun.language import Box, Graph, precision
from attnfun.search import Goal, Say

_U = 2.0**-53
_MOST = 1 << 27  # numbers in a table: a gigabyte


@lru_cache(maxsize=1)
def trilinear_table(graph: Graph, box: Box, tolerance: float) -> Expansion:
    """C (N_1, N_2, N_3) and e; raises Undecided. `tolerance` steers, and proves nothing."""
    with precision(128):
        return expansion(graph, box.names, box.low_array, box.high_array, tolerance)


def trilinear_error(table: Array, error: float, stored: Coefficients) -> float:
    """A bound of sup |r − Σ_i a_i b_i c_i| for stored coefficients (N, rank) a side, padded to the table's shape."""
    shape = tuple(max(n, len(s)) for n, s in zip(table.shape, stored, strict=True))
    if math.prod(shape) > _MOST or shape[0] * shape[1] * stored[0].shape[1] > _MOST:
        raise Undecided(f"trilinear: {' by '.join(map(str, shape))} coefficients are more than are compared")
    C = padded(table, shape)
    A, B, G = (padded(s, (n, s.shape[1])) for n, s in zip(shape, stored, strict=True))
    provided(all(np.isfinite(s).all() for s in (A, B, G)), "trilinear: a coefficient is not finite")
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is not a bound, below
        weight = float((np.abs(A).sum(axis=0) * np.abs(B).sum(axis=0) * np.abs(G).sum(axis=0)).sum())
        pairs = (A[:, None, :] * B[None]).reshape(-1, A.shape[1])
        gap = float(np.abs(C.reshape(-1, shape[2]) - pairs @ G.T).sum())
        lost = 1.01 * _U * ((A.shape[1] + 6) * weight + float(np.abs(C).sum()))
    total = (gap + lost) * (1 + (C.size + 8) * _U) + error
    return math.nextafter(total, math.inf) if math.isfinite(total) else math.inf


def trilinear_rounding(stored: Coefficients) -> float:
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


def proof(target: Ternary, form: Any, goal: Goal, say: Say) -> Proof:
    """What is proved of a stored form; nothing is known of trained towers."""
    return judged(target, form, goal, say, {Trilinear.method: _proof})


def _proof(target: Ternary, form: Trilinear, eps: float | None, say: Say) -> Proof:
    """What is proved of a stored form, computed in float64.

    Without an eps the table is made as fine as the error that is seen needs; that decides how hard it tries, no more.
    """
    provided(form.box == target.box, "the form is one on another box than the relation's")
    Z = target.box.probe(2000, np.random.default_rng(0))
    seen = form.run(*target.of_columns(Z))
    error = np.abs(seen - target.at(Z))
    largest = float(error[np.isfinite(error)].max(initial=0.0)) or 1e-6
    say("coefficients of the relation")
    found = trilinear_table(target.graph, target.box, 1e-2 * (eps or largest))
    high, loss = trilinear_error(found.table, found.error, form.coefficients), trilinear_rounding(form.coefficients)
    low = seen_at(target, Z, seen, loss) if math.isfinite(loss) else (0.0, None)
    hypotheses = (*IEEE, *((LIBM,) if found.libm else ()))
    return bounded(form.method, high, loss, low, hypotheses, {"target": found.error})
