"""Changes of the tables of this group that their claims could not survive, or that would have saved them."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _partition_2d(rows: Rows) -> Rows:
    """The finest sharp grid no better than the one before it."""
    sharp, finest = max(row["c"] for row in rows), max(row["P"] for row in rows)
    for row in rows:
        if row["c"] == sharp and row["P"] == finest:
            row["error"] = row["proved"] = row["worst_case"] = 1.0
    return rows


def _temperature(rows: Rows) -> Rows:
    """Random starts that end as sharp as the partition."""
    for row in rows:
        if row["start"] == "random" and row["share"] == 1.0:
            row["norm_mean"] *= 100.0
    return rows


def _noise(rows: Rows) -> Rows:
    """Noise that halves the norms of every run without it."""
    without = {(r["start"], r["lr"], r["decay"], r["seed"]): r["norm_mean"] for r in rows if r["noise"] == 0}
    for row in rows:
        if row["noise"] > 0:
            row["norm_mean"] = without[row["start"], row["lr"], row["decay"], row["seed"]] / 2
    return rows


def _learnability(rows: Rows) -> Rows:
    """Random starts that do not come below the partition."""
    for row in rows:
        if row["way"].startswith("random start"):
            row["error"], row["proved"] = 2.0, None
    return rows


def _dimension(rows: Rows) -> Rows:
    """A published partition whose size is linear in the number of variables."""
    for row in rows:
        if row["method"] == "published":
            row["keys"] = 10.0 * row["d"]
    return rows


def _perturbation(rows: Rows) -> Rows:
    """A partition that loses its error at the smallest perturbation."""
    least = min(row["eta"] for row in rows if row["eta"])
    for row in rows:
        if row["kind"] == "partition" and row["eta"] == least:
            row["error"] *= 2
    return rows


FALSIFIED = {
    "partition-2d": _partition_2d,
    "temperature": _temperature,
    "noise": _noise,
    "learnability": _learnability,
    "dimension": _dimension,
    "perturbation": _perturbation,
}
