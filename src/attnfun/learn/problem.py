"""What a run needs to know of what it trains: one vector of weights, batches, a loss, a row of the history.

The loop (`torch_fit.py`) knows nothing else; functions are `torch_function.py`, networks on tokens `torch_tokens.py`,
pairs of towers `kinds/relation/torch_towers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from attnfun.learn.probe import Row
from attnfun.network.head import Array

if TYPE_CHECKING:
    from torch import Tensor


class Problem(Protocol):
    """Weights are one float64 vector in NumPy, one of `dtype` in torch. Everything is a function of its arguments."""

    @property
    def dtype(self) -> str: ...

    @property
    def chosen_by(self) -> str:
        """The column of a row, "sup" or "loss", that is least for the network that is returned."""
        ...

    def identity(self) -> dict[str, Any]:
        """JSON of all that decides a run but its recipe: a checkpoint of another one is refused."""
        ...

    def start(self) -> Array:
        """The vector to start from."""
        ...

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        """Fresh inputs and targets; fewer, or none, where targets are not finite."""
        ...

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """The fixed inputs and targets of a polish."""
        ...

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor: ...

    def network(self, vector: Array | None) -> Any:
        """The network of a vector, or of the start itself for None; InvalidRequest for weights that are not finite."""
        ...

    def measure(self, network: Any, step: int, phase: str) -> Row:
        """Its row, on the probe."""
        ...
