"""Retrieval end to end: what is proved of a head against what queries show. Prints Markdown.

    python benchmarks/retrieval.py [--queries 4000] [--trials 2000] [--output FILE]

The utility exp(-2|q - k|^2) on the unit square, 64 random keys. A row an eps: the rank, the proved error e of the
scores, the share of queries with a margin of at most 2e (predicted failures) with its interval at confidence 0.95, the
share whose pick is wrong, the largest regret seen beside its bound 2e, and the largest total variation distance from
the exact softmax beside its bound tanh(beta e/2) at beta = 100. Then the formulas themselves against adversaries and
random scores, in ball arithmetic. A violation stops the script.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from flint import arb

import attnfun as af
from attnfun.language import precision

UTILITY = "exp(-2*((x1 - y1)**2 + (x2 - y2)**2))"
LEFT, RIGHT = {"x1": (0, 1), "x2": (0, 1)}, {"y1": (0, 1), "y2": (0, 1)}
EPS = (0.3, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
BETA = 100.0


def heads(queries: int) -> list[str]:
    keys = np.random.default_rng(0).random((64, 2))
    lines = [
        "| eps | rank | e proved | P(margin ≤ 2e) | interval | wrong pick | regret ≤ | regret seen | TV ≤ | TV seen |"
        " beta for 0.999 |",
        "| --- " * 11 + "|",
    ]
    for eps in EPS:
        head = af.retrieve(UTILITY, LEFT, RIGHT, keys, eps, symmetric=True, queries=queries, beta=BETA)
        study, bound = head.study, head.bound
        assert study is not None and bound is not None
        seen = study.measured
        kept = seen["regret"] <= bound.regret and seen["tv"] <= bound.tv
        if not (kept and seen["wrong_top1"] * queries <= study.failures):
            raise SystemExit(f"VIOLATION at eps={eps}: {seen} against {bound}")
        low, high = study.failure_interval
        needed = study.betas["0.5"]
        lines.append(
            f"| {eps:g} | {head.relation.rank} | {head.certificate.error[1]:.2g} | {study.failures / queries:.4f} |"
            f" {low:.4f} … {high:.4f} | {seen['wrong_top1']:.4f} | {bound.regret:.2g} | {seen['regret']:.2g} |"
            f" {bound.tv:.2g} | {seen['tv']:.2g} | {'none' if needed is None else f'{needed:.0f}'} |"
        )
    return lines


def softmax(scores: list[arb], beta: float) -> list[arb]:
    top = max(scores, key=float)
    terms = [(arb(beta) * (s - top)).exp() for s in scores]
    total = sum(terms, arb(0))
    return [t / total for t in terms]


def adversaries(trials: int) -> list[str]:
    """How far the bounds are from scores made to attain them, and random scores that break none."""
    rng = np.random.default_rng(1)
    winner, variation, broken = 0.0, 0.0, 0
    with precision(300):
        for _ in range(50):
            n, beta = int(rng.integers(2, 400)), float(10 ** rng.uniform(0, 4))
            error, margin = float(10 ** rng.uniform(-6, -1)), float(10 ** rng.uniform(-5, 0))
            bound = af.retrieval_certificate(n, margin, error, beta)
            e, m = arb(error), arb(margin)
            weight = softmax([-e] + [e - m] * (n - 1), beta)[0]
            winner = max(winner, float(abs(weight - arb(bound.winner_weight or 0))))
            p, q = softmax([-e / 2, e / 2], beta), softmax([e / 2, -e / 2], beta)
            variation = max(variation, float(abs(abs(p[0] - q[0]) - arb(bound.tv))))
        for _ in range(trials):
            n, beta, error = int(rng.integers(2, 20)), float(10 ** rng.uniform(-2, 4)), float(10 ** rng.uniform(-6, 0))
            true = np.sort(rng.normal(size=n) * 10 ** rng.uniform(-4, 0))[::-1]
            off = error * (rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else rng.uniform(-1, 1, n))
            bound = af.retrieval_certificate(n, math.nextafter(float(true[0] - true[1]), 0), error, beta)
            a = [arb(float(v)) for v in true]
            scores = [x + arb(float(o)) for x, o in zip(a, off, strict=True)]
            w, exact = softmax(scores, beta), softmax(a, beta)
            pick = max(range(n), key=lambda j: float(scores[j]))
            tv = sum((abs(p - q) for p, q in zip(w, exact, strict=True)), arb(0)) / 2
            loss = sum((p * (a[0] - x) for p, x in zip(w, a, strict=True)), arb(0))
            broken += bool(w[0] < bound.winner_weight or tv > bound.tv or loss > bound.softmax_regret)
            broken += bool(a[0] - a[pick] > bound.regret)
    return [
        "",
        f"Scores made to attain them: winner weight off by {winner:.1e}, total variation by {variation:.1e} at most"
        f" (50 settings). Random scores: {broken} violations in {trials:,} trials.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    title = f"# Retrieval: 64 keys, {options.queries:,} queries"
    text = "\n".join([title, "", *heads(options.queries), *adversaries(options.trials)])
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
