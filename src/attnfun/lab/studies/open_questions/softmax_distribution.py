"""The whole distribution of attention.

Claim. Scores within e of the exact ones give a softmax at inverse temperature β within tanh(βe/2) of the exact one in
total variation, and its output within that times the spread of the values; no smaller function of β and e does.

Source. An open question of Altabaa and Lafferty 2024, arXiv 2402.08856 (bounds for the full distribution of
attention); the bound and the scores that attain it are our own derivation.

How far is the whole distribution of attention from that of the exact scores?

Scores off by at most e at inverse temperature β: total variation at most tanh(βe/2). Scores made to attain it, random
scores that try to break it (both in ball arithmetic), and scores of heads over real documents, which are far below.

A full run takes 39 seconds of CPU.

Columns.
    part: adversary, random, or documents (handwritten digits)
    seed: of the random scores
    keys: number of keys
    beta: inverse temperature
    error: e: what scores are off by at most (documents: proved)
    tv: total variation distance; documents: of the worst query
    bound: ≤ tanh(βe/2), rounded up
    gap: |distance − bound|, in balls of 300 bits
    output: how far the output moves
    output_bound: ≤ tanh(βe/2) times the spread of the values
    trials: settings, trials or queries
    broken: how many are above a bound
    ratio: the largest distance as a part of the bound
    own_ratio: median over queries: distance as a part of tanh(βe/2) with the query's own measured e
"""

from typing import Any

import numpy as np

import attnfun as af
from attnfun.lab.studies.drawing import BOUND, curve, labelled, panels
from attnfun.lab.studies.relations.digits import LEFT, RIGHT, UTILITY, digits, softmax
from attnfun.lab.studies.study import Row, Rows, Size, Unit, Verdict, crossed, decided, described

TIGHT = 1e-12
_BITS = 300


def units(size: Size) -> list[Unit]:
    docs = {"queries": size["queries"], "documents": size["documents"], "betas": [size["betas"]]}
    made = crossed(part="adversary", keys=size["keys"], settings=size["settings"])
    made += crossed(part="random", seed=range(size["seeds"]), trials=size["trials"])
    return made + crossed(part="documents", eps=size["eps"], **docs)


def run(unit: Unit) -> list[Row]:
    return {"adversary": _adversary, "random": _random, "documents": _documents}[unit["part"]](unit)


def _softmax(scores: list[Any], beta: Any) -> list[Any]:
    from flint import arb

    top = max(scores, key=float)
    terms = [(beta * (s - top)).exp() for s in scores]
    total = sum(terms, arb(0))
    return [t / total for t in terms]


def _adversary(unit: Unit) -> list[Row]:
    """k of n keys at the log-odds −βe, moved by e up, the others by e down: total variation tanh(βe/2).

    With values 1 for the k and 0 for the others the output moves by as much.
    """
    from flint import arb

    rng, n = np.random.default_rng(unit["keys"]), unit["keys"]
    rows = []
    with af.language.precision(_BITS):
        for _ in range(unit["settings"]):
            error, scale = float(10 ** rng.uniform(-6, -1)), float(10 ** rng.uniform(-1.5, 1.0))
            beta, k = scale / error, int(rng.integers(1, n))
            b, e = arb(beta), arb(error)
            start = (arb(n - k) / arb(k)).log() / b - e  # log-odds −βe for the k together
            # equal scores may be weighed together: two groups of k and n − k
            odds = [arb(k) * (b * start).exp() / arb(n - k), arb(k) * (b * (start + 2 * e)).exp() / arb(n - k)]
            before, after = (o / (1 + o) for o in odds)
            bound = af.retrieval_certificate(n, None, error, beta)
            moved = after - before
            rows.append(
                {"beta": beta, "error": error, "tv": float(moved), "bound": bound.tv}
                | {"gap": float(abs(moved - arb(bound.tv))), "broken": int(not moved <= arb(bound.tv))}
                | {"output": float(moved), "output_bound": bound.softmax_error, "trials": 1}
            )
    return rows


def _random(unit: Unit) -> list[Row]:
    """Random scores, half of them moved by ±e each: the number of trials above the bound, in balls, and the nearest."""
    from flint import arb

    rng, broken, nearest = np.random.default_rng([unit["seed"], 3]), 0, 0.0
    with af.language.precision(_BITS):
        for _ in range(unit["trials"]):
            n, error = int(rng.integers(2, 12)), float(10 ** rng.uniform(-6, 0))
            beta = float(10 ** rng.uniform(-1.5, 1.0)) / error
            true = rng.normal(size=n) * error * 10 ** rng.uniform(-1, 1)
            off = error * (rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else rng.uniform(-1, 1, n))
            wide = rng.uniform(-1, 1, n)
            bound = af.retrieval_certificate(n, None, error, beta, spread=float(np.ptp(wide)))
            exact = _softmax([arb(float(v)) for v in true], arb(beta))
            moved = _softmax([arb(float(v)) + arb(float(o)) for v, o in zip(true, off, strict=True)], arb(beta))
            tv = sum((abs(p - q) for p, q in zip(exact, moved, strict=True)), arb(0)) / 2
            gone = abs(sum(((p - q) * arb(float(v)) for p, q, v in zip(exact, moved, wide, strict=True)), arb(0)))
            # a double spread is rounded; the bound's own is rounded up from it, so one ulp of it is given to the trial
            allowed = arb(bound.softmax_error) * (1 + arb(2) ** -51)
            broken += not (tv <= arb(bound.tv) and gone <= allowed)
            nearest = max(nearest, float(tv) / bound.tv)
    return [{"broken": broken, "ratio": nearest}]


def _documents(unit: Unit) -> list[Row]:
    """Heads over handwritten digits: the largest and the median distance over queries, beside the proved bound."""
    data = digits(unit["queries"], unit["documents"])
    found = af.relation(UTILITY, LEFT, RIGHT, unit["eps"], symmetric=True, features_only=True)
    true = found.target.table(data["queries"], data["keys"])
    scores = found(data["queries"], data["keys"])
    own = np.abs(scores - true).max(axis=1)
    error, rows = found.certificate.error[1], []
    for beta in unit["betas"]:
        p, q = softmax(true, beta), softmax(scores, beta)
        tv = np.abs(p - q).sum(axis=1) / 2
        gone = np.abs((p - q) @ data["values"]).max()
        bound = af.retrieval_certificate(true.shape[1], None, error, beta)
        rows.append(
            {"keys": true.shape[1], "beta": beta, "error": error, "tv": float(tv.max()), "bound": bound.tv}
            | {"output": float(gone), "output_bound": bound.softmax_error, "trials": len(tv)}
            | {"broken": int(not tv.max() <= bound.tv) + int(not gone <= bound.softmax_error)}
            | {"ratio": float(tv.max() / bound.tv), "own_ratio": float(np.median(tv / np.tanh(beta * own / 2)))}
        )
    return rows


def _within(row: Row) -> bool:
    """Whether the figures shown keep their bounds, to the digits of a double; balls have counted what is broken."""
    pairs = [(row[moved], row[bound]) for moved, bound in (("tv", "bound"), ("output", "output_bound"))]
    return all(moved <= bound * (1 + TIGHT) for moved, bound in pairs if moved is not None or bound is not None)


def judge(table: Rows) -> Verdict:
    """Refuted by one violation; holds where scores attain the bound to 1e-12 for every number of keys; else limits."""
    made, random, real = (table.where(part=part) for part in ("adversary", "random", "documents"))
    broken = table.fails(lambda row: row["broken"] == 0 and _within(row))
    faults = broken.say("a distribution ({part}) is further off than tanh(βe/2)")
    words = [
        f"Scores made to attain the bound do so within {max(made.of('gap')):.1g} in {len(made)} settings, for "
        f"{', '.join(format(n, ',') for n in made.distinct('keys'))} keys. Random scores: {sum(random.of('broken'))} "
        f"violations in {sum(random.of('trials')):,} trials, the nearest at {max(random.of('ratio')):.3f} of it.",
        f"Heads over {real[0]['keys']:,} real documents reach {real.span('ratio')} of the proved bound at their worst "
        f"query; measured by each query's own error, {real.median('own_ratio'):.2g} of it (median). The output moves "
        f"by {max(row['output'] / row['output_bound'] for row in real):.2g} of its bound at most.",
    ]
    limit = "The bound holds, but was not attained." if made.fails(lambda row: row["gap"] <= TIGHT) else ""
    return decided(words, faults, limit, "The bound holds, and cannot be improved from β and e alone.")


def draw(table: Rows) -> Any:
    figure, (first, second) = panels(2, width=5.4, height=4.3)
    t, moved = np.logspace(-3, 2, 200), lambda row: row["beta"] * row["error"]
    for ax in (first, second):
        ax.plot(t, np.tanh(t / 2), "-", color=BOUND, lw=1, label="tanh(βe/2)")
    made, real = table.where(part="adversary"), table.where(part="documents")
    curve(first, made, moved, "tv", "o", by="keys", ms=4, label="{keys:,} keys")
    texts = ("two groups of keys, in balls of 300 bits", "βe", "total variation")
    labelled(first, "Scores made to attain it", *texts, log="xy", legend="lower right")
    curve(second, real, moved, "tv", "o-", by="error", ms=4, label="e ≤ {error:.2g}")
    note = f"handwritten digits; β = {', '.join(format(beta, 'g') for beta in real.distinct('beta'))}"
    texts = (note, "βe, with e proved", "total variation, worst query")
    labelled(second, "Attention over real documents", *texts, log="xy", legend="upper left")
    return figure


STUDY = described(
    __name__,
    needs=("sklearn",),
    speaks_of={"part": ("adversary", "random", "documents")},
    keys=([2, 10], [2, 10, 1000, 100_000], [2, 10, 100, 1000, 100_000]),
    settings=(3, 12, 40),
    seeds=(1, 4, 8),
    trials=(20, 1000, 3000),
    eps=([0.7], [0.1, 0.03, 0.01], [0.3, 0.1, 0.03, 0.01, 0.003, 0.001]),
    betas=([10.0], [1.0, 10.0, 100.0, 1000.0], [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]),
    queries=(20, 500, 500),
    documents=(60, None, None),
)
