"""The torch module of a network on sets; importing this file imports torch.

(batch, n, d) → (batch, outputs). `left` and `right` are 0-1 matrices of shape (n², n): the linear layer X → [left X,
right X] makes a token of every ordered pair; a network on elements has neither. Then the module of the sequence
network; all tokens hold the same outputs, and the first is read.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from attnfun.errors import InvalidRequest


class SetAttention(nn.Module):
    """A sequence module behind the linear layer that makes pairs, and a read-out of one token."""

    def __init__(self, sequence: nn.Module, points: int, dim: int, pairs: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.sequence, self.points, self.dim, self.pairs = sequence, points, dim, pairs
        if pairs:
            eye = np.eye(points)
            self.register_buffer("left", torch.tensor(np.repeat(eye, points, axis=0), dtype=dtype))
            self.register_buffer("right", torch.tensor(np.tile(eye, (points, 1)), dtype=dtype))

    def forward(self, X: Tensor) -> Tensor:
        given = torch.as_tensor(X)
        if given.ndim != 3 or tuple(given.shape[1:]) != (self.points, self.dim):
            raise InvalidRequest(f"sets of shape {tuple(given.shape)}: (batch, {self.points}, {self.dim}) is needed")
        tokens = given
        if self.pairs:
            given = given.to(self.get_buffer("left"))
            tokens = torch.cat([self.get_buffer("left") @ given, self.get_buffer("right") @ given], dim=2)
        result: Tensor = self.sequence(tokens)
        return result[:, 0]
