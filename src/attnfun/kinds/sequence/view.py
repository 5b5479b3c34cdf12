"""SequenceApproximant: the view of a sequence map's model; what `sequence`, `train` and `load` return."""

from collections.abc import Callable
from typing import Any

from attnfun.kinds.sequence.network import SequenceNetwork, TokenSequence
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.model import Model, Of


class SequenceApproximant(Model[SequenceMap, SequenceNetwork | TokenSequence]):
    """A network on n tokens: `net(X)` for a sequence (n, d), or for (batch, n, d).

    `equivariant`: whether nothing in it knows a position. `literal()`: the same network as plain self-attention on a
    token matrix: W_Q, W_K, W_V, W_O, constant tokens.
    """

    equivariant, literal = Of[bool]("weights"), Of[Callable[[], TokenSequence]]("weights")

    @property
    def network(self) -> Any:
        """A `SequenceNetwork`; what was trained is a `TokenNetwork` or a `TokenTransformer` behind an embedding."""
        return self.weights.network if isinstance(self.weights, TokenSequence) else self.weights
