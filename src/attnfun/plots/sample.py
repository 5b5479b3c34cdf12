"""The numbers behind the pictures: a line and a slice through the box, and the attention weights on them.

Everything here is sampled and drawn; nothing is evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnfun.network.evaluate import evaluate, stream
from attnfun.network.head import Axis, Head
from attnfun.network.network import Network
from attnfun.network.relu import ReluBlock

if TYPE_CHECKING:
    from attnfun.language.function import Function

Array = NDArray[np.float64]
_PROBES = 1001


class Subject(Protocol):
    """What a picture needs to know of an approximant."""

    @property
    def network(self) -> Network: ...
    @property
    def target(self) -> Function: ...
    @property
    def certificate(self) -> Any: ...


@dataclass(frozen=True)
class View:
    """One network seen along the variable `line`, and on the slice (`line`, `across`) when there are two or more.

    All other variables rest at `centre`: the middle of the box, until `through` chooses another point. `head` is the
    head with the most keys, `depth` its layer; an affine network has none, and an MLP a block in its place.
    """

    network: Network
    target: Function
    depth: int
    head: Head | ReluBlock | None
    line: int
    across: int | None
    centre: Array

    @classmethod
    def of(cls, subject: Subject) -> View:
        network = subject.network
        heads = [(depth, head) for depth, layer in enumerate(network.layers) for head in layer.heads]
        depth, head = max(heads, key=lambda pair: pair[1].keys, default=(0, None))
        # Look along the variables this head reads, if it reads the inputs directly.
        use = np.zeros(len(network.inputs))
        for axis in head.axes if head is not None else ():
            use += np.abs(axis.query[:, : len(use)]).max(axis=0)
        order = [int(k) for k in np.argsort(use == 0, kind="stable")]
        centre = (network.box[0] + network.box[1]) / 2
        return cls(network, subject.target, depth, head, order[0], order[1] if len(order) > 1 else None, centre)

    def through(self, point: Sequence[float] | None) -> View:
        """The same network through `point`, a witness of the error, or where samples of it are largest, along the
        variable on whose line the mean error is largest.
        """
        count, low, high = len(self.network.inputs), *self.network.box
        if point is None or len(point) != count:
            X = np.random.default_rng(0).uniform(low, high, (_PROBES, count))
            point = X[int(self.error(X).argmax())].tolist()
        view = replace(self, centre=np.clip(np.asarray(point, dtype=np.float64), low, high))
        lines = [replace(view, line=k) for k in range(count)]
        line = int(np.argmax([float(one.error(one.along(_PROBES)).mean()) for one in lines]))
        rest = [k for k in (self.line, self.across) if k not in (line, None)]
        return replace(view, line=line, across=rest[0] if rest else None)

    def error(self, X: Array) -> Array:
        """(n,) the largest error of an output; 0 where the target has no value."""
        return np.asarray(np.nan_to_num(np.abs(self.output(X) - self.truth(X))).max(axis=1))

    @property
    def keys(self) -> int:
        return self.head.keys if self.head is not None else 0

    @property
    def names(self) -> tuple[str, ...]:
        """Of the variable that moves along the line, and of the slice's other one."""
        return tuple(self.network.inputs[k] for k in (self.line, self.across) if k is not None)

    def axis_points(self, variable: int, count: int) -> Array:
        low, high = self.network.box
        return np.linspace(low[variable], high[variable], count)

    def along(self, count: int) -> Array:
        """(count, d): the line through the centre."""
        return self.at(self.axis_points(self.line, count))

    def at(self, places: Array) -> Array:
        """(n, d): points of the line through the centre."""
        X = np.repeat(self.centre[None], len(places), axis=0)
        X[:, self.line] = places
        return X

    def slice(self, count: int) -> Array:
        """(count², d): the slice through the centre, `across` varying slowest."""
        assert self.across is not None
        X = np.repeat(self.centre[None], count * count, axis=0)
        X[:, self.across] = np.repeat(self.axis_points(self.across, count), count)
        X[:, self.line] = np.tile(self.axis_points(self.line, count), count)
        return X

    def truth(self, X: Array) -> Array:
        """(n, p); NaN where the target has no value, as of a black box that was read from a file, and in its band."""
        if self.target.graph is None and self.target.call is None:
            return np.full((len(X), len(self.network.outputs)), np.nan)
        with np.errstate(all="ignore"):
            return np.asarray(self.target.exact(X), dtype=np.float64)

    def output(self, X: Array) -> Array:
        return np.asarray(evaluate(self.network, X), dtype=np.float64).reshape(len(X), -1)

    def stream(self, X: Array) -> Array:
        """The residual stream the head reads: the inputs, then what the layers below it wrote."""
        if self.depth == 0:
            return X
        return np.asarray(stream(self.network, X), dtype=np.float64)[:, : self.network.layers[self.depth].width]


def axis_of(head: Head, variable: int) -> int | None:
    """The axis of the head that reads this coordinate and no other, where there is one."""
    for a, axis in enumerate(head.axes):
        reads = np.flatnonzero(np.abs(axis.query).max(axis=0) > 0)
        if axis.dim == 1 and reads.tolist() == [variable]:
            return a
    return None


def logits(axis: Axis, stream: Array, keys: NDArray[np.intp] | slice = slice(None)) -> Array:
    """(n, keys) l_j = slopes_j · (query @ token + offset) + biases_j."""
    q = stream @ axis.query.T + axis.offset
    return q @ axis.slopes[keys].T + axis.biases[keys]


def thinned(total: int, most: int) -> NDArray[np.intp]:
    """At most `most` of the indices 0..total-1, evenly spread, both ends kept."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.intp))
