"""Lexicographic order: what fails, and what still works.

Claim. Attention with suitable score networks retrieves the most relevant element by a simple preorder such as the
lexicographic one (proposed as a first experiment on the theorem about retrieval by preorders).

Source. Altabaa and Lafferty 2024, arXiv 2402.08856, section 5, whose theorem needs a continuous preorder; that this
one has no utility: Debreu 1954. Grid limits, cascade, slope law and search for jumps are our own.

What fails when attention is to retrieve by lexicographic order, and how.

Four parts. Grids: how many levels one number can rank in each format, checked key by key. Cascade: heads that go
coordinate by coordinate. Slope: x1 + τ x2 on the continuum, predicted and drawn at random, and trained score networks.
Oracle: is a preorder continuous, asked by comparisons alone; a witness is a jump that every utility would have.

A full run takes two minutes of CPU.

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

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, NETWORKS, curve, labelled, panels
from attnfun.lab.studies.study import HOLDS, LIMITS, REFUTED, Row, Rows, Size, Unit, Verdict, crossed, described

UTILITIES: dict[str, tuple[bool, Callable[[Any], Any]]] = {
    "lexicographic": (False, lambda a: (a[0], a[1])),
    "floor(4 x1) + x2/2": (False, lambda a: math.floor(4 * a[0]) + a[1] / 2),
    "x1 + x2/2": (True, lambda a: a[0] + a[1] / 2),
    "x1 + 1e-12 x2": (True, lambda a: a[0] + 1e-12 * a[1]),
    "max(x1, x2)": (True, max),
}
"""Preorders of the unit square: whether they have a continuous utility, and what decides a ≽ b."""


def units(size: Size) -> list[Unit]:
    return [
        *crossed(part="grid", case=size["dtypes"], past=(0, 1)),
        *crossed(part="cascade", case="float32", levels=size["levels"], sets=size["sets"]),
        *crossed(part="slope", case="x1 + τ x2", tau=size["taus"], pairs=size["pairs"]),
        *crossed(part="trained", case="MLP score", seed=range(size["seeds"]), steps=size["steps"], pairs=size["pairs"]),
        *crossed(part="oracle", case=size["orders"], seeds=size["oracle_seeds"]),
    ]


def run(unit: Unit) -> Row | list[Row]:
    parts = {"grid": _grid, "cascade": _cascade, "slope": _slope, "oracle": _oracle}
    return _trained(unit) if unit["part"] == "trained" else parts[unit["part"]](unit)


def _row(size: float | None, expected: float, measured: float, checked: int, se: float | None = None) -> Row:
    return {"size": size, "expected": expected, "measured": measured, "se": se, "checked": checked}


def _grid(unit: Unit) -> Row:
    """Neighbours in the order of a P × P grid that u = P x1 + x2 does not put in strict order."""
    dtype = unit["case"]
    P = af.limits.grid_limits(dtype).one_number + unit["past"]
    if P * P <= 3e7:  # all of them
        first, wrong = np.float32(-1.0), 0
        for start in range(0, P * P, 1_000_000):
            code = np.arange(start, min(start + 1_000_000, P * P))
            u = af.limits.utility(np.stack([code // P, code % P], axis=1), P, dtype)
            wrong += int(np.count_nonzero(~(np.diff(np.r_[first, u]) > 0)))
            first = u[-1]
        return _row(P, float(unit["past"]), float(wrong), P * P - 1)
    # random neighbours, the last ones, and those that tie first
    code = np.r_[np.random.default_rng(0).integers(0, P * P - 1, 200_000), P * P - 2]
    pair = af.limits.tied_pair(P, 2, dtype)
    if pair is not None:
        code = np.r_[code, pair[1][0] * P + pair[1][1]]
    low, high = (af.limits.utility(np.stack([c // P, c % P], axis=1), P, dtype) for c in (code, code + 1))
    return _row(P, float(unit["past"]), float(np.count_nonzero(~(high > low))), len(code))


def _cascade(unit: Unit) -> Row:
    """Sets of 24 keys, many with equal x1: how often the cascade does not copy the best key exactly."""
    P = unit["levels"]
    head = af.lexicographic(P, 2, dtype=unit["case"], method="cascade")
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(unit["sets"]):
        keys = np.stack([rng.integers(P - 3, P, 24), rng.choice(P, 24, replace=False)], axis=1)
        best = max(map(tuple, keys.tolist()))
        wrong += head(keys).tolist() != list(best)
    return _row(P, 0.0, float(wrong), unit["sets"])


def _misordered(score: Callable[[Any], Any], pairs: int, seed: int, near: float | None = None) -> tuple[float, float]:
    """(share of random pairs that the score misorders, its standard error); with `near`, x1 differs by at most that."""
    rng = np.random.default_rng([seed, 7])
    A, B = rng.random((pairs, 2)), rng.random((pairs, 2))
    if near is not None:
        B[:, 0] = np.clip(A[:, 0] + near * (2 * rng.random(pairs) - 1), 0, 1)
    truth = (A[:, 0] > B[:, 0]) | ((A[:, 0] == B[:, 0]) & (A[:, 1] > B[:, 1]))
    share = float(np.mean((score(A) > score(B)) != truth))
    return share, math.sqrt(max(share * (1 - share), 1 / pairs) / pairs)


def _slope(unit: Unit) -> Row:
    tau = unit["tau"]
    share, se = _misordered(lambda X: X[:, 0] + tau * X[:, 1], unit["pairs"], 0)
    return _row(tau, af.limits.misorder_probability(tau), share, unit["pairs"], se)


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
        shares = {near: _misordered(plain, count, unit["seed"], near) for near in (None, 1e-2)}
        return [_row(near, 0.0, share, count, se) for near, (share, se) in shares.items()]


def _oracle(unit: Unit) -> Row:
    """Share of runs that find a witness of discontinuity, each asked again."""
    continuous, utility = UTILITIES[unit["case"]]
    found = 0
    for seed in range(unit["seeds"]):
        prefers = lambda a, b: bool(utility(a) >= utility(b))  # noqa: E731
        report = af.preorder(prefers, keys={"x1": (0, 1), "x2": (0, 1)}, seed=seed, net=False)
        found += report.findings["key_continuous"].status == "violated" and report.check()
    return _row(None, 0.0 if continuous else 1.0, found / unit["seeds"], unit["seeds"])


def judge(table: Rows) -> Verdict:
    """Refuted on the continuum where witnesses of a jump are found for the lexicographic order and for no utility.

    Without such witnesses it would hold where all grids, the cascade and the law of slopes are as predicted.
    """
    parts = ("grid", "cascade", "slope", "oracle", "trained")
    grids, cascades, slopes, oracles, trained = (table.where(part=part) for part in parts)
    within = grids.where(expected=0)
    exact = all(row["measured"] == 0 for row in within)
    ties = not grids.fails(lambda row: row["expected"] == 0 or row["measured"] >= 1)
    cascade = all(row["measured"] == 0 for row in cascades)
    off = [abs(row["measured"] - row["expected"]) / row["se"] for row in slopes]
    alarms = oracles.where(expected=0).that(lambda row: row["measured"] != 0).of("case")
    witness = oracles.where(case="lexicographic").that(lambda row: row["measured"] > 0)
    drawn = within.that(lambda row: row["checked"] < row["size"] ** 2 - 1)
    some = ", ".join(drawn.say("{case}: {checked:,} drawn, else all checked")) or "all checked"
    words = (
        f"On P × P grids one number ranks all keys up to P = {', '.join(within.say('{case} {size:,}'))}: "
        f"{'no' if exact else 'SOME'} neighbour is out of order there ({some}), and one level more makes "
        f"{'ties' if ties else 'NO tie'}. The cascade of heads "
        f"{'copied the best key every time' if cascade else 'FAILED'} (P = {', '.join(cascades.say('{size:,}'))} in "
        "float32). On the continuum x1 + τ x2 misorders τ/3 − τ²/12 of all pairs, as drawn at random to "
        f"{max(off, default=math.nan):.1f} standard errors at most. "
    )
    if trained:
        anywhere, near = trained.where(size=None), trained.known("size")
        words += (
            f"Trained score networks misorder {anywhere.median('measured'):.2%} of all pairs (median of "
            f"{len(anywhere)}) and {near.median('measured'):.0%} of those whose x1 differ by at most "
            f"{max(near.of('size'), default=0):g}."
        )
    if witness and not alarms:
        found = witness.say(
            "On the continuum the expectation fails: {measured:.0%} of {checked} searches found a jump that every "
            "utility would have, asked again each time, and none was found for orders that have a continuous utility. "
            "That no real scores represent this order there, continuous or not, is Debreu's; on grids, numbers and "
            "cascades do."
        )
        return Verdict(REFUTED, found[0], words)
    more = f"False alarms for {', '.join(alarms)}." if alarms else "No search found a jump of the lexicographic order."
    good = exact and ties and cascade and all(far <= 5 for far in off) and not alarms
    return Verdict(HOLDS if good else LIMITS, more, words)


def draw(table: Rows) -> Any:
    figure, (grids, slopes, oracle) = panels(3, width=4.6, height=4.2)
    one, more = table.where(part="grid", expected=0), table.where(part="cascade")
    sizes = [*one.of("size"), *more.of("size")]
    grids.bar(range(len(sizes)), sizes, color=[NETWORKS[1]] * len(one) + [NETWORKS[2]] * len(more))
    for k, size in enumerate(sizes):
        grids.text(k, size * 1.3, f"{size:,}", ha="center", fontsize=7)
    names = [*one.of("case"), *more.say("cascade\n{case}")]
    texts = ("one number up to its limit; cascades as far as tried", "", "levels P a coordinate")
    shape: dict[str, Any] = {"xticks": names, "ylim": (1, max(sizes) * 20)}
    labelled(grids, "Grids that are ranked exactly", *texts, log="y", **shape)
    grids.tick_params(axis="x", rotation=25)
    rows, trained = table.where(part="slope"), table.where(part="trained")
    curve(slopes, rows, "size", "expected", "-", color=BOUND, lw=1, label="τ/3 − τ²/12")
    look = {"fmt": "o", "ms": 4, "color": NETWORKS[0], "label": "drawn, ±2 standard errors"}
    slopes.errorbar(rows.of("size"), rows.of("measured"), rows.of(lambda row: 2 * row["se"]), **look)
    for style, near, name in (("--", None, "all pairs"), (":", 0.01, "pairs with |Δx1| ≤ 0.01")):
        for k, row in enumerate(trained.where(size=near)):
            label = None if k else f"trained, {name}"
            slopes.axhline(row["measured"], ls=style, lw=0.9, color=NETWORKS[4], label=label)
    texts = ("and score networks trained on pairs, each seed", "τ", "share of pairs misordered")
    labelled(slopes, "x1 + τ x2 on the continuum", *texts, log="xy", ylim=(None, 3), legend="upper left")
    rows = table.where(part="oracle")
    colours = [NETWORKS[2] if row["expected"] == 0 else NETWORKS[0] for row in rows]
    oracle.barh(range(len(rows)), rows.of(lambda row: row["measured"] + 0.004), color=colours)
    note = "red: no continuous utility; green: there is one"
    shape = {"xlim": (0, 1.05), "yticks": rows.of("case")}
    labelled(oracle, "Witnesses of discontinuity", note, "share of searches that find a jump", **shape)
    oracle.invert_yaxis()
    return figure


FORMATS = ["bfloat16", "float16", "float32", "float64"]
STUDY = described(
    __name__,
    needs=("torch",),
    speaks_of={"part": ("grid", "cascade", "slope", "oracle")},
    dtypes=(FORMATS[:2], FORMATS, FORMATS),
    levels=([1000], [100_000, 8_388_608], [10_000, 100_000, 1_000_000, 8_388_608]),
    sets=(3, 100, 500),
    taus=([0.1], [1.0, 0.3, 0.1, 0.03, 0.01, 0.003], [1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001]),
    pairs=(10_000, 1_000_000, 4_000_000),
    steps=(20, 1500, 5000),
    seeds=(1, 3, 5),
    orders=(["lexicographic", "x1 + x2/2"], list(UTILITIES), list(UTILITIES)),
    oracle_seeds=(1, 10, 50),
)
