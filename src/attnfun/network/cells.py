"""Soft cells: two towers that are look-up tables, one softmax head a side on a product grid of centres.

| symbol | here | shape |
| --- | --- | --- |
| p_i(x), q_j(y) | softmax weights of the left and of the right keys: near 1 in the cell of centre i, j | |
| P, Q | `left_values`, `right_values`: a row a key | (keys_1, …, keys_a, rank) |
| J | `signs`, of a symmetric relation: Q = P J and the same keys on both sides | (rank,) |

    φ(x) = Σ_i p_i(x) P_i,   ψ(y) = Σ_j q_j(y) Q_j,   ⟨φ(x), ψ(y)⟩ = Σ_ij p_i(x) q_j(y) ⟨P_i, Q_j⟩

so the score is exactly one product head over both sides' keys with the values ⟨P_i, Q_j⟩.

With `left_lines`, `right_lines` (2, rank) it is a pair of MLPs of one variable a side: a broken line a feature,

    φ(x) = slope x + offset + Σ_i relu(k_i (w x + c) + b_i) P_i,

whose pieces are the cells. Nothing but weights here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, Head, frozen
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock
from attnfun.network.towers import Keys

Ends = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Cells:
    """Keys of every variable and values of every key, left and right; `signs`: one tower for both sides."""

    left_keys: tuple[Keys, ...]
    right_keys: tuple[Keys, ...]
    left_values: Array
    right_values: Array
    left_box: Ends
    right_box: Ends
    signs: Array | None = None
    left_lines: Array | None = None
    right_lines: Array | None = None

    def __post_init__(self) -> None:
        for name in ("left_values", "right_values"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if self.signs is not None:
            object.__setattr__(self, "signs", frozen(self.signs))
            if self.signs.shape != (self.rank,) or not np.isin(self.signs, (-1.0, 1.0)).all():
                raise InvalidRequest("the signs of soft cells are one ±1 a feature")
            if self.mlp:
                assert self.left_lines is not None and self.right_lines is not None
                if not np.array_equal(self.right_lines, self.left_lines * self.signs):
                    raise InvalidRequest("one tower: the right lines are the left ones, times signs")
            if self.left_keys is not self.right_keys or not np.array_equal(
                self.right_values, self.left_values * self.signs
            ):
                raise InvalidRequest("one tower: the right side of a symmetric relation is the left one's, times signs")
        for keys, values, box in (
            (self.left_keys, self.left_values, self.left_box),
            (self.right_keys, self.right_values, self.right_box),
        ):
            if not keys or len(keys) != len(box[0]) or len(box[0]) != len(box[1]) or values.shape[-1] != self.rank:
                raise InvalidRequest("the keys of soft cells do not fit their box")
            if values.shape[:-1] != tuple(len(k.slopes) for k in keys) or not np.isfinite(values).all():
                raise InvalidRequest("the values of soft cells do not fit their keys")
            if not all(np.isfinite([k.w, k.c]).all() and np.isfinite(np.r_[k.slopes, k.biases]).all() for k in keys):
                raise InvalidRequest("a key of soft cells is not finite")

        if (self.left_lines is None) != (self.right_lines is None):
            raise InvalidRequest("both towers are heads, or both are ReLU units")
        for name in ("left_lines", "right_lines"):
            lines = getattr(self, name)
            if lines is not None:
                object.__setattr__(self, name, frozen(lines))
                if lines.shape != (2, self.rank) or len(self.left_keys) != 1 or len(self.right_keys) != 1:
                    raise InvalidRequest("ReLU units are those of one variable a side, with a line a feature")
                if not np.isfinite(lines).all():
                    raise InvalidRequest("a line of ReLU units is not finite")

    @property
    def mlp(self) -> bool:
        return self.left_lines is not None

    @property
    def rank(self) -> int:
        return int(self.left_values.shape[-1])

    @property
    def signed(self) -> bool:
        return self.signs is not None and bool((self.signs < 0).any())

    @property
    def product_signs(self) -> Array:
        """(rank,) the diagonal of J in ⟨φ, J φ⟩; ones for two towers."""
        return np.ones(self.rank) if self.signs is None else self.signs

    @property
    def counts(self) -> tuple[int, int]:
        """Cells of the left and of the right side; pieces of broken lines, one more than units."""
        if self.mlp:
            return len(self.left_values) + 1, len(self.right_values) + 1
        return math.prod(self.left_values.shape[:-1]), math.prod(self.right_values.shape[:-1])

    def network(self, side: str, names: tuple[str, ...]) -> Network:
        """One side as a network of one head, or of one block of units, with `rank` outputs."""
        left = side == "left"
        keys, values = (self.left_keys, self.left_values) if left else (self.right_keys, self.right_values)
        writes = tuple(f"{'phi' if left else 'psi'}{i + 1}" for i in range(self.rank))
        box = self.left_box if left else self.right_box
        readout = np.hstack([np.zeros((self.rank, len(keys))), np.eye(self.rank)])
        lines = self.left_lines if left else self.right_lines
        if lines is not None:
            readout[:, 0] = lines[0]
            units = ReluBlock("hats", keys[0].axis(0, 1), values, writes)
            return Network(names, (Layer((units,)),), readout, lines[1], writes, box)
        axes = tuple(k.axis(v, len(keys)) for v, k in enumerate(keys))
        cell = "cell " + ", ".join(f"{{{v}}} of {name}" for v, name in enumerate(names))
        head = Head("cells", axes, values, writes, cell)
        return Network(names, (Layer((head,)),), readout, np.zeros(self.rank), writes, box)

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables) → (n, rank) of one side, in float64 by its network."""
        keys = self.left_keys if name == "left" else self.right_keys
        names = tuple(f"v{k + 1}" for k in range(len(keys)))
        return evaluate(self.network(name, names), points).astype(dtype)
