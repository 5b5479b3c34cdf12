"""Coded: a network that averages over named positions, and the codes of the positions that its tokens hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.average.encoding import Sets, set_queries
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.head import AnyArray, Array, frozen
from attnfun.network.network import Cost
from attnfun.network.tokens import TokenNetwork, TokenTransformer


@dataclass(frozen=True, eq=False)
class Coded:
    """`codes` (N, m): the key of every position."""

    network: TokenNetwork | TokenTransformer
    codes: Array
    known: dict[Any, dict[tuple[int, ...], Array]] = field(init=False, repr=False, default_factory=dict)
    """Queries that were worked out, by kind of keys and heads, and by set."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes))
        if self.codes.ndim != 2 or not self.codes.size or not np.isfinite(self.codes).all():
            raise InvalidRequest(f"codes of positions: (N, m) finite numbers, not an array of shape {self.codes.shape}")

    def queries(self, keys: str, named: Sets, heads: int) -> Array:
        """(sets, heads, m): the query of every head's share of every set."""
        known, places = self.known.setdefault((keys, heads), {}), {one: k for k, one in enumerate(dict.fromkeys(named))}
        new = tuple(one for one in places if one not in known)
        if new:
            known.update(zip(new, set_queries(self.codes, keys, new, heads), strict=True))
        return np.array([known[one] for one in places])[[places[one] for one in named]]

    def holding(self, network: TokenNetwork | TokenTransformer) -> Coded:
        """Another network with these codes, and with the queries that are known already."""
        made = Coded(network, self.codes)
        object.__setattr__(made, "known", self.known)
        return made

    @property
    def networks(self) -> tuple[TokenNetwork | TokenTransformer]:
        return (self.network,)

    @property
    def dtype(self) -> str:
        return self.network.dtype

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    def run(self, tokens: Any) -> AnyArray:
        return self.network.run(tokens)

    def to_torch(self, dtype: Any = None) -> Any:
        """The network as a module on token matrices (`SparseAverage.encode`)."""
        return self.network.to_torch(dtype)
