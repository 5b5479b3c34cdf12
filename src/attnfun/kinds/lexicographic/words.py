"""What is said of a model that picks the best key."""

from __future__ import annotations

from typing import Any

from attnfun.kinds.lexicographic.view import LexicographicHead
from attnfun.network.words import told_of_tokens as explain

__all__ = ["explain", "record"]


def record(model: LexicographicHead) -> dict[str, Any]:
    """Which grid, how large the network is, which grids the dtype holds, what the proof rests on."""
    cost, c = model.cost, model.certificate
    sizes = {"layers": cost.layers, "heads": cost.heads, "rank": cost.rank, "parameters": cost.parameters}
    rests = {"hypotheses": list(c.hypotheses)}
    return {"status": c.status.value, "method": model.method, **sizes, **model.limits.record(), **rests}
