"""One function a panel; each draws on the axes it is given and knows nothing of the layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.expressions import ArrayAlgebra, run
from attnfun.network.head import Axis, Head
from attnfun.plots.anatomy import Step
from attnfun.plots.sample import Array, View, axis_of, logits, softmax, strongest, thinned

INK, FAINT, BOUND = "#1f2933", "#9aa5b1", "#102a43"
NETWORKS = ("#d64545", "#2f7fbf", "#3f9142", "#b8651b", "#7a4fbf", "#0e8a8a")
VALUES = "RdBu_r"
ERROR = "magma"
MOST_LINES = 33
SAMPLES = 1601


def value_scale(values: Array) -> Any:
    """One colour scale for key values, symmetric about 0 and compressed when a few of them dwarf the rest."""
    from matplotlib.colors import AsinhNorm, Normalize

    size = np.abs(values)
    top = float(size.max()) or 1.0
    typical = float(np.quantile(size, 0.5))
    if typical > 0 and top > 8 * typical:
        return AsinhNorm(linear_width=typical, vmin=-top, vmax=top)
    if values.min() >= 0 or values.max() <= 0:  # one sign: spend all colours on it
        return Normalize(float(values.min()), float(values.max()) or 1.0)
    return Normalize(-top, top)


def colours(values: Array, norm: Any) -> Any:
    from matplotlib import colormaps

    return colormaps[VALUES](np.clip(norm(values), 0.06, 0.94))


def scaled(axis: Any, top: float) -> str:
    """Tick labels of an axis of small numbers in units of a power of ten; returns the unit for the axis' label.

    matplotlib would write the power above the axis, where the panel's title is.
    """
    from matplotlib.ticker import FuncFormatter

    power = int(np.floor(np.log10(top))) if top > 0 else 0
    if -2 <= power <= 3:
        return ""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10.0**power:.3g}".replace("-", "−")))
    return f"  (in 1e{power})"


def colour_bar(ax: Any, mappable: Any, label: str) -> Any:
    bar = ax.figure.colorbar(mappable, ax=ax, pad=0.02, fraction=0.06)
    bar.set_label(label, fontsize=8)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7, length=2)
    return bar


def value_bar(ax: Any, norm: Any) -> None:
    from matplotlib.cm import ScalarMappable

    colour_bar(ax, ScalarMappable(norm=norm, cmap=VALUES), "value of the key")


def title(ax: Any, head: str, note: str = "") -> None:
    ax.set_title(head, loc="left", fontsize=10, fontweight="bold", color=INK, pad=18 if note else 6, parse_math=False)
    if note:
        text = ax.text(
            0, 1.02, note, transform=ax.transAxes, fontsize=8, color="#52606d", va="bottom", parse_math=False
        )
        text.set_in_layout(False)  # a long note may run past its panel; it must not squeeze it


def no_attention(ax: Any, head: str) -> None:
    """An affine network: the residual stream carries it."""
    title(ax, head, "none: the target is affine and rides in the residual stream")
    ax.axis("off")


def tangent_lines(ax: Any, view: View, head: Head, output: int, name: str = "") -> None:
    """One variable: the affine logits k_j x + b_j and their maximum, whose pieces are the partition."""
    count = SAMPLES if head.keys <= 20_000 else 101
    x, stream = view.axis_points(view.line, count), view.stream(view.along(count))
    _lines(ax, x, stream, head, output, f"Keys are lines{': ' if name else ''}{name}")
    ax.set_xlabel(view.network.inputs[view.line])


def argument_lines(ax: Any, view: View, step: Step) -> None:
    """The largest head of a composed network: its keys as lines over the range of its argument.

    The query is affine in the argument; its two coefficients are read off sampled points.
    """
    head = max(step.heads, key=lambda one: one.keys)
    X = view.target.box.probe(2000, np.random.default_rng(0))
    labels, box = view.network.labels, view.target.box
    assert labels is not None
    graph = labels.program.reachable((step.label.argument,))
    with np.errstate(all="ignore"):
        u = np.asarray(run(graph, ArrayAlgebra(), {n: X[:, k] for k, n in enumerate(box.names)})[0], dtype=np.float64)
    axis = head.axes[0]
    q = (replace(view, depth=step.layer - 1).stream(X) @ axis.query.T + axis.offset)[:, 0]
    a, b = (int(np.nanargmin(u)), int(np.nanargmax(u)))
    points = np.linspace(step.low, step.high, SAMPLES)
    query = q[a] + (q[b] - q[a]) * (points - u[a]) / ((u[b] - u[a]) or 1.0)
    line = Axis(np.eye(1), np.zeros(1), axis.slopes, axis.biases)
    shown = Head(head.name, (line,), head.values, head.writes)
    _lines(
        ax, points, query[:, None], shown, head.writes.index(step.name), f"Keys are lines: {step.tag}, the largest head"
    )
    ax.set_xlabel(f"argument of {step.tag} = {step.function if len(step.function) <= 44 else step.function[:43] + '…'}")


def _lines(ax: Any, x: Array, stream: Array, head: Head, output: int, heading: str) -> None:
    axis, count = head.axes[0], len(x)
    winner = strongest(axis, stream)
    top, back = np.unique(winner, return_inverse=True)
    envelope = logits(axis, stream, top)[np.arange(count), back]
    keys = thinned(axis.keys, MOST_LINES)
    values = head.values.reshape(-1, head.outputs)[:, output]
    norm = value_scale(values)
    lines = logits(axis, stream, keys)
    span = float(np.ptp(envelope)) or 1.0
    for j, colour in enumerate(colours(values[keys], norm)):
        ax.plot(x, lines[:, j], color=colour, lw=1.1, alpha=0.9)
    ax.plot(x, envelope, color=INK, lw=2.0, label="their maximum")
    ax.set_ylim(envelope.min() - 0.45 * span, envelope.max() + 0.06 * span)
    ax.set_xlim(x[0], x[-1])
    shown = "" if len(keys) == axis.keys else f" ({len(keys)} shown)"
    made = f"; {len(top):,} of them make the maximum" if 4 * len(top) < count else ""
    title(ax, heading, f"k·x + b of {axis.keys:,} keys{shown}{made}")
    ax.set_ylabel("logit" + scaled(ax.yaxis, float(np.abs(envelope).max())))
    ax.legend(loc="best", frameon=False, fontsize=8)
    value_bar(ax, norm)


def key_plane(ax: Any, view: View, head: Head, output: int) -> None:
    """Two or more variables: the cells in the box if every key of the slice owns one, else the lattice of keys."""
    assert view.across is not None
    axes = axis_of(head, view.line), axis_of(head, view.across)
    if axes[0] is not None and axes[1] is not None:
        owned = [
            len(np.unique(strongest(head.axes[a], view.stream(_only(view, v))))) / head.axes[a].keys
            for a, v in ((axes[0], view.line), (axes[1], view.across))
        ]
        if min(owned) < 0.9 and max(head.axes[axes[0]].keys, head.axes[axes[1]].keys) <= 400:
            return _lattice(ax, view, head, output, axes[0], axes[1])
    return _cells(ax, view, head, output)


def _only(view: View, variable: int) -> Array:
    """The line through the middle of the box along one variable."""
    low, high = view.network.box
    X = np.repeat(((low + high) / 2)[None], 4 * SAMPLES, axis=0)
    X[:, variable] = np.linspace(low[variable], high[variable], len(X))
    return X


def _lattice(ax: Any, view: View, head: Head, output: int, a: int, b: int) -> None:
    middle = view.stream(view.along(3))[1:2]
    index: list[Any] = [int(strongest(axis, middle)[0]) for axis in head.axes]
    index[a] = index[b] = slice(None)
    values = head.values[(*index, output)]
    values = values.T if a < b else values  # rows: axis b, columns: axis a
    norm = value_scale(head.values[..., output])
    mesh = ax.pcolormesh(
        values, cmap=VALUES, norm=norm, edgecolors="white", linewidth=0.6 if values.size < 900 else 0.0
    )
    reach = []
    for k, variable in ((a, view.line), (b, view.across)):
        ends = view.stream(_only(view, int(variable or 0)))[[0, -1]]
        mean = softmax(logits(head.axes[k], ends)) @ (np.arange(head.axes[k].keys) + 0.5)
        reach.append((float(mean.min()), float(mean.max())))
    (left, right), (bottom, top) = reach
    ax.plot([left, right, right, left, left], [bottom, bottom, top, top, bottom], color=INK, lw=1.3, ls="--")
    lattice = " × ".join(str(n) for n in head.grid)
    title(ax, "The key lattice", f"{lattice} keys; dashed: where the mean key goes as the input fills the box")
    ax.set_xlabel(f"key along {view.network.inputs[view.line]}")
    ax.set_ylabel(f"key along {view.network.inputs[view.across or 0]}")
    colour_bar(ax, mesh, "value of the key")


def _cells(ax: Any, view: View, head: Head, output: int) -> None:
    count = 240
    X = view.stream(view.slice(count))
    index = np.stack([strongest(axis, X) for axis in head.axes], axis=1)
    values = head.values[(*index.T, output)].reshape(count, count)
    flat = np.ravel_multi_index(tuple(index.T), head.grid).reshape(count, count)
    norm = value_scale(values)
    x, y = view.axis_points(view.line, count), view.axis_points(view.across or 0, count)
    mesh = ax.pcolormesh(x, y, values, cmap=VALUES, norm=norm, shading="nearest", rasterized=True)
    found = len(np.unique(flat))
    if found < 900:  # walls between cells
        wall = np.zeros((count, count), dtype=bool)
        wall[:, 1:] |= flat[:, 1:] != flat[:, :-1]
        wall[1:, :] |= flat[1:, :] != flat[:-1, :]
        shade = np.zeros((count, count, 4))
        shade[..., 3] = 0.28 * wall
        ax.imshow(
            shade, extent=(x[0], x[-1], y[0], y[-1]), origin="lower", aspect="auto", interpolation="nearest", zorder=2
        )
    title(ax, "The partition", f"{head.keys:,} keys; the key with the most weight, coloured by its value")
    ax.set_xlabel(view.network.inputs[view.line])
    ax.set_ylabel(view.network.inputs[view.across or 0])
    colour_bar(ax, mesh, "value of the key")


def attention(ax: Any, view: View, head: Head, output: int, name: str = "") -> None:
    """The softmax weights while the input moves along the line; product heads: the factor that moves."""
    x, stream = view.axis_points(view.line, SAMPLES), view.stream(view.along(SAMPLES))
    a = axis_of(head, view.line)
    product = len(head.axes) > 1
    if a is None:  # the axis that reacts most to the line
        moves = [float(np.ptp(stream @ axis.query.T, axis=0).max()) for axis in head.axes]
        a = int(np.argmax(moves))
    axis = head.axes[a]
    if axis.keys * SAMPLES > 40_000_000:
        _attention_near(ax, view, axis)
        return
    weights = softmax(logits(axis, stream))
    where = f", the factor of {view.network.inputs[view.line]}" if product else ""
    if axis.keys <= MOST_LINES:
        values = head.values.reshape(-1, head.outputs)[:, output] if not product else None
        tint = _tints(axis.keys) if values is None else colours(values, value_scale(values))
        for j in range(axis.keys):
            ax.fill_between(x, weights[:, j], color=tint[j], alpha=0.18, lw=0)
            ax.plot(x, weights[:, j], color=tint[j], lw=1.3)
        ax.set_ylim(0, min(1.05, 1.12 * float(weights.max())))
        ax.set_ylabel("weight")
    else:
        edges = np.linspace(0, axis.keys, min(axis.keys, 160) + 1).round().astype(int)
        rows = np.add.reduceat(weights, edges[:-1], axis=1).T[:, ::4]
        mesh = ax.pcolormesh(_edges(x[::4]), edges, rows, cmap="Blues", rasterized=True)
        ax.set_ylabel("key")
        colour_bar(ax, mesh, "weight" if len(rows) == axis.keys else "weight of the keys in a row")
    heading = f"Attention: {name}" if name else "Attention as the input moves"
    title(ax, heading, f"softmax weights of {axis.keys:,} keys{where}{_elsewhere(view)}")
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(view.network.inputs[view.line])


def _edges(x: Array) -> Array:
    """Cell edges around evenly spaced points, cut off at the first and the last."""
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([x[:1], middle, x[-1:]])


def _tints(count: int) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.05, 0.9, count))


def _attention_near(ax: Any, view: View, axis: Axis) -> None:
    """Huge heads: only the keys that carry weight somewhere on a short piece of the line, around its middle."""
    low, high = view.network.box[0][view.line], view.network.box[1][view.line]
    middle = view.along(3)[1]
    centre = int(strongest(axis, view.stream(middle[None]))[0])
    half = (high - low) * 4 / axis.keys
    X = np.repeat(middle[None], 400, axis=0)
    X[:, view.line] = np.clip(np.linspace(middle[view.line] - half, middle[view.line] + half, 400), low, high)
    keys = np.arange(max(0, centre - 200), min(axis.keys, centre + 200))
    weights = softmax(logits(axis, view.stream(X), keys))
    live = np.flatnonzero(weights.max(axis=0) > 1e-3)
    for j, colour in zip(live, _tints(len(live))):
        ax.plot(X[:, view.line], weights[:, j], color=colour, lw=1.3)
        ax.fill_between(X[:, view.line], weights[:, j], color=colour, alpha=0.18, lw=0)
    title(ax, "Attention as the input moves", f"{len(live)} of {axis.keys:,} keys: a window in the middle of the line")
    ax.set_ylim(0, 1.05)
    ax.set_xlabel(view.network.inputs[view.line])
    ax.set_ylabel("weight")


def _elsewhere(view: View) -> str:
    """Where the variables that do not move are held."""
    low, high = view.network.box
    rest = [k for k in range(len(view.network.inputs)) if k != view.line]
    if not rest:
        return ""
    if len(rest) > 2:
        return f"; {len(rest)} other variables at mid-interval"
    return "; " + ", ".join(f"{view.network.inputs[k]} = {(low[k] + high[k]) / 2:g}" for k in rest)


def comparison(ax: Any, view: View) -> None:
    """Target and network along the line, every output."""
    x, X = view.axis_points(view.line, SAMPLES), view.along(SAMPLES)
    truth, net = view.truth(X), view.output(X)
    many = net.shape[1] > 1
    for k in range(net.shape[1]):
        label = f" {view.network.outputs[k]}" if many else ""
        ax.plot(
            x, truth[:, k], color=FAINT, lw=4.5, alpha=0.75, solid_capstyle="round", label="target" if k == 0 else None
        )
        ax.plot(x, net[:, k], color=NETWORKS[k % len(NETWORKS)], lw=1.4, label=f"network{label}")
    title(ax, "Target and network", _elsewhere(view).removeprefix("; ") or "over the whole domain")
    ax.set_xlim(x[0], x[-1])
    ax.set_xlabel(view.network.inputs[view.line])
    ax.margins(y=0.1)
    ax.legend(loc="best", frameon=False, fontsize=8)


def surface(ax: Any, view: View, output: int) -> None:
    """Target on the slice as colour, the network's level lines on top."""
    count = 160
    X = view.slice(count)
    x, y = view.axis_points(view.line, count), view.axis_points(view.across or 0, count)
    truth, net = (v[:, output].reshape(count, count) for v in (view.truth(X), view.output(X)))
    mesh = ax.pcolormesh(x, y, truth, cmap="viridis", shading="nearest", rasterized=True)
    if np.ptp(net) > 0:
        ax.contour(x, y, net, levels=11, colors="white", linewidths=0.8)
    title(ax, "Target and network", f"colour: the target; lines: levels of the network{_rest_of_slice(view)}")
    ax.set_xlabel(view.network.inputs[view.line])
    ax.set_ylabel(view.network.inputs[view.across or 0])
    colour_bar(ax, mesh, view.network.outputs[output])


def _rest_of_slice(view: View) -> str:
    rest = len(view.network.inputs) - 2
    return f"; {rest} other variable{'s' if rest > 1 else ''} at mid-interval" if rest > 0 else ""


def error_line(ax: Any, view: View, certificate: Any) -> None:
    """network − target along the line between the dashed lines of its bound."""
    x, X = view.axis_points(view.line, SAMPLES), view.along(SAMPLES)
    if view.keys > SAMPLES // 8:  # cells finer than the samples: irregular points, so that no pattern is missed
        X = view.along(5 * SAMPLES)
        shift = np.random.default_rng(0).uniform(-0.5, 0.5, len(X)) * (x[-1] - x[0]) / len(X)
        X[1:-1, view.line] += shift[1:-1]
        x = X[:, view.line]
    gap = view.output(X) - view.truth(X)
    many = gap.shape[1] > 1
    for k in range(gap.shape[1]):
        ax.plot(
            x, gap[:, k], color=NETWORKS[k % len(NETWORKS)], lw=1.1, label=view.network.outputs[k] if many else None
        )
    high = float(certificate.error[1])
    seen = float(np.nanmax(np.abs(gap))) if np.isfinite(gap).any() else 0.0
    mean = np.isfinite(certificate.norm)
    if np.isfinite(high):
        what = "measured" if str(certificate.status) == "sampled" else "proved"
        word = f"{f'L^{certificate.norm:g} mean, ' if mean else ''}{what} bound ±{high:.3g}"
        ax.axhline(high, color=BOUND, ls="--", lw=1.2, label=word)
        ax.axhline(-high, color=BOUND, ls="--", lw=1.2)
        if not mean:
            ax.axhspan(-high, high, color="#d9e2ec", alpha=0.35, lw=0, zorder=0)
    eps = certificate.eps
    if eps is not None and np.isfinite(high) and eps < 6 * high:
        ax.axhline(eps, color=FAINT, ls=":", lw=1.2, label=f"ε = {eps:.3g}")
        ax.axhline(-eps, color=FAINT, ls=":", lw=1.2)
    shown = [
        v for v in (seen, high, eps if eps is not None and eps < 6 * high else None) if v is not None and np.isfinite(v)
    ]
    limit = 1.45 * max([v for v in shown if v > 0], default=1.0)
    ax.set_ylim(-limit, limit)
    ax.set_xlim(x[0], x[-1])
    note = (
        "a bound on the mean: the error may pass it at points"
        if mean
        else _elsewhere(view).removeprefix("; ") or "over the whole domain"
    )
    title(ax, "Error under its bound", note)
    ax.set_xlabel(view.network.inputs[view.line])
    ax.set_ylabel("network − target" + scaled(ax.yaxis, limit))
    ax.legend(loc="upper right", ncols=3, frameon=False, fontsize=8)


def error_map(ax: Any, view: View, certificate: Any, output: int) -> None:
    """|network − target| on the slice; the colour scale ends at the bound."""
    count, pool = 160, 3 if view.keys > 400 else 1  # many cells: show the worst of each 3 × 3 samples
    X = view.slice(count * pool)
    gap = np.abs(view.output(X) - view.truth(X))[:, output].reshape(count, pool, count, pool).max(axis=(1, 3))
    seen = float(np.nanmax(gap)) if np.isfinite(gap).any() else 0.0
    high = float(certificate.error[1])
    mean = np.isfinite(certificate.norm)
    top = high if np.isfinite(high) and not mean and high < 8 * seen else seen
    x, y = view.axis_points(view.line, count), view.axis_points(view.across or 0, count)
    mesh = ax.pcolormesh(x, y, gap, cmap=ERROR, vmin=0, vmax=top or 1.0, shading="nearest", rasterized=True)
    measured = str(certificate.status) == "sampled"
    claim = f"L^{certificate.norm:g} mean" if mean else "everywhere"
    head = f"|error| ≤ {high:.3g} {claim}" if np.isfinite(high) else "|error|"
    title(ax, head, f"{'measured' if measured else 'proved'}; largest on this slice {seen:.3g}{_rest_of_slice(view)}")
    ax.set_xlabel(view.network.inputs[view.line])
    ax.set_ylabel(view.network.inputs[view.across or 0])
    bar = colour_bar(ax, mesh, "")
    bar.set_label(
        "|error|" + scaled(bar.ax.yaxis, top) + (", scale ends at the bound" if top == high else ""), fontsize=8
    )
