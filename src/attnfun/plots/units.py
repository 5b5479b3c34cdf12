"""The panel of a block of ReLU units: the broken line it makes of its step, and where it breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.expressions import ArrayAlgebra, run
from attnfun.network.relu import ReluBlock, evaluate_block
from attnfun.plots.anatomy import Step
from attnfun.plots.panels import INK, SAMPLES, title
from attnfun.plots.sample import View, thinned

MOST_DOTS = 400


def broken_line(ax: Any, view: View, step: Step) -> None:
    """The largest block of an MLP over the range of its argument u: a u + b + block(u), a dot where a unit breaks.

    The query is affine in the argument; its two coefficients are read off sampled points.
    """
    block = max(step.heads, key=lambda one: one.keys)
    assert isinstance(block, ReluBlock)
    box, labels = view.target.box, view.network.labels
    assert labels is not None
    X = box.probe(2000, np.random.default_rng(0))
    graph = labels.program.reachable((step.label.argument,))
    with np.errstate(all="ignore"):
        u = np.asarray(run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})[0], dtype=np.float64)
    axis = block.axis
    q = (replace(view, depth=step.layer - 1).stream(X) @ axis.query.T + axis.offset)[:, 0]
    a, b = int(np.nanargmin(u)), int(np.nanargmax(u))
    slope = (q[b] - q[a]) / ((u[b] - u[a]) or 1.0) or 1.0
    with np.errstate(all="ignore"):
        breaks = u[a] + (-axis.biases / axis.slopes[:, 0] - q[a]) / slope
    breaks = np.sort(breaks[np.isfinite(breaks) & (breaks > step.low) & (breaks < step.high)])
    own = ReluBlock(block.name, replace(axis, query=np.eye(1), offset=np.zeros(1)), block.values, block.writes)

    def height(points: Any) -> Any:
        hidden = evaluate_block(own, (q[a] + slope * (points - u[a]))[:, None])
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
