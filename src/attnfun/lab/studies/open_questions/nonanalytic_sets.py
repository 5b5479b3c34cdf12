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

Columns.
    way: activation of trained networks; packed: digits in a number; or a quoted theorem
    points: N, points of a set
    dim: D, complex coordinates of a point
    features: H, real features; holomorphic networks have H/2 complex ones
    seed: of start and batches
    error: E|f − g|² on fresh sets (20,000; packed 4,000), E|g|² = 1; 0 where quoted as exact
    standard error: of that mean
    bound: proved for H/2 (rounded up) holomorphic features; quoted row: for H of them
    terms: what H/2 of the target's terms give
    bits: of a packed feature
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

REAL = ("relu", "gelu", "tanh")
ENTIRE, PACKED, QUOTED = "holomorphic", "packed", "continuous decoder, quoted"


def units(size: Size) -> list[Unit]:
    n, dim = size["points"], size["dim"]
    common = {"points": n, "dim": dim, "steps": size["steps"], "grid": 0}
    out: list[Unit] = []
    for h in size["features"]:
        for way in (*REAL, ENTIRE):
            out += [{"way": way, "features": 2 * h, "seed": seed, **common} for seed in range(size["seeds"])]
    for h, grid in size["packed"]:
        out.append({"way": PACKED, "points": n, "dim": dim, "features": h, "seed": None, "steps": 0, "grid": grid})
    wide = {"way": QUOTED, "points": n, "dim": size["wide"], "features": 4 * n * size["wide"] + 1}
    return [*out, {**wide, "seed": None, "steps": 0, "grid": 0}]


def run(unit: Unit) -> list[Row]:
    n, dim, features = unit["points"], unit["dim"], unit["features"]
    error, spread, bits = 0.0, 0.0, None
    if unit["way"] == QUOTED:
        bound = af.bounds.sets(n, dim, features, degree=2).sharper_lower
    else:
        bound = af.bounds.sets(n, dim, (features + 1) // 2).sharper_lower
    if unit["way"] == PACKED:
        error, spread, bits = packed_error(n, dim, features, unit["grid"], samples=4000)
    elif unit["way"] != QUOTED:
        from attnfun.lab.studies.separations.set_networks import Plan, trained_error

        entire = unit["way"] == ENTIRE
        sizes = {"features": features // 2 if entire else features, "width": 24 if entire else 64}
        plan = Plan(n, dim, "elements", activation=unit["way"], steps=unit["steps"], batch=128, **sizes)
        error, spread = trained_error(plan, unit["seed"])
    return [
        {
            "points": n,
            "error": error,
            "standard error": spread,
            "bound": bound,
            "terms": max(0.0, 1 - features / 2 / (math.comb(dim, 2) if unit["way"] == QUOTED else 2**dim - 1)),
            "bits": bits,
        }
    ]


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


def judge(table: Table) -> Verdict:
    """Refuted when a network that is not holomorphic is below the bound by more than three standard errors.

    Otherwise it holds, with limits where ReLU networks, though above the bound, do better than GELU's by more than a
    tenth of the target.
    """
    if gone := lacking(table, "way", ENTIRE, PACKED):
        return gone
    words, wide = "", 0.0
    broken = [row for row in where(table, way=ENTIRE) if not row["error"] + 3 * row["standard error"] >= row["bound"]]
    trained = [row for row in table if row["way"] in (*REAL, ENTIRE)]
    for h in distinct(trained, "features"):
        parts = []
        for way in (ENTIRE, *REAL):
            errors = values(where(trained, way=way, features=h), "error")
            if errors:
                parts.append(f"{way} {median(errors):.3f} ({min(errors):.3f} to {max(errors):.3f})")
        medians = {way: median(values(where(trained, way=way, features=h), "error")) for way in ("relu", "gelu")}
        wide = max(wide, medians["gelu"] - medians["relu"])
        bound = where(trained, features=h)[0]["bound"]
        words += f"{h} real features ({h // 2} complex), bound {bound:.3f}: {', '.join(parts)}. "
    low = [row for row in trained if row["way"] in REAL and _below(row)]
    words += f"{len(low)} of {sum(row['way'] in REAL for row in trained)} trained real networks are below the bound. "
    packed = where(table, way=PACKED)
    for row in packed:
        words += (
            f"Packed: {row['features']} real feature{'s' * (row['features'] > 1)} of {row['bits']} bits, error "
            f"{row['error']:.3f} where holomorphic ones have at least {row['bound']:.3f}. "
        )
    for row in where(table, way=QUOTED):
        words += (
            f"And at D = {row['dim']} (target of degree 2) {row['features']:,} real features determine every set of "
            f"{row['points']} points, by a quoted theorem, while as many holomorphic ones err by {row['bound']:.3f} at "
            "least. "
        )
    if broken:
        row = broken[0]
        seen = f"{row['error']:.3f} ± {row['standard error']:.3f}"
        return Verdict(REFUTED, f"Refuted: a holomorphic network has {seen}, not {row['bound']:.3f} or more.", words)
    beaten = [row for row in packed if _below(row)]
    if beaten or low:
        how = "in exact arithmetic, by bits and not by training" if not low else "by training as well"
        end = (
            f"So the bound does not hold beyond holomorphic networks ({how}); and GELU networks on real inputs are as "
            "free as ReLU's: the hypothesis that counts is that no conjugate enters."
        )
        return Verdict(REFUTED, end, words)
    lost = sum(not math.isfinite(row["error"]) for row in trained)
    if lost:
        return Verdict(LIMITS, f"No network is seen below the bound, but {lost} trainings did not end well.", words)
    if not wide <= 0.1:
        return Verdict(LIMITS, f"ReLU networks stay above the bound, yet below GELU's by {wide:.2f}.", words)
    return Verdict(HOLDS, "No network without analyticity is below the bound.", words)


def _below(row: Row) -> bool:
    return bool(row["error"] + 3 * row["standard error"] < row["bound"])


def draw(table: Table) -> Any:
    figure, axes = panels(width=6.2)
    ax = axes[0, 0]
    trained = [row for row in table if row["way"] in (*REAL, ENTIRE)]
    hs = distinct(trained, "features")
    bounds = [where(trained, features=h)[0]["bound"] for h in hs]
    ax.plot(hs, bounds, "_-", color=BOUND, ms=14, mew=2, label="proved for holomorphic features, H/2 of them")
    ax.plot(hs, [where(trained, features=h)[0]["terms"] for h in hs], "--", color="#9aa5b1", label="H/2 of the terms")
    for shift, (way, marker, colour) in enumerate(zip((ENTIRE, *REAL), "Ds^o", NETWORKS, strict=False)):
        rows = where(trained, way=way)
        at = [row["features"] + 0.12 * (shift - 1.5) for row in rows]
        ax.plot(at, values(rows, "error"), marker, color=colour, ms=4.5, label=f"trained, {way}")
    rows = where(table, way=PACKED)
    curve(ax.plot, rows, "features", "error", "k*", ms=9, label="packed digits, exact arithmetic")
    for row in rows:
        place = (row["features"], row["error"])
        ax.annotate(f"{row['bits']} bits", place, (6, 3), textcoords="offset points", fontsize=7)
    ax.set(xlabel="real features H", ylabel="E|f − g|², relative", ylim=(-0.03, 1.25))
    ax.legend(fontsize=7, frameon=False, ncols=2, loc="upper right")
    first = trained[0] if trained else table[0]
    title(
        ax,
        f"DeepSets, {first['points']} points, D = {first['dim']}",
        "trained with four activations; and digits packed into few features",
    )
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        points=8,
        dim=2,
        features=([1], [1, 2, 3], [1, 2, 3, 4]),
        seeds=(1, 3, 4),
        steps=(15, 500, 1000),
        packed=([[2, 5]], [[1, 4], [2, 5], [4, 8], [1, 16]], [[1, 4], [2, 5], [4, 8], [1, 16], [1, 32]]),
        wide=100,
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
