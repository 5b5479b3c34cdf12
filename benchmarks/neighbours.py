"""Furthest and nearest neighbours by attention: what is proved, predicted and measured. Prints Markdown.

    python benchmarks/neighbours.py [--output FILE] [--quick]

Every row builds its network and runs it on random points; ± is a standard error over independent sets (seed 1).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import attnfun as af

Row = tuple[str, dict[str, Any], int]

ROWS: list[Row] = [
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
HEADER = ("network", "d", "N", "H", "rank", "proved ≤", "predicted", "measured", "right ≥", "predicted", "measured")


def cells(name: str, asked: dict[str, Any], queries: int) -> list[str]:
    start = time.perf_counter()
    net = af.neighbours(**asked)
    seen, said, limit = net.measured(queries, seed=1), net.predicted, net.limit
    bound = "" if limit is None or net.method != "random_heads" else f"{limit['lower']:.4f}"
    return [
        name,
        str(net.dim),
        str(net.points),
        f"{net.cost.heads:,}",
        str(net.cost.rank),
        "" if said.proved is None else f"{said.proved:.3g}",
        "" if said.error is None else f"{said.error:.4g}",
        f"{seen.error:.4g} ± {seen.error_se:.1g}",
        "" if said.accuracy_proved is None else f"{said.accuracy_proved:.5f}",
        "" if said.accuracy is None else f"{said.accuracy:.5f}",
        f"{seen.accuracy:.5f} ± {seen.accuracy_se:.1g}",
        bound,
        f"{seen.queries:,}",
        f"{time.perf_counter() - start:.1f}",
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path)
    options.add_argument("--quick", action="store_true", help="a tenth of the queries")
    asked = options.parse_args()
    header = (*HEADER, "no such layer below", "queries", "seconds")
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    print("\n".join(lines), flush=True)
    for name, request, queries in ROWS:
        lines.append("| " + " | ".join(cells(name, request, max(1000, queries // (10 if asked.quick else 1)))) + " |")
        print(lines[-1], flush=True)
    if asked.output:
        asked.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
