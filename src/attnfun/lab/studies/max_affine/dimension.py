"""Keys against the number of variables.

Claim. The size of a single-head approximation grows exponentially with the number of variables: P^d keys, P cells an
axis.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901, size of the construction (P^{dn}); the other heads are our own.

Keys for one tolerance against the number of variables, by the published partition and by other heads.

The size of the published partition follows from its formula, ⌈B L √d/ε⌉ cells an axis, at every d; it is built and
proved where it has at most a given number of keys, with cells that follow the target's own oscillation, and refused
elsewhere. The same tolerance is asked of one product head (`bernstein`, up to four variables) and of composed networks;
single heads with as many keys as the composed network are trained.

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
    proved: bound proved from the stored weights
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, slope, values, where

BUILT = ("partition", "bernstein", "compose")


def targets(name: str, d: int) -> tuple[str, float]:
    """(expression of x1 … xd on [−1, 1]^d, a Lipschitz constant of it)."""
    names = [f"x{k}" for k in range(1, d + 1)]
    if name == "Gaussian":  # |gradient| = r e^{-r²/2}, largest at r = 1
        return "exp(-(" + " + ".join(f"{x}**2" for x in names) + ")/2)", math.exp(-0.5) * (1 + 1e-15)
    pairs = " + ".join(f"{a}*{b}" for a, b in pairwise(names))
    return f"sin({pairs})", math.sqrt(4 * d - 6)  # neighbours sum to at most 2 (1 at the two ends), |cos| ≤ 1


def units(size: Size) -> list[Unit]:
    fixed = {"eps": size["eps"], "most": size["most"], "steps": size["steps"]}
    made = [
        {"target": name, "d": d, "method": method, "seed": None, **fixed}
        for name in size["targets"]
        for method in ("published", *BUILT)
        for d in size["dimensions"]
    ]
    return made + [
        {"target": name, "d": d, "method": "learned", "seed": seed, **fixed}
        for name in size["targets"]
        for d in size["trained"]
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    d, eps, method = unit["d"], unit["eps"], unit["method"]
    text, lipschitz = targets(unit["target"], d)
    box = {f"x{k}": (-1.0, 1.0) for k in range(1, d + 1)}
    keys: float | None = None
    status, bound, error = "refused", None, None
    if method == "published":
        keys = float(math.ceil(lipschitz * math.sqrt(d) / eps) ** d)
        status = "counted"
    elif method == "learned":
        count = af.compile(text, box, eps, method="compose").cost.keys
        learned = af.train(
            af.Architecture.one_head(tuple(box), count),
            text,
            box,
            steps=unit["steps"],
            seed=unit["seed"],
            lr=0.03,
            batch=128,
            proof=False,
        )
        keys, status, error = float(count), "sampled", learned.sampled.error[0]
    else:
        try:
            made = af.compile(text, box, eps, method=method, max_keys=unit["most"])
        except af.Infeasible:
            pass
        else:
            keys, status, bound = float(made.cost.keys), made.certificate.status.value, made.certificate.error[1]
            error = made.certificate.error[0]
    return [
        {
            "steps": unit["steps"] if method == "learned" else None,
            "status": status,
            "keys": keys,
            "error": error,
            "proved": bound,
        }
    ]


def known(table: Table, target: str, method: str) -> list[Row]:
    return [row for row in where(table, target=target, method=method) if row["keys"] is not None]


def judge(table: Table) -> Verdict:
    """Refuted when the published count does not multiply with every variable, a partition that was built needs far
    fewer keys, or a bound called proved is none; with limits when composed networks are proved at every d and grow like
    a power of it; else it holds.
    """
    words, tame, wrong, unproved = "", [], [], []
    for target in distinct(table, "target"):
        counts = known(table, target, "published")
        factors = [(b["keys"] / a["keys"]) ** (1 / (b["d"] - a["d"])) for a, b in pairwise(counts) if b["d"] > a["d"]]
        wrong += [target for factor in factors if not factor >= 2]
        built = known(table, target, "partition")
        size = {row["d"]: row["keys"] for row in counts}
        wrong += [target for row in built if not row["keys"] >= size[row["d"]] / 100]
        refused = [row["d"] for row in where(table, target=target, method="partition") if row["keys"] is None]
        composed = where(table, target=target, method="compose")
        fine = all(row["status"] == "proved" and row["proved"] <= row["eps"] for row in composed)
        unproved += [target for row in composed if row["status"] == "proved" and not row["proved"] <= row["eps"]]
        exponent = slope(values(composed, "d"), values(composed, "keys")) if fine else math.nan
        tame.append(fine and exponent < 3)
        words += (
            f"{target}, error {composed[0]['eps']:g}: the published partition needs {counts[0]['keys']:.3g} keys at "
            f"d = {counts[0]['d']} and {counts[-1]['keys']:.2g} at d = {counts[-1]['d']}, a factor of "
            f"{min(factors, default=math.nan):.0f} to {max(factors, default=math.nan):.0f} for every variable; "
            + "".join(f"built with {row['keys']:.0f} at d = {row['d']}; " for row in built[-1:])
            + (f"refused from d = {min(refused)} on. " if refused else "never refused. ")
        )
        words += "".join(
            f"One product head: {row['keys']:.0f} keys at d = {row['d']}. "
            for row in known(table, target, "bernstein")[-1:]
        )
        if fine:
            words += (
                f"Composed networks, all proved: {composed[0]['keys']:.0f} keys at d = {composed[0]['d']}, "
                f"{composed[-1]['keys']:.0f} at d = {composed[-1]['d']}, like d^{exponent:.1f}. "
            )
        learned = known(table, target, "learned")
        if learned:
            last = [row for row in learned if row["d"] == max(values(learned, "d"))]
            words += (
                f"Single heads trained with as many keys as the composed network has have a sup error of "
                f"{median(values(last, 'error')):.2g} at d = {last[0]['d']} after {last[0]['steps']:,} steps. "
            )
    if wrong:
        return Verdict(REFUTED, f"Refuted: the partition of {wrong[0]} does not grow as it is said to.", words)
    if unproved:
        return Verdict(REFUTED, f"Refuted: a network for {unproved[0]} is called proved, and not to its eps.", words)
    if all(tame):
        finding = (
            "The exponential size is that of the partition, not of attention: softmax networks that follow the "
            "formula of the target meet the same tolerance with a few keys a variable."
        )
        return Verdict(LIMITS, finding, words)
    return Verdict(HOLDS, "No network here escapes the exponential growth.", words)


def draw(table: Table) -> Any:
    names = distinct(table, "target")
    figure, axes = panels(len(names))
    for ax, target in zip(axes[0], names, strict=True):
        rows = known(table, target, "published")
        curve(ax.semilogy, rows, "d", "keys", "k--", lw=1, label="partition, published count")
        for colour, method in coloured(BUILT):
            rows = known(table, target, method)
            curve(ax.semilogy, rows, "d", "keys", "o-", color=colour, ms=4, label=f"{method}, proved")
        gone = [row for row in where(table, target=target, method="partition") if row["keys"] is None]
        size = {row["d"]: row["keys"] for row in known(table, target, "published")}
        places = [size[row["d"]] for row in gone]
        ax.semilogy(values(gone, "d"), places, "x", color=NETWORKS[0], ms=7, label="partition, refused")
        rows = known(table, target, "learned")
        for k, row in enumerate(rows):
            label = "learned: its sup error" if k == 0 else None
            ax.semilogy([row["d"]], [row["keys"]], "D", mfc="none", color="#7a4fbf", ms=5, label=label)
        for d in dict.fromkeys(values(rows, "d")):
            here = where(rows, d=d)
            text = f"{median(values(here, 'error')):.2g}"
            ax.annotate(text, (d, here[0]["keys"]), (0, -13), textcoords="offset points", fontsize=7, ha="center")
        ax.set(xlabel="variables d", ylabel="keys")
        ax.set_ylim(0.05, None)
        ax.legend(fontsize=7, frameon=False, loc="upper left")
        title(ax, f"{target}: keys for an error of {table[0]['eps']:g}", "[−1, 1]^d, sup norm")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        eps=(0.3, 0.1, 0.1),
        targets=(["Gaussian"], ["Gaussian", "pairs"], ["Gaussian", "pairs"]),
        dimensions=([2, 3], [2, 3, 4, 5, 6, 8, 10], [2, 3, 4, 5, 6, 7, 8, 9, 10]),
        trained=([2], [2, 6, 10], [2, 4, 6, 8, 10]),
        seeds=(1, 3, 5),
        most=(1000, 200_000, 1_000_000),
        steps=(6, 500, 1000),
    ),
    needs=("torch",),
    full_time="two minutes of CPU",
)
