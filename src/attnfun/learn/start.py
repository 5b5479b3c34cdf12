"""Random weights to start from.

In the units of `weights.py`: keys, biases and values standard normal, as in the experiments that trained heads are
compared with; a query of as many dimensions as it reads coordinates starts as the identity, any other as a normal
matrix over √(coordinates); the read-out gives what the layers write ±1/√(their number), the inputs nothing, and its
bias is the mean of the target.
"""

from __future__ import annotations

import numpy as np

from attnfun.language.function import Function
from attnfun.learn.probe import probe_points
from attnfun.learn.weights import Units, joined, layout, network_of
from attnfun.network import Architecture, Network
from attnfun.network.head import Array


def random_network(architecture: Architecture, function: Function, seed: int) -> Network:
    """A network of this shape on the box of `function`; the same seed gives the same bits."""
    rng = np.random.default_rng([seed, 0])
    points = probe_points(function.box)
    units = Units.of(function, points)
    arrays: dict[str, Array] = {}
    for name, shape in layout(architecture):
        kind = name.rsplit("/", 1)[-1]
        if kind == "query":
            square = shape[0] == shape[1]
            arrays[name] = np.eye(shape[0]) if square else rng.standard_normal(shape) / np.sqrt(max(1, shape[1]))
        elif kind == "offset":
            arrays[name] = np.zeros(shape)
        elif kind == "readout":
            written = np.array(architecture.readout) >= len(architecture.inputs)
            arrays[name] = rng.choice((-1.0, 1.0), size=shape) * written / np.sqrt(max(1, written.sum()))
        elif kind == "readout_bias":
            with np.errstate(all="ignore"):
                mean = np.mean(function.values(points), axis=0) / units.scale
            arrays[name] = np.where(np.isfinite(mean), mean, 0.0)
        else:
            arrays[name] = rng.standard_normal(shape)
    return network_of(architecture, joined(architecture, arrays), function.box, units)
