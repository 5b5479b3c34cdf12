"""What is diagnosed: a network, the inputs it meets, and what it is for, where that is known.

**How far a head is off**: from what its labels say it writes, or, where it has none, through the outputs.

| a head whose coordinates have | is compared with |
| --- | --- |
| labels (composed networks) | φ − aU − b of its coordinate (*), less what other heads write |
| no labels | the target |
| no labels and no target | nothing: errors are None |

Errors are always those that the head causes at the outputs, through the layers above it, divided by its gain, and so in
units of what it writes.
(*) at inputs as they would be if all heads below were right: a head is not blamed for what it is fed.
Gain: how much a change of what the head writes moves the outputs; exact behind the last layer (the read-out is linear),
else sampled by moving each coordinate by a thousandth of its size. Everything is computed in float64 from the stored
weights.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attnfun.language import Array, ArrayAlgebra, run
from attnfun.language.brief import Brief
from attnfun.learn.probe import off
from attnfun.network import Head, Layer, Network, ReluBlock, evaluate, evaluate_head, stream


@dataclass(frozen=True, eq=False)
class Subject(Brief):
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


STAND_IN = 0.01
"""Without an eps: this share of the range of what the network is to compute, or computes."""

_CONSTANT = 1e-12  # outputs that differ by no more than this share of what is mixed for them are one number


@dataclass(frozen=True, eq=False)
class Judge:
    """`outputs`: what the network gives if the head writes (n, p); `truth`: what it should, or None; `wanted`: what the
    head should write, where that can be said.
    """

    tokens: Array
    gain: float
    outputs: Callable[[Array], Array]
    truth: Array | None
    wanted: Array | None

    def errors(self, out: Array) -> Array:
        """(n,) how far the outputs are off if the head writes `out`, in units of the head."""
        assert self.truth is not None
        return worst(self.outputs(out), self.truth) / self.gain


def judge(subject: Subject, depth: int, place: int) -> Judge:
    """The judge of one head, by the stream after the last layer as it should be, or without labels as it is."""
    network, labelled = subject.exact, subject.ideal is not None
    final = subject.streams[-1] if subject.ideal is None else subject.ideal
    layer = network.layers[depth]
    head = layer.heads[place]
    assert isinstance(head, Head)
    where = columns(layer, head)
    start = layer.width
    tokens = final[:, :start]
    own = [start + c for c in where]
    if depth == len(network.layers) - 1:
        gain = float(np.abs(network.readout[:, own]).sum(axis=1).max())
    else:
        gain = _gain(network, depth, final[:, : start + len(layer.writes)], own)
    rest = others(layer, place, tokens)
    base = np.concatenate([tokens, rest], axis=1)

    def outputs(out: Array) -> Array:
        moved = base.copy()
        moved[:, own] += out
        return finish(network, depth, moved)

    wanted = final[:, own] - rest[:, where] if labelled else None
    truth = None if wanted is None else outputs(wanted)
    if not labelled and subject.target is not None:
        truth = values_of(subject.target, subject.X)
        reads = network.readout[:, own]
        if depth == len(network.layers) - 1 and np.linalg.matrix_rank(reads) == len(own):
            missing = truth - outputs(np.zeros((len(tokens), len(own))))
            wanted = np.where(np.isfinite(missing), missing, 0.0) @ np.linalg.pinv(reads).T
    return Judge(tokens, gain, outputs, truth if gain > 0 else None, wanted)


def tolerance(subject: Subject, outputs: Array) -> tuple[float, str]:
    """(eps, how it was had)."""
    if subject.eps is not None:
        return subject.eps, "asked"
    shown = outputs if subject.target is None else values_of(subject.target, subject.X)
    finite = np.where(np.isfinite(shown), shown, np.nan)
    span = float(np.nan_to_num(np.nanmax(finite, axis=0) - np.nanmin(finite, axis=0)).max())
    size = float(np.nan_to_num(np.abs(finite)).max())
    if subject.target is None:  # outputs of the network itself, whose range may be nothing but rounding
        network = subject.network
        values = max((head.max_value for head in network.layers[-1].heads), default=0.0) if network.layers else 0.0
        mixed = max(size, values * float(np.abs(network.readout).max(initial=0.0)))
        if not span > _CONSTANT * mixed:
            span, size = 0.0, mixed
    return STAND_IN * (span or size or 1.0), "1 % of the range"


def values_of(target: Callable[[Array], Array], X: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(target(X), dtype=np.float64).reshape(len(X), -1)


def worst(found: Array, truth: Array) -> Array:
    """(n,) the largest |found − truth| over the outputs: 0 where there is no truth, infinite where found is NaN."""
    return np.asarray(off(found, truth).max(axis=1))


def _gain(network: Network, depth: int, after: Array, own: list[int]) -> float:
    base = finish(network, depth, after)
    total = np.zeros(len(base))
    for column in own:
        step = 1e-3 * (float(np.ptp(after[:, column])) or 1.0)
        moved = after.copy()
        moved[:, column] += step
        up = np.abs(finish(network, depth, moved) - base).max(axis=1)
        moved[:, column] -= 2 * step
        down = np.abs(finish(network, depth, moved) - base).max(axis=1)
        total += np.maximum(up, down) / step
    return float(total.max())
