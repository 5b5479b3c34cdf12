"""RelationApproximant: the view of a relation's model; what `relation` returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.kinds.relation.core import Core
from attnfun.kinds.relation.form import SIDES, Form, Polynomials
from attnfun.kinds.relation.jumps import Band
from attnfun.kinds.relation.target import Relation, Sides, points_of
from attnfun.language.domain import Box
from attnfun.model import Model
from attnfun.network import Network
from attnfun.network.head import Array, Of

if TYPE_CHECKING:
    import torch

S = TypeVar("S", bound=Sides)


@dataclass(frozen=True, eq=False)
class Tower:
    """Side k of a relation: points (n, variables) → features (n, rank), J included on the right."""

    weights: Form
    target: Relation
    k: int

    def __call__(self, X: ArrayLike, dtype: str = "float64") -> NDArray[Any]:
        """(n, variables) → (n, rank); `dtype` is for towers without a network, which run in any."""
        return self.weights.values(self.k, self.inputs(X), dtype)

    @property
    def side(self) -> str:
        return SIDES[self.k]

    @property
    def box(self) -> Box:
        return self.target.boxes[self.k]

    def inputs(self, X: ArrayLike) -> Array:
        """What the network reads: x if it computes u(x) itself, else u(x), cut to the box of the features."""
        return self.weights.reading(self.target, self.k)(points_of(X, self.box))

    @cached_property
    def network(self) -> Network:
        """The tower as a network from x, or from u(x) where that is computed outside.

        A symmetric relation has one for both sides (and J on the right if it is signed).
        """
        return self.weights.tower(self.target, self.k)

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The tower as a torch module, (n, inputs of `network`) → (n, rank), rank 1 too."""
        from attnfun.kinds.relation.torch_towers import tower_module

        module: torch.nn.Module = tower_module(self.network, dtype)
        return module

    @property
    def coefficients(self) -> list[Array]:
        """Chebyshev coefficients of the factors' functions, (N_1, …, N_a, columns) each; of polynomials only."""
        blocks = self.weights.features.blocks if isinstance(self.weights, Polynomials) else ()
        return [b.right if self.k else b.left for b in blocks]


class Ranked(Model[S, Form]):
    """A sum of products of features."""

    rank = Of[int]("weights")

    @property
    def rank_lower(self) -> int:
        """A proved lower bound of the rank of any features within eps; 0 where there is none."""
        least = self.story.get("rank_lower")
        return least if type(least) is int else 0


class RelationApproximant(Ranked[Relation]):
    """Two towers and their inner product: `net(X, Y)` for all scores of points (m, left), (n, right variables)."""

    @cached_property
    def left(self) -> Tower:
        return Tower(self.weights, self.target, 0)

    @cached_property
    def right(self) -> Tower:
        return Tower(self.weights, self.target, 1)

    def features(self, X: ArrayLike) -> NDArray[Any]:
        """(n, left variables) → (n, rank): φ(x)."""
        return self.left(X)

    def pairs(self, X: ArrayLike, Y: ArrayLike) -> NDArray[Any]:
        """(n, left variables), (n, right variables) → (n,) scores ⟨φ(x_i), ψ(y_i)⟩."""
        return np.asarray(self(X, Y, pairs=True))

    @property
    def signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones unless the relation was split by `signed=True`."""
        return self.weights.product_signs

    @property
    def core(self) -> Core:
        """g(u(x), v(y)) of the constructed features."""
        return self.weights.core(self.target)

    @property
    def features_only(self) -> bool:
        return self.weights.realise is None

    @property
    def method(self) -> str:
        return str(self.story.get("construction", ""))

    @property
    def band(self) -> Band | None:
        """Where jumps are left out, if the relation was asked for outside of a band around them."""
        return Band.read(self.story.get("band"))
