"""Lexicographic order: what fails, and what still works.

Claim. Attention with suitable score networks retrieves the most relevant element by a simple preorder such as the
lexicographic one (proposed as a first experiment on the theorem about retrieval by preorders).

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 5, whose theorem needs a continuous preorder; that this
one has no utility: Debreu 1954. Grid limits, cascade, slope law and search for jumps are our own.

What fails when attention is to retrieve by lexicographic order, and how.

Four parts. Grids: how many levels one number can rank in each format, checked key by key. Cascade: heads that go
coordinate by coordinate. Slope: x1 + τ x2 on the continuum, predicted and drawn at random, and trained score networks.
Oracle: is a preorder continuous, asked by comparisons alone; a witness is a jump that every utility would have.

Columns.
    part: grid, cascade, slope, trained or oracle
    case: the format, the score, or the preorder
    size: levels P of the grid; τ; for trained scores the largest |Δx1| of a pair (none: all pairs)
    expected: grid: neighbours out of order, 1: some; slope: τ/3 − τ²/12; oracle: 1 if there is a jump
    measured: grid: neighbours out of order; cascade: sets answered wrongly; slope, trained: share of pairs
        misordered; oracle: share of searches with a witness, asked again
    se: standard error of the share
    checked: neighbours, sets, pairs or searches
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, panels, title
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Size, Table, Unit, Verdict, described, sized
from attnfun.lab.studies.tables import lacking, median, values, where

ORACLES: dict[str, tuple[bool, Callable[[Any, Any], bool]]] = {
    "lexicographic": (False, lambda a, b: bool((a[0], a[1]) >= (b[0], b[1]))),
    "floor(4 x1) + x2/2": (
        False,
        lambda a, b: bool(math.floor(4 * a[0]) + a[1] / 2 >= math.floor(4 * b[0]) + b[1] / 2),
    ),
    "x1 + x2/2": (True, lambda a, b: bool(a[0] + a[1] / 2 >= b[0] + b[1] / 2)),
    "x1 + 1e-12 x2": (True, lambda a, b: bool(a[0] + 1e-12 * a[1] >= b[0] + 1e-12 * b[1])),
    "max(x1, x2)": (True, lambda a, b: bool(max(a) >= max(b))),
}
"""Preorders of the unit square: whether they have a continuous utility, and a ≽ b."""


def units(size: Size) -> list[Unit]:
    out: list[Unit] = [{"part": "grid", "case": dtype, "past": past} for dtype in size["dtypes"] for past in (0, 1)]
    out += [{"part": "cascade", "case": "float32", "levels": P, "sets": size["sets"]} for P in size["levels"]]
    out += [{"part": "slope", "case": "x1 + τ x2", "tau": tau, "pairs": size["pairs"]} for tau in size["taus"]]
    out += [
        {"part": "trained", "case": "MLP score", "seed": seed, "steps": size["steps"], "pairs": size["pairs"]}
        for seed in range(size["seeds"])
    ]
    return out + [{"part": "oracle", "case": name, "seeds": size["oracle_seeds"]} for name in ORACLES]


def run(unit: Unit) -> list[Row]:
    parts = {"grid": _grid, "cascade": _cascade, "slope": _slope, "trained": _trained, "oracle": _oracle}
    return [{"part": unit["part"], "case": unit["case"], **row} for row in parts[unit["part"]](unit)]


def _row(size: float | None, expected: float, measured: float, checked: int, se: float | None = None) -> Row:
    return {"size": size, "expected": expected, "measured": measured, "se": se, "checked": checked}


def _grid(unit: Unit) -> list[Row]:
    """Neighbours in the order of a P × P grid that u = P x1 + x2 does not put in strict order."""
    import numpy as np

    dtype = unit["case"]
    P = af.limits.grid_limits(dtype).one_number + unit["past"]
    if P * P <= 3e7:  # all of them
        first, wrong = np.float32(-1.0), 0
        for start in range(0, P * P, 1_000_000):
            code = np.arange(start, min(start + 1_000_000, P * P))
            u = af.limits.utility(np.stack([code // P, code % P], axis=1), P, dtype)
            wrong += int(np.count_nonzero(~(np.diff(np.r_[first, u]) > 0)))
            first = u[-1]
        count = P * P - 1
    else:  # random neighbours, the last ones, and those that tie first
        code = np.r_[np.random.default_rng(0).integers(0, P * P - 1, 200_000), P * P - 2]
        pair = af.limits.tied_pair(P, 2, dtype)
        if pair is not None:
            code = np.r_[code, pair[1][0] * P + pair[1][1]]
        low, high = (np.stack([c // P, c % P], axis=1) for c in (code, code + 1))
        wrong = int(np.count_nonzero(~(af.limits.utility(high, P, dtype) > af.limits.utility(low, P, dtype))))
        count = len(code)
    return [_row(P, float(unit["past"]), float(wrong), count)]


def _cascade(unit: Unit) -> list[Row]:
    """Sets of 24 keys, many with equal x1: how often the cascade does not copy the best key exactly."""
    import numpy as np

    P = unit["levels"]
    head = af.lexicographic(P, 2, dtype=unit["case"], method="cascade")
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(unit["sets"]):
        keys = np.stack([rng.integers(P - 3, P, 24), rng.choice(P, 24, replace=False)], axis=1)
        best = max(map(tuple, keys.tolist()))
        wrong += head(keys).tolist() != list(best)
    return [_row(P, 0.0, float(wrong), unit["sets"])]


def _misordered(score: Callable[[Any], Any], pairs: int, seed: int, near: float | None = None) -> tuple[float, float]:
    """(share of random pairs that the score misorders, its standard error); with `near`, x1 differs by at most that."""
    import numpy as np

    rng = np.random.default_rng([seed, 7])
    A, B = rng.random((pairs, 2)), rng.random((pairs, 2))
    if near is not None:
        B[:, 0] = np.clip(A[:, 0] + near * (2 * rng.random(pairs) - 1), 0, 1)
    truth = (A[:, 0] > B[:, 0]) | ((A[:, 0] == B[:, 0]) & (A[:, 1] > B[:, 1]))
    share = float(np.mean((score(A) > score(B)) != truth))
    return share, math.sqrt(max(share * (1 - share), 1 / pairs) / pairs)


def _slope(unit: Unit) -> list[Row]:
    tau = unit["tau"]
    share, se = _misordered(lambda X: X[:, 0] + tau * X[:, 1], unit["pairs"], 0)
    return [_row(tau, af.limits.misorder_probability(tau), share, unit["pairs"], se)]


def _trained(unit: Unit) -> list[Row]:
    """A score network trained on random pairs by logistic loss: misordered pairs, anywhere and with nearly equal x1."""
    import torch

    with af.learn.one_torch_thread():
        draw = af.learn.generator(unit["seed"])
        weights = [torch.randn(n, m, generator=draw) / math.sqrt(n) for n, m in ((2, 64), (64, 64), (64, 1))]
        biases = [torch.zeros(64), torch.zeros(64)]
        for part in (*weights, *biases):
            part.requires_grad_()

        def score(x: Any) -> Any:
            for weight, bias in zip(weights, biases, strict=False):
                x = torch.tanh(x @ weight + bias)
            return (x @ weights[2])[:, 0]

        def loss(step: int) -> Any:
            rng = af.learn.generator(unit["seed"], step)
            a, b = torch.rand(512, 2, generator=rng), torch.rand(512, 2, generator=rng)
            half = torch.arange(512) % 2 == 0  # half of the pairs have the same x1, so that x2 decides
            b[half, 0] = a[half, 0]
            sign = torch.where((a[:, 0] > b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] > b[:, 1])), 1.0, -1.0)
            return torch.nn.functional.softplus(-sign * (score(a) - score(b))).mean()

        af.learn.descend([*weights, *biases], loss, steps=unit["steps"], lr=1e-2)

        def plain(X: Any) -> Any:
            with torch.no_grad():
                return score(torch.from_numpy(X).float()).numpy()

        count = unit["pairs"] // 10
        rows = []
        for near in (None, 1e-2):
            share, se = _misordered(plain, count, unit["seed"], near)
            rows.append(_row(near, 0.0, share, count, se))
    return rows


def _oracle(unit: Unit) -> list[Row]:
    """Share of runs that find a witness of discontinuity, each asked again."""
    continuous, prefers = ORACLES[unit["case"]]
    found = 0
    for seed in range(unit["seeds"]):
        report = af.preorder(prefers, keys={"x1": (0, 1), "x2": (0, 1)}, seed=seed, net=False)
        jump = report.findings["key_continuous"]
        found += jump.status == "violated" and report.check()
    return [_row(None, 0.0 if continuous else 1.0, found / unit["seeds"], unit["seeds"])]


def judge(table: Table) -> Verdict:
    """Refuted on the continuum where witnesses of a jump are found for the lexicographic order and for no utility.

    Without such witnesses it would hold where all grids, the cascade and the law of slopes are as predicted.
    """
    if gone := lacking(table, "part", "grid", "cascade", "slope", "oracle"):
        return gone
    grids, slopes, oracles = (where(table, part=part) for part in ("grid", "slope", "oracle"))
    exact = all(row["measured"] == 0 for row in grids if row["expected"] == 0)
    ties = all(row["measured"] >= 1 for row in grids if row["expected"] != 0)
    cascade = all(row["measured"] == 0 for row in where(table, part="cascade"))
    law = all(abs(row["measured"] - row["expected"]) <= 5 * row["se"] for row in slopes)
    alarms = [row["case"] for row in oracles if row["expected"] == 0 and row["measured"] != 0]
    witness = [row for row in where(oracles, case="lexicographic") if row["measured"] > 0]
    drawn = [row for row in grids if row["expected"] == 0 and row["checked"] < row["size"] ** 2 - 1]
    some = ", ".join(f"{row['case']}: {row['checked']:,} drawn, else all checked" for row in drawn)
    largest = ", ".join(f"{row['case']} {row['size']:,}" for row in grids if row["expected"] == 0)
    off = max((abs(row["measured"] - row["expected"]) / row["se"] for row in slopes), default=math.nan)
    words = (
        f"On P × P grids one number ranks all keys up to P = {largest}: {'no' if exact else 'SOME'} neighbour is out "
        f"of order there ({some or 'all checked'}), and one level more makes {'ties' if ties else 'NO tie'}. "
        f"The cascade of heads "
        f"{'copied the best key every time' if cascade else 'FAILED'}"
        f" (P = {', '.join(format(row['size'], ',') for row in where(table, part='cascade'))} in float32). "
        f"On the continuum x1 + τ x2 misorders τ/3 − τ²/12 of all pairs, as drawn at random to "
        f"{off:.1f} standard errors at most. "
    )
    trained = where(table, part="trained")
    if trained:
        anywhere = values([r for r in trained if r["size"] is None], "measured")
        near = values([r for r in trained if r["size"] is not None], "measured")
        words += (
            f"Trained score networks misorder {median(anywhere):.2%} of all pairs (median of {len(anywhere)}) and "
            f"{median(near):.0%} of those whose x1 differ by at most {max(r['size'] or 0 for r in trained):g}. "
        )
    if witness and not alarms:
        row = witness[0]
        return Verdict(
            REFUTED,
            f"On the continuum the expectation is refuted: {row['measured']:.0%} of {row['checked']} searches found"
            " a jump that every utility would have, asked again each time, and none was found for orders that have a"
            " continuous utility. That no real scores represent this order there, continuous or not, is Debreu's; on"
            " grids, numbers and cascades do.",
            words,
        )
    more = (
        f"False alarms for {', '.join(alarms)}. " if alarms else "No search found a jump of the lexicographic order. "
    )
    good = exact and ties and cascade and law and not alarms
    return Verdict(HOLDS if good else LIMITS, more, words)


def draw(table: Table) -> Any:
    figure, axes = panels(columns=3, width=4.6, height=4.2)
    grids, slope_ax, oracle = axes[0]
    rows = [row for row in where(table, part="grid") if row["expected"] == 0]
    more = where(table, part="cascade")
    names = [row["case"] for row in rows] + [f"cascade\n{row['case']}" for row in more]
    sizes = values(rows, "size") + values(more, "size")
    colours = [NETWORKS[1]] * len(rows) + [NETWORKS[2]] * len(more)
    grids.bar(range(len(names)), sizes, color=colours)
    for k, size in enumerate(sizes):
        grids.text(k, size * 1.3, f"{size:,}", ha="center", fontsize=7)
    grids.set(yscale="log", ylabel="levels P a coordinate", ylim=(1, max(sizes) * 20))
    grids.set_xticks(range(len(names)), names, fontsize=7, rotation=25)
    title(grids, "Grids that are ranked exactly", "one number up to its limit; cascades as far as tried")
    rows = where(table, part="slope")
    curve(slope_ax.loglog, rows, "size", "expected", "-", color=BOUND, lw=1, label="τ/3 − τ²/12")
    slope_ax.errorbar(
        values(rows, "size"), values(rows, "measured"), [2 * r["se"] for r in rows], fmt="o", ms=4, color=NETWORKS[0],
        label="drawn, ±2 standard errors",
    )  # fmt: skip
    for row in where(table, part="trained"):
        style = ("--", "trained, all pairs") if row["size"] is None else (":", "trained, pairs with |Δx1| ≤ 0.01")
        seen = [line.get_label() for line in slope_ax.get_lines()]
        slope_ax.axhline(
            row["measured"], ls=style[0], lw=0.9, color=NETWORKS[4], label=None if style[1] in seen else style[1]
        )
    slope_ax.set(xlabel="τ", ylabel="share of pairs misordered", ylim=(None, 3))
    slope_ax.legend(fontsize=7, frameon=False, loc="upper left")
    title(slope_ax, "x1 + τ x2 on the continuum", "and score networks trained on pairs, each seed")
    rows = where(table, part="oracle")
    colours = [NETWORKS[2] if row["expected"] == 0 else NETWORKS[0] for row in rows]
    oracle.barh(range(len(rows)), [row["measured"] + 0.004 for row in rows], color=colours)
    oracle.set_yticks(range(len(rows)), values(rows, "case"), fontsize=7)
    oracle.set(xlabel="share of searches that find a jump", xlim=(0, 1.05))
    oracle.invert_yaxis()
    title(oracle, "Witnesses of discontinuity", "red: no continuous utility; green: there is one")
    return figure


STUDY = described(
    __name__,
    sizes=sized(
        dtypes=(
            ["bfloat16", "float16"],
            ["bfloat16", "float16", "float32", "float64"],
            ["bfloat16", "float16", "float32", "float64"],
        ),
        levels=([1000], [100_000, 8_388_608], [10_000, 100_000, 1_000_000, 8_388_608]),
        sets=(3, 100, 500),
        taus=([0.1], [1.0, 0.3, 0.1, 0.03, 0.01, 0.003], [1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001]),
        pairs=(10_000, 1_000_000, 4_000_000),
        steps=(20, 1500, 5000),
        seeds=(1, 3, 5),
        oracle_seeds=(1, 10, 50),
    ),
    needs=("torch",),
    full_time="two minutes of CPU",
)
