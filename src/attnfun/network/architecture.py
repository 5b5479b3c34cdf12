"""Architecture: the shape of a network without its weights.

Two networks have equal architectures when their weights can be exchanged: inputs, outputs and dtype, and layer by layer
the kind of the heads (softmax heads, or the blocks of units of an MLP), the keys and the query dimension of every axis,
the coordinates each axis reads, and the coordinates each head writes; then the coordinates that the read-out reads.

`reads` is the wiring: the columns of a query map or of the read-out that are not all zero, so that a head on a product
grid, whose axes read one variable each, stays one when its weights are set free, and a network without an affine part
gets none. `Architecture.dense` has everything read all it can.
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
    from attnfun.network.head import Array
    from attnfun.network.network import Network

KINDS = ("head", "block")
_KEYS_LIMIT = 1 << 22
_DTYPES = ("float64", "float32")


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _rising(places: tuple[int, ...]) -> bool:
    return all(_whole(k, 0) for k in places) and list(places) == sorted(set(places))


@dataclass(frozen=True)
class AxisShape:
    """`keys` keys in R^dim, the query an affine map of the coordinates `reads` of the stream, in rising order."""

    keys: int
    dim: int
    reads: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (_whole(self.keys, 1) and _whole(self.dim, 1)):
            raise InvalidRequest(f"an axis needs at least one key and one query dimension, not {self.keys}, {self.dim}")
        if not _rising(self.reads):
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
    """Layers of head shapes between named inputs and outputs; `reads` is that of the read-out, everything unless given.

    Refuses with InvalidRequest what no network can have.
    """

    inputs: tuple[str, ...]
    layers: tuple[tuple[HeadShape, ...], ...]
    outputs: tuple[str, ...]
    dtype: str = "float64"
    kind: str = "head"
    reads: tuple[int, ...] | None = None

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
        reads = tuple(range(width)) if self.reads is None else self.reads
        if not (_rising(reads) and all(k < width for k in reads)):
            raise InvalidRequest(f"the read-out of a stream of {width} cannot read {list(reads)}")
        object.__setattr__(self, "reads", reads)

    @classmethod
    def of(cls, network: Network) -> Architecture:
        layers = []
        for layer in network.layers:
            place = {name: k for k, name in enumerate(layer.writes)}
            heads = []
            for head in layer.heads:
                axes = tuple(AxisShape(a.keys, a.dim, _used(a.query)) for a in head.axes)
                heads.append(HeadShape(axes, tuple(place[name] for name in head.writes)))
            layers.append(tuple(heads))
        kind = "block" if network.is_mlp else "head"
        return cls(network.inputs, tuple(layers), network.outputs, network.dtype, kind, _used(network.readout))

    @classmethod
    def one_head(
        cls,
        inputs: Sequence[str],
        keys: int | Sequence[int],
        outputs: Sequence[str] = ("f",),
        dtype: str = "float64",
        affine: bool = False,
    ) -> Architecture:
        """One softmax head: `keys` unstructured keys in R^inputs, or a grid of keys with one axis an input.

        With `affine` the read-out takes the inputs too, which the residual stream carries past the head.
        """
        names, count = tuple(inputs), len(tuple(outputs))
        grid = isinstance(keys, Sequence | np.ndarray)
        sizes: list[Any] = list(keys) if isinstance(keys, Sequence | np.ndarray) else [keys]
        if not all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes):
            raise InvalidRequest(f"keys={keys!r:.40}: a whole number, or one for every input, is needed")
        if grid and len(sizes) != len(names):
            raise InvalidRequest(f"a grid of {sizes} keys for {len(names)} inputs: one number an input is needed")
        places = [(k,) for k in range(len(names))] if grid else [tuple(range(len(names)))]
        axes = tuple(AxisShape(int(size), len(reads), reads) for size, reads in zip(sizes, places, strict=True))
        read = None if affine else tuple(range(len(names), len(names) + count))
        return cls(names, ((HeadShape(axes, tuple(range(count))),),), tuple(outputs), dtype, reads=read)

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
    def readout(self) -> tuple[int, ...]:
        """The coordinates of the final stream that the read-out reads."""
        assert self.reads is not None
        return self.reads

    @property
    def free_weights(self) -> int:
        """How many numbers training may choose."""
        axes = sum(a.dim * (len(a.reads) + 1) + a.keys * (a.dim + 1) for head in self.heads for a in head.axes)
        values = sum(head.keys * len(head.writes) for head in self.heads)
        return axes + values + len(self.outputs) * (len(self.readout) + 1)

    def dense(self) -> Architecture:
        """The same, with every axis and the read-out reading the whole stream before them."""
        layers = []
        for layer, width in zip(self.layers, self.widths, strict=False):
            every = tuple(range(width))
            layers.append(
                tuple(HeadShape(tuple(replace(a, reads=every) for a in head.axes), head.writes) for head in layer)
            )
        return replace(self, layers=tuple(layers), reads=None)

    def holds(self, other: Architecture) -> bool:
        """Whether weights of `other` are weights of this shape: the same shape, where it may read less."""
        if self.dense() != other.dense():
            return False
        pairs = [(self.readout, other.readout)]
        for mine, yours in zip(self.heads, other.heads, strict=True):
            pairs += [(a.reads, b.reads) for a, b in zip(mine.axes, yours.axes, strict=True)]
        return all(set(few) <= set(many) for many, few in pairs)

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
        return own | {"dtype": self.dtype, "kind": self.kind, "reads": list(self.readout)}

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
            names, reads = (tuple(data["inputs"]), tuple(data["outputs"])), tuple(data["reads"])
            return cls(names[0], layers, names[1], data["dtype"], data["kind"], reads)
        except (KeyError, TypeError) as error:
            raise InvalidRequest(f"this is no architecture ({error})") from None


def _used(matrix: Array) -> tuple[int, ...]:
    """The columns that are not all zero."""
    return tuple(int(k) for k in np.flatnonzero(matrix.any(axis=0)))
