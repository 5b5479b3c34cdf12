"""`lexicographic`: a softmax-attention network that picks the lexicographically best key of a grid, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.constructions.preorders import lexicographic as heads
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.limits.lexicographic import GridLimits, grid_limits, tied_pair
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, tokens_to_torch
from attnfun.network.network import DTYPES

if TYPE_CHECKING:
    import torch

METHODS = ("auto", "one head", "cascade")
HYPOTHESES = (
    "IEEE arithmetic of {dtype}, sums in any order (no TF32)",
    "an exp that is at most e^-100 where the true one underflows in {dtype}",
)


@dataclass(frozen=True, eq=False)
class LexicographicHead:
    """(n, coordinates) whole numbers from 0 to levels − 1 → the best of them, by attention over n tokens."""

    network: TokenNetwork
    limits: GridLimits
    method: str

    @property
    def levels(self) -> int:
        assert self.limits.levels is not None
        return self.limits.levels

    def __call__(self, keys: ArrayLike) -> NDArray[np.float64]:
        """The best key, read from the first token; every token holds it."""
        return np.asarray(self.network.run(self.tokens(keys))[0], dtype=np.float64)

    def tokens(self, keys: ArrayLike) -> NDArray[np.float64]:
        """(n, width): the keys as the network, here and in torch, reads them."""
        if len(np.atleast_1d(np.asarray(keys))) > self.most_keys:
            raise InvalidRequest(f"{len(np.asarray(keys)):,} keys; at most {self.most_keys:,} in {self.network.dtype}")
        return heads.tokens(self.network, keys, self.levels)

    @property
    def most_keys(self) -> int:
        return 2 ** (self.limits.bits - 2)

    def winner_weight(self, n: int) -> float:
        """A lower bound of the weight that the best of n keys gets, in real arithmetic."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= self.most_keys:
            raise InvalidRequest(f"n={n!r:.40}: a number of keys from 1 to {self.most_keys:,}")
        single = self.method == "one head"
        return heads.winner_weight(self.levels, self.limits.coordinates, self.network.dtype, int(n), single)

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """A module on `tokens(keys)`; in another dtype than the network's the limits are other ones."""
        return tokens_to_torch(self.network, dtype)

    def record(self) -> dict[str, Any]:
        cost = self.network.cost
        sizes = {"layers": cost.layers, "heads": cost.heads, "rank": cost.rank, "parameters": cost.parameters}
        rests = {"hypotheses": [text.format(dtype=self.network.dtype) for text in HYPOTHESES]}
        return {"status": "proved", "method": self.method, **sizes, **self.limits.record(), **rests}


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
    build = heads.one_head if chosen == "one head" else heads.cascade
    return LexicographicHead(build(levels, coordinates, dtype), limits, chosen)


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
