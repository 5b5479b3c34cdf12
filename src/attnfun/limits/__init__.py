"""What is impossible, and what the possible costs at least: lower bounds with obstructions that can be checked.

Public: the grids that one number ranks, the misordered share of a slope, hard set functions, disjointness as triples,
and the exact bounds on the Hamming cube. Calculators are in `af.bounds`.
"""

from attnfun.limits.grids import grid_limits, tied_pair, utility
from attnfun.limits.preorders.jumps import misorder_probability
from attnfun.limits.separation.disjointness import converse, disjointness_to_triples
from attnfun.limits.separation.hard_sets import HardSet
from attnfun.limits.separation.krawtchouk import (
    candidates_lower,
    coordinates_lower,
    coordinates_upper,
    uncovered,
    values_lower,
)

__all__ = ["grid_limits", "tied_pair", "utility", "misorder_probability", "converse", "disjointness_to_triples"]
__all__ += ["HardSet", "candidates_lower", "coordinates_lower", "coordinates_upper", "uncovered", "values_lower"]
