"""From a relation and stored weights to a proof: every form of weights names its method."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided
from attnfun.errors import AttnfunError
from attnfun.kinds.relation import prove_cells, prove_expansion, prove_polynomials, prove_sampled
from attnfun.kinds.relation.form import Form
from attnfun.kinds.relation.target import Sides
from attnfun.language.definedness import require_defined
from attnfun.search import Goal, Say

Methods = Mapping[str, Callable[..., Proof]]
_METHODS: Methods = {
    "towers": prove_polynomials.proof,
    "pairs of cells": prove_cells.proof,
    "separable terms": prove_expansion.proof,
    "sampling": prove_sampled.proof,
}


def proof(target: Sides, form: Form, goal: Goal, say: Say, methods: Methods = _METHODS) -> Proof:
    """What is proved of stored weights for a stored relation, which must be defined and continuous on its boxes."""
    method = methods.get(form.method)
    if method is None:
        return undecided("no proof of trained towers is known")
    try:
        require_continuous(target)
        return method(target, form, goal.eps, say)
    except (Undecided, AttnfunError) as why:
        return undecided(why, form.method)


@lru_cache(maxsize=32)
def require_continuous(target: Sides) -> None:
    """Refuse a relation that is not defined on its boxes, or jumps there; looked at once."""
    require_defined(target.graph, target.box)
