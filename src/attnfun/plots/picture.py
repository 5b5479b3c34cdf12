"""draw: one picture of an approximant. Panels: keys, attention, target against network, error under its bound.

A composed network shows its graph instead of one head's attention; a network of several one-variable heads in one layer
(the pieces of a kink, say) shows the keys and the weights of each.
"""

from typing import Any

import numpy as np

from attnfun.language.numbers import at_most
from attnfun.model import sizes
from attnfun.network.head import Head
from attnfun.plots import one_head, panels
from attnfun.plots.anatomy import Anatomy, anatomy
from attnfun.plots.graph import legend, network_graph, place
from attnfun.plots.sample import Subject, View
from attnfun.plots.style import SOFT, heading, picture, sheet


@picture
def draw(approximant: Subject) -> Any:
    """Draw `approximant` into `path` (.png, .pdf or .svg), if one is given, and return the matplotlib Figure.

    Works for any number of variables and outputs: lines and slices go through the point where the largest error was
    seen. All curves are samples; only the bound is proved. Another suffix is an InvalidRequest.
    """
    network, certificate = approximant.network, approximant.certificate
    view = View.of(approximant).through(certificate.witness)
    whole, mlp, flat = anatomy(approximant), network.is_mlp, view.across is None
    if whole is not None and (mlp or len(whole.steps) > 1 or not flat):
        return _composed(approximant, view, whole)
    if flat and not mlp and len(network.heads) > 1 and len(network.layers) == 1:
        return _pieces(approximant, view)
    page = sheet(11.5, 8.0) if flat else sheet(16.0, 8.6)
    grid = page.subplots(2, 2 if flat else 3)
    output = _worst_output(view)
    if not isinstance(view.head, Head):
        panels.no_attention(grid[0, 0], "Keys", mlp)
        panels.no_attention(grid[0, 1], "Attention", mlp)
    else:
        shown = _written_by(view, view.head, output)
        (one_head.tangent_lines if flat else panels.key_plane)(grid[0, 0], view, view.head, shown)
        one_head.attention(grid[0, 1], view, view.head, shown)
    if not flat:
        panels.error_map(grid[0, 2], view, certificate, output)
        panels.surface(grid[1, 0], view, output)
    panels.comparison(grid[1, -2], view)
    panels.error_line(grid[1, -1], view, certificate)
    return headed(page, approximant)


figure = draw
"""The same name for the picture without a path: a matplotlib Figure that belongs to no window."""


def _composed(approximant: Subject, view: View, whole: Anatomy) -> Any:
    """The graph above; below it target against network, the error under its bound, and the keys of the largest head."""
    placed = place(whole)
    width, below, above = max(13.5, placed.width + 0.8), 3.9, 1.2
    height = above + placed.height + 0.55 + below
    page = sheet(width, height, layout=None)
    margin = (width - placed.width) / 2  # the graph in the middle, one unit of its axes an inch
    corner = (margin - 0.05) / width, (below + 0.1) / height
    frame = (*corner, (placed.width + 0.1) / width, (placed.height + 0.42) / height)
    network_graph(page.add_axes(frame), whole, placed)
    page.text(0.16 / width, 1 - 0.66 / height, legend(whole), fontsize=8, color=SOFT, va="top")
    bottom, top = 0.5 / height, (below - 0.75) / height
    across = {"left": 0.75 / width, "right": 1 - 0.75 / width, "wspace": 0.26, "width_ratios": (1, 1, 1.12)}
    axes = page.add_gridspec(1, 3, bottom=bottom, top=top, **across).subplots()
    panels.comparison(axes[0], view)
    panels.error_line(axes[1], view, approximant.certificate)
    largest = max(whole.steps, key=lambda step: step.keys)
    (one_head.broken_line if approximant.network.is_mlp else one_head.argument_lines)(axes[2], view, largest)
    return headed(page, approximant, fixed=True)


def _pieces(approximant: Subject, view: View) -> Any:
    """One variable, one layer, several heads: keys and weights of each (the four largest), then the whole."""
    every = approximant.network.layers[0].attention
    largest = sorted(every, key=lambda head: -head.keys)[:4]
    heads = [head for head in every if head in largest]
    page, output = sheet(max(11.5, 4.6 * len(heads)), 11.0), _worst_output(view)
    rows = page.subfigures(3, 1)
    keys, weights = (row.subplots(1, len(heads)) for row in rows[:2])
    for k, head in enumerate(heads):
        shown = _written_by(view, head, output)
        one_head.tangent_lines(keys[k], view, head, shown, head.name)
        one_head.attention(weights[k], view, head, shown, head.name)
    left, right = rows[2].subplots(1, 2)
    panels.comparison(left, view)
    panels.error_line(right, view, approximant.certificate)
    return headed(page, approximant)


def _worst_output(view: View) -> int:
    """The output whose sampled error is largest: the one the coloured panels show."""
    X = view.along(400)
    gap = np.nan_to_num(np.abs(view.output(X) - view.truth(X)))
    return int(gap.max(axis=0).argmax())


def _written_by(view: View, head: Head, output: int) -> int:
    """Which of the head's values feeds that output most."""
    names = view.network.coordinates
    return int(np.argmax([abs(float(view.network.readout[output, names.index(name)])) for name in head.writes]))


def headed(page: Any, model: Any, fixed: bool = False) -> Any:
    """The page of a model with its heading: the target, the proof and the sizes."""
    certificate, network = model.certificate, getattr(model, "network", None) or model.weights
    high, mlp = float(certificate.error[1]), getattr(network, "is_mlp", False)
    proof = certificate.heading.lower()
    if np.isfinite(high):
        proof += (
            f": {certificate.norm_name}{certificate.off} {'about' if certificate.measured else '≤'} {at_most(high)}"
        )
    eps = f"ε = {certificate.eps:g}" if certificate.eps is not None else ""
    made = f"{certificate.construction}, {network.dtype}".removeprefix(", ")
    parts = [eps, proof, *sizes(network), made, "an MLP" if mlp else ""]
    return heading(page, model.target.text, "   ·   ".join(part for part in parts if part), fixed)
