"""Form: what the two towers of a relation are stored as. Everything that is done with them is written here, once.

| form | features |
| --- | --- |
| `Polynomials` | products of polynomials, and the towers that realise them |
| `Cells` | look-up tables over soft cells, or broken lines of ReLU units |
| `Separable` | the relation's own terms, a network a side |
| `Slices` | slices of the relation itself: no network, and never proved |

A form names its proof (`method`) and says what its networks read: the points x, or u(x) for a core g(u(x), v(y)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.core import Core, plain_core
from attnfun.kinds.relation.reading import Reading
from attnfun.kinds.relation.target import Relation
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, frozen
from attnfun.network.network import Cost, Network

if TYPE_CHECKING:
    from attnfun.network.architecture import Architecture

Ends = tuple[Array, Array]
SIDES = ("left", "right")


class Form:
    """Scores ⟨φ(x), Jψ(y)⟩: the base of all forms, which are frozen dataclasses."""

    method: ClassVar[str]
    """How it is proved (`prove`)."""
    dtype: ClassVar[str] = "float64"

    if TYPE_CHECKING:  # fields or properties of the classes

        @property
        def rank(self) -> int: ...

        @property
        def signs(self) -> Any:
            """Not None exactly if one tower serves both sides of a symmetric relation."""
            ...

        @property
        def left_box(self) -> Ends: ...

        @property
        def right_box(self) -> Ends: ...

    @property
    def one(self) -> bool:
        """Does one tower serve both sides?"""
        return self.signs is not None

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        return np.ones(self.rank) if self.signs is None else self.signs

    @property
    def signed(self) -> bool:
        """Does the inner product carry a minus sign somewhere?"""
        return self.signs is not None and bool((self.product_signs < 0).any())

    @property
    def realise(self) -> str | None:
        """ "attention", "mlp", or None for features without networks."""
        return None

    def core(self, relation: Relation) -> Core:
        """The core whose features these are."""
        return plain_core(relation)

    def network(self, side: str) -> Network:
        """The tower of a side."""
        raise InvalidRequest("these features were asked for without towers (features_only=True)")

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, inputs) → (n, rank) of one side without its network."""
        raise InvalidRequest("these features are those of their networks")

    @cached_property
    def networks(self) -> tuple[Network, ...]:
        """The towers, one that serves both sides once; none of features alone."""
        sides = SIDES[: 1 if self.signs is not None else 2] if self.realise else ()
        return tuple(self.network(side) for side in sides)

    @property
    def cost(self) -> Cost:
        """Of all towers together; features without any have a rank alone."""
        return cost_of(self.networks) if self.networks else Cost(0, 0, self.rank, 0, 0, 0, 0.0, 0)

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        """Of its towers, the one of a symmetric relation once; InvalidRequest for features without towers."""
        return tuple(network.architecture for network in self.networks or (self.network("left"),))

    def unfit(self, relation: Relation) -> str:
        """Why these cannot be features of the relation, in words; empty where they can."""
        core = self.core(relation)
        same = (core.left.dim, core.right.dim) == (len(self.left_box[0]), len(self.right_box[0]))
        return "" if same else "its features are those of other variables than its relation's"

    def reading(self, relation: Relation, k: int) -> Reading:
        """What the features of side k, 0 or 1, are computed from: u(x), cut to their box."""
        core, ends = self.core(relation), (self.left_box, self.right_box)[k]
        return Reading(relation.boxes[k].names, (core.left_inner, core.right_inner)[k], ends)

    def tower(self, relation: Relation, k: int) -> Network:
        """The network of side k, its inputs called what they are in the core."""
        own = self.networks[-k] if self.networks else self.network(SIDES[k])
        core = self.core(relation)
        return replace(own, inputs=(core.left, core.right)[k].names)

    def values(self, k: int, inputs: Array, dtype: str = "float64") -> AnyArray:
        """(n, inputs) → (n, rank), J on the right; `dtype` is for features without a network, which run in any."""
        if not self.networks:
            return self.side(SIDES[k], inputs, dtype)
        values = evaluate(self.networks[-k], inputs)
        return np.asarray(values * self.product_signs if k and self.signed else values)

    def run(self, left: Array, right: Array, pairs: bool = False) -> AnyArray:
        """Inputs (m, …), (n, …) → (m, n) scores; with `pairs` (n, …), (n, …) → (n,)."""
        phi, psi = self.values(0, left), self.values(1, right)
        return np.asarray(np.sum(phi * psi, axis=1) if pairs else phi @ psi.T)

    def to_torch(self, dtype: Any = None) -> Any:
        """A module from the inputs of both sides to scores (m, n), with the towers as `towers`."""
        from attnfun.kinds.relation.torch_scores import Scores

        if not self.networks:
            self.network("left")
        return Scores(self.networks, self.product_signs, dtype)


def require_signs(form: Any) -> None:
    """A form has another side, or signs ±1 in its place; freezes them."""
    if (form.other is None) == (form.signs is None):
        raise InvalidRequest("a relation has two towers, or one and signs")
    if form.signs is not None:
        object.__setattr__(form, "signs", frozen(form.signs))
        if form.signs.shape != (form.rank,) or not np.isin(form.signs, (-1.0, 1.0)).all():
            raise InvalidRequest("the signs of a relation are one ±1 a feature")


def cost_of(towers: Sequence[Network]) -> Cost:
    costs = [tower.cost for tower in towers]
    return Cost(
        layers=max(c.layers for c in costs),
        heads=sum(c.heads for c in costs),
        rank=max(c.rank for c in costs),
        keys=sum(c.keys for c in costs),
        parameters=sum(c.parameters for c in costs),
        query_dim=max(c.query_dim for c in costs),
        max_value=max(c.max_value for c in costs),
        stored=sum(c.stored for c in costs),
    )
