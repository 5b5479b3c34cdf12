"""Two layers of attention and nothing else on sequence-to-sequence maps.

Claim. Two layers of multi-head attention with linear maps approximate every continuous sequence-to-sequence map on a
compact domain, with an error of order 1/p and 1/H for ReLU nets; trained networks are said to gain alike.

Source. Hu, Liu, Chen, Wu, Liu 2025, arXiv 2504.15956, two-layer theorem and its experiment; weights and bounds are
our own.

Two layers of attention on the published data model, constructed and trained, against p and H.

Data: X uniform in [0, 1]^(n×d), Y = a ReLU net with one hidden layer of the flattened X, weights from N(0, 1), one
number per token. Constructed: every hidden unit by heads of interpolation points (the second layer; the first copies
tokens and is exact), proved; and a whole two-layer network with three keys per unit, proved to a given eps. Trained:
two layers of plain attention with a residual stream, positions, and p − n constant tokens that are learned.

Errors are mean squares over the numbers that are asked for. The published code averages over 32 channels, 31 of which
are 0 in the data: its figures are about 32 times smaller than these at the same network.

A full run takes 5 minutes of CPU.

Columns.
    way: mean, linear (least squares on the flattened sequence), published or interpolated (hidden units by
        interpolation points), two-layer (three keys per unit, whole network), learned
    p: interpolation points per unit; for learned networks tokens, the learned constant ones included
    heads: heads per hidden unit; for learned networks heads per layer
    seed: of the random start
    steps: of training
    eps: asked for
    parameters: numbers in the network
    mse: mean square error per number on 2,000 fresh sequences
    mse_se: its standard error
    error: largest error there
    proved: ≤ sup bound proved from the stored weights
"""

import math
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, SLATE, coloured, curve, labelled, level, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, median

CHANNELS = 32  # of the published code, all but one 0
GRIDS = {"published": "published grid", "interpolated": "best temperature"}
NEAR = 0.15  # what a measured exponent may differ from -1
TEST, WIDTH, RANK = 2000, 16, 4


def units(size: Size) -> list[Unit]:
    base: Unit = {key: size[key] for key in ("n", "d", "hidden")}
    base |= {"p": 0, "heads": 1, "seed": None, "steps": 0, "samples": 0, "eps": None}
    run = {"way": "learned", "steps": size["steps"], "samples": size["samples"], "seed": range(size["seeds"])}
    shapes = [(size["n"] + extra, size["fixed_heads"]) for extra in size["extra"]]
    shapes += [(size["n"], H) for H in size["heads"] if size["fixed_heads"] != H]
    asked: list[Unit] = [
        {"way": "plain"},
        *({"way": way, "p": size["points"]} for way in GRIDS),
        {"way": "interpolated", "p": size["points"][0], "heads": size["unit_heads"]},
        {"way": "two-layer", "eps": size["eps"]},
        *({**run, "p": p, "heads": H} for p, H in shapes),
    ]
    return [unit for part in asked for unit in crossed(**base | part)]


def _data(unit: Unit, count: int, stream: int) -> tuple[Any, Any, Any]:
    """(the map's rows, sequences, values)."""
    n, d = unit["n"], unit["d"]
    rows = af.parts.relu_network(n, dim=d, hidden=unit["hidden"], outputs=1, seed=0)
    target = af.SequenceMap.read(rows, dict.fromkeys("xyzuvw"[:d], (0.0, 1.0)), n)
    X = np.random.default_rng([stream, n, d]).random((count, n, d))
    return target, X, target.values(X)


def run(unit: Unit) -> Row | list[Row]:
    target, X, Y = _data(unit, TEST, 1)

    def row(outputs: Any, parameters: int, proved: float | None = None, **more: str) -> Row:
        error = np.asarray(outputs, dtype=np.float64) - Y
        squares = (error**2).mean(axis=(1, 2))
        seen = {"mse": squares.mean(), "mse_se": squares.std() / np.sqrt(len(squares)), "error": np.abs(error).max()}
        return {"parameters": parameters, **seen, "proved": proved, **more}

    if unit["way"] == "plain":  # what no network is needed for
        _, seen, wanted = _data(unit, 4000, 2)
        design, fresh = (np.concatenate([x.reshape(len(x), -1), np.ones((len(x), 1))], axis=1) for x in (seen, X))
        best = np.linalg.lstsq(design, wanted[:, :, 0], rcond=None)[0]
        mean = row(wanted.mean(axis=0), unit["n"], way="mean")
        return [mean, row((fresh @ best)[:, :, None], best.size, way="linear")]
    if unit["way"] == "two-layer":
        net = af.sequence(target, unit["n"], target.box, unit["eps"], method="two-layer")
        proved = net.certificate.error[1] if net.certificate.status == "proved" else math.nan
        return row(net(X), net.network.cost.parameters, proved)
    return row(*(_interpolated(unit, X) if unit["way"] in GRIDS else _learned(unit, X)))


def _interpolated(unit: Unit, X: Any) -> tuple[Any, int, float]:
    """(outputs, parameters, proved bound) of all hidden units by interpolation points, on the flattened sequence."""
    n, d = unit["n"], unit["d"]
    names = [f"{c}_{j + 1}" for j in range(n) for c in "xyzuvw"[:d]]
    rows = af.parts.relu_network(n, dim=d, hidden=unit["hidden"], outputs=1, seed=0)
    function = af.language.Function.read([row[0] for row in rows], af.Box.parse(dict.fromkeys(names, (0.0, 1.0))))
    variant = "published" if unit["way"] == "published" else "optimal"
    request = af.parts.Request(function, 1.0, math.inf, "float64")
    network, claim = af.parts.interpolated(request, unit["p"], None if unit["heads"] == 1 else unit["heads"], variant)
    certificate = af.parts.prove(network, function, eps=1.1 * claim, construction="relu_network")
    bound = certificate.error[1] if certificate.status is af.Status.PROVED else math.nan
    return af.network.evaluate(network, X.reshape(len(X), -1))[:, :, None], network.cost.parameters, bound


def _learned(unit: Unit, X: Any) -> tuple[Any, int]:
    target, seen, wanted = _data(unit, unit["samples"], 2)
    width = max(WIDTH, unit["d"] + 1 + unit["n"])
    shape = {"layers": 2, "heads": unit["heads"], "rank": RANK, "width": width, "dtype": "float32"}
    architecture = af.TokenArchitecture.for_target(target, constants=unit["p"] - unit["n"], **shape)
    return fitted(target, architecture, seen, wanted, X, steps=unit["steps"], seed=unit["seed"])


def fitted(target: Any, architecture: Any, seen: Any, wanted: Any, fresh: Any, **options: Any) -> tuple[Any, int]:
    """(what a network trained on the sequences `seen` puts out on the fresh ones, its parameters)."""
    embedding = af.parts.sequence_embedding(target, architecture)
    given, asked = (af.parts.embedded(*embedding, part, "float32") for part in (seen, fresh))
    network = af.learn.fit_sample(architecture, given, wanted, lr=1e-2, **options)
    return network.run(asked), architecture.free_weights


def _sweeps(trained: Rows) -> tuple[tuple[str, str, int, Rows], ...]:
    """(column, letter, what the other is, rows) of the runs along p, with one H, and along H, with p = n."""
    n, fixed = min(trained.of("p")), max(trained, key=lambda row: row["p"])["heads"]
    return ("p", "p", fixed, trained.where(heads=fixed)), ("heads", "H", n, trained.where(p=n))


def judge(table: Rows) -> Verdict:
    """Refuted when an error passes its bound or a constructed rate is not 1/p and 1/H; with limits when training does
    not gain by p, by H, or stays above a linear map.
    """
    whole = table.where(way="two-layer")
    wrong = table.where(way=(*GRIDS, "two-layer")).above("error", "proved")
    wrong += whole.above("proved", "eps")
    faults = wrong.say("{way} has the error {error:.3g}")
    published, mended = (table.where(way=way, heads=1) for way in GRIDS)
    by_heads = table.where(way="interpolated", p=mended[0]["p"])
    rates = [published.slope("p", "proved"), mended.slope(lambda row: row["p"] - 1, "proved")]
    rates.append(by_heads.slope("heads", "proved"))
    if not all(abs(rate + 1) <= NEAR for rate in rates):
        faults.append("a constructed rate is not −1")
    trivial, linear = (table.where(way=way)[0]["mse"] for way in ("mean", "linear"))
    last = mended[-1]
    words = [
        f"Constructed: proved sup bounds go like p^{rates[0]:.2f} on the published grid, (p − 1)^{rates[1]:.2f} with "
        f"the best temperature and H^{rates[2]:.2f} with H heads per unit; at p = {last['p']} the mean square is "
        f"{last['mse']:.2g} per number (always predicting the mean: {trivial:.3g}, a linear map: {linear:.3g}).",
        *whole.say("The whole two-layer network with three keys per unit is proved to {proved:≤2}."),
    ]
    if faults:
        return decided(words, refuted=faults)
    trained, limits = table.where(way="learned"), []
    for column, letter, _, rows in _sweeps(trained):
        groups = sorted(rows.by(column), key=lambda group: group[0])
        shown = ", ".join(f"{k}: {some.middle('mse', to='–')}" for k, some in groups)
        steps = f"Trained for {rows[0]['steps']:,} steps"
        words.append(f"{steps}, median mean square (range over seeds) by {letter}: {shown}.")
        if not groups[-1][1].median("mse") < groups[0][1].median("mse"):
            limits.append(f"the error does not fall with {letter}")
    best = min(trained.of("mse"))
    words.append(
        f"The best trained network has {best:.2g}; the published code would report it as {best / CHANNELS:.2g}, and "
        f"the mean alone as {trivial / CHANNELS:.2g}."
    )
    if not best < linear:
        limits.append("no trained network is below a linear map of the flattened sequence")
    if not best < last["mse"]:
        limits.append("none comes near the construction")
    limit = f"The theorem's rates hold for the construction; in training, {'; '.join(limits)}."
    end = f"Constructed and trained networks gain by both (n = {min(trained.of('p'))})."
    return decided(words, limits=limit if limits else "", holds=end)


def draw(table: Rows) -> Any:
    figure, (left, right) = panels(2)
    for colour, (way, name) in coloured(GRIDS.items()):
        rows = table.where(way=way, heads=1)
        curve(left, rows, "p", "error", "o-", ms=4, color=colour, label=f"{name}: measured")
        curve(left, rows, "p", "proved", "_", ms=14, mew=2, color=colour, label=f"{name}: proved")
    rows = table.where(way="interpolated").that(lambda row: row["heads"] > 1)
    for column, mark, said in (("error", "^", "measured"), ("proved", "_", "proved")):
        style = {"color": NETWORKS[2], "ms": 14 if mark == "_" else 6, "mew": 2 if mark == "_" else 1}
        curve(left, rows, lambda r: r["p"] * r["heads"], column, mark, label=f"H heads of p points: {said}", **style)
    top = 30 * max(table.where(way="published").of("proved"))
    note, texts = "the second layer; the first copies tokens exactly", ("points of a hidden unit, pH", "sup error")
    labelled(left, "Constructed: hidden units by interpolation", note, *texts, log="xy", ylim=(None, top))
    names = ("learned, p tokens, H = {}", "learned, H heads, p = n = {}")
    sweeps = zip((NETWORKS[4], NETWORKS[3]), names, _sweeps(table.where(way="learned")), strict=True)
    for colour, name, (column, _, other, rows) in sweeps:
        curve(right, rows, column, "mse", "x", color=colour, label=name.format(other))
        curve(right, rows, column, "mse", "-", each=median, lw=1, color=colour)
    for dashes, way in (("--", "mean"), (":", "linear")):
        level(right, table.where(way=way), "mse", ls=dashes, color=SLATE, lw=1, label=f"{way} of the data")
    for row in table.where(way="interpolated", heads=1)[:1]:
        right.axhline(row["mse"], color=NETWORKS[1], lw=1, label=f"constructed, p = {row['p']} a unit")
    texts, legend = ("p or H", "mean square per number"), {"loc": "lower left", "bbox_to_anchor": (0.0, 0.07)}
    note = "each mark a seed, lines the medians"
    labelled(right, "Trained: two layers of attention", note, *texts, log="xy", legend=legend)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    n=(2, 6, 6),
    d=(1, 5, 5),
    hidden=(2, 10, 10),
    points=([3, 4], [8, 16, 32], [8, 16, 32, 64]),
    unit_heads=([2], [2, 4], [2, 4, 8]),
    eps=([0.5], [1e-2], [1e-2, 1e-4]),
    extra=([0, 1], [0, 8], [0, 4, 8]),
    fixed_heads=(1, 4, 4),
    heads=([1, 2], [1, 4, 8], [1, 2, 4, 8]),
    samples=(64, 10000, 20000),
    seeds=(1, 3, 3),
    steps=(5, 1200, 2000),
)
