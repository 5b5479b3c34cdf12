"""Keys against the number of variables.

Claim. The size of a single-head approximation grows exponentially with the number of variables: P^d keys, P cells an
axis.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901, size of the construction (P^{dn}); the other heads are our own.

Keys for one tolerance against the number of variables, by the published partition and by other heads.

The size of the published partition follows from its formula, ⌈B L √d/ε⌉ cells per axis, at every d; it is built and
proved where it has at most a given number of keys, with cells that follow the target's own oscillation, and refused
elsewhere. The same tolerance is asked of one product head (`bernstein`, up to four variables) and of composed networks;
single heads with as many keys as the composed network are trained.

A full run takes two minutes of CPU.

Columns.
    target: Gaussian: exp(−|x|²/2); pairs: sin(x1 x2 + x2 x3 + …)
    d: variables, each in [−1, 1]
    method: published (the formula), partition, bernstein, compose, or learned (one head, unstructured keys)
    seed: of a trained head
    steps: of Adam, for a trained head
    status: counted, proved, refused, or sampled
    keys: keys; none where the method refused
    eps: tolerance asked for
    error: for learned heads the sup error measured; for others the error witnessed
    proved: ≤ bound proved from the stored weights
"""

import math
from itertools import pairwise
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, Figure, curve, labelled, panels_by
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

BUILT = ("partition", "bernstein", "compose")


def targets(name: str, d: int) -> tuple[str, float]:
    """(expression of x1 … xd on [−1, 1]^d, a Lipschitz constant of it)."""
    names = [f"x{k}" for k in range(1, d + 1)]
    if name == "Gaussian":  # |gradient| = r e^{-r²/2}, largest at r = 1
        return "exp(-(" + " + ".join(f"{x}**2" for x in names) + ")/2)", math.exp(-0.5) * (1 + 1e-15)
    pairs = " + ".join(f"{a}*{b}" for a, b in pairwise(names))
    return f"sin({pairs})", math.sqrt(4 * d - 6)  # neighbours sum to at most 2 (1 at the two ends), |cos| ≤ 1


def units(size: Size) -> list[Unit]:
    common = {"target": size["targets"], **{key: size[key] for key in ("eps", "most", "steps")}}
    made = crossed(**common, method=("published", *BUILT), d=size["dimensions"], seed=None)
    return made + crossed(**common, method="learned", d=size["trained"], seed=range(size["seeds"]))


def run(unit: Unit) -> Row:
    d, eps, method = unit["d"], unit["eps"], unit["method"]
    text, lipschitz = targets(unit["target"], d)
    box = {f"x{k}": (-1.0, 1.0) for k in range(1, d + 1)}
    if method == "published":
        return {"steps": None, "status": "counted", "keys": float(math.ceil(lipschitz * math.sqrt(d) / eps) ** d)}
    if method == "learned":
        keys = af.compile(text, box, eps, method="compose").cost.keys
        options = {"steps": unit["steps"], "seed": unit["seed"], "lr": 0.03, "batch": 128, "proof": False}
        learned = af.train(af.Architecture.one_head(tuple(box), keys), text, box, **options)
        return {"status": "sampled", "keys": float(keys), "error": learned.sampled.error[0]}
    published: dict[str, Any] = {"variant": "uniform"} if method == "partition" else {}
    try:
        made = af.compile(text, box, eps, method=method, max_keys=unit["most"], **published)
    except af.Infeasible:
        return {"steps": None, "status": "refused"}
    row = {"steps": None, "status": made.certificate.status.value, "keys": float(made.cost.keys)}
    return row | {"error": made.certificate.error[0], "proved": made.certificate.error[1]}


def judge(table: Rows) -> Verdict:
    """Refuted when the published count does not multiply with every variable, a partition that was built needs far
    fewer keys, or a bound called proved is none; with limits when composed networks are proved at every d and grow like
    a power of it; else it holds.
    """
    words, tame, faults = [], [], []
    for target, here in table.by("target"):
        methods = ("published", "partition", "bernstein", "learned")
        counts, built, product, learned = (here.where(method=method).known("keys") for method in methods)
        factors = [(b["keys"] / a["keys"]) ** (1 / (b["d"] - a["d"])) for a, b in pairwise(counts) if b["d"] > a["d"]]
        size = {row["d"]: row["keys"] for row in counts}
        if not all(f >= 2 for f in factors) or built.fails(lambda row, size=size: row["keys"] >= size[row["d"]] / 100):
            faults.append(f"the partition of {target} does not grow as it is said to")
        refused = here.where(method="partition", keys=None).of("d")
        composed = here.where(method="compose")
        unproved = composed.where(status="proved").fails(lambda row: row["proved"] <= row["eps"])
        faults += unproved.say("a network for {target} is called proved, and not to its eps")
        fine = len(composed.where(status="proved")) == len(composed) and not unproved
        exponent = composed.slope("d", "keys") if fine else math.nan
        tame.append(fine and exponent < 3)
        words.append(
            f"{target}, error {composed[0]['eps']:g}: the published partition needs {counts[0]['keys']:.3g} keys at "
            f"d = {counts[0]['d']} and {counts[-1]['keys']:.2g} at d = {counts[-1]['d']}, a factor of "
            f"{min(factors, default=math.nan):.0f} to {max(factors, default=math.nan):.0f} for every variable;"
        )
        words += built.last().say("built with {keys:.0f} at d = {d};")
        words.append(f"refused from d = {min(refused)} on." if refused else "never refused.")
        words += product.last().say("One product head: {keys:.0f} keys at d = {d}.")
        if fine:
            ends = Rows([composed[0], composed[-1]]).say("{keys:.0f} keys at d = {d}")
            words.append(f"Composed networks, all proved: {ends[0]}, {ends[1]}, like d^{exponent:.1f}.")
        if learned:
            last = learned.where(d=max(learned.of("d")))
            words.append(
                f"Single heads trained with as many keys as the composed network has have a sup error of "
                f"{last.median('error'):.2g} at d = {last[0]['d']} after {last[0]['steps']:,} steps."
            )
    curse = (
        "The exponential size is that of the partition, not of attention: softmax networks that follow the formula of "
        "the target meet the same tolerance with a few keys per variable."
    )
    return decided(words, faults, curse if all(tame) else "", "No network here escapes the exponential growth.")


def draw(table: Rows) -> Figure:
    figure, parts = panels_by(table, "target")
    for ax, target, here in parts:
        counted = here.where(method="published")
        curve(ax, counted, "d", "keys", "k--", lw=1, label="partition, published count")
        curve(ax, here.where(method=BUILT), "d", "keys", "o-", by="method", ms=4, label="{method}, proved")
        gone = counted.where(d=tuple(here.where(method="partition", keys=None).of("d")))
        curve(ax, gone, "d", "keys", "x", color=NETWORKS[0], ms=7, label="partition, refused")
        learned = here.where(method="learned").known("keys")
        curve(ax, learned, "d", "keys", "D", mfc="none", color=NETWORKS[4], ms=5, label="learned: its sup error")
        for d, rows in learned.by("d"):
            text, place = f"{rows.median('error'):.2g}", (d, rows[0]["keys"])
            ax.annotate(text, place, (0, -13), textcoords="offset points", fontsize=7, ha="center")
        head, note = f"{target}: keys for an error of {table[0]['eps']:g}", "[−1, 1]^d, sup norm"
        labelled(ax, head, note, "variables d", "keys", log="y", ylim=(0.05, None), legend="upper left")
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    eps=(0.3, 0.1, 0.1),
    targets=(["Gaussian"], ["Gaussian", "pairs"], ["Gaussian", "pairs"]),
    dimensions=([1, 2], [2, 3, 4, 5, 6, 8, 10], [2, 3, 4, 5, 6, 7, 8, 9, 10]),
    trained=([1], [2, 6, 10], [2, 4, 6, 8, 10]),
    seeds=(1, 3, 5),
    most=(1000, 200_000, 1_000_000),
    steps=(6, 500, 1000),
)
