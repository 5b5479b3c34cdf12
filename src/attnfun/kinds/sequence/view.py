"""SequenceApproximant: the view of a sequence map's model; what `sequence`, `train` and `load` return."""

from __future__ import annotations

from typing import Any

from attnfun.kinds.sequence.network import SequenceNetwork, TokenSequence
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.model import Model


class SequenceApproximant(Model[SequenceMap, SequenceNetwork | TokenSequence]):
    """A network on n tokens: `net(X)` for a sequence (n, d), or for (batch, n, d)."""

    @property
    def network(self) -> Any:
        """A `SequenceNetwork`; what was trained is a `TokenNetwork` or a `TokenTransformer` behind an embedding."""
        return self.weights.network if isinstance(self.weights, TokenSequence) else self.weights

    @property
    def equivariant(self) -> bool:
        """Whether nothing in it knows a position."""
        return self.weights.equivariant

    def literal(self) -> TokenSequence:
        """The same network as plain self-attention on a token matrix: W_Q, W_K, W_V, W_O, constant tokens."""
        return self.weights.literal()
