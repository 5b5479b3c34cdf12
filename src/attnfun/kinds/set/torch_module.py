"""The torch module of a network on sets; importing this file imports torch.

(batch, n, d) → (batch, outputs). `left` and `right` are 0-1 matrices of shape (n², n): the linear layer X → [left X,
right X] makes a token of every ordered pair; a network on elements has neither. Then the module of the sequence
network; all tokens hold the same outputs, and the first is read.
"""

import numpy as np
import torch
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.torch_module import SequenceAttention
from attnfun.network.torch_modules import Proved


class SetAttention(Proved):
    """A sequence module behind the linear layer that makes pairs, and a read-out of one token."""

    def __init__(self, sequence: SequenceAttention, points: int, dim: int, pairs: bool) -> None:
        super().__init__(*(str(kind).removeprefix("torch.") for kind in (sequence.proved, sequence.dtype)))
        self.sequence, self.points, self.dim, self.pairs = sequence, points, dim, pairs
        if pairs:
            eye = np.eye(points)
            self._keep("left", np.repeat(eye, points, axis=0))
            self._keep("right", np.tile(eye, (points, 1)))

    def forward(self, X: Tensor) -> Tensor:
        given = torch.as_tensor(X)
        if given.ndim != 3 or tuple(given.shape[1:]) != (self.points, self.dim):
            raise InvalidRequest(f"sets of shape {tuple(given.shape)}: (batch, {self.points}, {self.dim}) is needed")
        tokens = given
        if self.pairs:
            given = given.to(self._get("left"))
            tokens = torch.cat([self._get("left") @ given, self._get("right") @ given], dim=2)
        result: Tensor = self.sequence(tokens)
        return result[:, 0]
