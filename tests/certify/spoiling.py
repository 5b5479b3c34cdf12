"""Sequence networks with spoilt weights, and a hunt for the worst error of a sequence network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.kinds.sequence.network import Apply, Gather, SequenceNetwork
from attnfun.kinds.sequence.prove import probes
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.network import Axis, Head, Layer, Network


def spoilt(network: SequenceNetwork, rng: np.random.Generator, size: float) -> SequenceNetwork:
    """Every weight times 1 + size·N(0, 1); of a network without any weights nothing changes."""

    def shaken(array: Any) -> Any:
        return np.asarray(array) * (1 + size * rng.standard_normal(np.shape(array)))

    stages: list[Any] = []
    for stage in network.stages:
        if isinstance(stage, Gather):
            heads = [
                replace(h, key=shaken(h.key), value=shaken(h.value), offset=shaken(h.offset),
                        scores=None if h.scores is None else shaken(h.scores))
                for h in stage.heads
            ]  # fmt: skip
            stages.append(Gather(tuple(heads)))
        elif isinstance(stage, Apply):
            stages.append(replace(stage, networks=tuple(_spoilt(one, shaken) for one in stage.networks)))
        else:
            stages.append(stage)
    return replace(network, stages=tuple(stages))


def _spoilt(network: Network, shaken: Any) -> Network:
    layers = []
    for layer in network.layers:
        heads = []
        for head in layer.attention:
            axes = tuple(Axis(shaken(a.query), shaken(a.offset), shaken(a.slopes), shaken(a.biases)) for a in head.axes)
            heads.append(Head(head.name, axes, shaken(head.values), head.writes, head.key_names))
        layers.append(Layer(tuple(heads)))
    low, high = network.box
    room = 0.05 * (high - low)  # what is gathered by spoilt weights may lie farther out
    return replace(
        network,
        layers=tuple(layers),
        readout=shaken(network.readout),
        readout_bias=shaken(network.readout_bias),
        box=(low - room, high + room),
    )


def worst_error(run: Any, target: SequenceMap, rng: np.random.Generator, rounds: int = 12) -> float:
    """The largest |run(X) − target(X)| that random sequences, corners, ties and a local search find."""
    box = target.box

    def score(X: Any) -> Any:
        return np.nan_to_num(np.abs(run(X) - target.values(X))).reshape(len(X), -1).max(axis=1)

    X = probes(target, 600, rng)
    errors = score(X)
    top = X[np.argsort(errors)[-12:]]
    best, step = float(errors.max()), 0.1
    width = box.high_array - box.low_array
    for _ in range(rounds):
        Y = np.repeat(top, 8, axis=0)
        Y = np.clip(Y + step * width * rng.standard_normal(Y.shape), box.low_array, box.high_array)
        Y = np.concatenate([top, Y])
        errors = score(Y)
        top = Y[np.argsort(errors)[-12:]]
        best, step = max(best, float(errors.max())), step * 0.6
    return best
