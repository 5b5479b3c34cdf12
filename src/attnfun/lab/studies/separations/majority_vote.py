"""A majority of rank-1 heads, and a tally that does better.

Claim. A random rank-1 head is right with probability 1/2 + O(1/√d), so the majority of H ≳ d² of them, tallied by two
layers, is right with probability above 1 − exp(−Θ(d)).

Source. Slides on separations, after Amsel, Yehudai, Bruna 2024, arXiv 2407.16153; the tally is our own.

Do d² votes of random rank-1 heads find the further of two points all but surely?

The accuracy of H votes by quadrature, a mean over draws of their directions, votes counted on drawn points and
directions, the constructed two-layer network run where it is small, the accuracy given a margin, and the linear tally:
d heads of an orthonormal basis at a small inverse temperature in place of votes.

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
    proved: tally: the proved accuracy
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, coloured, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, slope, values, where

AGREE = 0.01  # between quadrature and counting
TALLY = 0.999
MARGIN = 0.5  # times 1/√d
SLACK = 3.0  # standard errors
_STEEP = 1.5  # a power law keeps its exponent; one that grows by this factor over the table is none
_CHUNK = 1 << 22


def units(size: Size) -> list[Unit]:
    votes = [
        {"way": "vote", "dim": dim, "heads": heads, "beta": None, **size["count"], "network": size["network"]}
        for dim in size["dims"]
        for heads in dict.fromkeys((dim + 1, 4 * dim + 1, dim * dim + 1, 4 * dim * dim + 1))
    ]
    tallies = [
        {"way": "tally", "dim": dim, "heads": dim, "beta": beta, **size["count"], "network": size["network"]}
        for dim in size["tally_dims"]
        for beta in size["betas"]
    ]
    return votes + tallies


def run(unit: Unit) -> list[Row]:
    dim, heads = unit["dim"], unit["heads"]
    exact = doubt = closed = given = counted = counted_se = network = network_se = proved = None
    if unit["way"] == "vote":
        exact, doubt = af.parts.vote_accuracy(dim, heads)
        closed, given = (
            af.parts.closed_vote_accuracy(dim, heads),
            af.parts.vote_accuracy(dim, heads, MARGIN / math.sqrt(dim))[0],
        )
        if heads <= unit["most"]:
            counted, counted_se = count_votes(dim, heads, unit["points"], unit["draws"])
        if heads <= unit["network"]:
            seen = af.neighbours(dim, method="majority_vote", heads=heads, seed=1).measured(unit["points"], seed=1)
            network, network_se = seen.accuracy, seen.accuracy_se
    else:
        net = af.neighbours(dim, method="tally", beta=unit["beta"])
        exact, proved = net.predicted.accuracy, net.predicted.accuracy_proved
        seen = net.measured(unit["points"], seed=1)
        network, network_se = seen.accuracy, seen.accuracy_se
    return [
        {
            "predicted": exact,
            "uncertainty": doubt,
            "closed": closed,
            "given_margin": given,
            "counted": counted,
            "counted_se": counted_se,
            "network": network,
            "network_se": network_se,
            "proved": proved,
        }
    ]


def count_votes(dim: int, heads: int, points: int, draws: int) -> tuple[float, float]:
    """(share of right majorities, standard error over draws of directions): more draws where heads are few."""
    import numpy as np

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


def judge(table: Table) -> Verdict:
    """Refuted when counting or the network contradicts the quadrature, or the tally is below .999 at its least β.

    Holds when the wrong votes of d² heads fall faster than any power of d; with limits when they do so only given a
    margin.
    """
    votes, faults = where(table, way="vote"), []
    gaps = [(abs(row["counted"] - row["predicted"]), row) for row in votes if row["counted"] is not None]
    for gap, row in gaps:
        if not gap <= AGREE:
            faults.append(
                f"d = {row['dim']}, H = {row['heads']}: counted {row['counted']:.4f}, {row['predicted']:.4f} due"
            )
    for row in votes:
        if not (0 <= row["predicted"] <= 1 and 0 <= row["given_margin"] <= 1):
            faults.append(f"d = {row['dim']}, H = {row['heads']}: the quadrature gives no probability")
        # one draw of directions is not the mean over draws: their spread comes on top
        if (
            row["network"] is not None
            and not abs(row["network"] - row["predicted"]) <= 3 * AGREE + SLACK * row["network_se"]
        ):
            faults.append(f"d = {row['dim']}, H = {row['heads']}: the network has {row['network']:.4f}")
    square = [row for row in votes if row["heads"] == row["dim"] ** 2 + 1]
    free, kept = ([1 - row[key] for row in square] for key in ("predicted", "given_margin"))
    worst = max((gap for gap, _ in gaps), default=math.nan)
    closed = max(abs(row["closed"] - row["predicted"]) for row in votes)
    last = square[-1]
    words = (
        f"Quadrature and {len(gaps)} counts agree to {worst:.4f}; the closed form 1 − arctan((π/2)√(d/H))/π is off by "
        f"at most {closed:.4f}. With H = d² + 1 a share {free[0]:.3f} is wrong at d = {square[0]['dim']} and "
        f"{free[-1]:.3f} at d = {last['dim']}, like d^{slope(values(square, 'dim'), free):.2f}; given a "
        f"margin |t| ≥ {MARGIN}/√d the shares are {kept[0]:.2g} and {kept[-1]:.2g}. "
    )
    known = [row for row in square if row["counted"] is not None]
    if known:
        row = known[-1]
        words += f"d = {row['dim']}, H = {row['heads']}: {row['predicted']:.4f} due, {row['counted']:.4f} counted. "
    tallies = where(table, way="tally")
    least = [row for row in tallies if row["beta"] == min(values(tallies, "beta"))]
    for row in least:
        words += f"Linear tally, d = {row['dim']} heads, β = {row['beta']}: {row['network']:.5f} "
        words += f"(proved ≥ {row['proved']:.4f}). "
        if not row["network"] >= TALLY:
            faults.append(f"the tally has {row['network']:.5f} at d = {row['dim']}")
    for row in tallies:
        if row["predicted"] is not None and not 0 <= row["predicted"] <= 1:
            faults.append(f"no accuracy is predicted of the tally of d = {row['dim']}, β = {row['beta']}")
        if not row["network"] + SLACK * row["network_se"] >= row["proved"]:
            faults.append(f"the tally of d = {row['dim']}, β = {row['beta']} is below its proved accuracy")
    if faults or not least:
        return Verdict(REFUTED, f"Refuted: {(faults or ['there is no tally'])[0]}.", words)
    if steepens(values(square, "dim"), free):
        return Verdict(HOLDS, "The wrong votes of d² heads fall faster than a power of d.", words)
    if steepens(values(square, "dim"), kept):
        text = (
            "Only given a margin do wrong votes fall faster than a power of d, as 1 − exp(−Θ(d)) asks: near ties, of "
            "density √(2d/π), are decided by chance."
        )
        return Verdict(LIMITS, text, words)
    return Verdict(REFUTED, "Refuted: even given a margin the wrong votes fall like a power of d.", words)


def steepens(dims: list[int], wrong: list[float]) -> bool:
    """Whether the exponent of a power law through neighbouring points grows along the table."""
    if len(dims) < 3:
        return False
    first, last = slope(dims[:2], wrong[:2]), slope(dims[-2:], wrong[-2:])
    return bool(-last >= _STEEP * -first > 0 and -last > 1)


def draw(table: Table) -> Any:
    figure, axes = panels(2, width=5.4, height=4.2)
    votes, ax = where(table, way="vote"), axes[0, 0]
    for colour, dim in coloured(distinct(votes, "dim")):
        rows = where(votes, dim=dim)
        heads = values(rows, "heads")
        ax.loglog(heads, [1 - v for v in values(rows, "predicted")], "-", color=colour, label=f"d = {dim}")
        seen = [row for row in rows if row["counted"] is not None]
        ax.loglog(values(seen, "heads"), [1 - v for v in values(seen, "counted")], "o", color=colour, ms=5)
        ax.loglog(heads, [1 - v for v in values(rows, "closed")], ":", color=colour, lw=1)
    ax.plot([], [], "ko", ms=5, label="counted")
    ax.plot([], [], "k:", lw=1, label="closed form")
    ax.set(xlabel="heads H", ylabel="share of wrong majorities")
    ax.legend(fontsize=7.5, frameon=False)
    title(ax, "majority of H random rank-1 heads", "lines: mean over draws, by quadrature")
    ax = axes[0, 1]
    square = [row for row in votes if row["heads"] == row["dim"] ** 2 + 1]
    for colour, key, name in (
        (NETWORKS[0], "predicted", "H = d² + 1"),
        (NETWORKS[1], "given_margin", "given |t| ≥ ½/√d"),
    ):
        ax.semilogy(values(square, "dim"), [1 - v for v in values(square, key)], "o-", color=colour, ms=4, label=name)
    rows = where(table, way="tally")
    for mark, beta in zip("^vs", distinct(rows, "beta"), strict=False):
        at = where(rows, beta=beta)
        wrong = [max(1 - v, 1e-9) for v in values(at, "predicted")] if at[0]["predicted"] is not None else []
        if wrong:
            ax.semilogy(values(at, "dim"), wrong, mark, color=NETWORKS[2], ms=6, label=f"tally of d heads, β = {beta}")
    ax.set(xlabel="dimension d", ylabel="share wrong (computed)")
    ax.legend(fontsize=7.5, frameon=False, loc="center right")
    title(ax, "d² votes, and a tally of d heads")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dims=([8, 16], [8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256]),
        tally_dims=([8], [8, 16, 64], [8, 16, 64]),
        betas=([0.01], [0.01, 1.0], [0.01, 1.0, 10.0]),
        count=(
            {"points": 1000, "draws": 2, "most": 257},
            {"points": 5000, "draws": 4, "most": 4097},
            {"points": 10000, "draws": 6, "most": 8193},
        ),
        network=(9, 65, 129),
    ),
    full_time="50 seconds of CPU",
)
