"""What the pictures of studies are made of: panels in the house's style, curves of a table's columns, their labels."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import attnfun as af
from attnfun.lab.studies.tables import Column, Rows, median

Figure = Any  # of matplotlib, which is loaded when a picture is drawn
BOUND, FAINT, INK, NETWORKS = af.plots.BOUND, af.plots.FAINT, af.plots.INK, af.plots.NETWORKS
PALE, EXCLUDED, SLATE = "#d9e2ec", "#f3c6c0", "#52606d"
BESIDE = {"fontsize": 7.5, "loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # a legend, right of its panel
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


def panels_by(table: Rows, *columns: Column, **shape: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """(Figure, [(axes, value, …, rows), …]): a panel for every combination of the columns' values."""
    groups = table.by(*columns)
    figure, axes = panels(len(groups), **shape)
    return figure, [(ax, *group) for ax, group in zip(axes, groups, strict=True)]


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


def each_seed(ax: Any, rows: Rows, x: Column, y: Column, *, label: str = "", **style: Any) -> None:
    """A dot for every row, and a line through the medians, which has the label."""
    curve(ax, rows, x, y, "-", each=median, label=label, **style)
    curve(ax, rows, x, y, "o", ms=4, alpha=0.6, **style)


def level(ax: Any, rows: Rows, column: Column, **style: Any) -> None:
    """A line across the panel at the first row's value; nothing where there are no rows."""
    for value in rows.first().of(column):
        ax.axhline(value, **style)


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


def legend_below(figure: Any, ax: Any, ncols: int, fontsize: float = 8) -> None:
    """One legend for all panels, that of `ax`, under them."""
    place = {"loc": "outside lower center", "ncols": ncols, "fontsize": fontsize, "frameon": False}
    figure.legend(*ax.get_legend_handles_labels(), **place)


def coloured(items: Iterable[Any], colours: Sequence[Any] = NETWORKS) -> list[tuple[Any, Any]]:
    """(colour, item) for every item; where there are more than colours, these come again. Line styles as well."""
    return list(zip(cycle(colours), items, strict=False))
