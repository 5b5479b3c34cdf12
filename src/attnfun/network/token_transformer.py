"""Attention and ReLU units on a token matrix: a `TokenNetwork` whose layers are each followed by a feed-forward block.

    Z <- Z C + sum_h softmax( (Z W_Q)(Z W_K)^T ) (Z W_V) W_O          the layer of the token network
    Z <- Z + relu( Z W_1 + b ) W_2                                    its units, the same at every token

No construction makes one and no checker proves anything of one: it is a type of its own, so that what is proved of the
attention alone is never said of both. Arrays are float64 whose entries the dtype can hold. Compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.errors import InvalidRequest
from attnfun.network.head import AnyArray, Array, frozen, require_weights
from attnfun.network.network import Cost
from attnfun.network.token_architecture import TokenArchitecture
from attnfun.network.tokens import TokenNetwork, chunks, layer_output


@dataclass(frozen=True, eq=False)
class FeedForward:
    """relu(Z `inner` + `bias`) `outer`: (width, units), (units,), (units, width)."""

    inner: Array
    bias: Array
    outer: Array

    def __post_init__(self) -> None:
        for name in ("inner", "bias", "outer"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        flat = self.inner.ndim == 2 and self.outer.ndim == 2
        if not flat or self.outer.shape != self.inner.shape[::-1] or self.bias.shape != self.outer.shape[:1]:
            raise InvalidRequest(
                f"units of shapes {self.inner.shape}, {self.bias.shape}, {self.outer.shape}; "
                "(width, units), (units,), (units, width) are needed"
            )

    @property
    def units(self) -> int:
        return int(self.inner.shape[1])

    @property
    def arrays(self) -> dict[str, Array]:
        return {"inner": self.inner, "bias": self.bias, "outer": self.outer}


@dataclass(frozen=True, eq=False)
class TokenTransformer:
    """`attention` with `blocks[l]` after its layer l, None where there are no units."""

    attention: TokenNetwork
    blocks: tuple[FeedForward | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if len(self.blocks) != len(self.attention.layers):
            raise InvalidRequest(f"{len(self.blocks)} feed-forward blocks for {len(self.attention.layers)} layers")
        if any(block is not None and len(block.inner) != self.width for block in self.blocks):
            raise InvalidRequest(f"the units must read the {self.width} coordinates of a token")
        require_weights(self.arrays(), self.dtype)

    @property
    def coordinates(self) -> tuple[str, ...]:
        return self.attention.coordinates

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.attention.outputs

    @property
    def dtype(self) -> str:
        return self.attention.dtype

    @property
    def width(self) -> int:
        return self.attention.width

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(0 if block is None else block.units for block in self.blocks)

    @property
    def architecture(self) -> TokenArchitecture:
        return TokenArchitecture.of(self)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        yield from self.attention.arrays()
        for number, block in enumerate(self.blocks):
            if block is not None:
                for name, array in block.arrays.items():
                    yield f"layer{number}/ffn/{name}", array

    @cached_property
    def cost(self) -> Cost:
        """That of the attention, with the weights of the units among the parameters."""
        base = self.attention.cost
        parameters = sum(array.size for _, array in self.arrays())
        return Cost(
            base.layers, base.heads, base.rank, base.keys, parameters, base.query_dim, base.max_value, parameters
        )

    def run(self, tokens: npt.ArrayLike) -> AnyArray:
        """(n, width) or (batch, n, width) tokens -> (n, outputs) or (batch, n, outputs), computed in the dtype."""
        return chunks(self.attention, tokens, self.final)

    def to_torch(self, dtype: Any = None) -> Any:
        """A module on token matrices: one attention call per layer (`torch_form.tokens_to_torch`)."""
        from attnfun.network.torch_form import tokens_to_torch

        return tokens_to_torch(self, dtype)

    def final(self, Z: AnyArray) -> AnyArray:
        """(batch, n + m, width) after the last layer."""
        for layer, block in zip(self.attention.layers, self.blocks, strict=True):
            Z = layer_output(layer, Z)
            if block is not None:
                W_1, b, W_2 = (array.astype(self.dtype) for array in block.arrays.values())
                Z = Z + np.maximum(Z @ W_1 + b, 0) @ W_2
        return Z
