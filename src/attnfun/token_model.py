"""TokenModel: a network that was trained on a sampler of token matrices; what `train` makes of a `SampledTask`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.errors import InvalidRequest
from attnfun.learn.token_tasks import SampledTask, widened
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, TokenTransformer, tokens_to_torch

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class TokenModel:
    """The network and the task it was trained on; called on token matrices it gives the tokens that the task reads."""

    target: SampledTask
    network: TokenNetwork | TokenTransformer
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """(batch, n, coordinates of the task) → (batch, tokens read, outputs), float64."""
        given, width = np.asarray(tokens, dtype=np.float64), len(self.target.coordinates)
        if given.ndim != 3 or given.shape[2] != width:
            raise InvalidRequest(f"tokens of shape {given.shape}: (batch, n, {width}) is needed")
        given = widened(given, self.network.width)
        return np.asarray(self.target.read(self.network.run(given)), dtype=np.float64)

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, width) → (batch, n, outputs): every token read out."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise InvalidRequest("a sampler is Python and in no file: keep the state of the torch module")
