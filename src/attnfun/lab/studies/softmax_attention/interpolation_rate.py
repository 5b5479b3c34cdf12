"""One head interpolates a truncated linear function at the rate 1/p.

Claim. A softmax head with p interpolation points is within max(|a|, |b|) ε₀ + (b − a)/p of clip(w·x + t, a, b).

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, single-head theorem; the two other grids are our own.

Does one head of p interpolation points meet a truncated linear function to 1/p?

Constructed heads with their proved bounds at every p, on the published grid, with both ends as points, and at the best
temperature; and heads of the same p keys with all weights free, trained from random starts.

A full run takes 3 minutes of CPU.

Columns.
    way: published, inclusive (both ends are points), optimal (best temperature), or learned
    p: keys
    seed: of the random start; none where weights are constructed
    error: sup error: measured on a grid and at the worst point known; for learned heads at 20,000 points
    proved: ≤ bound proved from the stored weights
    published: ≤ the theorem's bound
"""

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, Figure, coloured, curve, labelled, legend_below, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

LOW, HIGH = -2.0, 3.0
BUILT = ("published", "inclusive", "optimal")


def units(size: Size) -> list[Unit]:
    seeds = range(size["seeds"])
    learned = crossed(way="learned", p=size["trained_points"], seed=seeds, steps=size["steps"])
    return crossed(way=BUILT, p=size["points"], seed=None, steps=0) + learned


def run(unit: Unit) -> Row:
    if unit["way"] != "learned":
        row = af.interpolation_table(LOW, HIGH, [unit["p"]], variants=[unit["way"]])[0]
        return {"error": row.measured, "proved": row.proved, "published": row.published}
    target = af.interpolation(LOW, HIGH, unit["p"], variant="optimal").target
    options = {"steps": unit["steps"], "seed": unit["seed"], "polish": unit["steps"] // 10, "proof": False}
    learned = af.train(af.Architecture.one_head(("x",), unit["p"]), target, **options)
    return {"error": learned.sampled.error[0]}


def judge(table: Rows) -> Verdict:
    """Holds when every constructed bound is above its error, and falls like 1/p, within the published one on its grid.

    With limits when a rate is off by more than a tenth in the exponent; refuted when an error is above its bound.
    """
    built = table.where(way=BUILT)
    wrong = built.above("error", "proved")
    wrong += table.where(way="published").fails(lambda row: row["proved"] <= row["published"] * (1 + 1e-6))
    faults = wrong.say("at p = {p} ({way}) the error {error:.4g} or its bound breaks its limit")
    rates = {way: rows.slope("p", "error") for way, rows in built.by("way")}
    best = table.where(way="optimal")[-1]["error"] / ((HIGH - LOW) / max(built.of("p")))
    words = [
        f"Constructed heads fall like p^{rates['published']:.2f} on the published grid, like "
        f"p^{rates['inclusive']:.2f} with both ends as points and like p^{rates['optimal']:.2f} at the best "
        f"temperature, where the error is {best:.3f} of the spacing."
    ]
    for p, learned in table.where(way="learned").by("p"):
        text = "Trained heads with {p} free keys: median {learned:.2g}, constructed {error:.2g}."
        words += table.where(way="optimal", p=p).say(text, learned=learned.median("error"))
    limit = "Every bound holds, but a rate is not 1/p within a tenth of the exponent."
    near = all(abs(rate + 1) <= 0.1 for rate in rates.values())
    return decided(words, faults, "" if near else limit, "Every bound is above its error, and every rate is 1/p.")


def draw(table: Rows) -> Figure:
    figure, [ax] = panels(height=4.6)
    for colour, (way, rows) in coloured(table.where(way=BUILT).by("way")):
        curve(ax, rows, "p", "error", "o-", color=colour, ms=4, label=f"{way}: measured")
        curve(ax, rows, "p", "proved", "_", color=colour, ms=14, mew=2, label=f"{way}: proved")
    curve(ax, table.where(way="published"), "p", "published", "k--", lw=1, label="published bound")
    curve(ax, table.where(way="learned"), "p", "error", "x", color=NETWORKS[4], label="learned, each seed")
    legend_below(figure, ax, ncols=3, fontsize=7)
    note = "constructed, proved, and learned with the same number of keys"
    labelled(ax, "clip(x, −2, 3) by one head", note, "keys p", "sup error", log="xy", legend=None)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    points=([4, 8], [8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256, 512]),
    trained_points=([4], [8, 16, 32], [8, 16, 32, 64]),
    seeds=(1, 3, 5),
    steps=(6, 1500, 4000),
)
