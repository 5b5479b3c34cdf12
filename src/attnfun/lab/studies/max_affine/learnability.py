"""Learned against constructed at equal keys.

Claim. The theorem gives weights and no way to learn them. Whether gradient descent reaches, with as many keys, what
the construction promises, and by the same partition, is left open.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (existence, not learnability); constructed heads are our own.

What gradient descent reaches with the keys of a constructed head, in two and three variables.

For every target one head is constructed by `bernstein`; a partition has the same grid of keys, at two temperatures.
Then the same number of keys is trained: with the wiring of the grid (an axis reads one variable, so the checker can
prove a bound for what was learned) and unstructured, from random starts; and from both constructions.

Columns.
    target: function
    d: variables
    keys: keys of the head, the same for all ways
    way: constructed, trained from a random start, or trained from a construction
    seed: of a trained head
    error: sup error measured at 20,000 points, corners and edges
    proved: bound proved from the weights, where the checker has a method for them
    norm_mean: mean key norm
    effective_keys: exp(entropy) of the attention, averaged over points
    value_max: largest value
    best_step: the step that was best on the probe, and returned; 0 is the start
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

CUBE = "x=-1:1;y=-1:1;z=-1:1"
TARGETS = {
    "sin(pi*x) + cos(pi*y)": "x=-1:1;y=-1:1",
    "sin(3*x) + cos(2*y)*exp(x*y)": "x=-1:1;y=-1:1",
    "sin(2*x)*cos(y + z) + exp(x*y*z)": CUBE,
}
CONSTRUCTED = ("bernstein", "soft partition", "sharp partition")
RANDOM = ("random start, grid of keys", "random start, free keys")
STARTED = ("from bernstein", "from soft partition")
TEMPERATURES = {"soft partition": 5.0, "sharp partition": 200.0}


def units(size: Size) -> list[Unit]:
    made = []
    for text, eps in zip(TARGETS, size["eps"], strict=False):
        fixed = {"target": text, "eps": eps, "steps": size["steps"], "polish": size["polish"]}
        made += [{"way": way, "seed": None, **fixed} for way in CONSTRUCTED]
        made += [{"way": way, "seed": seed, **fixed} for way in RANDOM for seed in range(size["seeds"])]
        made += [{"way": way, "seed": 0, **fixed} for way in STARTED]
    return made


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.max_affine.heads import partition_head, sharpness, sup_error

    way = unit["way"]
    made = af.compile(unit["target"], TARGETS[unit["target"]], unit["eps"], method="bernstein")
    function, grid = made.target, made.network.layers[0].attention[0].grid
    if way in CONSTRUCTED:
        network = made.network if way == "bernstein" else partition_head(function, grid, TEMPERATURES[way])
        certificate = made.certificate if way == "bernstein" else af.parts.prove(network, function)
        best = None
    else:
        start: Any = "random"
        if way == "from bernstein":
            start = made
        elif way == "from soft partition":
            start = partition_head(function, grid, TEMPERATURES["soft partition"])
        free = way == "random start, free keys"
        learned = af.train(
            af.Architecture.one_head(function.box.names, made.cost.keys) if free else made.architecture,
            function,
            steps=unit["steps"],
            polish=unit["polish"],
            seed=unit["seed"],
            start=start,
            lr=1e-4 if way == "from bernstein" else 0.03,
            batch=128,
            proof=not free,
        )
        network, certificate, best = learned.network, learned.certificate, learned.fit.best_step
    proved = certificate.status.value in ("proved", "bounded") and math.isfinite(certificate.error[1])
    mean, _, shared = sharpness(network, function)
    return [
        {
            "d": function.box.dim,
            "keys": network.cost.keys,
            "error": sup_error(network, function),
            "proved": certificate.error[1] if proved else None,
            "norm_mean": mean,
            "effective_keys": shared,
            "value_max": network.cost.max_value,
            "best_step": best,
        }
    ]


def judge(table: Table) -> Verdict:
    """Holds when random starts come, in the median, within twice the error of the better constructed head; with limits
    when they only come below that of the partitions; refuted when they do not, or a bound lies below an error.
    """
    good, fair, kept, words = [], [], [], ""
    wrong = [row for row in table if row["proved"] is not None and not row["error"] <= row["proved"]]
    for text in distinct(table, "target"):
        here = where(table, target=text)
        best = where(here, way="bernstein")[0]
        partition = min((row for row in here if row["way"] in TEMPERATURES), key=lambda row: row["error"])
        found = {way: sorted(values(where(here, way=way), "error")) for way in RANDOM}
        reached = min(median(errors) for errors in found.values())
        good.append(reached <= 2 * best["error"])
        fair.append(reached < partition["error"])
        for way in STARTED:
            begun = where(here, way=way.removeprefix("from "))[0]["error"]
            kept.append(where(here, way=way)[0]["error"] <= begun * (1 + 1e-9))
        words += (
            f"{text}, {best['keys']} keys: constructed {best['error']:.2g} (proved {best['proved']:.2g}), partition "
            f"{partition['error']:.2g}; "
            + "; ".join(f"{way} {median(e):.2g} ({e[0]:.2g} to {e[-1]:.2g})" for way, e in found.items())
            + "; "
            + "; ".join(f"{way} {where(here, way=way)[0]['error']:.2g}" for way in STARTED)
            + ". "
        )
    random = [row for row in table if row["way"] in RANDOM]
    sharp = [row for row in table if row["way"] == "soft partition"]
    norms, far = median(values(random, "norm_mean")), median(values(sharp, "norm_mean"))
    words += (
        f"Learned heads share a point among {median(values(random, 'effective_keys')):.0f} keys (the partitions among "
        f"{median(values(sharp, 'effective_keys')):.1f}), with mean key norms of {norms:.1f} ({far:.0f}): what is "
        f"learned is {'no' if norms < far / 2 else 'like the'} partition. "
    )
    if wrong or not all(fair):
        why = "a measured error is above its bound" if wrong else "random starts do not even reach the partition"
        return Verdict(REFUTED, f"Refuted: {why}.", words)
    if all(good):
        return Verdict(HOLDS, "Random starts reach the constructed heads.", words)
    return Verdict(
        LIMITS,
        "From random starts gradient descent beats the partition of as many keys and stays above what those keys "
        f"can do; from constructed starts it keeps or improves what it was given in {sum(kept)} of {len(kept)} runs.",
        words,
    )


def draw(table: Table) -> Any:
    names = distinct(table, "target")
    figure, axes = panels(len(names), 1, 4.4, 4.2)
    ways = (*CONSTRUCTED, *RANDOM, *STARTED)
    for place, (ax, text) in enumerate(zip(axes[0], names, strict=True)):
        here = where(table, target=text)
        for k, way in enumerate(ways):
            rows = where(here, way=way)
            colour = NETWORKS[0] if way in CONSTRUCTED else NETWORKS[4] if way in RANDOM else NETWORKS[1]
            ax.semilogx(values(rows, "error"), [k] * len(rows), "o", color=colour, ms=5, alpha=0.7)
            bounds = [row["proved"] for row in rows if row["proved"] is not None]
            ax.semilogx(bounds, [k] * len(bounds), "|", color="#102a43", ms=12, mew=1.5)
        ax.set_yticks(range(len(ways)), ways if place == 0 else [""] * len(ways), fontsize=8)
        ax.invert_yaxis()
        ax.set(xlabel="sup error")
        title(ax, text, f"{here[0]['keys']} keys; dots: measured, bars: proved")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        eps=([0.1], [1e-3, 1e-3, 1e-2], [1e-3, 1e-3, 1e-2]), seeds=(1, 3, 5), steps=(6, 700, 2000), polish=(0, 80, 200)
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
