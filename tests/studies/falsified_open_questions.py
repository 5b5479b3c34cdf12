"""Changes of the tables of this group that their claims could not survive, or that would have saved them."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _nonanalytic_sets(rows: Rows) -> Rows:
    for row in rows:
        if row["way"] == "packed":
            row["error"] = row["bound"] + 0.1  # refuted by these; without them nothing is below the bound
    return rows


def _discrete_metric(rows: Rows) -> Rows:
    for row in rows:
        if row["way"] == "coordinates" and row["rank"] == 3:
            row["error"] = row["bound"] * 0.9 - 1e-3
    return rows


def _precision(rows: Rows) -> Rows:
    for row in rows:
        if row["task"] == "pairs mod M":
            row["bits"] = round(1.5 * row["predicted"])
    return rows


FALSIFIED = {
    "nonanalytic-sets": _nonanalytic_sets,
    "discrete-metric": _discrete_metric,
    "precision": _precision,
}
