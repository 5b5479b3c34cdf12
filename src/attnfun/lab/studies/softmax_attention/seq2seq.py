"""Two layers of attention and nothing else on sequence-to-sequence maps.

Claim. Two layers of multi-head attention with linear maps approximate every continuous sequence-to-sequence map on a
compact domain, with an error of order 1/p and 1/H for ReLU nets; trained networks are said to gain alike.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, two-layer theorem and its experiment; weights and bounds are
our own.

Two layers of attention on the published data model, constructed and trained, against p and H.

Data: X uniform in [0, 1]^(n×d), Y = a ReLU net with one hidden layer of the flattened X, weights from N(0, 1), one
number a token. Constructed: every hidden unit by heads of interpolation points (the second layer; the first copies
tokens and is exact), proved; and a whole two-layer network with three keys a unit, proved to a given eps. Trained: two
layers of plain attention with a residual stream, positions, and p − n constant tokens that are learned.

Errors are mean squares over the numbers that are asked for. The published code averages over 32 channels, 31 of which
are 0 in the data: its figures are about 32 times smaller than these at the same network.

Columns.
    way: mean, linear (least squares on the flattened sequence), published or interpolated (hidden units by
        interpolation points), two-layer (three keys a unit, whole network), learned
    p: interpolation points a unit; for learned networks tokens, the learned constant ones included
    heads: heads a hidden unit; for learned networks heads a layer
    seed: of the random start
    steps: of training
    eps: asked for
    parameters: numbers in the network
    mse: mean square error a number on 2,000 fresh sequences
    mse_se: its standard error
    error: largest error there
    proved: sup bound proved from the stored weights
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, slope, values, where

CHANNELS = 32  # of the published code, all but one 0
GRIDS = ("published", "interpolated")
NEAR = 0.15  # what a measured exponent may differ from -1
TEST, WIDTH, RANK = 2000, 16, 4


def units(size: Size) -> list[Unit]:
    base = {key: size[key] for key in ("n", "d", "hidden")}
    base |= {"p": 0, "heads": 1, "seed": None, "steps": 0, "samples": 0, "eps": None}
    made: list[Unit] = [{**base, "way": "plain"}]
    made += [{**base, "way": way, "p": p} for way in GRIDS for p in size["points"]]
    made += [{**base, "way": "interpolated", "p": size["points"][0], "heads": h} for h in size["unit_heads"]]
    made += [{**base, "way": "two-layer", "eps": eps} for eps in size["eps"]]
    shapes = [(size["n"] + extra, size["fixed_heads"]) for extra in size["extra"]]
    shapes += [(size["n"], H) for H in size["heads"] if size["fixed_heads"] != H]
    run = {"steps": size["steps"], "samples": size["samples"]}
    made += [
        {**base, **run, "way": "learned", "p": p, "heads": H, "seed": seed}
        for p, H in shapes
        for seed in range(size["seeds"])
    ]
    return made


def _data(unit: Unit, count: int, stream: int) -> tuple[Any, Any, Any]:
    """(the map's rows, sequences, values)."""
    import numpy as np

    n, d = unit["n"], unit["d"]
    rows = af.parts.relu_network(n, dim=d, hidden=unit["hidden"], outputs=1, seed=0)
    target = af.SequenceMap.read(rows, dict.fromkeys("xyzuvw"[:d], (0.0, 1.0)), n)
    X = np.random.default_rng([stream, n, d]).random((count, n, d))
    return target, X, target.values(X)


def run(unit: Unit) -> list[Row]:
    import numpy as np

    n = unit["n"]
    target, X, Y = _data(unit, TEST, 1)

    def row(way: str, outputs: Any, parameters: int, proved: float | None = None) -> Row:
        error = np.asarray(outputs, dtype=np.float64) - Y
        squares = (error**2).mean(axis=(1, 2))
        return {
            **{"way": way, "p": unit["p"], "heads": unit["heads"], "seed": unit["seed"], "steps": unit["steps"]},
            "parameters": parameters,
            "mse": squares.mean(),
            "mse_se": squares.std() / np.sqrt(len(squares)),
            "error": np.abs(error).max(),
            "proved": proved,
        }

    if unit["way"] == "plain":  # what no network is needed for
        _, seen, wanted = _data(unit, 4000, 2)
        design = np.concatenate([seen.reshape(len(seen), -1), np.ones((len(seen), 1))], axis=1)
        best = np.linalg.lstsq(design, wanted[:, :, 0], rcond=None)[0]
        linear = np.concatenate([X.reshape(len(X), -1), np.ones((len(X), 1))], axis=1) @ best
        return [row("mean", wanted.mean(axis=0), n), row("linear", linear[:, :, None], best.size)]
    if unit["way"] == "two-layer":
        net = af.sequence(target, n, target.box, unit["eps"], method="two-layer")
        proved = net.certificate.error[1] if net.certificate.status == "proved" else float("nan")
        return [row("two-layer", net(X), net.network.cost.parameters, proved)]
    if unit["way"] in GRIDS:
        return [row(unit["way"], *_interpolated(unit, X))]
    return [row("learned", *_learned(unit, X))]


def _interpolated(unit: Unit, X: Any) -> tuple[Any, int, float]:
    """(outputs, parameters, proved bound) of all hidden units by interpolation points, on the flattened sequence."""
    import math

    n, d = unit["n"], unit["d"]
    names = [f"{c}_{j + 1}" for j in range(n) for c in "xyzuvw"[:d]]
    rows = af.parts.relu_network(n, dim=d, hidden=unit["hidden"], outputs=1, seed=0)
    function = af.language.Function.read([row[0] for row in rows], af.Box.parse(dict.fromkeys(names, (0.0, 1.0))))
    variant = "published" if unit["way"] == "published" else "optimal"
    heads = None if unit["heads"] == 1 else unit["heads"]
    network, claim = af.parts.interpolated(
        af.parts.Request(function, 1.0, math.inf, "float64"), unit["p"], heads, variant
    )
    certificate = af.parts.prove(network, function, eps=1.1 * claim, construction="relu_network")
    bound = certificate.error[1] if certificate.status is af.Status.PROVED else math.nan
    return af.network.evaluate(network, X.reshape(len(X), -1))[:, :, None], network.cost.parameters, bound


def _learned(unit: Unit, X: Any) -> tuple[Any, int]:
    target, seen, wanted = _data(unit, unit["samples"], 2)
    width = max(WIDTH, unit["d"] + 1 + unit["n"])
    shape = {"layers": 2, "heads": unit["heads"], "rank": RANK, "width": width, "dtype": "float32"}
    architecture = af.TokenArchitecture.for_target(target, constants=unit["p"] - unit["n"], **shape)
    embedding = af.parts.sequence_embedding(target, architecture)
    tokens = [af.parts.embedded(*embedding, part, "float32") for part in (seen, X)]
    network = af.learn.fit_sample(architecture, tokens[0], wanted, steps=unit["steps"], seed=unit["seed"], lr=1e-2)
    return network.run(tokens[1]), architecture.free_weights


def _sweeps(trained: list[Row]) -> tuple[int, int]:
    """(p of the runs along H, which is n; H of the runs along p)."""
    return min(values(trained, "p")), max(trained, key=lambda row: row["p"])["heads"]


def judge(table: Table) -> Verdict:
    """Refuted when an error passes its bound or a constructed rate is not 1/p and 1/H; with limits when training does
    not gain by p, by H, or stays above a linear map.
    """
    built = [row for row in table if row["way"] in (*GRIDS, "two-layer")]
    wrong = [row for row in built if not row["error"] <= row["proved"]]
    wrong += [row for row in where(table, way="two-layer") if not row["proved"] <= row["eps"]]
    by_p = {way: where(table, way=way, heads=1) for way in GRIDS}
    rates = {}
    for way, rows in by_p.items():
        cells = [row["p"] - (way == "interpolated") for row in rows]
        rates[way] = slope(cells, values(rows, "proved"))
    first = by_p["interpolated"][0]["p"]
    by_heads = where(table, way="interpolated", p=first)
    rates["heads"] = slope(values(by_heads, "heads"), values(by_heads, "proved"))
    trivial, linear = where(table, way="mean")[0]["mse"], where(table, way="linear")[0]["mse"]
    last = by_p["interpolated"][-1]
    words = (
        f"Constructed: proved sup bounds go like p^{rates['published']:.2f} on the published grid, (p − 1)^"
        f"{rates['interpolated']:.2f} with the best temperature and H^{rates['heads']:.2f} with H heads a unit; at "
        f"p = {last['p']} the mean square is {last['mse']:.2g} a number (always predicting the mean: {trivial:.3g}, a "
        f"linear map: {linear:.3g}). "
    )
    for row in where(table, way="two-layer"):
        words += f"The whole two-layer network with three keys a unit is proved to {row['proved']:.2g}. "
    if wrong or not all(abs(rate + 1) <= NEAR for rate in rates.values()):
        fault = f"{wrong[0]['way']} has the error {wrong[0]['error']:.3g}" if wrong else "a constructed rate is not −1"
        return Verdict(REFUTED, f"Refuted: {fault}.", words)
    trained = where(table, way="learned")
    n, fixed = _sweeps(trained)
    limits = []
    for name, rows in (("p", where(trained, heads=fixed)), ("heads", where(trained, p=n))):
        middle = {k: median(values(where(rows, **{name: k}), "mse")) for k in sorted(distinct(rows, name))}
        shown = ", ".join(
            f"{k}: {m:.2g} ({min(e):.2g}–{max(e):.2g})"
            for k, m in middle.items()
            if (e := values(where(rows, **{name: k}), "mse"))
        )
        letter = "p" if name == "p" else "H"
        words += f"Trained for {rows[0]['steps']:,} steps, median mean square (range over seeds) by {letter}: {shown}. "
        ordered = list(middle.values())
        if not ordered[-1] < ordered[0]:
            limits.append(f"the error does not fall with {letter}")
    best = min(values(trained, "mse"))
    words += (
        f"The best trained network has {best:.2g}; the published code would report it as {best / CHANNELS:.2g}, and "
        f"the mean alone as {trivial / CHANNELS:.2g}. "
    )
    if not best < linear:
        limits.append("no trained network is below a linear map of the flattened sequence")
    if not best < last["mse"]:
        limits.append("none comes near the construction")
    if limits:
        return Verdict(
            LIMITS, f"The theorem's rates hold for the construction; in training, {'; '.join(limits)}.", words
        )
    return Verdict(HOLDS, f"Constructed and trained networks gain by both (n = {n}).", words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=2)
    ax = axes[0, 0]
    for colour, way in coloured(GRIDS):
        rows = where(table, way=way, heads=1)
        name = "published grid" if way == "published" else "best temperature"
        curve(ax.loglog, rows, "p", "error", "o-", ms=4, color=colour, label=f"{name}: measured")
        curve(ax.loglog, rows, "p", "proved", "_", ms=14, mew=2, color=colour, label=f"{name}: proved")
    rows = [row for row in where(table, way="interpolated") if row["heads"] > 1]
    p = [row["p"] * row["heads"] for row in rows]
    ax.loglog(p, values(rows, "error"), "^", color=NETWORKS[2], label="H heads of p points: measured")
    ax.loglog(p, values(rows, "proved"), "_", ms=14, mew=2, color=NETWORKS[2], label="H heads of p points: proved")
    ax.set(xlabel="interpolation points of a hidden unit, pH", ylabel="sup error")
    ax.set_ylim(top=30 * max(values(where(table, way="published"), "proved")))
    ax.legend(fontsize=7, frameon=False)
    title(ax, "Constructed: hidden units by interpolation", "the second layer; the first copies tokens exactly")
    ax = axes[0, 1]
    trained = where(table, way="learned")
    n, fixed = _sweeps(trained)
    for colour, name, rows in (
        (NETWORKS[4], f"learned, p tokens, H = {fixed}", where(trained, heads=fixed)),
        (NETWORKS[3], f"learned, H heads, p = n = {n}", where(trained, p=n)),
    ):
        along = "p" if "p tokens" in name else "heads"
        curve(ax.loglog, rows, along, "mse", "x", color=colour, label=name)
        ks = sorted(distinct(rows, along))
        ax.loglog(ks, [median(values(where(rows, **{along: k}), "mse")) for k in ks], "-", lw=1, color=colour)
    for style, way in (("--", "mean"), (":", "linear")):
        ax.axhline(where(table, way=way)[0]["mse"], ls=style, color="#52606d", lw=1, label=f"{way} of the data")
    for row in where(table, way="interpolated", heads=1)[:1]:
        ax.axhline(row["mse"], color=NETWORKS[1], lw=1, label=f"constructed, p = {row['p']} a unit")
    ax.set(xlabel="p or H", ylabel="mean square a number")
    ax.legend(fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 0.07))
    title(ax, "Trained: two layers of attention", "each mark a seed, lines the medians")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        n=(2, 6, 6),
        d=(1, 5, 5),
        hidden=(4, 10, 10),
        points=([4, 8], [8, 16, 32], [8, 16, 32, 64]),
        unit_heads=([2], [2, 4], [2, 4, 8]),
        eps=([0.5], [1e-2], [1e-2, 1e-4]),
        extra=([0, 1], [0, 8], [0, 4, 8]),
        fixed_heads=(1, 4, 4),
        heads=([1, 2], [1, 4, 8], [1, 2, 4, 8]),
        samples=(64, 10000, 20000),
        seeds=(1, 3, 3),
        steps=(5, 1200, 2000),
    ),
    needs=("torch",),
    full_time="5 minutes of CPU",
)
