"""Changes of the tables of this group that their claims could not survive, or that would have saved them."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]


def _structure(rows: Rows) -> Rows:
    """A target without structure that needs ten keys a variable."""
    for row in rows:
        if row["family"] == "all products":
            row["keys"] = 10.0 * row["d"]
    return rows


FALSIFIED = {"structure": _structure}
