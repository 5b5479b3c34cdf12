"""Reading a table: what the judges of several studies share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from attnfun.lab.studies.study import REFUTED, Row, Table, Verdict


def where(table: Table, **wanted: Any) -> list[Row]:
    """The rows whose columns have the wanted values."""
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


def values(rows: Iterable[Row], column: str) -> list[Any]:
    return [row[column] for row in rows]


def lacking(table: Table, column: str, *kinds: Any) -> Verdict | None:
    """A verdict that nothing can be said, where the table has no row of one of these kinds; else None."""
    gone = [kind for kind in kinds if not where(table, **{column: kind})]
    if not gone:
        return None
    return Verdict(REFUTED, f"Nothing can be said: the table has no row of {', '.join(map(str, gone))}.")


def distinct(table: Table, column: str) -> list[Any]:
    """The column's values in the order of first use."""
    return list(dict.fromkeys(row[column] for row in table))


def median(numbers: Iterable[float]) -> float:
    """NaN of nothing, and where one of them is NaN: sorted, it would stand anywhere."""
    found = sorted(numbers)
    if not found or any(math.isnan(number) for number in found):
        return math.nan
    half = len(found) // 2
    return found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope of log y against log x: the exponent of a power law; NaN where a number is not positive."""
    if len(xs) < 2 or not all(0 < v < math.inf for v in (*xs, *ys)):
        return math.nan
    u, v = [math.log(x) for x in xs], [math.log(y) for y in ys]
    a, b = sum(u) / len(u), sum(v) / len(v)
    spread = sum((x - a) ** 2 for x in u)
    return sum((x - a) * (y - b) for x, y in zip(u, v, strict=True)) / spread if spread else math.nan
