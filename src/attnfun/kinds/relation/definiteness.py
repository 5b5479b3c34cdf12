"""Is a symmetric relation positive semidefinite? A witness against it, checked exactly.

Statement. If points z_1 … z_n and a vector v have vᵀ K v < 0, K_ij = r(z_i, z_j), then r is no inner product
⟨φ(x), φ(y)⟩, and every positive semidefinite kernel K' has sup |r − K'| ≥ −vᵀ K v/|v|₁², because vᵀ K' v ≥ 0 and
|vᵀ (K − K') v| ≤ |v|₁² sup |K − K'|.
The points and v are doubles, that is, rational numbers, and stay exactly these; the entries of K are enclosed in balls
of 256 bits, and the sum over i, j with them. v is the eigenvector of the least eigenvalue of the weighted table.
Failure mode: silence proves nothing. A violation below rounding, or between the points, is not seen.
"""

from dataclasses import dataclass

import numpy as np

from attnfun.kinds.relation.rank import gauss, section_balls
from attnfun.kinds.relation.target import Relation
from attnfun.language import Array, precision
from attnfun.language.enclosures import lower, point_balls, upper

_NODES = {1: 64, 2: 18, 3: 7}
_SCATTERED = 400


@dataclass(frozen=True)
class NegativeDirection:
    """Points (n, d) and v (n,) with vᵀKv ≤ `form` < 0; no positive semidefinite kernel is nearer than `distance`."""

    points: Array
    vector: Array
    form: float
    distance: float


def negative_direction(relation: Relation) -> NegativeDirection | None:
    """A checked witness that the relation is not positive semidefinite, or None where none was found."""
    box, d = relation.left, relation.left.dim
    if d in _NODES:
        Z, roots = gauss(box, tuple(range(d)), _NODES[d])
    else:
        Z = box.probe(_SCATTERED // 2, np.random.default_rng(0))[:_SCATTERED]
        roots = np.ones(len(Z))
    corners = box.probe(1, np.random.default_rng(0))[1 : 1 + 2 ** min(d, 5)]
    Z, roots = np.concatenate([Z, corners]), np.r_[roots, np.full(len(corners), roots.min())]
    K = relation.table(Z, Z)
    if not np.isfinite(K).all():
        return None
    K = (K + K.T) / 2
    worst = int(np.argmin(np.diag(K)))
    if K[worst, worst] < 0:
        found = checked(relation, Z[[worst]], np.ones(1))
        if found is not None and found.distance > 0.1 * float(np.abs(K).max()):
            return found
    values, vectors = np.linalg.eigh(roots[:, None] * K * roots[None, :])
    if not values[0] < -(2.0**-52) * float(np.abs(values).max()):
        return None
    v = roots * vectors[:, 0]
    v = v / np.abs(v).max()
    kept = np.abs(v) > 1e-13
    return checked(relation, Z[kept], v[kept])


def checked(relation: Relation, points: Array, vector: Array) -> NegativeDirection | None:
    """The witness with its form and distance, worked out in balls; None unless vᵀKv < 0 is certain."""
    with precision(256):
        K = section_balls(relation.graph, relation.left.names, relation.right.names, points, points)
        v = point_balls(vector)
        form, mass = v @ (K @ v), sum(abs(c) for c in v)
        if not form < 0:
            return None
        return NegativeDirection(np.array(points), np.array(vector), upper(form), lower(-form / (mass * mass)))
