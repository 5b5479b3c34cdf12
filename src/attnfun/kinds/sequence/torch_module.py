"""The torch module of a sequence network; importing this file imports torch.

| buffer | shape | what |
| --- | --- | --- |
| select_k, embed_k | (n, n), (d, width) | the linear embedding sum_k A_k X B_k; select_0 is the identity |
| constant | (n, width) | ones, positions, shut slots |

then the buffers of `network/torch_modules.py`.
"""

import torch
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.network import TokenSequence
from attnfun.network.torch_modules import Proved, TokenAttention


class SequenceAttention(Proved):
    """(batch, n, d) or (n, d) -> (batch, n, p) or (n, p): a linear embedding, then one attention call a layer."""

    def __init__(self, literal: TokenSequence, dtype: str) -> None:
        super().__init__(literal.network.dtype, dtype)
        self.terms = len(literal.terms)
        for k, (A, B) in enumerate(literal.terms):
            self._keep(f"select_{k}", A)
            self._keep(f"embed_{k}", B)
        self._keep("constant", literal.constant)
        self.attention = TokenAttention(literal.network, dtype)

    def tokens(self, X: Tensor) -> Tensor:
        """(batch, n, d) -> the token matrix of the given tokens, (batch, n, width)."""
        total = self._get("constant").expand(X.shape[0], *self._get("constant").shape)
        for k in range(self.terms):
            total = total + self._get(f"select_{k}") @ (X @ self._get(f"embed_{k}"))
        return total

    def forward(self, X: Tensor) -> Tensor:
        given = torch.as_tensor(X).to(self._get("constant"))
        shape = (self._get("constant").shape[0], self._get("embed_0").shape[0])
        if given.ndim not in (2, 3) or tuple(given.shape[-2:]) != shape:
            raise InvalidRequest(f"sequences of shape {tuple(given.shape)}: (batch, {shape[0]}, {shape[1]}) is needed")
        result: Tensor = self.attention(self.tokens(given if given.ndim == 3 else given[None]))
        return result if given.ndim == 3 else result[0]
