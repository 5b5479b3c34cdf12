"""The picture of a comparison: every network a line, its errors and its bound on one logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnfun.plots.style import BOUND, FAINT, LINES, NETWORKS, picture, sheet, title

if TYPE_CHECKING:
    from attnfun.learn.compare import Entry


@picture
def draw_comparison(entries: Sequence[Entry], about: str) -> Any:
    """Measured errors as circles (sup full, L2 hollow), bounds as bars; an error of 0 is at the left edge."""
    figure = sheet(9.5, 1.7 + 0.5 * len(entries))
    ax = figure.subplots()
    numbers = [v for e in entries for v in (e.sup, e.l2, e.bound) if v is not None and 0 < v < math.inf]
    least = min(numbers, default=1e-16) / 3
    marks = (("sup", "sup", NETWORKS[0], NETWORKS[0]), ("l2", "L2", "none", NETWORKS[1]))
    for y, entry in enumerate(entries):
        seen = [max(v, least) for v in (entry.sup, entry.l2, entry.bound) if v is not None and v < math.inf]
        if seen:
            ax.plot([min(seen), max(seen)], [y, y], color=FAINT, lw=1.0, zorder=1)
        for name, word, face, edge in marks:
            if getattr(entry, name) < math.inf:
                label = f"{word} error, measured" if y == 0 else None
                ax.plot(max(getattr(entry, name), least), y, "o", mfc=face, mec=edge, ms=7, label=label, zorder=3)
        if entry.bound is not None and entry.bound < math.inf:
            ax.plot(max(entry.bound, least), y, "|", color=BOUND, ms=17, mew=2.2, zorder=2)
    if any(entry.bound is not None for entry in entries):
        ax.plot([], [], "|", color=BOUND, ms=12, mew=2.2, label="bound of the certificate")
    ax.set_xscale("log")
    ax.set_yticks(range(len(entries)), [f"{entry.name}\n{entry.keys:,} keys" for entry in entries], fontsize=8)
    ax.set_ylim(len(entries) - 0.4, -0.6)
    ax.grid(True, axis="x", which="major", color=LINES, lw=0.6)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    title(ax, "Constructed and learned", about, "error")
    return figure
