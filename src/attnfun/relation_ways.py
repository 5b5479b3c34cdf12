"""Which way a relation is met: features that are polynomials, soft cells, or slices that are only measured.

Order of `auto`: what can be proved with polynomials (`relation_search`); where the relation has no table of
coefficients (a kink, too many variables) soft cells, proved; where these are out of reach and `accept` allows it
slices, `sampled`.
By default slices are allowed where no tolerance of interest can be proved: a smooth relation of too many variables, or
cells that would not even tell the relation from a constant. A relation in few variables with a kink, or with a root or
an arcsine that may be singular at an end of its domain, is refused, with the nearest eps that can be proved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from attnfun.certify import Certificate, Status
from attnfun.certify.relation_cells import prove_by_relation_cells
from attnfun.certify.relation_sampled import measured, sampled_certificate
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.expressions.graph import NOT_ANALYTIC
from attnfun.network.cells import Cells
from attnfun.network.features import Features
from attnfun.network.relation_file import Towers
from attnfun.network.slices import Slices
from attnfun.network.towers import TowerWeights
from attnfun.relation_search import NoCoefficients, require_kernel, search
from attnfun.targets.relation import Relation
from attnfun.targets.relation_core import Core, core_of, plain_core

Stored = Features | Cells | Slices
Way = tuple[Stored, Towers | None, Core, Certificate, str]
ACCEPT = (None, "proved", "sampled")
_SHARES = (0.5, 0.25, 0.15)  # of eps for the cells, the rest for the truncation of their table
_LARGE_SHARES = (0.7, 0.9)
_QUICK_PAIRS = 1_100_000
_ROOM = 0.97
_TRIES = 3
_SINGULAR = frozenset({"sqrt", "powr", "pow", "asin", "acos"})  # at an end of their domain
_OUT = "more than can be built"


def find(
    asked: Relation,
    eps: float,
    method: str,
    realise: str | None,
    signed: bool,
    accept: str | None,
    say: Callable[[str], None],
) -> Way:
    """(stored form, towers, core, certificate, method); raises Infeasible with what is nearest."""
    require_kernel(asked, signed, say)
    if method == "cross":
        if accept == "proved":
            raise InvalidRequest("method='cross' is measured, never proved: write accept='sampled' or leave it out")
        return by_slices(asked, eps, signed, "", say)
    if method == "hats":
        if realise == "attention":
            raise InvalidRequest("method='hats' makes ReLU units: write realise='mlp'")
        return by_hats(asked, eps, signed, say)
    if method == "voronoi":
        return by_cells(asked, eps, realise, signed, say)
    try:
        features, towers, parts, certificate, how = search(asked, eps, method, realise, signed, say)
        return features, towers, parts.core, certificate, how
    except NoCoefficients as reason:
        if method != "auto":
            raise
        why = str(reason)
    try:
        return by_hats(asked, eps, signed, say) if realise == "mlp" else by_cells(asked, eps, realise, signed, say)
    except Infeasible as refused:
        kinked = any(node.op in NOT_ANALYTIC | _SINGULAR for node in asked.graph.nodes)
        nearest = (refused.nearest or {}).get("eps", math.inf)
        hopeless = realise != "mlp" and (not kinked or not nearest < 0.5 * _spread(asked))
        if accept == "proved" or (accept is None and not hopeless):
            raise Infeasible(f"{why}; {refused}", refused.nearest) from None
    return by_slices(asked, eps, signed, f"{why}; soft cells are {_OUT}", say)


def by_cells(asked: Relation, eps: float, realise: str | None, signed: bool, say: Callable[[str], None]) -> Way:
    """Soft cells of the least rank that is found, of the relation itself or else of its core, proved."""
    core = core_of(asked)
    try:
        return _cells_of(asked, plain_core(asked), eps, realise, signed, say)
    except Infeasible:
        if core.left_inner is None and core.right_inner is None:
            raise
    return _cells_of(asked, core, eps, realise, signed, say)


def _cells_of(
    asked: Relation, core: Core, eps: float, realise: str | None, signed: bool, say: Callable[[str], None]
) -> Way:
    from attnfun.constructions.relations.voronoi import Oscillation, cell_towers

    say("how many cells?")
    inner = Relation(core.graph, core.left, core.right, asked.symmetric)
    rough = Oscillation(inner)
    if realise == "mlp":
        raise InvalidRequest("method='voronoi' makes softmax heads: write realise='attention'")
    best: tuple[Cells, Certificate] | None = None
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
            say(f"{plan.counts[0]:,} and {plan.counts[1]:,} cells")
            try:
                made = cell_towers(inner, plan, short, signed, eps)
            except Infeasible as reason:
                why = str(reason)
                break
            if best is not None and not made.rank < 0.97 * best[0].rank:
                return _cell_way(core, best)
            certificate = prove_by_relation_cells(asked, made, eps, "voronoi", say)
            if certificate.status in (Status.PROVED, Status.CONDITIONAL):
                best = made, certificate
                break
            reached, why = min(reached, certificate.error[1]), str(certificate.reason)
            if not math.isfinite(certificate.error[1]):
                raise Infeasible(f"voronoi: {asked.text[:120]}: {why}")  # no eps would do
            error *= 0.8
    if best is not None:
        return _cell_way(core, best)
    best_eps = max(rough.smallest() / (0.85 * _LARGE_SHARES[-1]), reached if math.isfinite(reached) else 0.0)
    nearest = float(f"{1.05 * max(best_eps, eps):.2g}")
    raise Infeasible(
        f"voronoi: eps={eps:.3g} for {asked.text[:120]} is out of reach: {why}",
        {"eps": nearest, "method": "voronoi"} if math.isfinite(nearest) else None,
    )


def by_hats(asked: Relation, eps: float, signed: bool, say: Callable[[str], None]) -> Way:
    """Broken lines of the least rank that is found, of the relation or of its core, proved."""
    from attnfun.constructions.relations.hats import MOST_NODES, hat_towers, smallest

    core = core_of(asked)
    if (core.left.dim, core.right.dim) != (1, 1):
        text = f"hats: ReLU units of {core.left.dim} and {core.right.dim} variables; one a side is built"
        raise Infeasible(text, {"realise": "attention"} if _cells_fit(asked, core, eps) else None)
    inner = Relation(core.graph, core.left, core.right, asked.symmetric)
    best: tuple[Cells, Certificate] | None = None
    nodes, failed, reached = 5, 0, 0.0
    while nodes <= MOST_NODES and failed < _TRIES:
        for room in (_ROOM, 0.9):
            try:
                made = hat_towers(inner, nodes, room * eps, signed)
            except Infeasible:
                break
            if best is not None and not made.rank < 0.97 * best[0].rank:
                return (*_cell_way(core, best)[:4], "hats")
            say(f"{nodes} nodes a side, {made.rank} features")
            certificate = prove_by_relation_cells(asked, made, eps, "hats", say)
            if certificate.status in (Status.PROVED, Status.CONDITIONAL):
                best = made, certificate
                break
            failed, reached = failed + 1, certificate.error[1]
        nodes = math.ceil(nodes * 1.4)
    if best is not None:
        return (*_cell_way(core, best)[:4], "hats")
    nearest = float(f"{1.15 * max(eps, smallest(inner), reached):.2g}")
    why = f"could not be proved with {nodes} nodes" if failed else f"takes more than {MOST_NODES} nodes a side"
    raise Infeasible(
        f"hats: eps={eps:.3g} for {asked.text[:120]} {why}",
        {"eps": nearest, "realise": "mlp"} if math.isfinite(nearest) else None,
    )


def _cells_fit(asked: Relation, core: Core, eps: float) -> bool:
    from attnfun.constructions.relations.voronoi import Oscillation

    forms = (plain_core(asked), core)
    relations = (Relation(one.graph, one.left, one.right, asked.symmetric) for one in forms)
    return any(Oscillation(one).plan(_ROOM * _LARGE_SHARES[0] * eps).fits for one in relations)


def _cell_way(core: Core, found: tuple[Cells, Certificate]) -> Way:
    cells, certificate = found
    return cells, towers_of(cells), core, certificate, "voronoi"


def towers_of(cells: Cells) -> Towers:
    """The weights of both sides as towers."""
    left = TowerWeights(cells.left_keys, (cells.left_values,), cells.left_lines)
    if cells.signs is not None:
        return left, left
    return left, TowerWeights(cells.right_keys, (cells.right_values,), cells.right_lines)


def _cells_text(counts: tuple[int, int]) -> str:
    return f"about {counts[0]:.3g} and {counts[1]:.3g} cells, {_OUT}"


def _spread(asked: Relation) -> float:
    """The range of the relation, as sampled."""
    Z = asked.joint.probe(2000, np.random.default_rng(0))
    values = asked.values(Z[:, : asked.left.dim], Z[:, asked.left.dim :])
    values = values[np.isfinite(values)]
    return float(np.ptp(values)) if len(values) else 0.0


def by_slices(asked: Relation, eps: float, signed: bool, why: str, say: Callable[[str], None]) -> Way:
    """Slices of the relation, measured at fresh points; status `sampled`."""
    from attnfun.constructions.relations.cross import cross_features
    from attnfun.limits.relation_rank import rank_lower

    say("cross approximation")
    least = rank_lower(asked, eps)

    def worst(made: Slices, seed: int) -> tuple[float, Any, Any]:
        say(f"{made.rank} slices, measured at fresh points")
        error, X, Y, _ = measured(asked, made, seed)
        return error, X, Y

    made, _ = cross_features(asked, eps, signed, least, worst)
    certificate = sampled_certificate(asked, made, eps, "cross", why, say)
    if certificate.status is not Status.SAMPLED:
        raise Infeasible(f"cross: eps={eps:.3g} for {asked.text[:120]} is not met: {certificate.reason}")
    return made, None, plain_core(asked), certificate, "cross"
