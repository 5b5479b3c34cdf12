"""What the studies of this group share: partition heads of a given size and temperature, and how they are measured.

| symbol | meaning |
| --- | --- |
| P, h | centres per axis, their spacing |
| R | inverse temperature: logits R(⟨v_j, x⟩ − |v_j|²/2), so the key of centre v_j is R v_j |
| c = R h² | the same in units of the spacing: c/2 is the logit gap between neighbours at a centre |
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af

FULL_PERIOD = "sin(pi*x) + cos(pi*y)"
Array = NDArray[np.float64]
SQUARE = "x=-1:1;y=-1:1"


def target(text: str, domain: str) -> af.language.Function:
    return af.language.Function.read(text, af.Box.parse(domain), None)


def partition_head(
    function: af.language.Function, cells: Sequence[int], c: float, ends: bool = False
) -> af.network.Network:
    """The published head: a key R v_j and the value f(v_j) for every centre v_j of a product grid, R = c/h² an axis.

    Centres are the midpoints of equal cells of the box; with `ends` they are equispaced with both ends of every side
    among them, which are the midpoints of a box that is wider by half a spacing on all sides.
    """
    if ends:
        box, sides = function.box, zip(function.box.names, function.box.low, function.box.high, cells, strict=True)
        wider = {name: (a - (b - a) / (2 * (n - 1)), b + (b - a) / (2 * (n - 1))) for name, a, b, n in sides}
        function = af.language.Function.read(function.text, af.Box.parse(wider), None)
        assert function.box.names == box.names
    request = af.parts.Request(function, 1.0, math.inf, "float64")
    return af.parts.build_grid(request, af.parts.Grid(tuple(cells), (c / 2,) * len(cells)))


def unstructured(network: af.network.Network) -> af.network.Network:
    """The same single head with every key of its grid written out: one axis of keys in R^d."""
    (layer,) = network.layers
    (head,) = layer.attention
    slopes, biases = head.dense_keys()
    query, offset = head.query_map
    axis = af.network.Axis(query, offset, slopes, biases)
    free = af.network.Head(head.name, (axis,), head.values.reshape(-1, head.outputs), head.writes)
    return replace(network, layers=(af.network.Layer((free,)),), labels=None)


def trained_head(cells: int, c: float | None, **options: Any) -> Any:
    """One head of cells² unstructured keys, trained on FULL_PERIOD from a random start, or from the partition at c."""
    function = target(FULL_PERIOD, SQUARE)
    start = "random" if c is None else unstructured(partition_head(function, (cells, cells), c))
    shape = af.Architecture.one_head(function.box.names, cells * cells)
    return af.train(shape, function, start=start, batch=128, proof=False, **options)


def state(point: Any) -> dict[str, float]:
    """What a point of a training's history says of the head: its errors, how sharp it is, its largest value."""
    sharp = {"norm_mean": point.key_norm_mean, "norm_max": point.key_norm_max, "effective_keys": point.effective_keys}
    return {"error": point.sup, "rms": point.loss**0.5, "value_max": point.value_max, **sharp}


def sup_error(network: af.network.Network, function: af.language.Function) -> float:
    """The largest error at the points on which `compare` and sampled certificates look: measured, no bound."""
    return float(af.learn.measured(function, network).errors.max())


def sharpness(network: af.network.Network, function: af.language.Function) -> tuple[float, float, float]:
    """(mean key norm, largest key norm, effective keys): how sharply a network attends."""
    points = function.box.sample(64, np.random.default_rng([20, function.box.dim]))
    mean, top = af.learn.key_norms(network)
    shared = af.learn.effective_keys(network, points)
    assert mean is not None and top is not None and shared is not None
    return mean, top, shared


def perturbed(network: af.network.Network, eta: float, rng: np.random.Generator) -> af.network.Network:
    """Every weight w as w (1 + η u), u uniform on [−1, 1]; labels, which would no longer be true, are dropped."""

    def moved(array: Array) -> Array:
        return array * (1.0 + eta * rng.uniform(-1.0, 1.0, array.shape))

    def axis(one: af.network.Axis) -> af.network.Axis:
        return replace(one, **{name: moved(array) for name, array in one.arrays.items()})

    layers = []
    for layer in network.layers:
        heads = [replace(h, axes=tuple(map(axis, h.axes)), values=moved(h.values)) for h in layer.attention]
        layers.append(af.network.Layer(tuple(heads)))
    ends = moved(network.readout), moved(network.readout_bias)
    return replace(network, layers=tuple(layers), readout=ends[0], readout_bias=ends[1], labels=None)
