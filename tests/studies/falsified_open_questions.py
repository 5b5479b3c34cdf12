"""Changes of the tables of this group that their claims could not survive."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _ffn_or_not(rows: Rows) -> Rows:
    for row in rows:
        if row["way"] == "constructed" and row["map"] == "maximum":
            row["proved"] = 2 * row["eps"]
    return rows


FALSIFIED = {"ffn-or-not": _ffn_or_not}
