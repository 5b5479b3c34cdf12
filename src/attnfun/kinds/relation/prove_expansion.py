"""Method *separable terms*: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| for a relation that is a finite sum of terms.

Statement. Let r = Σ_i s_i a_i(x) b_i(y) be the expansion that `terms` derives from the stored relation
by exact identities. Let the stored networks compute φ̂, ψ̂ in float64 with |φ̂_i − a_i| ≤ δ and |ψ̂_i − b_i| ≤ θ on all of
their boxes, as `prove` finds from their weights. Then for all x, y, with A_i ≥ sup |a_i| and B_i ≥ sup |b_i|,

    |⟨φ̂, Jψ̂⟩ − r| ≤ Σ_i (δ B_i + θ A_i + δ θ),

and the inner product of n terms in float64, in any order, adds γ_{n+1} Σ (A_i + δ)(B_i + θ) and what underflows.

Argument. φ̂_i ψ̂_i − a_i b_i = (φ̂_i − a_i) b_i + (ψ̂_i − b_i) a_i + (φ̂_i − a_i)(ψ̂_i − b_i), summed; signs are exact.
The identities hold where the relation is defined, which callers prove; that the a_i, b_i are defined on the whole of
their boxes is proved here. Nothing depends on the number of variables but the networks' own proofs.
Failure modes: Undecided where the relation has no such expansion, where the networks are others than its features need,
and where one of them could not be proved.
"""

import math

import numpy as np

from attnfun.certify.certificate import Status
from attnfun.certify.verdict import Proof
from attnfun.certify.view import Array, Undecided, provided
from attnfun.errors import present
from attnfun.kinds.relation.form import Separable
from attnfun.kinds.relation.prove_inner import inner_certificate
from attnfun.kinds.relation.prove_towers import score_error
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.terms import Expansion, expansion_of
from attnfun.kinds.relation.witness import bounded, seen_at
from attnfun.language import BallAlgebra, Box, Graph, precision, run
from attnfun.language.definedness import require_defined
from attnfun.language.enclosures import abs_uppers, balls
from attnfun.language.ranges import range_of
from attnfun.search import Say

_POINTS = 64
_BUDGET = 200  # boxes for a feature that one ball does not bound


def proof(relation: Relation, stored: Separable, _eps: float | None, say: Say) -> Proof:
    """What is proved of two stored networks for a stored relation."""
    found = _fitting(relation, stored)
    sides, hypotheses, rounding = [], dict[str, None](), []
    both = (found.left, relation.left, stored.left), (found.right, relation.right, stored.right)
    for graph, box, network in both[: 1 if stored.signs is not None else 2]:
        say("the bound of a tower")
        certificate = inner_certificate(network, graph, box, say)
        if certificate.status not in (Status.PROVED, Status.BOUNDED):
            raise Undecided(f"a tower could not be proved: {certificate.reason}")
        size = feature_sizes(graph, box)
        sides.append((np.full(len(size), certificate.error[1]), size))
        rounding.append(certificate.parts["rounding"])
        hypotheses |= dict.fromkeys(certificate.hypotheses)
    high, loss = score_error(sides[0], sides[-1])
    loss += 2 * stored.rank * 2.0**-1074
    provided(math.nextafter(high + loss, math.inf) < math.inf, "the score may overflow")
    # what float64 may have moved at a point: in both towers, and in the inner product
    moved = score_error((np.full(stored.rank, rounding[0]), sides[0][1] + sides[0][0]),
                        (np.full(stored.rank, rounding[-1]), sides[-1][1] + sides[-1][0]))  # fmt: skip
    Z = relation.joint.probe(_POINTS, np.random.default_rng(0))
    seen = seen_at(relation, Z, stored.run(*relation.of_columns(Z)), 2 * (moved[0] + moved[1] + loss))
    details = {"towers": [float(errors[0]) for errors, _ in sides], "terms": found.rank}
    return bounded(stored.method, high, loss, seen, tuple(hypotheses), details)


def _fitting(relation: Relation, stored: Separable) -> Expansion:
    """The expansion of the relation whose features the networks can be; raises Undecided."""
    found = present(expansion_of(relation), Undecided("the relation is not seen to be a sum of separable terms"))
    if found.rank != stored.rank or (found.signs is None) != (stored.signs is None):
        raise Undecided("the towers are not those of the relation's terms")
    if found.signs is not None and not np.array_equal(np.array(found.signs), stored.product_signs):
        raise Undecided("the signs are not those of the relation's terms")
    provided(all(n.dtype == "float64" for n in (stored.left, stored.right)), "the towers of a relation are in float64")
    require_defined(found.left, relation.left)
    require_defined(found.right, relation.right)
    return found


def feature_sizes(graph: Graph, box: Box) -> Array:
    """(outputs,) bounds of sup |output| on the box."""
    with precision(64):
        env = {n: balls([a], [b]) for n, a, b in zip(box.names, box.low, box.high, strict=True)}
        values = run(graph, BallAlgebra(sharp=True), env)
        sizes = np.array([np.max(abs_uppers(np.atleast_1d(np.asarray(v, dtype=object)))) for v in values])
    for i in np.flatnonzero(~np.isfinite(sizes)):
        low, high = range_of(graph.reachable([graph.outputs[i]]), box, budget=_BUDGET)[0]
        sizes[i] = max(abs(low), abs(high))
    return sizes
