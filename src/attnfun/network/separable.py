"""Two networks whose outputs are the features of a relation that is a finite sum of separable terms. Only weights.

A feature that is affine in the variables is read off the stream, and needs no key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network.head import Array, frozen
from attnfun.network.network import Network


@dataclass(frozen=True, eq=False)
class Separable:
    """The networks of φ and ψ; `signs` (rank,): one network for both sides, ⟨φ, Jφ⟩ with J their diagonal."""

    left: Network
    right: Network
    signs: Array | None = None

    def __post_init__(self) -> None:
        if len(self.left.outputs) != len(self.right.outputs):
            raise InvalidRequest("the towers of a relation have unequal numbers of features")
        if self.signs is not None:
            object.__setattr__(self, "signs", frozen(self.signs))
            if self.left is not self.right:
                raise InvalidRequest("a symmetric relation has one tower")
            if self.signs.shape != (self.rank,) or not np.isin(self.signs, (-1.0, 1.0)).all():
                raise InvalidRequest("the signs of a relation are one ±1 a feature")

    @property
    def rank(self) -> int:
        return len(self.left.outputs)

    @property
    def left_box(self) -> tuple[Array, Array]:
        return self.left.box

    @property
    def right_box(self) -> tuple[Array, Array]:
        return self.right.box

    @property
    def signed(self) -> bool:
        return self.signs is not None and bool((self.signs < 0).any())

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        return np.ones(self.rank) if self.signs is None else self.signs
