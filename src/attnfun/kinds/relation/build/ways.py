"""Which way a relation is met: separable terms, features that are polynomials, soft cells, or slices, only measured.

Order of `auto`: the relation's own separable terms where it is a finite sum of them (`terms`) and no fewer features
can be had or were found with polynomials (`search`); where the relation has no table of coefficients (a kink, too many
variables) soft cells, proved; where these are out of reach and accept="sampled" asks for it slices, `sampled`.

Without that request such a relation is refused. Where no tolerance of interest can be proved (a smooth relation of too
many variables, or cells that would not even tell the relation from a constant) the refusal offers accept="sampled",
once slices were seen to do. A relation in few variables with a kink, or with a root or an arcsine that may be singular
at an end of its domain, is refused with the nearest eps that can be proved.
"""

import math
from dataclasses import replace

import numpy as np

from attnfun.certify import Certificate, Status
from attnfun.errors import AttnfunError, Infeasible, feasible, require
from attnfun.kinds.relation.build.cross import slices
from attnfun.kinds.relation.build.hats import broken_lines
from attnfun.kinds.relation.build.inner import function_network
from attnfun.kinds.relation.build.search import OUT, Ask, NoCoefficients, near, polynomials, require_kernel
from attnfun.kinds.relation.build.voronoi import soft_cells
from attnfun.kinds.relation.form import Polynomials, Separable
from attnfun.kinds.relation.prove_expansion import feature_sizes
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.terms import Expansion, expansion_of, refuse_many_terms
from attnfun.language.graph import NOT_ANALYTIC
from attnfun.language.operations import OPERATIONS
from attnfun.search import Goal, Proposal, Proposals, search

Way = tuple[Proposal, Certificate]
_TOWERS = 0.45  # of eps for each tower of separable terms
_SINGULAR = frozenset({"sqrt", "powr", "pow"}) | {name for name, entry in OPERATIONS.items() if entry.rough}


def find(ask: Ask) -> Way:
    """A proposal and its certificate; raises Infeasible with what is nearest."""
    asked, eps, method, realise, say = ask.relation, ask.eps, ask.method, ask.realise, ask.say
    terms = expansion_of(asked)
    if terms is not None and terms.signs is not None and ask.kernel and min(terms.signs) < 0:
        terms = None  # one tower for both sides may not have their signs
    require_kernel(ask, terms is not None)  # terms without a minus are positive semidefinite
    if method == "cross":
        require(ask.accept != "proved", "method='cross' only measures: write accept='sampled' or leave it out")
        return _measured(ask, "")
    if method == "hats":
        require(realise != "attention", "method='hats' makes ReLU units: write realise='mlp'")
        return _met(ask, broken_lines(ask))
    if method == "voronoi":
        return _met(ask, soft_cells(ask))
    if method == "expand":
        if terms is None:
            refuse_many_terms(asked)
            raise Infeasible(f"expand: {asked.text[:120]} is not seen to be a sum of terms a(x) b(y)")
        return _met(ask, _expanded(ask, terms))
    separable, terms = terms is not None, terms if method == "auto" else None
    if terms is not None and realise == "attention" and terms.rank <= rank_lower(asked, eps):
        try:
            return _met(ask, _expanded(ask, terms))  # no method has fewer features
        except Infeasible as reason:
            say(str(reason))
            terms = None
    try:
        kind = "auto" if method == "polynomial" else method
        found = _met(ask, polynomials(replace(ask, method=kind)))
        return found if realise == "mlp" else _leaner(ask, terms, found)
    except Infeasible as reason:
        why = str(reason)
        closest = {"realise": "attention"} if realise == "mlp" and separable else None
        if terms is not None:
            try:
                return _met(ask, _expanded(ask, terms))
            except Infeasible as other:
                why, closest = f"{reason}; {other}", other.nearest or closest
                if realise != "mlp" or not isinstance(reason, NoCoefficients):
                    raise Infeasible(why, reason.nearest or closest) from None
        if method != "auto" or not isinstance(reason, NoCoefficients):
            raise
    try:
        return _met(ask, broken_lines(ask) if realise == "mlp" else soft_cells(ask))
    except Infeasible as refused:
        kinked = any(node.op in NOT_ANALYTIC | _SINGULAR for node in asked.graph.nodes)
        nearest = (refused.nearest or {}).get("eps", math.inf)
        hopeless = realise != "mlp" and (not kinked or not nearest < 0.5 * _spread(asked))
        if ask.accept == "proved" or (ask.accept is None and not hopeless):
            raise Infeasible(f"{why}; {refused}", closest or refused.nearest) from None
    if ask.accept is None:
        refuse_many_terms(asked)
    found = _measured(ask, f"{why}; soft cells are {OUT}")
    if ask.accept is None:
        raise Infeasible(f"{found[1].reason}; accept='sampled' is content with that", {"accept": "sampled"})
    return found


def _met(ask: Ask, proposals: Proposals) -> Way:
    """What meets eps, proved."""
    return search(ask.relation, proposals, Goal(ask.eps), ask.say)


def _measured(ask: Ask, why: str) -> Way:
    """Slices of the relation, measured at fresh points; status `sampled`."""
    found, certificate = search(ask.relation, slices(ask), Goal(ask.eps, met=(Status.SAMPLED,)), ask.say)
    return found, replace(certificate, reason=f"{why}; {certificate.reason}") if why else certificate


def _expanded(ask: Ask, terms: Expansion) -> Proposals:
    """The relation's own terms: a network for the features of each side, of heads or ReLU units as `realise` says.

    In any number of variables; affine features have no keys.
    """
    asked, eps = ask.relation, ask.eps
    sizes = [float(feature_sizes(*side).sum()) for side in ((terms.left, asked.left), (terms.right, asked.right))]
    feasible(all(math.isfinite(size) for size in sizes), f"expand: a term of {asked.text[:120]} could not be bounded")
    ask.say(f"towers of {terms.rank} separable terms")
    made = []
    sides = ((terms.left, asked.left, sizes[1]), (terms.right, asked.right, sizes[0]))
    for graph, box, other in sides if terms.signs is None else sides[:1]:
        delta = max(_TOWERS * eps / max(other, 1e-300), 5e-324)  # below all doubles the proof refuses
        try:
            made.append(function_network(graph, box, min(delta, 1e300), ask.say, ask.realise or "attention"))
        except AttnfunError as reason:  # InvalidRequest: a tolerance below what doubles can hold
            own = (getattr(reason, "nearest", None) or {}).get("eps")
            raise Infeasible(f"expand: {reason}", near(1.05 * eps * float(own) / delta) if own else None) from None
    one = None if terms.signs is None else np.array(terms.signs, dtype=np.float64)
    certificate = yield Proposal(Separable(made[0], made[1] if one is None else None, one), "expand")
    text = f"expand: eps={eps:.3g} for {ask.text}: {certificate.reason}"
    raise Infeasible(text, near(1.05 * certificate.error[1]))


def _leaner(ask: Ask, terms: Expansion | None, found: Way) -> Way:
    """The relation's own terms in place of what was found, if they are no more and their towers have fewer keys."""
    stored = found[0].weights
    if terms is None or stored.towers is None or terms.rank > stored.rank:
        return found
    try:
        other = _met(ask, _expanded(replace(ask, realise="attention"), terms))
    except Infeasible:
        return found
    if terms.rank < stored.rank:
        return other
    features = Polynomials(stored.features, tuple(replace(tower, inner=None) for tower in stored.towers))
    return other if other[0].weights.cost.keys <= features.cost.keys else found


def _spread(asked: Relation) -> float:
    """The range of the relation, as sampled."""
    Z = asked.joint.probe(2000, np.random.default_rng(0))
    values = asked.at(Z)
    values = values[np.isfinite(values)]
    return float(np.ptp(values)) if len(values) else 0.0
