"""A symmetric positive relation is a self inner product of one network.

Claim. The inner product of one MLP with itself approximates every continuous symmetric positive definite relation on
a compact set, by the leading terms of its Mercer series.

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 2; sup bounds, features and the least error are our own
derivations; random features: Rahimi and Recht 2007.

The Gaussian relation by self inner products ⟨φ(x), φ(y)⟩: constructed, trained, and random features.

Features that attnfun constructs and proves, MLPs of the same rank trained from random starts, random Fourier features,
and the truncated Mercer series itself, all against the least error that any features of that rank can have.

Columns.
    relation: one variable: exp(−(x−y)²/0.18) on [−1, 1]; two variables: exp(−2|x−y|²) on the unit square
    way: constructed, learned (one hidden layer of 64 tanh units), random features, or the Mercer series
    rank: features
    seed: of the random start or draw
    steps: of training by Adam; a quarter as many of LBFGS follow
    eps: the tolerance asked for
    error: sup error measured over all pairs of a fine grid
    proved: bound proved for every pair, from the stored weights
    least: proved: no features of this rank have a smaller sup error
    diagonal: largest r(x, x) − |φ(x)|² of the series on the grid
    trace: sum of the eigenvalues that the series leaves out (uniform measure)
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import NETWORKS, curve, panels, title
from attnfun.lab.studies.relations.towers import above, fine_grid, sup_error, train_on
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, slope, values, where

RELATIONS: dict[str, tuple[str, tuple[float, float], int]] = {
    "one variable": ("exp(-(x1 - y1)**2/0.18)", (-1.0, 1.0), 1),
    "two variables": ("exp(-2*((x1 - y1)**2 + (x2 - y2)**2))", (0.0, 1.0), 2),
}
RATES = {"one variable": (2 * 1 / 0.18) ** 0.5, "two variables": 2.0}  # exp(−|x|²/(2s²)) has frequencies of size 1/s


def units(size: Size) -> list[Unit]:
    out: list[Unit] = []
    for name, part in size["relations"].items():
        out += [{"relation": name, "way": "constructed", "eps": eps} for eps in part["eps"]]
        out += [
            {"relation": name, "way": "learned", "rank": rank, "seed": seed, "steps": size["steps"]}
            for rank in part["learned"]
            for seed in range(size["seeds"])
        ]
        out += [
            {"relation": name, "way": "learned", "rank": part["learned"][-1], "seed": seed, "steps": steps}
            for seed, steps in enumerate(part.get("long", []))
        ]
        out += [{"relation": name, "way": "random features", "ranks": part["random"], "seeds": size["random_seeds"]}]
    return [{"relation": "one variable", "way": "Mercer", "ranks": size["mercer"]}, *out]


def target_of(name: str) -> Any:
    text, interval, d = RELATIONS[name]
    left, right = ({f"{v}{k + 1}": interval for k in range(d)} for v in "xy")
    return af.Relation.read(text, left, right, symmetric=True)


def run(unit: Unit) -> list[Row]:
    target = target_of(unit["relation"])
    if unit["way"] == "constructed":
        return [_constructed(target, unit)]
    if unit["way"] == "learned":
        found = train_on(target, unit["rank"], 64, steps=unit["steps"], seed=unit["seed"], shared=True)
        return [_row(target, unit["rank"], sup_error(target, found))]
    if unit["way"] == "Mercer":
        return _truncated_series(target, unit)
    return _random_features(target, unit)


def _row(target: Any, rank: int, error: float, **more: Any) -> Row:
    return {"rank": rank, "error": error, "least": af.parts.error_lower(target, rank), **more}


def _constructed(target: Any, unit: Unit) -> Row:
    found = af.relation(target.graph, target.left, target.right, unit["eps"], symmetric=True)
    seen = max(sup_error(target, found), found.certificate.error[0])
    return _row(target, found.rank, seen, proved=found.certificate.error[1])


def _truncated_series(target: Any, unit: Unit) -> list[Row]:
    """Σ_{i≤n} λ_i ψ_i(x) ψ_i(y) for the uniform measure, by Gauss–Legendre quadrature (Nyström)."""
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(80)
    low, high = target.left.low[0], target.left.high[0]
    Z, root = ((low + high) / 2 + (high - low) / 2 * nodes)[:, None], np.sqrt(weights / 2)
    lam, V = np.linalg.eigh(root[:, None] * target.table(Z, Z) * root)
    lam, V = lam[::-1], V[:, ::-1]
    X, rows = fine_grid(target.left), []
    for n in unit["ranks"]:
        part = slice(0, n)

        def features(points: Any, part: slice = part) -> Any:
            return (target.table(points, Z) * root) @ V[:, part] / np.sqrt(lam[part])

        def scores(A: Any, B: Any, of: Any = features) -> Any:
            return of(A) @ of(B).T

        phi = features(X)
        diagonal = float((1.0 - (phi * phi).sum(axis=1)).max())
        error = sup_error(target, scores)
        rows.append(_row(target, n, error, diagonal=diagonal, trace=float(lam[n:].clip(0).sum())))
    return rows


def _random_features(target: Any, unit: Unit) -> list[Row]:
    """cos and sin of rank/2 random frequencies: their mean is the relation (Rahimi and Recht 2007)."""
    import numpy as np

    X, rows = fine_grid(target.left), []
    for rank in unit["ranks"]:
        for seed in range(unit["seeds"]):
            W = np.random.default_rng([seed, rank]).normal(size=(X.shape[1], rank // 2)) * RATES[unit["relation"]]
            phi = np.concatenate([np.cos(X @ W), np.sin(X @ W)], axis=1) / np.sqrt(rank // 2)
            error = float(np.abs(phi @ phi.T - target.table(X, X)).max())
            rows.append(_row(target, rank, error, seed=seed))
    return rows


def judge(table: Table) -> Verdict:
    """Refuted where a proved bound fails or is above the eps asked for, or features beat the least error of their rank.

    With limits where trained features of the largest rank are ten times further off than constructed ones of no more.
    """
    if gone := lacking(table, "way", "constructed", "learned"):
        return gone
    built = where(table, way="constructed")
    faults = [
        ("measured above its proved bound", above(built, "error", "proved")),
        ("proved above the tolerance", above(built, "proved", "eps")),
        ("below the least error of its rank", above(table, "least", "error")),
    ]
    words, last = "", dict[str, float]()
    for name in distinct(table, "relation"):
        mine = where(built, relation=name)
        if not mine:
            continue
        best = min(mine, key=lambda row: float(row["proved"]))
        words += f"The Gaussian of {name}: {best['rank']} constructed features are proved to {best['proved']:.2g}"
        words += f" (no {best['rank']} features do better than {best['least']:.2g}). "
        learned = where(table, relation=name, way="learned")
        for rank in distinct(learned, "rank"):
            equal = min((row["proved"] for row in mine if row["rank"] <= rank), default=math.nan)
            for steps in distinct(where(learned, rank=rank), "steps"):
                errors = values(where(learned, rank=rank, steps=steps), "error")
                words += f"Rank {rank}, {steps:,} steps: trained {min(errors):.2g} to {max(errors):.2g} (median "
                beside = "none constructed with so few" if math.isnan(equal) else f"constructed {equal:.2g}"
                words += f"{median(errors):.2g}, seeds: {len(errors)}), {beside}. "
                last[name] = median(errors) / equal
        rows = where(table, relation=name, way="random features")
        most = max(values(rows, "rank"), default=0)
        if rows:
            worst = median(values(where(rows, rank=most), "error"))
            rate = slope(values(rows, "rank"), values(rows, "error"))
            words += f"Random features fall like rank^{rate:.2f} and are {worst:.2g} off with {most:,}. "
    traps = [row for row in where(table, way="Mercer") if not row["error"] <= row["trace"]]
    if traps:
        worst_row = max(traps, key=lambda row: float(row["error"] / row["trace"]))
        words += (
            f"The trap: the sum of the eigenvalues left out is no sup bound. At {worst_row['rank']} terms it is "
            f"{worst_row['trace']:.2g} where the error is {worst_row['error']:.2g}, "
            f"{worst_row['error'] / worst_row['trace']:.0f} times as much; the largest "
            f"residual on the diagonal, {worst_row['diagonal']:.2g}, is that error. "
        )
    for what, rows in faults:
        if rows:
            row = rows[0]
            return Verdict(REFUTED, f"Refuted: rank {row['rank']} ({row['way']}, {row['relation']}) is {what}.", words)
    if not all(ratio <= 10 for ratio in last.values()):
        return Verdict(LIMITS, "The weights exist and are proved; training falls short of them at larger ranks.", words)
    return Verdict(HOLDS, "Every bound holds, and training comes within ten times of the constructed features.", words)


def draw(table: Table) -> Any:
    names = distinct(table, "relation")
    figure, axes = panels(columns=len(names), width=5.6, height=4.4)
    for ax, name in zip(axes[0], names, strict=True):
        rows = sorted(where(table, relation=name, way="constructed"), key=lambda r: r["rank"])
        curve(ax.loglog, rows, "rank", "proved", "o-", color=NETWORKS[0], ms=4, label="constructed, proved")
        series = where(table, relation=name, way="Mercer")
        if series:
            curve(ax.loglog, series, "rank", "error", "s--", color=NETWORKS[3], ms=3, label="Mercer series")
            curve(ax.loglog, series, "rank", "trace", ":", color=NETWORKS[3], label="its trace tail: no bound")
        for way, mark, colour in (("learned", "x", NETWORKS[4]), ("random features", "+", NETWORKS[2])):
            rows = where(table, relation=name, way=way)
            curve(ax.loglog, rows, "rank", "error", mark, color=colour, label=f"{way}, each seed")
        known = sorted((r["rank"], r["least"]) for r in where(table, relation=name) if r["least"] > 1e-13)
        ax.fill_between(
            [r for r, _ in known], 1e-9, [e for _, e in known], color="#d9e2ec", label="proved: none of this rank"
        )
        ax.set(
            xlabel="rank", ylabel="sup error", ylim=(min(1e-6, min(values(where(table, relation=name), "error"))), 3)
        )
        ax.legend(fontsize=7, frameon=False, loc="lower right")
        title(ax, f"The Gaussian, {name}", "self inner products ⟨φ(x), φ(y)⟩ of every kind")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        relations=(
            {"one variable": {"eps": [0.1], "learned": [5], "random": [10]}},
            {
                "one variable": {
                    "eps": [0.5, 0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 1e-4, 1e-6],
                    "learned": [4, 6, 8, 10, 12],
                    "long": [12000],
                    "random": [4, 8, 16, 100, 1000, 10000],
                },
                "two variables": {
                    "eps": [0.3, 0.1, 1e-2, 1e-3, 1e-4],
                    "learned": [6, 11, 21],
                    "random": [10, 100, 1000],
                },
            },
            {
                "one variable": {
                    "eps": [0.5, 0.3, 0.1, 0.03, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8],
                    "learned": [2, 4, 6, 8, 10, 12, 16],
                    "long": [12000],
                    "random": [4, 8, 16, 32, 100, 1000, 10000],
                },
                "two variables": {
                    "eps": [0.3, 0.1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-6],
                    "learned": [6, 11, 16, 21, 34],
                    "random": [10, 100, 1000, 10000],
                },
            },
        ),
        steps=(60, 1200, 2400),
        seeds=(1, 3, 4),
        random_seeds=(1, 3, 5),
        mercer=([4], [2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ),
    needs=("torch",),
    full_time="3 minutes of CPU",
)
