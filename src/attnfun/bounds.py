"""What rank, heads, pairs and bits cannot do: calculators, each answer with its hypotheses and source.

    af.bounds.rank(dim=64, rank=8, heads=16)          the furthest of two points
    af.bounds.sets(points=16, dim=3, features=2)      sums over elements against sums over pairs
"""

from __future__ import annotations

from attnfun.limits.separation.rank import RankBound, rank
from attnfun.limits.separation.sets import SetBound, sets

__all__ = ["RankBound", "SetBound", "rank", "sets"]
