"""What the models share: their description in words, and what a file keeps beside weights and target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attnfun.certify import Certificate
from attnfun.network import TokenNetwork, TokenTransformer


def trained_words(asked: str, network: TokenNetwork | TokenTransformer, certificate: Certificate) -> str:
    """What was asked, what was trained on tokens, and what is known of it."""
    cost, c = network.cost, certificate
    count = sum(network.units) if isinstance(network, TokenTransformer) else 0
    units = f"{count:,} ReLU units, " if count else ""
    return (
        f"{asked}\n"
        f"Trained: {cost.layers} attention layer(s), {cost.heads} head(s), {cost.keys:,} constant tokens, "
        f"{units}{cost.parameters:,} parameters, {network.dtype}.\n"
        f"{c.status.value.capitalize()}: {c.reason or f'within {c.error[1]:.3g}'}."
    )


def kept(meta: Mapping[str, Any], dtype: str, text: str, domain: str) -> tuple[Certificate, dict[str, Any]]:
    """The stored certificate, which is not proved anew, and the request; both may be missing."""
    request = meta.get("request")
    certificate = Certificate.stored(meta.get("certificate"), math.inf, dtype, text, domain)
    return certificate, dict(request) if isinstance(request, dict) else {}
