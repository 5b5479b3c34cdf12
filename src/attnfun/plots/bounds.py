"""Pictures of limits: the error that no heads avoid, against rank and number of heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.limits.separation.rank import RankBound
from attnfun.limits.separation.rank import rank as rank_bound
from attnfun.plots.style import FAINT, INK, NETWORKS, picture, sheet, title


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
    label = f"asked: error ≥ {asked.lower:.3g}"
    where = {"xytext": (8, 8), "textcoords": "offset points"}
    ax.annotate(label, (asked.rank, asked.heads), fontsize=9, fontweight="bold", color=NETWORKS[1], **where)
    ax.set(xscale="log", yscale="log", xlim=(1, asked.dim), ylim=(1, most))
    head = f"error no heads avoid, dimension {asked.dim} ({asked.setting}); dotted: equal rank × heads"
    title(ax, head, x="rank of a head", y="heads")
    figure.colorbar(shown, ax=ax, label="proved lower bound of the error")
    return figure
