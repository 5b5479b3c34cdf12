"""Neurons: the bound, the construction, and training.

Claim. Towers of O(n² κ² C²/ε²) neurons approximate a relation of n features of Barron norm C to ε; are these bounds
tight in practice?

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, for the ingredients (spectral decay, Barron norm); the form with
its constants, n (8 κ C √n/ε)², is derived here; ReLU towers and their proofs are our own.

Neurons by a bound with Barron norms, neurons that are proved to do, and what training needs.

With n features, κ² = sup r(x, x) and features of Barron norm C, shallow towers of n (8 κ C √n/ε)² neurons do: n
features within δ = ε/(8 κ √n) each, at (C/δ)² neurons a feature. That form is our own derivation with the published
ingredients (decay of the spectrum, Barron norm); the paper's own exponents and constants were not compared.

Columns.
    relation: on the unit interval or square
    way: constructed (ReLU towers, proved) or learned (one hidden ReLU layer)
    eps: the tolerance asked for
    seed: of the random start
    rank: features
    layers: hidden layers of a tower
    neurons: hidden units of all towers
    error: sup error measured over all pairs of a fine grid
    proved: bound proved for every pair, from the stored weights
    norm: C: the largest |φ(0)| + |φ'(0)| + ∫|φ''| of a feature, at least 1, measured (one variable)
    unit_count: n (8 κ C √n/ε)² with C = 1
    count: the same with the measured C
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.relations.towers import above, fine_grid, sup_error, train_on
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, slope, values, where

RELATIONS: dict[str, tuple[str, int, bool]] = {
    "Gaussian": ("exp(-2*(x1 - y1)**2)", 1, True),
    "exp(x y)": ("exp(x1*y1)", 1, False),
    "preference": ("tanh(5*(x1 - y1))", 1, False),
    "Gaussian, two variables": ("exp(-2*((x1 - y1)**2 + (x2 - y2)**2))", 2, True),
}


def units(size: Size) -> list[Unit]:
    out: list[Unit] = []
    for name, part in size["relations"].items():
        out += [{"relation": name, "way": "constructed", "eps": eps} for eps in part["eps"]]
        out += [
            {
                "relation": name,
                "way": "learned",
                "rank": part["rank"],
                "width": width,
                "seed": seed,
                "steps": size["steps"],
            }
            for width in part["widths"]
            for seed in range(size["seeds"])
        ]
    return out


def target_of(name: str) -> Any:
    text, d, symmetric = RELATIONS[name]
    left, right = ({f"{v}{k + 1}": (0.0, 1.0) for k in range(d)} for v in "xy")
    return af.Relation.read(text, left, right, symmetric=symmetric)


def run(unit: Unit) -> list[Row]:
    target = target_of(unit["relation"])
    row: Row = {"relation": unit["relation"], "way": unit["way"]}
    if unit["way"] == "learned":
        found = train_on(
            target,
            unit["rank"],
            unit["width"],
            steps=unit["steps"],
            seed=unit["seed"],
            shared=target.symmetric,
            activation="relu",
        )
        neurons = unit["width"] * (1 if target.symmetric else 2)
        row |= {"eps": None, "seed": unit["seed"], "rank": unit["rank"], "layers": 1, "neurons": neurons}
        return [
            row | {"error": sup_error(target, found), "proved": None, "norm": None, "unit_count": None, "count": None}
        ]

    eps = unit["eps"]
    built = af.relation(target.graph, target.left, target.right, eps, symmetric=target.symmetric, realise="mlp")
    record = built.record()
    norm = barron_norm(built)
    row |= {"eps": eps, "seed": None, "rank": built.rank, "layers": built.cost.layers, "neurons": record["neurons"]}
    count = None if norm is None else record["neurons_paper"] * norm**2
    error = max(sup_error(target, built), built.certificate.error[0])
    row |= {"error": error, "proved": built.certificate.error[1], "norm": norm}
    return [row | {"unit_count": record["neurons_paper"], "count": count}]


def barron_norm(built: Any) -> float | None:
    """C ≥ 1: the largest |φ(0)| + |φ'(0)| + ∫|φ''| over features of one variable, which is an integral over ReLU units.

    Second differences on a grid stand for φ'': measured, no more. None past one variable.
    """
    import numpy as np

    if built.target.left.dim > 1:
        return None
    largest = 1.0
    for tower, box in ((built.left, built.target.left), (built.right, built.target.right)):
        X = fine_grid(box)
        phi, h = tower(X), float(X[1, 0] - X[0, 0])
        bent = np.abs(np.diff(phi, n=2, axis=0)).sum(axis=0) / h
        largest = max(largest, float((np.abs(phi[0]) + np.abs(phi[1] - phi[0]) / h + bent).max()))
    return largest


def _needed(rows: Table, eps: float) -> int | None:
    """The fewest neurons at which the median of the trained errors is within eps."""
    sizes = sorted(distinct(rows, "neurons"))
    errors = {n: values(where(rows, neurons=n), "error") for n in sizes}
    good = [n for n in sizes if median(errors[n]) <= eps and all(error == error for error in errors[n])]
    return good[0] if good else None


def judge(table: Table) -> Verdict:
    """The bound holds where proved towers, which need not be its shallow ones, stay within eps and within its count.

    Refuted where a proof fails, or where nothing that was built keeps to the count: then nothing speaks for the bound.

    With limits where, for some relation, the bound is more than a thousand times what was needed: true, of no use.
    """
    if gone := lacking(table, "way", "constructed"):
        return gone
    built = where(table, way="constructed")
    wrong = above(built, "error", "proved") + above(built, "proved", "eps")
    more = above(built, "neurons", "count")
    more += above([row for row in built if row["count"] is None], "neurons", "unit_count")  # C is 1 at least
    words, worst = "", 0.0
    for name in distinct(built, "relation"):
        rows = sorted(where(built, relation=name), key=lambda row: -float(row["eps"]))
        last = rows[-1]
        bound = last["unit_count"] if last["count"] is None else last["count"]
        worst = max(worst, bound / last["neurons"])
        words += (
            f"{name}: at ε = {last['eps']:g} {last['neurons']:,} neurons are proved to do, the bound says {bound:.1g}"
            + (
                f" (C = {last['norm']:.2g} measured; {last['unit_count']:.1g} for C = 1)"
                if last["norm"]
                else " (C = 1)"
            )
        )
        if len(rows) > 1:
            grows = [slope([1 / r["eps"] for r in rows], values(rows, c)) for c in ("neurons", "unit_count")]
            words += (
                f"; from ε = {rows[0]['eps']:g} on they grow like ε^−{grows[0]:.2f}, the bound like ε^−{grows[1]:.2f}"
            )
        learned = where(table, relation=name, way="learned")
        reached = [(row["eps"], _needed(learned, row["eps"])) for row in rows] if learned else []
        met = [(eps, n) for eps, n in reached if n is not None]
        if met:
            eps, fewest = met[-1]
            same = next(row["neurons"] for row in rows if row["eps"] == eps)
            words += f"; the narrowest trained towers to meet ε = {eps:g} had {fewest} (constructed {same})"
            words += ", and none met a smaller one"
        elif learned:
            words += f"; training met none of these ε (best {min(values(learned, 'error')):.2g})"
        words += ". "
    if wrong or more:
        row = (wrong or more)[0]
        what = "breaks its proof" if wrong else "was built with more neurons than the bound allows"
        return Verdict(REFUTED, f"Refuted: {row['relation']} at ε = {row['eps']:g} {what}.", words)
    if not worst <= 1000:
        end = f"The bound's count is enough and far from needed: up to {worst:.1g} times what was proved to do."
        return Verdict(LIMITS, end, words)
    return Verdict(HOLDS, "The bound holds within a factor of a thousand.", words)


def draw(table: Table) -> Any:
    names = distinct(table, "relation")
    figure, axes = panels(columns=len(names), width=3.9, height=4.2)
    for ax, name in zip(axes[0], names, strict=True):
        rows = where(table, relation=name, way="constructed")
        curve(ax.loglog, rows, "eps", "unit_count", "k--", lw=1, label="bound, C = 1")
        full = [row for row in rows if row["count"] is not None]
        curve(ax.loglog, full, "eps", "count", "-", color=BOUND, lw=1, label="bound, C measured")
        curve(ax.loglog, rows, "eps", "neurons", "o-", color=NETWORKS[0], ms=4, label="constructed, proved")
        rows = where(table, relation=name, way="learned")
        curve(ax.loglog, rows, "error", "neurons", "x", color=NETWORKS[4], label="learned: error, each seed")
        ax.invert_xaxis()
        ax.set(xlabel="sup error ε", ylabel="neurons of all towers")
        title(ax, name, RELATIONS[name][0])
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, fontsize=8, frameon=False, ncols=4, loc="outside lower center")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        relations=(
            {"Gaussian": {"eps": [0.1, 0.01], "rank": 3, "widths": [8]}},
            {
                "Gaussian": {"eps": [0.1, 1e-2, 1e-3, 1e-4], "rank": 5, "widths": [4, 8, 16, 32, 64]},
                "exp(x y)": {"eps": [0.1, 1e-2, 1e-3, 1e-4], "rank": 4, "widths": [8, 32]},
                "preference": {"eps": [0.3, 0.1, 3e-2, 1e-2], "rank": 8, "widths": [8, 32, 128]},
                "Gaussian, two variables": {"eps": [0.1, 1e-2, 1e-3], "rank": 11, "widths": [32, 128]},
            },
            {
                "Gaussian": {"eps": [0.1, 1e-2, 1e-3, 1e-4, 1e-5], "rank": 6, "widths": [4, 8, 16, 32, 64, 128]},
                "exp(x y)": {"eps": [0.1, 1e-2, 1e-3, 1e-4, 1e-5], "rank": 5, "widths": [4, 8, 16, 32, 64]},
                "preference": {"eps": [0.3, 0.1, 3e-2, 1e-2], "rank": 10, "widths": [8, 32, 128, 256]},
                "Gaussian, two variables": {"eps": [0.1, 1e-2, 1e-3], "rank": 16, "widths": [32, 128, 256]},
            },
        ),
        steps=(50, 800, 1600),
        seeds=(1, 3, 4),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
