"""Architectures: the shape of a network without its weights.

**Architecture**, of networks on a box. Two networks have equal architectures when their weights can be exchanged:
inputs, outputs and dtype, and layer by layer the kind of the heads (softmax heads, or the blocks of units of an MLP),
the keys and the query dimension of every axis, the coordinates each axis reads, and the coordinates each head writes;
then the coordinates that the read-out reads.

`reads` is the wiring: the columns of a query map or of the read-out that are not all zero, so that a head on a product
grid, whose axes read one variable each, stays one when its weights are set free, and a network without an affine part
gets none. `Architecture.dense` has everything read all it can.
Names of heads and coordinates are not part of the shape: they say what constructed weights mean.

**TokenArchitecture**, of networks on a token matrix, with or without feed-forward units. Equal architectures can
exchange their weights: the named coordinates of a token, layer by layer the query dimension r and the value dimension p
of every head, whether the stream is carried by a matrix of its own, and the ReLU units that follow; the number of
constant tokens; the outputs. Constant tokens are weights. What the given tokens hold at first (ones, positions, the
prompt) is not: it belongs to the target (`Target.token_coordinates`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.language.numbers import whole_number
from attnfun.language.target import Target
from attnfun.network.head import require_dtype, require_names
from attnfun.network.store import revived

if TYPE_CHECKING:
    from attnfun.network.head import Array
    from attnfun.network.network import Network

KINDS = ("head", "block")
_KEYS_LIMIT = 1 << 22
_MOST, _WIDEST = 1 << 24, 1 << 16
Part = tuple[str, tuple[int, ...]]


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _rising(places: tuple[int, ...]) -> bool:
    return all(_whole(k, 0) for k in places) and list(places) == sorted(set(places))


class Shape(Brief):
    """What both architectures can: be JSON, and name their free arrays in the order of a vector of weights."""

    def layout(self) -> Iterator[Part]:
        """Name and shape of every free array, in the order of the vector."""
        raise NotImplementedError

    @property
    def free_weights(self) -> int:
        """How many numbers training may choose."""
        return sum(prod(shape) for _, shape in self.layout())

    def to_json(self) -> dict[str, Any]:
        own: Any = self
        return json.loads(json.dumps(asdict(own)))

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """What `to_json` wrote; InvalidRequest for anything else."""
        try:
            return revived(cls, data)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequest(f"this is no architecture ({error})") from None


@dataclass(frozen=True)
class AxisShape(Brief):
    """`keys` keys in R^dim, the query an affine map of the coordinates `reads` of the stream, in rising order."""

    keys: int
    dim: int
    reads: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (_whole(self.keys, 1) and _whole(self.dim, 1)):
            raise InvalidRequest(f"an axis needs at least one key and one query dimension, not {self.keys}, {self.dim}")
        require(_rising(self.reads), f"an axis reads distinct coordinates in rising order, not {list(self.reads)}")


@dataclass(frozen=True)
class HeadShape(Brief):
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
class Architecture(Shape):
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
        require(self.kind in KINDS, f"an architecture of {self.kind!r}: there is none")
        require_dtype(self.dtype)
        require_names(inputs=self.inputs, outputs=self.outputs)
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
        require(all(head.keys <= _KEYS_LIMIT for head in self.heads), f"a head has more than {_KEYS_LIMIT} keys")
        reads = tuple(range(width)) if self.reads is None else self.reads
        require(_rising(reads) and all(k < width for k in reads), f"a stream of {width} is not read at {list(reads)}")
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
        require(not grid or len(sizes) == len(names), f"a grid of {sizes} keys for {len(names)} inputs: one an input")
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

    def layout(self) -> Iterator[Part]:
        for number, layer in enumerate(self.layers):
            for place, head in enumerate(layer):
                here = f"layer{number}/{self.kind}{place}"
                for k, axis in enumerate(head.axes):
                    yield f"{here}/axis{k}/query", (axis.dim, len(axis.reads))
                    yield f"{here}/axis{k}/offset", (axis.dim,)
                    yield f"{here}/axis{k}/slopes", (axis.keys, axis.dim)
                    yield f"{here}/axis{k}/biases", (axis.keys,)
                yield f"{here}/values", (*head.grid, len(head.writes))
        yield "readout", (len(self.outputs), len(self.readout))
        yield "readout_bias", (len(self.outputs),)

    def dense(self) -> Architecture:
        """The same, with every axis and the read-out reading the whole stream before them."""
        layers = []
        for layer, width in zip(self.layers, self.widths, strict=False):
            every = tuple(range(width))
            layers.append(tuple(HeadShape(tuple(replace(a, reads=every) for a in h.axes), h.writes) for h in layer))
        return replace(self, layers=tuple(layers), reads=None)

    def holds(self, other: Architecture) -> bool:
        """Whether weights of `other` are weights of this shape: the same shape, where it may read less."""
        if self.dense() != other.dense():
            return False
        pairs = [(self.readout, other.readout)]
        for mine, yours in zip(self.heads, other.heads, strict=True):
            pairs += [(a.reads, b.reads) for a, b in zip(mine.axes, yours.axes, strict=True)]
        return all(set(few) <= set(many) for many, few in pairs)


def _used(matrix: Array) -> tuple[int, ...]:
    """The columns that are not all zero."""
    return tuple(int(k) for k in np.flatnonzero(matrix.any(axis=0)))


@dataclass(frozen=True)
class TokenLayerShape(Brief):
    """(r, p) of every head; `carry`: the stream passes a free matrix, not the identity; `ffn`: ReLU units after it."""

    heads: tuple[tuple[int, int], ...]
    carry: bool = False
    ffn: int = 0


@dataclass(frozen=True)
class TokenArchitecture(Shape):
    """Layers on tokens with the named `coordinates`, `constants` constant tokens, then a linear read-out.

    Refuses with InvalidRequest what no network can have.
    """

    coordinates: tuple[str, ...]
    layers: tuple[TokenLayerShape, ...]
    outputs: tuple[str, ...]
    constants: int = 0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        require_dtype(self.dtype)
        require_names(coordinates=self.coordinates, outputs=self.outputs)
        whole_number("constants", self.constants, 0)
        for number, layer in enumerate(self.layers):
            fits = layer.heads and all(len(head) == 2 and all(_whole(k, 1) for k in head) for head in layer.heads)
            if not fits or not _whole(layer.ffn, 0) or type(layer.carry) is not bool:
                raise InvalidRequest(f"layer {number} needs heads with ranks and values from 1 on, and 0 or more units")
        require(self.free_weights <= _MOST, f"{self.free_weights:,} weights are more than {_MOST:,}")

    @classmethod
    def plain(
        cls,
        coordinates: Sequence[str],
        outputs: Sequence[str],
        *,
        layers: int = 2,
        heads: int = 4,
        rank: int = 8,
        value: int | None = None,
        width: int | None = None,
        ffn: int = 0,
        constants: int = 0,
        dtype: str = "float64",
    ) -> TokenArchitecture:
        """The same layers over and over, with a residual stream: `heads` heads of rank `rank` and `value` values
        (as many as the rank unless given), `ffn` ReLU units per layer or none, tokens widened to `width` by free
        coordinates that start at 0, `constants` constant tokens.
        """
        values = rank if value is None else value
        for name, number in (("layers", layers), ("heads", heads), ("rank", rank), ("value", values)):
            whole_number(name, number, 1)
        names = tuple(coordinates)
        total = len(names) if width is None else width
        require(_whole(total, len(names)), f"width={width!r:.30}: given tokens have {len(names)} coordinates already")
        require(total <= _WIDEST, f"width={total:,}: more than {_WIDEST:,} coordinates")
        size = f"{layers:,} layers of {heads:,} heads on {total:,} coordinates"  # said before they are written out
        require(layers * heads * total <= _MOST, f"{size} have more than {_MOST:,} weights")
        names += tuple(f"free {k + 1}" for k in range(total - len(names)))
        layer = TokenLayerShape(((rank, values),) * heads, False, ffn)
        return cls(names, (layer,) * layers, tuple(outputs), constants, dtype)

    @classmethod
    def for_target(cls, target: Target, **shape: Any) -> TokenArchitecture:
        """`plain` for a target on tokens, a sequence map say: the coordinates that its tokens hold, and its outputs."""
        require(hasattr(target, "token_coordinates"), f"{target!r:.60}: a target on tokens is needed (a sequence map)")
        return cls.plain(target.token_coordinates(), target.token_outputs(), **shape)

    @property
    def width(self) -> int:
        return len(self.coordinates)

    @property
    def heads(self) -> int:
        return sum(len(layer.heads) for layer in self.layers)

    @property
    def has_units(self) -> bool:
        return any(layer.ffn for layer in self.layers)

    def layout(self) -> Iterator[Part]:
        """The names are those of `TokenNetwork.arrays`."""
        W = self.width
        for number, layer in enumerate(self.layers):
            here = f"layer{number}"
            for place, (r, p) in enumerate(layer.heads):
                shapes = {"query": (W, r), "key": (W, r), "value": (W, p), "output": (p, W)}
                yield from ((f"{here}/head{place}/{part}", shape) for part, shape in shapes.items())
            if layer.carry:
                yield f"{here}/carry", (W, W)
            if layer.ffn:
                yield f"{here}/ffn/inner", (W, layer.ffn)
                yield f"{here}/ffn/bias", (layer.ffn,)
                yield f"{here}/ffn/outer", (layer.ffn, W)
        yield "constants", (self.constants, W)
        yield "readout", (W, len(self.outputs))
