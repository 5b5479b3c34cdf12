"""The picture of an in-context network: error of predictions against depth, with the floors of bias and rounding."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.build import MOST_LAYERS, build
from attnfun.kinds.in_context.prove import measured, prove
from attnfun.kinds.in_context.view import InContextSolver
from attnfun.network import TokenNetwork
from attnfun.plots import panels
from attnfun.plots.needed import picture
from attnfun.plots.picture import FORMATS, RC

_DEPTHS = 14


@picture
def draw_in_context(solver: InContextSolver, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure.

    The same network at up to 14 depths: measured on example prompts, and proved.
    """
    if path is not None and Path(path).suffix.lower() not in FORMATS:
        raise InvalidRequest(f"cannot draw {str(path)!r}: the name must end in {', '.join(FORMATS)}")
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(RC):
        picture = Figure(figsize=(7.2, 4.4), layout="constrained")
        FigureCanvasAgg(picture)
        _draw(picture.add_subplot(), solver)
        if path is not None:
            picture.savefig(path, dpi=150)
    return picture


def depths(solver: InContextSolver) -> list[int]:
    """At most 14 depths up to that of the network and a third beyond."""
    own, step = solver.cost.layers, 1 if solver.task.task in ("linear", "ridge") else 2
    first = 2 if step == 1 else 3
    last = min(own + max(2, own // 3) * step, MOST_LAYERS[solver.task.task])
    chosen = np.unique(np.linspace(0, (last - first) // step, _DEPTHS).round().astype(int))
    return sorted({first + step * int(k) for k in chosen} | {own})


def _draw(ax: Any, solver: InContextSolver) -> None:
    task, own = solver.task, solver.cost.layers
    shown, seen, proved = depths(solver), [], []
    for layers in shown:
        typical = solver.network.dtype == "float32"
        network = solver.network
        assert isinstance(network, TokenNetwork)
        if layers != own:
            network = build(task, layers, solver.algorithm, network.dtype, solver.heads, typical)
        seen.append(measured(network, task, 2, math.inf, search=False)[0])
        try:
            proved.append(prove(network, task).total)
        except Undecided:
            proved.append(math.nan)
    if np.isfinite(proved).any() and solver.network.dtype == "float64":
        ax.semilogy(shown, proved, color=panels.BOUND, lw=1.4, label="proved for the whole class")
    ax.semilogy(shown, seen, color=panels.NETWORKS[0], marker="o", ms=3, lw=1.2, label="measured on example prompts")
    for k, part in enumerate(("optimisation", "bias", "rounding")):
        value = getattr(solver.budget, part)
        if value > 0 and part != "optimisation":
            ax.axhline(value, color=panels.NETWORKS[k + 1], lw=0.9, ls=":", label=f"{part}, predicted: {value:.1e}")
    eps = solver.request.get("eps")
    if eps:
        ax.axhline(eps, color=panels.FAINT, lw=0.9, ls="--", label=f"eps = {eps:g}")
    ax.axvline(own, color=panels.FAINT, lw=0.9)
    ax.set_xlabel("layers")
    ax.set_ylabel("largest error of a prediction")
    ax.legend(fontsize=7, frameon=False)
    note = f"{own} layers, condition number {task.condition:.3g}, {solver.network.dtype}"
    panels.title(ax, f"{task.text} by {solver.algorithm}", note)
