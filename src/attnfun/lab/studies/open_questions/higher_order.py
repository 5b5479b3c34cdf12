"""Relations of relations.

Claim. Relations of relations have multilinear forms whose size follows from those of their parts: the outer
relation's rank where inner ones keep to separate sides, the product of ranks for products, n² terms for a chain of
three.

Source. An open question of Altabaa and Lafferty 2024, arXiv 2402.08856 (higher-order, recursive relations); the
counting rules, forms, proofs and lower bounds are our own.

Relations of relations: what rank they need, by order, by depth, and as forms of three variables.

Products of k relations; an outer relation of two inner ones, on separate sides or across; a relation of a relation of …
(depth); and ternary relations as trilinear forms Σ a_i(x) b_i(y) c_i(z), constructed and trained.

Columns.
    part: product, separate sides, across, depth, ternary, or ternary learned
    case: which relation
    order: relations multiplied, levels of depth, or variables
    eps: the tolerance asked for
    rank: features, or terms of the trilinear form
    seed: of the random start
    rank_lower: proved: features or terms that any method needs for eps
    rule: what counting from the parts gives
    error: sup error: largest seen at random points and corners; learned: on a fine grid
    proved: bound proved from the stored coefficients; none where it was measured only
    least: proved: no form of so many terms has a smaller sup error
    status: proved, or sampled (measured only)
"""

from __future__ import annotations

import math
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, coloured, curve, panels, title
from attnfun.lab.studies.relations.towers import above
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import distinct, lacking, median, values, where

OUTER = "tanh(3*(p - q))"
TERNARY = {
    "chain": "exp(-2*((x - y)**2 + (y - z)**2))",
    "triple": "exp(x*y*z)",
    "composed": "tanh(2*(exp(-2*(x - y)**2) - exp(-2*(y - z)**2)))",
}
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0), "z": (0.0, 1.0)}


def units(size: Size) -> list[Unit]:
    out: list[Unit] = []
    for eps in size["eps"]:
        out += [{"part": "product", "case": "of Gaussians", "order": k, "eps": eps} for k in size["orders"]]
        out.append({"part": "separate sides", "case": "tanh of two Gaussians", "order": 2, "eps": eps})
        out += [{"part": "depth", "case": "tanh of tanh", "order": k, "eps": eps} for k in size["depths"]]
    out += [{"part": "across", "case": "tanh of two Gaussians", "order": 2, "eps": eps} for eps in size["across"]]
    for name, ranks in size["ternary"].items():
        out += [{"part": "ternary", "case": name, "order": 3, "eps": eps} for eps in size["ternary_eps"]]
        out += [
            {"part": "ternary learned", "case": name, "order": 3, "rank": r, "seed": seed, "steps": size["steps"]}
            for r in ranks
            for seed in range(size["seeds"])
        ]
    return out


def run(unit: Unit) -> list[Row]:
    parts = {"ternary": _ternary, "ternary learned": _learned, "across": _across}
    return [parts.get(unit["part"], _binary)(unit)]


def _sides(left: str, right: str) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    return {v: (0.0, 1.0) for v in left.split()}, {v: (0.0, 1.0) for v in right.split()}


def _rank(text: str, left: Any, right: Any, eps: float) -> int:
    return af.relation(text, left, right, eps, features_only=True).rank


def _binary(unit: Unit) -> Row:
    """Two sides, with the rank that counting gives: rank(p) … rank(q) for products, rank(g) for separate sides.

    A product of k factors of at most 1, each within η, is within (1 + η)^k − 1 of the product of their approximations.
    """
    k, eps, rule = unit["order"], unit["eps"], None
    if unit["part"] == "product":
        text = "*".join(f"exp(-2*(x{i} - y{i})**2)" for i in range(k))
        left, right = _sides(" ".join(f"x{i}" for i in range(k)), " ".join(f"y{i}" for i in range(k)))
        rule = _rank("exp(-2*(x0 - y0)**2)", *_sides("x0", "y0"), (1 + eps) ** (1 / k) - 1) ** k
    elif unit["part"] == "depth":
        text = "x - y"
        for _ in range(k):
            text = f"tanh(2*({text}))"
        left, right = _sides("x", "y")
    else:
        text = "tanh(3*(exp(-2*(x - y)**2) - exp(-2*(u - v)**2)))"
        left, right = _sides("x y", "u v")
        inner = (math.exp(-2.0), 1.0)
        rule = _rank(OUTER, {"p": inner}, {"q": inner}, eps)
    found = af.relation(text, left, right, eps, features_only=True)
    return _found(found) | {"rule": rule}


def _across(unit: Unit) -> Row:
    left, right = _sides("x u", "y v")
    text = "tanh(3*(exp(-2*(x - y)**2) - exp(-2*(u - v)**2)))"
    return _found(af.relation(text, left, right, unit["eps"], features_only=True))


def _found(found: Any) -> Row:
    """Rank and error; `error` is the largest seen, at the certificate's own worst point."""
    proved = str(found.certificate.status) == "proved"
    seen, high = found.certificate.error
    seen = max(seen, _attack(found))
    row: Row = {"rank": found.rank, "rank_lower": found.rank_lower, "error": seen, "proved": high if proved else None}
    return row | {"status": str(found.certificate.status)}


def _attack(found: Any) -> float:
    import numpy as np

    X, Y = (b.probe(2000, np.random.default_rng(k)) for k, b in enumerate((found.target.left, found.target.right)))
    n = min(len(X), len(Y))
    return float(np.abs(found.pairs(X[:n], Y[:n]) - found.target.values(X[:n], Y[:n])).max())


def _ternary(unit: Unit) -> Row:
    import numpy as np

    form = af.ternary(TERNARY[unit["case"]], BOX, unit["eps"])
    X = np.random.default_rng(0).random((20_000, 3))
    X[:2000] = np.round(X[:2000])  # corners
    truth = _values(unit["case"], X)
    error = float(np.abs(form(*X.T) - truth).max())
    rule = None
    if unit["case"] == "chain":  # b(y) c(y) is one function of y, so products of terms are terms
        rule = _rank("exp(-2*(x - y)**2)", *_sides("x", "y"), math.sqrt(1 + unit["eps"]) - 1) ** 2
    row: Row = {"rank": form.rank, "rank_lower": form.rank_lower, "error": error, "proved": form.error, "rule": rule}
    return row | {"status": str(form.certificate.status)}


def _values(case: str, X: Any) -> Any:
    return af.language.Function.read(TERNARY[case], af.Box.parse(BOX)).values(X)[:, 0]


def _learned(unit: Unit) -> Row:
    """Three MLPs and their trilinear form; the least error of any form of so many terms, by its unfoldings."""
    import numpy as np

    from attnfun.lab.studies.relations.inner_products import train_inner_product

    def table(line: Any) -> Any:
        grid = np.stack([g.ravel() for g in np.meshgrid(line, line, line, indexing="ij")], axis=1)
        return _values(unit["case"], grid).reshape(len(line), len(line), len(line))

    nodes, fine = (1 - np.cos(np.pi * np.arange(12) / 11)) / 2, np.linspace(0, 1, 31)
    sides = [nodes[:, None]] * 3
    steps = unit["steps"]
    found = train_inner_product(
        sides, table(nodes), unit["rank"], 48, steps=steps, polish=steps // 4, seed=unit["seed"]
    )
    error = float(np.abs(found(*[fine[:, None]] * 3) - table(fine)).max())
    graph, least = af.language.parse(TERNARY[unit["case"]], tuple(BOX)), 0.0
    for one in BOX:
        rest = {name: BOX[name] for name in BOX if name != one}
        relation = af.Relation(graph, af.Box.parse({one: BOX[one]}), af.Box.parse(rest))
        least = max(least, af.parts.error_lower(relation, unit["rank"]))
    return {"error": error, "least": least, "status": "sampled"}


def judge(table: Table) -> Verdict:
    """Refuted where a proof fails, more is proved to be needed than counting gives, or training beats a least error.

    With limits where something could be measured only, a construction takes more than counting gives, or more than five
    times the terms known to be needed.
    """
    if gone := lacking(table, "part", "product", "separate sides", "depth", "ternary", "ternary learned"):
        return gone
    built = [row for row in table if row["part"] != "ternary learned"]
    faults = [
        ("is off by more than was proved", above(built, "error", "proved")),
        ("needs more features than counting gives", above(built, "rank_lower", "rule")),
        ("beats the least error of its rank", above(table, "least", "error")),
        ("has a lower bound above its rank", above(built, "rank_lower", "rank")),
    ]
    unproved = [row for row in built if row["proved"] is None]
    loose = max((row["rank"] / max(row["rank_lower"], 1) for row in built), default=math.nan)
    words = ""
    for eps in distinct(where(table, part="product"), "eps"):
        rows = where(table, part="product", eps=eps)
        words += f"Products of Gaussians to {eps:g}, orders {', '.join(str(r['order']) for r in rows)}: "
        words += ", ".join(f"{r['rank']} (at least {r['rank_lower']}, by counting {r['rule']})" for r in rows) + ". "
        deep = where(table, part="depth", eps=eps)
        if deep:
            words += f"tanh(2·) applied {', '.join(str(r['order']) for r in deep)} times: rank "
            words += ", ".join(str(r["rank"]) for r in deep) + ". "
    for row in where(table, part="separate sides")[-1:]:
        words += f"A relation of two relations on separate sides has the rank of the outer one, {row['rank']} of "
        words += f"{row['rule']} at {row['eps']:g}"
        across = where(table, part="across")
        if across:
            other = across[0]
            words += f"; across both sides {other['rank']} at {other['eps']:g} ({other['status']}, at least "
            words += f"{other['rank_lower']})"
        words += ". "
    for name in distinct(where(table, part="ternary"), "case"):
        rows = where(table, part="ternary", case=name)
        words += f"Ternary, {name}: " + ", ".join(f"{r['rank']} terms to {r['proved']:.1g}" for r in rows)
        words += f" (at least {rows[-1]['rank_lower']} for the last)"
        learned = where(table, part="ternary learned", case=name)
        for rank in distinct(learned, "rank"):
            errors = values(where(learned, rank=rank), "error")
            words += f"; {rank} trained terms {median(errors):.2g} ({min(errors):.2g} to {max(errors):.2g})"
        words += ". "
    for what, rows in faults:
        if rows:
            row = rows[0]
            return Verdict(REFUTED, f"Refuted: {row['part']} ({row['case']}, order {row['order']}) {what}.", words)
    over = above(built, "rank", "rule")
    if unproved or over or not loose <= 5:
        end = f"Counting holds; between rank and its lower bound lies a factor of up to {loose:.0f}"
        if over:
            most = max(over, key=lambda row: float(row["rank"] / row["rule"]))
            end += (
                f"; {most['part']} ({most['case']}) was built with {most['rank']} where counting gives {most['rule']}"
            )
        end += f"; measured only: {', '.join(distinct(unproved, 'part'))}." if unproved else "."
        return Verdict(LIMITS, end, words)
    return Verdict(HOLDS, "Counting holds, and lower bounds are near.", words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=3, width=4.7, height=4.3)
    for ax, part, head, note in (
        (axes[0, 0], "product", "Products of k relations", "exp(−2|x − y|²), k variables a side"),
        (axes[0, 1], "depth", "A relation of a relation of …", "tanh(2·) applied k times to x − y"),
    ):
        for colour, eps in coloured(distinct(where(table, part=part), "eps")):
            rows = where(table, part=part, eps=eps)
            curve(ax.semilogy, rows, "order", "rank", "o-", color=colour, ms=4, label=f"ε = {eps:g}: proved")
            curve(ax.semilogy, rows, "order", "rank_lower", "_", color=colour, ms=14)
            ruled = [r for r in rows if r["rule"] is not None]
            curve(ax.semilogy, ruled, "order", "rule", ":", color=colour)
        ax.plot([], [], "k_", ms=14, label="needed by any")
        if any(r["rule"] is not None for r in where(table, part=part)):
            ax.plot([], [], "k:", label="by counting")
        ax.set(xlabel="order k" if part == "product" else "depth k", ylabel="rank")
        ax.set_xticks(distinct(where(table, part=part), "order"))
        most = max(values(where(table, part=part), "rank"))
        ranks = [2**k for k in range(12) if 2**k <= 2 * most]
        ax.set_yticks(ranks, [str(r) for r in ranks])
        ax.minorticks_off()
        ax.legend(fontsize=7, frameon=False, loc="upper left")
        title(ax, head, note)
    ax = axes[0, 2]
    for colour, name in coloured(distinct(where(table, part="ternary"), "case")):
        rows = where(table, part="ternary", case=name)
        curve(ax.loglog, rows, "rank", "proved", "o-", color=colour, ms=4, label=f"{name}: proved")
        rows = where(table, part="ternary learned", case=name)
        curve(ax.loglog, rows, "rank", "error", "x", color=colour, label=f"{name}: trained")
        curve(ax.loglog, rows, "rank", "least", "_", color=BOUND, ms=9)
    ax.plot([], [], "_", color=BOUND, ms=9, label="least at that rank")
    most = max(values([r for r in table if r["part"].startswith("ternary")], "rank"))
    counts = [n for n in (2, 4, 8, 16, 32, 64, 128, 256) if n <= most]
    ax.set_xticks(counts, [str(n) for n in counts])
    ax.minorticks_off()
    ax.set(xlabel="terms", ylabel="sup error", ylim=(1e-7, 0.5))
    ax.legend(fontsize=7, frameon=False, loc="lower right")
    title(ax, "Three variables", "trilinear forms Σ a(x) b(y) c(z)")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        eps=([0.1], [1e-2, 1e-4], [1e-1, 1e-2, 1e-3, 1e-4, 1e-6]),
        orders=([1, 2], [1, 2, 3], [1, 2, 3, 4]),
        depths=([1], [1, 2, 3], [1, 2, 3]),
        across=([], [1e-2], [1e-1, 1e-2, 1e-4]),
        ternary_eps=([0.1], [0.1, 1e-2, 1e-3], [0.1, 1e-2, 1e-3, 1e-4]),
        ternary=(
            {"triple": [3]},
            {"chain": [4, 8, 16], "triple": [4, 8], "composed": [8, 16]},
            {"chain": [4, 8, 16, 32], "triple": [4, 8, 16], "composed": [4, 8, 16, 32]},
        ),
        steps=(30, 600, 1200),
        seeds=(1, 3, 4),
    ),
    needs=("torch",),
    full_time="two minutes of CPU",
)
