"""What quantisation by Voronoi cells would cost: the published construction of relations, counted for comparison.

Statement (Altabaa and Lafferty, arXiv 2402.08856, section on asymmetric relations). Take one centre a cell on both
sides and R_ij = r(v_i, w_j); the towers are one-hot in the cells, so the rank is at most the number of cells. On a grid
of cells of sides h_k, with L_k ≥ |∂_k r|, the error is at most Σ_k L_k h_k/2 over all left and right variables; h_k =
2ε/(D L_k) for D variables gives Π_k ⌈(b_k − a_k)/h_k⌉ cells a side. L_k is proved by balls for the gradient.
Failure mode: infinite where the gradient is not bounded, or past six variables (not worked out).
"""

from __future__ import annotations

import math

import numpy as np

from attnfun.kinds.relation.target import Relation
from attnfun.language import BallAlgebra, GradientAlgebra, precision, run
from attnfun.language.enclosures import abs_uppers, balls

_CELLS = {2: 24, 3: 8, 4: 5, 5: 3, 6: 3}


def voronoi_cells(relation: Relation, eps: float) -> tuple[float, float]:
    """(left, right) cells that the quantisation takes for the sup norm eps; infinite where it is not worked out."""
    box = relation.joint
    if box.dim not in _CELLS:
        return math.inf, math.inf
    n = _CELLS[box.dim]
    edges = [np.linspace(a, b, n + 1) for a, b in zip(box.low, box.high, strict=True)]
    lefts = np.meshgrid(*(e[:-1] for e in edges), indexing="ij")
    rights = np.meshgrid(*(e[1:] for e in edges), indexing="ij")
    with precision(64):
        boxes = {name: balls(a.ravel(), b.ravel()) for name, a, b in zip(box.names, lefts, rights, strict=True)}
        algebra = GradientAlgebra(BallAlgebra(sharp=True), box.dim)
        partials = run(relation.graph, algebra, algebra.variables(list(box.names), boxes))[0].partials or ()
        slopes = []
        for partial in partials:
            sizes = np.zeros(1) if partial is None else abs_uppers(np.asarray(partial, dtype=object).ravel())
            slopes.append(float(np.max(np.where(np.isnan(sizes), np.inf, sizes))))
    slopes += [0.0] * (box.dim - len(slopes))
    counts = [
        max(1.0, math.ceil((b - a) * box.dim * slope / (2 * eps))) if math.isfinite(slope) else math.inf
        for a, b, slope in zip(box.low, box.high, slopes, strict=True)
    ]
    return math.prod(counts[: relation.left.dim]), math.prod(counts[relation.left.dim :])
