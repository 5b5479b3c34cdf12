"""The two networks that pick a best key, proposed: both are patterns that the proof writes anew (`pattern.py`)."""

from attnfun.kinds.lexicographic.pattern import cascade, one_head
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.search import Proposal, Proposals


def proposals(target: BestKey, method: str, dtype: str) -> Proposals:
    build = one_head if method == "one head" else cascade
    yield Proposal(build(target.levels, target.coordinates, dtype), method)
