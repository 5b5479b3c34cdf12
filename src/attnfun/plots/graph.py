"""The graph of a composed network: inputs, layers as columns, heads as boxes, edges where a query reads a coordinate.

The place of everything is decided here, in inches; a long edge bends around the boxes it passes (a layered drawing:
Sugiyama, Tagawa and Toda 1981).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from attnfun.language.numbers import at_most
from attnfun.plots.anatomy import Anatomy, Step
from attnfun.plots.style import INK, SOFT, shortened

BOX_WIDTH, BOX_HEIGHT, LANE = 2.25, 0.74, 0.24
GAP_X, GAP_Y = 0.85, 0.16
PILL_HEIGHT, MOST_PILL = 0.27, 1.25
MOST_BOXES = 16
"""The most boxes in one column; the rest of it is one box that says how many."""
EDGE, RIDE = "#627d98", "#bcccdc"


@dataclass
class Item:
    """Something with a place: a head, an input, an output, a bend of a long edge, or the rest of a crowded column."""

    key: str
    column: int
    height: float
    width: float = 0.0
    step: Step | None = None
    lines: tuple[str, ...] = ()
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Placed:
    """Items by key, edges as chains of keys with their coefficient, pairs that only ride, and the size in inches."""

    items: Mapping[str, Item]
    chains: tuple[tuple[tuple[str, ...], float], ...]
    rides: tuple[tuple[str, str], ...]
    width: float
    height: float
    left: tuple[float, ...]


def place(whole: Anatomy) -> Placed:
    """Columns from left to right, each ordered by where its neighbours stand, so that few edges cross."""
    last = max(step.layer for step in whole.steps) + 1
    items, hidden = _items(whole, last)
    chains: list[tuple[tuple[str, ...], float]] = []
    sinks = [(step.tag, step.reads) for step in whole.steps]
    sinks += [(f"out {k}", reads) for k, reads in enumerate(whole.reads)]
    bends: dict[tuple[str, int], str] = {}
    for target, reads in sinks:
        for source, beta in reads.items():
            a, b = hidden.get(source, source), hidden.get(target, target)
            if beta != 0 and a in items and b in items and a != b and items[a].column < items[b].column:
                chains.append(((a, *_bends(items, bends, a, b), b), beta))
    columns = [[item for item in items.values() if item.column == c] for c in range(last + 1)]
    links = [pair for chain, _ in chains for pair in pairwise(chain)]
    columns = _ordered(columns, links)
    widths = [max((item.width for item in column), default=0.0) for column in columns]
    left = tuple(float(v) for v in np.cumsum([0.0, *(w + GAP_X for w in widths[:-1])]))
    height = max(sum(item.height for item in column) + GAP_Y * (len(column) - 1) for column in columns)
    for column, x in zip(columns, left, strict=True):
        for item in column:
            item.x = x
    _settle(columns, links, height)
    shown = [step for step in whole.steps if step.tag in items]
    rides = tuple((n, step.tag) for step in shown for n in step.rides if n in items and n != step.tag)
    return Placed(items, tuple(chains), rides, left[-1] + widths[-1], height, left)


def _items(whole: Anatomy, last: int) -> tuple[dict[str, Item], dict[str, str]]:
    used = {name for step in whole.steps for name in (*step.reads, *step.rides)} | {n for r in whole.reads for n in r}
    inputs = [name for name in whole.inputs if name in used]
    items: dict[str, Item] = {}
    hidden: dict[str, str] = {}
    pill = min(MOST_PILL, 0.3 + 0.085 * max(map(len, (*inputs, "x"))))
    for name in inputs:
        items[name] = Item(name, 0, PILL_HEIGHT, pill, lines=(shortened(name, 12),))
    for layer in range(1, last):
        steps = [step for step in whole.steps if step.layer == layer]
        shown = steps if len(steps) <= MOST_BOXES else steps[: MOST_BOXES - 1]
        for step in shown:
            items[step.tag] = Item(step.tag, layer, BOX_HEIGHT, BOX_WIDTH, step)
        rest = steps[len(shown) :]
        if rest:
            key = f"rest {layer}"
            share = sum(step.share or 0.0 for step in rest)
            head, unit = rest[0].words
            keys = sum(step.keys for step in rest)
            words = (f"{len(rest)} more {head}s", f"{keys:,} {unit}s, {share:.0%} of the error")
            items[key] = Item(key, layer, 0.5, BOX_WIDTH, lines=words)
            hidden |= {step.tag: key for step in rest}
    for k, name in enumerate(whole.outputs):
        items[f"out {k}"] = Item(f"out {k}", last, 0.5, 1.75, lines=(shortened(name, 16), f"= {whole.formulas[k]}"))
    return items, hidden


def _bends(items: dict[str, Item], bends: dict[tuple[str, int], str], a: str, b: str) -> list[str]:
    """A bend in every column between; edges out of one coordinate share theirs."""
    out = []
    for column in range(items[a].column + 1, items[b].column):
        if (a, column) not in bends:
            bends[a, column] = f"bend {a} {column}"
            items[bends[a, column]] = Item(bends[a, column], column, LANE)
        out.append(bends[a, column])
    return out


def _ordered(columns: list[list[Item]], links: Sequence[tuple[str, str]]) -> list[list[Item]]:
    """Every column sorted by the mean place of its neighbours, a few times left to right and back."""
    place = {item.key: k / max(1, len(column) - 1) for column in columns for k, item in enumerate(column)}

    def sweep(indices: Sequence[int], backward: bool) -> None:
        for c in indices:
            near: dict[str, list[float]] = {item.key: [] for item in columns[c]}
            for a, b in links:
                mine, other = (a, b) if backward else (b, a)
                if mine in near:
                    near[mine].append(place[other])
            mean = {key: float(np.mean(v)) if v else place[key] for key, v in near.items()}
            columns[c].sort(key=lambda item: mean[item.key])
            for k, item in enumerate(columns[c]):
                place[item.key] = (k + 0.5) / len(columns[c])

    for _ in range(6):
        sweep(range(1, len(columns)), backward=False)
        sweep(range(len(columns) - 2, -1, -1), backward=True)
    return columns


def _settle(columns: list[list[Item]], links: Sequence[tuple[str, str]], height: float) -> None:
    """Heights: each item near the mean of its neighbours, in the order of its column, without overlap."""
    for column in columns:
        free = height - sum(item.height for item in column)
        gap = min(free / max(1, len(column)), 0.5)
        y = (height - (sum(item.height for item in column) + gap * (len(column) - 1))) / 2
        for item in column:
            item.y = y + item.height / 2
            y += item.height + gap
    items = {item.key: item for column in columns for item in column}
    for _ in range(30):
        for column in columns:
            wanted = []
            for item in column:
                near = [items[b].y for a, b in links if a == item.key] + [items[a].y for a, b in links if b == item.key]
                wanted.append(float(np.mean(near)) if near else item.y)
            _spread(column, wanted, height)


def _spread(column: list[Item], wanted: Sequence[float], height: float) -> None:
    """The places nearest to the wanted ones that keep order, distance and the frame."""
    from scipy.optimize import isotonic_regression

    if not column:
        return
    least = np.cumsum([column[0].height / 2, *((a.height + b.height) / 2 + GAP_Y for a, b in pairwise(column))])
    free = isotonic_regression(np.array(wanted) - least).x  # what is left of places that only keep order
    for item, y in zip(column, least + np.clip(free, 0.0, height - column[-1].height / 2 - least[-1]), strict=True):
        item.y = float(y)


# ---------------------------------------------------------------- drawing


def network_graph(ax: Any, whole: Anatomy, placed: Placed) -> None:
    """Draw on axes whose unit is an inch."""
    top = 0.34
    ax.set_xlim(-0.05, placed.width + 0.05)
    ax.set_ylim(placed.height + 0.08, -top)
    ax.axis("off")
    for key in placed.rides:
        a, b = placed.items[key[0]], placed.items[key[1]]
        _curve(ax, [(a.x + a.width, a.y), (b.x, b.y)], RIDE, 0.7, "dotted", 0)
    for chain, beta in placed.chains:
        points: list[tuple[float, float]] = []
        for k, name in enumerate(chain):
            item = placed.items[name]
            wide = BOX_WIDTH if item.width == 0 else item.width
            points += [(item.x, item.y)] if k > 0 else []
            points += [(item.x + wide, item.y)] if k < len(chain) - 1 else []
        _curve(ax, points, EDGE, 1.2, "solid" if beta > 0 else (0, (4, 2)), 1)
    for item in placed.items.values():
        if item.step is not None:
            _head(ax, item, item.step)
        elif item.lines:
            _plain(ax, item)
    layers = max(step.layer for step in whole.steps)
    for column, x in enumerate(placed.left):
        word = "inputs" if column == 0 else "read-out" if column > layers else f"layer {column}"
        ax.text(x, -top + 0.02, word, fontsize=9, color=SOFT, va="top", fontweight="bold")


def _curve(ax: Any, points: Sequence[tuple[float, float]], colour: str, width: float, style: Any, z: int) -> None:
    """A smooth way through the points: level at each of them."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = max(0.35, 0.45 * (x1 - x0))
        vertices += [(x0 + bend, y0), (x1 - bend, y1), (x1, y1)]
        codes += [Path.CURVE4] * 3
    look = {"edgecolor": colour, "lw": width, "ls": style, "zorder": z}
    ax.add_patch(PathPatch(Path(vertices, codes), fill=False, capstyle="round", **look))


def _frame(ax: Any, item: Item, colour: Any, edge: str, round_by: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = f"round,pad=0,rounding_size={round_by}"
    corner = (item.x, item.y - item.height / 2)
    look = {"boxstyle": shape, "facecolor": colour, "edgecolor": edge, "lw": 1.0, "zorder": 2}
    ax.add_patch(FancyBboxPatch(corner, item.width, item.height, **look))


def _write(ax: Any, x: float, y: float, text: str, **style: Any) -> None:
    settings = {"fontsize": 8, "color": INK, "va": "center", "zorder": 4, "parse_math": False} | style
    ax.text(x, y, text, **settings)


def _head(ax: Any, item: Item, step: Step) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    share = step.share
    tint = colormaps["OrRd"](0.02 + 0.45 * share) if share is not None else "#f5f7fa"
    _frame(ax, item, tint, "#829ab1", 0.07)
    left, right, top = item.x + 0.09, item.x + item.width - 0.09, item.y - item.height / 2
    _write(ax, left, top + 0.16, step.tag, fontsize=7.5, fontweight="bold", color="#486581")
    shift = 0.1 + 0.075 * len(step.tag)
    text, size = _fitted(step.function, item.width - 0.2 - shift, 8.5, bold=True)
    _write(ax, left + shift, top + 0.16, text, fontsize=size, fontweight="bold")
    pieces = f" in {len(step.heads)} pieces" if len(step.heads) > 1 else ""
    keys = f"{step.keys:,} {step.words[1]}{'' if step.keys == 1 else 's'}"
    _write(ax, left, top + 0.37, f"{keys}{pieces}", fontsize=7.5, color=INK)
    ends = f"on [{step.ends[0]}, {step.ends[1]}]".replace("-", "−")
    _write(ax, right, top + 0.37, ends, fontsize=7.5, color=SOFT, ha="right")
    if share is not None and step.own is not None:
        for part, colour in ((1.0, "#ffffff"), (share, "#d64545")):
            ax.add_patch(Rectangle((left, top + 0.64), part * (right - left), 0.045, color=colour, zorder=3, lw=0))
        _write(ax, left, top + 0.54, f"own error {at_most(step.own, 2)}", fontsize=7, color=SOFT)
        _write(ax, right, top + 0.54, f"{share:.1%} of the bound", fontsize=7, color=SOFT, ha="right")


def _plain(ax: Any, item: Item) -> None:
    pill = len(item.lines) == 1
    _frame(ax, item, "#f0f4f8" if pill else "#e6f0ea", "#9fb3c8" if pill else "#7fa58c", 0.13 if pill else 0.08)
    if pill:
        _write(ax, item.x + item.width / 2, item.y, item.lines[0], ha="center", fontsize=8.5, fontweight="bold")
        return
    _write(ax, item.x + 0.1, item.y - 0.1, item.lines[0], fontsize=8.5, fontweight="bold")
    text, size = _fitted(item.lines[1], item.width - 0.2, 7.5)
    _write(ax, item.x + 0.1, item.y + 0.11, text, fontsize=size, color=SOFT)


def legend(whole: Anatomy) -> str:
    """What the marks mean, in one or two lines."""
    head, key = whole.steps[0].words
    first = f"a box is a {head}: its function, its {key}s, the range of its argument"
    if any(step.share is not None for step in whole.steps):
        first += ";  its red bar: the part of the bound that is born in it"
    second = "lines: what its query reads (dashed: with a minus)"
    if any(step.rides for step in whole.steps):
        second += f";  dotted: affine parts of earlier {head}s, which ride in the residual stream"
    return f"{first}\n{second}"


def _fitted(text: str, width: float, size: float, bold: bool = False) -> tuple[str, float]:
    """The text, a little smaller and then cut, so that it is at most `width` inches wide; and its size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(weight="bold" if bold else "normal")

    def wide(words: str, points: float) -> float:
        return float(TextPath((0, 0), words.replace("$", "S"), size=points, prop=font).get_extents().width) / 72

    for points in (size, 0.92 * size, 0.85 * size):
        if wide(text, points) <= width:
            return text, points
    text = text[: int(1.3 * len(text) * width / wide(text, 0.85 * size)) + 1]  # near enough to cut letter by letter
    while len(text) > 2 and wide(text + "…", 0.85 * size) > width:
        text = text[:-1]
    return text + "…", 0.85 * size
