"""Pictures of limits: the error that no heads avoid, and the map of a plan, against rank and number of heads."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.language.numbers import at_least
from attnfun.limits.separation.rank import RankBound
from attnfun.limits.separation.rank import rank as rank_bound
from attnfun.plots.style import FAINT, INK, NETWORKS, colour_bar, heading, picture, sheet, title


@picture
def draw_rank_map(asked: RankBound) -> Any:
    """Colour: the proved lower bound. Dotted: constant rank × heads, what equal parameters buy. Ring: the request."""
    ranks = np.unique(np.geomspace(1, asked.dim, 25).round().astype(int))
    most = max(4 * asked.dim, 4 * asked.heads, 64)
    heads = np.unique(np.geomspace(1, most, 33).round().astype(int))

    def lower(r: int, h: int) -> float:
        return rank_bound(asked.dim, int(r), int(h), setting=asked.setting, bias=asked.bias).lower

    table = np.array([[lower(r, h) for r in ranks] for h in heads])
    figure = sheet(7.6, 5.4)
    ax = figure.subplots()
    shown = ax.pcolormesh(ranks, heads, table, cmap="magma_r", shading="nearest", vmin=0.0)
    if np.ptp(table) > 0:
        lines = ax.contour(ranks, heads, table, levels=6, colors=[INK], linewidths=0.7)
        ax.clabel(lines, fontsize=7, fmt="%.2g")
    for power in range(int(np.log2(asked.dim * most)) + 1):
        if power % 2 == 0:
            ax.plot(ranks, 2.0**power / ranks, color=FAINT, lw=0.8, ls=":")
    ax.plot([asked.rank], [asked.heads], "o", mfc="none", mec=NETWORKS[1], mew=2.5, ms=9)
    label = f"asked: error ≥ {at_least(asked.lower, 3)}"
    where = {"xytext": (8, 8), "textcoords": "offset points"}
    ax.annotate(label, (asked.rank, asked.heads), fontsize=9, fontweight="bold", color=NETWORKS[1], **where)
    ax.set(xscale="log", yscale="log", xlim=(1, asked.dim), ylim=(1, most))
    title(ax, "", x="rank of a head", y="heads")
    colour_bar(ax, shown, "proved lower bound of the error")
    head = f"The error that no heads avoid in dimension {asked.dim}"
    return heading(figure, head, f"{asked.setting}; dotted: equal rank × heads")


COLOURS = {"impossible": "#e0a39a", "unknown": "#eceff2", "constructed": "#8fc1a3"}


@picture
def draw_plan(plan: Any) -> Any:
    """Three colours for what is impossible, constructed, unknown; dotted: constant rank × heads."""
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.patches import Patch

    cells, depths = plan.cells, sorted({cell.layers for cell in plan.cells})
    width = 5.4 * len(depths) + 1.2
    figure = sheet(width, 5.6)
    names = list(COLOURS)
    shades, norm = ListedColormap(list(COLOURS.values())), BoundaryNorm([-0.5, 0.5, 1.5, 2.5], 3)
    ranks, heads = sorted({c.rank for c in cells}), sorted({c.heads for c in cells})
    for ax, layers in zip(figure.subplots(1, len(depths), squeeze=False)[0], depths, strict=True):
        table = np.full((len(heads), len(ranks)), np.nan)
        for cell in cells:
            if cell.layers == layers:
                table[heads.index(cell.heads), ranks.index(cell.rank)] = names.index(cell.verdict)
        ax.pcolormesh(table, cmap=shades, norm=norm, edgecolors="white", linewidth=0.8)
        _lines(ax, ranks, heads)
        ax.set_xticks(np.arange(len(ranks)) + 0.5, labels=[f"{r:,}" for r in ranks], fontsize=8)
        ax.set_yticks(np.arange(len(heads)) + 0.5, labels=[f"{h:,}" for h in heads], fontsize=8)
        ax.set(xlim=(0, len(ranks)), ylim=(0, len(heads)))
        title(ax, f"{layers} layer{'s' * (layers > 1)}", x="rank of a head", y="heads in a layer")
    within = f", at most {plan.budget:,} parameters" if plan.budget else ""
    head = f"{plan.task}: width {plan.dim}, context {plan.context:,}, eps {plan.eps:g}{within}"
    patches = [Patch(facecolor=colour, edgecolor=FAINT, label=name) for name, colour in COLOURS.items()]
    lines = figure.axes[0].plot([], [], color=INK, lw=0.8, ls=":", label="equal rank × heads")
    figure.legend(handles=[*patches, *lines], loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return heading(figure, head, textwrap.fill(plan.answer, int(12 * width)))


def _lines(ax: Any, ranks: Sequence[int], heads: Sequence[int]) -> None:
    """Equal rank × heads; cells are equally large, so places go by the logarithm between neighbouring sizes."""
    fine = np.geomspace(ranks[0], ranks[-1], 200) if len(ranks) > 1 else np.array([float(ranks[0])])
    product = 1.0
    while product <= ranks[-1] * heads[-1]:
        across, up = product / fine, fine
        inside = (across >= heads[0]) & (across <= heads[-1])
        if inside.sum() > 1:
            ax.plot(_place(up[inside], ranks), _place(across[inside], heads), color=INK, lw=0.8, ls=":", alpha=0.7)
        product *= 4


def _place(values: Any, sizes: Sequence[int]) -> Any:
    return np.interp(np.log(values), np.log(np.array(sizes, dtype=np.float64)), np.arange(len(sizes)) + 0.5)
