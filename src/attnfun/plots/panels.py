"""One function a panel; each draws on the axes it is given and knows nothing of the layout."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.diagnosis.attention import strongest
from attnfun.language.numbers import at_most
from attnfun.network.head import Head, softmax
from attnfun.plots.sample import Array, View, axis_of, logits
from attnfun.plots.style import BOUND, FAINT, INK, NETWORKS, colour_bar, legend, scaled, title, value_scale, walls

AREAS = "RdBu_r"
ERROR = "magma"
SAMPLES = 1601


def no_attention(ax: Any, head: str, mlp: bool = False) -> None:
    """An affine network, which the residual stream carries, or an MLP without labels."""
    why = "the network is an MLP" if mlp else "the target is affine and rides in the residual stream"
    title(ax, head, f"none: {why}")
    ax.axis("off")


def key_plane(ax: Any, view: View, head: Head, output: int) -> None:
    """Two or more variables: the cells in the box if every key of the slice owns one, else the lattice of keys."""
    assert view.across is not None
    axes = axis_of(head, view.line), axis_of(head, view.across)
    if axes[0] is not None and axes[1] is not None:
        sides = ((head.axes[axes[0]], view.line), (head.axes[axes[1]], view.across))
        owned = [len(np.unique(strongest(axis, view.stream(_only(view, v))))) / axis.keys for axis, v in sides]
        if min(owned) < 0.9 and max(head.axes[axes[0]].keys, head.axes[axes[1]].keys) <= 400:
            return _lattice(ax, view, head, output, axes[0], axes[1])
    return _cells(ax, view, head, output)


def _only(view: View, variable: int) -> Array:
    """The line through the middle of the box along one variable."""
    return replace(view, line=variable).along(4 * SAMPLES)


def _lattice(ax: Any, view: View, head: Head, output: int, a: int, b: int) -> None:
    middle = view.stream(view.along(3))[1:2]
    index: list[Any] = [int(strongest(axis, middle)[0]) for axis in head.axes]
    index[a] = index[b] = slice(None)
    values = head.values[(*index, output)]
    values = values.T if a < b else values  # rows: axis b, columns: axis a
    norm = value_scale(head.values[..., output])
    wide = 0.6 if values.size < 900 else 0.0
    mesh = ax.pcolormesh(values, cmap=AREAS, norm=norm, edgecolors="white", linewidth=wide)
    reach = []
    for k, variable in ((a, view.line), (b, view.across)):
        ends = view.stream(_only(view, int(variable or 0)))[[0, -1]]
        mean = softmax(logits(head.axes[k], ends)) @ (np.arange(head.axes[k].keys) + 0.5)
        reach.append((float(mean.min()), float(mean.max())))
    (left, right), (bottom, top) = reach
    ax.plot([left, right, right, left, left], [bottom, bottom, top, top, bottom], color=INK, lw=1.3, ls="--")
    lattice = " × ".join(str(n) for n in head.grid)
    x, y = (f"key along {name}" for name in view.names)
    title(ax, "The key lattice", f"{lattice} keys; dashed: where the mean key goes as the input fills the box", x, y)
    colour_bar(ax, mesh, "value of the key")


def _cells(ax: Any, view: View, head: Head, output: int) -> None:
    count = 240
    X = view.stream(view.slice(count))
    index = np.stack([strongest(axis, X) for axis in head.axes], axis=1)
    values = head.values[(*index.T, output)].reshape(count, count)
    flat = np.ravel_multi_index(tuple(index.T), head.grid).reshape(count, count)
    norm = value_scale(values)
    x, y, mesh = _coloured(ax, view, values, cmap=AREAS, norm=norm)
    found = len(np.unique(flat))
    if found < 900:  # walls between cells
        shade, where = np.zeros((count, count, 4)), (x[0], x[-1], y[0], y[-1])
        shade[..., 3] = 0.28 * walls(flat)
        ax.imshow(shade, extent=where, origin="lower", aspect="auto", interpolation="nearest", zorder=2)
    title(ax, "The partition", f"{head.keys:,} keys; the key with the most weight, coloured by its value", *view.names)
    colour_bar(ax, mesh, "value of the key")


def _coloured(ax: Any, view: View, values: Array, **look: Any) -> tuple[Array, Array, Any]:
    """(count, count) values on the slice as colours: the places along both variables, and the colours."""
    x, y = (view.axis_points(variable, len(values)) for variable in (view.line, view.across or 0))
    return x, y, ax.pcolormesh(x, y, values, shading="nearest", rasterized=True, **look)


def elsewhere(view: View) -> str:
    """Where the variables that do not move are held."""
    rest = [k for k in range(len(view.network.inputs)) if k != view.line]
    return "; " + at(view, rest) if rest else ""


def at(view: View, rest: list[int]) -> str:
    if len(rest) > 2:
        return f"{len(rest)} other variables where the error is largest"
    return ", ".join(f"{view.network.inputs[k]} = {view.centre[k]:.3g}" for k in rest)


def _along(view: View) -> str:
    return elsewhere(view).removeprefix("; ") or "over the whole domain"


def comparison(ax: Any, view: View) -> None:
    """Target and network along the line, every output."""
    x, X = view.axis_points(view.line, SAMPLES), view.along(SAMPLES)
    truth, net = view.truth(X), view.output(X)
    many = net.shape[1] > 1
    for k in range(net.shape[1]):
        label, target = f" {view.network.outputs[k]}" if many else "", "target" if k == 0 else None
        ax.plot(x, truth[:, k], color=FAINT, lw=4.5, alpha=0.75, solid_capstyle="round", label=target)
        ax.plot(x, net[:, k], color=NETWORKS[k % len(NETWORKS)], lw=1.4, label=f"network{label}")
    title(ax, "Target and network", _along(view), view.names[0])
    ax.set_xlim(x[0], x[-1])
    ax.margins(y=0.1)
    legend(ax)


def surface(ax: Any, view: View, output: int) -> None:
    """Target on the slice as colour, the network's level lines on top."""
    count = 160
    X = view.slice(count)
    truth, net = (v[:, output].reshape(count, count) for v in (view.truth(X), view.output(X)))
    x, y, mesh = _coloured(ax, view, truth, cmap="viridis")
    if np.ptp(net) > 0:
        ax.contour(x, y, net, levels=11, colors="white", linewidths=0.8)
    note = f"colour: the target; lines: levels of the network{_rest_of_slice(view)}"
    title(ax, "Target and network", note, *view.names)
    colour_bar(ax, mesh, view.network.outputs[output])


def _rest_of_slice(view: View) -> str:
    rest = [k for k in range(len(view.network.inputs)) if k not in (view.line, view.across)]
    return "; " + at(view, rest) if rest else ""


def error_line(ax: Any, view: View, certificate: Any) -> None:
    """network − target along the line between the dashed lines of its bound."""
    x, X = view.axis_points(view.line, SAMPLES), view.along(SAMPLES)
    if view.keys > SAMPLES // 8:  # cells finer than the samples: irregular points, so that no pattern is missed
        X = view.along(5 * SAMPLES)
        shift = np.random.default_rng(0).uniform(-0.5, 0.5, len(X)) * (x[-1] - x[0]) / len(X)
        X[1:-1, view.line] += shift[1:-1]
        x = X[:, view.line]
    gap = view.output(X) - view.truth(X)
    for k, name in enumerate(view.network.outputs):
        label = name if gap.shape[1] > 1 else None
        ax.plot(x, gap[:, k], color=NETWORKS[k % len(NETWORKS)], lw=1.1, label=label)
    high, eps, mean = float(certificate.error[1]), certificate.eps, np.isfinite(certificate.norm)
    heights = [float(np.abs(gap[np.isfinite(gap)]).max(initial=0.0))]
    if np.isfinite(high):
        what = "bound" if not certificate.measured else "error"
        word = f"{f'L^{certificate.norm:g} mean, ' if mean else ''}{what} ±{at_most(high, 3)}, {certificate.word}"
        heights.append(_levels(ax, high, word, color=BOUND, ls="--"))
        if not mean:
            ax.axhspan(-high, high, color="#d9e2ec", alpha=0.35, lw=0, zorder=0)
        if eps is not None and eps < 6 * high:
            heights.append(_levels(ax, eps, f"ε = {eps:.3g}", color=FAINT, ls=":"))
    limit = 1.45 * (max(heights) or 1.0)
    ax.set(xlim=(x[0], x[-1]), ylim=(-limit, limit))
    note = "a bound on the mean: the error may pass it at points" if mean else _along(view)
    title(ax, "Error under its bound", note, view.names[0], "network − target" + scaled(ax.yaxis, limit))
    legend(ax, loc="upper right", ncols=3)


def _levels(ax: Any, height: float, label: str, **style: Any) -> float:
    """Lines at ±height."""
    ax.axhline(height, lw=1.2, label=label, **style)
    ax.axhline(-height, lw=1.2, **style)
    return height


def error_map(ax: Any, view: View, certificate: Any, output: int) -> None:
    """|network − target| on the slice; the colour scale ends at the bound."""
    count, pool = 160, 3 if view.keys > 400 else 1  # many cells: show the worst of each 3 × 3 samples
    X = view.slice(count * pool)
    gap = np.abs(view.output(X) - view.truth(X))[:, output].reshape(count, pool, count, pool).max(axis=(1, 3))
    seen = float(np.nanmax(gap)) if np.isfinite(gap).any() else 0.0
    high = float(certificate.error[1])
    mean = np.isfinite(certificate.norm)
    top = high if np.isfinite(high) and not mean and high < 8 * seen else seen
    *_, mesh = _coloured(ax, view, gap, cmap=ERROR, vmin=0, vmax=top or 1.0)
    claim = f"L^{certificate.norm:g} mean" if mean else "everywhere"
    head = f"|error| ≤ {at_most(high, 3)} {claim}" if np.isfinite(high) else "|error|"
    if certificate.measured:
        head = f"|error| about {high:.3g}"
    title(ax, head, f"{certificate.word}; largest on this slice {seen:.3g}{_rest_of_slice(view)}", *view.names)
    bar = colour_bar(ax, mesh, "")
    ends = ", scale ends at the bound" if top == high else ""
    bar.set_label(f"|error|{scaled(bar.ax.yaxis, top)}{ends}", fontsize=8)
