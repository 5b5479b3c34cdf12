"""Pairs (`build_pairs`) and triples (`build_triples`), proposed at growing scales of their logits."""

from functools import partial

from attnfun.kinds.matching.build_pairs import least_scale, match2
from attnfun.kinds.matching.build_triples import match3
from attnfun.kinds.matching.target import Matches
from attnfun.search import Proposal, Proposals

_DOUBLINGS = 24


def proposals(target: Matches, dtype: str) -> Proposals:
    """The theorem's scale, and twice that, and so on."""
    N, M, order = target.tokens, target.modulus, target.order
    if M >= 1 << 60:
        return
    scale = least_scale(N ** (order - 1), M)
    build = match3 if order == 3 else partial(match2, self_allowed=target.self_allowed)
    for _ in range(_DOUBLINGS):
        if not scale < 2.0**100:
            return
        yield Proposal(build(M, scale, dtype=dtype), f"match{order}")
        scale *= 2
