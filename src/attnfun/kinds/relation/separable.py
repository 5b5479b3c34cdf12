"""Two networks whose outputs are the features of a relation that is a finite sum of separable terms. Only weights.

A feature that is affine in the variables is read off the stream, and needs no key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.form import Ends, Form, require_signs
from attnfun.kinds.relation.reading import Reading
from attnfun.kinds.relation.target import Relation
from attnfun.network.head import Array
from attnfun.network.network import Network


@dataclass(frozen=True, eq=False)
class Separable(Form):
    """The networks of φ and ψ; `signs` (rank,) in the place of `other`: one network for both, ⟨φ, Jφ⟩."""

    method: ClassVar[str] = "separable terms"

    left: Network
    other: Network | None = None
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        if len(self.left.outputs) != len(self.right.outputs):
            raise InvalidRequest("the towers of a relation have unequal numbers of features")

    @property
    def right(self) -> Network:
        return self.left if self.other is None else self.other

    @property
    def realise(self) -> str:
        return "mlp" if self.left.is_mlp or self.right.is_mlp else "attention"

    @property
    def rank(self) -> int:
        return len(self.left.outputs)

    @property
    def left_box(self) -> Ends:
        return self.left.box

    @property
    def right_box(self) -> Ends:
        return self.right.box

    def network(self, side: str) -> Network:
        return self.left if side == "left" else self.right

    def reading(self, relation: Relation, k: int) -> Reading:
        """The points themselves: the networks start from them."""
        return Reading(relation.boxes[k].names)

    def tower(self, _relation: Relation, k: int) -> Network:
        return (self.left, self.right)[k]
