"""Changes of the tables of this group that their claims could not survive."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _beyond_three(rows: Rows) -> Rows:
    """With more candidates heads of rank 1 do as well as full rank."""
    for row in rows:
        if row["way"] == "trained" and row["rank"] == 1 and row["points"] == 8:
            row["error"] = 0.06
    return rows


def _depth_mlp(rows: Rows) -> Rows:
    """Depth changes nothing."""
    one = {
        (row["points"], row["seed"]): row["error"] for row in rows if row["layers"] == 1 and row["rank"] < row["dim"]
    }
    for row in rows:
        if row["way"] == "trained" and row["layers"] > 1:
            row["error"] = one[row["points"], row["seed"]]
    return rows


FALSIFIED = {"beyond-three": _beyond_three, "depth-mlp": _depth_mlp}
