"""Slices of a relation as features: a cross approximation by pivot points and two small matrices.

| symbol | here | shape |
| --- | --- | --- |
| X, Y | `rows`, `columns`: pivot points of the left and of the right side | (k, left), (k, right) |
| A, B | `left_core`, `right_core` | (k, rank) |

    φ(x) = Aᵀ r(x, Y),   ψ(y) = Bᵀ r(X, y),   A Bᵀ near r(X, Y)⁻¹,   so ⟨φ(x), ψ(y)⟩ = r(x, y) where x ∈ X, y ∈ Y

A symmetric relation has X = Y, B = A J (`signs`). The relation itself is evaluated, so a file stays small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.expressions import ArrayAlgebra, Graph, run
from attnfun.network.cells import Ends
from attnfun.network.head import AnyArray, Array, frozen


@dataclass(frozen=True, eq=False)
class Slices:
    """Pivots and cores of both sides of the relation `graph` in the variables `names` = (left, right)."""

    graph: Graph
    names: tuple[tuple[str, ...], tuple[str, ...]]
    rows: Array
    columns: Array
    left_core: Array
    right_core: Array
    left_box: Ends
    right_box: Ends
    signs: Array | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "left_core", "right_core"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
            if not np.isfinite(getattr(self, name)).all():
                raise InvalidRequest(f"the {name} of a cross approximation are not finite")
        if self.signs is not None:
            object.__setattr__(self, "signs", frozen(self.signs))
            if self.signs.shape != (self.rank,) or not np.isin(self.signs, (-1.0, 1.0)).all():
                raise InvalidRequest("the signs of a cross approximation are one ±1 a feature")
            same = np.array_equal(self.rows, self.columns)
            if not same or not np.array_equal(self.right_core, self.left_core * self.signs):
                raise InvalidRequest("a symmetric relation has the same pivots on both sides")
        fits = self.rows.ndim == self.columns.ndim == self.left_core.ndim == self.right_core.ndim == 2
        fits = fits and self.rows.shape[1] == len(self.names[0]) and self.columns.shape[1] == len(self.names[1])
        fits = fits and self.left_core.shape == (len(self.columns), self.rank)
        if not fits or self.right_core.shape != (len(self.rows), self.rank):
            raise InvalidRequest("the pivots and cores of a cross approximation do not fit together")

    @property
    def rank(self) -> int:
        return int(self.left_core.shape[1])

    @property
    def signed(self) -> bool:
        return self.signs is not None and bool((self.signs < 0).any())

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        return np.ones(self.rank) if self.signs is None else self.signs

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables) → (n, rank): slices of the relation at the other side's pivots, times the core."""
        left = name == "left"
        mine, theirs = self.names if left else self.names[::-1]
        pivots, core = (self.columns, self.left_core) if left else (self.rows, self.right_core)
        env: dict[str, AnyArray] = {v: points[:, k : k + 1] for k, v in enumerate(mine)}
        env |= {v: pivots[:, k][None, :] for k, v in enumerate(theirs)}
        with np.errstate(all="ignore"):
            values = run(self.graph, ArrayAlgebra(), env)[0]
        table = np.broadcast_to(np.asarray(values, dtype=np.float64), (len(points), len(pivots)))
        return np.asarray((table @ core).astype(dtype))
