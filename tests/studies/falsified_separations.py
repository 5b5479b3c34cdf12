"""Changes of the tables of this group that their claims could not survive."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _sets(rows: Rows) -> Rows:
    for row in rows:
        if row["way"] == "pairs ψ(x∘x')" and row["dim"] == 2:
            row["error"] = 0.5  # one feature of pairs no better than two complex sums over elements
    return rows


def _match3(rows: Rows) -> Rows:
    for row in rows:
        if row["what"] == "protocol" and row["bits"] == 24:
            row["error"] = 1e-3
    return rows


def _rank_heads(rows: Rows) -> Rows:
    """Two heads of rank d/2 learn the task."""
    for row in rows:
        if row["way"] == "trained" and 2 * row["rank"] == row["dim"] and row["seed"] == 0:
            row["error"] = 0.2
    return rows


def _two_candidates(rows: Rows) -> Rows:
    """One layer is below what is proved of all layers of its shape."""
    row = next(row for row in rows if row["layer_any"] > 0.1)
    row["error"] = max(row["layer_any"], row["softmax_any"]) - 3.5 * row["error_se"]
    return rows


def _random_features(rows: Rows) -> Rows:
    """Heads with k = q reach what would be their floor if signs did not matter."""
    for row in rows:
        if row["sampler"] == "same" and row["dim"] == 8 and row["heads"] == 2048:
            row["with_average"] = row["floor_unsigned"]
    return rows


def _majority_vote(rows: Rows) -> Rows:
    """Votes are counted that the quadrature does not foresee."""
    for row in rows:
        if row["dim"] == 64 and row["heads"] == 4097:
            row["counted"] = 1 - 1e-6
    return rows


FALSIFIED = {
    "sets": _sets,
    "match3": _match3,
    "rank-heads": _rank_heads,
    "two-candidates": _two_candidates,
    "random-features": _random_features,
    "majority-vote": _majority_vote,
}
