"""What quantisation by Voronoi cells would cost: the published construction of relations, counted for comparison.

Statement (Altabaa and Lafferty, arXiv 2402.08856, section on asymmetric relations). Take one centre a cell on both
sides and R_ij = r(v_i, w_j); the towers are one-hot in the cells, so the rank is at most the number of cells. On a grid
of cells of sides h_k, with L_k ≥ |∂_k r|, the error is at most Σ_k L_k h_k/2 over all left and right variables; h_k =
2ε/(D L_k) for D variables gives Π_k ⌈(b_k − a_k)/h_k⌉ cells a side. L_k is proved by balls for the gradient.
Failure mode: infinite where the gradient is not bounded, or past six variables (not worked out).
"""

import math

from attnfun.kinds.relation.prove_inner import gradient_bounds
from attnfun.kinds.relation.target import Relation


def voronoi_cells(relation: Relation, eps: float) -> tuple[float, float]:
    """(left, right) cells that the quantisation takes for the sup norm eps; infinite where it is not worked out."""
    box = relation.joint
    slopes = gradient_bounds(relation.graph, box.names, box.low_array, box.high_array).tolist()
    counts = [
        max(1.0, math.ceil((b - a) * box.dim * slope / (2 * eps))) if math.isfinite(slope) else math.inf
        for a, b, slope in zip(box.low, box.high, slopes, strict=True)
    ]
    return math.prod(counts[: relation.left.dim]), math.prod(counts[relation.left.dim :])
