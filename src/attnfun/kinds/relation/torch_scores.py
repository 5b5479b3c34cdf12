"""The towers of a relation as one torch module; importing this file imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnfun.network import Network, to_torch
from attnfun.network.head import Array


class Scores(torch.nn.Module):
    """What the networks read, a tensor a side → scores: (m, n) of two sides, (n,) of three.

    `towers`: a module per network, (n, inputs) → (n, rank); one serves all sides. `signs`: the diagonal of J.
    """

    signs: Tensor

    def __init__(self, networks: Sequence[Network], signs: Array, dtype: Any = None) -> None:
        super().__init__()
        self.towers = torch.nn.ModuleList(tower_module(network, dtype) for network in networks)
        kind = next((p.dtype for p in self.towers.parameters()), torch.float64)
        self.register_buffer("signs", torch.tensor(signs, dtype=kind))

    def forward(self, *inputs: Tensor) -> Tensor:
        first, *middle, last = (self.towers[min(k, len(self.towers) - 1)](one) for k, one in enumerate(inputs))
        last = last * self.signs
        return (first * middle[0] * last).sum(dim=1) if middle else first @ last.T


def tower_module(network: Network, dtype: Any = None) -> Any:
    """One tower: (n, inputs) → (n, rank), rank 1 too."""
    module: Any = to_torch(network, dtype)
    module.rows = True
    return module
