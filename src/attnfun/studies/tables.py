"""Reading a table: what the judges and the pictures of several studies share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

from attnfun.studies.study import REFUTED, Row, Table, Verdict


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


def coloured(items: Iterable[Any]) -> list[tuple[str, Any]]:
    """(colour, item) for every item; where there are more than colours, these come again."""
    from attnfun.plots.panels import NETWORKS

    return list(zip(cycle(NETWORKS), items, strict=False))


STYLES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 4)), (0, (6, 2, 1, 2)), (0, (3, 5)))


def styled(items: Iterable[Any], styles: Sequence[Any] = STYLES) -> list[tuple[Any, Any]]:
    """(line style, item) for every item, as `coloured`."""
    return list(zip(cycle(styles), items, strict=False))


def panels(columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 4.0) -> tuple[Any, Any]:
    """(Figure, array of axes with shape (rows, columns)) in the house's style."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), dpi=130, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#e4e7eb", lw=0.6)
        ax.set_axisbelow(True)
    return figure, axes
