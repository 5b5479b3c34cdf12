"""The torch module of a token network; importing this file imports torch.

| buffer, layer l | shape | what |
| --- | --- | --- |
| query_l, key_l | (width, H E) | W_Q and W_K of all heads side by side, E the largest query dimension, zeros beyond |
| value_l, output_l | (width, H P), (H P, width) | W_V and W_O alike, P the most outputs |
| inner_l, bias_l, outer_l | (width, u), (u,), (u, width) | its ReLU units; not there where it has none |
| carry_l | (width, width) | what becomes of the stream itself; not there where it is the identity |
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.network.token_transformer import TokenTransformer
from attnfun.network.tokens import TokenNetwork
from attnfun.network.torch_proved import Proved


class TokenAttention(Proved):
    """(n, width) or (batch, n, width) tokens -> read-out of every given token; one attention call a layer."""

    def __init__(self, model: TokenNetwork | TokenTransformer, dtype: str) -> None:
        network = model.attention if isinstance(model, TokenTransformer) else model
        super().__init__(network.dtype, dtype)
        self.width, self.layers = network.width, len(network.layers)
        self.heads = [len(layer.heads) for layer in network.layers]
        for number, layer in enumerate(network.layers):
            H, W = len(layer.heads), network.width
            E, P = max(h.query_dim for h in layer.heads), max(h.outputs for h in layer.heads)
            query, key, value = np.zeros((W, H, E)), np.zeros((W, H, E)), np.zeros((W, H, P))
            output = np.zeros((H, P, W))
            for h, head in enumerate(layer.heads):
                query[:, h, : head.query_dim], key[:, h, : head.query_dim] = head.query, head.key
                value[:, h, : head.outputs], output[h, : head.outputs] = head.value, head.output
            self._keep(f"query_{number}", query.reshape(W, H * E))
            self._keep(f"key_{number}", key.reshape(W, H * E))
            self._keep(f"value_{number}", value.reshape(W, H * P))
            self._keep(f"output_{number}", output.reshape(H * P, W))
            if layer.carry is not None:
                self._keep(f"carry_{number}", layer.carry)
        self.carries = [layer.carry is not None for layer in network.layers]
        blocks = model.blocks if isinstance(model, TokenTransformer) else (None,) * self.layers
        self.units = [block is not None for block in blocks]
        for number, block in enumerate(blocks):
            for part, array in (block.arrays if block is not None else {}).items():
                self._keep(f"{part}_{number}", array)
        self._keep("constants", network.constants)
        self._keep("readout", network.readout)

    def forward(self, tokens: Tensor) -> Tensor:
        given = torch.as_tensor(tokens).to(self._get("readout"))
        if given.ndim not in (2, 3) or given.shape[-1] != self.width:
            raise InvalidRequest(f"tokens of shape {tuple(given.shape)}: (batch, n, {self.width}) is needed")
        X = given if given.ndim == 3 else given[None]
        constants = self._get("constants")
        Z = torch.cat([X, constants.expand(len(X), *constants.shape)], dim=1)
        for number in range(self.layers):
            query, key, value = (self._split(Z, f"{part}_{number}", number) for part in ("query", "key", "value"))
            out = F.scaled_dot_product_attention(query, key, value, scale=1.0)
            kept = Z @ self._get(f"carry_{number}") if self.carries[number] else Z
            Z = kept + out.transpose(1, 2).flatten(2) @ self._get(f"output_{number}")
            if self.units[number]:
                inner, bias, outer = (self._get(f"{part}_{number}") for part in ("inner", "bias", "outer"))
                Z = Z + torch.relu(Z @ inner + bias) @ outer
        result = Z[:, : X.shape[1]] @ self._get("readout")
        return result if given.ndim == 3 else result[0]

    def _split(self, Z: Tensor, name: str, number: int) -> Tensor:
        """(batch, tokens, width) -> (batch, heads, tokens, e)."""
        rows = Z @ self._get(name)
        return rows.reshape(*rows.shape[:2], self.heads[number], -1).transpose(1, 2)
