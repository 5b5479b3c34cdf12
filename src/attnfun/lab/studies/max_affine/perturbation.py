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

A full run takes 49 seconds of CPU.

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

import math

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import STYLES, Figure, coloured, curve, labelled, panels
from attnfun.lab.studies.max_affine import heads
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, median

SIZES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
STILL = 0.12  # cells by which walls may move and count as unmoved
ROBUST = 1.5  # the error may grow by half


def units(size: Size) -> list[Unit]:
    fixed = {"draws": size["draws"], "steps": size["steps"]}
    asked = {"cells": None, "c": None, "eps": size["tolerances"]}
    return [
        *crossed(head="bernstein", **asked, **fixed),
        *crossed(head="partition", cells=size["cells"], c=(5.0, 80.0), eps=None, **fixed),
        *crossed(head="compose", **asked, **fixed),
        *crossed(head="learned", cells=size["cells"][:1], c=None, eps=None, **fixed),
    ]


def run(unit: Unit) -> list[Row]:
    function, cells, kind = heads.target(heads.FULL_PERIOD, heads.SQUARE), unit["cells"], unit["head"]
    shift = None
    if kind == "partition":
        network = heads.unstructured(heads.partition_head(function, (cells, cells), unit["c"]))
        shift = math.sqrt(2) * (cells - 1) / 2  # max|v|/h
    elif kind == "learned":
        options = {"steps": unit["steps"], "polish": unit["steps"] // 10, "seed": 0, "lr": 0.03}
        network = heads.trained_head(cells, None, **options).network
    else:
        network = af.compile(heads.FULL_PERIOD, heads.SQUARE, unit["eps"], method=kind).network
        network = heads.unstructured(network) if kind == "bernstein" else network
    name = f"{kind}, {network.cost.keys} keys" + (f", c = {unit['c']:g}" if kind == "partition" else "")
    points = function.box.probe(4000, np.random.default_rng([91, 2]))
    truth, rows = function.values(points), []
    of_head = {"kind": kind, "head": name, "keys": network.cost.keys, "value_max": network.cost.max_value}
    of_head["norm_max"] = heads.sharpness(network, function)[1]
    for eta in (0.0, *SIZES):
        found = []
        for draw_ in range(unit["draws"] if eta else 1):
            moved = heads.perturbed(network, eta, np.random.default_rng([31, draw_]))
            found.append(float(np.abs(af.network.evaluate(moved, points) - truth).max()))
        far = {} if shift is None else {"centres": eta * shift, "walls": eta * shift**2}
        errors = {"error": median(found), "error_min": min(found), "error_max": max(found)}
        rows.append({**of_head, "eta": eta, **far, **errors})
    return rows


def cost(rows: Rows) -> tuple[float, float]:
    """(error added per unit of η, exponent of η) where the added error is at least half of the whole."""
    clean = rows.where(eta=0.0)[0]["error"]
    moved = rows.that(lambda row: row["eta"] and row["error"] >= 2 * clean and row["eta"] <= 1e-2)
    exponent = moved.slope("eta", lambda row: row["error"] - clean)
    return moved.median(lambda row: (row["error"] - clean) / row["eta"]), exponent


def judge(table: Rows) -> Verdict:
    """Holds when no partition's error grows by more than half while its walls move by less than an eighth of a cell,
    and the other heads are as steady; with limits when only the partitions are; refuted when a partition is not.
    """
    clean = {row["head"]: row["error"] for row in table.where(eta=0.0)}
    moved = table.that(lambda row: bool(row["eta"]))
    partitions = moved.where(kind="partition")
    still = partitions.that(lambda row: row["walls"] <= STILL)
    faults = still.fails(lambda row: row["error"] <= ROBUST * clean[row["head"]]).say(
        "a partition's error grows by half before its walls move at η = {eta:g} ({head})"
    )
    words, unsteady = [], []
    for head, kind, rows in moved.by("head", "kind"):
        kept = max(rows.that(lambda row: row["error"] <= ROBUST * clean[row["head"]]).of("eta"), default=0)
        if kind == "partition":
            words.append(f"{head}: error {clean[head]:.2g}, within half as much again up to η = {kept:g}.")
            continue
        per, exponent = cost(table.where(head=head))
        if rows.fails(lambda row: row["eta"] > 1e-3 or row["error"] <= ROBUST * clean[row["head"]]):
            unsteady.append(head)
        least = {eta: min(there.of("error")) for eta, there in partitions.by("eta")}
        beats = rows.that(lambda row, least=least: row["error"] < least.get(row["eta"], math.inf)).of("eta")
        words.append(
            f"{head}: error {clean[head]:.2g}, kept up to η = {kept:g}"
            + ("" if math.isnan(per) else f", then about {per:.0f} η")
            + ("" if math.isnan(exponent) else f" (measured exponent {exponent:.2f})")
            + f"; below every partition up to η = {max(beats, default=0):g}."
        )
    lax = partitions.that(lambda row: row["centres"] <= STILL and row["error"] > ROBUST * clean[row["head"]])
    words += lax.first().say(
        "That centres would hardly move is not enough: at η = {eta:g} those of {head} would move by {centres:.2g} "
        "cells, but its walls by {walls:.2g}, and its error is {error:.2g}."
    )
    if not still:
        faults.append("no partition was looked at before its walls move")
    limits = (
        "The partition is steady as long as its walls are. The others are not as steady: "
        f"{'; '.join(unsteady)} lose accuracy in proportion to η, and are the better heads while η is small."
    )
    return decided(words, faults, limits if unsteady else "", "All heads keep their error.")


def draw(table: Rows) -> Figure:
    figure, [ax] = panels(1, 1, 7.4, 4.4)
    for colour, (_, some) in coloured(table.by("kind")):
        for style, (head, here) in coloured(some.by("head"), STYLES):
            rows, look = here.that(lambda row: bool(row["eta"])), {"color": colour, "ms": 3, "lw": 1.2}
            bands = (rows.of(column) for column in ("eta", "error_min", "error_max"))
            ax.fill_between(*bands, color=colour, alpha=0.12, lw=0)
            curve(ax, rows, "eta", "error", "o", ls=style, label=head, **look)
            curve(ax, here.where(eta=0.0), lambda _: SIZES[0] / 2, "error", "<", color=colour, ms=5)
    note = "medians, bands from least to most of the draws; triangles: unperturbed"
    texts = ("relative perturbation η of every weight", "sup error")
    legend = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    labelled(ax, "What imprecise weights cost", note, *texts, log="xy", legend=legend)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    tolerances=([1e-1], [1e-3, 1e-6], [1e-2, 1e-3, 1e-6, 1e-9]),
    cells=([4], [8, 16], [8, 16, 32]),
    draws=(2, 9, 50),
    steps=(6, 1500, 4000),
)
