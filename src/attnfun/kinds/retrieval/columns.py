"""Columns of a CSV file as numbers: keys, values and queries, with the line of what is wrong."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.files import Table
from attnfun.language.domain import Array, Box

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
        if twice:
            raise InvalidRequest(f"{label}: column {twice[0]} is there twice")
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
        try:
            values = np.array(table, dtype=np.float64)
        except (TypeError, ValueError):
            raise InvalidRequest(f"{what}: an array of numbers or the path of a CSV file is needed") from None
        if values.ndim == 1 and (names is None or len(names) == 1):
            values = values[:, None]
        wanted = "columns" if names is None else len(names)
        if values.ndim != 2 or values.size == 0 or (names is not None and values.shape[1] != len(names)):
            shown = "" if names is None else f", columns {', '.join(names)}"
            raise InvalidRequest(f"{what} of shape {np.shape(table)}: (n, {wanted}) is needed{shown}")
        bad = ~np.isfinite(values).all(axis=1)
        if bad.any():
            raise InvalidRequest(f"{what}, row {int(np.argmax(bad))}: a number that is not finite")
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
