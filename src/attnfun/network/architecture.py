"""Architecture: the shape of a network without its weights.

Two networks have equal architectures when their weights can be exchanged: inputs, outputs and dtype, and layer by layer
the kind of the heads (softmax heads, or the blocks of units of an MLP), the keys and the query dimension of every axis,
the coordinates each axis reads, and the coordinates each head writes.

`reads` is the wiring: the columns of the query map that are not all zero, so that a head on a product grid, whose axes
read one variable each, stays one when its weights are set free. `Architecture.dense` has every axis read all it can.
Names of heads and coordinates are not part of the shape: they say what constructed weights mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.errors import InvalidRequest

if TYPE_CHECKING:
    from attnfun.network.network import Network

KINDS = ("head", "block")
_KEYS_LIMIT = 1 << 22
_DTYPES = ("float64", "float32")


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


@dataclass(frozen=True)
class AxisShape:
    """`keys` keys in R^dim, the query an affine map of the coordinates `reads` of the stream, in rising order."""

    keys: int
    dim: int
    reads: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (_whole(self.keys, 1) and _whole(self.dim, 1)):
            raise InvalidRequest(f"an axis needs at least one key and one query dimension, not {self.keys}, {self.dim}")
        rising = all(_whole(k, 0) for k in self.reads) and list(self.reads) == sorted(set(self.reads))
        if not rising:
            raise InvalidRequest(f"an axis reads distinct coordinates in rising order, not {list(self.reads)}")


@dataclass(frozen=True)
class HeadShape:
    """The axes of one head and the coordinates it writes, counted within the layer."""

    axes: tuple[AxisShape, ...]
    writes: tuple[int, ...]

    @property
    def keys(self) -> int:
        return prod(axis.keys for axis in self.axes)

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(axis.keys for axis in self.axes)


@dataclass(frozen=True)
class Architecture:
    """Layers of head shapes between named inputs and outputs. Refuses with InvalidRequest what no network can have."""

    inputs: tuple[str, ...]
    layers: tuple[tuple[HeadShape, ...], ...]
    outputs: tuple[str, ...]
    dtype: str = "float64"
    kind: str = "head"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.dtype not in _DTYPES:
            raise InvalidRequest(f"an architecture of {self.kind!r} in {self.dtype!r}: there is none")
        for what, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
                raise InvalidRequest(f"the {what} of an architecture are distinct names, not {list(names)}")
        width = len(self.inputs)
        for number, layer in enumerate(self.layers):
            if not layer or not all(head.axes and head.writes for head in layer):
                raise InvalidRequest(f"layer {number} has no head, or one without keys or outputs")
            if self.kind == "block" and any(len(head.axes) != 1 for head in layer):
                raise InvalidRequest(f"layer {number}: a block of units has one axis")
            if any(axis.reads and axis.reads[-1] >= width for head in layer for axis in head.axes):
                raise InvalidRequest(f"layer {number} reads a coordinate that its stream of {width} does not have")
            if any(len(set(head.writes)) != len(head.writes) for head in layer):
                raise InvalidRequest(f"a head of layer {number} writes a coordinate twice")
            written = list(dict.fromkeys(k for head in layer for k in head.writes))
            if written != list(range(len(written))):
                raise InvalidRequest(f"layer {number} writes {written}, not 0, 1, … in the order of first use")
            width += len(written)
        if any(head.keys > _KEYS_LIMIT for layer in self.layers for head in layer):
            raise InvalidRequest(f"a head has more than {_KEYS_LIMIT} keys")

    @classmethod
    def of(cls, network: Network) -> Architecture:
        layers = []
        for layer in network.layers:
            place = {name: k for k, name in enumerate(layer.writes)}
            heads = []
            for head in layer.heads:
                reads = [tuple(int(k) for k in np.flatnonzero(axis.query.any(axis=0))) for axis in head.axes]
                axes = tuple(AxisShape(a.keys, a.dim, r) for a, r in zip(head.axes, reads, strict=True))
                heads.append(HeadShape(axes, tuple(place[name] for name in head.writes)))
            layers.append(tuple(heads))
        kind = "block" if network.is_mlp else "head"
        return cls(network.inputs, tuple(layers), network.outputs, network.dtype, kind)

    @classmethod
    def one_head(
        cls, inputs: Sequence[str], keys: int | Sequence[int], outputs: Sequence[str] = ("f",), dtype: str = "float64"
    ) -> Architecture:
        """One softmax head: `keys` unstructured keys in R^inputs, or a grid of keys with one axis an input."""
        names = tuple(inputs)
        if isinstance(keys, int):
            axes: tuple[AxisShape, ...] = (AxisShape(keys, len(names), tuple(range(len(names)))),)
        elif len(keys) == len(names):
            axes = tuple(AxisShape(int(count), 1, (k,)) for k, count in enumerate(keys))
        else:
            raise InvalidRequest(f"a grid of {list(keys)} keys for {len(names)} inputs: one number an input is needed")
        return cls(names, ((HeadShape(axes, tuple(range(len(tuple(outputs))))),),), tuple(outputs), dtype)

    @property
    def heads(self) -> tuple[HeadShape, ...]:
        return tuple(head for layer in self.layers for head in layer)

    @property
    def keys(self) -> int:
        return sum(head.keys for head in self.heads)

    @property
    def widths(self) -> tuple[int, ...]:
        """Coordinates of the stream before every layer and after the last."""
        found = [len(self.inputs)]
        for layer in self.layers:
            found.append(found[-1] + 1 + max(k for head in layer for k in head.writes))
        return tuple(found)

    @property
    def free_weights(self) -> int:
        """How many numbers training may choose."""
        axes = sum(a.dim * (len(a.reads) + 1) + a.keys * (a.dim + 1) for head in self.heads for a in head.axes)
        values = sum(head.keys * len(head.writes) for head in self.heads)
        return axes + values + len(self.outputs) * (self.widths[-1] + 1)

    def dense(self) -> Architecture:
        """The same, with every axis reading the whole stream before its layer."""
        layers = []
        for layer, width in zip(self.layers, self.widths, strict=False):
            every = tuple(range(width))
            layers.append(
                tuple(HeadShape(tuple(replace(a, reads=every) for a in head.axes), head.writes) for head in layer)
            )
        return replace(self, layers=tuple(layers))

    def to_json(self) -> dict[str, Any]:
        layers = [
            [
                {
                    "axes": [{"keys": a.keys, "dim": a.dim, "reads": list(a.reads)} for a in head.axes],
                    "writes": list(head.writes),
                }
                for head in layer
            ]
            for layer in self.layers
        ]
        own: dict[str, Any] = {"inputs": list(self.inputs), "outputs": list(self.outputs), "layers": layers}
        return own | {"dtype": self.dtype, "kind": self.kind}

    @classmethod
    def from_json(cls, data: Any) -> Architecture:
        """What `to_json` wrote; InvalidRequest for anything else."""
        try:
            layers = tuple(
                tuple(
                    HeadShape(
                        tuple(AxisShape(a["keys"], a["dim"], tuple(a["reads"])) for a in head["axes"]),
                        tuple(head["writes"]),
                    )
                    for head in layer
                )
                for layer in data["layers"]
            )
            return cls(tuple(data["inputs"]), layers, tuple(data["outputs"]), data["dtype"], data["kind"])
        except (KeyError, TypeError) as error:
            raise InvalidRequest(f"this is no architecture ({error})") from None
