"""Rank and heads do not trade at equal product: furthest neighbours.

Claim. One layer finds the furthest of N points on the sphere when its head has full rank; at the same product of rank
and heads layers of low rank do not learn it (here: ranks up to d/2 keep an error of .3 at d = 16 and of .5 at d = 64,
full rank comes below .08 and .15).

Source. Bruna's slides on attention and separations, after Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, figure 1; the
theorem is for two candidates, the bound for N points is our own (limits/separation/candidates).

At the same number of weights in keys and queries, do few heads of high rank beat many of low rank?

Furthest neighbour among N points of a sphere in R^d, every token a query. Trained layers on lines of constant rank
times heads, beside the constructed head of full rank, the best map that looks at no pair, and what no layer of that
shape can do.

Columns.
    way: trained, constructed (one head of full rank, E|f − g|² ≤ 1e-3 proved), or linear (no attention)
    dim: d
    points: N, the query included; every point is a query
    rank: r of keys and queries
    heads: H
    value_rank: rank of V_h: d or r
    seed: of start and samples
    steps: of Adam
    error: E|f − g|² on fresh sets, E|f|² = 1
    error_se: its standard error over sets
    least: no layer of this shape has a smaller error, for these N: af.bounds.neighbours, proved
    least_two: the same for two candidates (N = 3), proved in interval arithmetic; says nothing of larger N
    proved: constructed: the proved bound of the mean error
"""

from __future__ import annotations

from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import FAINT, coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

LEARNED = {16: 0.08, 64: 0.15}  # an error that counts as learned
NOT_LEARNED = {16: 0.3, 64: 0.5}  # and one that does not; at ranks up to d/2
SLACK = 3.0  # standard errors


def units(size: Size) -> list[Unit]:
    found: list[Unit] = []
    for task in size["tasks"]:
        common = {key: task[key] for key in ("dim", "points", "sets")}
        for way in ("constructed", "linear"):
            found.append({"way": way, **common, "rank": task["dim"], "heads": 1, "seed": None, "steps": 0})
        for times, ranks in task["lines"]:
            for rank in ranks:
                shape = {"rank": rank, "heads": times * task["dim"] // rank, "thin_values": task["thin_values"]}
                for seed in range(task["seeds"]):
                    found.append({"way": "trained", **common, **shape, "seed": seed, "steps": task["steps"]})
    return found


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.separations.layers import Shape, measured, trained

    dim, points, rank, heads = (unit[key] for key in ("dim", "points", "rank", "heads"))
    value_rank, least, two, proved = dim, None, None, None
    if unit["way"] == "constructed":
        net = af.neighbours(dim, points, "full_rank", eps=1e-3)
        seen = net.measured(points * unit["sets"], seed=1)
        error, error_se, proved = seen.error, seen.error_se, net.predicted.proved
    elif unit["way"] == "linear":
        error, error_se = linear(dim, points, unit["sets"])
    else:
        value_rank = rank if unit["thin_values"] else dim
        shape = Shape(dim, rank, heads, value_rank=rank if unit["thin_values"] else None)
        blocks = trained(shape, points, steps=unit["steps"], seed=unit["seed"])
        error, error_se = measured(blocks, points, sets=unit["sets"], seed=unit["seed"])
        least = af.bounds.neighbours(dim, points - 1, rank, heads, value_rank=value_rank).lower
        bound = af.bounds.rank(dim, rank, heads, setting="layer-any-v", attends_self=True, value_rank=value_rank)
        two = bound.lower
    return [
        {
            "value_rank": value_rank,
            "error": error,
            "error_se": error_se,
            "least": least,
            "least_two": two,
            "proved": proved,
        }
    ]


def linear(dim: int, points: int, sets: int) -> tuple[float, float]:
    """The best a·(the token) + b·(sum of the others): error and its standard error, fitted on other sets."""
    import numpy as np

    def drawn(stream: int) -> tuple[Any, Any]:
        x = af.parts.uniform_points(np.random.default_rng([dim, points, stream]), sets, points, dim)
        products = x[:, :1] @ np.swapaxes(x[:, 1:], 1, 2)
        goal = x[np.arange(sets), 1 + products[:, 0].argmin(axis=1)]
        return np.stack([x[:, 0], x[:, 1:].sum(axis=1)], axis=-1), goal

    known, goal = drawn(0)
    coefficients = np.linalg.lstsq(known.reshape(-1, 2), goal.ravel(), rcond=None)[0]
    fresh, wanted = drawn(1)
    errors = np.sum((fresh @ coefficients - wanted) ** 2, axis=1)
    return float(errors.mean()), float(errors.std(ddof=1) / sets**0.5)


def judge(table: Table) -> Verdict:
    """Refuted when a full rank is not learned, a rank up to d/2 is, or an error lies below what is excluded.

    With limits when a low rank comes below half the error of the best linear map: then it has learned a part.
    """
    if gone := lacking(table, "way", "trained", "constructed", "linear"):
        return gone
    words, faults, partly = "", [], []
    for dim in distinct(table, "dim"):
        rows = where(table, way="trained", dim=dim)
        full, low = [row for row in rows if row["rank"] == dim], [row for row in rows if 2 * row["rank"] <= dim]
        if not full or not low or dim not in LEARNED:
            return Verdict(REFUTED, f"d = {dim}: without full and low ranks, or without a level, nothing can be said.")
        base = where(table, way="linear", dim=dim)[0]["error"]
        built = where(table, way="constructed", dim=dim)[0]
        best = min(low, key=lambda row: row["error"])
        worst = max(values(full, "error"))
        words += (
            f"d = {dim}, N = {rows[0]['points']}: full rank, trained, {min(values(full, 'error')):.3f} to {worst:.3f} "
            f"(constructed {built['error']:.1e}, proved ≤ {built['proved']:.1e}); ranks up to d/2 {best['error']:.3f} "
            f"to {max(values(low, 'error')):.3f}, best with r = {best['rank']}, H = {best['heads']}; the best linear "
            f"map {base:.3f}. "
        )
        for line in distinct([{"line": row["rank"] * row["heads"]} for row in rows], "line"):
            on = [row for row in low if row["rank"] * row["heads"] == line]
            shares = ", ".join(
                f"r = {rank}: {median(values(where(on, rank=rank), 'error')):.3f} (excluded below "
                f"{where(on, rank=rank)[0]['least']:.3f})"
                for rank in distinct(on, "rank")
            )
            words += f"With rH = {line} medians over seeds are {shares}. "
        if not (built["error"] <= built["proved"] + SLACK * built["error_se"] and base > 0):
            faults.append(f"the constructed head at d = {dim} errs more than proved, or the linear map has no error")
        if not worst <= LEARNED[dim]:
            faults.append(f"full rank errs {worst:.3f} at d = {dim}, above {LEARNED[dim]}")
        if not best["error"] >= NOT_LEARNED[dim]:
            faults.append(f"rank {best['rank']} errs only {best['error']:.3f} at d = {dim}, below {NOT_LEARNED[dim]}")
        for row in rows:
            if not row["error"] + SLACK * row["error_se"] >= row["least"]:
                faults.append(
                    f"r = {row['rank']}, H = {row['heads']} errs {row['error']:.3f}, below {row['least']:.3f}"
                )
        if not best["error"] >= base / 2:
            partly.append(f"at d = {dim} {best['heads']} heads of rank {best['rank']} leave {best['error'] / base:.0%}")
    words += (
        "What is excluded is proved, for softmax or any other weights, N as here (af.bounds.neighbours). That training "
        "fails where nothing excludes success is an observation. "
    )
    if faults:
        return Verdict(REFUTED, f"Refuted: {faults[0]}.", words)
    if partly:
        finding = (
            f"Low rank does not solve the task, but it learns a part: {partly[0]} of the error of the best linear map."
        )
        return Verdict(LIMITS, finding, words)
    return Verdict(HOLDS, "Full rank learns the task and ranks up to d/2 do not.", words)


def draw(table: Table) -> Any:
    dims = distinct(table, "dim")
    figure, axes = panels(len(dims), width=6.2, height=4.8)
    for ax, dim in zip(axes[0], dims, strict=True):
        rows = where(table, way="trained", dim=dim)
        lines = distinct([{"line": row["rank"] * row["heads"]} for row in rows], "line")
        for colour, line in coloured(lines):
            on = [row for row in rows if row["rank"] * row["heads"] == line]
            ranks = sorted(distinct(on, "rank"))
            middle = [median(values(where(on, rank=rank), "error")) for rank in ranks]
            times = line // dim
            name = "d" if times == 1 else f"{times}d"
            ax.loglog(ranks, middle, "-", color=colour, label=f"trained, rH = {name} (each seed, median)")
            curve(ax.loglog, on, "rank", "error", "o", color=colour, ms=4, alpha=0.6)
            low = [(rank, where(on, rank=rank)[0]["least"]) for rank in ranks]
            low = [(rank, least) for rank, least in low if least > 0]
            ax.loglog(*zip(*low, strict=True), "_--", color=colour, lw=1, ms=9, label=f"excluded below, rH = {name}")
        base, built = where(table, way="linear", dim=dim)[0], where(table, way="constructed", dim=dim)[0]
        ax.axhline(base["error"], color=FAINT, lw=1, ls=":", label="best linear map")
        ax.loglog([dim], [built["error"]], "*", color="k", ms=10, label="constructed, 1 head")
        ax.set_xscale("log", base=2)
        ranks = sorted(distinct(rows, "rank"))
        ax.set_xticks(ranks, [str(rank) for rank in ranks])
        ax.set(xlabel="rank r of a head", ylabel="E|f − g|²", ylim=(5e-4, 1.5))
        ax.legend(fontsize=7.5, frameon=False, loc="lower left")
        points = rows[0]["points"]
        title(ax, f"furthest of {points} points, d = {dim}", "trained layers of equal rank × heads")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        tasks=(
            [
                {
                    "dim": 16,
                    "points": 8,
                    "sets": 500,
                    "lines": [[1, [16, 8]]],
                    "thin_values": False,
                    "seeds": 1,
                    "steps": 20,
                }
            ],
            [
                {
                    "dim": 16,
                    "points": 8,
                    "sets": 4096,
                    "lines": [[1, [16, 8, 4, 2, 1]], [4, [16, 8, 4, 2]]],
                    "thin_values": False,
                    "seeds": 3,
                    "steps": 1500,
                }
            ],
            [
                {
                    "dim": 16,
                    "points": 8,
                    "sets": 4096,
                    "lines": [[1, [16, 8, 4, 2, 1]], [4, [16, 8, 4, 2, 1]]],
                    "thin_values": False,
                    "seeds": 3,
                    "steps": 3000,
                },
                {
                    "dim": 64,
                    "points": 16,
                    "sets": 4096,
                    "lines": [[1, [64, 32, 16, 8, 4]], [4, [64, 32, 16, 8, 4]]],
                    "thin_values": True,
                    "seeds": 2,
                    "steps": 1000,
                },
            ],
        )
    ),
    needs=("torch",),
    full_time="22 minutes of CPU",
)
