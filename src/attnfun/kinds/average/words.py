"""What is said of a model that averages over named positions."""

from __future__ import annotations

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.average.target import rule_of_thumb
from attnfun.kinds.average.view import SparseAverage
from attnfun.network.words import told_of_tokens as explain

__all__ = ["explain", "record"]


def record(model: SparseAverage) -> dict[str, Any]:
    """What it averages, and what is proved of these weights; of weights that nothing is proved of only the former."""
    target = model.target
    asked: dict[str, Any] = {"tokens": target.tokens, "q": target.q, "codes": target.keys}
    asked |= {"dimension": target.width, "eps": target.others, "subsets": len(target.subsets)}
    asked |= {"rule_of_thumb": rule_of_thumb(target.tokens, target.q)}
    try:
        bound, bits = model.bound, model.bits
    except InvalidRequest:
        return asked
    return {
        **asked,
        "status": model.certificate.status.value,
        "heads": target.heads,
        "margin": bound.margin,
        "beta": bound.beta,
        "bits": bits,
        "error": bound.error,
        "parameters": model.cost.parameters,
        "hypotheses": list(model.certificate.hypotheses),
        "published": [model.published.record()],
    }
