"""Method *separable terms*: sup |r(x, y) − ⟨φ(x), ψ(y)⟩| for a relation that is a finite sum of terms.

Statement. Let r = Σ_i s_i a_i(x) b_i(y) be the expansion that `targets.relation_sum` derives from the stored relation
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

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.inner import inner_certificate
from attnfun.certify.towers import score_error
from attnfun.certify.verdict import above, status_of
from attnfun.certify.view import Array, Undecided
from attnfun.errors import AttnfunError
from attnfun.expressions import BallAlgebra, Graph, precision, run
from attnfun.expressions.enclosures import abs_lower, abs_uppers, arb, balls, point_balls
from attnfun.network import evaluate
from attnfun.network.separable import Separable
from attnfun.targets import Box, require_defined
from attnfun.targets.ranges import range_of
from attnfun.targets.relation import Relation
from attnfun.targets.relation_sum import Expansion, expansion_of

_POINTS = 64
_BUDGET = 200  # boxes for a feature that one ball does not bound


def prove_by_expansion(
    relation: Relation,
    stored: Separable,
    eps: float | None = None,
    construction: str = "",
    report: Callable[[str], None] | None = None,
) -> Certificate:
    """The certificate of two stored networks for a stored relation."""
    say = report or (lambda _text: None)
    fields: dict[str, Any] = {"eps": eps, "norm": math.inf, "dtype": "float64", "target": relation.text}
    fields |= {"construction": construction, "method": "separable terms", "domain": relation.domain_text}
    try:
        found = _fitting(relation, stored)
        sides, hypotheses, rounding = [], dict[str, None](), []
        one = stored.signs is not None
        for graph, box, network in (
            (found.left, relation.left, stored.left),
            (found.right, relation.right, stored.right),
        )[: 1 if one else 2]:
            say("the bound of a tower")
            certificate = inner_certificate(network, graph, box, report)
            if certificate.status not in (Status.PROVED, Status.BOUNDED):
                raise Undecided(f"a tower could not be proved: {certificate.reason}")
            size = feature_sizes(graph, box)
            sides.append((np.full(len(size), certificate.error[1]), size))
            rounding.append(certificate.parts["rounding"])
            hypotheses |= dict.fromkeys(certificate.hypotheses)
        high, loss = score_error(sides[0], sides[-1])
        loss += 2 * stored.rank * 2.0**-1074
        total = math.nextafter(high + loss, math.inf)
        if not total < math.inf:
            raise Undecided("the score may overflow")
    except (Undecided, AttnfunError) as why:
        return Certificate(Status.UNDECIDED, (0.0, math.inf), reason=str(why), **fields)
    # what float64 may have moved at a point: in both towers, and in the inner product
    moved = score_error((np.full(stored.rank, rounding[0]), sides[0][1] + sides[0][0]),
                        (np.full(stored.rank, rounding[-1]), sides[-1][1] + sides[-1][0]))  # fmt: skip
    low, at = _witness(relation, stored, 2 * (moved[0] + moved[1] + loss))
    low = min(low, total)
    status = status_of(total, eps, low)
    reason = above(total, eps) if status in (Status.REFUTED, Status.UNDECIDED) else None
    return Certificate(
        status,
        (low, total),
        parts={"construction": high, "rounding": loss},
        hypotheses=tuple(hypotheses),
        witness=None if at is None else tuple(float(v) for v in at),
        reason=reason,
        details={"towers": [float(errors[0]) for errors, _ in sides], "terms": found.rank},
        **fields,
    )


def _fitting(relation: Relation, stored: Separable) -> Expansion:
    """The expansion of the relation whose features the networks can be; raises Undecided."""
    found = expansion_of(relation)
    if found is None:
        raise Undecided("the relation is not seen to be a sum of separable terms")
    if found.rank != stored.rank or (found.signs is None) != (stored.signs is None):
        raise Undecided("the towers are not those of the relation's terms")
    if found.signs is not None and not np.array_equal(np.array(found.signs), stored.product_signs):
        raise Undecided("the signs are not those of the relation's terms")
    if any(network.dtype != "float64" for network in (stored.left, stored.right)):
        raise Undecided("the towers of a relation are in float64")
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


def _witness(relation: Relation, stored: Separable, loss: float) -> tuple[float, Array | None]:
    """(a lower bound of the error, a point at which it was found by sampling)."""
    Z = relation.joint.probe(_POINTS, np.random.default_rng(0))
    X, Y = Z[:, : relation.left.dim], Z[:, relation.left.dim :]
    seen = np.sum(evaluate(stored.left, X) * stored.product_signs * evaluate(stored.right, Y), axis=1)
    error = np.abs(seen - relation.values(X, Y))
    best, at = 0.0, None
    for i in np.argsort(np.where(np.isfinite(error), error, -1))[-2:]:
        with precision(128):
            env = {name: point_balls(Z[i : i + 1, k])[0] for k, name in enumerate(relation.joint.names)}
            gap = abs_lower(run(relation.graph, BallAlgebra(clip_sqrt=True), env)[0] - arb(float(seen[i]))) - loss
        if gap > best:
            best, at = math.nextafter(gap, 0.0), Z[i]
    return best, at
