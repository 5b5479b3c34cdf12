"""Changes of the tables of this group that their claims could not survive."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _interpolation_rate(rows: Rows) -> Rows:
    for row in rows:
        if row["way"] == "optimal" and row["p"] == 64:
            row["error"] = row["proved"] * 1.01
    return rows


FALSIFIED = {"interpolation-rate": _interpolation_rate}
