"""What rank, heads, pairs and bits cannot do: calculators, each answer with its hypotheses and source.

    af.bounds.rank(dim=64, rank=8, heads=16)          the furthest of two points
"""

from __future__ import annotations

from attnfun.limits.separation.rank import RankBound, rank

__all__ = ["RankBound", "rank"]
