"""`lexicographic`: a softmax-attention network that picks the lexicographically best key of a grid, exactly."""

from __future__ import annotations

from typing import Any

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.kinds.lexicographic.view import LexicographicHead
from attnfun.limits.grids import GridLimits, grid_limits, tied_pair
from attnfun.network.network import DTYPES
from attnfun.search import Goal, Proposal, Proposals, search

METHODS = ("auto", "one head", "cascade")
EPS = 0.25
"""What is asked for: an answer that rounds to the best key; what is proved is that it is the best key."""


def lexicographic(
    levels: int, coordinates: int = 2, *, dtype: str = "float32", method: str = "auto"
) -> LexicographicHead:
    """The best of n keys x ∈ {0, …, levels − 1}^coordinates, the first coordinate deciding first, by plain attention.

    `method`: "one head" (rank 1, while levels^coordinates fits the significand), "cascade" (a head a coordinate, levels
    up to half of it), or "auto", the first that holds the grid. Infeasible, with what would do, beyond.
    """
    if dtype not in DTYPES:
        raise InvalidRequest(f"dtype={dtype!r:.40}: networks are {' or '.join(DTYPES)}")
    if method not in METHODS:
        raise InvalidRequest(f"method={method!r:.40}: write {', '.join(METHODS)}")
    limits = grid_limits(dtype, coordinates, levels)
    fits = {"one head": levels <= limits.one_number, "cascade": levels <= _cascade(limits)}
    wanted = [name for name in METHODS[1:] if method in ("auto", name)]
    chosen = next((name for name in wanted if fits[name]), None)
    if chosen is None:
        raise Infeasible(_reason(limits, wanted), _nearest(limits, wanted))
    target = BestKey(int(levels), int(coordinates))
    found, certificate = search(target, _proposals(target, chosen, dtype), Goal(EPS), lambda _text: None)
    return LexicographicHead(target, found.weights, certificate, {"eps": EPS, "dtype": dtype}, found.told)


def _proposals(target: BestKey, method: str, dtype: str) -> Proposals:
    from attnfun.kinds.lexicographic.build import cascade, one_head

    build = one_head if method == "one head" else cascade
    yield Proposal(build(target.levels, target.coordinates, dtype), method)


def _cascade(limits: GridLimits) -> int:
    assert limits.cascade is not None  # float32 and float64 have cascades
    return limits.cascade


def _reason(limits: GridLimits, wanted: list[str]) -> str:
    grid = f"{limits.levels:,} levels in {limits.coordinates} coordinates"
    if "cascade" in wanted:
        return f"{grid}: a cascade in {limits.dtype} holds {_cascade(limits):,} levels a coordinate"
    pair = tied_pair(limits.levels or 0, limits.coordinates, limits.dtype)
    tie = f", {pair[0]} and {pair[1]} tie" if pair else ""
    return f"{grid}: one head in {limits.dtype} holds {limits.one_number:,} levels{tie}"


def _nearest(limits: GridLimits, wanted: list[str]) -> dict[str, Any]:
    if "cascade" not in wanted and (limits.levels or 0) <= _cascade(limits):
        return {"method": "cascade"}
    finer = grid_limits("float64", limits.coordinates)
    room = _cascade(finer) if "cascade" in wanted else finer.one_number
    if limits.dtype != "float64" and (limits.levels or 0) <= room:
        return {"dtype": "float64"}
    return {"levels": _cascade(limits) if "cascade" in wanted else limits.one_number}
