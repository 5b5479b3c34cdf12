"""Relations without symmetry need, and have, two towers.

Claim. The inner product of two different MLPs approximates every continuous relation, symmetric or not, for example a
preference ordering; the inner product of one MLP with itself cannot.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 3 (quantisation into cells); the constructed towers,
their proofs and both lower bounds are our own derivations.

Preferences and other relations without symmetry, by two towers; and what one tower cannot do.

Two constructed towers with their proved error and rank, two trained MLPs of the same rank, and trained self inner
products, which are symmetric and so stay half the antisymmetric part away, whatever their size.

Columns.
    relation: tanh(5(x−y)), exp(−2(x−y−0.3)²), and a preference by a utility of two variables
    way: constructed, or trained: two towers, one tower (a self inner product); 64 hidden tanh units
    rank: features
    seed: of the random start
    eps: the tolerance asked for
    error: sup error measured over all pairs of a fine grid
    proved: bound proved for every pair, from the stored weights
    least: proved: no features of this rank (for one tower: no symmetric scores) have a smaller sup error
    rank_lower: features that any method needs for eps, proved
    cells: cells a side that the published quantisation takes for eps
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.relations.towers import above, fine_grid, sup_error, train_on
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

RELATIONS: dict[str, tuple[str, int]] = {
    "preference": ("tanh(5*(x1 - y1))", 1),
    "shifted Gaussian": ("exp(-2*(x1 - y1 - 0.3)**2)", 1),
    "preference by a utility": ("tanh(3*(x1 + x1*x2 - y1 - y1*y2))", 2),
}
WIDTH = 64


def units(size: Size) -> list[Unit]:
    out: list[Unit] = []
    for name in size["relations"]:
        out += [{"relation": name, "way": "constructed", "eps": eps} for eps in size["eps"]]
        for way, ranks in (("two towers", size["ranks"]), ("one tower", size["ranks"][-1:])):
            out += [
                {"relation": name, "way": way, "rank": rank, "seed": seed, "steps": size["steps"]}
                for rank in ranks
                for seed in range(size["seeds"])
            ]
    return out


def target_of(name: str) -> Any:
    text, d = RELATIONS[name]
    left, right = ({f"{v}{k + 1}": (0.0, 1.0) for k in range(d)} for v in "xy")
    return af.Relation.read(text, left, right)


def half_antisymmetric(target: Any) -> float:
    """A proved lower end of sup |r(x, y) − r(y, x)|/2: no symmetric relation, so no ⟨φ(x), φ(y)⟩, is nearer.

    For |r(x, y) − s| and |r(y, x) − s| cannot both be below half their distance. The pair is the worst of a grid, its
    two values are enclosed in balls.
    """
    import numpy as np

    X = fine_grid(target.left)
    gap = target.table(X, X)
    i, j = np.unravel_index(int(np.argmax(np.abs(gap - gap.T))), gap.shape)
    pair = X[[i, j]]
    mid, rad = af.parts.section(target.graph, target.left.names, target.right.names, pair, pair)
    return float((abs(mid[0, 1] - mid[1, 0]) - rad[0, 1] - rad[1, 0]) / 2 * (1 - 1e-15))


def run(unit: Unit) -> list[Row]:
    target, rank_lower, cells = target_of(unit["relation"]), None, None
    if unit["way"] == "constructed":
        found = af.relation(target.graph, target.left, target.right, unit["eps"])
        rank, rank_lower, cells = found.rank, found.rank_lower, found.record()["voronoi_cells"][0]
        error, proved = max(sup_error(target, found), found.certificate.error[0]), found.certificate.error[1]
    else:
        shared, rank, proved = unit["way"] == "one tower", unit["rank"], None
        trained = train_on(target, rank, WIDTH, steps=unit["steps"], seed=unit["seed"], shared=shared)
        error = sup_error(target, trained)
    least = af.parts.error_lower(target, rank)
    if unit["way"] == "one tower":
        least = max(least, half_antisymmetric(target))
    return [{"rank": rank, "error": error, "proved": proved, "least": least, "rank_lower": rank_lower, "cells": cells}]


def judge(table: Table) -> Verdict:
    """Refuted where a proved bound fails, or anything trained beats the least error proved for it.

    With limits where two trained towers of the largest rank are ten times further off than constructed ones.
    """
    if gone := lacking(table, "way", "constructed", "two towers", "one tower"):
        return gone
    built = where(table, way="constructed")
    faults = [
        ("is off by more than its proved bound", above(built, "error", "proved")),
        ("is proved only above the tolerance", above(built, "proved", "eps")),
        ("has an error below what is proved impossible", above(table, "least", "error")),
    ]
    words, ratios = "", []
    for name in distinct(table, "relation"):
        mine = where(built, relation=name)
        if not mine:
            continue
        best = min(mine, key=lambda row: float(row["proved"]))
        words += (
            f"{name[0].upper()}{name[1:]}: {best['rank']} features are proved to {best['proved']:.2g} "
            f"({best['rank_lower']} are needed by any method; cells of the "
            f"published quantisation would be {best['cells']:.2g} a side). "
        )
        rows = where(table, relation=name, way="two towers")
        if rows:
            rank = max(values(rows, "rank"))
            errors = values(where(rows, rank=rank), "error")
            equal = min((row["proved"] for row in mine if row["rank"] <= rank), default=float("nan"))
            ratios.append(median(errors) / equal)
            words += f"Trained with rank {rank}: {min(errors):.2g} to {max(errors):.2g}, constructed {equal:.2g}. "
        rows = where(table, relation=name, way="one tower")
        if rows:
            words += (
                f"One trained tower: {min(values(rows, 'error')):.3g} and more; no symmetric scores are nearer than "
                f"{rows[0]['least']:.3g}. "
            )
    for what, rows in faults:
        if rows:
            row = rows[0]
            return Verdict(REFUTED, f"Refuted: rank {row['rank']} ({row['way']}, {row['relation']}) {what}.", words)
    if not all(ratio <= 10 for ratio in ratios):
        return Verdict(LIMITS, "Two towers exist and are proved; trained ones stay well short of them.", words)
    return Verdict(HOLDS, "Two towers do what one cannot, constructed and trained.", words)


def draw(table: Table) -> Any:
    names = distinct(table, "relation")
    figure, axes = panels(columns=len(names), width=4.6, height=4.2)
    for ax, name in zip(axes[0], names, strict=True):
        rows = sorted(where(table, relation=name, way="constructed"), key=lambda r: r["rank"])
        curve(ax.semilogy, rows, "rank", "proved", "o-", color=NETWORKS[0], ms=4, label="two, constructed")
        for way, mark, colour in (("two towers", "x", NETWORKS[4]), ("one tower", "v", NETWORKS[1])):
            rows = where(table, relation=name, way=way)
            label = "two, trained" if way == "two towers" else "one, trained"
            curve(ax.semilogy, rows, "rank", "error", mark, color=colour, ms=5, label=label)
        rows = where(table, relation=name, way="one tower")
        if rows:
            ax.axhline(rows[0]["least"], color=BOUND, ls="--", lw=1, label="one tower: proved least")
        known = sorted((r["rank"], r["least"]) for r in table if r["relation"] == name and r["way"] != "one tower")
        known = [(rank, least) for rank, least in known if least > 1e-13]
        ax.fill_between(
            [r for r, _ in known], 1e-9, [e for _, e in known], color="#d9e2ec", label="two: proved impossible"
        )
        ax.set(xlabel="rank", ylabel="sup error", ylim=(1e-6, 3))
        title(ax, name[0].upper() + name[1:], RELATIONS[name][0])
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), fontsize=8, frameon=False, ncols=5, loc="outside lower center"
    )
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        relations=(["preference"], list(RELATIONS), list(RELATIONS)),
        eps=([0.1], [0.3, 0.1, 1e-2, 1e-3, 1e-4], [0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6]),
        ranks=([5], [5, 10], [3, 5, 10, 15]),
        steps=(60, 900, 1800),
        seeds=(1, 3, 4),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
