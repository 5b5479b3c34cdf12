"""The picture of an in-context network: error of predictions against depth, with the floors of bias and rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.kinds.in_context.build import MOST_LAYERS, build
from attnfun.kinds.in_context.prove import measured, prove
from attnfun.kinds.in_context.view import InContextSolver
from attnfun.network import TokenNetwork
from attnfun.plots import style

_DEPTHS = 14


@style.picture
def draw_in_context(solver: InContextSolver) -> Any:
    """Draw into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure.

    The same network at up to 14 depths: measured on example prompts, and proved.
    """
    page = style.sheet(7.2, 4.4)
    _draw(page.add_subplot(), solver)
    return page


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
        ax.semilogy(shown, proved, color=style.BOUND, lw=1.4, label="proved for the whole class")
    ax.semilogy(shown, seen, color=style.NETWORKS[0], marker="o", ms=3, lw=1.2, label="measured on example prompts")
    for k, part in enumerate(("optimisation", "bias", "rounding")):
        value = getattr(solver.budget, part)
        if value > 0 and part != "optimisation":
            ax.axhline(value, color=style.NETWORKS[k + 1], lw=0.9, ls=":", label=f"{part}, predicted: {value:.1e}")
    eps = solver.request.get("eps")
    if eps:
        ax.axhline(eps, color=style.FAINT, lw=0.9, ls="--", label=f"eps = {eps:g}")
    ax.axvline(own, color=style.FAINT, lw=0.9)
    style.legend(ax, fontsize=7)
    note = f"{own} layers, condition number {task.condition:.3g}, {solver.network.dtype}"
    style.title(ax, f"{task.text} by {solver.algorithm}", note, "layers", "largest error of a prediction")
