"""Neurons: the bound, the construction, and training.

Claim. Towers of O(n² κ² C²/ε²) neurons approximate a relation of n features of Barron norm C to ε; are these bounds
tight in practice?

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, for the ingredients (spectral decay, Barron norm); the form with
its constants, n (8 κ C √n/ε)², is derived here; ReLU towers and their proofs are our own.

Neurons by a bound with Barron norms, neurons that are proved to do, and what training needs.

With n features, κ² = sup r(x, x) and features of Barron norm C, shallow towers of n (8 κ C √n/ε)² neurons do: n
features within δ = ε/(8 κ √n) each, at (C/δ)² neurons per feature. That form is our own derivation with the published
ingredients (decay of the spectrum, Barron norm); the paper's own exponents and constants were not compared.

A full run takes 3 minutes of CPU.

Columns.
    relation: on the unit interval or square
    way: constructed (ReLU towers, proved) or learned (one hidden ReLU layer)
    eps: the tolerance asked for
    seed: of the random start
    rank: features
    layers: hidden layers of a tower
    neurons: hidden units of all towers
    error: sup error measured over all pairs of a fine grid
    proved: ≤ bound proved for every pair, from the stored weights
    norm: C: the largest |φ(0)| + |φ'(0)| + ∫|φ''| of a feature, at least 1, measured (one variable)
    unit_count: n (8 κ C √n/ε)² with C = 1
    count: the same with the measured C
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, labelled, legend_below, panels_by
from attnfun.lab.studies.relations.inner_products import built_row, fine_grid, relation_of, sup_error, train_on
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

RELATIONS: dict[str, tuple[str, int, bool]] = {
    "Gaussian": ("exp(-2*(x1 - y1)**2)", 1, True),
    "exp(x y)": ("exp(x1*y1)", 1, False),
    "preference": ("tanh(5*(x1 - y1))", 1, False),
    "Gaussian, two variables": ("exp(-2*((x1 - y1)**2 + (x2 - y2)**2))", 2, True),
}


def units(size: Size) -> list[Unit]:
    made, run = [], {"seed": range(size["seeds"]), "steps": size["steps"]}
    for name, part in size["relations"].items():
        made += crossed(relation=name, way="constructed", eps=part["eps"])
        made += crossed(relation=name, way="learned", rank=part["rank"], width=part["widths"], **run)
    return made


def run(unit: Unit) -> Row:
    text, d, symmetric = RELATIONS[unit["relation"]]
    target = relation_of(text, d, symmetric=symmetric)
    if unit["way"] == "learned":
        options = {"steps": unit["steps"], "seed": unit["seed"], "shared": symmetric, "activation": "relu"}
        found = train_on(target, unit["rank"], unit["width"], **options)
        return {"layers": 1, "neurons": unit["width"] * (1 if symmetric else 2), "error": sup_error(target, found)}
    built = af.relation(target.graph, target.left, target.right, unit["eps"], symmetric=symmetric, realise="mlp")
    record, norm = built.record(), barron_norm(built)
    count = None if norm is None else record["neurons_paper"] * norm**2
    row = {"layers": built.cost.layers, "neurons": record["neurons"], "norm": norm, **built_row(target, built)}
    return row | {"unit_count": record["neurons_paper"], "count": count}


def barron_norm(built: Any) -> float | None:
    """C ≥ 1: the largest |φ(0)| + |φ'(0)| + ∫|φ''| over features of one variable, which is an integral over ReLU units.

    Second differences on a grid stand for φ'': measured, no more. None past one variable.
    """
    if built.target.left.dim > 1:
        return None
    largest = 1.0
    for tower, box in ((built.left, built.target.left), (built.right, built.target.right)):
        X = fine_grid(box)
        phi, h = tower(X), float(X[1, 0] - X[0, 0])
        bent = np.abs(np.diff(phi, n=2, axis=0)).sum(axis=0) / h
        largest = max(largest, float((np.abs(phi[0]) + np.abs(phi[1] - phi[0]) / h + bent).max()))
    return largest


def _needed(rows: Rows, eps: float) -> int | None:
    """The fewest neurons at which the median of the trained errors is within eps."""
    return min((neurons for neurons, some in rows.by("neurons") if some.median("error") <= eps), default=None)


def judge(table: Rows) -> Verdict:
    """The bound holds where proved towers, which need not be its shallow ones, stay within eps and within its count.

    Refuted where a proof fails, or where nothing that was built keeps to the count: then nothing speaks for the bound.

    With limits where, for some relation, the bound is more than a thousand times what was needed: true, of no use.
    """
    built, who, words, worst = table.where(way="constructed"), "{relation} at ε = {eps:g} ", [], 0.0
    wrong = built.above("error", "proved") + built.above("proved", "eps")
    more = built.above("neurons", "count")
    more += built.where(count=None).above("neurons", "unit_count")  # C is 1 at least
    faults = Rows(wrong).say(who + "breaks its proof")
    faults += more.say(who + "was built with more neurons than the bound allows")
    for name, mine in built.by("relation"):
        rows = mine.sorted(lambda row: -float(row["eps"]))
        last = rows[-1]
        bound = last["unit_count"] if last["count"] is None else last["count"]
        worst = max(worst, bound / last["neurons"])
        measured = "C = {norm:.2g} measured; {unit_count:.1g} for C = 1".format(**last) if last["norm"] else "C = 1"
        text = "{relation}: at ε = {eps:g} {neurons:,} neurons are proved to do, the bound says {bound:.1g} ({norms})"
        parts = Rows([last]).say(text, bound=bound, norms=measured)
        if len(rows) > 1:
            grows = [rows.slope(lambda row: 1 / row["eps"], column) for column in ("neurons", "unit_count")]
            grown = f"they grow like ε^−{grows[0]:.2f}, the bound like ε^−{grows[1]:.2f}"
            parts.append(f"from ε = {rows[0]['eps']:g} on {grown}")
        learned = table.where(relation=name, way="learned")
        met = [(row, _needed(learned, row["eps"])) for row in rows]
        met = [(row, fewest) for row, fewest in met if fewest is not None]
        if met:
            row, fewest = met[-1]
            parts.append(
                f"the narrowest trained towers to meet ε = {row['eps']:g} had {fewest} (constructed {row['neurons']}), "
                "and none met a smaller one"
            )
        elif learned:
            parts.append(f"training met none of these ε (best {min(learned.of('error')):.2g})")
        words.append("; ".join(parts) + ".")
    limit = f"The bound's count is enough and far from needed: up to {worst:.1g} times what was proved to do."
    return decided(words, faults, "" if worst <= 1000 else limit, "The bound holds within a factor of a thousand.")


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table, "relation", width=3.9, height=4.2)
    for ax, name, here in parts:
        rows = here.where(way="constructed")
        curve(ax, rows, "eps", "unit_count", "k--", lw=1, label="bound, C = 1")
        curve(ax, rows, "eps", "count", "-", color=BOUND, lw=1, label="bound, C measured")
        curve(ax, rows, "eps", "neurons", "o-", color=NETWORKS[0], ms=4, label="constructed, proved")
        learned = here.where(way="learned")
        curve(ax, learned, "error", "neurons", "x", color=NETWORKS[4], label="learned: error, each seed")
        texts = (RELATIONS[name][0], "sup error ε", "neurons of all towers")
        labelled(ax, name, *texts, log="xy", legend=None)
        ax.invert_xaxis()
    legend_below(figure, parts[0][0], ncols=4)
    return figure


FOUR = [0.1, 1e-2, 1e-3, 1e-4]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("constructed",)},
    relations=(
        {"Gaussian": {"eps": [0.1, 0.01], "rank": 3, "widths": [8]}},
        {
            "Gaussian": {"eps": FOUR, "rank": 5, "widths": [4, 8, 16, 32, 64]},
            "exp(x y)": {"eps": FOUR, "rank": 4, "widths": [8, 32]},
            "preference": {"eps": [0.3, 0.1, 3e-2, 1e-2], "rank": 8, "widths": [8, 32, 128]},
            "Gaussian, two variables": {"eps": [0.1, 1e-2, 1e-3], "rank": 11, "widths": [32, 128]},
        },
        {
            "Gaussian": {"eps": [*FOUR, 1e-5], "rank": 6, "widths": [4, 8, 16, 32, 64, 128]},
            "exp(x y)": {"eps": [*FOUR, 1e-5], "rank": 5, "widths": [4, 8, 16, 32, 64]},
            "preference": {"eps": [0.3, 0.1, 3e-2, 1e-2], "rank": 10, "widths": [8, 32, 128, 256]},
            "Gaussian, two variables": {"eps": [0.1, 1e-2, 1e-3], "rank": 16, "widths": [32, 128, 256]},
        },
    ),
    steps=(16, 800, 1600),
    seeds=(1, 3, 4),
)
