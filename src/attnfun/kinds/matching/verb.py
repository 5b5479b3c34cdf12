"""`matching`: tokens that find their partners mod M by softmax attention."""

from dataclasses import replace

from attnfun.certify import Certificate
from attnfun.errors import Infeasible
from attnfun.kinds.matching.build import proposals
from attnfun.kinds.matching.target import Matches
from attnfun.kinds.matching.view import Matching
from attnfun.language.numbers import one_of
from attnfun.network.network import DTYPES
from attnfun.search import Goal, Proposal, search

EPS = 0.2
"""What `matching` asks for: at least 1 − EPS on a match, at most EPS otherwise."""


def matching(
    tokens: int, modulus: int, order: int = 2, *, self_allowed: bool = True, dtype: str = "float64"
) -> Matching:
    """A network that finds pairs (order 2) or triples (order 3) summing to 0 mod `modulus` among up to `tokens` tokens.

    Proved, rounding included: at least 0.8 on a match, at most 0.2 otherwise. `self_allowed=False` (pairs only): a
    token is no partner of itself. Raises Infeasible, with the largest modulus, where the dtype cannot tell 0 from ±1.
    """
    one_of("dtype", dtype, DTYPES)
    target = Matches(tokens, modulus, order, self_allowed)
    found = _found(target, dtype)
    if found is None:
        largest = _largest_modulus(target, dtype)
        reason = f"modulus={modulus:,}: rounding in {dtype} blurs a sum of 0 with one of ±1 for {tokens} tokens"
        raise Infeasible(reason, {"modulus": largest} if largest else None)
    proposal, certificate = found
    return Matching(target, proposal.weights, certificate, {"eps": EPS, "dtype": dtype}, proposal.told)


def _found(target: Matches, dtype: str) -> tuple[Proposal, Certificate] | None:
    try:
        return search(target, proposals(target, dtype), Goal(EPS), lambda _text: None)
    except Infeasible:
        return None


def _largest_modulus(target: Matches, dtype: str) -> int | None:
    """A modulus that is proved while the next one is not, by bisection below the one that is not."""

    def works(modulus: int) -> bool:
        return _found(replace(target, modulus=modulus), dtype) is not None

    low, high = 2, target.modulus
    if not works(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2 if high < 4 * low else 2 * low
        low, high = (middle, high) if works(middle) else (low, middle)
    return low
