"""What the studies of this group share: partition heads of a given size and temperature, and how they are measured.

| symbol | meaning |
| --- | --- |
| P, h | centres an axis, their spacing |
| R | inverse temperature: logits R(⟨v_j, x⟩ − |v_j|²/2), so the key of centre v_j is R v_j |
| c = R h² | the same in units of the spacing: c/2 is the logit gap between neighbours at a centre |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnfun.constructions import Request
from attnfun.constructions.partition import Grid, build_grid
from attnfun.learn.probe import effective_keys, errors, key_norms
from attnfun.network import Axis, Head, Layer, Network
from attnfun.network.head import Array
from attnfun.targets import Box, Function
from attnfun.training.train import measuring_points

FULL_PERIOD = "sin(pi*x) + cos(pi*y)"
SQUARE = "x=-1:1;y=-1:1"


def target(text: str, domain: str) -> Function:
    return Function.read(text, Box.parse(domain), None)


def partition_head(function: Function, cells: Sequence[int], c: float, ends: bool = False) -> Network:
    """The published head: a key R v_j and the value f(v_j) for every centre v_j of a product grid, R = c/h² an axis.

    Centres are the midpoints of equal cells of the box; with `ends` they are equispaced with both ends of every side
    among them, which are the midpoints of a box that is wider by half a spacing on all sides.
    """
    if ends:
        box, sides = function.box, zip(function.box.names, function.box.low, function.box.high, cells, strict=True)
        wider = {name: (a - (b - a) / (2 * (n - 1)), b + (b - a) / (2 * (n - 1))) for name, a, b, n in sides}
        function = Function.read(function.text, Box.parse(wider), None)
        assert function.box.names == box.names
    return build_grid(Request(function, 1.0, math.inf, "float64"), Grid(tuple(cells), (c / 2,) * len(cells)))


def unstructured(network: Network) -> Network:
    """The same single head with every key of its grid written out: one axis of keys in R^d."""
    (layer,) = network.layers
    (head,) = layer.attention
    slopes, biases = head.dense_keys()
    query, offset = head.query_map
    axis = Axis(query, offset, slopes, biases)
    free = Head(head.name, (axis,), head.values.reshape(-1, head.outputs), head.writes)
    return replace(network, layers=(Layer((free,)),), labels=None)


def sup_error(network: Network, function: Function) -> float:
    """The largest error at the points on which `compare` and sampled certificates look: measured, no bound."""
    return float(errors(network, function, measuring_points(function.box)).max())


def sharpness(network: Network, function: Function) -> tuple[float, float, float]:
    """(mean key norm, largest key norm, effective keys): how sharply a network attends."""
    points = function.box.sample(64, np.random.default_rng([20, function.box.dim]))
    mean, top = key_norms(network)
    shared = effective_keys(network, points)
    assert mean is not None and top is not None and shared is not None
    return mean, top, shared


def perturbed(network: Network, eta: float, rng: np.random.Generator) -> Network:
    """Every weight w as w (1 + η u), u uniform on [−1, 1]; labels, which would no longer be true, are dropped."""

    def moved(array: Array) -> Array:
        return array * (1.0 + eta * rng.uniform(-1.0, 1.0, array.shape))

    layers = []
    for layer in network.layers:
        heads = []
        for head in layer.attention:
            axes = tuple(Axis(moved(a.query), moved(a.offset), moved(a.slopes), moved(a.biases)) for a in head.axes)
            heads.append(Head(head.name, axes, moved(head.values), head.writes, head.key_names))
        layers.append(Layer(tuple(heads)))
    ends = moved(network.readout), moved(network.readout_bias)
    return replace(network, layers=tuple(layers), readout=ends[0], readout_bias=ends[1], labels=None)
