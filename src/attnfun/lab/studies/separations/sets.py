"""Sums over elements against one sum over pairs.

Claim. There are symmetric functions of sets that one sum over pairs computes and that sums over elements, DeepSets,
miss unless they have exponentially many features: on the target here H complex features that are holomorphic miss at
least a constant times 1 − H/(2^D − 1) of it.

Source. Zweig and Bruna 2022, arXiv 2206.01266 (the separation, for analytic networks); target, measure and the proved
constant are our own derivation, attnfun.limits.separation.sets.

Sums over elements against sums over pairs, on a target that is one sum over pairs and 2^D − 1 over elements.

Points are N, with D coordinates on the unit circle, and g = Σ_{α ≠ 0} p_α²/norm (`limits.separation.sets`). Trained
DeepSets of H real features (a complex feature is two of them) and trained networks of pairs, from random starts; the
proved bound for H/2 holomorphic features; what H/2 of the terms give; and constructed networks with a proved error.

A real network sees cosines and sines, conjugates included, and is not under the proved bound: the study asks whether
training follows its course all the same.

A full run takes 4 minutes of CPU.

Columns.
    way: DeepSets or pairs, trained from a random start or constructed
    points: N, points of a set
    dim: D, complex coordinates of a point
    features: H, real features that are summed
    seed: of start and batches; none where weights are constructed
    error: E|f − g|² on 20,000 fresh sets, E|g|² = 1 (constructed: real part alone, relative, 2,000 sets)
    standard error: of that mean
    terms: what H/2 of the 2^D − 1 terms give: 1 − (H/2)/(2^D − 1)
    bound: ≥ proved for H/2 (rounded up) features that are holomorphic: c (1 − H/(2(2^D − 1)))
    proved: ≤ sup of the squared error of the constructed network, relative, by its certificate
"""

import math
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, FAINT, NETWORKS, curve, labelled, panels_by
from attnfun.lab.studies.separations.set_networks import trained_error
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed_with, decided, described

DEEP, FREE, PRODUCT = "DeepSets", "pairs ψ(x, x')", "pairs ψ(x∘x')"
BUILT_DEEP, BUILT_PAIRS = "DeepSets, constructed", "pairs, constructed"
NEAR, EXACT, PAIR_EXACT = 0.05, 1e-2, 1e-3  # what is asked of D = 2
FLOOR = 1e-8  # of the picture


def units(size: Size) -> list[Unit]:
    names, points = ("way", "dim", "features", "steps"), size["points"]
    trained = [*([DEEP, *plan] for plan in size["deep"]), *size["pairs"]]
    built = [(BUILT_DEEP, dim, 2 * (2**dim - 1), 0) for dim in size["built_deep"]]
    built += [(BUILT_PAIRS, dim, 2, 0) for dim in size["built_pairs"]]
    made = crossed_with(names, trained, points=points, seed=range(size["seeds"]))
    return made + crossed_with(names, built, points=points, seed=None)


def run(unit: Unit) -> Row:
    points, dim, features = unit["points"], unit["dim"], unit["features"]
    row, deep = dict[str, Any](), unit["way"] in (DEEP, BUILT_DEEP)
    if unit["seed"] is None:
        row["error"], row["standard error"], row["proved"] = _constructed(points, dim, deep)
    else:
        way, batch = {DEEP: ("elements", 128), FREE: ("pairs", 64), PRODUCT: ("pair products", 128)}[unit["way"]]
        run = {"steps": unit["steps"], "seed": unit["seed"], "batch": batch}
        row["error"], row["standard error"] = trained_error(points, dim, way, features, 64, "gelu", **run)
    if not deep:
        return row
    bound = af.bounds.sets(points, dim, features // 2 + features % 2)
    return row | {"terms": max(0.0, 1 - features / 2 / bound.terms), "bound": bound.sharper_lower}


def _constructed(points: int, dim: int, deep: bool) -> tuple[float, float, float]:
    """(mean, standard error, proved sup) of the squared error of the real part, relative to E(Re g)² = ½."""
    hard = af.limits.HardSet(points, dim)
    X = hard.sample(2000, seed=1)
    if deep:
        text, domain, seen = hard.expressions(hard.terms)[0], hard.domain, hard.real(X)
    else:
        text, domain, seen = hard.angle_expressions()[0], hard.angle_domain, hard.angles(X)
    net = af.set_function(text, points=points, domain=domain, eps=1e-2)
    squares = 2 * (net(seen) - hard.by_pairs(X).real) ** 2
    return float(squares.mean()), float(squares.std() / math.sqrt(len(X))), 2 * net.certificate.error[1] ** 2


def judge(table: Rows) -> Verdict:
    """Refuted when pairs do not do what DeepSets of few features fail at, or constructed networks break their proof.

    Holds when at D = 2 the median of four real features is within 0.05 of .30 and DeepSets of eight and pairs of
    products are exact to 1e-2 and 1e-3, for every seed; with limits where only some of that is so.
    """
    words, faults, short = [], list[str](), list[str]()
    for dim, here in table.by("dim"):
        deep = here.where(way=DEEP)
        if not deep:
            continue
        groups = [(h, rows, f"{rows[0]['terms']:.3g}") for h, rows in deep.by("features")]
        parts = [f"H = {h} {rows.middle('error', '.3g')[:-1]}; {terms})" for h, rows, terms in groups]
        text = "trained DeepSets of H real features, median (range; what H/2 terms give)"
        words.append(f"D = {dim}: {text}: {', '.join(parts)}.")
        low = min((row["error"] for row in deep if row["features"] < 2 * (2**dim - 1)), default=math.nan)
        for way in (FREE, PRODUCT):
            for h, rows in here.where(way=way).by("features"):
                words.append(f"Trained {way}, H = {h}: {rows.middle('error')}.")
                if not max(rows.of("error")) < low:
                    text = f"trained {way} of {h} real features are not always better than DeepSets of few at D = {dim}"
                    (faults if way == PRODUCT else short).append(text)
    two, wanted = table.where(way=DEEP, dim=2), "what the theory asks at D = 2"
    if not abs(two.where(features=4).median("error") - 0.30) <= NEAR:
        short.append(f"{wanted} of H = 4, .30 ± {NEAR}, is not met")
    if two.where(features=8).fails(lambda row: row["error"] <= EXACT):
        short.append(f"{wanted} of H = 8, an error below {EXACT}, is not met")
    if table.where(way=PRODUCT, dim=2).fails(lambda row: row["error"] <= PAIR_EXACT):
        short.append(f"{wanted} of ψ(x∘x'), an error below {PAIR_EXACT}, is not met")
    built, deep = table.where(way=(BUILT_DEEP, BUILT_PAIRS)), table.where(way=DEEP)
    words += built.say("{way} (D = {dim}, real part): {error:.2g}, proved below {proved:≤2}.")
    faults += built.above("error", "proved").say("a constructed network ({way}, D = {dim}) breaks its proof")
    if below := deep.above("bound", "error", "standard error"):
        words += Rows([below.best(lambda row: row["error"] - row["bound"])]).say(
            "{count} trained DeepSets lie below the bound for holomorphic features, which does not cover them: at "
            "D = {dim}, H = {features} {error:.3g} against {bound:≥3}.",
            count=len(below),
        )
    else:
        words.append(
            "No trained DeepSets lies below the proved bound for half as many holomorphic features, which is above 0 "
            f"for {sum(row['bound'] > 0 for row in deep)} of {len(deep)}."
        )
    if lost := table.lost("error"):
        short.append(f"{len(lost)} trainings did not end well")
    limit = f"Pairs win, but {'; '.join(short)}." if short else ""
    end = "One complex feature of pairs does what trained DeepSets do here only with as many as 2^D − 1 complex ones."
    return decided(words, faults, limit, end)


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table.where(dim=tuple(table.where(way=DEEP).of("dim"))), "dim")
    for ax, dim, here in parts:
        rows, count = here.where(way=DEEP), 2**dim - 1
        fine = np.arange(0.5, min(2 * count, max(rows.of("features"))), 0.05)
        label = "H/2 of the terms: 1 − (H/2)/(2^D − 1)"
        ax.plot(fine, 1 - fine / 2 / count, "--", color=FAINT, label=label)
        shown, label = rows.that(lambda row: row["bound"] > 0), "proved, H/2 holomorphic features"
        curve(ax, shown, "features", "bound", "_-", each=min, color=BOUND, ms=12, mew=2, label=label)
        curve(ax, rows, "features", "error", "o", color=NETWORKS[0], ms=4, label="DeepSets, trained")
        for colour, way, marker in ((1, FREE, "s"), (2, PRODUCT, "D")):
            label = f"{way}, trained"
            curve(ax, here.where(way=way), "features", "error", marker, color=NETWORKS[colour], ms=5, label=label)
        for way, marker in ((BUILT_PAIRS, "*"), (BUILT_DEEP, "P")):
            built = here.where(way=way)
            curve(ax, built, "features", lambda row: max(row["error"], FLOOR), marker, color="k", ms=9, label=way)
        note = "each mark a seed; a complex feature is two real ones"
        texts = (f"D = {dim}, {rows[0]['points']} points", note, "real features H", "E|f − g|², relative")
        legend = {"loc": "upper right", "ncols": 2 if dim == 2 else 1}
        labelled(ax, *texts, log="y", ylim=(FLOOR / 2, 300), legend=legend)
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": (DEEP, PRODUCT, BUILT_PAIRS)},
    points=4,
    seeds=(1, 3, 4),
    deep=(
        [[2, 4, 5], [2, 8, 5]],
        [[2, h, 600] for h in (1, 2, 4, 6, 8)] + [[3, h, 1200] for h in (4, 10, 20)],
        [[2, h, 1000] for h in (1, 2, 3, 4, 6, 8, 16)] + [[3, h, 2000] for h in (4, 10, 16, 20, 24)],
    ),
    pairs=(
        [[PRODUCT, 2, 2, 5]],
        [[FREE, 2, 2, 1800], [FREE, 2, 4, 900], [PRODUCT, 2, 2, 500], [PRODUCT, 3, 2, 500]],
        [[FREE, 2, 2, 2500], [FREE, 2, 4, 1500], [PRODUCT, 2, 2, 1000], [PRODUCT, 3, 2, 1000]],
    ),
    built_deep=([], [2], [2, 3]),
    built_pairs=([], [2, 3], [2, 3]),
)
