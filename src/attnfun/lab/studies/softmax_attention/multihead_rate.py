"""H heads of n points interpolate a truncated linear function at the rate 1/(nH).

Claim. H softmax heads of n interpolation points are within max(|a|, |b|) ε₀ + (b − a)/((n − 2)H) of clip(w·x + t, a,
b); the authors train such heads and expect the error to fall like 1/H.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, multi-head theorem and truncated-linear experiments; the
weights and the chain of heads are our own.

Do H heads of n points meet a truncated linear function to 1/(nH), constructed and trained?

Constructed heads (the published midpoints with end caps, and a chain of heads at the best temperature) with proved
bounds on a grid of (n, H); the published heads at temperatures that are too soft; and all weights of the same heads set
free and trained, from random starts and from the published weights.

Columns.
    way: published (midpoints, end caps), chain (each head its own stretch, best temperature), soft (published at
        another temperature), learned (random start), continued (trained from the published weights)
    n: points a head
    heads: H
    sharpness: βΔ²; none where it is trained
    seed: of training
    spacing: Δ of the construction with this n and H
    error: sup error: measured on a grid and at the worst point known; for trained heads at 28,000 points
    proved: bound proved from the stored weights
    published: the theorem's bound
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, STYLES, coloured, curve, panels, styled, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, slope, values, where

LOW, HIGH = -2.0, 3.0
BUILT = ("published", "chain")
LEARNED = ("learned", "continued")
NEAR = 0.05  # what a measured exponent may differ from -1
FOLLOWS = -0.7  # a trained exponent above this is not the rate 1/H


def units(size: Size) -> list[Unit]:
    heads = size["heads"]
    base = {"sharpness": None, "seed": None, "steps": 0}
    n = size["trained_points"]
    made: list[Unit] = [{**base, "way": way, "n": n, "heads": heads} for way in BUILT for n in size["points"]]
    made += [{**base, "way": "soft", "n": n, "heads": heads, "sharpness": c} for c in size["soft"]]
    for way, counts, seeds in (("learned", "trained_heads", size["seeds"]), ("continued", "continued_heads", 1)):
        made += [
            {**base, "way": way, "n": n, "heads": [H], "seed": seed, "steps": size["steps"]}
            for H in size[counts]
            for seed in range(seeds)
        ]
    return made


def run(unit: Unit) -> list[Row]:
    rows = []
    for H in unit["heads"]:
        variant = "optimal" if unit["way"] == "chain" else "published"
        net = af.interpolation(LOW, HIGH, unit["n"], heads=H, variant=variant, sharpness=unit["sharpness"])
        error: float = af.parts.measured_error(net)
        bound: float | None = net.certificate.error[1]
        if unit["way"] in LEARNED:
            start, lr = ("constructed", 1e-3) if unit["way"] == "continued" else ("random", 2e-2)
            count = unit["steps"]  # of Adam, and as many of LBFGS
            options = {"steps": count, "polish": count, "batch": 256, "lr": lr, "proof": False}
            learned = af.train(net, seed=unit["seed"], start=start, **options)
            error, bound = learned.sampled.error[0], None
        rows.append(
            {
                "heads": H,
                "sharpness": None if unit["way"] in LEARNED else float(net.story["sharpness"]),
                "spacing": float(net.story["spacing"]),
                "error": error,
                "proved": bound,
                "published": float(net.story["published bound"]),
            }
        )
    return rows


def _rates(rows: list[Row], along: str, fixed: str) -> list[float]:
    """Exponents of the error in the heads, or in the points between the caps, for every value of the other."""
    found = []
    for value in distinct(rows, fixed):
        line = where(rows, **{fixed: value})
        if len(line) > 1:
            xs = [row["heads"] if along == "heads" else row["n"] - 2 for row in line]
            found.append(slope(xs, values(line, "error")))
    return found


def judge(table: Table) -> Verdict:
    """Refuted when an error passes its proved bound or a bound the published one, or the published heads miss 1/(nH).

    With limits when training at equal (n, H) does not follow the rate.
    """
    built = [row for row in table if row["way"] in BUILT]
    published = where(table, way="published")
    wrong = [row for row in built if not row["error"] <= row["proved"] <= row["published"] * (1 + 1e-6)]
    rates = _rates(published, "heads", "n") + _rates(published, "n", "heads")
    off = [rate for rate in rates if not abs(rate + 1) <= NEAR]
    halves = [row["error"] / row["spacing"] for row in published]
    best = [row["error"] / row["spacing"] for row in where(table, way="chain")]
    words = (
        f"At every one of {len(published)} pairs (n, H) the published heads are {min(halves):.4f} to {max(halves):.4f} "
        f"of the spacing (b − a)/((n − 2)H) off, exponents in H and in n − 2 from {min(rates, default=-1):.3f} to "
        f"{max(rates, default=-1):.3f}; heads that each truncate a stretch of their own, at the best temperature, "
        f"{max(best):.3f} of theirs, all below their proved bounds. "
    )
    if wrong or off:
        fault = "an exponent is not −1"
        if wrong:
            row = wrong[0]
            fault = (
                f"{row['way']} heads (n = {row['n']}, H = {row['heads']}) have the error {row['error']:.4g}, proved "
                f"{row['proved']:.4g}, published {row['published']:.4g}"
            )
        return Verdict(REFUTED, f"Refuted: {fault}.", words)
    soft = where(table, way="soft")
    for c in sorted(distinct(soft, "sharpness")):
        line = where(soft, sharpness=c)
        few, many = line[0], line[-1]
        if len(line) > 1 and not many["error"] <= 0.6 * many["spacing"]:
            words += (
                f"Failure mode: at βΔ² = {c:g} the caps leak, {many['error']:.2g} at H = {many['heads']} after "
                f"{few['error']:.2g} at H = {few['heads']} ({many['error'] / many['spacing']:.1f} spacings). "
            )
    trained = where(table, way="learned")
    heads = distinct(trained, "heads")
    middle = {H: median(values(where(trained, heads=H), "error")) for H in heads}
    rate = slope(heads, list(middle.values()))
    for H in heads:
        errors = values(where(trained, heads=H), "error")
        beside = [row["error"] for way in BUILT for row in where(table, way=way, heads=H, n=trained[0]["n"])]
        words += f"Trained, H = {H}: {min(errors):.2g} / {middle[H]:.2g} / {max(errors):.2g} over the seeds"
        words += f" (constructed {' and '.join(f'{e:.2g}' for e in beside)}). " if beside else ". "
    words += f"The median of trained heads goes like H^{rate:.2f}. "
    going = where(table, way="continued")
    if going:
        gain = median(row["error"] / row["spacing"] for row in going)
        words += f"Descent from the published weights ends at a median of {gain:.2f} spacings. "
    if not rate <= FOLLOWS:
        return Verdict(LIMITS, "The rate is the construction's: more heads do not help descent as they should.", words)
    return Verdict(HOLDS, "Constructed and trained heads both follow the rate.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=2)
    ax = axes[0, 0]
    for colour, way in coloured(BUILT):
        rows = sorted(where(table, way=way), key=lambda row: (row["n"] - 2) * row["heads"])
        cells = [(row["n"] - 2) * row["heads"] for row in rows]
        ax.loglog(cells, values(rows, "error"), "o", color=colour, ms=4, label=f"{way}: measured")
        ax.loglog(cells, values(rows, "proved"), "_", color=colour, ms=12, mew=1.5, label=f"{way}: proved")
    rows = sorted(where(table, way="published"), key=lambda row: (row["n"] - 2) * row["heads"])
    ax.loglog(
        [(row["n"] - 2) * row["heads"] for row in rows], values(rows, "published"), "k--", lw=1, label="published bound"
    )
    ax.set(xlabel="points between caps, (n − 2)H", ylabel="sup error")
    ax.legend(fontsize=7, frameon=False)
    title(ax, "clip(x, −2, 3) by H heads of n points", "constructed: every split of n against H")
    ax = axes[0, 1]
    trained = where(table, way="learned")
    n = trained[0]["n"]
    for colour, way in coloured(BUILT):
        rows = where(table, way=way, n=n)
        curve(ax.loglog, rows, "heads", "error", "o-", color=colour, ms=4, label=way)
    for style, c in styled(sorted(distinct(where(table, way="soft"), "sharpness")), STYLES[1:]):
        rows = where(table, way="soft", sharpness=c)
        curve(ax.loglog, rows, "heads", "error", ls=style, color="#52606d", label=f"published at βΔ² = {c:g}")
    curve(ax.loglog, trained, "heads", "error", "x", color=NETWORKS[4], label="learned, each seed")
    rows = where(table, way="continued")
    curve(ax.loglog, rows, "heads", "error", "s", mfc="none", color=NETWORKS[3], label="from published")
    ax.set(xlabel="heads H", ylabel="sup error", xticks=distinct(table, "heads"))
    ax.set_xticks([], minor=True)
    ax.set_xticklabels([str(H) for H in distinct(table, "heads")])
    ax.set_ylim(bottom=min(values(table, "error")) / 12)
    ax.legend(fontsize=7, frameon=False, ncols=2, loc="lower left")
    title(ax, f"n = {n} points a head", "too soft a temperature, and what descent finds")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        points=([4, 6], [3, 6, 10], [3, 4, 6, 10, 18]),
        heads=([1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 16, 32]),
        soft=([1.0], [0.5, 1.0, 3.0], [0.25, 0.5, 1.0, 2.0, 3.0, 10.0]),
        trained_points=(4, 6, 6),
        trained_heads=([1], [1, 2, 4, 8], [1, 2, 4, 8, 16]),
        continued_heads=([1], [1, 4], [1, 4, 8]),
        seeds=(1, 3, 3),
        steps=(10, 300, 600),
    ),
    needs=("torch",),
    full_time="5 minutes of CPU",
)
