"""A set function by its forms: the sequence map of each (`pattern.py`), made by whatever makes sequence maps."""

from collections.abc import Mapping
from typing import Any

from attnfun.kinds.sequence.verb import Found, searched
from attnfun.kinds.set.analysis import analyse
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.pattern import sequence_map
from attnfun.kinds.set.target import SetFunction
from attnfun.search import Proposal, Say


def by_form(form: Any, asked: SetFunction, request: Mapping[str, Any], max_keys: int, progress: Say | None) -> Found:
    """The network of one form: that of its sequence map, by whatever method."""

    def dress(proposal: Proposal) -> Proposal:
        return Proposal(SetNetwork(form, proposal.weights), form, {"stages": proposal.construction})

    return searched(asked, sequence_map(asked, form), request, "auto", max_keys, progress, dress)


def order(target: SetFunction) -> tuple[str, ...]:
    found = analyse(target)[1]
    if found is None:
        return ("pairs",) if target.has_pairs else ("elements",)
    if not target.has_pairs:
        return ("elements", "power-sums")
    return ("power-sums", "pairs") if len(found.forms()[0]) <= target.points else ("pairs", "power-sums")
