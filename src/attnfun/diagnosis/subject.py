"""What is diagnosed: a network, the inputs it meets, and what it is for, where that is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attnfun.network import Head, Network
from attnfun.network.evaluate import evaluate, evaluate_head, stream
from attnfun.network.head import Array
from attnfun.network.network import Layer


@dataclass(frozen=True, eq=False)
class Subject:
    """`X` (n, inputs): where it is looked at. `target`: (n, inputs) → (n, outputs), or None.

    `slopes` (outputs, inputs): bounds of the target's partial derivatives, with `slopes_how` they were had; `eps`: what
    was asked of the outputs in the `norm`, or None. `picks`: names of heads that are to pick one key each, whatever
    their values; then only these are looked at.
    """

    name: str
    network: Network
    X: Array
    target: Callable[[Array], Array] | None = None
    slopes: Array | None = None
    slopes_how: str = ""
    eps: float | None = None
    norm: float = math.inf
    picks: frozenset[str] = frozenset()

    def size(self, errors: Array) -> float:
        """Errors at the points of X in the norm that was asked: the largest, or the p-th mean."""
        top = float(errors.max())
        if math.isinf(self.norm) or not 0 < top < math.inf:
            return top
        return top * float(np.mean((errors / top) ** self.norm) ** (1 / self.norm))


def tokens_of(network: Network, X: Array) -> list[Array]:
    """The stream before each layer, then the last one."""
    final = np.asarray(stream(network, X), dtype=np.float64)
    widths = [layer.width for layer in network.layers] + [final.shape[1]]
    return [final[:, :width] for width in widths]


def finish(network: Network, depth: int, after: Array) -> Array:
    """The outputs from the stream after layer `depth`; NaN where that stream is not finite."""
    rest = network.layers[depth + 1 :]
    width = after.shape[1]
    names = tuple(f"s{k}" for k in range(width))
    nowhere = np.zeros(width), np.zeros(width)  # evaluation does not ask for the box
    part = Network(names, rest, network.readout, network.readout_bias, network.outputs, nowhere)
    out = np.full((len(after), len(network.outputs)), np.nan)
    good = np.isfinite(after).all(axis=1)
    out[good] = evaluate(part, after[good])
    return out


def others(layer: Layer, place: int, tokens: Array) -> Array:
    """(n, new coordinates) of the layer without what the head at `place` writes."""
    where = {name: index for index, name in enumerate(layer.writes)}
    new = np.zeros((len(tokens), len(where)))
    for number, head in enumerate(layer.heads):
        if number != place:
            new[:, [where[name] for name in head.writes]] += evaluate_head(head, tokens)
    return new


def columns(layer: Layer, head: Head) -> list[int]:
    """Where the head writes among the layer's new coordinates."""
    where = {name: index for index, name in enumerate(layer.writes)}
    return [where[name] for name in head.writes]
