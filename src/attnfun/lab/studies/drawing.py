"""What the pictures of studies are made of: panels in the house's style, curves of a table's columns, their labels."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import attnfun as af
from attnfun.lab.studies.tables import Column, Rows

Figure = Any  # of matplotlib, which is loaded when a picture is drawn
BOUND, FAINT, INK, NETWORKS = af.plots.BOUND, af.plots.FAINT, af.plots.INK, af.plots.NETWORKS
PALE, EXCLUDED, SLATE = "#d9e2ec", "#f3c6c0", "#52606d"
STYLES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (1, 4)), (0, (6, 2, 1, 2)), (0, (3, 5)))


def panels(columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 4.0) -> tuple[Any, list[Any]]:
    """(Figure, its axes, row by row) in the house's style."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), dpi=130, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#e4e7eb", lw=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def curve(
    ax: Any,
    rows: Rows,
    x: Column,
    y: Column,
    mark: str = "-",
    *,
    by: Any = None,
    each: Any = None,
    label: Any = "",
    colours: Any = NETWORKS,
    **style: Any,
) -> None:
    """One column of the rows against another; nothing where there are no rows.

    by     a curve, and a colour of `colours`, for every value of this column
    each   one point for every x: this function (`median`, `min`) of its values of y
    label  for the legend; its fields are columns of the curve's first row
    """
    for colour, (*_, group) in zip(cycle(colours), rows.by(by) if by else [(rows,)], strict=False):
        known = group.known(*(column for column in (x, y) if isinstance(column, str)))
        if each is not None:
            points = sorted((at, each(there.of(y))) for at, there in known.by(x))
        else:
            points = list(zip(known.of(x), known.of(y), strict=True))
        if points:
            look = ({"color": colour} if by else {}) | style
            look |= {"label": label.format(**known[0])} if label else {}
            ax.plot(*zip(*points, strict=True), *([mark] if mark else []), **look)


def labelled(
    ax: Any,
    head: Any,
    note: Any = "",
    x: Any = "",
    y: Any = "",
    *,
    log: Any = "",
    legend: Any = "best",
    xticks: Any = None,
    yticks: Any = None,
    **more: Any,
) -> None:
    """Title, note, labels of the axes, scales, ticks and legend of a panel.

    log     "x", "y" or "xy": which axes are logarithmic
    legend  where it lies, or options of matplotlib's legend; None: there is none
    xticks  numbers, or names for 0, 1, 2, …; no others are marked
    more    what else `Axes.set` takes
    """
    for axis in log:
        ax.set(**{f"{axis}scale": "log"})
    for axis, ticks in (("x", xticks), ("y", yticks)):
        if ticks is not None:
            named = any(isinstance(tick, str) for tick in ticks)
            places, size = (range(len(ticks)), {"fontsize": 7}) if named else (ticks, {})
            getattr(ax, f"set_{axis}ticks")(places, [t if named else f"{t:.10g}" for t in ticks], **size)
            getattr(ax, f"{axis}axis").minorticks_off()
    ax.set(xlabel=x, ylabel=y, **more)
    if legend is not None and ax.get_legend_handles_labels()[0]:
        ax.legend(**{"fontsize": 7, "frameon": False} | ({"loc": legend} if isinstance(legend, str) else dict(legend)))
    af.plots.title(ax, head, note)


def coloured(items: Iterable[Any], colours: Sequence[Any] = NETWORKS) -> list[tuple[Any, Any]]:
    """(colour, item) for every item; where there are more than colours, these come again. Line styles as well."""
    return list(zip(cycle(colours), items, strict=False))
