"""Constructed weights, perturbed.

Claim. A partition head works as far as its weights reflect the geometry of the grid; how much imprecision it bears is
open. Derived: a relative error η costs little while the walls, which it moves by about η |v|²/h, stay.

Source. Liu, Hu, Song, Liu 2025, arXiv 2504.19901, which leaves robustness open; the criterion is our derivation.

What an imprecision in the weights costs the constructed heads.

Every entry of the keys, biases, values, query maps and read-out of a constructed network is multiplied by 1 + η u, u
uniform on [−1, 1] and independent; single heads with every key written out, as the literal form has them. Heads of
`bernstein` and `partition`, a composed network, and a head that was trained, on sin πx + cos πy.

The wall between the cells of two neighbours is where their logits meet: (difference of biases)/(difference of slopes).
Biases are R|v|²/2 and slopes R v, so errors η of each are η R|v|²/2 and η R|v|, over a difference of slopes of R h: the
wall moves by about η |v|²/h, which is η |v|²/h² cells. (A relative error of the *centres* would move it by η |v| only;
independent errors of keys and biases are no such thing.)

Columns.
    kind: construction, or learned
    head: the network
    keys: its keys
    value_max: its largest value
    norm_max: its largest key norm
    eta: relative size of the perturbation of every weight
    centres: η max|v|/h: how far centres of relative error η would move, in cells; partitions only
    walls: η max|v|²/h²: how far walls move, in cells; partitions only
    error: sup error at 5,000 points, median of the draws
    error_min: least of the draws
    error_max: largest of the draws
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, panels, styled, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, slope, values, where

SIZES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STILL = 0.12  # cells by which walls may move and count as unmoved
ROBUST = 1.5  # the error may grow by half


def units(size: Size) -> list[Unit]:
    heads = [
        *({"head": "bernstein", "cells": None, "c": None, "eps": eps} for eps in size["tolerances"]),
        *({"head": "partition", "cells": P, "c": c, "eps": None} for P in size["cells"] for c in (5.0, 80.0)),
        *({"head": "compose", "cells": None, "c": None, "eps": eps} for eps in size["tolerances"]),
        *({"head": "learned", "cells": P, "c": None, "eps": None} for P in size["cells"][:1]),
    ]
    return [{**head, "draws": size["draws"], "steps": size["steps"]} for head in heads]


def run(unit: Unit) -> list[Row]:
    import numpy as np

    from attnfun.lab.studies.max_affine.heads import (
        FULL_PERIOD,
        SQUARE,
        partition_head,
        perturbed,
        sharpness,
        target,
        unstructured,
    )

    function, cells, shift = target(FULL_PERIOD, SQUARE), unit["cells"], None
    if unit["head"] == "partition":
        network = unstructured(partition_head(function, (cells, cells), unit["c"]))
        shift = math.sqrt(2) * (cells - 1) / 2  # max|v|/h
        name = f"partition, {cells * cells} keys, c = {unit['c']:g}"
    elif unit["head"] == "learned":
        architecture = af.Architecture.one_head(function.box.names, cells * cells)
        steps = unit["steps"]
        network = af.train(
            architecture, function, steps=steps, seed=0, lr=0.03, batch=128, polish=steps // 10, proof=False
        ).network
        name = f"learned, {cells * cells} keys"
    else:
        made = af.compile(FULL_PERIOD, SQUARE, unit["eps"], method=unit["head"]).network
        network = unstructured(made) if unit["head"] == "bernstein" else made
        name = f"{unit['head']}, {network.cost.keys} keys"
    points = function.box.probe(4000, np.random.default_rng([91, 2]))
    truth = function.values(points)
    rows = []
    for eta in (0.0, *SIZES):
        found = []
        for draw_ in range(unit["draws"] if eta else 1):
            moved = perturbed(network, eta, np.random.default_rng([31, draw_]))
            found.append(float(np.abs(af.network.evaluate(moved, points) - truth).max()))
        rows.append(
            {
                "kind": unit["head"],
                "head": name,
                "keys": network.cost.keys,
                "value_max": network.cost.max_value,
                "norm_max": sharpness(network, function)[1],
                "eta": eta,
                "centres": None if shift is None else eta * shift,
                "walls": None if shift is None else eta * shift**2,
                "error": median(found),
                "error_min": min(found),
                "error_max": max(found),
            }
        )
    return rows


def cost(rows: Table) -> tuple[float, float]:
    """(error added per unit of η, exponent of η) where the added error is at least half of the whole."""
    clean = where(rows, eta=0.0)[0]["error"]
    moved = [row for row in rows if row["eta"] and row["error"] >= 2 * clean and row["eta"] <= 1e-2]
    exponent = slope(values(moved, "eta"), [row["error"] - clean for row in moved])
    return (median((row["error"] - clean) / row["eta"] for row in moved) if moved else math.nan), exponent


def judge(table: Table) -> Verdict:
    """Holds when no partition's error grows by more than half while its walls move by less than an eighth of a cell,
    and the other heads are as steady; with limits when only the partitions are; refuted when a partition is not.
    """
    partitions = where(table, kind="partition")
    still = [row for row in partitions if row["eta"] and row["walls"] <= STILL]
    broken, words = [], ""
    for row in still:
        clean = where(partitions, head=row["head"], eta=0.0)[0]["error"]
        if not row["error"] <= ROBUST * clean:
            broken.append(row)
    for head in distinct(partitions, "head"):
        rows = where(partitions, head=head)
        clean, kept = rows[0]["error"], [r for r in rows if r["eta"] and r["error"] <= ROBUST * rows[0]["error"]]
        words += (
            f"{head}: error {clean:.2g}, within half as much again up to η = {max(values(kept, 'eta'), default=0):g}. "
        )
    unsteady = []
    for head in [h for h in distinct(table, "head") if h not in distinct(partitions, "head")]:
        rows = where(table, head=head)
        clean, small = rows[0]["error"], [r for r in rows if r["eta"] and r["error"] <= ROBUST * rows[0]["error"]]
        per, exponent = cost(rows)
        if any(not r["error"] <= ROBUST * clean for r in rows if 0 < r["eta"] <= 1e-3):
            unsteady.append(head)
        same = [r for r in partitions if r["eta"]]
        beats = [
            row["eta"]
            for row in rows
            if row["eta"] and all(row["error"] < p["error"] for p in same if p["eta"] == row["eta"])
        ]
        words += (
            f"{head}: error {clean:.2g}, kept up to η = {max(values(small, 'eta'), default=0):g}"
            + ("" if math.isnan(per) else f", then about {per:.0f} η")
            + ("" if math.isnan(exponent) else f" (measured exponent {exponent:.2f})")
            + f"; below every partition up to η = {max(beats, default=0):g}. "
        )
    lax = [
        row
        for row in partitions
        if row["eta"] and row["centres"] <= STILL and row["error"] > ROBUST * where(table, head=row["head"])[0]["error"]
    ]
    if lax:
        words += (
            f"That centres would hardly move is not enough: at η = {lax[0]['eta']:g} those of {lax[0]['head']} would "
            f"move by {lax[0]['centres']:.2g} cells, but its walls by {lax[0]['walls']:.2g}, and its error is "
            f"{lax[0]['error']:.2g}. "
        )
    if broken or not still:
        at = f" at η = {broken[0]['eta']:g} ({broken[0]['head']})" if broken else ""
        return Verdict(REFUTED, f"Refuted: a partition's error grows by half before its walls move{at}.", words)
    if unsteady:
        return Verdict(
            LIMITS,
            "The partition is steady as long as its walls are. The others are not as steady: "
            f"{'; '.join(unsteady)} lose accuracy in proportion to η, and are the better heads while η is small.",
            words,
        )
    return Verdict(HOLDS, "All heads keep their error.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(1, 1, 7.4, 4.4)
    ax = axes[0, 0]
    for colour, kind in coloured(distinct(table, "kind")):
        for style, head in styled(distinct(where(table, kind=kind), "head")):
            rows = [row for row in where(table, head=head) if row["eta"]]
            etas = values(rows, "eta")
            ax.fill_between(etas, values(rows, "error_min"), values(rows, "error_max"), color=colour, alpha=0.12, lw=0)
            ax.loglog(etas, values(rows, "error"), ls=style, marker="o", ms=3, color=colour, lw=1.2, label=head)
            clean = where(table, head=head, eta=0.0)[0]["error"]
            ax.loglog([etas[0] / 2], [clean], "<", color=colour, ms=5)
    ax.set(xlabel="relative perturbation η of every weight", ylabel="sup error")
    ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    title(ax, "What imprecise weights cost", "medians, bands from least to most of the draws; triangles: unperturbed")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        tolerances=([1e-1], [1e-3, 1e-6], [1e-2, 1e-3, 1e-6, 1e-9]),
        cells=([4], [8, 16], [8, 16, 32]),
        draws=(2, 9, 50),
        steps=(6, 1500, 4000),
    ),
    needs=("torch",),
    full_time="49 seconds of CPU",
)
