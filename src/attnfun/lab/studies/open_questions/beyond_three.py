"""More than two candidates: the barrier of low rank persists.

Claim. The separation by rank, a theorem for two candidates (N = 3), should extend to N > 3 by the same arguments;
whether what makes up for rank must depend on N is open.

Source. Slides on separations, comments and future work; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153. The bound for
any N is derived in limits/separation/candidates.py.

Does the barrier of low rank, proved for two candidates, persist with more of them?

For N points on the sphere, every one a query: a proved lower bound by degrees for any N (`af.bounds.neighbours`),
layers trained at equal rank times heads, one constructed head of full rank, and two layers of rank 1: scores written to
the candidates (the tally, for any N and one query), and a plurality of random votes.

Columns.
    way: trained; full-rank (constructed, one layer); scores (constructed, two, one query); votes (counted)
    dim: d
    points: N, the query included
    rank: r of a head
    heads: H
    seed: of start and samples
    error: E|f − g|² on fresh sets
    error_se: its standard error over sets
    least: no single layer of this shape errs less: af.bounds.neighbours, proved
    least_two: N = 3: the bound of af.bounds.rank, proved too
    proved: constructed: the proved bound of the mean error
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

FULL = "full-rank"  # one constructed head of rank d
SLACK = 3.0  # standard errors
TIMES = 3.0  # a barrier: low rank errs at least so many times what full rank does
LEARNED = 0.15


def units(size: Size) -> list[Unit]:
    found: list[Unit] = []
    dim = size["dim"]
    for points in size["points"]:
        common = {"dim": dim, "points": points, "sets": size["sets"]}
        for way, rank, heads in ((FULL, dim, 1), ("scores", 1, 2 * dim + 1), ("votes", 1, dim * dim + 1)):
            found.append({"way": way, **common, "rank": rank, "heads": heads, "seed": None, "steps": 0})
        for rank in size["ranks"]:
            shape = {"rank": rank, "heads": dim // rank}
            for seed in range(size["seeds"]):
                found.append({"way": "trained", **common, **shape, "seed": seed, "steps": size["steps"]})
    return found


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.separations.layers import Shape, measured, trained

    dim, points, rank, heads, sets = (unit[key] for key in ("dim", "points", "rank", "heads", "sets"))
    least = two = proved = None
    if unit["way"] == "trained":
        batch = max(16, 1024 // points)  # the same number of queries a step for every N
        blocks = trained(Shape(dim, rank, heads), points, steps=unit["steps"], seed=unit["seed"], batch=batch)
        error, error_se = measured(blocks, points, sets=sets, seed=unit["seed"])
        least = af.bounds.neighbours(dim, points - 1, rank, heads).lower
        if points == 3:
            two = af.bounds.rank(dim, rank, heads, setting="layer-any-v", attends_self=True).lower
    elif unit["way"] == "votes":
        error, error_se = plurality(dim, points - 1, heads, sets)
    else:
        net = af.neighbours(dim, points, "full_rank" if unit["way"] == FULL else "scores", eps=1e-2)
        seen = net.measured(sets * (points if unit["way"] == FULL else 1), seed=1)
        error, error_se, proved = seen.error, seen.error_se, net.predicted.proved
    return [{"error": error, "error_se": error_se, "least": least, "least_two": two, "proved": proved}]


def plurality(dim: int, candidates: int, heads: int, sets: int) -> tuple[float, float]:
    """(E|f − the candidate most voted for|², standard error): head q votes for the least (x·q)(q·y)."""
    import numpy as np

    rng = np.random.default_rng([dim, candidates, heads])
    losses = []
    for _ in range(0, sets, 256):
        q = af.parts.uniform_points(rng, heads, dim)  # other directions for every 256 sets
        x, y = af.parts.uniform_points(rng, 256, candidates, dim), af.parts.uniform_points(rng, 256, dim)
        chosen = ((x @ q.T) * (y @ q.T)[:, None]).argmin(axis=1)
        tally = np.stack([(chosen == j).sum(axis=1) for j in range(candidates)], axis=1)
        best, right = tally.argmax(axis=1), (x @ y[:, :, None])[..., 0].argmin(axis=1)
        losses.append(np.sum((x[np.arange(256), best] - x[np.arange(256), right]) ** 2, axis=1))
    found = np.concatenate(losses)
    return float(found.mean()), float(found.std(ddof=1) / math.sqrt(len(found)))


def judge(table: Table) -> Verdict:
    """Refuted when an error is below what is excluded, nothing is excluded, or low rank comes near full rank at some N.

    Low rank: up to d/4. With limits when training does not learn full rank either, so that the gap is no clean one.
    """
    words, faults, unlearned, excluded = "", [], [], []
    for points in distinct(table, "points"):
        rows = where(table, way="trained", points=points)
        full = [row for row in rows if row["rank"] == row["dim"]]
        low = [row for row in rows if 4 * row["rank"] <= row["dim"]]
        if not full or not low:
            return Verdict(REFUTED, f"N = {points}: without full and low ranks, or their errors, nothing can be said.")
        top, best = median(values(full, "error")), min(low, key=lambda row: row["error"])
        ones = where(low, rank=min(values(low, "rank")))
        excluded.append(ones[0]["least"])
        words += (
            f"N = {points}: full rank {top:.3f}; {best['heads']} heads of rank {best['rank']} {best['error']:.3f} "
            f"(excluded below {best['least']:.3f}), {ones[0]['heads']} of rank {ones[0]['rank']} "
            f"{median(values(ones, 'error')):.3f} ({excluded[-1]:.3f})"
        )
        for way, name in (("scores", "two layers of rank 1, one query,"), ("votes", "plurality of votes")):
            made = where(table, way=way, points=points)
            words += f"; {name} {made[0]['error']:.3f}" if made else ""
        words += ". "
        for row in rows:
            if not row["error"] + SLACK * row["error_se"] >= row["least"]:
                faults.append(f"N = {points}, rank {row['rank']} errs {row['error']:.3f}, less than {row['least']:.3f}")
        for row in where(table, points=points):
            if not 0 <= row["error"] < math.inf:
                faults.append(f"N = {points}: {row['way']} has no error that is a number")
            if row["proved"] is not None and not row["error"] <= row["proved"] + SLACK * row["error_se"]:
                faults.append(f"N = {points}: {row['way']} errs {row['error']:.4f}, more than proved")
        if not all(row["least"] > 0 for row in low):
            faults.append(f"N = {points}: nothing is excluded for a rank up to d/4")
        if not best["error"] >= TIMES * top:
            faults.append(f"N = {points}: rank {best['rank']} errs {best['error']:.3f}, full rank {top:.3f}")
        if not top <= LEARNED:
            unlearned.append(points)
    words += (
        f"What is excluded for the least rank goes from {excluded[0]:.3f} to {excluded[-1]:.3f} as N grows. The bound "
        "is proved, for one layer, any N and any weights of its heads. The exponential rate at high precision is not "
        "looked at. Two layers of rank 1 do it for one query, for all queries it is open. "
    )
    if faults:
        return Verdict(REFUTED, f"Refuted: {faults[0]}.", words)
    if unlearned:
        at = ", ".join(map(str, unlearned))
        return Verdict(LIMITS, f"Full rank is not learned to {LEARNED} at N = {at}.", words)
    return Verdict(HOLDS, "The barrier persists at every N, in the bound and in training.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(width=7.4, height=4.6)
    ax = axes[0, 0]
    rows = where(table, way="trained")
    points = distinct(rows, "points")
    for colour, rank in coloured(distinct(rows, "rank")):
        on = where(rows, rank=rank)
        middle = [median(values(where(on, points=n), "error")) for n in points]
        ax.semilogy(points, middle, "-", color=colour, label=f"trained, {on[0]['heads']} × rank {rank}")
        curve(ax.semilogy, on, "points", "error", "o", color=colour, ms=4, alpha=0.6)
        low = [where(on, points=n)[0]["least"] for n in points]
        if min(low) > 0:
            ax.semilogy(
                points, low, "_--", color=colour, ms=10, lw=1, label=f"excluded below, {on[0]['heads']} × rank {rank}"
            )
    for mark, way, name in (
        ("*", FULL, "constructed, one head of rank d"),
        ("P", "scores", "constructed, two layers of rank 1"),
        ("x", "votes", "plurality of d² + 1 votes"),
    ):
        on = where(table, way=way)
        curve(ax.semilogy, on, "points", "error", mark, color="k", ms=8, mfc="none", label=name)
    ax.set_xscale("log", base=2)
    ax.set_xticks(points, [str(n) for n in points])
    ax.set(xlabel="points N, the query included", ylabel="E|f − g|²", ylim=(3e-3, 2))
    ax.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    title(ax, f"furthest of N points, d = {rows[0]['dim']}", "layers of equal rank × heads")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dim=(8, 16, 16),
        points=([3], [3, 4, 8, 16], [3, 4, 8, 16, 32]),
        ranks=([8, 2], [16, 8, 4, 1], [16, 8, 4, 2, 1]),
        seeds=(1, 2, 2),
        steps=(30, 1000, 2000),
        sets=(512, 2048, 4096),
    ),
    needs=("torch",),
    full_time="4 minutes of CPU",
)
