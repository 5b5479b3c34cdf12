"""The picture of an interpolation table: errors against keys, log-log, and what the smallest heads look like."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.kinds.function.build.unary.grid import Grid, grid_fit
from attnfun.kinds.function.interpolation import Row
from attnfun.plots.style import FAINT, INK, LINES, NETWORKS, legend, picture, sheet, title

COLOUR = {"published": NETWORKS[0], "inclusive": NETWORKS[1], "optimal": NETWORKS[2]}
_MOST_SHOWN = 24  # keys of the heads drawn as functions


@picture
def draw_rates(rows: Sequence[Row], low: float, high: float) -> Any:
    """Left: published bound, proved bound and measured error against keys. Right: target and smallest networks."""
    figure = sheet(12.5, 5.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _rates(left, rows)
    _shapes(right, rows, low, high)
    return figure


def _rates(ax: Any, rows: Sequence[Row]) -> None:
    many = rows[0].heads is not None
    ordered = sorted(rows, key=lambda row: row.keys)
    sizes = {row.keys: row.published for row in ordered if np.isfinite(row.published)}
    ax.plot(list(sizes), list(sizes.values()), "--", color=INK, lw=1.1, label="published bound")
    for variant in dict.fromkeys(row.variant for row in rows):
        own = [row for row in ordered if row.variant == variant]
        keys = [row.keys for row in own]
        colour = COLOUR.get(variant, INK)
        ax.plot(keys, [row.proved for row in own], "-", color=colour, lw=1.3, label=f"{variant}: proved")
        ax.plot(keys, [row.measured for row in own], "o", mfc="none", mec=colour, ms=6, label=f"{variant}: measured")
    ends = np.array([ordered[0].keys, ordered[-1].keys], dtype=float)
    least = min(row.measured for row in ordered)
    ax.plot(ends, 0.55 * least * ends[-1] / ends, ":", color=FAINT, lw=1.4, label="slope −1")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted(sizes or {row.keys for row in rows})
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()
    ax.set_xlabel("keys, nH" if many else "keys, p")
    ax.set_ylabel("sup error")
    ax.grid(True, which="major", color=LINES, lw=0.6)
    legend(ax, loc="lower left", ncols=2)
    title(ax, "The rate 1/(nH)" if many else "The rate 1/p", "proved from the stored weights, measured on a fine grid")


def _shapes(ax: Any, rows: Sequence[Row], low: float, high: float) -> None:
    reach = (high - low) / 4
    x = np.linspace(low - reach, high + reach, 2001)
    ax.plot(x, np.clip(x, low, high), color=INK, lw=2.6, alpha=0.3, label="target")
    for variant in dict.fromkeys(row.variant for row in rows):
        row = min((row for row in rows if row.variant == variant), key=lambda row: row.keys)
        if row.keys > _MOST_SHOWN:
            continue
        size = f"p = {row.points}" if row.heads is None else f"n = {row.points}, H = {row.heads}"
        fit = grid_fit(Grid(low, high, row.points, row.heads, variant))
        ax.plot(x, fit(x), color=COLOUR.get(variant, INK), lw=1.3, label=f"{variant}, {size}")
    ax.set_xlabel("y = w·x + t")
    ax.grid(True, color=LINES, lw=0.6)
    legend(ax, loc="upper left")
    title(ax, "The smallest networks", f"clip(y, {low:g}, {high:g})")
