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

A full run takes 91 seconds of CPU.

Columns.
    layout: centres at the midpoints of cells, or equispaced with both ends of every side among them
    P: centres per axis
    keys: keys of the head, P²
    c: R h², the inverse temperature in units of the spacing
    R: inverse temperature
    error: sup error, measured at 20,000 points, corners and edges
    proved: ≤ bound proved from the stored weights, rounding included
    worst_case: L h √2/2 with L = √2, the published worst case of a hard partition
"""

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, labelled, panels
from attnfun.lab.studies.max_affine.heads import partition_head, sup_error, target
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

PARTS = ("sin(x)", "cos(y)")
LIPSCHITZ = math.sqrt(2)


def units(size: Size) -> list[Unit]:
    return crossed(layout=("ends", "midpoints"), P=size["resolutions"], temperatures=[size["temperatures"]])


def run(unit: Unit) -> list[Row]:
    ends, P = unit["layout"] == "ends", unit["P"]
    function = target(" + ".join(PARTS), f"x={-math.pi!r}:{math.pi!r};y={-math.pi!r}:{math.pi!r}")
    spacing = 2 * math.pi / (P - 1 if ends else P)
    rows = []
    for c in unit["temperatures"]:
        network = partition_head(function, (P, P), c, ends)
        row = {"keys": P * P, "c": c, "R": c / spacing**2, "worst_case": LIPSCHITZ * spacing * math.sqrt(2) / 2}
        error = {"error": sup_error(network, function), "proved": _proved(network, function, P, c, ends)}
        rows.append(row | error)
    return rows


def _proved(network: Any, function: Any, P: int, c: float, ends: bool) -> float:
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
            return float(whole.error[1])
        total += Fraction(certificate.parts["construction"])
        heads.append(alone.layers[0].heads[0].values[:, 0].tolist())
    table = network.layers[0].heads[0].values[..., 0].tolist()
    total += max(
        abs(Fraction(v) - Fraction(a) - Fraction(b))
        for a, row in zip(heads[0], table, strict=True)
        for b, v in zip(heads[1], row, strict=True)
    )
    return min(whole.error[1], math.nextafter(float(total), math.inf))


def judge(table: Rows) -> Verdict:
    """Refuted when an error passes its bound, when the sharpest head passes the worst case, or when refining does not
    shrink the error. With limits when the sharpest head is not the best of the sweep; else it holds.
    """
    sharp, words, finite = max(table.of("c")), [], []
    wrong = table.fails(lambda row: row["error"] <= row["proved"] < math.inf)
    faults = wrong.say("a measured error is above its bound (P = {P}, c = {c:g})")
    faults += table.where(c=sharp).above("error", "worst_case").say("the sharpest heads break the worst case (P = {P})")
    for layout, here in table.by("layout"):
        best = Rows(rows.best("error") for _, rows in here.by("P"))
        hard = Rows(rows.where(c=sharp)[0] for _, rows in here.by("P"))
        finite += [b["error"] <= 0.9 * s["error"] for b, s in zip(best, hard, strict=True)]
        if not all(b["error"] < a["error"] for a, b in pairwise(hard)):
            faults.append("refining the grid does not shrink the error")
        rates = [rows.slope("P", "error") for rows in (hard, best)]
        where_best = ", ".join(f"{c:g}" for c in sorted(best.distinct("c")))
        words.append(
            f"Centres at {layout}: with c = R h² = {sharp:g} the error falls like P^{rates[0]:.2f} to "
            f"{hard[-1]['error']:.3g} at P = {hard[-1]['P']} (worst case {hard[-1]['worst_case']:.3g}); the best c of "
            f"the sweep is {where_best}, where it falls like P^{rates[1]:.2f} to {best[-1]['error']:.3g}, proved "
            f"{best[-1]['proved']:≤3}: {hard[-1]['error'] / best[-1]['error']:.1f} times less with the same keys."
        )
    limit = (
        "Refining the partition does approximate, at the stated rate; but sending R to infinity is not part of it: "
        "there is a finite best temperature, the sharp limit loses what averaging neighbours gains."
    )
    end = "The sharpest temperature is the best, and refining it approximates at the rate."
    return decided(words, faults, limit if any(finite) else "", end)


def draw(table: Rows) -> Any:
    figure, (left, right) = panels(2)
    ends, sharp = table.where(layout="ends") or table, max(table.of("c"))
    curve(left, ends, "c", "error", "o-", by="P", ms=3, label="P = {P}")
    curve(left, ends, "c", "proved", "_", by="P", ms=9, mew=1.5)
    note = "dots: measured; bars: proved; centres include both ends"
    texts = ("c = R h²  (inverse temperature)", "sup error")
    labelled(left, "A finite temperature is best", note, *texts, log="xy", legend={"ncols": 2})
    for colour, (layout, here) in coloured(table.by("layout")):
        hard, best = here.where(c=sharp), Rows(rows.best("error") for _, rows in here.by("P"))
        label = f"centres at {layout}"
        curve(right, hard, "P", "error", "s--", color=colour, ms=4, label=f"{label}, sharp")
        curve(right, best, "P", "error", "o-", color=colour, ms=4, label=f"{label}, best c")
        curve(right, best, "P", "proved", "_", color=colour, ms=12, mew=2)
        curve(right, hard, "P", "worst_case", ":", color=colour, lw=1, label=f"{label}, worst case")
    note, texts = f"sharp: c = {sharp:g}; bars: proved at the best c", ("centres per axis P", "sup error")
    labelled(right, "sin x + cos y by P² keys", note, *texts, log="xy", xticks=table.distinct("P"))
    return figure


STUDY = described(
    __name__,
    resolutions=([4, 6], [5, 9, 17, 33], [5, 9, 17, 33, 65]),
    temperatures=(
        [4.0, 200.0],
        [1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 20.0, 200.0, 2000.0],
        [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 10, 12, 16, 20, 50, 200, 2000],
    ),
)
