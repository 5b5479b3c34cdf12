"""Lookup: the softmax of the utilities of a table's keys, for every query of a box.

    x ─► Σ_j softmax_j(β u(x, y_j)) V_j

The utility u is a `Relation`. The table, which may be long, is in the weights: keys y_j, values V_j and β. What is
proved is about the scores, which stand for the utilities of the keys; what is measured is the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.kinds.relation.target import Relation
from attnfun.kinds.retrieval.columns import Columns
from attnfun.language.domain import Array, Box
from attnfun.language.target import Target
from attnfun.network.head import Of, softmax

if TYPE_CHECKING:
    from attnfun.kinds.retrieval.weights import TableHead

_BLOCK = 1 << 21  # utilities at a time
_DRAWS, _LEAST, _WORK = 5000, 200, 1 << 24


def blocks(count: int, width: int, most: int = 2_000_000) -> Iterator[slice]:
    """Rows 0 … count, so many at a time that `most` entries are looked at; one block of none, if there are none."""
    step = max(1, most // width)
    return (slice(start, start + step) for start in range(0, max(count, 1), step))


@dataclass(frozen=True)
class Lookup(Target):
    """`utility` of queries (left) and keys (right); `table`: where the keys are.

    Its keys are points of the right box; with what they hand out it has the beta of the softmax that is wanted.
    """

    kind: ClassVar[str] = "retrieval"
    draws_what: ClassVar[str] = "queries"
    decided: ClassVar[str] = "queries whose most attended key is not the best"

    utility: Relation
    table: TableHead | None = field(default=None, compare=False)

    box = Of[Box]("utility")
    text, domain = Of[str]("utility"), Of[str]("utility")  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        return self.utility.to_json()

    @classmethod
    def from_json(cls, data: Any) -> Lookup:
        return cls(Relation.from_json(data))

    def completed(self, weights: Any) -> Lookup:
        return replace(self, table=weights)

    def same(self, other: Target) -> bool:
        if not (isinstance(other, Lookup) and super().same(other) and self.table and other.table):
            return False
        one, two = self.table, other.table
        alike = np.array_equal(one.points, two.points) and np.array_equal(one.values, two.values)
        return alike and one.beta == two.beta

    def against(self, given: Any) -> Lookup:
        self.utility.against(given)
        return self

    def fits(self, weights: Any) -> str:
        right = self.utility.right
        if weights.points.shape[1] != right.dim:
            return f"its keys have {weights.points.shape[1]} coordinates, and its utility has {right.dim} on the right"
        return str(weights.unfit(self.utility))

    def queries(self, X: Any) -> Array:
        """(m, left variables), checked."""
        queries = Columns.given(X, "query", self.utility.left.names)
        queries.require_inside(self.utility.left)
        return queries.values

    def encode(self, weights: Any, X: Any, picks: bool = False) -> tuple[tuple[Array, bool], Array | None]:
        """(m, left variables); with `picks` a last column says how much utility the most attended key loses."""
        queries = self.queries(X)
        return (weights.reading(self.utility)(queries), picks), queries if picks else None

    def decode(self, outputs: Any, how: Array | None) -> Array:
        if how is None:
            return np.asarray(outputs)
        found, top = outputs
        lost = [own.max(axis=1) - own[np.arange(len(own)), top[rows]] for rows, own in self._utilities(how)]
        return np.column_stack([found, np.concatenate(lost)])

    def _utilities(self, X: Array) -> Iterator[tuple[slice, Array]]:
        """The utilities (block, keys) of all keys, as NumPy computes them, block after block."""
        assert self.table is not None
        for rows in blocks(len(X), len(self.table.points), _BLOCK):
            yield rows, self.utility.table(X[rows], self.table.points)

    def columns(self, weights: Any) -> tuple[list[str], list[str]]:
        return list(self.utility.left.names), list(weights.outputs)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, bool]:
        return self.utility.left.probe(count, rng), True

    def sample_size(self, weights: Any) -> int:
        return max(_LEAST, min(_DRAWS, _WORK // len(weights.points)))

    def exact(self, X: Array, picks: bool = False) -> Array:
        """(m, columns): Σ_j softmax_j(β u(x, y_j)) V_j; with `picks` a last column of zeros: nothing is lost."""
        assert self.table is not None
        found = []
        for _, own in self._utilities(X):
            found.append(softmax(self.table.beta * own) @ self.table.values)
        wanted = np.concatenate(found)
        return np.column_stack([wanted, np.zeros(len(X))]) if picks else wanted

    def errors(self, outputs: Any, wanted: Any) -> Array:
        return super().errors(outputs[:, :-1], wanted[:, :-1])

    def wrong(self, outputs: Any, wanted: Any) -> NDArray[np.bool_]:
        return np.asarray(outputs[:, -1] > 0)
