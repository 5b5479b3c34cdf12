"""Stacks: a network whose outputs are read by the head of a tower, as one network from x to the features.

The read-out of the inner network is linear and so is the query of a head: a head that asks w û + c, û = W s + b the
inner network's output and s its stream, asks (w W) s + (w b + c). So the layers stand one after the other, no number
leaves the network, and what is stored is the inner network and the tower on its own; `stacked` multiplies them out.
"""

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.network.head import Axis, Head
from attnfun.network.network import Layer, Network


def stacked(inner: Network, outer: Network) -> Network:
    """`outer`, one layer of heads whose axes read one input each, on top of the outputs of `inner`; float64.

    The read-out of `outer` may only take what its heads write (a tower's does).
    """
    if len(inner.outputs) != len(outer.inputs) or len(outer.layers) != 1:
        raise InvalidRequest("a stack needs one layer of heads that read the outputs of the network below")
    if inner.is_mlp or outer.is_mlp or inner.dtype != "float64" or outer.dtype != "float64":
        raise InvalidRequest("a stack is made of softmax heads in float64")
    d, width = len(outer.inputs), len(inner.coordinates)
    require(not outer.readout[:, :d].any(), "the read-out of a stacked tower takes features only")
    taken, mark = set(inner.coordinates), ""
    while any(mark + name in taken for name in outer.layers[0].writes):
        mark += "_"
    heads = []
    for head in outer.layers[0].attention:
        axes = tuple(Axis(*_read(axis, inner), axis.slopes, axis.biases) for axis in head.axes)
        heads.append(Head(head.name, axes, head.values, tuple(mark + n for n in head.writes), head.key_names))
    readout = np.hstack([np.zeros((len(outer.outputs), width)), outer.readout[:, d:]])
    layers = (*inner.layers, Layer(tuple(heads)))
    return Network(inner.inputs, layers, readout, outer.readout_bias, outer.outputs, inner.box)


def _read(axis: Axis, inner: Network) -> tuple[np.ndarray, np.ndarray]:
    """The query map of an axis that reads one output of `inner`, as one of its stream."""
    used = np.flatnonzero(axis.query[0])
    require(len(axis.query) == len(used) == 1, "an axis of a stack does not read one output of the network below")
    k, w = int(used[0]), float(axis.query[0, used[0]])
    return w * inner.readout[k][None, :], np.array([w * inner.readout_bias[k] + axis.offset[0]])
