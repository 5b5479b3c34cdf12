"""More than two candidates: the barrier of low rank persists.

Claim. The separation by rank, a theorem for two candidates (N = 3), should extend to N > 3 by the same arguments;
whether what makes up for rank must depend on N is open.

Source. Slides on separations, comments and future work; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153. The bound for
any N is derived in limits/separation/candidates.py.

Does the barrier of low rank, proved for two candidates, persist with more of them?

For N points on the sphere, every one a query: a proved lower bound by degrees for any N (`af.bounds.neighbours`),
layers trained at equal rank times heads, one constructed head of full rank, and two layers of rank 1: scores written to
the candidates (the tally, for any N and one query), and a plurality of random votes.

A full run takes 4 minutes of CPU.

Columns.
    way: trained; full-rank (constructed, one layer); scores (constructed, two, one query); votes (counted)
    dim: d
    points: N, the query included
    rank: r of a head
    heads: H
    seed: of start and samples
    error: E|f − g|² on fresh sets
    error_se: its standard error over sets
    least: ≥ no single layer of this shape errs less: af.bounds.neighbours, proved
    least_two: ≥ N = 3: the bound of af.bounds.rank, proved too
    proved: ≤ constructed: the proved bound of the mean error
"""

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BESIDE, Figure, coloured, curve, each_seed, labelled, panels
from attnfun.lab.studies.separations.layers import Shape, built_row, error_row, trained_row
from attnfun.lab.studies.study import REFUTED, Row, Rows, Size, Unit, Verdict, crossed, decided, described

FULL = "full-rank"  # one constructed head of rank d
TIMES = 3.0  # a barrier: low rank errs at least so many times what full rank does
LEARNED = 0.15


def units(size: Size) -> list[Unit]:
    made, dim = [], size["dim"]
    for points in size["points"]:
        common = {"dim": dim, "points": points, "sets": size["sets"]}
        for way, rank, heads in ((FULL, dim, 1), ("scores", 1, 2 * dim + 1), ("votes", 1, dim * dim + 1)):
            made += crossed(way=way, **common, rank=rank, heads=heads, seed=None, steps=0)
        for rank in size["ranks"]:
            run = {"seed": range(size["seeds"]), "steps": size["steps"]}
            made += crossed(way="trained", **common, rank=rank, heads=dim // rank, **run)
    return made


def run(unit: Unit) -> Row:
    dim, points, rank, heads, sets = (unit[key] for key in ("dim", "points", "rank", "heads", "sets"))
    if unit["way"] == "votes":
        return plurality(dim, points - 1, heads, sets)
    if unit["way"] != "trained":
        return built_row(dim, points, unit["way"], sets, 1e-2)
    batch = max(16, 1024 // points)  # the same number of queries per step for every N
    row = trained_row(Shape(dim, rank, heads), unit, batch=batch)
    if points == 3:
        row["least_two"] = af.bounds.rank(dim, rank, heads, setting="layer-any-v", attends_self=True).lower
    return row


def plurality(dim: int, candidates: int, heads: int, sets: int) -> Row:
    """E|f − the candidate most voted for|², and its standard error: head q votes for the least (x·q)(q·y)."""
    rng = np.random.default_rng([dim, candidates, heads])
    losses = []
    for _ in range(0, sets, 256):
        q = af.parts.uniform_points(rng, heads, dim)  # other directions for every 256 sets
        x, y = af.parts.uniform_points(rng, 256, candidates, dim), af.parts.uniform_points(rng, 256, dim)
        chosen = ((x @ q.T) * (y @ q.T)[:, None]).argmin(axis=1)
        tally = np.stack([(chosen == j).sum(axis=1) for j in range(candidates)], axis=1)
        best, right = tally.argmax(axis=1), (x @ y[:, :, None])[..., 0].argmin(axis=1)
        losses.append(np.sum((x[np.arange(256), best] - x[np.arange(256), right]) ** 2, axis=1))
    return error_row(np.concatenate(losses))


def judge(table: Rows) -> Verdict:
    """Refuted when an error is below what is excluded, nothing is excluded, or low rank comes near full rank at some N.

    Low rank: up to d/4. With limits when training does not learn full rank either, so that the gap is no clean one.
    """
    words, faults, unlearned, excluded = [], [], [], []
    for points, here in table.by("points"):
        rows, at = here.where(way="trained"), f"N = {points}"
        full = rows.that(lambda row: row["rank"] == row["dim"])
        low = rows.that(lambda row: 4 * row["rank"] <= row["dim"])
        if not full or not low:
            return Verdict(REFUTED, f"{at}: without full and low ranks, or their errors, nothing can be said.")
        top, best = full.median("error"), low.best("error")
        ones = low.where(rank=min(low.of("rank")))
        excluded.append(ones[0]["least"])
        parts = [
            f"{at}: full rank {top:.3f}",
            f"{best['heads']} heads of rank {best['rank']} {best['error']:.3f} (excluded below {best['least']:≥3})",
            f"{ones[0]['heads']} of rank {ones[0]['rank']} {ones.median('error'):.3f} ({excluded[-1]:≥3})",
            *here.where(way="scores").first().say("two layers of rank 1, one query, {error:.3f}"),
            *here.where(way="votes").first().say("plurality of votes {error:.3f}"),
        ]
        words.append("; ".join(parts) + ".")
        below = rows.above("least", "error", "error_se")
        faults += below.say("N = {points}, rank {rank} errs {error:.3f}, less than {least:≥3}")
        faults += here.lost("error").say("N = {points}: {way} has no error that is a number")
        more = here.above("error", "proved", "error_se")
        faults += more.say("N = {points}: {way} errs {error:.4f}, more than proved")
        if low.fails(lambda row: row["least"] > 0):
            faults.append(f"{at}: nothing is excluded for a rank up to d/4")
        if not best["error"] >= TIMES * top:
            faults.append(f"{at}: rank {best['rank']} errs {best['error']:.3f}, full rank {top:.3f}")
        if not top <= LEARNED:
            unlearned.append(str(points))
    words.append(
        f"What is excluded for the least rank goes from {excluded[0]:≥3} to {excluded[-1]:≥3} as N grows. The bound "
        "is proved, for one layer, any N and any weights of its heads. The exponential rate at high precision is not "
        "looked at. Two layers of rank 1 do it for one query, for all queries it is open."
    )
    limit = f"Full rank is not learned to {LEARNED} at N = {', '.join(unlearned)}." if unlearned else ""
    return decided(words, faults, limit, "The barrier persists at every N, in the bound and in training.")


def draw(table: Rows) -> Figure:
    figure, [ax] = panels(width=7.4, height=4.6)
    rows = table.where(way="trained")
    for colour, (rank, on) in coloured(rows.by("rank")):
        name = f"{on[0]['heads']} × rank {rank}"
        each_seed(ax, on, "points", "error", color=colour, label=f"trained, {name}")
        if min(on.of("least")) > 0:
            label = f"excluded below, {name}"
            curve(ax, on, "points", "least", "_--", each=min, color=colour, ms=10, lw=1, label=label)
    for mark, way, name in (
        ("*", FULL, "constructed, one head of rank d"),
        ("P", "scores", "constructed, two layers of rank 1"),
        ("x", "votes", "plurality of d² + 1 votes"),
    ):
        curve(ax, table.where(way=way), "points", "error", mark, color="k", ms=8, mfc="none", label=name)
    head, note = f"furthest of N points, d = {rows[0]['dim']}", "layers of equal rank × heads"
    shape = {"xticks": rows.distinct("points"), "ylim": (3e-3, 2), "legend": BESIDE}
    labelled(ax, head, note, "points N, the query included", "E|f − g|²", log="xy", **shape)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    dim=(8, 16, 16),
    points=([3], [3, 4, 8, 16], [3, 4, 8, 16, 32]),
    ranks=([8, 2], [16, 8, 4, 1], [16, 8, 4, 2, 1]),
    seeds=(1, 2, 2),
    steps=(10, 1000, 2000),
    sets=(64, 2048, 4096),
)
