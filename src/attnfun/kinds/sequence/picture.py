"""picture: the attention maps of the gather heads, target against network, the error under its bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.kinds.sequence.network import Gather, SequenceNetwork
from attnfun.plots import style

_MOST = 6  # attention maps
_SAMPLES = 401


@style.picture
def picture(net: Any) -> Any:
    """Draw a model of a sequence map into `path` (.png, .pdf or .svg), if one is given, and return the Figure.

    Curves run along a line of sequences: from one random sequence to another. All of them are samples; only the bound
    is proved.
    """
    maps = _attention(net)[:_MOST]
    figure = style.sheet(max(11.0, 3.0 * len(maps)), 7.6 if maps else 4.6)
    rows = figure.subfigures(2, 1, height_ratios=(1, 1.15)) if maps else [None, figure.subfigures(1, 1)]
    if maps:
        axes = np.atleast_1d(rows[0].subplots(1, len(maps)))
        for ax, (name, weights) in zip(axes, maps, strict=True):
            _map(ax, name, weights)
    left, right = rows[1].subplots(1, 2)
    _curves(net, left, right)
    c, cost = net.certificate, net.cost
    text = style.shortened(net.target.text, 90)
    proof = f"{c.heading.lower()}: error ≤ {c.error[1]:.4g}" if np.isfinite(c.error[1]) else c.heading.lower()
    facts = f"{net.target.tokens} tokens · {proof} · {cost.layers} layers, {cost.heads} heads, {cost.keys:,} keys"
    figure.suptitle(f"{text}\n{facts} · {c.construction}", x=0.012, ha="left", fontsize=11, parse_math=False)
    figure.draw_without_rendering()
    return figure


def _line(net: Any) -> Any:
    """(samples, n, d) sequences from one random sequence to another, and the parameter along them."""
    n, box = net.target.tokens, net.target.box
    ends = box.sample(2 * n, np.random.default_rng(3)).reshape(2, n, box.dim)
    t = np.linspace(0.0, 1.0, _SAMPLES)
    X = (1 - t)[:, None, None] * ends[0] + t[:, None, None] * ends[1]
    return t, np.clip(X, box.low_array, box.high_array)


def _attention(net: Any) -> list[tuple[str, Any]]:
    """The attention matrix of every gather head for one sequence; none of what was trained."""
    if not isinstance(net.weights, SequenceNetwork):
        return []
    _, X = _line(net)
    stream = net.weights.stream(X[:1])
    found = []
    for stage in net.weights.stages:
        if isinstance(stage, Gather):
            found += [(head.name, head.weights(stream[:, :, : len(head.key)])[0]) for head in stage.heads]
    return found


def _map(ax: Any, name: str, weights: Any) -> None:
    ax.imshow(weights, vmin=0.0, vmax=1.0, cmap="Blues")
    ax.set_title(name, fontsize=9, parse_math=False)
    ax.set_xlabel("looks at token")
    ax.set_ylabel("token")
    step = max(1, len(weights) // 8)
    ticks = np.arange(0, len(weights), step)
    ax.set_xticks(ticks, [str(k + 1) for k in ticks])
    ax.set_yticks(ticks, [str(k + 1) for k in ticks])


def _curves(net: Any, left: Any, right: Any) -> None:
    t, X = _line(net)
    Y, F = net(X), net.target.values(X)
    for i in range(min(net.target.tokens, 6)):
        colour = style.NETWORKS[i % len(style.NETWORKS)]
        left.plot(t, F[:, i, 0], color=style.FAINT, linewidth=3.5)
        left.plot(t, Y[:, i, 0], color=colour, linewidth=1.1, label=f"token {i + 1}")
        right.plot(t, np.abs(Y - F)[:, i].max(axis=1), color=colour, linewidth=1.0)
    left.set_title("First output of each token (target in grey)", fontsize=9)
    left.set_xlabel("along a line of sequences")
    left.legend(fontsize=7, frameon=False)
    high = float(net.certificate.error[1])
    if np.isfinite(high):
        right.axhline(high, color=style.BOUND, linestyle="--", linewidth=1.2, label=f"bound, {net.certificate.word}")
        right.legend(fontsize=7, frameon=False)
    right.set_title("|error| under its bound", fontsize=9)
    right.set_xlabel("along a line of sequences")
    right.set_ylim(bottom=0.0)
