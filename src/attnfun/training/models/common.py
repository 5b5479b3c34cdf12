"""What the models share: their description in words."""

from __future__ import annotations

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
        f"{c.heading}: {c.reason or f'within {c.error[1]:.3g}'}."
    )
