"""Which way a relation is met: separable terms, features that are polynomials, soft cells, or slices, only measured.

Order of `auto`: the relation's own separable terms where it is a finite sum of them (`targets.relation_sum`) and no
fewer features can be had or were found with polynomials (`relation_search`); where the relation has no table of
coefficients (a kink, too many variables) soft cells, proved; where these are out of reach and `accept` allows it
slices, `sampled`.
By default slices are allowed where no tolerance of interest can be proved: a smooth relation of too many variables, or
cells that would not even tell the relation from a constant. A relation in few variables with a kink, or with a root or
an arcsine that may be singular at an end of its domain, is refused, with the nearest eps that can be proved.
"""

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np

from attnfun.certify import Certificate, Status
from attnfun.errors import AttnfunError, Infeasible, InvalidRequest
from attnfun.kinds.relation.build.inner import function_network
from attnfun.kinds.relation.build.search import Ask, NoCoefficients, near, polynomials, require_kernel
from attnfun.kinds.relation.core import Core, core_of, plain_core
from attnfun.kinds.relation.form import Polynomials, Separable
from attnfun.kinds.relation.prove_expansion import feature_sizes
from attnfun.kinds.relation.prove_sampled import measured
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.slices import Slices
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.terms import Expansion, expansion_of, refuse_many_terms
from attnfun.language.graph import NOT_ANALYTIC
from attnfun.search import MET, Goal, Proposal, Proposals, certified, search

Way = tuple[Proposal, Certificate]
_SHARES = (0.5, 0.25, 0.15)  # of eps for the cells, the rest for the truncation of their table
_LARGE_SHARES = (0.7, 0.9)
_QUICK_PAIRS = 1_100_000
_ROOM = 0.97
_TRIES = 3
_TOWERS = 0.45  # of eps for each tower of separable terms
_SINGULAR = frozenset({"sqrt", "powr", "pow", "asin", "acos"})  # at an end of their domain
_OUT = "more than can be built"


def find(ask: Ask) -> Way:
    """A proposal and its certificate; raises Infeasible with what is nearest."""
    asked, eps, method, realise, say = ask.relation, ask.eps, ask.method, ask.realise, ask.say
    terms = expansion_of(asked)
    if terms is not None and terms.signs is not None and ask.kernel and min(terms.signs) < 0:
        terms = None  # one tower for both sides may not have their signs
    require_kernel(ask, terms is not None)  # terms without a minus are positive semidefinite
    if method == "cross":
        if ask.accept == "proved":
            raise InvalidRequest("method='cross' is measured, never proved: write accept='sampled' or leave it out")
        return by_slices(ask, "")
    if method == "hats":
        if realise == "attention":
            raise InvalidRequest("method='hats' makes ReLU units: write realise='mlp'")
        return by_hats(ask)
    if method == "voronoi":
        return by_cells(ask)
    if method == "expand":
        if terms is None:
            refuse_many_terms(asked)
            raise Infeasible(f"expand: {asked.text[:120]} is not seen to be a sum of terms a(x) b(y)")
        return by_expansion(ask, terms)
    separable, terms = terms is not None, terms if method == "auto" else None
    if terms is not None and realise == "attention" and terms.rank <= rank_lower(asked, eps):
        try:
            return by_expansion(ask, terms)  # no method has fewer features
        except Infeasible as reason:
            say(str(reason))
            terms = None
    try:
        kind = "auto" if method == "polynomial" else method
        found = search(asked, polynomials(replace(ask, method=kind)), Goal(eps), say)
        return found if realise == "mlp" else _leaner(ask, terms, found)
    except Infeasible as reason:
        why = str(reason)
        closest = {"realise": "attention"} if realise == "mlp" and separable else None
        if terms is not None:
            try:
                return by_expansion(ask, terms)
            except Infeasible as other:
                why, closest = f"{reason}; {other}", other.nearest or closest
                if realise != "mlp" or not isinstance(reason, NoCoefficients):
                    raise Infeasible(why, reason.nearest or closest) from None
        if method != "auto" or not isinstance(reason, NoCoefficients):
            raise
    try:
        return by_hats(ask) if realise == "mlp" else by_cells(ask)
    except Infeasible as refused:
        kinked = any(node.op in NOT_ANALYTIC | _SINGULAR for node in asked.graph.nodes)
        nearest = (refused.nearest or {}).get("eps", math.inf)
        hopeless = realise != "mlp" and (not kinked or not nearest < 0.5 * _spread(asked))
        if ask.accept == "proved" or (ask.accept is None and not hopeless):
            raise Infeasible(f"{why}; {refused}", closest or refused.nearest) from None
    if ask.accept is None:
        refuse_many_terms(asked)
    return by_slices(ask, f"{why}; soft cells are {_OUT}")


def by_expansion(ask: Ask, terms: Expansion) -> Way:
    """The relation's own terms, proved; heads, or ReLU units if `realise` says so."""
    return search(ask.relation, _expanded(ask, terms), Goal(ask.eps), ask.say)


def _expanded(ask: Ask, terms: Expansion) -> Proposals:
    """A network for the features of each side, in any number of variables; affine features have no keys."""
    asked, eps = ask.relation, ask.eps
    sizes = [float(feature_sizes(*side).sum()) for side in ((terms.left, asked.left), (terms.right, asked.right))]
    if not all(math.isfinite(size) for size in sizes):
        raise Infeasible(f"expand: a term of {asked.text[:120]} could not be bounded")
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
        other = by_expansion(replace(ask, realise="attention"), terms)
    except Infeasible:
        return found
    if terms.rank < stored.rank:
        return other
    features = Polynomials(stored.features, tuple(replace(tower, inner=None) for tower in stored.towers))
    return other if other[0].weights.cost.keys <= features.cost.keys else found


def by_cells(ask: Ask) -> Way:
    """Soft cells of the least rank that is found, of the relation itself or else of its core, proved."""
    core = core_of(ask.relation)
    try:
        return _cells_of(ask, plain_core(ask.relation))
    except Infeasible:
        if not core.composed:
            raise
    return _cells_of(ask, core)


def _cells_of(ask: Ask, core: Core) -> Way:
    from attnfun.kinds.relation.build.voronoi import Oscillation, cell_towers

    eps = ask.eps
    ask.say("how many cells?")
    inner = Relation(core.graph, core.left, core.right, ask.relation.symmetric)
    rough = Oscillation(inner)
    if ask.realise == "mlp":
        raise InvalidRequest("method='voronoi' makes softmax heads: write realise='attention'")
    best: Way | None = None
    fewest = rough.plan(_ROOM * _LARGE_SHARES[-1] * eps)
    reached, why = math.inf, "" if fewest.fits else _cells_text(fewest.counts)
    for share in (*_SHARES, *_LARGE_SHARES):
        if not fewest.fits or (best is not None and share in _LARGE_SHARES):
            break
        error, short = _ROOM * share * eps, _ROOM * (1 - share) * eps
        for _ in range(_TRIES):
            plan = rough.plan(error)
            quick = math.prod(plan.counts) <= _QUICK_PAIRS
            if not plan.fits or (best is not None and not quick):
                why = why or _cells_text(plan.counts)
                break
            ask.say(f"{plan.counts[0]:,} and {plan.counts[1]:,} cells")
            try:
                made = cell_towers(inner, plan, short, ask.signed, eps)
            except Infeasible as reason:
                why = str(reason)
                break
            if best is not None and not made.rank < 0.97 * best[0].weights.rank:
                return best
            certificate = certified(ask.relation, made, Goal(eps), "voronoi", ask.say)
            if certificate.status in MET:
                best = Proposal(made, "voronoi"), certificate
                break
            reached, why = min(reached, certificate.error[1]), str(certificate.reason)
            if not math.isfinite(certificate.error[1]):
                raise Infeasible(f"voronoi: {ask.text}: {why}")  # no eps would do
            error *= 0.8
    if best is not None:
        return best
    best_eps = max(rough.smallest() / (0.85 * _LARGE_SHARES[-1]), reached if math.isfinite(reached) else 0.0)
    text = f"voronoi: eps={eps:.3g} for {ask.text} is out of reach: {why}"
    raise Infeasible(text, near(1.05 * max(best_eps, eps), method="voronoi"))


def by_hats(ask: Ask) -> Way:
    """Broken lines of the least rank that is found, of the relation or of its core, proved."""
    from attnfun.kinds.relation.build.hats import MOST_NODES, hat_towers, smallest

    asked, eps, core = ask.relation, ask.eps, core_of(ask.relation)
    if (core.left.dim, core.right.dim) != (1, 1):
        text = f"hats: ReLU units of {core.left.dim} and {core.right.dim} variables; one a side is built"
        raise Infeasible(text, {"realise": "attention"} if _cells_fit(asked, core, eps) else None)
    inner = Relation(core.graph, core.left, core.right, asked.symmetric)
    best: Way | None = None
    nodes, failed, reached = 5, 0, 0.0
    while nodes <= MOST_NODES and failed < _TRIES:
        for room in (_ROOM, 0.9):
            try:
                made = hat_towers(inner, nodes, room * eps, ask.signed)
            except Infeasible:
                break
            if best is not None and not made.rank < 0.97 * best[0].weights.rank:
                return best
            ask.say(f"{nodes} nodes a side, {made.rank} features")
            certificate = certified(asked, made, Goal(eps), "hats", ask.say)
            if certificate.status in MET:
                best = Proposal(made, "hats"), certificate
                break
            failed, reached = failed + 1, certificate.error[1]
        nodes = math.ceil(nodes * 1.4)
    if best is not None:
        return best
    why = f"could not be proved with {nodes} nodes" if failed else f"takes more than {MOST_NODES} nodes a side"
    nearest = near(1.15 * max(eps, smallest(inner), reached), realise="mlp")
    raise Infeasible(f"hats: eps={eps:.3g} for {ask.text} {why}", nearest)


def _cells_fit(asked: Relation, core: Core, eps: float) -> bool:
    from attnfun.kinds.relation.build.voronoi import Oscillation

    forms = (plain_core(asked), core)
    relations = (Relation(one.graph, one.left, one.right, asked.symmetric) for one in forms)
    return any(Oscillation(one).plan(_ROOM * _LARGE_SHARES[0] * eps).fits for one in relations)


def _cells_text(counts: tuple[int, int]) -> str:
    return f"about {Decimal(counts[0]):.3g} and {Decimal(counts[1]):.3g} cells, {_OUT}"


def _spread(asked: Relation) -> float:
    """The range of the relation, as sampled."""
    Z = asked.joint.probe(2000, np.random.default_rng(0))
    values = asked.at(Z)
    values = values[np.isfinite(values)]
    return float(np.ptp(values)) if len(values) else 0.0


def by_slices(ask: Ask, why: str) -> Way:
    """Slices of the relation, measured at fresh points; status `sampled`."""
    from attnfun.kinds.relation.build.cross import cross_features

    asked, eps, say = ask.relation, ask.eps, ask.say
    say("cross approximation")

    def worst(made: Slices, seed: int) -> tuple[float, Any, Any]:
        say(f"{made.rank} slices, measured at fresh points")
        error, X, Y, _ = measured(asked, made, seed)
        return error, X, Y

    made, _ = cross_features(asked, eps, ask.signed, rank_lower(asked, eps), worst)
    certificate = certified(asked, made, Goal(eps), "cross", say)
    if certificate.status is not Status.SAMPLED:
        raise Infeasible(f"cross: eps={eps:.3g} for {ask.text} is not met: {certificate.reason}")
    if why:
        certificate = replace(certificate, reason=f"{why}; {certificate.reason}")
    return Proposal(made, "cross"), certificate
