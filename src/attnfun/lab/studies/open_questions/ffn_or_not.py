"""Are feed-forward units needed beside attention?

Claim. Attention alone is enough: sequence-to-sequence maps need no feed-forward network, so that leaving it out may
make models simpler at no loss.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, which proves it and leaves the practical question open;
constructions, proofs and the comparison at equal parameters are our own.

Attention alone against attention with feed-forward units, at equal parameters, on sequence maps.

Two layers each, with a residual stream, the same width, the same constant tokens: one has all its weights in heads, the
other gives half of its heads for ReLU units behind every layer. Trained on the same sequences from several starts.
Beside them what is constructed of attention alone, and proved.

Columns.
    map: one of the sequence maps that ship
    way: constructed (attention alone), or trained: attention, attention + ffn
    seed: of the random start
    steps: of training
    parameters: numbers in the network
    rms: root mean square error on 1,000 fresh sequences
    error: largest error there
    eps: asked for
    proved: sup bound proved from the stored weights
    trivial: rms of the data about their mean
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

WAYS = ("attention", "attention + ffn")
EQUAL = 0.03  # how far apart parameters may be
CLEAR = 1.5  # medians that differ by less than this, or errors that overlap, are called a draw
FLOOR = 1e-5  # of the picture
HEADS, RANK, CONSTANTS, ROOM, TEST = 4, 4, 4, 6, 1000


def units(size: Size) -> list[Unit]:
    base: Unit = {"eps": None, "seeds": [], "steps": 0, "samples": 0}
    made: list[Unit] = [{**base, "map": name, "way": "constructed", "eps": size["eps"]} for name in size["maps"]]
    run = {"steps": size["steps"], "samples": size["samples"]}
    return made + [
        {**base, **run, "map": name, "way": way, "seeds": [seed]}
        for name in size["maps"]
        for way in WAYS
        for seed in range(size["seeds"])
    ]


def run(unit: Unit) -> list[Row]:
    import numpy as np

    asked = af.parts.sequence_example(unit["map"]).request()
    target = af.SequenceMap.read(asked["target"], asked["domain"], asked["tokens"])

    def sequences(count: int, stream: int) -> Any:
        rng = np.random.default_rng([stream, target.tokens])
        return target.box.sample(count * target.tokens, rng).reshape(count, target.tokens, target.box.dim)

    X = sequences(TEST, 1)
    Y = target.values(X)
    found: list[Row] = []

    def measure(outputs: Any, parameters: int, seed: int | None, proved: float | None) -> None:
        error = np.asarray(outputs, dtype=np.float64) - Y
        found.append(
            {
                "seed": seed,
                "parameters": parameters,
                "rms": np.sqrt((error**2).mean()),
                "error": np.abs(error).max(),
                "proved": proved,
                "trivial": np.sqrt(((Y - Y.mean(axis=0)) ** 2).mean()),
            }
        )

    if unit["way"] == "constructed":
        net = af.sequence(target, target.tokens, target.box, unit["eps"])
        bound = net.certificate.error[1] if net.certificate.status == "proved" else None
        measure(net(X), net.network.cost.parameters, None, bound)
        return found

    architecture = architecture_of(target, unit["way"] == "attention + ffn")
    embedding = af.parts.sequence_embedding(target, architecture)
    seen = sequences(unit["samples"], 2)
    tokens = [af.parts.embedded(*embedding, part, "float32") for part in (seen, X)]
    wanted = target.values(seen)
    for seed in unit["seeds"]:
        network = af.learn.fit_sample(architecture, tokens[0], wanted, steps=unit["steps"], seed=seed, lr=1e-2)
        measure(network.run(tokens[1]), architecture.free_weights, seed, None)
    return found


def architecture_of(target: Any, units: bool) -> Any:
    """Two layers; with `units` half of the heads are given for as many ReLU units as have the same parameters."""
    width = len(target.token_coordinates()) + ROOM
    one_head, one_unit = 4 * width * RANK, 2 * width + 1
    heads = HEADS // 2 if units else HEADS
    ffn = round((HEADS - heads) * one_head / one_unit)
    shape = {"layers": 2, "heads": heads, "rank": RANK, "width": width, "constants": CONSTANTS, "ffn": ffn}
    return af.TokenArchitecture.for_target(target, dtype="float32", **shape)


def _clearly(large: list[float], small: list[float]) -> bool:
    """Every error of the first above all of the second, and the medians apart; errors that are no number are large."""
    return not median(large) <= CLEAR * median(small) and not min(large) <= max(small)


def judge(table: Table) -> Verdict:
    """Refuted when attention alone is not proved to eps on some map; with limits where units train clearly better."""
    if gone := lacking(table, "way", "constructed", *WAYS):
        return gone
    faults, better, worse, words = [], [], [], ""
    for name in distinct(table, "map"):
        for row in where(table, map=name, way="constructed"):
            if row["proved"] is None or not row["error"] <= row["proved"] <= row["eps"]:
                faults.append(f"{name} is not proved to {row['eps']:g}")
            else:
                words += f"{name}: attention alone proved to {row['proved']:.2g} with {row['parameters']:,} numbers"
        alone, mixed = (where(table, map=name, way=way) for way in WAYS)
        if not alone or not mixed:
            continue
        if not abs(mixed[0]["parameters"] / alone[0]["parameters"] - 1) <= EQUAL:
            faults.append(f"the parameters for {name} are not equal")
        plain, units = values(alone, "rms"), values(mixed, "rms")
        words += (
            f"; {alone[0]['parameters']:,} trained for {alone[0]['steps']:,} steps: rms {median(plain):.2g} "
            f"({min(plain):.2g}–{max(plain):.2g}) without and {median(units):.2g} ({min(units):.2g}–{max(units):.2g}) "
            "with units. "
        )
        if _clearly(plain, units):
            better.append(name)
        elif _clearly(units, plain):
            worse.append(name)
    if faults:
        return Verdict(REFUTED, f"Refuted: {'; '.join(faults)}.", words)
    if worse:
        words += f"Attention alone trains clearly better on {', '.join(worse)}. "
    if better:
        return Verdict(
            LIMITS,
            f"Attention alone suffices for all of them, but units train clearly better on {', '.join(better)}.",
            words,
        )
    return Verdict(HOLDS, "Attention alone suffices for all of them, and nowhere do units train clearly better.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(width=8.4)
    ax = axes[0, 0]
    maps = distinct(table, "map")
    for offset, colour, mark, way in ((-0.12, NETWORKS[0], "o", WAYS[0]), (0.12, NETWORKS[1], "s", WAYS[1])):
        rows = where(table, way=way)
        at = [maps.index(row["map"]) + offset for row in rows]
        ax.semilogy(at, values(rows, "rms"), mark, color=colour, mfc="none", label=f"learned, {way}: rms, each seed")
        medians = [median(values(where(rows, map=name), "rms")) for name in maps]
        ax.semilogy([k + offset for k in range(len(maps))], medians, "_", color=colour, ms=16, mew=2)
    rows = where(table, way="constructed")
    at = [maps.index(row["map"]) for row in rows]
    proved = [math.nan if row["proved"] is None else max(row["proved"], FLOOR) for row in rows]
    ax.semilogy(at, proved, "_", color="k", ms=22, mew=2, label="constructed, attention alone: proved")
    ax.semilogy(at, [max(row["rms"], FLOOR) for row in rows], "k.", ms=5, label="constructed: rms")
    ax.semilogy(at, values(rows, "trivial"), "--", color="#52606d", lw=1, label="mean of the data: rms")
    ax.set(xticks=range(len(maps)), ylabel="error", xlabel="sequence map", xlim=(-0.5, len(maps) - 0.5))
    ax.set_xticklabels(maps)
    ax.legend(fontsize=7, frameon=False, bbox_to_anchor=(1.0, 1.0), loc="upper left")
    title(
        ax,
        "With and without feed-forward units",
        f"two layers, equal parameters; what is below {FLOOR:g} is drawn there",
    )
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        maps=(
            ["swap"],
            ["sine", "maximum", "relu-net", "swap", "smooth"],
            ["sine", "maximum", "relu-net", "swap", "smooth"],
        ),
        eps=(0.1, 1e-2, 1e-2),
        seeds=(1, 3, 6),
        steps=(3, 800, 1200),
        samples=(64, 10000, 20000),
    ),
    needs=("torch",),
    full_time="6 minutes of CPU",
)
