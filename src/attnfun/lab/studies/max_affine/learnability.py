"""Learned against constructed at equal keys.

Claim. The theorem gives weights and no way to learn them. Whether gradient descent reaches, with as many keys, what
the construction promises, and by the same partition, is left open.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (existence, not learnability); constructed heads are our own.

What gradient descent reaches with the keys of a constructed head, in two and three variables.

For every target one head is constructed by `bernstein`; a partition has the same grid of keys, at two temperatures.
Then the same number of keys is trained: with the wiring of the grid (an axis reads one variable, so the checker can
prove a bound for what was learned) and unstructured, from random starts; and from both constructions.

A full run takes 3 minutes of CPU.

Columns.
    target: function
    d: variables
    keys: keys of the head, the same for all ways
    way: constructed, trained from a random start, or trained from a construction
    seed: of a trained head
    error: sup error measured at 20,000 points, corners and edges
    proved: ≤ bound proved from the weights, where the checker has a method for them
    norm_mean: mean key norm
    effective_keys: exp(entropy) of the attention, averaged over points
    value_max: largest value
    best_step: the step that was best on the probe, and returned; 0 is the start
"""

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, curve, labelled, panels_by
from attnfun.lab.studies.max_affine.heads import partition_head, sharpness, sup_error
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

TARGETS = {
    "sin(pi*x) + cos(pi*y)": "x=-1:1;y=-1:1",
    "sin(3*x) + cos(2*y)*exp(x*y)": "x=-1:1;y=-1:1",
    "sin(2*x)*cos(y + z) + exp(x*y*z)": "x=-1:1;y=-1:1;z=-1:1",
}
CONSTRUCTED = ("bernstein", "soft partition", "sharp partition")
RANDOM = ("random start, grid of keys", "random start, free keys")
STARTED = ("from bernstein", "from soft partition")
TEMPERATURES = {"soft partition": 5.0, "sharp partition": 200.0}


def units(size: Size) -> list[Unit]:
    made = []
    for text, eps in zip(TARGETS, size["eps"], strict=False):
        fixed = {"target": text, "eps": eps, "steps": size["steps"], "polish": size["polish"]}
        made += crossed(way=CONSTRUCTED, seed=None, **fixed)
        made += crossed(way=RANDOM, seed=range(size["seeds"]), **fixed) + crossed(way=STARTED, seed=0, **fixed)
    return made


def run(unit: Unit) -> Row:
    way, best = unit["way"], None
    made = af.compile(unit["target"], TARGETS[unit["target"]], unit["eps"], method="bernstein")
    function, grid = made.target, made.network.layers[0].attention[0].grid
    source = way.removeprefix("from ")
    given = made.network if source not in TEMPERATURES else partition_head(function, grid, TEMPERATURES[source])
    if way in CONSTRUCTED:
        network = given
        certificate = made.certificate if way == "bernstein" else af.parts.prove(network, function)
    else:
        start = "random" if way in RANDOM else made if way == "from bernstein" else given
        free = way == "random start, free keys"
        shape = af.Architecture.one_head(function.box.names, made.cost.keys) if free else made.architecture
        options: dict[str, Any] = {key: unit[key] for key in ("steps", "polish", "seed")}
        options |= {"lr": 1e-4 if way == "from bernstein" else 0.03, "batch": 128, "proof": not free}
        learned = af.train(shape, function, start=start, **options)
        network, certificate, best = learned.network, learned.certificate, learned.fit.best_step
    proved = certificate.status.value in ("proved", "bounded") and math.isfinite(certificate.error[1])
    mean, _, shared = sharpness(network, function)
    row = {"d": function.box.dim, "keys": network.cost.keys, "value_max": network.cost.max_value, "best_step": best}
    row |= {"error": sup_error(network, function), "proved": certificate.error[1] if proved else None}
    return row | {"norm_mean": mean, "effective_keys": shared}


def judge(table: Rows) -> Verdict:
    """Holds when random starts come, in the median, within twice the error of the better constructed head; with limits
    when they only come below that of the partitions; refuted when they do not, or a bound lies below an error.
    """
    good, kept, words = [], [], []
    faults = table.above("error", "proved").say("a measured error of {way} is above its bound")
    for text, here in table.by("target"):
        best = here.where(way="bernstein")[0]
        partition = here.where(way=tuple(TEMPERATURES)).best("error")
        found = {way: here.where(way=way) for way in RANDOM}
        reached = min(rows.median("error") for rows in found.values())
        good.append(reached <= 2 * best["error"])
        if not reached < partition["error"]:
            faults.append("random starts do not even reach the partition")
        ended = {way: here.where(way=way)[0]["error"] for way in STARTED}
        begun = {way: here.where(way=way.removeprefix("from "))[0]["error"] for way in STARTED}
        kept += [ended[way] <= begun[way] * (1 + 1e-9) for way in STARTED]
        parts = [f"{text}, {best['keys']} keys: constructed {best['error']:.2g} (proved {best['proved']:≤2})"]
        parts[0] += f", partition {partition['error']:.2g}"
        parts += [f"{way} {rows.middle('error')}" for way, rows in found.items()]
        words.append("; ".join(parts + [f"{way} {error:.2g}" for way, error in ended.items()]) + ".")
    random, sharp = table.where(way=RANDOM), table.where(way="soft partition")
    norms, far = random.median("norm_mean"), sharp.median("norm_mean")
    words.append(
        f"Learned heads share a point among {random.median('effective_keys'):.0f} keys (the partitions among "
        f"{sharp.median('effective_keys'):.1f}), with mean key norms of {norms:.1f} ({far:.0f}): what is "
        f"learned is {'not a' if norms < far / 2 else 'like the'} partition."
    )
    limits = (
        "From random starts gradient descent beats the partition of as many keys and stays above what those keys "
        f"can do; from constructed starts it keeps or improves what it was given in {sum(kept)} of {len(kept)} runs."
    )
    return decided(words, faults, "" if all(good) else limits, "Random starts reach the constructed heads.")


def draw(table: Rows) -> Any:
    ways = (*CONSTRUCTED, *RANDOM, *STARTED)
    figure, parts = panels_by(table, "target", width=4.4, height=4.2)
    for ax, text, here in parts:
        for colour, some in ((NETWORKS[0], CONSTRUCTED), (NETWORKS[4], RANDOM), (NETWORKS[1], STARTED)):
            curve(ax, here.where(way=some), "error", lambda r: ways.index(r["way"]), "o", color=colour, ms=5, alpha=0.7)
        curve(ax, here.known("proved"), "proved", lambda r: ways.index(r["way"]), "|", color="#102a43", ms=12, mew=1.5)
        note = f"{here[0]['keys']} keys; dots: measured, bars: proved"
        labelled(ax, text, note, "sup error", log="x", yticks=ways if ax is parts[0][0] else [" "] * len(ways))
        ax.invert_yaxis()
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    eps=([0.1], [1e-3, 1e-3, 1e-2], [1e-3, 1e-3, 1e-2]),
    seeds=(1, 3, 5),
    steps=(6, 700, 2000),
    polish=(0, 80, 200),
)
