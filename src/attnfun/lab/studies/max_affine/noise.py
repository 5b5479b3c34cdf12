"""Noise on the inputs and the sharpness of a trained head.

Claim. With noise on its inputs a trained head lowers the norms of its keys and queries, so that a blurred partition
averages the noise out.

Source. A remark on Liu, Hu, Song, Liu 2025, arXiv 2504.19901 (an experiment proposed there, without result).

Does noise on the inputs make a trained head lower its key norms?

One head of unstructured keys on sin πx + cos πy, trained with Gaussian noise on the inputs and the target of the point
without it, from random starts and from the sharp partition, with and without weight decay. Runs of one seed differ in
nothing but the size of the noise, so every comparison is one of pairs.

A full run takes 7 minutes of CPU.

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

import math

from attnfun.lab.studies.drawing import SLATE, Figure, coloured, labelled, panels
from attnfun.lab.studies.max_affine.heads import state, trained_head
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed_with, decided, described, median

STARTS = {"random": None, "partition": 20.0}
CLEAR = 0.05  # a norm that falls by less than a twentieth has not been lowered
SETTING = ("start", "lr", "decay")


def units(size: Size) -> list[Unit]:
    fixed = {"seed": range(size["seeds"]), "cells": size["cells"], "steps": size["steps"]}
    settings = [(start, c, *setting) for start, c in STARTS.items() for setting in size["settings"]]
    return crossed_with(("start", "c", "lr", "decay", "noise"), settings, **fixed)


def run(unit: Unit) -> Row:
    options = {key: unit[key] for key in ("steps", "seed", "noise", "lr")}
    optimiser = "adamw" if unit["decay"] else "adam"
    learned = trained_head(unit["cells"], unit["c"], optimiser=optimiser, weight_decay=unit["decay"], **options)
    return {"norm_start": learned.history[0].key_norm_mean, **state(learned.history[-1])}


def ratios(rows: Rows, noise: float, column: str = "norm_mean") -> list[float]:
    """That column with the noise over that without, seed by seed."""
    without = {row["seed"]: row[column] for row in rows.where(noise=0.0)}
    return sorted(row[column] / without[row["seed"]] for row in rows.where(noise=noise) if row["seed"] in without)


def spread(numbers: list[float]) -> tuple[float, float]:
    """Geometric mean and the standard error of the mean logarithm; NaN where one number cannot tell."""
    logs = [math.log(v) for v in numbers]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return math.exp(mean), math.nan
    return math.exp(mean), math.sqrt(sum((v - mean) ** 2 for v in logs) / (len(logs) - 1) / len(logs))


def judge(table: Rows) -> Verdict:
    """Holds when the largest noise lowers the mean key norm in every pair of seeds by a twentieth and more, for both
    starts, at every rate, with and without decay; with limits when in some of these settings, refuted when in none.
    """
    top = max(table.of("noise"))
    lowered, raised, smaller, words = [], [], 0, []
    groups = table.by(*SETTING)
    for start, lr, decay, rows in groups:
        found = ratios(rows, top)
        lowered.append(bool(found) and all(r <= 1 - CLEAR for r in found))
        raised.append(bool(found) and all(r >= 1 + CLEAR for r in found))
        mean, error = spread(found)
        shared, worth = median(ratios(rows, top, "effective_keys")), median(ratios(rows, top, "value_max"))
        smaller += worth < 1
        words.append(
            f"{start.capitalize()} start, rate {lr:g}, decay {decay:g}: noise {top:g} multiplies the mean key norm by "
            f"{mean:.2f} (standard error {100 * error:.0f} %, seeds {found[0]:.2f} to {found[-1]:.2f}), the number of "
            f"keys that share a point by {shared:.2f}, the largest value by {worth:.2f}."
        )
    for start, plain in table.where(noise=0.0, lr=max(table.of("lr"))).by("start"):
        norms = [rows.median("norm_mean") for _, rows in sorted(plain.by("decay"), key=lambda group: group[0])]
        if len(norms) > 1:
            words.append(f"For scale, {start} start: weight decay alone multiplies it by {norms[-1] / norms[0]:.2f}.")
    clean, noisy = (table.where(noise=n).median("rms") for n in (0.0, top))
    words.append(f"The median rms error to the clean target goes from {clean:.2g} to {noisy:.2g}.")
    no = (
        f"in no setting does noise lower the key norms in every seed; in {sum(raised)} of {len(groups)} settings it "
        f"raises them in every seed. The largest value falls in {smaller} of {len(groups)}: the function is smoothed, "
        "the partition is not blurred"
    )
    some = "" if all(lowered) else f"Noise lowers the norms in {sum(lowered)} of {len(groups)} settings."
    return decided(words, [] if any(lowered) else [no], some, "Noise lowers the norms in every setting and every seed.")


def draw(table: Rows) -> Figure:
    figure, axes = panels(2)
    noises, groups = table.distinct("noise"), table.by(*SETTING)
    parts = (
        ("norm_mean", "mean key norm", "Key norms", "each dot a seed; lines: medians; below 1 would be blur"),
        ("effective_keys", "effective keys", "Effective keys", "above 1 would be blur"),
    )
    for ax, (column, name, head, note) in zip(axes, parts, strict=True):
        for k, (colour, (start, lr, decay, rows)) in enumerate(coloured(groups)):
            found = {noise: ratios(rows, noise, column) for noise in rows.distinct("noise")}
            places = [noises.index(noise) + 0.1 * (k - (len(groups) - 1) / 2) for noise in found]
            for place, many in zip(places, found.values(), strict=True):
                ax.plot([place] * len(many), many, "o", color=colour, ms=4, alpha=0.6)
            label = f"{start}, rate {lr:g}, decay {decay:g}"
            ax.plot(places, [median(many) for many in found.values()], "-", color=colour, lw=1.2, label=label)
        ax.axhline(1.0, color=SLATE, lw=0.8)
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        texts = {"x": "noise on the inputs (half-widths of the box)", "y": f"{name}, with noise over without"}
        limits = {"ylim": (min(low, 0.4), max(high, 2.0)), "yticks": [0.5, 0.7, 1.0, 1.4, 2.0]}
        legend = "lower left" if ax is axes[0] else None
        labelled(ax, head, note, **texts, **limits, xticks=[f"{noise:g}" for noise in noises], legend=legend)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    cells=(3, 8, 8),
    settings=(
        [[0.1, 0.01, [0.0, 0.2]]],
        [[0.1, 0.0, [0.0, 0.05, 0.2]], [0.1, 0.01, [0.0, 0.05, 0.2]], [0.01, 0.0, [0.0, 0.2]]],
        [[lr, decay, [0.0, 0.05, 0.2]] for lr in (0.1, 0.01) for decay in (0.0, 0.01)],
    ),
    seeds=(1, 3, 4),
    steps=(12, 900, 3000),
)
