"""Fit: what was fitted to a step, before it stands in a network.

    g(u) ≈ slope·u + offset + Σ_i piece_i(u),     piece(u) = Σ_j softmax_j(slopes_j q + biases_j) values_j,  q = w u + c

A piece is a head that reads the arguments of g themselves, or a block of ReLU units, relu in place of softmax.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnfun.kinds.function.build.unary.keys import Array, Keys
from attnfun.network import Axis, Head, ReluBlock, rounded


@dataclass(frozen=True, eq=False)
class Fit:
    """Pieces and the affine part that the stream carries; every entry representable in the dtype.

    `error` is the largest seen on dense, graded points, no bound.
    """

    pieces: tuple[Head | ReluBlock, ...]
    slope: float = 0.0
    offset: float = 0.0
    error: float = 0.0

    @property
    def keys(self) -> int:
        """Keys of heads, units of a block."""
        return sum(piece.keys for piece in self.pieces)

    @property
    def count(self) -> int:
        return len(self.pieces)

    @property
    def max_value(self) -> float:
        return max((piece.max_value for piece in self.pieces), default=0.0)

    def written(
        self, name: str, rows: Array, constants: Sequence[float], dtype: str, key_names: str = ""
    ) -> list[Head | ReluBlock]:
        """The pieces that write the coordinate `name`, the arguments of g being rows·stream + constants."""
        made: list[Head | ReluBlock] = []
        for number, piece in enumerate(self.pieces):
            axes = []
            for k, (axis, row, constant) in enumerate(zip(piece.axes, rows, constants, strict=True)):
                w, c = float(axis.query[0, k]), float(axis.offset[0])
                query, offset = rounded(w * row[None], dtype), rounded([w * constant + c], dtype)
                axes.append(replace(axis, query=query, offset=offset))
            title = name if self.count == 1 else f"{name}, piece {number + 1}"
            if isinstance(piece, Head):
                keys = key_names or piece.key_names
                made.append(replace(piece, name=title, axes=tuple(axes), writes=(name,), key_names=keys))
            else:
                made.append(replace(piece, name=title, axis=axes[0], writes=(name,)))
        return made

    def __call__(self, u: Array) -> Array:
        """The fit of a function of one variable."""
        total = self.slope * u + self.offset
        for piece in self.pieces:
            (axis,), values = piece.axes, piece.values[:, 0]
            logits = np.outer(axis.query[0, 0] * u + axis.offset[0], axis.slopes[:, 0]) + axis.biases
            if isinstance(piece, ReluBlock):
                total = total + np.maximum(logits, 0.0) @ values
            else:
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                total = total + (p @ values) / p.sum(axis=1)
        return np.asarray(total)


def head_of(keys: Keys, values: Array, dtype: str) -> Head:
    """The head of these keys as it is stored, with (keys,) values, or (keys, functions)."""
    k, heights = keys.stored(dtype), rounded(values, dtype).reshape(keys.size, -1)
    writes = tuple(f"g{i + 1}" for i in range(heights.shape[1]))
    return Head("", (axis_of(k),), heights, writes)


def axis_of(keys: Keys) -> Axis:
    """The keys along the one argument of g."""
    return Axis(np.array([[keys.w]]), np.array([keys.c]), keys.slopes[:, None], keys.biases)
