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

A full run takes 22 minutes of CPU.

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
    least: ≥ no layer of this shape has a smaller error, for these N: af.bounds.neighbours, proved
    least_two: ≥ the same for two candidates (N = 3), proved in interval arithmetic; says nothing of larger N
    proved: ≤ constructed: the proved bound of the mean error
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import FAINT, coloured, curve, each_seed, labelled, level, panels_by
from attnfun.lab.studies.separations.layers import Shape, built_row, error_row, trained_row
from attnfun.lab.studies.study import REFUTED, Row, Rows, Size, Unit, Verdict, crossed, decided, described

LEARNED = {16: 0.08, 64: 0.15}  # an error that counts as learned
NOT_LEARNED = {16: 0.3, 64: 0.5}  # and one that does not; at ranks up to d/2


def units(size: Size) -> list[Unit]:
    made = []
    for dim, points, sets, lines, thin, seeds, steps in size["tasks"]:
        common = {"dim": dim, "points": points, "sets": sets}
        made += crossed(way=("constructed", "linear"), **common, rank=dim, heads=1, seed=None, steps=0)
        for rank, heads in [(rank, times * dim // rank) for times, ranks in lines for rank in ranks]:
            shape = {"rank": rank, "heads": heads, "thin_values": thin}
            made += crossed(way="trained", **common, **shape, seed=range(seeds), steps=steps)
    return made


def run(unit: Unit) -> Row:
    dim, points, rank, heads = (unit[key] for key in ("dim", "points", "rank", "heads"))
    if unit["way"] == "constructed":
        return {"value_rank": dim, **built_row(dim, points, "full-rank", unit["sets"], 1e-3)}
    if unit["way"] == "linear":
        return {"value_rank": dim, **linear(dim, points, unit["sets"])}
    shape = Shape(dim, rank, heads, value_rank=rank if unit["thin_values"] else None)
    wide = {"value_rank": rank if unit["thin_values"] else dim}
    two = af.bounds.rank(dim, rank, heads, setting="layer-any-v", attends_self=True, **wide).lower
    return {**wide, **trained_row(shape, unit), "least_two": two}


def linear(dim: int, points: int, sets: int) -> Row:
    """The best a·(the token) + b·(sum of the others): error and its standard error, fitted on other sets."""

    def drawn(stream: int) -> tuple[Any, Any]:
        x = af.parts.uniform_points(np.random.default_rng([dim, points, stream]), sets, points, dim)
        products = x[:, :1] @ np.swapaxes(x[:, 1:], 1, 2)
        goal = x[np.arange(sets), 1 + products[:, 0].argmin(axis=1)]
        return np.stack([x[:, 0], x[:, 1:].sum(axis=1)], axis=-1), goal

    known, goal = drawn(0)
    coefficients = np.linalg.lstsq(known.reshape(-1, 2), goal.ravel(), rcond=None)[0]
    fresh, wanted = drawn(1)
    return error_row(np.sum((fresh @ coefficients - wanted) ** 2, axis=1))


def _line(row: Row) -> int:
    return int(row["rank"] * row["heads"])


def judge(table: Rows) -> Verdict:
    """Refuted when a full rank is not learned, a rank up to d/2 is, or an error lies below what is excluded.

    With limits when a low rank comes below half the error of the best linear map: then it has learned a part.
    """
    words, faults, partly = [], [], []
    for dim, here in table.by("dim"):
        rows = here.where(way="trained")
        full, low = rows.where(rank=dim), rows.that(lambda row: 2 * row["rank"] <= row["dim"])
        if not full or not low or dim not in LEARNED:
            return Verdict(REFUTED, f"d = {dim}: without full and low ranks, or without a level, nothing can be said.")
        base = here.where(way="linear")[0]["error"]
        built = here.where(way="constructed")[0]
        best, worst = low.best("error"), max(full.of("error"))
        words.append(
            f"d = {dim}, N = {rows[0]['points']}: full rank, trained, {full.span('error', '.3f')} (constructed "
            f"{built['error']:.1e}, proved ≤ {built['proved']:≤2}); ranks up to d/2 {low.span('error', '.3f')}, best "
            f"with r = {best['rank']}, H = {best['heads']}; the best linear map {base:.3f}."
        )
        for line in rows.distinct(_line):
            groups = low.that(lambda row, line=line: _line(row) == line).by("rank")
            text = "r = {}: {:.3f} (excluded below {:≥3})".format
            shares = [text(rank, on.median("error"), on[0]["least"]) for rank, on in groups]
            words.append(f"With rH = {line} medians over seeds are {', '.join(shares)}.")
        if here.where(way="constructed").above("error", "proved", "error_se") or not base > 0:
            faults.append(f"the constructed head at d = {dim} errs more than proved, or the linear map has no error")
        if not worst <= LEARNED[dim]:
            faults.append(f"full rank errs {worst:.3f} at d = {dim}, above {LEARNED[dim]}")
        if not best["error"] >= NOT_LEARNED[dim]:
            faults.append(f"rank {best['rank']} errs only {best['error']:.3f} at d = {dim}, below {NOT_LEARNED[dim]}")
        below = rows.above("least", "error", "error_se")
        faults += below.say("r = {rank}, H = {heads} errs {error:.3f}, below {least:≥3}")
        if not best["error"] >= base / 2:
            partly.append(f"at d = {dim} {best['heads']} heads of rank {best['rank']} leave {best['error'] / base:.0%}")
    words.append(
        "What is excluded is proved, for softmax or any other weights, N as here (af.bounds.neighbours). That training "
        "fails where nothing excludes success is an observation."
    )
    part = f"{partly[0]} of the error of the best linear map" if partly else ""
    limit = f"Low rank does not solve the task, but it learns a part: {part}." if partly else ""
    return decided(words, faults, limit, "Full rank learns the task and ranks up to d/2 do not.")


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table, "dim", width=6.2, height=4.8)
    for ax, dim, here in parts:
        rows = here.where(way="trained")
        for colour, (line, on) in coloured(rows.by(_line)):
            name = "d" if line == dim else f"{line // dim}d"
            each_seed(ax, on, "rank", "error", color=colour, label=f"trained, rH = {name} (each seed, median)")
            least, label = on.that(lambda row: row["least"] > 0), f"excluded below, rH = {name}"
            curve(ax, least, "rank", "least", "_--", each=min, color=colour, lw=1, ms=9, label=label)
        level(ax, here.where(way="linear"), "error", color=FAINT, lw=1, ls=":", label="best linear map")
        curve(ax, here.where(way="constructed"), "dim", "error", "*", color="k", ms=10, label="constructed, 1 head")
        head, note = f"furthest of {rows[0]['points']} points, d = {dim}", "trained layers of equal rank × heads"
        legend = {"fontsize": 7.5, "loc": "lower left"}
        shape = {"xticks": sorted(rows.distinct("rank")), "ylim": (5e-4, 1.5), "legend": legend}
        labelled(ax, head, note, "rank r of a head", "E|f − g|²", log="xy", **shape)
    return figure


RANKS = [16, 8, 4, 2, 1]
WIDE = [64, 32, 16, 8, 4]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("trained", "constructed", "linear")},
    tasks=(  # dim, points, sets, lines of (rank × heads over d, ranks), whether values are thin too, seeds, steps
        [[16, 8, 100, [[1, [16, 8]]], False, 1, 10]],
        [[16, 8, 4096, [[1, RANKS], [4, RANKS[:4]]], False, 3, 1500]],
        [
            [16, 8, 4096, [[1, RANKS], [4, RANKS]], False, 3, 3000],
            [64, 16, 4096, [[1, WIDE], [4, WIDE]], True, 2, 1000],
        ],
    ),
)
