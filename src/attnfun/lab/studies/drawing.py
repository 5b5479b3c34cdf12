"""What the pictures of several studies share: panels in the house's style, its colours, curves of a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any

import attnfun as af
from attnfun.lab.studies.study import Table
from attnfun.lab.studies.tables import values

BOUND, FAINT, INK, NETWORKS, title = af.plots.BOUND, af.plots.FAINT, af.plots.INK, af.plots.NETWORKS, af.plots.title
STYLES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 4)), (0, (6, 2, 1, 2)), (0, (3, 5)))


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


def curve(plot: Callable[..., Any], rows: Table, x: str, y: str, *mark: str, **style: Any) -> None:
    """One column of the rows against another, by `ax.loglog` or another way of plotting."""
    plot(values(rows, x), values(rows, y), *mark, **style)


def coloured(items: Iterable[Any]) -> list[tuple[str, Any]]:
    """(colour, item) for every item; where there are more than colours, these come again."""
    return list(zip(cycle(NETWORKS), items, strict=False))


def styled(items: Iterable[Any], styles: Sequence[Any] = STYLES) -> list[tuple[Any, Any]]:
    """(line style, item) for every item, as `coloured`."""
    return list(zip(cycle(styles), items, strict=False))
