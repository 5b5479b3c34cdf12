"""Retrieval end to end: what is proved of a head against what queries show. Prints Markdown.

    python benchmarks/retrieval.py [--queries 4000] [--output FILE]

The utility exp(-2|q - k|^2) on the unit square, 64 random keys. A row an eps: the rank, the proved error e of the
scores, the share of queries with a margin of at most 2e (predicted failures) with its interval at confidence 0.95, the
share whose pick is wrong, the largest regret seen beside its bound 2e, and the largest total variation distance from
the exact softmax beside its bound tanh(beta e/2) at beta = 100. A violation stops the script. The formulas themselves
are held against adversaries and random scores by tests/retrieval and by the study softmax-distribution.
"""

import sys
from collections.abc import Iterator

import numpy as np

import attnfun as af
from bench import Row, asked, table

UTILITY = "exp(-2*((x1 - y1)**2 + (x2 - y2)**2))"
LEFT, RIGHT = {"x1": (0, 1), "x2": (0, 1)}, {"y1": (0, 1), "y2": (0, 1)}
EPS = (0.3, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
BETA = 100.0


def heads(queries: int) -> Iterator[Row]:
    keys = np.random.default_rng(0).random((64, 2))
    for eps in EPS:
        head = af.retrieve(UTILITY, LEFT, RIGHT, keys, eps, symmetric=True, queries=queries, beta=BETA)
        study, bound = head.study, head.bound
        assert study is not None and bound is not None
        seen = study.measured
        kept = seen["regret"] <= bound.regret and seen["tv"] <= bound.tv
        if not (kept and seen["wrong_top1"] * queries <= study.failures):
            raise SystemExit(f"VIOLATION at eps={eps}: {seen} against {bound}")
        low, high = study.failure_interval
        failures = {"P(margin ≤ 2e)": study.failures / queries, "interval": f"{low:.4f} … {high:.4f}"}
        yield {
            **{"eps": eps, "rank": head.relation.rank, "e proved": head.certificate.error[1], **failures},
            **{"wrong pick": seen["wrong_top1"], "regret ≤": bound.regret, "regret seen": seen["regret"]},
            **{"TV ≤": bound.tv, "TV seen": seen["tv"], "beta for 0.999": study.betas["0.5"]},
        }


def head_lines(rows: list[Row]) -> list[str]:
    return [f"# Retrieval: 64 keys, {options.queries:,} queries", ""]


if __name__ == "__main__":
    options = asked(__doc__, queries={"type": int, "default": 4000})
    sys.exit(table(options, heads(options.queries), before=head_lines))
