"""TrainedTowers: networks whose inner product was trained towards a relation of two or three variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.form import cost_of
from attnfun.kinds.relation.reading import Reading
from attnfun.network.architecture import Architecture
from attnfun.network.evaluate import evaluate
from attnfun.network.head import Array
from attnfun.network.network import Cost, Network


@dataclass(frozen=True, eq=False)
class TrainedTowers:
    """Σ_i s_i φ_i(x) ψ_i(y) (…) with `networks`, one that serves all sides or one a side.

    `shapes` are the architectures that were trained, which hold those of the networks; `signs` are the s_i.
    No proof is known for them.
    """

    method: ClassVar[str] = "none"

    networks: tuple[Network, ...]
    shapes: tuple[Architecture, ...]
    reads: tuple[Reading, ...]
    signs: Array

    def __post_init__(self) -> None:
        if self.signs.ndim != 1 or not np.isin(self.signs, (-1.0, 1.0)).all():
            raise InvalidRequest("the signs of a relation are one ±1 a feature")
        if not 0 < len(self.networks) == len(self.shapes) == len(self.reads):
            raise InvalidRequest("trained towers have a shape and a reading each")
        for network, shape, reads in zip(self.networks, self.shapes, self.reads, strict=True):
            fits = shape.holds(network.architecture) and reads.width == len(network.inputs)
            if not fits or len(network.outputs) != len(self.signs):
                raise InvalidRequest("a tower that does not fit its side")

    @property
    def dtype(self) -> str:
        return self.networks[0].dtype

    @property
    def realise(self) -> str:
        return "mlp" if self.networks[0].is_mlp else "attention"

    @property
    def rank(self) -> int:
        return len(self.signs)

    @property
    def signed(self) -> bool:
        return bool((self.signs < 0).any())

    @property
    def one(self) -> bool:
        return len(self.networks) == 1

    @property
    def product_signs(self) -> Array:
        return self.signs

    @property
    def cost(self) -> Cost:
        """Of all towers together; one that serves several sides counts once."""
        return cost_of(self.networks)

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        return self.shapes

    def place(self, k: int) -> int:
        """The number of the tower of side k."""
        return min(k, len(self.networks) - 1)

    def unfit(self, target: Any) -> str:
        """Why these cannot be towers of a target with these sides, in words; empty where they can."""
        boxes = target.boxes
        fits = len(self.networks) in (1, len(boxes))
        fits = fits and all(len(self.reads[self.place(k)].names) == box.dim for k, box in enumerate(boxes))
        return "" if fits else "its towers are those of other variables than its relation's"

    def reading(self, _target: Any, k: int) -> Reading:
        """What the tower of side k reads of points."""
        return self.reads[self.place(k)]

    def tower(self, _target: Any, k: int) -> Network:
        return self.networks[self.place(k)]

    def values(self, k: int, inputs: Array, _dtype: str = "float64") -> Array:
        """(n, inputs) → (n, rank) of side k, J in the second."""
        found = np.asarray(evaluate(self.networks[self.place(k)], inputs), dtype=np.float64)
        return np.asarray(found * self.signs) if k == 1 else found

    def run(self, first: Array, second: Array, third: Array | bool = False) -> Array:
        """Inputs of two sides → (m, n) scores, or if the third is True (n,) of pairs; of three sides → (n,)."""
        phi, psi = self.values(0, first), self.values(1, second)
        if third is False:
            return np.asarray(phi @ psi.T)
        product = phi * psi
        return np.asarray(np.sum(product if third is True else product * self.values(2, third), axis=1))

    def to_torch(self, dtype: Any = None) -> Any:
        """A module from the inputs of all sides to scores, with the towers as `towers`."""
        from attnfun.kinds.relation.torch_scores import Scores

        return Scores(self.networks, self.signs, dtype)
