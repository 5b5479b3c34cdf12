"""A symmetric positive relation is a self inner product of one network.

Claim. The inner product of one MLP with itself approximates every continuous symmetric positive definite relation on
a compact set, by the leading terms of its Mercer series.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 2; sup bounds, features and the least error are our own
derivations; random features: Rahimi and Recht 2007.

The Gaussian relation by self inner products ⟨φ(x), φ(y)⟩: constructed, trained, and random features.

Features that attnfun constructs and proves, MLPs of the same rank trained from random starts, random Fourier features,
and the truncated Mercer series itself, all against the least error that any features of that rank can have.

A full run takes 3 minutes of CPU.

Columns.
    relation: one variable: exp(−(x−y)²/0.18) on [−1, 1]; two variables: exp(−2|x−y|²) on the unit square
    way: constructed, learned (one hidden layer of 64 tanh units), random features, or the Mercer series
    rank: features
    seed: of the random start or draw
    steps: of training by Adam; a quarter as many of LBFGS follow
    eps: the tolerance asked for
    error: sup error measured over all pairs of a fine grid
    proved: ≤ bound proved for every pair, from the stored weights
    least: ≥ proved: no features of this rank have a smaller sup error
    diagonal: largest r(x, x) − |φ(x)|² of the series on the grid
    trace: sum of the eigenvalues that the series leaves out (uniform measure)
"""

import math
from functools import partial
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, PALE, curve, labelled, panels_by
from attnfun.lab.studies.relations.inner_products import built_row, fine_grid, relation_of, sup_error, train_on
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, crossed_with, decided, described

ONE, TWO = "one variable", "two variables"
RELATIONS: dict[str, tuple[str, int, tuple[float, float]]] = {
    ONE: ("exp(-(x1 - y1)**2/0.18)", 1, (-1.0, 1.0)),
    TWO: ("exp(-2*((x1 - y1)**2 + (x2 - y2)**2))", 2, (0.0, 1.0)),
}
RATES = {ONE: (2 * 1 / 0.18) ** 0.5, TWO: 2.0}  # exp(−|x|²/(2s²)) has frequencies of size 1/s


def units(size: Size) -> list[Unit]:
    made = crossed(relation=ONE, way="Mercer", ranks=[size["mercer"]])
    for name, ranks in size["learned"].items():
        learned = {"relation": name, "way": "learned"}
        made += crossed(relation=name, way="constructed", eps=size["eps"][name])
        made += crossed(**learned, rank=ranks, seed=range(size["seeds"]), steps=size["steps"])
        made += crossed_with(("seed", "steps"), enumerate(size["long"].get(name, [])), **learned, rank=ranks[-1])
        random = [size["random"][name]]
        made += crossed(relation=name, way="random features", ranks=random, seeds=size["random_seeds"])
    return made


def run(unit: Unit) -> list[Row]:
    target = relation_of(*RELATIONS[unit["relation"]], symmetric=True)
    if unit["way"] == "constructed":
        rows = [built_row(target, af.relation(target.graph, target.left, target.right, unit["eps"], symmetric=True))]
    elif unit["way"] == "learned":
        found = train_on(target, unit["rank"], 64, steps=unit["steps"], seed=unit["seed"], shared=True)
        rows = [{"rank": unit["rank"], "error": sup_error(target, found)}]
    else:
        rows = (_truncated_series if unit["way"] == "Mercer" else _random_features)(target, unit)
    return [row | {"least": af.parts.error_lower(target, row["rank"])} for row in rows]


def _truncated_series(target: Any, unit: Unit) -> list[Row]:
    """Σ_{i≤n} λ_i ψ_i(x) ψ_i(y) for the uniform measure, by Gauss–Legendre quadrature (Nyström)."""
    nodes, weights = np.polynomial.legendre.leggauss(80)
    low, high = target.left.low[0], target.left.high[0]
    Z, root = ((low + high) / 2 + (high - low) / 2 * nodes)[:, None], np.sqrt(weights / 2)
    lam, V = np.linalg.eigh(root[:, None] * target.table(Z, Z) * root)
    lam, V = lam[::-1], V[:, ::-1]

    def features(points: Any, n: int) -> Any:
        return (target.table(points, Z) * root) @ V[:, :n] / np.sqrt(lam[:n])

    def scores(A: Any, B: Any, n: int) -> Any:
        return features(A, n) @ features(B, n).T

    X, rows = fine_grid(target.left), []
    for n in unit["ranks"]:
        error, phi = sup_error(target, partial(scores, n=n)), features(X, n)
        diagonal = float((1.0 - (phi * phi).sum(axis=1)).max())
        rows.append({"rank": n, "error": error, "diagonal": diagonal, "trace": float(lam[n:].clip(0).sum())})
    return rows


def _random_features(target: Any, unit: Unit) -> list[Row]:
    """cos and sin of rank/2 random frequencies: their mean is the relation (Rahimi and Recht 2007)."""
    X, rows = fine_grid(target.left), []
    for rank in unit["ranks"]:
        for seed in range(unit["seeds"]):
            W = np.random.default_rng([seed, rank]).normal(size=(X.shape[1], rank // 2)) * RATES[unit["relation"]]
            phi = np.concatenate([np.cos(X @ W), np.sin(X @ W)], axis=1) / np.sqrt(rank // 2)
            error = float(np.abs(phi @ phi.T - target.table(X, X)).max())
            rows.append({"rank": rank, "error": error, "seed": seed})
    return rows


def judge(table: Rows) -> Verdict:
    """Refuted where a proved bound fails or is above the eps asked for, or features beat the least error of their rank.

    With limits where trained features of the largest rank are ten times further off than constructed ones of no more.
    """
    built, who = table.where(way="constructed"), "rank {rank} ({way}, {relation}) is "
    faults = [
        *built.above("error", "proved").say(who + "measured above its proved bound"),
        *built.above("proved", "eps").say(who + "proved above the tolerance"),
        *table.above("least", "error").say(who + "below the least error of its rank"),
    ]
    words, last = [], dict[str, float]()
    for name, here in table.by("relation"):
        mine = here.where(way="constructed")
        if not mine:
            continue
        words += Rows([mine.best("proved")]).say(
            "The Gaussian of {relation}: {rank} constructed features are proved to {proved:≤2} (no {rank} features do "
            "better than {least:≥2})."
        )
        for rank, steps, rows in here.where(way="learned").by("rank", "steps"):
            equal = min((row["proved"] for row in mine if row["rank"] <= rank), default=math.nan)
            beside = "none constructed with so few" if math.isnan(equal) else f"constructed {equal:.2g}"
            words.append(
                f"Rank {rank}, {steps:,} steps: trained {rows.span('error')} (median {rows.median('error'):.2g}, "
                f"seeds: {len(rows)}), {beside}."
            )
            last[name] = rows.median("error") / equal
        if rows := here.where(way="random features"):
            most = max(rows.of("rank"))
            off = f"{rows.where(rank=most).median('error'):.2g} off with {most:,}"
            words.append(f"Random features fall like rank^{rows.slope('rank', 'error'):.2f} and are {off}.")
    if traps := table.where(way="Mercer").fails(lambda row: row["error"] <= row["trace"]):
        worst = max(traps, key=lambda row: row["error"] / row["trace"])
        words += Rows([worst]).say(
            "The trap: the sum of the eigenvalues left out is no sup bound. At {rank} terms it is {trace:.2g} where "
            "the error is {error:.2g}, {times:.0f} times as much; the largest residual on the diagonal, "
            "{diagonal:.2g}, is that error.",
            times=worst["error"] / worst["trace"],
        )
    short = "" if all(r <= 10 for r in last.values()) else "training falls short of them at larger ranks."
    limit = f"The weights exist and are proved; {short}" if short else ""
    end = "Every bound holds, and training comes within ten times of the constructed features."
    return decided(words, faults, limit, end)


def draw(table: Rows) -> Any:
    figure, parts = panels_by(table, "relation", width=5.6, height=4.4)
    for ax, name, here in parts:
        rows = here.where(way="constructed").sorted("rank")
        curve(ax, rows, "rank", "proved", "o-", color=NETWORKS[0], ms=4, label="constructed, proved")
        series = here.where(way="Mercer")
        curve(ax, series, "rank", "error", "s--", color=NETWORKS[3], ms=3, label="Mercer series")
        curve(ax, series, "rank", "trace", ":", color=NETWORKS[3], label="its trace tail: no bound")
        for way, mark, colour in (("learned", "x", NETWORKS[4]), ("random features", "+", NETWORKS[2])):
            curve(ax, here.where(way=way), "rank", "error", mark, color=colour, label=f"{way}, each seed")
        known = sorted((row["rank"], row["least"]) for row in here if row["least"] > 1e-13)
        ax.fill_between(*zip(*known, strict=True), 1e-9, color=PALE, label="proved: none of this rank")
        head, note = f"The Gaussian, {name}", "self inner products ⟨φ(x), φ(y)⟩ of every kind"
        low = min(1e-6, *here.of("error"))
        labelled(ax, head, note, "rank", "sup error", log="xy", ylim=(low, 3), legend="lower right")
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"way": ("constructed", "learned")},
    eps=(
        {ONE: [0.1]},
        {ONE: [0.5, 0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 1e-4, 1e-6], TWO: [0.3, 0.1, 1e-2, 1e-3, 1e-4]},
        {
            ONE: [0.5, 0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8],
            TWO: [0.3, 0.1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-6],
        },
    ),
    learned=(
        {ONE: [5]},
        {ONE: [4, 6, 8, 10, 12], TWO: [6, 11, 21]},
        {ONE: [2, 4, 6, 8, 10, 12, 16], TWO: [6, 11, 16, 21, 34]},
    ),
    long=({}, {ONE: [12000]}, {ONE: [12000]}),
    random=(
        {ONE: [10]},
        {ONE: [4, 8, 16, 100, 1000, 10000], TWO: [10, 100, 1000]},
        {ONE: [4, 8, 16, 32, 100, 1000, 10000], TWO: [10, 100, 1000, 10000]},
    ),
    steps=(16, 1200, 2400),
    seeds=(1, 3, 4),
    random_seeds=(1, 3, 5),
    mercer=([4], [2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
)
