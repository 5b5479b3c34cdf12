"""Head, Layer, Network: the weights and nothing else; evaluation; the literal form; the file."""

from __future__ import annotations

from attnfun.network.evaluate import attention, chosen_routes, evaluate, evaluate_head, head_routes, routes, stream
from attnfun.network.head import Axis, Head, rounded
from attnfun.network.local import LocalAxis, LocalPlan, local_plan
from attnfun.network.network import Cost, Layer, Network, identical

__all__ = [
    "Axis",
    "Cost",
    "Head",
    "Layer",
    "LocalAxis",
    "LocalPlan",
    "Network",
    "attention",
    "chosen_routes",
    "evaluate",
    "evaluate_head",
    "head_routes",
    "identical",
    "local_plan",
    "rounded",
    "routes",
    "stream",
]
