"""Slices of a relation as features: a cross approximation by pivot points and two small matrices.

| symbol | here | shape |
| --- | --- | --- |
| X, Y | `right.pivots`, `left.pivots`: pivot points of the left and of the right side | (k, left), (k, right) |
| A, B | `left.core`, `right.core` | (k, rank) |

    φ(x) = Aᵀ r(x, Y),   ψ(y) = Bᵀ r(X, y),   A Bᵀ near r(X, Y)⁻¹,   so ⟨φ(x), ψ(y)⟩ = r(x, y) where x ∈ X, y ∈ Y

A symmetric relation has X = Y, B = A J (`signs`). The relation itself is evaluated, so a file stays small.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.features import Ends, freeze
from attnfun.kinds.relation.form import Form, require_signs
from attnfun.kinds.relation.target import values_of
from attnfun.language import Graph
from attnfun.network.head import AnyArray, Array


@dataclass(frozen=True, eq=False)
class Cut:
    """The features of one side: slices of the relation at the other side's `pivots`, times `core`."""

    pivots: Array
    core: Array

    def __post_init__(self) -> None:
        freeze(self, "pivots", "core")
        for name in ("pivots", "core"):
            if not np.isfinite(getattr(self, name)).all():
                raise InvalidRequest(f"the {name} of a cross approximation are not finite")


@dataclass(frozen=True, eq=False)
class Slices(Form):
    """Both sides of the relation `graph` in the variables `names` = (left, right); `signs`: one serves both."""

    method: ClassVar[str] = "sampling"

    graph: Graph
    names: tuple[tuple[str, ...], tuple[str, ...]]
    left: Cut
    other: Cut | None
    left_box: Ends
    right_box: Ends
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        fits = len(self.graph.outputs) == 1 and set(self.graph.variables) <= {*self.names[0], *self.names[1]}
        for cut, names in ((self.left, self.names[1]), (self.right, self.names[0])):
            fits = fits and cut.pivots.ndim == cut.core.ndim == 2 and cut.pivots.shape[1] == len(names)
            fits = fits and cut.core.shape == (len(cut.pivots), self.rank)
        if not fits:
            raise InvalidRequest("the pivots and cores of a cross approximation do not fit together")

    @cached_property
    def right(self) -> Cut:
        if self.signs is None:
            assert self.other is not None
            return self.other
        return Cut(self.left.pivots, self.left.core * self.signs)

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.left_box, self.right_box

    @property
    def rank(self) -> int:
        return int(self.left.core.shape[-1])

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables) → (n, rank): slices of the relation at the other side's pivots, times the core."""
        mine, theirs = self.names if name == "left" else self.names[::-1]
        cut = self.left if name == "left" else self.right
        env: dict[str, AnyArray] = {v: points[:, k : k + 1] for k, v in enumerate(mine)}
        env |= {v: cut.pivots[:, k][None, :] for k, v in enumerate(theirs)}
        table = values_of(self.graph, env, len(points), len(cut.pivots))[0]
        return np.asarray((table @ cut.core).astype(dtype))
