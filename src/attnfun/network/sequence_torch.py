"""The torch module of a sequence network; importing this file imports torch.

| buffer | shape | what |
| --- | --- | --- |
| select_k, embed_k | (n, n), (d, width) | the linear embedding sum_k A_k X B_k; select_0 is the identity |
| constant | (n, width) | ones, positions, shut slots |

then the buffers of `token_torch.py`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from attnfun.errors import InvalidRequest
from attnfun.network.sequence_tokens import TokenSequence
from attnfun.network.token_torch import TokenAttention


class SequenceAttention(nn.Module):
    """(batch, n, d) or (n, d) -> (batch, n, p) or (n, p): a linear embedding, then one attention call a layer."""

    def __init__(self, literal: TokenSequence, dtype: str) -> None:
        super().__init__()
        kind: torch.dtype = getattr(torch, dtype)
        self.terms = len(literal.terms)
        for k, (A, B) in enumerate(literal.terms):
            self.register_buffer(f"select_{k}", torch.tensor(np.ascontiguousarray(A), dtype=kind))
            self.register_buffer(f"embed_{k}", torch.tensor(np.ascontiguousarray(B), dtype=kind))
        self.register_buffer("constant", torch.tensor(np.ascontiguousarray(literal.constant), dtype=kind))
        self.attention = TokenAttention(literal.network, dtype)

    def tokens(self, X: Tensor) -> Tensor:
        """(batch, n, d) -> the token matrix of the given tokens, (batch, n, width)."""
        total = self.get_buffer("constant").expand(len(X), *self.get_buffer("constant").shape)
        for k in range(self.terms):
            total = total + self.get_buffer(f"select_{k}") @ (X @ self.get_buffer(f"embed_{k}"))
        return total

    def forward(self, X: Tensor) -> Tensor:
        given = torch.as_tensor(X).to(self.get_buffer("constant"))
        shape = (self.get_buffer("constant").shape[0], self.get_buffer("embed_0").shape[0])
        if given.ndim not in (2, 3) or tuple(given.shape[-2:]) != shape:
            raise InvalidRequest(f"sequences of shape {tuple(given.shape)}: (batch, {shape[0]}, {shape[1]}) is needed")
        result: Tensor = self.attention(self.tokens(given if given.ndim == 3 else given[None]))
        return result if given.ndim == 3 else result[0]
