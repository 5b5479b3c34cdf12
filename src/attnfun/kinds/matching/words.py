"""What is said of a model that matches."""

from __future__ import annotations

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.matching.view import Matching
from attnfun.network.words import told_of_tokens as explain

__all__ = ["explain", "record"]


def record(model: Matching) -> dict[str, Any]:
    """What it matches, and what is proved of these weights; of weights that nothing is proved of only the former."""
    target = {**model.target.to_json(), "eps": model.request.get("eps"), "dtype": model.dtype}
    try:
        bound, margin = model.bound, model.margin
    except InvalidRequest:
        return target
    return {
        **target,
        "status": model.certificate.status.value,
        "match_at_least": bound.match,
        "other_at_most": bound.other,
        "margin": margin,
        "scale": bound.scale,
        "null": bound.null,
        "logit_error": bound.logit_error,
        "heads": model.cost.heads,
        "rank": model.cost.rank,
        "parameters": model.cost.parameters,
        "hypotheses": list(bound.hypotheses),
    }
