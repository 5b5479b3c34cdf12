"""Relations without symmetry need, and have, two towers.

Claim. The inner product of two different MLPs approximates every continuous relation, symmetric or not, for example a
preference ordering; the inner product of one MLP with itself cannot.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 3 (quantisation into cells); the constructed towers,
their proofs and both lower bounds are our own derivations.

Preferences and other relations without symmetry, by two towers; and what one tower cannot do.

Two constructed towers with their proved error and rank, two trained MLPs of the same rank, and trained self inner
products, which are symmetric and so stay half the antisymmetric part away, whatever their size.

A full run takes 3 minutes of CPU.

Columns.
    relation: tanh(5(x−y)), exp(−2(x−y−0.3)²), and a preference by a utility of two variables
    way: constructed, or trained: two towers, one tower (a self inner product); 64 hidden tanh units
    rank: features
    seed: of the random start
    eps: the tolerance asked for
    error: sup error measured over all pairs of a fine grid
    proved: ≤ bound proved for every pair, from the stored weights
    least: ≥ proved: no features of this rank (for one tower: no symmetric scores) have a smaller sup error
    rank_lower: features that any method needs for eps, proved
    cells: cells per side that the published quantisation takes for eps
"""

import math
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, PALE, curve, labelled, legend_below, level, panels_by
from attnfun.lab.studies.relations.inner_products import built_row, fine_grid, relation_of, sup_error, train_on
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

RELATIONS: dict[str, tuple[str, int]] = {
    "preference": ("tanh(5*(x1 - y1))", 1),
    "shifted Gaussian": ("exp(-2*(x1 - y1 - 0.3)**2)", 1),
    "preference by a utility": ("tanh(3*(x1 + x1*x2 - y1 - y1*y2))", 2),
}
WIDTH = 64


def units(size: Size) -> list[Unit]:
    made, run = [], {"seed": range(size["seeds"]), "steps": size["steps"]}
    for name in size["relations"]:
        made += crossed(relation=name, way="constructed", eps=size["eps"])
        made += crossed(relation=name, way="two towers", rank=size["ranks"], **run)
        made += crossed(relation=name, way="one tower", rank=size["ranks"][-1], **run)
    return made


def half_antisymmetric(target: Any) -> float:
    """A proved lower end of sup |r(x, y) − r(y, x)|/2: no symmetric relation, so no ⟨φ(x), φ(y)⟩, is nearer.

    For |r(x, y) − s| and |r(y, x) − s| cannot both be below half their distance. The pair is the worst of a grid, its
    two values are enclosed in balls.
    """
    X = fine_grid(target.left)
    gap = target.table(X, X)
    i, j = np.unravel_index(int(np.argmax(np.abs(gap - gap.T))), gap.shape)
    pair = X[[i, j]]
    mid, rad = af.parts.section(target.graph, target.left.names, target.right.names, pair, pair)
    return float((abs(mid[0, 1] - mid[1, 0]) - rad[0, 1] - rad[1, 0]) / 2 * (1 - 1e-15))


def run(unit: Unit) -> Row:
    target, one = relation_of(*RELATIONS[unit["relation"]]), unit["way"] == "one tower"
    if unit["way"] == "constructed":
        found = af.relation(target.graph, target.left, target.right, unit["eps"])
        more = {"rank_lower": found.rank_lower, "cells": found.record()["voronoi_cells"][0]}
        return {**built_row(target, found), "least": af.parts.error_lower(target, found.rank), **more}
    trained = train_on(target, unit["rank"], WIDTH, steps=unit["steps"], seed=unit["seed"], shared=one)
    least = max(af.parts.error_lower(target, unit["rank"]), half_antisymmetric(target) if one else 0.0)
    return {"error": sup_error(target, trained), "least": least}


def judge(table: Rows) -> Verdict:
    """Refuted where a proved bound fails, or anything trained beats the least error proved for it.

    With limits where two trained towers of the largest rank are ten times further off than constructed ones.
    """
    built, who = table.where(way="constructed"), "rank {rank} ({way}, {relation}) "
    faults = [
        *built.above("error", "proved").say(who + "is off by more than its proved bound"),
        *built.above("proved", "eps").say(who + "is proved only above the tolerance"),
        *table.above("least", "error").say(who + "has an error below what is proved impossible"),
    ]
    words, ratios = [], []
    for name, here in table.by("relation"):
        mine, two, one = (here.where(way=way) for way in ("constructed", "two towers", "one tower"))
        if not mine:
            continue
        words += Rows([mine.best("proved")]).say(
            "{name}: {rank} features are proved to {proved:≤2} ({rank_lower} are needed by any method; cells of the "
            "published quantisation would be {cells:.2g} a side).",
            name=name[0].upper() + name[1:],
        )
        if two:
            rank = max(two.of("rank"))
            most = two.where(rank=rank)
            equal = min((row["proved"] for row in mine if row["rank"] <= rank), default=math.nan)
            ratios.append(most.median("error") / equal)
            words.append(f"Trained with rank {rank}: {most.span('error')}, constructed {equal:.2g}.")
        if one:
            words.append(
                f"One trained tower: {min(one.of('error')):.3g} and more; no symmetric scores are nearer than "
                f"{one[0]['least']:≥3}."
            )
    limit = "Two towers exist and are proved; trained ones stay well short of them."
    end = "Two towers do what one cannot, constructed and trained."
    return decided(words, faults, "" if all(r <= 10 for r in ratios) else limit, end)


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table, "relation", width=4.6, height=4.2)
    for ax, name, here in parts:
        rows = here.where(way="constructed").sorted("rank")
        curve(ax, rows, "rank", "proved", "o-", color=NETWORKS[0], ms=4, label="two, constructed")
        curve(ax, here.where(way="two towers"), "rank", "error", "x", color=NETWORKS[4], ms=5, label="two, trained")
        one = here.where(way="one tower")
        curve(ax, one, "rank", "error", "v", color=NETWORKS[1], ms=5, label="one, trained")
        level(ax, one, "least", color=BOUND, ls="--", lw=1, label="one tower: proved least")
        known = here.where(way=("constructed", "two towers")).that(lambda row: row["least"] > 1e-13)
        ranks, least = zip(*sorted((row["rank"], row["least"]) for row in known), strict=True)
        ax.fill_between(ranks, 1e-9, least, color=PALE, label="two: proved impossible")
        texts = (name[0].upper() + name[1:], RELATIONS[name][0], "rank", "sup error")
        labelled(ax, *texts, log="y", ylim=(1e-6, 3), legend=None)
    legend_below(figure, parts[0][0], ncols=5)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("constructed", "two towers", "one tower")},
    relations=(["preference"], list(RELATIONS), list(RELATIONS)),
    eps=([0.1], [0.3, 0.1, 1e-2, 1e-3, 1e-4], [0.3, 0.1, 1e-2, 1e-3, 1e-4, 1e-6]),
    ranks=([5], [5, 10], [3, 5, 10, 15]),
    steps=(16, 900, 1800),
    seeds=(1, 3, 4),
)
