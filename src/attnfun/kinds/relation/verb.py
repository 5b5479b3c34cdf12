"""`relation`: two towers and an inner product for a relation, with a proved error."""

from collections.abc import Callable
from typing import Any

from attnfun.errors import AttnfunError, Infeasible, require
from attnfun.kinds.relation.jumps import likely_band, smoothed
from attnfun.kinds.relation.rank import rank_lower
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.view import RelationApproximant
from attnfun.language.definedness import require_defined
from attnfun.language.numbers import one_of
from attnfun.search import check_request, one_thread

METHODS = ("auto", "expand", "polynomial", "chebyshev", "tensor", "cholesky", "voronoi", "hats", "cross")
REALISE = ("attention", "mlp")


def relation(
    target: Any,
    left: Any,
    right: Any,
    eps: float,
    *,
    symmetric: bool = False,
    method: str = "auto",
    realise: str = "attention",
    features_only: bool = False,
    signed: bool = False,
    band: float | None = None,
    accept: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> RelationApproximant:
    """Towers with |target(x, y) − ⟨φ(x), ψ(y)⟩| ≤ eps for all x in `left`, y in `right`, proved.

    A relation g(u(x), v(y)) has towers in which networks compute u and v, proved from x on. Where u or v do not
    compile to what that takes, and with `realise="mlp"`, they are taken as computed exactly: `conditional`.

    `symmetric`: left and right variables correspond in order and one tower serves both; a relation that is not positive
    semidefinite is then refused with a witness (`NotPositive`) unless `signed=True` allows ⟨φ, Jφ⟩ with a diagonal J of
    signs. `method`: "auto" (the least rank), "expand" (the relation's own terms Σ a_i(x) b_i(y), multiplied out, in any
    number of variables), "polynomial" (the least rank of the next three), "chebyshev", "tensor" (products of the
    factors' features), "cholesky", "voronoi" (two look-up tables over soft cells: kinks too), "hats" (broken lines as
    ReLU units, one variable per side: kinks too) or "cross" (slices of the relation, measured and not proved: status
    `sampled`). `accept`: "sampled" lets auto fall back to "cross" wherever nothing was proved; unless it is given, such
    a relation is refused. `realise`: "attention" (one head per tower; two layers past three variables, for relations
    that separate) or "mlp" (ReLU units; several variables where they separate). `band`: for relations that jump (sums
    of sign() and continuous terms), which are refused otherwise: the error is then within eps wherever the arguments of
    all signs are at least `band` in size; `.band` has the measure of the rest, `.target` is the smooth relation that
    was met at eps/2, and no lower bound on the rank is given. `features_only=True` leaves the towers out: the
    certificate is then about the features as polynomials.
    """
    from attnfun.kinds.relation.build.search import Ask
    from attnfun.kinds.relation.build.ways import find

    say = progress or (lambda _text: None)
    check_request(eps, accept="proved" if accept is None else accept)
    one_of("method", method, METHODS)
    one_of("realise", realise, REALISE)
    require(not signed or symmetric, "signed=True belongs to symmetric=True: two towers need no signs")
    asked = Relation.read(target, left, right, symmetric)
    edge, goal = None, float(eps)
    if band is not None:
        asked, edge = smoothed(asked, band, goal)
        goal = goal / 2
    say("is the relation defined on the domain?")
    _require_continuous(asked)
    with one_thread():
        kind = None if features_only else realise
        found, certificate = find(Ask(asked, goal, method, kind, signed, accept, say))
        say("a lower bound on the rank")
        least = rank_lower(asked, goal) if edge is None else 0  # a bound for the smooth relation is none for the jump
        if not least <= found.weights.rank:
            raise AssertionError(f"a lower bound {least} above a proved rank {found.weights.rank} must never be issued")
    request = {"eps": goal, "method": method, "symmetric": symmetric, "signed": signed}
    request |= {"realise": realise, "features_only": features_only}
    story = {**found.told, "rank_lower": least}
    if edge is not None:
        story["band"] = vars(edge)
    return RelationApproximant(asked, found.weights, certificate, request, story)


def _require_continuous(asked: Relation) -> None:
    """Refuse what is not defined, and what jumps: no continuous scores are near a jump in the sup norm."""
    require_defined(asked.graph, asked.joint, continuous=False)
    if not any(node.op == "sign" for node in asked.graph.nodes):
        return
    try:
        require_defined(asked.graph, asked.joint)
    except AttnfunError as jump:
        width = likely_band(asked)
        what = str(jump).split(": a jump")[0]
        text = f"{asked.text[:120]}: {what}: a jump, which no continuous scores follow in the sup norm"
        more = "; band=δ asks for eps where its signs see δ or more" if width is not None else ""
        raise Infeasible(text + more, None if width is None else {"band": width}) from None
