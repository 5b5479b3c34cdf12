"""A head over a table: the left tower of a relation and the key vectors βψ(y_j), at the temperature that is asked for.

Unless beta is given it is the one that gives the best key the weight 1 − delta at the median margin; what the proof of
a head says of its scores is more than what is known of the relation, so beta may have to grow a little.
"""

import math

from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible
from attnfun.kinds.relation.form import Polynomials
from attnfun.kinds.relation.prove_polynomials import parts_that_fit
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.view import RelationApproximant
from attnfun.kinds.retrieval.prove import head_error
from attnfun.kinds.retrieval.prove_bounds import beta_needed
from attnfun.kinds.retrieval.target import Columns
from attnfun.kinds.retrieval.weights import RetrievalWeights, key_vectors
from attnfun.search import Proposal, Proposals, Say

_TRIES = 4


def eps_of(found: RelationApproximant) -> float:
    """What the scores of a head over this relation are to be within."""
    return float(found.request.get("eps") or found.certificate.error[1])


def heads(
    found: RelationApproximant, table: Columns, out: Columns, margin: float, beta: float | None, delta: float, say: Say
) -> Proposals:
    """The head of a relation over the keys of `table`, which hands out `out`; `margin` is the median one."""
    asked, own = found.target, found.weights
    assert isinstance(own, Polynomials)
    features = own.at(asked, 1, table.values)
    error = found.certificate.error[1]
    cold = float(beta) if beta is not None else _beta(asked, len(table.values), margin, error, delta)
    try:
        parts = parts_that_fit(asked, own.features, eps_of(found))
        for _ in range(_TRIES):
            say("the proof of the head")
            vectors, ids = key_vectors(features, cold), table.ids or out.ids
            weights = RetrievalWeights(table.values, out.values, cold, ids, own, vectors, out.names)
            needed = beta_needed(weights.keys, margin, head_error(asked, weights, parts).error(cold), delta)
            if beta is not None or not cold < needed < math.inf:
                break
            cold = needed * (1 + 1e-9)
    except Undecided as why:  # what cannot be proved cannot be had
        raise Infeasible(f"a head over these keys cannot be proved: {why}") from None
    missed = yield Proposal(weights, found.method)
    raise Infeasible(f"eps={missed.eps} for a head over {weights.keys:,} keys was not proved: {missed.reason}")


def _beta(asked: Relation, keys: int, margin: float, error: float, delta: float) -> float:
    """The inverse temperature for the median margin, or a refusal with the eps that would do."""
    needed = beta_needed(keys, margin, error, delta)
    if math.isfinite(needed):
        return needed if needed > 0 else 1.0
    nearest = {"eps": float(f"{margin / 4:.1e}")} if margin > 0 else {"beta": float(f"{1 / error:.1e}")}
    raise Infeasible(f"{asked.text[:120]}: {too_coarse(margin, error)}, so no beta singles out the best key", nearest)


def too_coarse(margin: float, error: float) -> str:
    """Why scores single out no best key."""
    if margin > 0:
        return f"half of the queries have margins of at most {margin:.3g}, and the scores are off by up to {error:.3g}"
    return "half of the queries have no best key (a margin of 0)"
