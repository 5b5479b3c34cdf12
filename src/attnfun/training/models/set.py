"""SetModel: a set function and self-attention that was trained towards it; what `train` makes of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, TokenTransformer
from attnfun.set_functions import sets_of
from attnfun.targets.set_function import SetFunction, pair_tokens
from attnfun.training.models.sequence import SequenceModel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class SetModel:
    """`model` on the tokens of a set, one an element or (method "pairs") one a pair; its first token is the answer."""

    target: SetFunction
    method: str
    model: SequenceModel
    certificate: Certificate

    def __call__(self, X: ArrayLike, outside: str = "raise") -> NDArray[np.float64]:
        """(n, d) → a number, or (outputs,); (batch, n, d) → (batch,), or (batch, outputs)."""
        sets, single = sets_of(self.target, X)
        values = self.model(pair_tokens(sets) if self.method == "pairs" else sets, outside=outside)[:, 0]
        values = values[:, 0] if self.target.outputs == 1 else values
        return np.asarray(values[0] if single else values)

    @property
    def request(self) -> Mapping[str, Any]:
        return self.model.request

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.model.network

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, outputs): a linear layer that makes the pairs, then one attention call a layer."""
        from attnfun.network.set_torch import SetAttention

        module: Any = self.model.to_torch(dtype)
        return SetAttention(module, self.target.points, self.target.box.dim, self.method == "pairs")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model of its sequence map (tokens are elements, or pairs), as a constructed one does."""
        replace(self.model, certificate=self.certificate).save(path)

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        return replace(self.model, certificate=self.certificate).explain()
