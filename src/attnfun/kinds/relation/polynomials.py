"""Polynomials: features that are products of polynomials, with the towers that realise them. Nothing but weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.core import Core, fitting_core
from attnfun.kinds.relation.features import Features
from attnfun.kinds.relation.form import Ends, Form
from attnfun.kinds.relation.reading import Reading
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import TowerWeights, tower_network
from attnfun.network.head import AnyArray, Array
from attnfun.network.network import Network
from attnfun.network.stack import stacked

Towers = tuple[TowerWeights, TowerWeights]


@dataclass(frozen=True, eq=False)
class Polynomials(Form):
    """`towers` are the left and the right one, one object for both in a symmetric relation; None: features only."""

    method: ClassVar[str] = "towers"

    features: Features
    towers: Towers | None = None

    def __post_init__(self) -> None:
        if self.towers is None:
            return
        one, other = self.towers
        if one.mlp != other.mlp or (one.inner is None) != (other.inner is None):
            raise InvalidRequest("the towers of a relation are of one kind, and both or none have a network below them")
        for tower, box in ((one, self.left_box), (other, self.right_box)):
            if len(tower.keys) != len(box[0]):
                raise InvalidRequest("the weights of a tower do not fit its features")

    @property
    def rank(self) -> int:
        return self.features.rank

    @property
    def signs(self) -> tuple[Array, ...] | None:
        return self.features.signs

    @property
    def product_signs(self) -> Array:
        return self.features.product_signs

    @property
    def left_box(self) -> Ends:
        return self.features.left_box

    @property
    def right_box(self) -> Ends:
        return self.features.right_box

    @property
    def realise(self) -> str | None:
        return None if self.towers is None else "mlp" if self.towers[0].mlp else "attention"

    def core(self, relation: Relation) -> Core:
        return fitting_core(relation, self.left_box, self.right_box)

    def network(self, side: str) -> Network:
        """The tower as a network from x where it has a network below it, else from u(x)."""
        if self.towers is None:
            return super().network(side)
        side = "left" if self.signs is not None else side
        tower, box = (self.towers[0], self.left_box) if side == "left" else (self.towers[1], self.right_box)
        head = tower_network(self.features, side, tower, tuple(f"v{k + 1}" for k in range(len(box[0]))))
        return head if tower.inner is None else stacked(tower.inner, head)

    @property
    def stacked(self) -> bool:
        """Are there networks below the towers, which start from the points?"""
        return self.towers is not None and self.towers[0].inner is not None

    def reading(self, relation: Relation, k: int) -> Reading:
        return Reading(relation.boxes[k].names) if self.stacked else super().reading(relation, k)

    def tower(self, relation: Relation, k: int) -> Network:
        return self.networks[-k] if self.stacked else super().tower(relation, k)

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        return self.features.side(name, points, dtype)
