"""The panel of a block of ReLU units: the broken line it makes of its step, and where it breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.network.relu import ReluBlock, evaluate_block
from attnfun.plots.anatomy import Step
from attnfun.plots.one_head import query_of_argument
from attnfun.plots.panels import INK, SAMPLES, title
from attnfun.plots.sample import View, thinned

MOST_DOTS = 400


def broken_line(ax: Any, view: View, step: Step) -> None:
    """The largest block of an MLP over the range of its argument u: a u + b + block(u), a dot where a unit breaks."""
    block = max(step.heads, key=lambda one: one.keys)
    assert isinstance(block, ReluBlock)
    axis = block.axis
    start, q, slope = query_of_argument(view, step, axis)
    with np.errstate(all="ignore"):
        breaks = start + (-axis.biases / axis.slopes[:, 0] - q) / slope
    breaks = np.sort(breaks[np.isfinite(breaks) & (breaks > step.low) & (breaks < step.high)])
    own = ReluBlock(block.name, replace(axis, query=np.eye(1), offset=np.zeros(1)), block.values, block.writes)

    def height(points: Any) -> Any:
        hidden = evaluate_block(own, (q + slope * (points - start))[:, None])
        return hidden[:, block.writes.index(step.name)] + step.label.slope * points + step.label.offset

    x = np.unique(np.concatenate([np.linspace(step.low, step.high, SAMPLES), breaks[thinned(len(breaks), SAMPLES)]]))
    ax.plot(x, height(x), color=INK, lw=1.4)
    shown = breaks[thinned(len(breaks), MOST_DOTS)] if len(breaks) else breaks
    ax.plot(shown, height(shown), ".", color="#d64545", ms=5 if len(shown) < 60 else 2.5)
    few = f" ({len(shown)} shown)" if len(shown) < len(breaks) else ""
    note = f"{len(breaks):,} breakpoints{few} of {block.keys:,} units"
    title(ax, f"Where units break: {step.tag}, the largest block", note)
    text = step.function if len(step.function) <= 40 else step.function[:39] + "…"
    ax.set_xlabel(f"u, the argument of {text}", parse_math=False)
