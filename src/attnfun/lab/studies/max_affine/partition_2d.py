"""A max-affine partition as one head: resolution and temperature.

Claim. One head with a key for every cell of a grid approximates any continuous function; the error of an L-Lipschitz
one is at most L h √d/2 once the inverse temperature R is large enough, and the theorem sends R → ∞.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901, Propositions 3.2 and 3.3 and Theorem 4.1; weights, the sweep of
temperatures and the bounds of finite ones are our own.

The published one-head partition on sin x + cos y, its error against resolution and temperature.

No training: weights are the published ones, keys R v_j with biases −R|v_j|²/2 and values f(v_j), on a grid of P × P
centres, for a sweep of c = R h². The proved bound is the smaller of two: that of `prove` for the head as it is, and
this one. The target is u(x) + w(y), and a head on a product grid is a product of two softmaxes, so with values
V_ij = a_i + b_j + r_ij it is head_u(x) + head_w(y) + an average of the r_ij. Hence

    sup|head − f| ≤ sup|head_u − u| + sup|head_w − w| + max|r_ij| + rounding,

where both one-variable heads have the very keys of the axes (compared bit by bit), each is proved by itself, r_ij is
computed in rational numbers and the rounding is that of the whole head.

Columns.
    layout: centres at the midpoints of cells, or equispaced with both ends of every side among them
    P: centres an axis
    keys: keys of the head, P²
    c: R h², the inverse temperature in units of the spacing
    R: inverse temperature
    error: sup error, measured at 20,000 points, corners and edges
    proved: bound proved from the stored weights, rounding included
    worst_case: L h √2/2 with L = √2, the published worst case of a hard partition
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, slope, values, where

PARTS = ("sin(x)", "cos(y)")
LIPSCHITZ = math.sqrt(2)
LAYOUTS = ("ends", "midpoints")


def units(size: Size) -> list[Unit]:
    sweep = size["temperatures"]
    return [{"layout": layout, "P": P, "temperatures": sweep} for layout in LAYOUTS for P in size["resolutions"]]


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.max_affine.heads import partition_head, sup_error, target

    ends, P = unit["layout"] == "ends", unit["P"]
    function = target(" + ".join(PARTS), f"x={-math.pi!r}:{math.pi!r};y={-math.pi!r}:{math.pi!r}")
    spacing = 2 * math.pi / (P - 1 if ends else P)
    rows = []
    for c in unit["temperatures"]:
        network = partition_head(function, (P, P), c, ends)
        rows.append(
            {
                "keys": P * P,
                "c": c,
                "R": c / spacing**2,
                "error": sup_error(network, function),
                "proved": _proved(network, function, P, c, ends),
                "worst_case": LIPSCHITZ * spacing * math.sqrt(2) / 2,
            }
        )
    return rows


def _proved(network: Any, function: Any, P: int, c: float, ends: bool) -> float:
    import numpy as np

    from attnfun.lab.studies.max_affine.heads import partition_head, target

    whole = af.parts.prove(network, function)
    total, heads = Fraction(whole.parts["rounding"]), []
    for k, text in enumerate(PARTS):
        name, low, high = function.box.names[k], function.box.low[k], function.box.high[k]
        part = target(text, f"{name}={low!r}:{high!r}")
        alone = partition_head(part, (P,), c, ends)
        axis, own = network.layers[0].heads[0].axes[k], alone.layers[0].heads[0].axes[0]
        assert all(np.array_equal(getattr(axis, n), getattr(own, n)) for n in ("offset", "slopes", "biases"))
        certificate = af.parts.prove(alone, part)
        if not math.isfinite(certificate.error[1]):
            return whole.error[1]
        total += Fraction(certificate.parts["construction"])
        heads.append(alone.layers[0].heads[0].values[:, 0].tolist())
    table = network.layers[0].heads[0].values[..., 0].tolist()
    total += max(
        abs(Fraction(v) - Fraction(a) - Fraction(b))
        for a, row in zip(heads[0], table, strict=True)
        for b, v in zip(heads[1], row, strict=True)
    )
    return min(whole.error[1], math.nextafter(float(total), math.inf))


def judge(table: Table) -> Verdict:
    """Refuted when an error passes its bound, when the sharpest head passes the worst case, or when refining does not
    shrink the error. With limits when the sharpest head is not the best of the sweep; else it holds.
    """
    wrong = [row for row in table if not row["error"] <= row["proved"] < math.inf]
    sharp = max(values(table, "c"))
    above = [row for row in where(table, c=sharp) if not row["error"] <= row["worst_case"]]
    words, finite, stuck = "", [], []
    for layout in distinct(table, "layout"):
        here = where(table, layout=layout)
        resolutions = distinct(here, "P")
        best = [min(where(here, P=P), key=lambda row: row["error"]) for P in resolutions]
        hard = [where(here, P=P, c=sharp)[0] for P in resolutions]
        finite += [b["error"] <= 0.9 * s["error"] for b, s in zip(best, hard, strict=True)]
        stuck += [not b["error"] < a["error"] for a, b in pairwise(hard)]
        rates = [slope(values(rows, "P"), values(rows, "error")) for rows in (hard, best)]
        where_best = ", ".join(f"{c:g}" for c in sorted({row["c"] for row in best}))
        words += (
            f"Centres at {layout}: with c = R h² = {sharp:g} the error falls like P^{rates[0]:.2f} to "
            f"{hard[-1]['error']:.3g} at P = {hard[-1]['P']} (worst case {hard[-1]['worst_case']:.3g}); the best c of "
            f"the sweep is {where_best}, where it falls like P^{rates[1]:.2f} to {best[-1]['error']:.3g}, proved "
            f"{best[-1]['proved']:.3g}: {hard[-1]['error'] / best[-1]['error']:.1f} times less with the same keys. "
        )
    if wrong or above or any(stuck):
        fault = "a measured error is above its bound" if wrong else "the sharpest heads break the worst case"
        fault = fault if wrong or above else "refining the grid does not shrink the error"
        return Verdict(REFUTED, f"Refuted: {fault}.", words)
    if any(finite):
        return Verdict(
            LIMITS,
            "So refining the partition does approximate, at the stated rate; but sending R to infinity is no "
            "part of it: there is a finite best temperature, the sharp limit loses what averaging neighbours gains.",
            words,
        )
    return Verdict(HOLDS, "The sharpest temperature is the best, and refining it approximates at the rate.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(2)
    ends = where(table, layout="ends") or list(table)
    for colour, P in coloured(distinct(ends, "P")):
        rows = where(ends, P=P)
        curve(axes[0, 0].loglog, rows, "c", "error", "o-", color=colour, ms=3, label=f"P = {P}")
        curve(axes[0, 0].loglog, rows, "c", "proved", "_", color=colour, ms=9, mew=1.5)
    axes[0, 0].set(xlabel="c = R h²  (inverse temperature)", ylabel="sup error")
    axes[0, 0].legend(fontsize=7, frameon=False, ncols=2)
    title(axes[0, 0], "A finite temperature is best", "dots: measured; bars: proved; centres include both ends")
    sharp = max(values(table, "c"))
    for colour, layout in coloured(distinct(table, "layout")):
        here = where(table, layout=layout)
        hard = where(here, c=sharp)
        best = [min(where(here, P=P), key=lambda row: row["error"]) for P in distinct(here, "P")]
        label = f"centres at {layout}"
        curve(axes[0, 1].loglog, hard, "P", "error", "s--", color=colour, ms=4, label=f"{label}, sharp")
        curve(axes[0, 1].loglog, best, "P", "error", "o-", color=colour, ms=4, label=f"{label}, best c")
        curve(axes[0, 1].loglog, best, "P", "proved", "_", color=colour, ms=12, mew=2)
        worst = values(hard, "worst_case")
        axes[0, 1].loglog(values(hard, "P"), worst, ":", color=colour, lw=1, label=f"{label}, worst case")
    axes[0, 1].set(xlabel="centres an axis P", ylabel="sup error")
    axes[0, 1].set_xticks(distinct(table, "P"), [str(P) for P in distinct(table, "P")])
    axes[0, 1].minorticks_off()
    axes[0, 1].legend(fontsize=7, frameon=False)
    title(axes[0, 1], "sin x + cos y by P² keys", f"sharp: c = {sharp:g}; bars: proved at the best c")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        resolutions=([4, 6], [5, 9, 17, 33], [5, 9, 17, 33, 65]),
        temperatures=(
            [4.0, 200.0],
            [1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 20.0, 200.0, 2000.0],
            [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 16, 20, 50, 200, 2000],
        ),
    ),
    full_time="91 seconds of CPU",
)
