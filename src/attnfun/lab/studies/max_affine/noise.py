"""Noise on the inputs and the sharpness of a trained head.

Claim. With noise on its inputs a trained head lowers the norms of its keys and queries, so that a blurred partition
averages the noise out.

Source. A remark on Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (an experiment proposed there, without result).

Does noise on the inputs make a trained head lower its key norms?

One head of unstructured keys on sin πx + cos πy, trained with Gaussian noise on the inputs and the target of the point
without it, from random starts and from the sharp partition, with and without weight decay. Runs of one seed differ in
nothing but the size of the noise, so every comparison is one of pairs.

Columns.
    start: random, or the partition with as many keys at c = R h² = 20
    lr: largest rate of the one-cycle
    decay: weight decay of AdamW; 0 is Adam
    noise: standard deviation of the noise on the inputs, in half-widths of the box
    seed: of the start, the batches and the noise
    error: sup error to the clean target on the probe, at the end
    rms: root mean squared error to the clean target
    norm_start: mean norm of a key at the start
    norm_mean: mean norm of a key at the end
    norm_max: largest norm of a key at the end
    value_max: largest value at the end
    effective_keys: exp(entropy) of the attention at the end, averaged over points
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

STARTS = {"random": None, "partition": 20.0}
CLEAR = 0.05  # a norm that falls by less than a twentieth has not been lowered


def units(size: Size) -> list[Unit]:
    fixed = {"cells": size["cells"], "steps": size["steps"]}
    return [
        {"start": start, "c": c, "lr": lr, "decay": decay, "noise": noise, "seed": seed, **fixed}
        for start, c in STARTS.items()
        for lr, decay, noises in size["settings"]
        for noise in noises
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.max_affine.heads import FULL_PERIOD, SQUARE, partition_head, target, unstructured

    function, cells = target(FULL_PERIOD, SQUARE), unit["cells"]
    start: Any = "random"
    if unit["c"] is not None:
        start = unstructured(partition_head(function, (cells, cells), unit["c"]))
    learned = af.train(
        af.Architecture.one_head(function.box.names, cells * cells),
        function,
        steps=unit["steps"],
        seed=unit["seed"],
        start=start,
        optimiser="adamw" if unit["decay"] else "adam",
        weight_decay=unit["decay"],
        noise=unit["noise"],
        lr=unit["lr"],
        batch=128,
        proof=False,
    )
    first, last = learned.history[0], learned.history[-1]
    return [
        {
            "error": last.sup,
            "rms": last.loss**0.5,
            "norm_start": first.key_norm_mean,
            "norm_mean": last.key_norm_mean,
            "norm_max": last.key_norm_max,
            "value_max": last.value_max,
            "effective_keys": last.effective_keys,
        }
    ]


def settings(table: Table) -> list[tuple[str, float, float]]:
    """(start, rate, decay) of the runs, in order."""
    return list(dict.fromkeys((row["start"], row["lr"], row["decay"]) for row in table))


def ratios(rows: Table, noise: float, column: str = "norm_mean") -> list[float]:
    """That column with the noise over that without, seed by seed."""
    without = {row["seed"]: row[column] for row in where(rows, noise=0.0)}
    return sorted(row[column] / without[row["seed"]] for row in where(rows, noise=noise) if row["seed"] in without)


def spread(numbers: list[float]) -> tuple[float, float]:
    """Geometric mean and the standard error of the mean logarithm; NaN where one number cannot tell."""
    logs = [math.log(v) for v in numbers]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), math.nan
    return math.exp(mean), math.sqrt(sum((v - mean) ** 2 for v in logs) / (len(logs) - 1) / len(logs))


def judge(table: Table) -> Verdict:
    """Holds when the largest noise lowers the mean key norm in every pair of seeds by a twentieth and more, for both
    starts, at every rate, with and without decay; with limits when in some of these settings, refuted when in none.
    """
    top = max(values(table, "noise"))
    lowered, raised, smaller, words = [], [], 0, ""
    groups = settings(table)
    for start, lr, decay in groups:
        rows = where(table, start=start, lr=lr, decay=decay)
        found = ratios(rows, top)
        lowered.append(bool(found) and all(r <= 1 - CLEAR for r in found))
        raised.append(bool(found) and all(r >= 1 + CLEAR for r in found))
        mean, error = spread(found)
        shared, worth = median(ratios(rows, top, "effective_keys")), median(ratios(rows, top, "value_max"))
        smaller += worth < 1
        words += (
            f"{start.capitalize()} start, rate {lr:g}, decay {decay:g}: noise {top:g} multiplies the mean key norm by "
            f"{mean:.2f} (standard error {100 * error:.0f} %, seeds {found[0]:.2f} to {found[-1]:.2f}), the number of "
            f"keys that share a point by {shared:.2f}, the largest value by {worth:.2f}. "
        )
    for start in distinct(table, "start"):
        plain = where(table, start=start, noise=0.0, lr=max(values(table, "lr")))
        norms = [median(values(where(plain, decay=decay), "norm_mean")) for decay in sorted(distinct(plain, "decay"))]
        if len(norms) > 1:
            words += f"For scale, {start} start: weight decay alone multiplies it by {norms[-1] / norms[0]:.2f}. "
    clean, noisy = (median(values(where(table, noise=n), "rms")) for n in (0.0, top))
    words += f"The median rms error to the clean target goes from {clean:.2g} to {noisy:.2g}. "
    if all(lowered):
        return Verdict(HOLDS, "Noise lowers the norms in every setting and every seed.", words)
    if any(lowered):
        return Verdict(LIMITS, f"Noise lowers the norms in {sum(lowered)} of {len(groups)} settings.", words)
    opposite = f"in {sum(raised)} of {len(groups)} settings it raises them in every seed"
    return Verdict(
        REFUTED,
        f"In no setting does noise lower the key norms in every seed; {opposite}. The largest "
        f"value falls in {smaller} of {len(groups)}: the function is smoothed, the partition is not blurred.",
        words,
    )


def draw(table: Table) -> Any:
    figure, axes = panels(2)
    noises = distinct(table, "noise")
    groups = settings(table)
    for k, (colour, (start, lr, decay)) in enumerate(coloured(groups)):
        rows = where(table, start=start, lr=lr, decay=decay)
        seen = distinct(rows, "noise")
        places = [noises.index(noise) + 0.1 * (k - (len(groups) - 1) / 2) for noise in seen]
        for ax, column in ((axes[0, 0], "norm_mean"), (axes[0, 1], "effective_keys")):
            found = [ratios(rows, noise, column) for noise in seen]
            label = f"{start}, rate {lr:g}, decay {decay:g}"
            for place, many in zip(places, found, strict=True):
                ax.semilogy([place] * len(many), many, "o", color=colour, ms=4, alpha=0.6)
            ax.semilogy(places, [median(m) for m in found], "-", color=colour, lw=1.2, label=label)
    for ax, label in ((axes[0, 0], "mean key norm"), (axes[0, 1], "effective keys")):
        ax.axhline(1.0, color="#52606d", lw=0.8)
        ax.set_xticks(range(len(noises)), [f"{noise:g}" for noise in noises])
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, 0.4), max(high, 2.0))
        ax.set_yticks([0.5, 0.7, 1.0, 1.4, 2.0], ["0.5", "0.7", "1", "1.4", "2"])
        ax.minorticks_off()
        ax.set(xlabel="noise on the inputs (half-widths of the box)", ylabel=f"{label}, with noise over without")
    axes[0, 0].legend(fontsize=7, frameon=False, loc="lower left")
    title(axes[0, 0], "Key norms", "each dot a seed; lines: medians; below 1 would be blur")
    title(axes[0, 1], "Effective keys", "above 1 would be blur")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        cells=(3, 8, 8),
        settings=(
            [[0.1, 0.01, [0.0, 0.2]]],
            [[0.1, 0.0, [0.0, 0.05, 0.2]], [0.1, 0.01, [0.0, 0.05, 0.2]], [0.01, 0.0, [0.0, 0.2]]],
            [[lr, decay, [0.0, 0.05, 0.2]] for lr in (0.1, 0.01) for decay in (0.0, 0.01)],
        ),
        seeds=(1, 3, 4),
        steps=(12, 900, 3000),
    ),
    needs=("torch",),
    full_time="7 minutes of CPU",
)
