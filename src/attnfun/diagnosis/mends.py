"""What a mend does to the weights: the same network but for one head. Labels stay: they say what was meant."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnfun.diagnosis.attention import RIDGES, alive, attend, fit, scaled_head, weights_of
from attnfun.diagnosis.findings import Mend
from attnfun.diagnosis.judge import judge
from attnfun.diagnosis.record import Figures
from attnfun.diagnosis.subject import Subject
from attnfun.errors import InvalidRequest
from attnfun.network import Head, Network
from attnfun.network.head import Axis, rounded
from attnfun.network.network import Layer


def scaled(network: Network, layer: int, place: int, factor: float) -> Network:
    """The network with the logits of one head multiplied by `factor`."""
    return replaced(network, layer, place, scaled_head(_head(network, layer, place), factor))


def dropped(network: Network, layer: int, place: int, axis: int, keep: NDArray[np.bool_]) -> Network:
    """The network with only the keys `keep` (a mask) of one axis of one head."""
    head = _head(network, layer, place)
    one = head.axes[axis]
    fewer = Axis(one.query, one.offset, one.slopes[keep], one.biases[keep])
    axes = (*head.axes[:axis], fewer, *head.axes[axis + 1 :])
    return replaced(network, layer, place, replace(head, axes=axes, values=np.compress(keep, head.values, axis=axis)))


def replaced(network: Network, layer: int, place: int, head: Head) -> Network:
    """The network with another head in one place, its weights rounded to the network's dtype."""
    axes = tuple(
        Axis(axis.query, axis.offset, rounded(axis.slopes, network.dtype), rounded(axis.biases, network.dtype))
        for axis in head.axes
    )
    head = replace(head, axes=axes, values=rounded(head.values, network.dtype))
    heads = network.layers[layer].heads
    own = Layer((*heads[:place], head, *heads[place + 1 :]))
    return replace(network, layers=(*network.layers[:layer], own, *network.layers[layer + 1 :]))


def _head(network: Network, layer: int, place: int) -> Head:
    head = network.layers[layer].heads[place]
    if not isinstance(head, Head):
        raise InvalidRequest("a block of ReLU units has no logits to mend")
    return head


def mended(subject: Subject, f: Figures, mend: Mend) -> Network:
    """The subject's network with the mend done to the head of these figures.

    "scale", "refit" and "drop" are done here; more keys, another dtype or merged pairs are for a new construction.
    """
    network = subject.network
    head = _head(network, f.layer, f.place)
    if mend.action == "scale" and mend.factor is not None:
        return scaled(network, f.layer, f.place, mend.factor)
    if mend.action == "refit":
        verdict = judge(subject, f.layer, f.place)
        if verdict.wanted is None:
            raise InvalidRequest("it is not known what this head should write: its values cannot be fitted")
        new = scaled_head(head, mend.factor or 1.0)
        values = fit(weights_of(new, verdict.tokens), verdict.wanted, f.refit_ridge or RIDGES[0])
        return replaced(network, f.layer, f.place, replace(new, values=values.reshape(head.values.shape)))
    if mend.action == "drop":
        for number, live in enumerate(alive(head, attend(head, subject.streams[f.layer]).peaks, f.tolerance)):
            network = dropped(network, f.layer, f.place, number, live)
        return network
    raise InvalidRequest(f"the mend {mend.action!r} is not one that is done to the weights: {mend.words}")
