"""The picture of a diagnosis: one head's weights or cells, its effective keys, its error by temperature, its norms."""

import math
import textwrap
from typing import Any

import numpy as np

from attnfun.diagnosis import Figures, Subject
from attnfun.diagnosis.attention import attend, softmax_of
from attnfun.network.head import Array, Head
from attnfun.plots import style

_LINES, _SAMPLES, _COUNT, _WALLED = 33, 801, 200, 900
_MOST = 20_000_000  # weights computed for one panel


@style.picture
def draw_diagnosis(subject: Subject, f: Figures, finding: str, about: str) -> Any:
    """Four panels for the head of these figures; `finding` is written above them."""
    head = subject.network.layers[f.layer].heads[f.place]
    assert isinstance(head, Head)
    tokens = subject.streams[f.layer]
    figure = style.sheet(12.0, 8.6)
    grid = figure.subplots(2, 2)
    flat = len(head.axes) == 1 and head.axes[0].dim == 1
    (_weights if flat else _cells)(grid[0, 0], head, tokens)
    _effective(grid[0, 1], head, tokens, f)
    _sweep(grid[1, 0], f)
    _norms(grid[1, 1], head)
    return style.heading(figure, about, "\n".join(textwrap.wrap(finding, 140, max_lines=4, placeholder=" …")))


def _weights(ax: Any, head: Head, tokens: Array) -> None:
    """One query coordinate: every key's weight as the query moves over what the head meets."""
    axis = head.axes[0]
    queries = (tokens @ axis.query.T + axis.offset)[:, 0]
    q = np.linspace(queries.min(), queries.max(), max(2, min(_SAMPLES, _MOST // axis.keys)))
    weights = softmax_of(axis, q[:, None])
    if axis.keys <= _LINES:
        norm = style.value_scale(head.values[:, 0])
        tint, top = style.colours(head.values[:, 0], norm), min(1.05, 1.12 * float(weights.max()))
        style.weight_curves(ax, q, weights, tint, top)
        style.value_bar(ax, norm)
    else:
        style.weight_rows(ax, q, weights)
    ax.set_xlim(q[0], q[-1])
    note = f"softmax weights of {axis.keys:,} keys"
    style.title(ax, "Attention", note, "query, over the sampled inputs")


def _cells(ax: Any, head: Head, tokens: Array) -> None:
    """Two query coordinates: the value of the strongest key in the plane, paler where it has less of the weight."""
    query, offset = head.query_map
    q = tokens @ query.T + offset
    first, second = (0, 1) if q.shape[1] > 1 else (0, 0)
    x, y = (np.linspace(q[:, k].min(), q[:, k].max(), _COUNT) for k in (first, second))
    plane = np.repeat(np.median(q, axis=0)[None], _COUNT**2, axis=0)
    plane[:, second] = np.repeat(y, _COUNT)
    plane[:, first] = np.tile(x, _COUNT)
    top, index, column = np.ones(len(plane)), [], 0
    for axis in head.axes:
        own = plane[:, column : column + axis.dim]
        step = max(1, _MOST // (8 * axis.keys))
        best = []
        for start in range(0, len(own), step):
            weights = softmax_of(axis, own[start : start + step])
            best.append(weights.argmax(axis=1))
            top[start : start + step] *= weights.max(axis=1)
        index.append(np.concatenate(best))
        column += axis.dim
    cell = np.ravel_multi_index(tuple(index), head.grid).reshape(_COUNT, _COUNT)
    values = head.values.reshape(-1, head.outputs)[cell, 0]
    norm = style.value_scale(values)
    shade = style.colours(values, norm)
    strength = 0.2 + 0.8 * top / top.max()
    shade[..., :3] = 1 - (1 - shade[..., :3]) * strength.reshape(_COUNT, _COUNT, 1)
    found = len(np.unique(cell))
    if found < _WALLED:
        shade[style.walls(cell), :3] *= 0.75
    ax.imshow(shade, extent=(x[0], x[-1], y[0], y[-1]), origin="lower", aspect="auto", interpolation="nearest")
    style.value_bar(ax, norm)
    shared = f"; pale: below the largest weight, {top.max():.2g}" if np.ptp(top) > 0.1 * top.max() else ""
    rest = f", {q.shape[1] - 2} other coordinates at their medians" if q.shape[1] > 2 else ""
    note = f"{found:,} of {head.keys:,} keys are strongest somewhere{shared}{rest}"
    style.title(ax, "Cells", note, *(f"query coordinate {k + 1}" for k in (first, second)))


def _effective(ax: Any, head: Head, tokens: Array, f: Figures) -> None:
    seen = attend(head, tokens)
    low, high = float(seen.effective.min()), float(seen.effective.max())
    bins = np.linspace(low, high, 31) if high > low * (1 + 1e-9) else np.array([low * 0.9, low * 1.1])
    ax.hist(seen.effective, bins=bins, color=style.NETWORKS[1], alpha=0.8)
    ax.axvline(f.effective_mean, color=style.INK, lw=1.2, ls="--")
    note = f"mean {f.effective_mean:.3g} of {f.keys:,}; largest weight {f.top_weight:.2f} on average"
    style.title(ax, "Effective keys", note, "effective keys, exp(entropy of the weights)", "inputs")


def _sweep(ax: Any, f: Figures) -> None:
    head, mark = "Error by temperature", "keys and biases times a factor"
    if not f.sweep:
        style.title(ax, head, "not measured: what the head is for is not known, or it has too many keys")
        ax.axis("off")
        return
    factors, errors = np.array(sorted(f.sweep)).T
    shown = np.isfinite(errors) & (errors > 0)
    ax.loglog(factors[shown], errors[shown], ".-", color=style.NETWORKS[0], lw=1.3, label=mark)
    if f.error:
        ax.plot([1.0], [f.error], "o", color=style.INK, ms=7, label="as it is")
    for height, colour, line, name in (
        (f.tolerance if math.isfinite(f.tolerance) else None, style.BOUND, "--", f"allowed ({f.eps_how})"),
        (f.hard_error, style.FAINT, ":", "hard look-up"),
        (f.refit_error, style.NETWORKS[2], "-.", "values fitted anew"),
    ):
        if height:
            ax.axhline(height, color=colour, ls=line, lw=1.2, label=name)
    style.legend(ax)
    c = "" if f.sharpness is None else f"; c = R·h² is {f.sharpness:.3g} at factor 1"
    note = f"to the left softer, to the right sharper{c}"
    style.title(ax, head, note, "factor on keys and biases", "largest sampled error")


def _norms(ax: Any, head: Head) -> None:
    """Key norms and sizes of values, each sorted, on one axis of ranks."""
    if head.keys <= 1 << 16:
        norms = np.linalg.norm(head.dense_keys()[0] @ head.query_map[0], axis=1)
    else:
        norms = np.concatenate([np.linalg.norm(axis.slopes @ axis.query, axis=1) for axis in head.axes])
    values = np.abs(head.values.reshape(-1, head.outputs)).max(axis=1)
    for numbers, colour, name in ((norms, style.NETWORKS[1], "key norms"), (values, style.NETWORKS[0], "|values|")):
        ranked = np.sort(numbers)[::-1]
        mark = "o" if len(ranked) <= 60 else "-"
        ax.plot(np.arange(1, len(ranked) + 1), ranked, mark, ms=5, color=colour, label=name)
    ax.set_yscale("log" if min(norms.max(), values.max()) > 0 else "linear")
    style.legend(ax)
    note = f"key norms up to {norms.max():.3g}, values up to {values.max():.3g}"
    style.title(ax, "Norms", note, "rank of the key, largest first", "size")
