"""Trained heads and the temperature of the partition.

Claim. Trained on the function, a single head increases the norms of its keys and queries until it is as sharp as the
partition that the theorem constructs.

Source. A remark on Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (experiments proposed: monitor the norms as a proxy for
R); the temperature that cells need is our derivation.

Does a trained head sharpen its keys until it is the partition?

One head of unstructured keys, all weights free, trained on sin πx + cos πy from random starts and from the partition
itself, at two temperatures and two learning rates. A key's norm is its inverse temperature: that of the partition's key
of centre v is R |v|, so the norms of the partition with as many keys are what a head that had found it would have.

Columns.
    start: random, or the partition with as many keys at c = R h² = 5 (soft) or 40 (sharp)
    keys: unstructured keys in R², all weights free
    lr: largest rate of Adam's one-cycle
    seed: of the start and the batches
    share: part of the run at this row
    step: steps made
    error: sup error on the probe points
    rms: root mean squared error on the probe points
    norm_mean: mean norm of a key, its inverse temperature
    norm_max: largest norm of a key
    value_max: largest value
    effective_keys: exp(entropy) of the attention, averaged over points
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

SHARES = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 0.75, 1.0)
STARTS = {"random": None, "soft partition": 5.0, "sharp partition": 40.0}


def units(size: Size) -> list[Unit]:
    """All starts for the sizes `cells`; for the sizes `fewer` the partitions are looked at, not trained."""
    return [
        {"start": start, "c": c, "cells": cells, "lr": lr, "seed": seed, "steps": 0 if still else size["steps"]}
        for cells in (*size["fewer"], *size["cells"])
        for start, c in STARTS.items()
        for still in [cells in size["fewer"] and c is not None]
        for lr in size["rates"][: 1 if still else None]
        for seed in range(1 if still else size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.max_affine.heads import FULL_PERIOD, SQUARE, partition_head, target, unstructured

    function, cells = target(FULL_PERIOD, SQUARE), unit["cells"]
    start: Any = "random"
    if unit["c"] is not None:
        start = unstructured(partition_head(function, (cells, cells), unit["c"]))
    architecture = af.Architecture.one_head(function.box.names, cells * cells)
    learned = af.train(
        architecture,
        function,
        steps=unit["steps"],
        seed=unit["seed"],
        start=start,
        lr=unit["lr"],
        batch=128,
        proof=False,
    )
    history = learned.history
    return [
        {
            "keys": cells * cells,
            "share": share,
            "step": row.step,
            "error": row.sup,
            "rms": row.loss**0.5,
            "norm_mean": row.key_norm_mean,
            "norm_max": row.key_norm_max,
            "value_max": row.value_max,
            "effective_keys": row.effective_keys,
        }
        for share in SHARES
        for row in [history[round(share * (len(history) - 1))]]
    ]


def judge(table: Table) -> Verdict:
    """Of the random starts: do the mean key norms grow, and do they end at half those of the softer partition or more?

    Holds when all of them do, with limits when some do, refuted when none does, however much the norms grow.
    """
    words, near, grown, total = "", 0, 0, 0
    for keys in distinct(table, "keys"):
        here = where(table, keys=keys)
        derived = {s: where(here, start=s, share=0.0)[0] for s in distinct(here, "start") if s != "random"}
        softest = min(values(derived.values(), "norm_mean"))
        first = {(r["lr"], r["seed"]): r for r in where(here, start="random", share=0.0)}
        half = {(r["lr"], r["seed"]): r for r in where(here, start="random", share=0.5)}
        last = {(r["lr"], r["seed"]): r for r in where(here, start="random", share=1.0)}
        total += len(last)
        near += sum(row["norm_mean"] >= softest / 2 for row in last.values())
        grown += sum(row["norm_mean"] >= 1.2 * first[run_]["norm_mean"] for run_, row in last.items())
        ends = sorted(values(last.values(), "norm_mean"))
        late = median(row["norm_mean"] / half[run_]["norm_mean"] for run_, row in last.items())
        words += (
            f"With {keys} keys the mean key norm of {len(last)} random starts goes from "
            f"{median(values(first.values(), 'norm_mean')):.2f} to {median(ends):.2f} (least {ends[0]:.2f}, most "
            f"{ends[-1]:.2f}), changing by a factor {late:.2f} in the second half of the run; the partition of as many "
            f"keys has {softest:.0f} at its best temperature, {softest / median(ends):.0f} times that. Learned heads "
            f"mix {median(values(last.values(), 'effective_keys')):.0f} keys at a point (the partition "
            f"{derived[min(derived, key=lambda s: derived[s]['norm_mean'])]['effective_keys']:.1f}), with values up to "
            f"{max(values(last.values(), 'value_max')):.0f} for a target of size 2, and a sup error of "
            f"{median(values(last.values(), 'error')):.2g}. "
        )
        for start, row in derived.items():
            ended = [r for r in where(here, start=start, share=1.0) if r["step"]]
            if not ended:
                continue
            ratios = sorted(r["norm_mean"] / row["norm_mean"] for r in ended)
            words += (
                f"From the {start} (norm {row['norm_mean']:.0f}, error {row['error']:.2g}) {len(ended)} runs end with "
                f"{ratios[0]:.2f} to {ratios[-1]:.2f} of its norm and a median error of "
                f"{median(values(ended, 'error')):.2g}. "
            )
    if near == total > 0:
        return Verdict(HOLDS, "Every random start ends as sharp as a partition.", words)
    if near:
        return Verdict(LIMITS, f"{near} of {total} random starts end as sharp as a partition.", words)
    kept = [r for r in table if r["start"] != "random" and r["share"] == 1.0 and r["step"]]
    begun = {(r["start"], r["keys"]): r["norm_mean"] for r in where(table, share=0.0)}
    stay = sum(abs(r["norm_mean"] / begun[r["start"], r["keys"]] - 1) <= 0.25 for r in kept)
    return Verdict(
        REFUTED,
        f"Norms grow in {grown} of {total} runs, but no random start ends at half the sharpness of the partition: "
        f"training does not find it. {stay} of {len(kept)} heads that start there keep its norms within a quarter.",
        words,
    )


def draw(table: Table) -> Any:
    figure, axes = panels(2)
    keys = max(values(table, "keys"))
    here = where(table, keys=keys)
    top = max(values(here, "step"))
    for colour, start in coloured(distinct(here, "start")):
        rows = where(here, start=start)
        for k, (lr, seed) in enumerate(dict.fromkeys((row["lr"], row["seed"]) for row in rows)):
            one = where(rows, lr=lr, seed=seed)
            style = {"ls": "-" if lr == min(values(rows, "lr")) else "--", "marker": ".", "ms": 4, "lw": 1}
            label = f"{start} start" if k == 0 else None
            curve(axes[0, 0].semilogy, one, "step", "norm_mean", color=colour, label=label, **style)
            curve(axes[0, 1].semilogy, one, "step", "error", color=colour, label=label, **style)
        if start != "random":
            level = where(rows, share=0.0)[0]["norm_mean"]
            axes[0, 0].axhline(level, color=colour, lw=0.8, ls=":")
            axes[0, 0].text(top, level * 1.1, f"norm of the {start}", ha="right", fontsize=7, color=colour)
    axes[0, 0].set(xlabel="step", ylabel="mean key norm  (inverse temperature)")
    axes[0, 1].set(xlabel="step", ylabel="sup error on the probe")
    axes[0, 1].legend(fontsize=7, frameon=False)
    axes[0, 0].margins(y=0.12)
    note = "each line a seed; solid and dashed: two learning rates" if len(distinct(here, "lr")) > 1 else ""
    title(axes[0, 0], f"Key norms of one head, {keys} keys", note)
    title(axes[0, 1], "Its error", "sin πx + cos πy")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        fewer=([2], [4], [4]),
        cells=([3], [8], [8]),
        rates=([0.1], [0.01, 0.1], [0.01, 0.1]),
        seeds=(1, 3, 4),
        steps=(30, 1500, 12000),
    ),
    needs=("torch",),
    full_time="9 minutes of CPU",
)
