"""The sequence map that a network on sets computes, from the set function and the name of its form alone."""

from __future__ import annotations

from functools import lru_cache

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.kinds.set.analysis import analyse, check_exact
from attnfun.kinds.set.power_sums import as_sums_over_elements
from attnfun.kinds.set.target import SetFunction

FORMS = ("elements", "power-sums", "pairs")


@lru_cache(maxsize=32)
def sequence_map(target: SetFunction, form: str) -> SequenceMap:
    """`target` at each of n tokens (or n², of pairs): the same function. Power sums are compared with it exactly, at
    rational points, before they are used.

    InvalidRequest where the target has no such form, Infeasible where it has too many pairs.
    """
    if form == "pairs":
        return target.on_pairs()
    if form == "elements":
        return target.on_elements()
    found = analyse(target)[1]
    if found is None:
        raise InvalidRequest(
            f"{target.text[:80]} is no polynomial with rational coefficients: method='pairs' is for it"
        )
    if not check_exact(target, found):
        raise AssertionError("power sums that do not give the target's exact values: no network")
    return as_sums_over_elements(target, found)
