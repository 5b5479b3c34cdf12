"""Depth and MLPs against low rank.

Claim. For a fixed number of points more layers may make up for low rank; what MLPs and extra layers do is asked and
not answered.

Source. Slides on separations, comments and future work; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, section on
depth and figure 1 (100,000 steps at d = 64, here a hundredth of that at d = 16).

Do more layers, or an MLP after each, make up for heads of low rank?

Furthest neighbour, every point a query. Stacks of one to three layers of the same low rank with and without MLP,
trained, beside one layer of full rank, trained and constructed, and the constructed two layers of rank 1 that do it for
one query.

Columns.
    way: trained; full-rank and scores: constructed
    dim: d
    points: N, the query included; every point is a query (scores: one)
    rank: r of every head
    heads: H of every layer (scores: in all)
    layers: layers
    hidden: width of the MLP after every layer; 0: none
    seed: of start and samples
    error: E|f − g|² on fresh sets
    error_se: its standard error over sets
    least: one layer without MLP: no layer of its shape errs less (af.bounds.neighbours, proved)
    proved: constructed: the proved bound of the mean error
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import coloured, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, median, values, where

HELPS = 0.9  # an error below this share of the shallow one counts as help
LEARNED = 0.15  # trained full rank must come so low, or nothing is said of what makes up for it
RESCUES = 2.0  # within this factor of trained full rank, the stack makes up for rank


def units(size: Size) -> list[Unit]:
    found: list[Unit] = []
    for points in size["points"]:
        common = {"dim": size["dim"], "points": points, "sets": size["sets"]}
        for way, rank, heads, layers in (("full-rank", size["dim"], 1, 1), ("scores", 1, 2 * size["dim"] + 1, 2)):
            shape = {"rank": rank, "heads": heads, "layers": layers, "hidden": 0}
            found.append({"way": way, **common, **shape, "seed": None, "steps": 0})
        shapes = [(size["dim"], 1, 1, 0)] + [
            (rank, times * size["dim"] // rank, layers, hidden)
            for rank in size["ranks"]
            for times in size["times"]
            for hidden in (0, size["hidden"])
            for layers in size["layers"]
        ]
        for rank, heads, layers, hidden in shapes:
            for seed in range(size["seeds"]):
                shape = {"rank": rank, "heads": heads, "layers": layers, "hidden": hidden}
                found.append({"way": "trained", **common, **shape, "seed": seed, "steps": size["steps"]})
    return found


def run(unit: Unit) -> list[Row]:
    from attnfun.lab.studies.separations.layers import Shape, measured, trained

    dim, points, rank, heads = (unit[key] for key in ("dim", "points", "rank", "heads"))
    least = proved = None
    if unit["way"] == "trained":
        shape = Shape(dim, rank, heads, layers=unit["layers"], hidden=unit["hidden"])
        blocks = trained(shape, points, steps=unit["steps"], seed=unit["seed"])
        error, error_se = measured(blocks, points, sets=unit["sets"], seed=unit["seed"])
        if shape.plain:
            least = af.bounds.neighbours(dim, points - 1, rank, heads).lower
    else:
        net = af.neighbours(dim, points, unit["way"].replace("-", "_"), eps=1e-2)
        seen = net.measured(unit["sets"] * (points if unit["way"] == "full-rank" else 1), seed=1)
        error, error_se, proved = seen.error, seen.error_se, net.predicted.proved
    return [{"error": error, "error_se": error_se, "least": least, "proved": proved}]


def judge(table: Table) -> Verdict:
    """Holds when some deeper stack of low rank comes within a factor 2 of trained full rank, for every N and rank.

    With limits when depth lowers the error by a tenth at least for every N and rank, but not that far; refuted when it
    does not, or an error contradicts its bound.
    """
    words, faults, rescued, helped, sufficed = "", [], [], [], []
    rows = where(table, way="trained")
    for row in table:
        if not 0 <= row["error"] < math.inf:
            faults.append(f"{row['layers']} layers at N = {row['points']} have no error that is a number")
        if row["proved"] is not None and not row["error"] <= row["proved"] + 3 * row["error_se"]:
            faults.append(f"the constructed {row['way']} at N = {row['points']} errs more than proved")
        if row["least"] is not None and not row["error"] + 3 * row["error_se"] >= row["least"]:
            faults.append(f"one layer of rank {row['rank']} errs {row['error']:.3f}, less than {row['least']:.3f}")
    for points in distinct(rows, "points"):
        full = [row for row in rows if row["points"] == points and row["rank"] == row["dim"]]
        top = median(values(full, "error"))
        words += f"N = {points}: one layer of full rank comes to {top:.3f}. "
        if not top <= LEARNED:
            faults.append(f"not even full rank is learned at N = {points}")
        for rank, heads in dict.fromkeys((row["rank"], row["heads"]) for row in rows if row["rank"] < row["dim"]):
            on = where(rows, points=points, rank=rank, heads=heads)
            medians = {
                (layers, hidden): median(values(where(on, layers=layers, hidden=hidden), "error"))
                for hidden in distinct(on, "hidden")
                for layers in distinct(on, "layers")
            }
            plain, deep = medians.get((1, 0), float("nan")), [v for (layers, _), v in medians.items() if layers > 1]
            for hidden in distinct(on, "hidden"):
                line = ", ".join(f"{medians[layers, hidden]:.3f}" for layers in distinct(on, "layers"))
                name = f"with an MLP of {hidden}" if hidden else "attention alone"
                depths = " / ".join(map(str, distinct(on, "layers")))
                words += f"{heads} heads of rank {rank}, {name}, {depths} layers: {line}. "
            spread = max(
                (max(group) - min(group) for layers, hidden in medians
                 if (group := values(where(on, layers=layers, hidden=hidden), "error"))), default=float("nan")
            )  # fmt: skip
            words += f"Seeds differ by at most {spread:.3f}. "
            best = min(deep, default=float("nan"))
            rescued.append(bool(best <= RESCUES * top))
            helped.append(bool(best <= HELPS * plain))
            mlp = [v for (layers, hidden), v in medians.items() if layers == 1 and hidden]
            if mlp:
                sufficed.append(bool(mlp[0] <= HELPS * plain))
                words += f"An MLP on one layer changes {plain:.3f} to {mlp[0]:.3f}. "
    made = values(where(table, way="scores"), "proved")
    if made:
        words += f"By construction two layers of rank 1 suffice for one query, proved to {max(made):.2g} here. "
    if faults:
        return Verdict(REFUTED, f"Refuted: {faults[0]}.", words)
    if rescued and all(rescued):
        return Verdict(HOLDS, "Depth makes up for rank.", words)
    if helped and all(helped):
        text = "Depth helps, but training at this size does not find what makes up for rank; an MLP on one layer "
        return Verdict(LIMITS, text + ("helps as well." if sufficed and all(sufficed) else "does little."), words)
    return Verdict(REFUTED, "Refuted: trained depth does not make up for rank, nor does it help everywhere.", words)


def draw(table: Table) -> Any:
    rows = where(table, way="trained")
    ns = distinct(rows, "points")
    figure, axes = panels(len(ns), width=5.4, height=4.4)
    for ax, points in zip(axes[0], ns, strict=True):
        at = where(rows, points=points)
        full = [row for row in at if row["rank"] == row["dim"]]
        shapes = dict.fromkeys((row["rank"], row["heads"], row["hidden"]) for row in at if row["rank"] < row["dim"])
        for colour, (rank, heads, hidden) in coloured(shapes):
            on = where(at, rank=rank, heads=heads, hidden=hidden)
            layers = sorted(distinct(on, "layers"))
            name = f"{heads} × rank {rank}, " + (f"MLP of {hidden}" if hidden else "no MLP")
            ax.semilogy(
                layers, [median(values(where(on, layers=n), "error")) for n in layers], "-", color=colour, label=name
            )
            curve(ax.semilogy, on, "layers", "error", "o", color=colour, ms=4, alpha=0.6)
            low = [row for row in on if row["least"] is not None and row["layers"] == 1]
            if low:
                label = f"excluded below, one layer, {heads} × rank {rank}"
                ax.semilogy([1], [low[0]["least"]], "_", color=colour, ms=16, mew=2, label=label)
        curve(ax.semilogy, full, "layers", "error", "s", color="k", ms=5, mfc="none", label="rank d, trained")
        for mark, way, name in (
            ("*", "full-rank", "rank d, constructed"),
            ("P", "scores", "rank 1, one query, constructed"),
        ):
            made = where(table, way=way, points=points)
            curve(ax.semilogy, made, "layers", "error", mark, color="k", ms=8, label=name)
        ax.set_xticks(sorted(distinct(at, "layers")))
        ax.set(xlabel="layers", ylabel="E|f − g|²", ylim=(2e-3, 1.2), xlim=(0.8, max(values(at, "layers")) + 0.2))
        title(ax, f"furthest of {points} points, d = {at[0]['dim']}")
    axes[0, -1].legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dim=(8, 16, 16),
        points=([4], [4, 8], [4, 8]),
        ranks=([2], [4], [4]),
        times=([1], [1], [1, 4]),
        layers=([1, 2], [1, 2, 3], [1, 2, 3]),
        hidden=(16, 64, 64),
        seeds=(1, 2, 2),
        steps=(15, 1000, 1500),
        sets=(256, 2048, 2048),
    ),
    needs=("torch",),
    full_time="7 minutes of CPU",
)
