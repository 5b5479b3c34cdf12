"""Hats: broken lines through a table of the relation, as ReLU units of one variable per side.

Statement: with nodes z_k, w_l and hat functions, r ≈ Σ_kl hat_k(x) R_kl hat_l(y), R = r(z, w), factored as P Qᵀ; the
columns of P and Q are values of broken lines, and all features of a side share the same hidden units relu(x − z).
Source: piecewise linear interpolation; units side by side as in Altabaa and Lafferty, arXiv 2402.08856, who count them
by Barron's theorem.
Derivation: interpolating a kink is wrong to one side, by up to L h/2, so a constant, one feature, halves the error:
L h/4, and 1 + L/(4ε) nodes for |x − y|. Truncation and interpolation share ε freely, because the residual of both is
looked at on a grid four times as fine as the nodes.
Size: nodes − 2 units and `rank` features per side. Bound: `prove_cells`.
Failure mode: one variable per side; past MOST_NODES nodes it is refused.
Example: abs(x − y) on [0, 1]² at 1e-2: some thirty features.
"""

import math

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.relation.build.search import Ask, near
from attnfun.kinds.relation.build.voronoi import ROOM, TRIES, cells_fit, factors
from attnfun.kinds.relation.core import core_of
from attnfun.kinds.relation.features import Ends
from attnfun.kinds.relation.form import Cells, CellSide
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import Keys
from attnfun.network.head import Array
from attnfun.search import MET, Proposal, Proposals

MOST_NODES = 500
_FINE = 4


def broken_lines(ask: Ask) -> Proposals:
    """Broken lines of the least rank that is found, of the relation or of its core."""
    eps, core = ask.eps, core_of(ask.relation)
    if (core.left.dim, core.right.dim) != (1, 1):
        text = f"hats: ReLU units of {core.left.dim} and {core.right.dim} variables; one a side is built"
        raise Infeasible(text, {"realise": "attention"} if cells_fit(ask, core) else None)
    inner, least = ask.inner(core), math.inf
    nodes, failed, reached = 5, 0, 0.0
    while nodes <= MOST_NODES and failed < TRIES:
        for room in (ROOM, 0.9):
            try:
                made = hat_towers(inner, nodes, room * eps, ask.signed)
            except Infeasible:
                break
            if not made.rank < 0.97 * least:
                return
            ask.say(f"{nodes} nodes per side, {made.rank} features")
            certificate = yield Proposal(made, "hats", more=True)
            if certificate.status in MET:
                least = made.rank
                break
            failed, reached = failed + 1, certificate.error[1]
        nodes = math.ceil(nodes * 1.4)
    if least == math.inf:
        why = f"could not be proved with {nodes} nodes" if failed else f"takes more than {MOST_NODES} nodes per side"
        nearest = near(1.15 * max(eps, smallest(inner), reached), realise="mlp")
        raise Infeasible(f"hats: eps={eps:.3g} for {ask.text} {why}", nearest)


def hat_towers(relation: Relation, nodes: int, error: float, signed: bool) -> Cells:
    """Broken lines through `nodes` nodes per side, of the fewest features within `error` on a fine grid."""
    (zx, zy), R, fine, W, V = _tables(relation, nodes)
    P, Q, signs = factors(R, error, relation.symmetric, signed, (fine, W, V))
    ends = [(b.low_array, b.high_array) for b in (relation.left, relation.right)]
    first = _units(zx, P, ends[0])
    return Cells(first, signs=signs) if signs is not None else Cells(first, _units(zy, Q, ends[1]))


def smallest(relation: Relation) -> float:
    """The error on a fine grid that the most nodes leave, all features taken."""
    _, R, fine, W, V = _tables(relation, MOST_NODES)
    return float(np.abs(fine - W @ R @ V.T).max())


def _tables(relation: Relation, nodes: int) -> tuple[list[Array], Array, Array, Array, Array]:
    """Nodes of both sides, the relation there and at finer points, and the hat functions at these."""
    z = [np.linspace(box.low[0], box.high[0], nodes) for box in relation.boxes]
    (fx, W), (fy, V) = map(_fine, z)
    return z, relation.table(z[0][:, None], z[1][:, None]), relation.table(fx[:, None], fy[:, None]), W, V


def _fine(z: Array) -> tuple[Array, Array]:
    """Points four times as fine as the nodes, and the hat functions there: (points,), (points, nodes)."""
    x = np.interp(np.arange(_FINE * (len(z) - 1) + 1) / _FINE, np.arange(len(z)), z)
    place = np.minimum(np.arange(len(x)) // _FINE, len(z) - 2)
    share = (x - z[place]) / (z[place + 1] - z[place])
    W = np.zeros((len(x), len(z)))
    W[np.arange(len(x)), place] = 1 - share
    W[np.arange(len(x)), place + 1] += share
    return x, W


def _units(z: Array, P: Array, box: Ends) -> CellSide:
    """Units whose broken lines go through (z_k, P_k)."""
    slopes = np.diff(P, axis=0) / np.diff(z)[:, None]
    feasible(len(z) >= 3, "hats: at least three nodes are needed")
    key, lines = Keys(1.0, 0.0, np.ones(len(z) - 2), -z[1:-1]), np.stack([slopes[0], P[0] - slopes[0] * z[0]])
    return CellSide((key,), np.diff(slopes, axis=0), box, lines)
