"""Are feed-forward units needed beside attention?

Claim. Attention alone is enough: sequence-to-sequence maps need no feed-forward network, so that leaving it out may
make models simpler at no loss.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, which proves it and leaves the practical question open;
constructions, proofs and the comparison at equal parameters are our own.

Attention alone against attention with feed-forward units, at equal parameters, on sequence maps.

Two layers each, with a residual stream, the same width, the same constant tokens: one has all its weights in heads, the
other gives half of its heads for ReLU units behind every layer. Trained on the same sequences from several starts.
Beside them what is constructed of attention alone, and proved.

A full run takes 6 minutes of CPU.

Columns.
    map: one of the sequence maps that ship
    way: constructed (attention alone), or trained: attention, attention + ffn
    seed: of the random start
    steps: of training
    parameters: numbers in the network
    rms: root mean square error on 1,000 fresh sequences
    error: largest error there
    eps: asked for
    proved: ≤ sup bound proved from the stored weights
    trivial: rms of the data about their mean
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, SLATE, curve, labelled, panels
from attnfun.lab.studies.softmax_attention.seq2seq import fitted
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, median

WAYS = ("attention", "attention + ffn")
EQUAL = 0.03  # how far apart parameters may be
CLEAR = 1.5  # medians that differ by less than this, or errors that overlap, are called a draw
FLOOR = 1e-5  # of the picture
HEADS, RANK, CONSTANTS, ROOM, TEST = 4, 4, 4, 6, 1000


def units(size: Size) -> list[Unit]:
    made = crossed(map=size["maps"], way="constructed", eps=size["eps"], seeds=[[]], steps=0, samples=0)
    run = {"eps": None, "steps": size["steps"], "samples": size["samples"]}
    return made + crossed(map=size["maps"], way=WAYS, seeds=[[seed] for seed in range(size["seeds"])], **run)


def run(unit: Unit) -> list[Row]:
    asked = af.parts.sequence_example(unit["map"]).request()
    target = af.SequenceMap.read(asked["target"], asked["domain"], asked["tokens"])

    def sequences(count: int, stream: int) -> Any:
        rng = np.random.default_rng([stream, target.tokens])
        return target.box.sample(count * target.tokens, rng).reshape(count, target.tokens, target.box.dim)

    X = sequences(TEST, 1)
    Y = target.values(X)

    def row(outputs: Any, parameters: int, **more: Any) -> Row:
        error = np.asarray(outputs, dtype=np.float64) - Y
        trivial = np.sqrt(((Y - Y.mean(axis=0)) ** 2).mean())
        seen = {"rms": np.sqrt((error**2).mean()), "error": np.abs(error).max(), "trivial": trivial}
        return {"parameters": parameters, **seen, **more}

    if unit["way"] == "constructed":
        net = af.sequence(target, target.tokens, target.box, unit["eps"])
        bound = net.certificate.error[1] if net.certificate.status == "proved" else None
        return [row(net(X), net.network.cost.parameters, proved=bound)]
    architecture = architecture_of(target, unit["way"] == "attention + ffn")
    seen = sequences(unit["samples"], 2)
    data = (target, architecture, seen, target.values(seen), X)
    return [row(*fitted(*data, steps=unit["steps"], seed=seed), seed=seed) for seed in unit["seeds"]]


def architecture_of(target: Any, units: bool) -> Any:
    """Two layers; with `units` half of the heads are given for as many ReLU units as have the same parameters."""
    width = len(target.token_coordinates()) + ROOM
    one_head, one_unit = 4 * width * RANK, 2 * width + 1
    heads = HEADS // 2 if units else HEADS
    ffn = round((HEADS - heads) * one_head / one_unit)
    shape = {"layers": 2, "heads": heads, "rank": RANK, "width": width, "constants": CONSTANTS, "ffn": ffn}
    return af.TokenArchitecture.for_target(target, dtype="float32", **shape)


def _clearly(large: list[float], small: list[float]) -> bool:
    """Every error of the first above all of the second, and the medians apart; NaN counts as large."""
    return not median(large) <= CLEAR * median(small) and not min(large) <= max(small)


def judge(table: Rows) -> Verdict:
    """Refuted when attention alone is not proved to eps on some map; with limits where units train clearly better."""
    built = table.where(way="constructed")
    wrong = built.fails(lambda row: row["proved"] is not None and row["error"] <= row["proved"] <= row["eps"])
    faults = wrong.say("{map} is not proved to {eps:g}")
    better, worse, words = [], [], []
    for name, here in table.by("map"):
        proved = here.where(way="constructed").that(lambda row: row not in wrong)
        parts = proved.say("{map}: attention alone proved to {proved:≤2} with {parameters:,} numbers")
        alone, mixed = (here.where(way=way) for way in WAYS)
        if alone and mixed:
            if not abs(mixed[0]["parameters"] / alone[0]["parameters"] - 1) <= EQUAL:
                faults.append(f"the parameters for {name} are not equal")
            text = "{parameters:,} trained for {steps:,} steps: rms {without} without and {with_} with units"
            errors = {"without": alone.middle("rms", to="–"), "with_": mixed.middle("rms", to="–")}
            parts += alone.first().say(text, **errors)
            plain, units_ = alone.of("rms"), mixed.of("rms")
            better += [name] if _clearly(plain, units_) else []
            worse += [name] if _clearly(units_, plain) and not _clearly(plain, units_) else []
        words.append("; ".join(parts) + ".")
    if worse and not faults:
        words.append(f"Attention alone trains clearly better on {', '.join(worse)}.")
    limit = f"Attention alone suffices for all of them, but units train clearly better on {', '.join(better)}."
    end = "Attention alone suffices for all of them, and nowhere do units train clearly better."
    return decided(words, faults, limit if better else "", end)


def draw(table: Rows) -> Any:
    figure, [ax] = panels(width=8.4)
    maps, built = table.distinct("map"), table.where(way="constructed")

    def place(row: Row) -> int:
        return maps.index(row["map"])

    for offset, colour, mark, way in ((-0.12, NETWORKS[0], "o", WAYS[0]), (0.12, NETWORKS[1], "s", WAYS[1])):
        rows, beside = table.where(way=way), lambda row, offset=offset: place(row) + offset
        curve(ax, rows, beside, "rms", mark, color=colour, mfc="none", label="learned, {way}: rms, each seed")
        curve(ax, rows, beside, "rms", "_", each=median, color=colour, ms=16, mew=2)
    proved, label = (lambda row: max(row["proved"], FLOOR)), "constructed, attention alone: proved"
    curve(ax, built.known("proved"), place, proved, "k_", ms=22, mew=2, label=label)
    curve(ax, built, place, lambda row: max(row["rms"], FLOOR), "k.", ms=5, label="constructed: rms")
    curve(ax, built, place, "trivial", "--", color=SLATE, lw=1, label="mean of the data: rms")
    note = f"two layers, equal parameters; what is below {FLOOR:g} is drawn there"
    shape = {"legend": {"bbox_to_anchor": (1.0, 1.0), "loc": "upper left"}, "xlim": (-0.5, len(maps) - 0.5)}
    labelled(ax, "With and without feed-forward units", note, "sequence map", "error", log="y", xticks=maps, **shape)
    return figure


MAPS = ["sine", "maximum", "relu-net", "swap", "smooth"]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("constructed", *WAYS)},
    maps=(["swap"], MAPS, MAPS),
    eps=(0.1, 1e-2, 1e-2),
    seeds=(1, 3, 6),
    steps=(3, 800, 1200),
    samples=(64, 10000, 20000),
)
