"""`lexicographic`: a softmax-attention network that picks the lexicographically best key of a grid, exactly."""

from typing import Any

from attnfun.errors import Infeasible
from attnfun.kinds.lexicographic.build import proposals
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.kinds.lexicographic.view import LexicographicHead
from attnfun.language.numbers import one_of
from attnfun.limits.grids import GridLimits, grid_limits
from attnfun.network.network import DTYPES
from attnfun.search import Goal, search

METHODS = ("auto", "one head", "cascade")
EPS = 0.25
"""What is asked for: an answer that rounds to the best key; what is proved is that it is the best key."""


def lexicographic(
    levels: int, coordinates: int = 2, *, dtype: str = "float32", method: str = "auto"
) -> LexicographicHead:
    """The best of n keys x ∈ {0, …, levels − 1}^coordinates, the first coordinate deciding first, by plain attention.

    `method`: "one head" (rank 1, while levels^coordinates fits the significand), "cascade" (one head per coordinate,
    levels up to half of it), or "auto", the first that holds the grid. Infeasible, with what would do, beyond.
    """
    one_of("dtype", dtype, DTYPES)
    one_of("method", method, METHODS)
    limits = grid_limits(dtype, coordinates, levels)
    wanted = [name for name in METHODS[1:] if method in ("auto", name)]
    chosen = next((name for name in wanted if levels <= _held(limits)[name]), None)
    if chosen is None:
        raise _refusal(limits, wanted[-1])
    target = BestKey(int(levels), int(coordinates))
    found, certificate = search(target, proposals(target, chosen, dtype), Goal(EPS), lambda _text: None)
    return LexicographicHead(target, found.weights, certificate, {"eps": EPS, "dtype": dtype}, found.told)


def _held(limits: GridLimits) -> dict[str, int]:
    """The most levels of each method."""
    return {"one head": limits.one_number, "cascade": limits.cascade or 0}


def _refusal(limits: GridLimits, method: str) -> Infeasible:
    """That a method does not hold the grid, and what does: another method, another dtype, or fewer levels."""
    levels, held = limits.levels or 0, _held(limits)
    why = f"a cascade in {limits.dtype} holds {held[method]:,} levels per coordinate"
    nearest: dict[str, Any] = {"levels": held[method]}
    if limits.dtype != "float64" and levels <= _held(grid_limits("float64", limits.coordinates))[method]:
        nearest = {"dtype": "float64"}
    if method == "one head":
        tie = ", {} and {} tie".format(*limits.tied_pair) if limits.tied_pair else ""
        why = f"one head in {limits.dtype} holds {held[method]:,} levels{tie}"
        nearest = {"method": "cascade"} if levels <= held["cascade"] else nearest
    return Infeasible(f"{levels:,} levels in {limits.coordinates} coordinates: {why}", nearest)
