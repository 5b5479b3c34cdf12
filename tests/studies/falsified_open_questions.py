"""Changes of the tables of this group that their claims could not survive, or would have been saved by."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _softmax_distribution(rows: Rows) -> Rows:
    for row in rows:
        if row["part"] == "random":
            row["broken"] = 1
    return rows


def _higher_order(rows: Rows) -> Rows:
    for row in rows:
        if row["part"] == "product" and row["order"] == 3:
            row["rank"] = row["rank_lower"] = row["rule"] + 1
    return rows


FALSIFIED = {"softmax-distribution": _softmax_distribution, "higher-order": _higher_order}
