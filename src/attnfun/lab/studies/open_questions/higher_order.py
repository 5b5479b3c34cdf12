"""Relations of relations.

Claim. Relations of relations have multilinear forms whose size follows from those of their parts: the outer
relation's rank where inner ones keep to separate sides, the product of ranks for products, n² terms for a chain of
three.

Source. An open question of Altabaa and Lafferty 2024, arXiv 2402.08856 (higher-order, recursive relations); the
counting rules, forms, proofs and lower bounds are our own.

Relations of relations: what rank they need, by order, by depth, and as forms of three variables.

Products of k relations; an outer relation of two inner ones, on separate sides or across; a relation of a relation of …
(depth); and ternary relations as trilinear forms Σ a_i(x) b_i(y) c_i(z), constructed and trained.

A full run takes two minutes of CPU.

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
    proved: ≤ bound proved from the stored coefficients; none where it was measured only
    least: ≥ proved: no form of so many terms has a smaller sup error
    status: proved, or sampled (measured only)
"""

import math
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, coloured, curve, labelled, panels
from attnfun.lab.studies.relations.inner_products import train_inner_product
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

OUTER = "tanh(3*(p - q))"
COMPOSED = "tanh(3*(exp(-2*(x - y)**2) - exp(-2*(u - v)**2)))"
TERNARY = {
    "chain": "exp(-2*((x - y)**2 + (y - z)**2))",
    "triple": "exp(x*y*z)",
    "composed": "tanh(2*(exp(-2*(x - y)**2) - exp(-2*(y - z)**2)))",
}
BOX = {"x": (0.0, 1.0), "y": (0.0, 1.0), "z": (0.0, 1.0)}


def units(size: Size) -> list[Unit]:
    made = []
    for eps in size["eps"]:
        made += crossed(part="product", case="of Gaussians", order=size["orders"], eps=eps)
        made += crossed(part="separate sides", case="tanh of two Gaussians", order=2, eps=eps)
        made += crossed(part="depth", case="tanh of tanh", order=size["depths"], eps=eps)
    made += crossed(part="across", case="tanh of two Gaussians", order=2, eps=size["across"])
    for name, ranks in size["ternary"].items():
        made += crossed(part="ternary", case=name, order=3, eps=size["ternary_eps"])
        run = {"seed": range(size["seeds"]), "steps": size["steps"]}
        made += crossed(part="ternary learned", case=name, order=3, rank=ranks, **run)
    return made


def run(unit: Unit) -> Row:
    return {"ternary": _ternary, "ternary learned": _learned}.get(unit["part"], _binary)(unit)


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
        text, (left, right) = "x - y", _sides("x", "y")
        for _ in range(k):
            text = f"tanh(2*({text}))"
    elif unit["part"] == "across":
        text, (left, right) = COMPOSED, _sides("x u", "y v")
    else:
        text, (left, right) = COMPOSED, _sides("x y", "u v")
        inner = (math.exp(-2.0), 1.0)
        rule = _rank(OUTER, {"p": inner}, {"q": inner}, eps)
    accept = "sampled" if unit["part"] == "across" else None
    found = af.relation(text, left, right, eps, features_only=True, accept=accept)
    status, (low, high) = str(found.certificate.status), found.certificate.error
    row = {"rank": found.rank, "rank_lower": found.rank_lower, "error": max(low, _attack(found)), "rule": rule}
    return row | {"proved": high if status == "proved" else None, "status": status}


def _attack(found: Any) -> float:
    X, Y = (b.probe(2000, np.random.default_rng(k)) for k, b in enumerate((found.target.left, found.target.right)))
    n = min(len(X), len(Y))
    return float(np.abs(found.pairs(X[:n], Y[:n]) - found.target.values(X[:n], Y[:n])).max())


def _ternary(unit: Unit) -> Row:
    form = af.ternary(TERNARY[unit["case"]], BOX, unit["eps"])
    X = np.random.default_rng(0).random((20_000, 3))
    X[:2000] = np.round(X[:2000])  # corners
    error, rule = float(np.abs(form(*X.T) - _values(unit["case"], X)).max()), None
    if unit["case"] == "chain":  # b(y) c(y) is one function of y, so products of terms are terms
        rule = _rank("exp(-2*(x - y)**2)", *_sides("x", "y"), math.sqrt(1 + unit["eps"]) - 1) ** 2
    row = {"rank": form.rank, "rank_lower": form.rank_lower, "error": error, "proved": form.error, "rule": rule}
    return row | {"status": str(form.certificate.status)}


def _values(case: str, X: Any) -> Any:
    return af.language.Function.read(TERNARY[case], af.Box.parse(BOX)).values(X)[:, 0]


def _learned(unit: Unit) -> Row:
    """Three MLPs and their trilinear form; the least error of any form of so many terms, by its unfoldings."""

    def table(line: Any) -> Any:
        grid = np.stack([g.ravel() for g in np.meshgrid(line, line, line, indexing="ij")], axis=1)
        return _values(unit["case"], grid).reshape(len(line), len(line), len(line))

    nodes, fine = (1 - np.cos(np.pi * np.arange(12) / 11)) / 2, np.linspace(0, 1, 31)
    options = {"steps": unit["steps"], "polish": unit["steps"] // 4, "seed": unit["seed"]}
    found = train_inner_product([nodes[:, None]] * 3, table(nodes), unit["rank"], 48, **options)
    error = float(np.abs(found(*[fine[:, None]] * 3) - table(fine)).max())
    graph, least = af.language.parse(TERNARY[unit["case"]], tuple(BOX)), 0.0
    for one in BOX:
        rest = {name: BOX[name] for name in BOX if name != one}
        relation = af.Relation(graph, af.Box.parse({one: BOX[one]}), af.Box.parse(rest))
        least = max(least, af.parts.error_lower(relation, unit["rank"]))
    return {"error": error, "least": least, "status": "sampled"}


def judge(table: Rows) -> Verdict:
    """Refuted where a proof fails, more is proved to be needed than counting gives, or training beats a least error.

    With limits where something could be measured only, a construction takes more than counting gives, or more than five
    times the terms known to be needed.
    """
    built, who = table.that(lambda row: row["part"] != "ternary learned"), "{part} ({case}, order {order}) "
    faults = [
        *built.above("error", "proved").say(who + "is off by more than was proved"),
        *built.above("rank_lower", "rule").say(who + "needs more features than counting gives"),
        *table.above("least", "error").say(who + "beats the least error of its rank"),
        *built.above("rank_lower", "rank").say(who + "has a lower bound above its rank"),
    ]
    unproved, over = built.where(proved=None), built.above("rank", "rule")
    loose = max((row["rank"] / max(row["rank_lower"], 1) for row in built), default=math.nan)
    words = []
    for eps, rows in table.where(part="product").by("eps"):
        orders, ranks = rows.say("{order}"), rows.say("{rank} (at least {rank_lower}, by counting {rule})")
        words.append(f"Products of Gaussians to {eps:g}, orders {', '.join(orders)}: {', '.join(ranks)}.")
        if deep := table.where(part="depth", eps=eps):
            ranks = ", ".join(deep.say("{rank}"))
            words.append(f"tanh(2·) applied {', '.join(deep.say('{order}'))} times: rank {ranks}.")
    text = "A relation of two relations on separate sides has the rank of the outer one, {rank} of {rule} at {eps:g}."
    words += table.where(part="separate sides").last().say(text)
    text = "Across both sides it has {rank} at {eps:g} ({status}, at least {rank_lower})."
    words += table.where(part="across").first().say(text)
    for name, rows in table.where(part="ternary").by("case"):
        parts = ", ".join(rows.say("{rank} terms to {proved:≤2}"))
        parts = f"Ternary, {name}: {parts} (at least {rows[-1]['rank_lower']} for the last)"
        for rank, learned in table.where(part="ternary learned", case=name).by("rank"):
            parts += f"; {rank} trained terms {learned.middle('error')}"
        words.append(parts + ".")
    ends = [f"Counting holds; between rank and its lower bound lies a factor of up to {loose:.0f}"]
    if over and not faults:
        most = max(over, key=lambda row: float(row["rank"] / row["rule"]))
        ends += Rows([most]).say("{part} ({case}) was built with {rank} where counting gives {rule}")
    ends += [f"measured only: {', '.join(unproved.distinct('part'))}"] if unproved else []
    limit = "; ".join(ends) + "." if unproved or over or not loose <= 5 else ""
    return decided(words, faults, limit, "Counting holds, and lower bounds are near.")


def draw(table: Rows) -> Any:
    figure, (first, second, third) = panels(3, width=4.7, height=4.3)
    for ax, part, letter, head, note in (
        (first, "product", "order k", "Products of k relations", "exp(−2|x − y|²), k variables per side"),
        (second, "depth", "depth k", "A relation of a relation of …", "tanh(2·) applied k times to x − y"),
    ):
        rows = table.where(part=part)
        curve(ax, rows, "order", "rank", "o-", by="eps", ms=4, label="ε = {eps:g}: proved")
        curve(ax, rows, "order", "rank_lower", "_", by="eps", ms=14)
        curve(ax, rows, "order", "rule", ":", by="eps")
        ax.plot([], [], "k_", ms=14, label="needed by any")
        if rows.known("rule"):
            ax.plot([], [], "k:", label="by counting")
        ranks = [2**k for k in range(12) if 2**k <= 2 * max(rows.of("rank"))]
        shape = {"xticks": rows.distinct("order"), "yticks": ranks, "legend": "upper left"}
        labelled(ax, head, note, letter, "rank", log="y", **shape)
    formed = table.where(part=("ternary", "ternary learned"))
    for colour, name in coloured(formed.where(part="ternary").distinct("case")):
        rows, learned = (formed.where(part=part, case=name) for part in ("ternary", "ternary learned"))
        curve(third, rows, "rank", "proved", "o-", color=colour, ms=4, label=f"{name}: proved")
        curve(third, learned, "rank", "error", "x", color=colour, label=f"{name}: trained")
        curve(third, learned, "rank", "least", "_", color=BOUND, ms=9)
    third.plot([], [], "_", color=BOUND, ms=9, label="least at that rank")
    counts = [2**k for k in range(1, 9) if 2**k <= max(formed.of("rank"))]
    texts = ("trilinear forms Σ a(x) b(y) c(z)", "terms", "sup error")
    labelled(third, "Three variables", *texts, log="xy", xticks=counts, ylim=(1e-7, 0.5), legend="lower right")
    return figure


STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"part": ("product", "separate sides", "depth", "ternary", "ternary learned")},
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
    steps=(12, 600, 1200),
    seeds=(1, 3, 4),
)
