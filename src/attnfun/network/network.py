"""Layers and networks: the weights and nothing else.

    stream_0 = x;     stream_(l+1) = (stream_l, new_l),     new_l[name] = sum of the heads of layer l that write `name`;
    network(x) = readout @ stream_L + readout_bias

A network acts on a token matrix, every row a token with the coordinates `inputs`; its memory heads read one token each,
so a function of x is the case of one token per point. Linear maps and the residual stream are free, every nonlinearity
is a softmax. Weights are float64 arrays whose entries the network's dtype can hold.

For comparison there is the same network as an MLP: blocks of ReLU units (`relu.py`) where the heads would be, all of
them, and then no softmax at all. Whoever iterates over `heads` meets the one kind or the other, never both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.files import Mapped, map_behind
from attnfun.language.brief import Brief
from attnfun.language.domain import Box
from attnfun.network.architecture import Architecture
from attnfun.network.head import DTYPES as DTYPES
from attnfun.network.head import (
    AnyArray,
    Array,
    Head,
    freeze,
    frozen,
    once_per_dtype,
    require_heads,
    require_names,
    require_weights,
)
from attnfun.network.labels import Labels
from attnfun.network.plain import HasPlain, Plain
from attnfun.network.relu import ReluBlock
from attnfun.network.store import fingerprint


@dataclass(frozen=True)
class Cost(Brief):
    """What a network costs.

    `rank` and `query_dim` are the largest of any head, `keys` the sum over all heads. `parameters` counts the literal
    cross-attention form: per head keys x (query_dim + 1) keys with bias, keys x outputs values and the affine query
    map, then the affine read-out. `stored` counts the entries of the memory form, which keeps product heads factorised.
    Of an MLP `heads` counts the blocks and `keys` their hidden units; `parameters` counts a unit like a key: its
    slopes, its bias and its values, then the affine query map of the block, then the read-out.
    """

    layers: int
    heads: int
    rank: int
    keys: int
    parameters: int
    query_dim: int
    max_value: float
    stored: int

    @classmethod
    def of(cls, heads: Sequence[Any], layers: int, keys: int, weights: int, values: list[float], stored: int) -> Cost:
        """That of heads with a rank and a query dimension each, and the largest value of each."""
        rank, query_dim = (max((getattr(h, name) for h in heads), default=0) for name in ("rank", "query_dim"))
        return cls(layers, len(heads), rank, keys, weights, query_dim, max(values, default=0.0), stored)


@dataclass(frozen=True, eq=False)
class Layer(Brief):
    """Heads side by side, or blocks of units: all read the same stream; those that write one coordinate are summed."""

    heads: tuple[Head | ReluBlock, ...]

    def __post_init__(self) -> None:
        freeze(self)
        require_heads(self.heads)
        require(len({head.kind for head in self.heads}) == 1, "a layer has attention heads or ReLU units, not both")

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """The new coordinates, in the order in which the heads name them first."""
        return tuple(dict.fromkeys(name for head in self.heads for name in head.writes))

    @property
    def attention(self) -> tuple[Head, ...]:
        """Its heads, for what is about attention alone; a layer of ReLU units has none, and says so."""
        heads = tuple(head for head in self.heads if isinstance(head, Head))
        require(len(heads) == len(self.heads), "this network is an MLP: its layers are ReLU units, and nothing attends")
        return heads

    @property
    def width(self) -> int:
        return self.heads[0].width


@dataclass(frozen=True, eq=False)
class Network(HasPlain):
    """Layers in order, then a linear read-out, on a box of inputs. Compared by identity; see `identical`.

    `labels` say what the coordinates of a composed network mean; they take no part in evaluation.

    Refuses with InvalidRequest what is not a network: shapes that do not meet, weights that are not finite or not
    representable in `dtype`, a coordinate written twice, an empty box.
    """

    _shown = ("inputs", "outputs", "dtype", "cost")

    inputs: tuple[str, ...]
    layers: tuple[Layer, ...]
    readout: Array
    readout_bias: Array
    outputs: tuple[str, ...]
    box: tuple[Array, Array]
    dtype: str = "float64"
    labels: Labels | None = None

    def __post_init__(self) -> None:
        freeze(self)
        self.validate()

    def run(self, X: Any, route: str = "auto") -> AnyArray:
        """(n, inputs) → (n, outputs) in the dtype, by a named route (`evaluate.py`)."""
        from attnfun.network.evaluate import evaluate

        return evaluate(self, X, route=route)

    def plain(self, dtype: str | None = None, form: str = "cross", second: tuple[str, ...] = ()) -> Plain:
        """As matrices alone, in one of the forms of `literal.py`."""
        from attnfun.network.plain_form import of_network

        self.require_unchanged()
        return of_network(self, dtype or self.dtype, form, second)

    def validate(self) -> None:
        """Raise InvalidRequest, naming the part, unless shapes meet, weights are finite and fit the dtype."""
        require_names(inputs=self.inputs, outputs=self.outputs)
        require(len({layer.heads[0].kind for layer in self.layers}) <= 1, "layers attend or hold ReLU units, not both")
        names = list(self.inputs)
        for number, layer in enumerate(self.layers):
            require(layer.width == len(names), f"layer {number} reads {layer.width} coordinates of {len(names)}")
            names.extend(layer.writes)
        require_names(coordinates=tuple(names))
        if self.readout.shape != (len(self.outputs), len(names)):
            raise InvalidRequest(f"read-out has shape {self.readout.shape}, not {(len(self.outputs), len(names))}")
        if self.readout_bias.shape != (len(self.outputs),):
            raise InvalidRequest(f"read-out bias has shape {self.readout_bias.shape}, not {(len(self.outputs),)}")
        require_weights(self.arrays(), self.dtype)
        for end in self.box:
            if end.shape != (len(self.inputs),) or not np.isfinite(end).all():
                raise InvalidRequest(f"the box must have {len(self.inputs)} finite ends, not {end.tolist()}")
        if not (self.box[0] <= self.box[1]).all():
            raise InvalidRequest(f"the box is empty: low {self.box[0].tolist()}, high {self.box[1].tolist()}")

    @property
    def low(self) -> Array:
        return self.box[0]

    @property
    def high(self) -> Array:
        return self.box[1]

    @property
    def domain(self) -> Box:
        """The box by the names of its inputs."""
        return Box(self.inputs, tuple(self.low.tolist()), tuple(self.high.tolist()))

    def require_unchanged(self) -> None:
        """InvalidRequest where somebody wrote into a file in which its weights were left."""
        for one in maps(self):
            one.require_unchanged()

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the final stream: the inputs, then what each layer writes."""
        return self.inputs + tuple(name for layer in self.layers for name in layer.writes)

    @property
    def heads(self) -> tuple[Head | ReluBlock, ...]:
        return tuple(head for layer in self.layers for head in layer.heads)

    @cached_property
    def architecture(self) -> Architecture:
        """Its shape without its weights."""
        return Architecture.of(self)

    @property
    def is_mlp(self) -> bool:
        """Whether its nonlinearities are ReLU units instead of softmaxes."""
        return any(isinstance(head, ReluBlock) for head in self.heads)

    @property
    def words(self) -> tuple[str, str]:
        """What `cost.heads` and `cost.keys` count: ("head", "key"), or of an MLP ("block", "unit")."""
        return ("block", "unit") if self.is_mlp else ("head", "key")

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every weight with its name, 'layer0/head1/axis0/slopes' style ('layer0/block1/slopes' in an MLP): the names
        of the file.
        """
        for number, layer in enumerate(self.layers):
            for place, head in enumerate(layer.heads):
                for name, array in head.arrays.items():
                    yield f"layer{number}/{head.kind}{place}/{name}", array
        yield "readout", self.readout
        yield "readout_bias", self.readout_bias

    @cached_property
    def cost(self) -> Cost:
        self.require_unchanged()
        heads = self.heads
        literal = sum(h.keys * (h.query_dim + 1 + h.outputs) + h.query_dim * (h.width + 1) for h in heads)
        readout = self.readout.size + self.readout_bias.size
        keys, stored = sum(head.keys for head in heads), sum(array.size for _, array in self.arrays())
        values = [head.max_value for head in heads]
        return Cost.of(heads, len(self.layers), keys, literal + readout, values, stored)

    @cached_property
    def ranges(self) -> tuple[Array, Array]:
        """(low, high) of every coordinate of the final stream over the box, in exact arithmetic.

        A head is an average of its values, so it stays between the least and the largest; a block of ReLU units stays
        where its units do. Sums are rounded outward.
        """
        self.require_unchanged()
        low, high = list(self.low), list(self.high)
        for layer in self.layers:
            least = dict.fromkeys(layer.writes, 0.0)
            most = dict.fromkeys(layer.writes, 0.0)
            before = np.array(low), np.array(high)
            for head in layer.heads:
                bottoms, tops = head.reach(*before)
                for name, bottom, top in zip(head.writes, bottoms, tops, strict=True):
                    least[name] = float(np.nextafter(least[name] + bottom, -np.inf))
                    most[name] = float(np.nextafter(most[name] + top, np.inf))
            low.extend(least.values())
            high.extend(most.values())
        return frozen(low), frozen(high)


@once_per_dtype
def maps(network: Network, _dtype: str) -> tuple[Mapped, ...]:
    """The files in which its weights lie; kept beside the network, because a map cannot be copied with it."""
    found = (map_behind(array) for _, array in network.arrays())
    return tuple({id(one): one for one in found if one is not None}.values())


def identical(one: Network, other: Network) -> bool:
    """Whether two networks are the same bit for bit: every weight (the sign of zero included), name, box and dtype."""
    return fingerprint(one) == fingerprint(other)
