"""The picture of a comparison: every network a line, its errors and its bound on one logarithmic axis."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

from attnfun.plots.needed import picture
from attnfun.plots.panels import BOUND, FAINT, INK, NETWORKS, title


class Entry(Protocol):
    """What is read of an entry; see `comparison.Entry`."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> int: ...
    @property
    def sup(self) -> float: ...
    @property
    def l2(self) -> float: ...
    @property
    def bound(self) -> float | None: ...


@picture
def draw_comparison(entries: Sequence[Entry], about: str, path: str | os.PathLike[str] | None = None) -> Any:
    """Measured errors as circles (sup full, L2 hollow), bounds as bars; an error of 0 is at the left edge."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 1.7 + 0.5 * len(entries)), dpi=130, layout="constrained")
    ax = figure.subplots()
    numbers = [v for e in entries for v in (e.sup, e.l2, e.bound) if v is not None and 0 < v < math.inf]
    least = min(numbers, default=1e-16) / 3
    marks = (("sup", "o", NETWORKS[0], NETWORKS[0]), ("l2", "o", "none", NETWORKS[1]))
    for y, entry in enumerate(entries):
        seen = [max(v, least) for v in (entry.sup, entry.l2, entry.bound) if v is not None and v < math.inf]
        if seen:
            ax.plot([min(seen), max(seen)], [y, y], color=FAINT, lw=1.0, zorder=1)
        for name, mark, face, edge in marks:
            value = getattr(entry, name)
            if value < math.inf:
                label = {"sup": "sup error, measured", "l2": "L2 error, measured"}[name] if y == 0 else None
                ax.plot(max(value, least), y, mark, mfc=face, mec=edge, ms=7, label=label, zorder=3)
        if entry.bound is not None and entry.bound < math.inf:
            ax.plot(max(entry.bound, least), y, "|", color=BOUND, ms=17, mew=2.2, zorder=2)
    if any(entry.bound is not None for entry in entries):
        ax.plot([], [], "|", color=BOUND, ms=12, mew=2.2, label="bound of the certificate")
    ax.set_xscale("log")
    ax.set_yticks(range(len(entries)), [f"{entry.name}\n{entry.keys:,} keys" for entry in entries], fontsize=8)
    ax.set_ylim(len(entries) - 0.4, -0.6)
    ax.set_xlabel("error", color=INK)
    ax.grid(True, axis="x", which="major", color="#e4e7eb", lw=0.6)
    figure.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    title(ax, "Constructed and learned", about)
    if path is not None:
        figure.savefig(path)
    return figure
