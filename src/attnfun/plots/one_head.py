"""Panels of a head that moves along one variable: its keys as lines under their potential, and its weights.

Of a block of ReLU units: the broken line it makes of its step, and where it breaks.

A *ladder* of keys crowds towards one end of the line, where the target is singular; it is drawn against the distance
from that end, on a logarithmic axis.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnfun.diagnosis.attention import strongest
from attnfun.language import ArrayAlgebra, run
from attnfun.network.head import Axis, Head, softmax
from attnfun.network.relu import ReluBlock, evaluate_block
from attnfun.plots import style
from attnfun.plots.anatomy import Step
from attnfun.plots.panels import SAMPLES, elsewhere
from attnfun.plots.sample import Array, View, axis_of, logits, thinned

MOST_LINES = 33
REACH = 7.0
"""Logits this far below the maximum still carry a thousandth of the weight: lines down to there are worth seeing."""


@dataclass(frozen=True)
class Line:
    """Points of the horizontal axis, what is written on it, and the stream at each point."""

    x: Array
    stream: Array
    label: str
    scale: str = "linear"
    flipped: bool = False

    def fit(self, ax: Any) -> None:
        ax.set_xscale(self.scale)
        ax.set_xlim((self.x.max(), self.x.min()) if self.flipped else (self.x.min(), self.x.max()))
        ax.set_xlabel(self.label)


def line_of(axis: Axis, low: float, high: float, name: str, stream: Callable[[Array], Array], count: int) -> Line:
    """Even points, or graded ones where a fifth of the keys have their strongest point within 1 % of one end."""
    if axis.keys <= 400:
        tail = np.geomspace(1e-13, 0.5, 500)
        for flipped in (False, True):
            near = np.concatenate([[0.0], tail, 1 - tail[-2::-1]])
            points = high - near * (high - low) if flipped else low + near * (high - low)
            weights = softmax(logits(axis, stream(np.clip(points, low, high))))
            peaks = near[weights.argmax(axis=0)]
            inner = peaks[(peaks > 0) & (peaks < 0.01) & (weights.max(axis=0) > 1e-2)]
            if axis.keys >= 6 and len(inner) > 0.2 * axis.keys and inner.min() < 1e-3:
                distance = np.geomspace(max(1e-13, inner.min() / 30), 1.0, count) * (high - low)
                points = np.clip(high - distance if flipped else low + distance, low, high)
                end = high if flipped else low
                word = f"{end:.4g} − {name}" if flipped else name if end == 0 else f"{name} − {end:.4g}"
                return Line(distance, stream(points), word.replace("− -", "+ "), "log", flipped)
    points = np.linspace(low, high, count)
    return Line(points, stream(points), name)


def _along(view: View, axis: Axis, count: int) -> Line:
    """The line of the view: its variable moves, the others rest."""
    low, high = (float(end[view.line]) for end in view.network.box)
    return line_of(axis, low, high, view.network.inputs[view.line], lambda at: view.stream(view.at(at)), count)


def tangent_lines(ax: Any, view: View, head: Head, output: int, name: str = "") -> None:
    """One variable: the affine logits k_j x + b_j and their maximum, whose pieces are the partition."""
    line = _along(view, head.axes[0], SAMPLES if head.keys <= 20_000 else 101)
    _lines(ax, line, head, output, f"Keys are lines{': ' if name else ''}{name}")


def query_of_argument(view: View, step: Step, axis: Axis) -> tuple[float, float, float]:
    """u_0, q_0 and s with query = q_0 + s (u − u_0), u the argument of the step: affine, so read off sampled points."""
    box, labels = view.target.box, view.network.labels
    assert labels is not None
    X = box.probe(2000, np.random.default_rng(0))
    graph = labels.program.reachable((step.label.argument,))
    with np.errstate(all="ignore"):
        u = np.asarray(run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})[0], dtype=np.float64)
    q = (replace(view, depth=step.layer - 1).stream(X) @ axis.query.T + axis.offset)[:, 0]
    a, b = int(np.nanargmin(u)), int(np.nanargmax(u))
    return float(u[a]), float(q[a]), float((q[b] - q[a]) / ((u[b] - u[a]) or 1.0)) or 1.0


def argument_lines(ax: Any, view: View, step: Step) -> None:
    """The largest head of a composed network: its keys as lines over the range of its argument.

    Of a tensor head the keys of its first axis, values averaged over the others.
    """
    head = max((one for one in step.heads if isinstance(one, Head)), key=lambda one: one.keys)
    axis = head.axes[0]
    u, q, slope = query_of_argument(view, step, axis)
    own = Axis(np.eye(1), np.zeros(1), axis.slopes, axis.biases)
    line = line_of(own, step.low, step.high, "u", lambda points: (q + slope * (points - u))[:, None], SAMPLES)
    values = head.values.mean(axis=tuple(range(1, len(head.axes)))) if len(head.axes) > 1 else head.values
    shown = Head(head.name, (own,), values, head.writes)
    which = "the largest head" if len(head.axes) == 1 else f"axis 1 of {len(head.axes)} of the largest head"
    _lines(ax, line, shown, head.writes.index(step.name), f"Keys are lines: {step.tag}, {which}")
    article, of = "the" if len(head.axes) == 1 else "an", style.shortened(step.function, 40)
    ax.set_xlabel(f"{line.label}, {'' if line.label == 'u' else 'u '}{article} argument of {of}", parse_math=False)


def _lines(ax: Any, line: Line, head: Head, output: int, heading: str) -> None:
    axis, count = head.axes[0], len(line.x)
    winner = strongest(axis, line.stream)
    top, back = np.unique(winner, return_inverse=True)
    envelope = logits(axis, line.stream, top)[np.arange(count), back]
    keys = thinned(axis.keys, MOST_LINES)
    values = head.values.reshape(-1, head.outputs)[:, output]
    norm = style.value_scale(values)
    lines = logits(axis, line.stream, keys)
    for j, colour in enumerate(style.colours(values[keys], norm)):
        ax.plot(line.x, lines[:, j], color=colour, lw=1.1, alpha=0.9)
    ax.plot(line.x, envelope, color=style.INK, lw=2.0, label="their maximum")
    low, high, walled = _window(envelope, winner)
    if axis.keys <= 400:
        smooth = np.logaddexp.reduce(logits(axis, line.stream), axis=1)
        ax.plot(line.x, smooth, color=style.INK, lw=1.0, ls=(0, (1, 1.5)), label="log of the sum of their exponentials")
        high = high if walled else float(smooth.max())
    span = high - low
    ax.set_ylim(low - max(0.45 * span, REACH), high + max(0.06 * span, 0.5))
    line.fit(ax)
    shown = "" if len(keys) == axis.keys else f" ({len(keys)} shown)"
    made = f"; {len(top):,} of them make{'s' if len(top) == 1 else ''} the maximum" if 4 * len(top) < count else ""
    bent = "; on a log axis lines bend" if line.scale == "log" else ""
    wall = f"; one rises to {envelope.max():.2g}" if walled else ""
    logit = "logit" + style.scaled(ax.yaxis, max(abs(low), abs(high)))
    style.title(ax, heading, f"k·x + b of {axis.keys:,} keys{shown}{made}{wall}{bent}", y=logit)
    style.legend(ax, frameon=True, edgecolor="none", framealpha=0.8)
    style.value_bar(ax, norm)


def _window(envelope: Array, winner: Any) -> tuple[float, float, bool]:
    """The heights worth showing: all of the maximum, but for one line that shuts the head off and dwarfs the others."""
    low, high = float(envelope.min()), float(envelope.max())
    for key in np.unique(winner[[0, -1]]):
        rest = envelope[winner != key]
        if len(rest) and high - low > 60 and np.ptp(rest) < 0.1 * (high - low):
            return float(rest.min()), float(rest.max()) + 3 * REACH, True
    return low, high, False


def attention(ax: Any, view: View, head: Head, output: int, name: str = "") -> None:
    """The softmax weights while the input moves along the line; product heads: the factor that moves."""
    a = axis_of(head, view.line)
    product = len(head.axes) > 1
    if a is None:  # the axis that reacts most to the line
        stream = view.stream(view.along(SAMPLES))
        a = int(np.argmax([float(np.ptp(stream @ axis.query.T, axis=0).max()) for axis in head.axes]))
    axis = head.axes[a]
    if axis.keys * SAMPLES > 40_000_000:
        _attention_near(ax, view, axis)
        return
    line = _along(view, axis, SAMPLES)
    weights = softmax(logits(axis, line.stream))
    where = f", the factor of {view.network.inputs[view.line]}" if product else ""
    if axis.keys <= MOST_LINES:
        values = head.values.reshape(-1, head.outputs)[:, output]
        tint = style.tints(axis.keys) if product else style.colours(values, style.value_scale(values))
        style.weight_curves(ax, line.x, weights, tint, min(1.05, 1.12 * float(weights.max())))
    else:
        style.weight_rows(ax, line.x[::4], weights[::4])
    heading = f"Attention: {name}" if name else "Attention as the input moves"
    style.title(ax, heading, f"softmax weights of {axis.keys:,} keys{where}{elsewhere(view)}")
    line.fit(ax)


def _attention_near(ax: Any, view: View, axis: Axis) -> None:
    """Huge heads: only the keys that carry weight somewhere on a short piece of the line, around its middle."""
    low, high = (end[view.line] for end in view.network.box)
    middle = view.along(3)[1]
    centre = int(strongest(axis, view.stream(middle[None]))[0])
    half = (high - low) * 4 / axis.keys
    X = view.at(np.clip(np.linspace(middle[view.line] - half, middle[view.line] + half, 400), low, high))
    keys = np.arange(max(0, centre - 200), min(axis.keys, centre + 200))
    weights = softmax(logits(axis, view.stream(X), keys))
    live = np.flatnonzero(weights.max(axis=0) > 1e-3)
    style.weight_curves(ax, X[:, view.line], weights[:, live], style.tints(len(live)))
    note = f"{len(live)} of {axis.keys:,} keys: a window in the middle of the line"
    style.title(ax, "Attention as the input moves", note, view.names[0])


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
    ax.plot(x, height(x), color=style.INK, lw=1.4)
    shown = breaks[thinned(len(breaks), MOST_DOTS)] if len(breaks) else breaks
    ax.plot(shown, height(shown), ".", color=style.NETWORKS[0], ms=5 if len(shown) < 60 else 2.5)
    few = f" ({len(shown)} shown)" if len(shown) < len(breaks) else ""
    note, u = f"{len(breaks):,} breakpoints{few} of {block.keys:,} units", style.shortened(step.function, 40)
    style.title(ax, f"Where units break: {step.tag}, the largest block", note, f"u, the argument of {u}")
