"""SampledModel: the view of a network that was trained on a sampler of token matrices."""

from __future__ import annotations

from attnfun.learn.sampled import SampledTask
from attnfun.model import Model
from attnfun.network import TokenNetwork, TokenTransformer


class SampledModel(Model[SampledTask, TokenNetwork | TokenTransformer]):
    """Called on (batch, n, coordinates) token matrices it gives the tokens that the task reads."""

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.weights
