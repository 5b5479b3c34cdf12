"""One look for every picture: colours, titles, colour bars, and what stands around a drawing.

A picture is a function that draws on a `sheet` and returns it. `picture` puts the same things around each of them. It
is refused before its work where matplotlib is not installed or the name of the file cannot be drawn to; it is drawn
with the settings RC; and it is saved where a path is given behind what it draws.
"""

import io
from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.files import require_writable, write_whole
from attnfun.language.brief import shortened as shortened

INK, FAINT, BOUND, SOFT, LINES = "#1f2933", "#9aa5b1", "#102a43", "#52606d", "#e4e7eb"
NETWORKS = ("#d64545", "#2f7fbf", "#3f9142", "#b8651b", "#7a4fbf", "#0e8a8a", "#c2408f", "#627d98")
VALUES = ("#153e75", "#3f86c2", "#a3afba", "#e08464", "#9b1c1c")  # grey in the middle: a line of value 0 is seen too
FORMATS = (".png", ".pdf", ".svg")
RC = {"font.size": 9, "axes.titlelocation": "left", "svg.hashsalt": "attnfun"}
RC |= {"axes.spines.top": False, "axes.spines.right": False}
RC |= {"axes.edgecolor": FAINT, "axes.labelcolor": INK, "xtick.color": SOFT, "ytick.color": SOFT}
Array = NDArray[np.float64]


def require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        text = "a picture needs matplotlib, which is not installed; install it with: pip install matplotlib"
        raise InvalidRequest(text) from None


def picture(draw: Callable[..., Any]) -> Callable[..., Any]:
    """`draw(*what)`, which returns a Figure, as `draw(*what, path)`: in the house style, and saved for a path."""
    count = len(signature(draw).parameters)

    @wraps(draw)
    def drawn(*given: Any, path: Any = None) -> Any:
        require_matplotlib()
        import matplotlib
        from matplotlib.backend_bases import FigureCanvasBase

        what, where = given[:count], given[count] if len(given) > count else path
        ending = "" if where is None else Path(where).suffix[1:].lower()
        if where is not None:
            if ending not in FigureCanvasBase.get_supported_filetypes():
                raise InvalidRequest(f"cannot draw {str(where)!r}: the name must end in {', '.join(FORMATS)}")
            require_writable(where)
        with matplotlib.rc_context(RC):
            figure = draw(*what)
            if where is not None:
                figure.savefig(drawing := io.BytesIO(), dpi=150, format=ending)
                write_whole(where, drawing.getvalue())
        return figure

    return drawn


def sheet(width: float, height: float, layout: str | None = "constrained") -> Any:
    """An empty Figure of so many inches that belongs to no window."""
    from attnfun.plots.page import Page

    return Page(width, height, layout)


def heading(page: Any, head: str, lines: str, fixed: bool = False) -> Any:
    """The page with its name, lines of facts below it, and settled unless everything on it has a fixed place."""
    height, look = page.get_figheight(), {"ha": "left", "va": "top", "parse_math": False}
    # Invisible lines of the title reserve the room in which the facts are written in another size.
    text = f"{shortened(head, 110)}\n " + "\n " * -(-2 * lines.count("\n") // 3)
    place = {"y": 1 - 0.1 / height} if fixed else {}
    page.suptitle(text, x=0.012, fontsize=14, fontweight="bold", color=INK, **look, **place)
    page.text(0.012, 1 - 0.38 / height, lines, fontsize=10, color=SOFT, linespacing=1.4, **look)
    if not fixed:
        page.get_layout_engine().set(w_pad=0.12, h_pad=0.12, hspace=0.04, wspace=0.03)
        page.draw_without_rendering()
    return page


def title(ax: Any, head: str, note: str = "", x: str | None = None, y: str | None = None) -> None:
    """What a panel shows, a line about it, and the names of its axes."""
    ax.set_title(head, loc="left", fontsize=10, fontweight="bold", color=INK, pad=18 if note else 6, parse_math=False)
    if note:
        place = {"transform": ax.transAxes, "va": "bottom"}
        text = ax.text(0, 1.02, note, fontsize=8, color=SOFT, parse_math=False, **place)
        text.set_in_layout(False)  # a long note may run past its panel; it must not squeeze it
    for name, write in ((x, ax.set_xlabel), (y, ax.set_ylabel)):
        if name is not None:
            write(name, parse_math=False)


def legend(ax: Any, **options: Any) -> None:
    ax.legend(**{"fontsize": 8, "frameon": False, **options})


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


def value_map() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("values", VALUES)


def colours(values: Array, norm: Any) -> Any:
    return value_map()(norm(values))


def tints(count: int) -> Any:
    """As many colours that stand for nothing but their order."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.05, 0.9, count))


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

    colour_bar(ax, ScalarMappable(norm=norm, cmap=value_map()), "value of the key")


def weight_curves(ax: Any, x: Array, weights: Array, tint: Any, top: float = 1.05) -> None:
    """(points, keys) softmax weights, a curve per key."""
    for own, colour in zip(weights.T, tint, strict=True):
        ax.fill_between(x, own, color=colour, alpha=0.18, lw=0)
        ax.plot(x, own, color=colour, lw=1.3)
    ax.set(ylim=(0, top), ylabel="weight")


def weight_rows(ax: Any, x: Array, weights: Array) -> None:
    """(points, keys) softmax weights as colours, at most 160 rows of keys."""
    keys = weights.shape[1]
    edges = np.linspace(0, keys, min(keys, 160) + 1).round().astype(int)
    rows = np.add.reduceat(weights, edges[:-1], axis=1).T
    ends = np.concatenate([x[:1], (x[1:] + x[:-1]) / 2, x[-1:]])
    mesh = ax.pcolormesh(ends, edges, rows, cmap="Blues", rasterized=True)
    ax.set_ylabel("key")
    colour_bar(ax, mesh, "weight" if len(rows) == keys else "weight of the keys in a row")


def token_map(ax: Any, weights: Array, given: int) -> None:
    """(tokens that ask, tokens) softmax weights, a row per token that asks; behind the `given` tokens constant ones."""
    top = min(1.0, 2 * float(weights.max()))
    mesh = ax.imshow(weights, cmap="Blues", vmin=0.0, vmax=top, aspect="equal" if max(weights.shape) <= 64 else "auto")
    for count, write in zip(weights.shape, (ax.set_yticks, ax.set_xticks), strict=True):
        at = np.arange(0, count, 1 + count // 16)
        write(at, [f"{k + 1}" if k < given else f"c{k + 1 - given}" for k in at], fontsize=8)
    if weights.size <= 64:
        for (row, column), weight in np.ndenumerate(weights):
            tint, shown = "white" if weight > 0.6 * top else INK, weight if weight >= 5e-3 else 0
            ax.text(column, row, f"{shown:.2g}", color=tint, fontsize=8, ha="center", va="center")
    colour_bar(ax, mesh, "weight")


def walls(cells: Any) -> Any:
    """Where the number of a cell differs from that of its neighbour on the left or below, (n, m) whole numbers."""
    wall = np.zeros(cells.shape, dtype=bool)
    wall[:, 1:] |= cells[:, 1:] != cells[:, :-1]
    wall[1:] |= cells[1:] != cells[:-1]
    return wall
