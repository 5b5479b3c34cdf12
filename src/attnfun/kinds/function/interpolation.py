"""The truncated linear function by a given number of interpolation points: one network, or a table of all variants.

Where `compile` starts from ε and finds the size, here the size is given and the error is what comes out: the published
bound, the bound proved from the stored weights, and the error measured, beside each other, for the variants of
`kinds/function/build/interpolation.py`.

The picture of an interpolation table: errors against keys, log-log, and what the smallest heads look like.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from attnfun.certify import Status
from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.function.build import Request
from attnfun.kinds.function.build.broken_lines import single_clip
from attnfun.kinds.function.build.interpolation import MOST_KEYS, build_units
from attnfun.kinds.function.build.unary.grid import VARIANTS, Grid, grid_fit
from attnfun.kinds.function.prove import prove
from attnfun.kinds.function.view import Approximant
from attnfun.language import Box, Builder, Graph, parse
from attnfun.language.definedness import require_defined
from attnfun.language.function import Function
from attnfun.language.numbers import number, one_of, whole_number
from attnfun.network import evaluate
from attnfun.plots.style import FAINT, INK, LINES, NETWORKS, legend, picture, sheet, title

_ROOM = 1.07  # in several variables: *composition* proves a head to 6 %
_MOST_WORK = 1 << 15  # keys × heads: a proof looks at every head on every interval


def interpolation(
    low: float,
    high: float,
    points: int,
    *,
    heads: int | None = None,
    variant: str = "optimal",
    query: str = "x",
    domain: Any = None,
    leak: float = 1e-3,
    sharpness: float | None = None,
    dtype: str = "float64",
    progress: Callable[[str], None] | None = None,
) -> Approximant:
    """clip(query, low, high) by softmax heads of `points` interpolation points, with its certificate.

    One head, or with `heads` so many of `points` points each. `variant`: "published", "inclusive" (both ends are
    points) or "optimal" (the best temperature). `query` is any affine form of the variables of `domain`; left out, it
    is x on an interval that reaches past [low, high] by half its width on either side. `leak` is the ε₀ of the
    published statement and sets the temperature of single hard heads; `sharpness` (β Δ²) overrides it. The
    certificate's eps is the bound that the theory claims for this variant (in several variables with 7 % of room for
    the proof), the `story` holds the published one. Raises Infeasible, with what was reached, where it is not proved.
    """
    a, b = number("low", low), number("high", high)
    count = None if heads is None else whole_number("heads", heads, 1)
    sharp = None if sharpness is None else number("sharpness", sharpness)
    grid = Grid(a, b, whole_number("points", points, 1), count, variant, number("leak", leak), sharp)
    room = min(MOST_KEYS, _MOST_WORK // (grid.heads or 1))
    if grid.keys > room:
        what = f"{grid.keys:,} keys in {grid.heads or 1:,} heads take minutes to prove; at most {room:,} are built"
        fits = room // (grid.heads or 1)
        raise Infeasible(f"interpolation: {what}", {"points": fits} if fits >= 3 else {"heads": 16})
    one_of("dtype", dtype, ("float64", "float32"))
    if domain is None:
        require(query == "x", f"query={query!r:.60}: give the domain of its variables")
        domain = {"x": (a - (b - a) / 2, b + (b - a) / 2)}
    if not isinstance(query, str):
        raise InvalidRequest(f"query={query!r:.60}: an affine form of the variables, as text, is needed")
    box = Box.parse(domain, query)
    function = Function.read(_clip(parse(query, box.names), a, b), box)
    require_defined(function.formula, box)
    claim = grid.claim * (1.0 if box.dim == 1 else _ROOM)
    request = Request(function, claim, math.inf, dtype)
    network = build_units(request, single_clip(function.formula, box).forms, (grid_fit(grid, dtype),), box.dim == 1)
    certificate = prove(network, function, eps=claim, construction="interpolation", report=progress)
    if certificate.status is not Status.PROVED:
        nearest = {"dtype": "float64"} if dtype == "float32" else None
        raise Infeasible(f"interpolation: {certificate.reason} (reached {certificate.error[1]:.3g})", nearest)
    asked = {"eps": claim, "norm": "sup", "method": "interpolation", "dtype": dtype}
    story: dict[str, Any] = {"construction": "interpolation", "variant": variant, "points per head": grid.points}
    story |= {"heads": grid.heads or 1, "spacing": grid.spacing, "sharpness": grid.c}
    story |= {"published bound": grid.published}
    return Approximant(function, network, certificate, asked, story)


@dataclass(frozen=True)
class Row:
    """One network of a table: errors as published, proved and measured, and in units of its own spacing Δ."""

    variant: str
    points: int
    heads: int | None
    keys: int
    spacing: float
    sharpness: float
    published: float
    proved: float
    measured: float

    @property
    def proved_in_spacings(self) -> float:
        return self.proved / self.spacing

    @property
    def measured_in_spacings(self) -> float:
        return self.measured / self.spacing

    def record(self) -> dict[str, Any]:
        """The row as plain values, the ratios included."""
        own = {"proved_in_spacings": self.proved_in_spacings, "measured_in_spacings": self.measured_in_spacings}
        return {**asdict(self), **own}


def interpolation_table(
    low: float,
    high: float,
    points: Sequence[int],
    *,
    heads: Sequence[int] | None = None,
    variants: Iterable[str] = VARIANTS,
    dtype: str = "float64",
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """A row for every variant and size: points of a single head, or with `heads` all pairs (points per head, heads)."""
    rows = []
    for variant in variants:
        for size, count in [(p, h) for h in (heads or (None,)) for p in points]:
            net = interpolation(low, high, size, heads=count, variant=variant, dtype=dtype)
            delta, c, published = (float(net.story[k]) for k in ("spacing", "sharpness", "published bound"))
            proved, measured = net.certificate.error[1], measured_error(net)
            row = Row(variant, size, count, net.cost.keys, delta, c, published, proved, measured)
            rows.append(row)
            if progress is not None:
                progress(row)
    return rows


def measured_error(net: Approximant, per_cell: int = 128) -> float:
    """The largest error of a network of one variable on a fine grid and at the certificate's witness: no bound."""
    box = net.target.box
    count = math.ceil(per_cell * (box.high[0] - box.low[0]) / float(net.story["spacing"]))
    X = np.linspace(box.low[0], box.high[0], min(count, 400_000) + 1)[:, None]
    if net.certificate.witness is not None:
        X = np.concatenate([X, [net.certificate.witness]])
    return float(np.abs(evaluate(net.network, X).astype(np.float64) - net.target.values(X)).max())


def _clip(query: Graph, low: float, high: float) -> Graph:
    """The graph of clip(query, low, high), the ends read as the decimals they are written in."""
    out = Builder()
    nodes = out.copy(query.nodes)
    ends = [out.const(Fraction(repr(end))) for end in (low, high)]
    return out.graph([out.apply("min", out.apply("max", nodes[query.outputs[0]], ends[0]), ends[1])])


COLOUR = {"published": NETWORKS[0], "inclusive": NETWORKS[1], "optimal": NETWORKS[2]}
_MOST_SHOWN = 24  # keys of the heads drawn as functions


@picture
def draw_rates(rows: Sequence[Row], low: float, high: float) -> Any:
    """Left: published bound, proved bound and measured error against keys. Right: target and smallest networks."""
    figure = sheet(12.5, 5.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    _rates(left, rows)
    _shapes(right, rows, low, high)
    return figure


def _rates(ax: Any, rows: Sequence[Row]) -> None:
    many = rows[0].heads is not None
    ordered = sorted(rows, key=lambda row: row.keys)
    sizes = {row.keys: row.published for row in ordered if np.isfinite(row.published)}
    ax.plot(list(sizes), list(sizes.values()), "--", color=INK, lw=1.1, label="published bound")
    for variant in dict.fromkeys(row.variant for row in rows):
        own = [row for row in ordered if row.variant == variant]
        keys = [row.keys for row in own]
        colour = COLOUR.get(variant, INK)
        ax.plot(keys, [row.proved for row in own], "-", color=colour, lw=1.3, label=f"{variant}: proved")
        ax.plot(keys, [row.measured for row in own], "o", mfc="none", mec=colour, ms=6, label=f"{variant}: measured")
    ends = np.array([ordered[0].keys, ordered[-1].keys], dtype=float)
    least = min(row.measured for row in ordered)
    ax.plot(ends, 0.55 * least * ends[-1] / ends, ":", color=FAINT, lw=1.4, label="slope −1")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted(sizes or {row.keys for row in rows})
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.minorticks_off()
    ax.set_xlabel("keys, nH" if many else "keys, p")
    ax.set_ylabel("sup error")
    ax.grid(True, which="major", color=LINES, lw=0.6)
    legend(ax, loc="lower left", ncols=2)
    title(ax, "The rate 1/(nH)" if many else "The rate 1/p", "proved from the stored weights, measured on a fine grid")


def _shapes(ax: Any, rows: Sequence[Row], low: float, high: float) -> None:
    reach = (high - low) / 4
    x = np.linspace(low - reach, high + reach, 2001)
    ax.plot(x, np.clip(x, low, high), color=INK, lw=2.6, alpha=0.3, label="target")
    for variant in dict.fromkeys(row.variant for row in rows):
        row = min((row for row in rows if row.variant == variant), key=lambda row: row.keys)
        if row.keys > _MOST_SHOWN:
            continue
        size = f"p = {row.points}" if row.heads is None else f"n = {row.points}, H = {row.heads}"
        fit = grid_fit(Grid(low, high, row.points, row.heads, variant))
        ax.plot(x, fit(x), color=COLOUR.get(variant, INK), lw=1.3, label=f"{variant}, {size}")
    ax.set_xlabel("y = w·x + t")
    ax.grid(True, color=LINES, lw=0.6)
    legend(ax, loc="upper left")
    title(ax, "The smallest networks", f"clip(y, {low:g}, {high:g})")
