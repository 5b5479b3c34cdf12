"""Furthest and nearest neighbours by attention: what is proved, predicted and measured. Prints Markdown.

    python benchmarks/neighbours.py [--output FILE] [--quick]

Every row builds its network and runs it on random points; ± is a standard error over independent sets (seed 1).
"""

import sys
import time
from typing import Any

import attnfun as af
from attnfun.parts import at_least
from bench import Row, asked, table

CASES: list[tuple[str, dict[str, Any], int]] = [
    *((f"full rank, β = {b}", {"dim": 64, "points": 16, "beta": float(b)}, 64_000) for b in (1, 4, 16, 64, 256, 1024)),
    ("full rank, 1e-3", {"dim": 64, "points": 16, "eps": 1e-3}, 1_200_000),
    ("full rank, 1e-3", {"dim": 16, "points": 8, "eps": 1e-3}, 1_000_000),
    ("full rank, 1e-3", {"dim": 64, "points": 3, "eps": 1e-3}, 1_000_000),
    ("full rank, 1e-3", {"dim": 8, "points": 3, "eps": 1e-3}, 1_000_000),
    ("full rank, nearest", {"dim": 16, "points": 8, "eps": 1e-3, "which": "nearest"}, 1_000_000),
    ("scores, rank 1", {"dim": 16, "points": 8, "method": "scores", "eps": 1e-2}, 40_000),
    ("scores, rank 1", {"dim": 64, "points": 16, "method": "scores", "eps": 1e-2}, 5_000),
    ("scores, nearest", {"dim": 8, "points": 64, "method": "scores", "eps": 1e-2, "which": "nearest"}, 5_000),
    *((f"tally, {d} heads", {"dim": d, "method": "tally", "eps": 1e-3}, 20_000) for d in (8, 16, 64)),
    ("tally, β = 1", {"dim": 16, "method": "tally", "beta": 1.0}, 100_000),
    *((f"vote of {h}", {"dim": 8, "method": "majority_vote", "heads": h}, 20_000) for h in (9, 33, 65, 257, 1025)),
    ("vote of 257", {"dim": 16, "method": "majority_vote", "heads": 257}, 20_000),
    ("vote of 4097", {"dim": 64, "method": "majority_vote", "heads": 4097}, 3_000),
    *(
        (f"{h} random hard heads, {s}", {"dim": 8, "method": "random_heads", "heads": h, "sampler": s}, 20_000)
        for h in (16, 64, 256)
        for s in ("same", "independent", "compromise")
    ),
    ("64 random hard heads, same", {"dim": 16, "method": "random_heads", "heads": 64}, 20_000),
    ("16 random soft heads of rank 4", {"dim": 8, "method": "random_heads", "heads": 16, "rank": 4}, 20_000),
    ("half-space, b = 0.3", {"dim": 16, "points": 2, "method": "biased", "bias": 0.3, "eps": 1e-3}, 1_000_000),
]


def row(name: str, request: dict[str, Any], queries: int) -> Row:
    start = time.perf_counter()
    net = af.neighbours(**request)
    seen, said, limit = net.measured(queries, seed=1), net.predicted, net.limit
    return {
        **{"network": name, "d": net.dim, "N": net.points, "H": net.cost.heads, "rank": net.cost.rank},
        **{"error ≤": said.proved, "predicted": said.error, "measured": f"{seen.error:.4g} ± {seen.error_se:.1g}"},
        "right ≥": None if said.accuracy_proved is None else at_least(said.accuracy_proved, 5),
        "predicted right": None if said.accuracy is None else f"{said.accuracy:.5f}",
        "measured right": f"{seen.accuracy:.5f} ± {seen.accuracy_se:.1g}",
        "no such layer below": None if limit is None or net.method != "random_heads" else limit["lower"],
        **{"queries": seen.queries, "seconds": round(time.perf_counter() - start, 1)},
    }


if __name__ == "__main__":
    options = asked(__doc__, quick={"action": "store_true", "help": "a tenth of the queries"})
    share = 10 if options.quick else 1
    sys.exit(table(options, (row(name, request, max(1000, count // share)) for name, request, count in CASES)))
