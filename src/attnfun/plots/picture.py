"""draw: one picture of an approximant. Panels: keys, attention, target against network, error under its bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network.head import Head
from attnfun.plots import panels
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


def figure(approximant: Subject) -> Any:
    """The same picture as a matplotlib Figure that belongs to no window."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    view = View.of(approximant)
    with matplotlib.rc_context(RC):
        flat = view.across is None
        picture = Figure(figsize=(11.5, 8.0) if flat else (16.0, 8.6), layout="constrained")
        FigureCanvasAgg(picture)
        grid = picture.subplots(2, 2 if flat else 3)
        output = _worst_output(view)
        certificate = approximant.certificate
        if view.head is None:
            panels.no_attention(grid[0, 0], "Keys")
            panels.no_attention(grid[0, 1], "Attention")
        else:
            shown = _written_by(view, view.head, output)
            (panels.tangent_lines if flat else panels.key_plane)(grid[0, 0], view, view.head, shown)
            panels.attention(grid[0, 1], view, view.head, shown)
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


def _worst_output(view: View) -> int:
    """The output whose sampled error is largest: the one the coloured panels show."""
    X = view.along(400)
    gap = np.nan_to_num(np.abs(view.output(X) - view.truth(X)))
    return int(gap.max(axis=0).argmax())


def _written_by(view: View, head: Head, output: int) -> int:
    """Which of the head's values feeds that output most."""
    names = view.network.coordinates
    return int(np.argmax([abs(float(view.network.readout[output, names.index(name)])) for name in head.writes]))


def _heading(picture: Any, approximant: Subject) -> None:
    certificate, cost = approximant.certificate, approximant.network.cost
    text = approximant.target.text
    text = text if len(text) <= 110 else text[:107] + "…"
    high, norm = float(certificate.error[1]), certificate.norm
    error = "error" if np.isinf(norm) else f"L^{norm:g} error"
    proof = f"{certificate.status}: {error} ≤ {high:.4g}" if np.isfinite(high) else str(certificate.status)
    if str(certificate.status) == "sampled":
        proof = f"sampled: {error} about {high:.4g}"
    parts = [
        f"ε = {certificate.eps:g}" if certificate.eps is not None else "",
        proof,
        _count(cost.layers, "layer"),
        _count(cost.heads, "head"),
        _count(cost.keys, "key"),
        _count(cost.parameters, "parameter"),
        f"{certificate.construction}, {approximant.network.dtype}".removeprefix(", "),
    ]
    line = "   ·   ".join(part for part in parts if part)
    # The invisible second line of the title reserves the room in which the facts are written in another size.
    picture.suptitle(
        f"{text}\n ", x=0.012, ha="left", fontsize=14, fontweight="bold", color=panels.INK, parse_math=False
    )
    high_up = 1 - 0.47 / picture.get_figheight()
    picture.text(0.012, high_up, line, ha="left", va="center", fontsize=10, color="#3e4c59", parse_math=False)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
