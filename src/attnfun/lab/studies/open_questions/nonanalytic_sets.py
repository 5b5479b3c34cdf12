"""Does the bound on DeepSets bind ReLU networks?

Claim. The lower bound on the features that DeepSets needs, proved for analytic networks, should also hold for
networks that are not analytic, such as ReLU networks (open in the source).

Source. Zweig and Bruna 2022, arXiv 2206.01266 (analytic activations are assumed; others are left open). The argument
that one packed feature is enough is our own; injective sums are quoted from Amir et al. 2023, arXiv 2306.06529.

Does the lower bound on DeepSets, proved for analytic networks, bind ReLU networks too?

The target is that of the study `sets`: g = Σ_{α ≠ 0} p_α²/norm on N points of the torus. What is under the bound is
f = ρ(Σψ_1 … Σψ_H) with ψ_h holomorphic in the complex coordinates and ρ entire. Trained here: holomorphic networks
(complex weights, polynomial activation) of H complex features, and real networks on cosines and sines of 2H real
features, with ReLU, GELU and tanh.

*The infimum does not depend on the activation.* On compact sets every continuous ψ and ρ is a uniform limit of networks
of any activation that is no polynomial (Leshno et al. 1993). So real networks of H features have the same infimum with
ReLU as with GELU: what the bound needs is that no conjugate enters, not that functions are smooth.

*And that infimum is 0, for one feature.* Cut the torus into Q cells and let ψ = (N+1)^{number of the cell}. The sum
over N points is a whole number whose digits to the base N+1 are how many points are in each cell; so ρ, through
finitely many points, may be any function of these counts: the conditional mean of g, whose error falls to 0 with the
cells.
Ramps of width w make ψ continuous and piecewise linear, a ReLU network, and change it on sets of measure O(w) only. The
price is bits: Q log2(N+1) of them in one feature. With 53 bits (`packed`) sums are exact in float64.
Ramps can be smooth as well, and nothing here depends on the target or the measure: for arbitrary smooth maps, as slides
on the theorem print it, there is no such bound at all; it needs functions that are holomorphic.

*Polynomially many features and a continuous ρ* are enough without such bits: 2 N D' + 1 sums of generic networks with
an analytic activation determine sets of N points of R^{D'} (Amir, Gortler, Avni, Ravina, Dym 2023, arXiv 2306.06529,
who also show that sums of piecewise linear ψ never do so exactly; cf. Wang et al. 2023, arXiv 2307.04001, for other
embeddings). That is fewer than the C(D, 2) terms of the target of degree 2 once D is large, where the bound for
holomorphic features still holds. Here D' = 2D: a complex coordinate is two real ones.

A full run takes 3 minutes of CPU.

Columns.
    way: activation of trained networks; packed: digits in a number; or a quoted theorem
    points: N, points of a set
    dim: D, complex coordinates of a point
    features: H, real features; holomorphic networks have H/2 complex ones
    seed: of start and batches
    error: E|f − g|² on fresh sets (20,000; packed 4,000), E|g|² = 1; 0 where quoted as exact
    standard error: of that mean
    bound: ≥ proved for H/2 (rounded up) holomorphic features; quoted row: for H of them
    terms: what H/2 of the target's terms give
    bits: of a packed feature
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, FAINT, NETWORKS, curve, labelled, panels
from attnfun.lab.studies.separations.set_networks import trained_error
from attnfun.lab.studies.study import REFUTED, Row, Rows, Size, Unit, Verdict, crossed, crossed_with, decided, described

POINTS, DIM, WIDE = 8, 2, 100  # the last is the dimension of the quoted theorem's row
REAL = ("relu", "gelu", "tanh")
ENTIRE, PACKED, QUOTED = "holomorphic", "packed", "continuous decoder, quoted"


def units(size: Size) -> list[Unit]:
    run = {"points": POINTS, "dim": DIM, "steps": size["steps"], "grid": 0, "seed": range(size["seeds"])}
    made = crossed(features=[2 * h for h in size["features"]], way=(*REAL, ENTIRE), **run)
    fixed = {"points": POINTS, "seed": None, "steps": 0}
    made += crossed_with(("features", "grid"), size["packed"], way=PACKED, dim=DIM, **fixed)
    return made + crossed(way=QUOTED, dim=WIDE, features=4 * POINTS * WIDE + 1, grid=0, **fixed)


def run(unit: Unit) -> Row:
    n, dim, features, quoted = unit["points"], unit["dim"], unit["features"], unit["way"] == QUOTED
    error, spread, bits = 0.0, 0.0, None
    count, degree = (features, 2) if quoted else ((features + 1) // 2, None)
    if unit["way"] == PACKED:
        error, spread, bits = packed_error(n, dim, features, unit["grid"], samples=4000)
    elif not quoted:
        sizes = (features // 2, 24) if unit["way"] == ENTIRE else (features, 64)
        run = {"steps": unit["steps"], "seed": unit["seed"], "batch": 128}
        error, spread = trained_error(n, dim, "elements", *sizes, unit["way"], **run)
    terms = max(0.0, 1 - features / 2 / (math.comb(dim, 2) if quoted else 2**dim - 1))
    bound = af.bounds.sets(n, dim, count, degree=degree).sharper_lower
    return {"error": error, "standard error": spread, "bound": bound, "terms": terms, "bits": bits}


def packed_error(points: int, dim: int, features: int, grid: int, samples: int) -> tuple[float, float, int]:
    """(mean, standard error of |f − g|², bits of a feature) of the packed DeepSets with grid^dim cells.

    The features are computed as numbers, summed, and read again: nothing else is handed to the decoder.
    """
    hard = af.limits.HardSet(points, dim)
    X = hard.sample(samples, seed=5)
    places = np.floor((hard.angles(X) + np.pi) / (2 * np.pi) * grid).astype(np.int64) % grid
    cells = (places * grid ** np.arange(dim)).sum(axis=-1)  # (sets, N)
    count = grid**dim
    digits = -(-count // features)
    bits = math.ceil(digits * math.log2(points + 1))
    exact = bits <= 53
    powers: NDArray[Any] = np.array([(points + 1) ** k for k in range(digits)], dtype=float if exact else object)
    counts = np.zeros((samples, count))
    for feature in range(features):
        psi = np.where(cells % features == feature, powers[cells // features], 0)
        rest = psi.sum(axis=1)  # the feature: all that ρ sees
        for k in range(digits):
            if feature + k * features < count:
                counts[:, feature + k * features] = (rest % (points + 1)).astype(np.float64)
                rest = rest // (points + 1)
    difference = hard.by_pairs(X) - _conditional_mean(hard, counts, grid)
    squares = np.abs(difference) ** 2
    return float(squares.mean()), float(squares.std() / math.sqrt(samples)), bits


def _conditional_mean(hard: Any, counts: NDArray[np.float64], grid: int) -> NDArray[np.complex128]:
    """E[g | how many points are in each cell]: x has the mean sinc(1/grid) e^{i centre}, x² sinc(2/grid) e^{2i centre}.

    Two different points are independent given their cells, and a pair of equal ones gives x².
    """
    number = np.arange(grid**hard.dim)
    places = number[:, None] // grid ** np.arange(hard.dim) % grid
    centre = np.exp(1j * (2 * np.pi * (places + 0.5) / grid - np.pi))  # (cells, D)
    total = np.zeros(len(counts), dtype=np.complex128)
    for alpha in hard.exponents:
        one = np.prod(np.where(alpha, np.sinc(1 / grid) * centre, 1), axis=1)
        two = np.prod(np.where(alpha, np.sinc(2 / grid) * centre**2, 1), axis=1)
        total += (counts @ one) ** 2 + counts @ (two - one**2)
    return np.asarray(total / math.sqrt(hard.divisor))


def judge(table: Rows) -> Verdict:
    """Refuted when a network that is not holomorphic is below the bound by more than three standard errors.

    Otherwise it holds, with limits where ReLU networks, though above the bound, do better than GELU's by more than a
    tenth of the target.
    """
    trained, real, packed = (table.where(way=way) for way in ((*REAL, ENTIRE), REAL, PACKED))
    words, wide = [], 0.0
    for h, rows in trained.by("features"):
        ways = {way: rows.where(way=way) for way in (ENTIRE, *REAL)}
        parts = ", ".join(f"{way} {some.middle('error', '.3f')}" for way, some in ways.items() if some)
        wide = max(wide, ways["gelu"].median("error") - ways["relu"].median("error"))
        words.append(f"{h} real features ({h // 2} complex), bound {rows[0]['bound']:≥3}: {parts}.")
    low, beaten = real.that(_below), packed.that(_below)
    words.append(f"{len(low)} of {len(real)} trained real networks are below the bound.")
    text = "Packed: {features} real feature{s} of {bits} bits, error {error:.3f} where holomorphic ones have at least "
    for h, rows in packed.by("features"):
        words += rows.say(text + "{bound:≥3}.", s="s" * (h > 1))
    words += table.where(way=QUOTED).say(
        "And at D = {dim} (target of degree 2) {features:,} real features determine every set of {points} points, by a "
        "quoted theorem, while as many holomorphic ones err by {bound:≥3} at least."
    )
    broken = table.where(way=ENTIRE).above("bound", "error", "standard error")
    if (beaten or low) and not broken:
        how = "in exact arithmetic, by bits and not by training" if not low else "by training as well"
        end = (
            f"The bound does not hold beyond holomorphic networks ({how}); and GELU networks on real inputs are as "
            "free as ReLU's: the hypothesis that counts is that no conjugate enters."
        )
        return Verdict(REFUTED, end, " ".join(words))
    text = "at H = {features} a holomorphic network has {error:.3f} ± {standard error:.3f}, not {bound:≥3} or more"
    limit = "" if wide <= 0.1 else f"ReLU networks stay above the bound, yet below GELU's by {wide:.2f}."
    if lost := trained.lost("error"):
        limit = f"No network is seen below the bound, but {len(lost)} trainings did not end well."
    return decided(words, broken.say(text), limit, "No network without analyticity is below the bound.")


def _below(row: Row) -> bool:
    return bool(row["error"] + 3 * row["standard error"] < row["bound"])


def draw(table: Rows) -> Any:
    figure, [ax] = panels(width=6.2)
    trained, packed = table.where(way=(*REAL, ENTIRE)), table.where(way=PACKED)
    first, label = Rows(rows[0] for _, rows in trained.by("features")), "proved for holomorphic features, H/2 of them"
    curve(ax, first, "features", "bound", "_-", color=BOUND, ms=14, mew=2, label=label)
    curve(ax, first, "features", "terms", "--", color=FAINT, label="H/2 of the terms")
    for shift, (way, marker, colour) in enumerate(zip((ENTIRE, *REAL), "Ds^o", NETWORKS, strict=False)):
        at = lambda row, shift=shift: row["features"] + 0.12 * (shift - 1.5)  # noqa: E731
        curve(ax, trained.where(way=way), at, "error", marker, color=colour, ms=4.5, label=f"trained, {way}")
    curve(ax, packed, "features", "error", "k*", ms=9, label="packed digits, exact arithmetic")
    for row in packed:
        place = (row["features"], row["error"])
        ax.annotate(f"{row['bits']} bits", place, (6, 3), textcoords="offset points", fontsize=7)
    head = "DeepSets, {points} points, D = {dim}".format(**(trained or table)[0])
    note = "trained with four activations; and digits packed into few features"
    legend = {"ncols": 2, "loc": "upper right"}
    labelled(ax, head, note, "real features H", "E|f − g|², relative", ylim=(-0.03, 1.25), legend=legend)
    return figure


PACKS = [[1, 4], [2, 5], [4, 8], [1, 16], [1, 32]]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": (ENTIRE, PACKED)},
    features=([1], [1, 2, 3], [1, 2, 3, 4]),
    seeds=(1, 3, 4),
    steps=(5, 500, 1000),
    packed=(PACKS[1:2], PACKS[:4], PACKS),
)
