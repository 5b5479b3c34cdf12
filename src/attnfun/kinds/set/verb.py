"""`set_function`: a symmetric function of n points and a tolerance in, a proved network out.

Methods are forms (`network.py`): the target as a sequence map of elements or pairs. The linear layer that makes n²
tokens of n points is 0-1 matrices. Sums over tokens are heads that attend to all tokens alike; what is summed, and what
is done with the sums, are heads over constant keys (`kinds/sequence/build.py`).
"""

from collections.abc import Mapping
from typing import Any

from attnfun.errors import Infeasible
from attnfun.kinds.sequence.verb import requested, searched
from attnfun.kinds.set.analysis import FORMS, analyse, sequence_map
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.target import SetFunction
from attnfun.kinds.set.view import SetApproximant
from attnfun.search import Proposal, Say


def set_function(
    target: Any,
    points: int,
    domain: Any,
    eps: float,
    *,
    method: str = "auto",
    dtype: str = "float64",
    seed: int = 0,
    max_keys: int = 1_000_000,
    progress: Say | None = None,
) -> SetApproximant:
    """A softmax-attention network within `eps` of a symmetric function of `points` points, for every set of the box.

    `target`: an expression or a list of them; points occur inside sums only (`targets.SetFunction`): `sum(x**2)` over
    elements, `sum(x[i]*x[j])` over pairs. `method`: elements, power-sums, pairs, or auto (elements where there are no
    pairs, power sums where at most as many as there are points do, else pairs; then what else fits).
    """
    asked = SetFunction.read(target, domain, points)
    request = requested(asked, FORMS, eps, method, dtype, seed)
    reasons: dict[str, str] = {}
    nearest: Mapping[str, Any] | None = None
    for form in _order(asked) if method == "auto" else (method,):

        def dress(proposal: Proposal, form: Any = form) -> Proposal:
            return Proposal(SetNetwork(form, proposal.weights), form, {"stages": proposal.construction})

        try:
            found, certificate = searched(asked, sequence_map(asked, form), request, "auto", max_keys, progress, dress)
        except Infeasible as why:
            reasons[form] = f"{form}: {why}"
            nearest = why.nearest or nearest
            continue
        others = "; ".join((*reasons.values(), *filter(None, (found.told.get("not taken"),))))
        story = found.told | ({"not taken": others[:300]} if others else {})
        return SetApproximant(asked, found.weights, certificate, request, story)
    raise Infeasible("; ".join(reasons.values()), nearest)


def _order(target: SetFunction) -> tuple[str, ...]:
    found = analyse(target)[1]
    if found is None:
        return ("pairs",) if target.has_pairs else ("elements",)
    if not target.has_pairs:
        return ("elements", "power-sums")
    return ("power-sums", "pairs") if len(found.forms()[0]) <= target.points else ("pairs", "power-sums")
