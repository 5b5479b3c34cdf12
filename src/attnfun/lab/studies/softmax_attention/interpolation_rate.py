"""One head interpolates a truncated linear function at the rate 1/p.

Claim. A softmax head with p interpolation points is within max(|a|, |b|) ε₀ + (b − a)/p of clip(w·x + t, a, b).

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, single-head theorem; the two other grids are our own.

Does one head of p interpolation points meet a truncated linear function to 1/p?

Constructed heads with their proved bounds at every p, on the published grid, with both ends as points, and at the best
temperature; and heads of the same p keys with all weights free, trained from random starts.

Columns.
    way: published, inclusive (both ends are points), optimal (best temperature), or learned
    p: keys
    seed: of the random start; none where weights are constructed
    error: sup error: measured on a grid and at the worst point known; for learned heads at 20,000 points
    proved: bound proved from the stored weights
    published: the theorem's bound
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, slope, values, where

LOW, HIGH = -2.0, 3.0
BUILT = ("published", "inclusive", "optimal")


def units(size: Size) -> list[Unit]:
    built = [{"way": way, "p": p, "seed": None, "steps": 0} for way in BUILT for p in size["points"]]
    trained = [
        {"way": "learned", "p": p, "seed": seed, "steps": size["steps"]}
        for p in size["trained_points"]
        for seed in range(size["seeds"])
    ]
    return built + trained


def run(unit: Unit) -> list[Row]:
    if unit["way"] == "learned":
        net = af.interpolation(LOW, HIGH, unit["p"], variant="optimal")
        architecture = af.Architecture.one_head(("x",), unit["p"])
        learned = af.train(
            architecture, net.target, steps=unit["steps"], seed=unit["seed"], polish=unit["steps"] // 10, proof=False
        )
        error, bound, published = learned.sampled.error[0], None, None
    else:
        row = af.interpolation_table(LOW, HIGH, [unit["p"]], variants=[unit["way"]])[0]
        error, bound, published = row.measured, row.proved, row.published
    return [{"error": error, "proved": bound, "published": published}]


def judge(table: Table) -> Verdict:
    """Holds when every constructed bound is above its error, and falls like 1/p, within the published one on its grid.

    With limits when a rate is off by more than a tenth in the exponent; refuted when an error is above its bound.
    """
    built = [row for row in table if row["way"] != "learned"]
    wrong = [row for row in built if not row["error"] <= row["proved"]]
    above = [row for row in where(table, way="published") if not row["proved"] <= row["published"] * (1 + 1e-6)]
    rates = {way: slope(values(rows, "p"), values(rows, "error")) for way in BUILT if (rows := where(table, way=way))}
    spacing = (HIGH - LOW) / max(values(built, "p"))
    best = where(table, way="optimal")[-1]["error"] / spacing
    words = (
        f"Constructed heads fall like p^{rates['published']:.2f} on the published grid, like "
        f"p^{rates['inclusive']:.2f} with both ends as points and like p^{rates['optimal']:.2f} at the best "
        f"temperature, where the error is {best:.3f} of the spacing. "
    )
    ps = distinct(where(table, way="learned"), "p")
    for p in ps:
        learned = median(values(where(table, way="learned", p=p), "error"))
        rows = where(table, way="optimal", p=p)
        if rows:
            words += f"Trained heads with {p} free keys: median {learned:.2g}, constructed {rows[0]['error']:.2g}. "
    if wrong or above:
        row = (wrong or above)[0]
        fault = f"at p = {row['p']} ({row['way']}) the error {row['error']:.4g} or its bound breaks its limit"
        return Verdict(REFUTED, f"Refuted: {fault}.", words)
    if not all(abs(rate + 1) <= 0.1 for rate in rates.values()):
        return Verdict(LIMITS, "Every bound holds, but a rate is not 1/p within a tenth of the exponent.", words)
    return Verdict(HOLDS, "Every bound is above its error, and every rate is 1/p.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(height=4.6)
    ax = axes[0, 0]
    for colour, way in coloured(BUILT):
        rows = where(table, way=way)
        curve(ax.loglog, rows, "p", "error", "o-", color=colour, ms=4, label=f"{way}: measured")
        curve(ax.loglog, rows, "p", "proved", "_", color=colour, ms=14, mew=2, label=f"{way}: proved")
    rows = where(table, way="published")
    curve(ax.loglog, rows, "p", "published", "k--", lw=1, label="published bound")
    rows = where(table, way="learned")
    curve(ax.loglog, rows, "p", "error", "x", color="#7a4fbf", label="learned, each seed")
    ax.set(xlabel="keys p", ylabel="sup error")
    figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    title(ax, "clip(x, −2, 3) by one head", "constructed, proved, and learned with the same number of keys")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        points=([8, 16], [8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256, 512]),
        trained_points=([8], [8, 16, 32], [8, 16, 32, 64]),
        seeds=(1, 3, 5),
        steps=(60, 1500, 4000),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
