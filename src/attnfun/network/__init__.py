"""Head, Layer, Network: the weights and nothing else; evaluation; the literal form; the file."""

from __future__ import annotations

from attnfun.network.head import Axis, Head, rounded
from attnfun.network.network import Cost, Layer, Network, identical

__all__ = ["Axis", "Cost", "Head", "Layer", "Network", "identical", "rounded"]
