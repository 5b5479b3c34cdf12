"""What is diagnosed: a network, the inputs it meets, and what it is for, where that is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnfun.language import ArrayAlgebra, run
from attnfun.network import Head, Network, ReluBlock
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

    @cached_property
    def exact(self) -> Network:
        """The network in float64."""
        return replace(self.network, dtype="float64")

    @cached_property
    def streams(self) -> list[Array]:
        """The stream at X before each layer, then the last one, in float64."""
        final = np.asarray(stream(self.exact, self.X), dtype=np.float64)
        return [*(final[:, : layer.width] for layer in self.network.layers), final]

    @cached_property
    def ideal(self) -> Array | None:
        """The last stream as the labels say it: (n, coordinates), or None where a coordinate has no label."""
        network, labels = self.network, self.network.labels
        if labels is None:
            return None
        known = {label.name: label for label in labels.coordinates}
        names = network.coordinates[len(network.inputs) :]
        if not all(name in known for name in names):
            return None
        env = {name: self.X[:, k] for k, name in enumerate(network.inputs)}
        nodes = tuple(index for name in names for index in (known[name].phi, known[name].argument))
        with np.errstate(all="ignore"):
            found = run(labels.program.reachable(nodes), ArrayAlgebra(), env)
        out = [self.X[:, k] for k in range(self.X.shape[1])]
        for name, phi, u in zip(names, found[::2], found[1::2], strict=True):
            column = np.asarray(phi - known[name].slope * np.asarray(u) - known[name].offset, dtype=np.float64)
            out.append(np.broadcast_to(column, (len(self.X),)))
        final = np.stack(out, axis=1)
        return final if np.isfinite(final).all() else None

    def size(self, errors: Array) -> float:
        """Errors at the points of X in the norm that was asked: the largest, or the p-th mean."""
        top = float(errors.max())
        if math.isinf(self.norm) or not 0 < top < math.inf:
            return top
        return top * float(np.mean((errors / top) ** self.norm) ** (1 / self.norm))


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
    new = np.zeros((len(tokens), len(layer.writes)))
    for number, head in enumerate(layer.heads):
        if number != place:
            new[:, columns(layer, head)] += evaluate_head(head, tokens)
    return new


def columns(layer: Layer, head: Head | ReluBlock) -> list[int]:
    """Where the head writes among the layer's new coordinates."""
    return [layer.writes.index(name) for name in head.writes]
