"""Depth and MLPs against low rank.

Claim. For a fixed number of points more layers may make up for low rank; what MLPs and extra layers do is asked and
not answered.

Source. Slides on separations, comments and future work; Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, section on
depth and figure 1 (100,000 steps at d = 64, here a hundredth of that at d = 16).

Do more layers, or an MLP after each, make up for heads of low rank?

Furthest neighbour, every point a query. Stacks of one to three layers of the same low rank with and without MLP,
trained, beside one layer of full rank, trained and constructed, and the constructed two layers of rank 1 that do it for
one query.

A full run takes 7 minutes of CPU.

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
    least: ≥ one layer without MLP: no layer of its shape errs less (af.bounds.neighbours, proved)
    proved: ≤ constructed: the proved bound of the mean error
"""

import math

from attnfun.lab.studies.drawing import BESIDE, Figure, coloured, curve, each_seed, labelled, panels_by
from attnfun.lab.studies.separations.layers import Shape, built_row, trained_row
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

HELPS = 0.9  # an error below this share of the shallow one counts as help
LEARNED = 0.15  # trained full rank must come so low, or nothing is said of what makes up for it
RESCUES = 2.0  # within this factor of trained full rank, the stack makes up for rank


def units(size: Size) -> list[Unit]:
    made, dim = [], size["dim"]
    run = {"seed": range(size["seeds"]), "steps": size["steps"]}
    for points in size["points"]:
        common = {"dim": dim, "points": points, "sets": size["sets"]}
        one = {"rank": dim, "heads": 1, "layers": 1, "hidden": 0}
        made += crossed(way="full-rank", **common, **one, seed=None, steps=0)
        two = {"rank": 1, "heads": 2 * dim + 1, "layers": 2, "hidden": 0}
        made += crossed(way="scores", **common, **two, seed=None, steps=0)
        made += crossed(way="trained", **common, **one, **run)
        for rank, heads in [(rank, times * dim // rank) for rank in size["ranks"] for times in size["times"]]:
            shape = {"rank": rank, "heads": heads, "hidden": (0, size["hidden"]), "layers": size["layers"]}
            made += crossed(way="trained", **common, **shape, **run)
    return made


def run(unit: Unit) -> Row:
    if unit["way"] != "trained":
        return built_row(unit["dim"], unit["points"], unit["way"], unit["sets"], 1e-2)
    return trained_row(Shape(*(unit[key] for key in ("dim", "rank", "heads", "layers", "hidden"))), unit)


def judge(table: Rows) -> Verdict:
    """Holds when some deeper stack of low rank comes within a factor 2 of trained full rank, for every N and rank.

    With limits when depth lowers the error by a tenth at least for every N and rank, but not that far; refuted when it
    does not, or an error contradicts its bound.
    """
    words, rescued, helped, sufficed = [], [], [], []
    faults = table.lost("error").say("{layers} layers at N = {points} have no error that is a number")
    more = table.above("error", "proved", "error_se")
    faults += more.say("the constructed {way} at N = {points} errs more than proved")
    below = table.above("least", "error", "error_se")
    faults += below.say("one layer of rank {rank} errs {error:.3f}, less than {least:≥3}")
    for points, here in table.where(way="trained").by("points"):
        top = here.that(lambda row: row["rank"] == row["dim"]).median("error")
        words.append(f"N = {points}: one layer of full rank comes to {top:.3f}.")
        if not top <= LEARNED:
            faults.append(f"not even full rank is learned at N = {points}")
        for rank, heads, on in here.that(lambda row: row["rank"] < row["dim"]).by("rank", "heads"):
            medians = {(layers, hidden): rows.median("error") for layers, hidden, rows in on.by("layers", "hidden")}
            plain = medians.get((1, 0), math.nan)
            best = min((error for (layers, _), error in medians.items() if layers > 1), default=math.nan)
            for hidden, line in on.by("hidden"):
                name = f"with an MLP of {hidden}" if hidden else "attention alone"
                depths = line.distinct("layers")
                shown = ", ".join(f"{medians[layers, hidden]:.3f}" for layers in depths)
                stack = f"{heads} heads of rank {rank}, {name}, {' / '.join(map(str, depths))} layers"
                words.append(f"{stack}: {shown}.")
            spread = max(max(rows.of("error")) - min(rows.of("error")) for _, _, rows in on.by("layers", "hidden"))
            words.append(f"Seeds differ by at most {spread:.3f}.")
            rescued.append(bool(best <= RESCUES * top))
            helped.append(bool(best <= HELPS * plain))
            for error in [v for (layers, hidden), v in medians.items() if layers == 1 and hidden][:1]:
                sufficed.append(bool(error <= HELPS * plain))
                words.append(f"An MLP on one layer changes {plain:.3f} to {error:.3f}.")
    if made := table.where(way="scores").of("proved"):
        words.append(f"By construction two layers of rank 1 suffice for one query, proved to {max(made):≤2} here.")
    rescues = bool(rescued) and all(rescued)
    if not (rescues or (helped and all(helped))):
        faults.append("trained depth does not make up for rank, nor does it help everywhere")
    mlp = "helps as well." if sufficed and all(sufficed) else "does little."
    limit = f"Depth helps, but training at this size does not find what makes up for rank; an MLP on one layer {mlp}"
    return decided(words, faults, "" if rescues else limit, "Depth makes up for rank.")


def draw(table: Rows) -> Figure:
    figure, parts = panels_by(table, "points", width=5.4, height=4.4)
    for ax, points, here in parts:
        at = here.where(way="trained")
        full, low = at.that(lambda row: row["rank"] == row["dim"]), at.that(lambda row: row["rank"] < row["dim"])
        for colour, (rank, heads, hidden, on) in coloured(low.by("rank", "heads", "hidden")):
            name = f"{heads} × rank {rank}, " + (f"MLP of {hidden}" if hidden else "no MLP")
            each_seed(ax, on, "layers", "error", color=colour, label=name)
            label = f"excluded below, one layer, {heads} × rank {rank}"
            curve(ax, on.where(layers=1), "layers", "least", "_", each=min, color=colour, ms=16, mew=2, label=label)
        curve(ax, full, "layers", "error", "s", color="k", ms=5, mfc="none", label="rank d, trained")
        for mark, way, name in (("*", "full-rank", "rank d"), ("P", "scores", "rank 1, one query")):
            curve(ax, here.where(way=way), "layers", "error", mark, color="k", ms=8, label=f"{name}, constructed")
        depths = sorted(at.distinct("layers"))
        shape = {"ylim": (2e-3, 1.2), "xlim": (0.8, depths[-1] + 0.2), "xticks": depths}
        head, legend = f"furthest of {points} points, d = {at[0]['dim']}", BESIDE if ax is parts[-1][0] else None
        labelled(ax, head, "", "layers", "E|f − g|²", log="y", legend=legend, **shape)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    dim=(8, 16, 16),
    points=([4], [4, 8], [4, 8]),
    ranks=([2], [4], [4]),
    times=([1], [1], [1, 4]),
    layers=([1, 2], [1, 2, 3], [1, 2, 3]),
    hidden=(16, 64, 64),
    seeds=(1, 2, 2),
    steps=(5, 1000, 1500),
    sets=(64, 2048, 2048),
)
