"""What rank, heads, pairs and bits cannot do: calculators, each answer with its hypotheses and source.

    af.bounds.rank(dim=64, rank=8, heads=16)          the furthest of two points
    af.bounds.neighbours(64, 15, rank=8, heads=8)     the furthest of 15 points, or of any number
    af.bounds.cube(dim=64, rank=8, heads=16)          the nearer point on the Hamming cube
    af.bounds.sets(points=16, dim=3, features=2)      sums over elements against sums over pairs
    af.bounds.matching(tokens=8192, rank=64, bits=32) triples that sum to 0, by bits

and what `rank` is made of: `harmonics(dim, degree)`, `seen_harmonics(dim, rank, degree)`, `energies(dim, bias)`.
"""

from attnfun.limits.separation.candidates import NeighbourBound, neighbours
from attnfun.limits.separation.energies import Energies, energies
from attnfun.limits.separation.harmonics import harmonics, seen_harmonics
from attnfun.limits.separation.krawtchouk import CubeBound, cube
from attnfun.limits.separation.matching import MatchingBound, matching
from attnfun.limits.separation.rank import RankBound, rank
from attnfun.limits.separation.sets import SetBound, sets

__all__ = ["rank", "neighbours", "cube", "sets", "matching", "energies", "harmonics", "seen_harmonics"]
__all__ += ["RankBound", "NeighbourBound", "CubeBound", "SetBound", "MatchingBound", "Energies"]
