"""H heads of n points interpolate a truncated linear function at the rate 1/(nH).

Claim. H softmax heads of n interpolation points are within max(|a|, |b|) ε₀ + (b − a)/((n − 2)H) of clip(w·x + t, a,
b); the authors train such heads and expect the error to fall like 1/H.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, multi-head theorem and truncated-linear experiments; the
weights and the chain of heads are our own.

Do H heads of n points meet a truncated linear function to 1/(nH), constructed and trained?

Constructed heads (the published midpoints with end caps, and a chain of heads at the best temperature) with proved
bounds on a grid of (n, H); the published heads at temperatures that are too soft; and all weights of the same heads set
free and trained, from random starts and from the published weights.

A full run takes 5 minutes of CPU.

Columns.
    way: published (midpoints, end caps), chain (each head its own stretch, best temperature), soft (published at
        another temperature), learned (random start), continued (trained from the published weights)
    n: points per head
    heads: H
    sharpness: βΔ²; none where it is trained
    seed: of training
    spacing: Δ of the construction with this n and H
    error: sup error: measured on a grid and at the worst point known; for trained heads at 28,000 points
    proved: ≤ bound proved from the stored weights
    published: ≤ the theorem's bound
"""

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, SLATE, STYLES, Figure, coloured, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, slope

LOW, HIGH = -2.0, 3.0
BUILT = ("published", "chain")
LEARNED = ("learned", "continued")
NEAR = 0.05  # what a measured exponent may differ from -1
FOLLOWS = -0.7  # a trained exponent above this is not the rate 1/H


def units(size: Size) -> list[Unit]:
    base: Unit = {"sharpness": None, "seed": None, "steps": 0, "heads": [size["heads"]]}
    made = crossed(way=BUILT, n=size["points"], **base)
    made += crossed(way="soft", n=size["trained_points"], **base | {"sharpness": size["soft"]})
    trained = {"n": size["trained_points"], "steps": size["steps"], "sharpness": None}
    for way, counts, seeds in (("learned", "trained_heads", size["seeds"]), ("continued", "continued_heads", 1)):
        made += crossed(way=way, heads=[[H] for H in size[counts]], seed=range(seeds), **trained)
    return made


def run(unit: Unit) -> list[Row]:
    rows = []
    for H in unit["heads"]:
        variant = "optimal" if unit["way"] == "chain" else "published"
        net = af.interpolation(LOW, HIGH, unit["n"], heads=H, variant=variant, sharpness=unit["sharpness"])
        row = {"heads": H, "spacing": float(net.story["spacing"]), "published": float(net.story["published bound"])}
        if unit["way"] in LEARNED:
            start, lr = ("constructed", 1e-3) if unit["way"] == "continued" else ("random", 2e-2)
            count = unit["steps"]  # of Adam, and as many of LBFGS
            options = {"steps": count, "polish": count, "batch": 256, "lr": lr, "proof": False}
            learned = af.train(net, seed=unit["seed"], start=start, **options)
            rows.append(row | {"error": learned.sampled.error[0]})
        else:
            row |= {"error": af.parts.measured_error(net), "proved": net.certificate.error[1]}
            rows.append(row | {"sharpness": float(net.story["sharpness"])})
    return rows


def judge(table: Rows) -> Verdict:
    """Refuted when an error passes its proved bound or a bound the published one, or the published heads miss 1/(nH).

    With limits when training at equal (n, H) does not follow the rate.
    """
    published, trained = table.where(way="published"), table.where(way="learned")
    wrong = table.where(way=BUILT).fails(lambda row: row["error"] <= row["proved"] <= row["published"] * (1 + 1e-6))
    text = "{way} heads (n = {n}, H = {heads}) have the error {error:.4g}, proved {proved:≤4}"
    faults = wrong.say(text + ", published {published:≤4}")
    rates = [rows.slope("heads", "error") for _, rows in published.by("n") if len(rows) > 1]
    rates += [rows.slope(lambda row: row["n"] - 2, "error") for _, rows in published.by("heads") if len(rows) > 1]
    if not all(abs(rate + 1) <= NEAR for rate in rates):
        faults.append("an exponent is not −1")
    best = max(row["error"] / row["spacing"] for row in table.where(way="chain"))
    words = [
        f"At every one of {len(published)} pairs (n, H) the published heads are "
        f"{published.span(lambda row: row['error'] / row['spacing'], '.4f')} of the spacing (b − a)/((n − 2)H) off, "
        f"exponents in H and in n − 2 from {min(rates, default=-1):.3f} to {max(rates, default=-1):.3f}; heads that "
        f"each truncate a stretch of their own, at the best temperature, {best:.3f} of theirs, all below their proved "
        "bounds."
    ]
    if faults:
        return decided(words, refuted=faults)
    for c, line in sorted(table.where(way="soft").by("sharpness"), key=lambda group: group[0]):
        few, many = line[0], line[-1]
        if len(line) > 1 and not many["error"] <= 0.6 * many["spacing"]:
            words.append(
                f"Failure mode: at βΔ² = {c:g} the caps leak, {many['error']:.2g} at H = {many['heads']} after "
                f"{few['error']:.2g} at H = {few['heads']} ({many['error'] / many['spacing']:.1f} spacings)."
            )
    middle = {H: rows.median("error") for H, rows in trained.by("heads")}
    for H, rows in trained.by("heads"):
        beside = [row["error"] for way in BUILT for row in table.where(way=way, heads=H, n=trained[0]["n"])]
        other = f" (constructed {' and '.join(f'{e:.2g}' for e in beside)})" if beside else ""
        words.append(f"Trained, H = {H}: median {rows.middle('error')} over the seeds{other}.")
    rate = slope(list(middle), list(middle.values()))
    words.append(f"The median of trained heads goes like H^{rate:.2f}.")
    if going := table.where(way="continued"):
        gain = going.median(lambda row: row["error"] / row["spacing"])
        words.append(f"Descent from the published weights ends at a median of {gain:.2f} spacings.")
    limit = "The rate is the construction's: more heads do not help descent as they should."
    end = "Constructed and trained heads both follow the rate."
    return decided(words, limits="" if rate <= FOLLOWS else limit, holds=end)


def draw(table: Rows) -> Figure:
    figure, (left, right) = panels(2)
    built = table.where(way=BUILT).sorted(_cells)
    for colour, way in coloured(BUILT):
        rows = built.where(way=way)
        curve(left, rows, _cells, "error", "o", color=colour, ms=4, label=f"{way}: measured")
        curve(left, rows, _cells, "proved", "_", color=colour, ms=12, mew=1.5, label=f"{way}: proved")
    curve(left, built.where(way="published"), _cells, "published", "k--", lw=1, label="published bound")
    texts = ("constructed: every split of n against H", "points between caps, (n − 2)H", "sup error")
    labelled(left, "clip(x, −2, 3) by H heads of n points", *texts, log="xy")
    trained, soft = table.where(way="learned"), table.where(way="soft")
    n = trained[0]["n"]
    curve(right, table.where(way=BUILT, n=n), "heads", "error", "o-", by="way", ms=4, label="{way}")
    for style, c in coloured(sorted(soft.distinct("sharpness")), STYLES[1:]):
        rows, label = soft.where(sharpness=c), f"published at βΔ² = {c:g}"
        curve(right, rows, "heads", "error", "", ls=style, color=SLATE, label=label)
    curve(right, trained, "heads", "error", "x", color=NETWORKS[4], label="learned, each seed")
    going = table.where(way="continued")
    curve(right, going, "heads", "error", "s", mfc="none", color=NETWORKS[3], label="from published")
    texts = ("too soft a temperature, and what descent finds", "heads H", "sup error")
    shape = {"xticks": table.distinct("heads"), "ylim": (min(table.of("error")) / 12, None)}
    labelled(right, f"n = {n} points per head", *texts, log="xy", legend={"ncols": 2, "loc": "lower left"}, **shape)
    return figure


def _cells(row: Row) -> int:
    return int((row["n"] - 2) * row["heads"])


STUDY = described(
    __name__,
    needs=("torch",),
    points=([4], [3, 6, 10], [3, 4, 6, 10, 18]),
    heads=([1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 16, 32]),
    soft=([1.0], [0.5, 1.0, 3.0], [0.25, 0.5, 1.0, 2.0, 3.0, 10.0]),
    trained_points=(4, 6, 6),
    trained_heads=([1], [1, 2, 4, 8], [1, 2, 4, 8, 16]),
    continued_heads=([1], [1, 4], [1, 4, 8]),
    seeds=(1, 3, 3),
    steps=(4, 300, 600),
)
