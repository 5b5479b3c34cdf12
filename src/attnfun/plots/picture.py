"""draw: one picture of an approximant. Panels: keys, attention, target against network, error under its bound.

A composed network shows its graph instead of one head's attention; a network of several one-variable heads in one layer
(the pieces of a kink, say) shows the keys and the weights of each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network.head import Head
from attnfun.plots import one_head, panels, units
from attnfun.plots.anatomy import Anatomy, anatomy
from attnfun.plots.graph import legend, network_graph, place
from attnfun.plots.needed import picture
from attnfun.plots.sample import Subject, View

FORMATS = (".png", ".pdf", ".svg")
RC = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": panels.INK,
    "xtick.color": "#52606d",
    "ytick.color": "#52606d",
    "axes.titlelocation": "left",
    "svg.hashsalt": "attnfun",
}


@picture
def draw(approximant: Subject, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw `approximant` into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure.

    Works for any number of variables and outputs: with more than two variables the panels are cuts through the middle
    of the others. All curves are samples; only the bound is proved. Another suffix is an InvalidRequest.
    """
    if path is not None and Path(path).suffix.lower() not in FORMATS:
        raise InvalidRequest(f"cannot draw {str(path)!r}: the name must end in {', '.join(FORMATS)}")
    picture = figure(approximant)
    if path is not None:
        picture.savefig(path, dpi=150)
    return picture


@picture
def figure(approximant: Subject) -> Any:
    """The same picture as a matplotlib Figure that belongs to no window."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    view = View.of(approximant)
    whole = anatomy(approximant)
    with matplotlib.rc_context(RC):
        mlp = approximant.network.is_mlp
        if whole is not None and (mlp or len(whole.steps) > 1 or len(approximant.network.inputs) > 1):
            return _composed(approximant, view, whole)
        flat = view.across is None
        if flat and not mlp and len(approximant.network.heads) > 1 and len(approximant.network.layers) == 1:
            return _pieces(approximant, view)
        picture = Figure(figsize=(11.5, 8.0) if flat else (16.0, 8.6), layout="constrained")
        FigureCanvasAgg(picture)
        grid = picture.subplots(2, 2 if flat else 3)
        output = _worst_output(view)
        certificate = approximant.certificate
        if not isinstance(view.head, Head):
            panels.no_attention(grid[0, 0], "Keys", mlp)
            panels.no_attention(grid[0, 1], "Attention", mlp)
        else:
            shown = _written_by(view, view.head, output)
            (one_head.tangent_lines if flat else panels.key_plane)(grid[0, 0], view, view.head, shown)
            one_head.attention(grid[0, 1], view, view.head, shown)
        if flat:
            panels.comparison(grid[1, 0], view)
            panels.error_line(grid[1, 1], view, certificate)
        else:
            panels.error_map(grid[0, 2], view, certificate, output)
            panels.surface(grid[1, 0], view, output)
            panels.comparison(grid[1, 1], view)
            panels.error_line(grid[1, 2], view, certificate)
        _heading(picture, approximant)
        picture.get_layout_engine().set(w_pad=0.12, h_pad=0.12, hspace=0.04, wspace=0.03)
        picture.draw_without_rendering()
    return picture


def _composed(approximant: Subject, view: View, whole: Anatomy) -> Any:
    """The graph above; below it target against network, the error under its bound, and the keys of the largest head."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    view = view.through(approximant.certificate.witness)
    placed = place(whole)
    width, below, above = max(13.5, placed.width + 0.8), 3.9, 1.2
    height = above + placed.height + 0.55 + below
    picture = Figure(figsize=(width, height))
    FigureCanvasAgg(picture)
    margin = (width - placed.width) / 2  # the graph in the middle, one unit of its axes an inch
    frame = (
        (margin - 0.05) / width,
        (below + 0.1) / height,
        (placed.width + 0.1) / width,
        (placed.height + 0.42) / height,
    )
    network_graph(picture.add_axes(frame), whole, placed)
    picture.text(0.16 / width, 1 - 0.66 / height, legend(whole), fontsize=8, color="#52606d", va="top")
    bottom, top = 0.5 / height, (below - 0.75) / height
    grid = picture.add_gridspec(
        1, 3, left=0.75 / width, right=1 - 0.75 / width, bottom=bottom, top=top, wspace=0.26, width_ratios=(1, 1, 1.12)
    )
    axes = [picture.add_subplot(grid[0, k]) for k in range(3)]
    panels.comparison(axes[0], view)
    panels.error_line(axes[1], view, approximant.certificate)
    largest = max(whole.steps, key=lambda step: step.keys)
    (units.broken_line if approximant.network.is_mlp else one_head.argument_lines)(axes[2], view, largest)
    _heading(picture, approximant, fixed=True)
    return picture


def _pieces(approximant: Subject, view: View) -> Any:
    """One variable, one layer, several heads: keys and weights of each (the four largest), then the whole."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    every = approximant.network.layers[0].attention
    largest = sorted(every, key=lambda head: -head.keys)[:4]
    heads = [head for head in every if head in largest]
    picture = Figure(figsize=(max(11.5, 4.6 * len(heads)), 11.0), layout="constrained")
    FigureCanvasAgg(picture)
    output = _worst_output(view)
    rows = picture.subfigures(3, 1)
    keys, weights = (row.subplots(1, len(heads)) for row in rows[:2])
    for k, head in enumerate(heads):
        shown = _written_by(view, head, output)
        one_head.tangent_lines(keys[k], view, head, shown, head.name)
        one_head.attention(weights[k], view, head, shown, head.name)
    left, right = rows[2].subplots(1, 2)
    panels.comparison(left, view)
    panels.error_line(right, view, approximant.certificate)
    _heading(picture, approximant)
    picture.get_layout_engine().set(w_pad=0.12, h_pad=0.12, hspace=0.04, wspace=0.03)
    picture.draw_without_rendering()
    return picture


def _worst_output(view: View) -> int:
    """The output whose sampled error is largest: the one the coloured panels show."""
    X = view.along(400)
    gap = np.nan_to_num(np.abs(view.output(X) - view.truth(X)))
    return int(gap.max(axis=0).argmax())


def _written_by(view: View, head: Head, output: int) -> int:
    """Which of the head's values feeds that output most."""
    names = view.network.coordinates
    return int(np.argmax([abs(float(view.network.readout[output, names.index(name)])) for name in head.writes]))


def _heading(picture: Any, approximant: Subject, fixed: bool = False) -> None:
    certificate, cost = approximant.certificate, approximant.network.cost
    head, key = approximant.network.words
    text = approximant.target.text
    text = text if len(text) <= 110 else text[:107] + "…"
    high, norm = float(certificate.error[1]), certificate.norm
    error = "error" if np.isinf(norm) else f"L^{norm:g} error"
    proof = certificate.heading.lower()
    if np.isfinite(high):
        proof += f": {error} {'about' if certificate.measured else '≤'} {high:.4g}"
    parts = [
        f"ε = {certificate.eps:g}" if certificate.eps is not None else "",
        proof,
        _count(cost.layers, "layer"),
        _count(cost.heads, head),
        _count(cost.keys, key),
        _count(cost.parameters, "parameter"),
        f"{certificate.construction}, {approximant.network.dtype}".removeprefix(", "),
        "an MLP" if approximant.network.is_mlp else "",
    ]
    line = "   ·   ".join(part for part in parts if part)
    # The invisible second line of the title reserves the room in which the facts are written in another size.
    height = picture.get_figheight()
    where = {"y": 1 - 0.1 / height, "va": "top"} if fixed else {}
    picture.suptitle(
        f"{text}\n ", x=0.012, ha="left", fontsize=14, fontweight="bold", color=panels.INK, parse_math=False, **where
    )
    high_up = 1 - 0.47 / height
    picture.text(0.012, high_up, line, ha="left", va="center", fontsize=10, color="#3e4c59", parse_math=False)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
