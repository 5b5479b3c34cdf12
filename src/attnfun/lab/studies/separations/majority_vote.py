"""A majority of rank-1 heads, and a tally that does better.

Claim. A random rank-1 head is right with probability 1/2 + O(1/√d), so the majority of H ≳ d² of them, tallied by two
layers, is right with probability above 1 − exp(−Θ(d)).

Source. Slides on separations, after Amsel, Yehudai, Bruna 2024, arXiv 2407.16153; the tally is our own.

Do d² votes of random rank-1 heads find the further of two points all but surely?

The accuracy of H votes by quadrature, a mean over draws of their directions, votes counted on drawn points and
directions, the constructed two-layer network run where it is small, the accuracy given a margin, and the linear tally:
d heads of an orthonormal basis at a small inverse temperature in place of votes.

A full run takes 50 seconds of CPU.

Columns.
    way: vote (random directions, hard) or tally (orthonormal basis, small β)
    dim: d
    heads: H, of rank 1
    beta: inverse temperature of the tally
    predicted: accuracy: votes by quadrature, mean over directions; tally to first order (none for large β)
    uncertainty: what fewer nodes change of it
    closed: 1 − arctan((π/2)√(d/H))/π
    given_margin: the accuracy in the mean over draws given |⟨z, y⟩| ≥ ½/√d
    counted: accuracy of votes counted on drawn directions and points
    counted_se: its standard error
    network: accuracy of the two-layer network itself, one draw of directions
    network_se: its standard error over points
    proved: ≥ tally: the proved accuracy
"""

import math
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, coloured, curve, labelled, panels
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described, slope

AGREE = 0.01  # between quadrature and counting
TALLY = 0.999
MARGIN = 0.5  # times 1/√d
SLACK = 3.0  # standard errors
_STEEP = 1.5  # a power law keeps its exponent; one that grows by this factor over the table is none
_CHUNK = 1 << 22


def units(size: Size) -> list[Unit]:
    fixed, made = {**size["count"], "network": size["network"]}, []
    for dim in size["dims"]:
        heads = list(dict.fromkeys((dim + 1, 4 * dim + 1, dim * dim + 1, 4 * dim * dim + 1)))
        made += crossed(way="vote", dim=dim, heads=heads, beta=None, **fixed)
    for dim in size["tally_dims"]:
        made += crossed(way="tally", dim=dim, heads=dim, beta=size["betas"], **fixed)
    return made


def run(unit: Unit) -> Row:
    dim, heads, row = unit["dim"], unit["heads"], dict[str, Any](network=None)
    net = None
    if unit["way"] == "vote":
        row["predicted"], row["uncertainty"] = af.parts.vote_accuracy(dim, heads)
        row["closed"] = 1 - math.atan(math.pi / 2 * math.sqrt(dim / heads)) / math.pi
        row["given_margin"] = af.parts.vote_accuracy(dim, heads, MARGIN / math.sqrt(dim))[0]
        if heads <= unit["most"]:
            row["counted"], row["counted_se"] = count_votes(dim, heads, unit["points"], unit["draws"])
        if heads <= unit["network"]:
            net = af.neighbours(dim, method="majority_vote", heads=heads, seed=1)
    else:
        net = af.neighbours(dim, method="tally", beta=unit["beta"])
        row |= {"predicted": net.predicted.accuracy, "proved": net.predicted.accuracy_proved}
    if net is not None:
        seen = net.measured(unit["points"], seed=1)
        row |= {"network": seen.accuracy, "network_se": seen.accuracy_se}
    return row


def count_votes(dim: int, heads: int, points: int, draws: int) -> tuple[float, float]:
    """(share of right majorities, standard error over draws of directions): more draws where heads are few."""
    right = []
    for draw in range(draws * (1 + 1000 // heads)):
        rng = np.random.default_rng([dim, heads, draw])
        q = af.parts.uniform_points(rng, heads, dim).T
        hits, step = 0, max(1, _CHUNK // heads)
        for begin in range(0, points, step):
            x1, x2, y = af.parts.uniform_points(rng, 3, min(step, points - begin), dim)
            w = x1 - x2
            tally = np.sum(((w @ q) > 0) == ((y @ q) > 0), axis=1)
            hits += int(np.sum((2 * tally > heads) == (np.sum(w * y, axis=1) > 0)))
        right.append(hits / points)
    return float(np.mean(right)), float(np.std(right, ddof=1) / math.sqrt(len(right)))


def judge(table: Rows) -> Verdict:
    """Refuted when counting or the network contradicts the quadrature, or the tally is below .999 at its least β.

    Holds when the wrong votes of d² heads fall faster than any power of d; with limits when they do so only given a
    margin.
    """
    votes, tallies, who = table.where(way="vote"), table.where(way="tally"), "d = {dim}, H = {heads}: "
    counted = votes.known("counted")
    wrong = counted.fails(lambda row: abs(row["counted"] - row["predicted"]) <= AGREE)
    faults = wrong.say(who + "counted {counted:.4f}, {predicted:.4f} due")
    odd = votes.fails(lambda row: 0 <= row["predicted"] <= 1 and 0 <= row["given_margin"] <= 1)
    faults += odd.say(who + "the quadrature gives no probability")
    # one draw of directions is not the mean over draws: their spread comes on top
    far = votes.known("network").fails(
        lambda row: abs(row["network"] - row["predicted"]) <= 3 * AGREE + SLACK * row["network_se"]
    )
    faults += far.say(who + "the network has {network:.4f}")
    square = votes.that(lambda row: row["heads"] == row["dim"] ** 2 + 1)
    dims, last = square.of("dim"), square[-1]
    free, kept = ([1 - row[key] for row in square] for key in ("predicted", "given_margin"))
    worst = max((abs(row["counted"] - row["predicted"]) for row in counted), default=math.nan)
    closed = max(abs(row["closed"] - row["predicted"]) for row in votes)
    least = tallies.where(beta=min(tallies.of("beta"), default=None))
    words = [
        f"Quadrature and {len(counted)} counts agree to {worst:.4f}; the closed form 1 − arctan((π/2)√(d/H))/π is off "
        f"by at most {closed:.4f}. With H = d² + 1 a share {free[0]:.3f} is wrong at d = {dims[0]} and {free[-1]:.3f} "
        f"at d = {last['dim']}, like d^{slope(dims, free):.2f}; given a margin |t| ≥ {MARGIN}/√d the shares are "
        f"{kept[0]:.2g} and {kept[-1]:.2g}.",
        *square.known("counted").last().say(who + "{predicted:.4f} due, {counted:.4f} counted."),
        *least.say("Linear tally, d = {dim} heads, β = {beta}: {network:.5f} (proved ≥ {proved:≥4})."),
    ]
    faults += least.fails(lambda row: row["network"] >= TALLY).say("the tally has {network:.5f} at d = {dim}")
    odd = tallies.known("predicted").fails(lambda row: 0 <= row["predicted"] <= 1)
    faults += odd.say("no accuracy is predicted of the tally of d = {dim}, β = {beta}")
    below = tallies.fails(lambda row: row["network"] + SLACK * row["network_se"] >= row["proved"])
    faults += below.say("the tally of d = {dim}, β = {beta} is below its proved accuracy")
    if not least:
        faults.append("there is no tally")
    steep = steepens(dims, free)
    if not faults and not steep and not steepens(dims, kept):
        faults.append("even given a margin the wrong votes fall like a power of d")
    limit = (
        "Only given a margin do wrong votes fall faster than a power of d, as 1 − exp(−Θ(d)) asks: near ties, of "
        "density √(2d/π), are decided by chance."
    )
    return decided(words, faults, "" if steep else limit, "The wrong votes of d² heads fall faster than a power of d.")


def steepens(dims: list[int], wrong: list[float]) -> bool:
    """Whether the exponent of a power law through neighbouring points grows along the table."""
    if len(dims) < 3:
        return False
    first, last = slope(dims[:2], wrong[:2]), slope(dims[-2:], wrong[-2:])
    return bool(-last >= _STEEP * -first > 0 and -last > 1)


def draw(table: Rows) -> Any:
    def wrong(column: str) -> Any:
        return lambda row: max(1 - row[column], 1e-9)

    figure, (left, right) = panels(2, width=5.4, height=4.2)
    votes, tallies = table.where(way="vote"), table.where(way="tally").known("predicted")
    curve(left, votes, "heads", wrong("predicted"), "-", by="dim", label="d = {dim}")
    for colour, (_, rows) in coloured(votes.by("dim")):
        curve(left, rows.known("counted"), "heads", wrong("counted"), "o", color=colour, ms=5)
        curve(left, rows, "heads", wrong("closed"), ":", color=colour, lw=1)
    left.plot([], [], "ko", ms=5, label="counted")
    left.plot([], [], "k:", lw=1, label="closed form")
    texts = ("lines: mean over draws, by quadrature", "heads H", "share of wrong majorities")
    labelled(left, "majority of H random rank-1 heads", *texts, log="xy", legend={"fontsize": 7.5})
    square = votes.that(lambda row: row["heads"] == row["dim"] ** 2 + 1)
    curve(right, square, "dim", wrong("predicted"), "o-", color=NETWORKS[0], ms=4, label="H = d² + 1")
    curve(right, square, "dim", wrong("given_margin"), "o-", color=NETWORKS[1], ms=4, label="given |t| ≥ ½/√d")
    for mark, (_, rows) in zip("^vs", tallies.by("beta"), strict=False):
        style = {"color": NETWORKS[2], "ms": 6, "label": "tally of d heads, β = {beta}"}
        curve(right, rows, "dim", wrong("predicted"), mark, **style)
    texts = ("", "dimension d", "share wrong (computed)")
    legend = {"fontsize": 7.5, "loc": "center right"}
    labelled(right, "d² votes, and a tally of d heads", *texts, log="y", legend=legend)
    return figure


STUDY = described(
    __name__,
    dims=([8, 16], [8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256]),
    tally_dims=([8], [8, 16, 64], [8, 16, 64]),
    betas=([0.01], [0.01, 1.0], [0.01, 1.0, 10.0]),
    count=(
        {"points": 1000, "draws": 2, "most": 257},
        {"points": 5000, "draws": 4, "most": 4097},
        {"points": 10000, "draws": 6, "most": 8193},
    ),
    network=(9, 65, 129),
)
