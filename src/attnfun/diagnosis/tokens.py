"""What can be said of a model whose heads attend over tokens: there are no fixed keys to look at."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnfun.diagnosis.rounding import DTYPES
from attnfun.diagnosis.subject import Subject
from attnfun.network.token_transformer import TokenTransformer
from attnfun.network.tokens import TokenNetwork


def subjects(model: Any, _eps: float | None) -> tuple[str, list[Subject], list[str]]:
    """Remarks and no subject, for every kind whose weights are, or hold, a network on tokens."""
    network = getattr(model.weights, "network", model.weights)
    remarks = []
    if isinstance(network, TokenTransformer):
        remarks = [f"{sum(network.units):,} ReLU units stand between its layers, and are not looked at."]
        network = network.attention
    return f"a network on tokens ({type(model).__name__})", [], [_tokens(network), *remarks]


def _tokens(network: TokenNetwork) -> str:
    """What can be said of a network whose keys are tokens."""
    arrays = [array for layer in network.layers for head in layer.heads for array in head.arrays.values()]
    largest = max((float(np.abs(array).max()) for array in arrays), default=0.0)
    u = DTYPES[network.dtype].roundoff
    return (
        f"Its heads attend over the tokens of the prompt: keys are data, there are no fixed ones to diagnose; "
        f"layers: {len(network.layers)}, weights up to {largest:.3g}, kept by {network.dtype} within {u * largest:.1g}."
    )
