"""Lookup: the softmax of the utilities of a table's keys, for every query of a box.

    x ─► Σ_j softmax_j(β u(x, y_j)) V_j

The utility u is a `Relation`. The table, which may be long, is in the weights: keys y_j, values V_j and β. What is
proved is about the scores, which stand for the utilities of the keys; what is measured is the output.

Columns of a CSV file as numbers: keys, values and queries, with the line of what is wrong.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.files import Table
from attnfun.kinds.relation.target import Relation
from attnfun.language.domain import Array, Box
from attnfun.language.inputs import numbers
from attnfun.language.target import Target
from attnfun.network.head import Of, softmax

if TYPE_CHECKING:
    from attnfun.kinds.retrieval.weights import TableHead


MOST_ROWS = 4_000_000


@dataclass(frozen=True, eq=False)
class Columns:
    """`names` columns (rows, names) of finite numbers; `ids`: the column "id" as text, if there is one."""

    names: tuple[str, ...]
    values: Array
    ids: tuple[str, ...] | None
    where: tuple[str, ...]

    @classmethod
    def read(cls, path: str | os.PathLike[str], wanted: Sequence[str] | None, without: Sequence[str] = ()) -> Columns:
        """The `wanted` columns of a CSV file with a header, in their order, whatever the order in the file.

        None means every column but "id" and those in `without`. '-' is standard input.
        """
        label = str(path)
        table = Table.read(label)
        header, rows = table.header, table.rows
        names = tuple(wanted) if wanted is not None else tuple(n for n in header if n != "id" and n not in without)
        missing = [name for name in names if name not in header]
        if missing or not names:
            shown = ", ".join(header)[:80] or "nothing"
            lack = f"no column {', '.join(missing)}" if missing else "no column of values"
            raise InvalidRequest(f"{label}: {lack} in its header ({shown})")
        twice = [name for name in (*names, "id") if header.count(name) > 1]
        require(not twice, f"{label}: column {', '.join(twice)} is there twice")
        if not 0 < len(rows) <= MOST_ROWS:
            raise InvalidRequest(f"{label}: {f'more than {MOST_ROWS:,} rows' if rows else 'no row below the header'}")
        for line, row in rows:
            if len(row) < len(header):
                raise InvalidRequest(f"{line}: fewer cells than the header")
        at = [header.index(name) for name in names]
        values = np.array([[_number(row[k], line, header[k]) for k in at] for line, row in rows])
        ids = "id" in header and "id" not in names
        labels = tuple(row[header.index("id")].strip() for _, row in rows) if ids else None
        return cls(names, values, labels, tuple(line for line, _ in rows))

    @classmethod
    def given(cls, table: Any, what: str, names: Sequence[str] | None) -> Columns:
        """The same from an array (n, columns); one column may come as (n,)."""
        values = numbers(table, what, names or ())
        if values.ndim < 2 and (names is None or len(names) == 1):
            values = values.reshape(-1, 1)
        wanted = "columns" if names is None else len(names)
        if values.ndim != 2 or values.size == 0 or (names is not None and values.shape[1] != len(names)):
            shown = "" if names is None else f", columns {', '.join(names)}"
            raise InvalidRequest(f"{what} of shape {np.shape(table)}: (n, {wanted}) is needed{shown}")
        bad = ~np.isfinite(values).all(axis=1)
        require(not bad.any(), f"{what}, row {int(np.argmax(bad))}: a number that is not finite")
        chosen = tuple(names) if names is not None else tuple(f"v{k + 1}" for k in range(values.shape[1]))
        return cls(chosen, values, None, tuple(f"{what}, row {k}" for k in range(len(values))))

    def require_inside(self, box: Box) -> None:
        """Every row a point of the box, or an InvalidRequest with the line of the first that is not."""
        outside = ~box.contains(self.values)
        if outside.any():
            k = int(np.argmax(outside))
            point = ", ".join(f"{n}={v:g}" for n, v in zip(self.names, self.values[k], strict=True))
            raise InvalidRequest(f"{self.where[k]}: {point} lies outside the domain {box.text}")


def columns(source: Any, what: str, names: Sequence[str] | None, without: Sequence[str] = ()) -> Columns:
    """A CSV path or an array as Columns."""
    if isinstance(source, (str, os.PathLike)):
        return Columns.read(source, names, without)
    return Columns.given(source, what, names)


def _number(text: str, line: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidRequest(f"{line}: {text.strip()!r:.40} in column {name!r} is not a finite number")
    return value


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

    @property
    def variables(self) -> tuple[str, ...]:
        return self.utility.left.names

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
