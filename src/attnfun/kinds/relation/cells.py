"""Soft cells: two towers that are look-up tables, one softmax head a side on a product grid of centres.

| symbol | here | shape |
| --- | --- | --- |
| p_i(x), q_j(y) | softmax weights of the left and of the right keys: near 1 in the cell of centre i, j | |
| P, Q | `left.values`, `right.values`: a row a key | (keys_1, …, keys_a, rank) |
| J | `signs`, of a symmetric relation: Q = P J and the same keys on both sides | (rank,) |

    φ(x) = Σ_i p_i(x) P_i,   ψ(y) = Σ_j q_j(y) Q_j,   ⟨φ(x), ψ(y)⟩ = Σ_ij p_i(x) q_j(y) ⟨P_i, Q_j⟩

so the score is exactly one product head over both sides' keys with the values ⟨P_i, Q_j⟩.

With `lines` (2, rank) on both sides it is a pair of MLPs of one variable a side: a broken line a feature,

    φ(x) = slope x + offset + Σ_i relu(k_i (w x + c) + b_i) P_i,

whose pieces are the cells. Nothing but weights here.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.core import Core, fitting_core
from attnfun.kinds.relation.features import Ends, freeze
from attnfun.kinds.relation.form import SIDES, Form, require_signs
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import Keys
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, Head
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock


@dataclass(frozen=True, eq=False)
class CellSide:
    """Keys of every variable, values of every key, and the box; `lines` make them ReLU units."""

    keys: tuple[Keys, ...]
    values: Array
    box: Ends
    lines: Array | None = None

    def __post_init__(self) -> None:
        freeze(self, "values", "lines")
        if not self.keys or len(self.keys) != len(self.box[0]) or len(self.box[0]) != len(self.box[1]):
            raise InvalidRequest("the keys of soft cells do not fit their box")
        fits = self.values.shape[:-1] == tuple(len(k.slopes) for k in self.keys) and self.values.size
        if not fits or not np.isfinite(self.values).all():
            raise InvalidRequest("the values of soft cells do not fit their keys")
        if not all(np.isfinite([k.w, k.c]).all() and np.isfinite(np.r_[k.slopes, k.biases]).all() for k in self.keys):
            raise InvalidRequest("a key of soft cells is not finite")
        if self.lines is not None:
            if self.lines.shape != (2, self.values.shape[-1]) or len(self.keys) != 1:
                raise InvalidRequest("ReLU units are those of one variable a side, with a line a feature")
            if not np.isfinite(self.lines).all():
                raise InvalidRequest("a line of ReLU units is not finite")


@dataclass(frozen=True, eq=False)
class Cells(Form):
    """Both sides; with `signs` in the place of `other` one tower serves both."""

    method: ClassVar[str] = "pairs of cells"

    left: CellSide
    other: CellSide | None = None
    signs: Array | None = None

    def __post_init__(self) -> None:
        require_signs(self)
        if (self.left.lines is None) != (self.right.lines is None):
            raise InvalidRequest("both towers are heads, or both are ReLU units")
        if self.right.values.shape[-1] != self.rank:
            raise InvalidRequest("the towers of a relation have unequal numbers of features")

    @cached_property
    def right(self) -> CellSide:
        if self.signs is None:
            assert self.other is not None
            return self.other
        own, lines = self.left, self.left.lines
        return CellSide(own.keys, own.values * self.signs, own.box, None if lines is None else lines * self.signs)

    @property
    def mlp(self) -> bool:
        return self.left.lines is not None

    @property
    def realise(self) -> str:
        return "mlp" if self.mlp else "attention"

    @property
    def rank(self) -> int:
        return int(self.left.values.shape[-1])

    @property
    def ends(self) -> tuple[Ends, Ends]:
        return self.left.box, self.right.box

    @property
    def counts(self) -> tuple[int, int]:
        """Cells of the left and of the right side; pieces of broken lines, one more than units."""
        if self.mlp:
            return len(self.left.values) + 1, len(self.right.values) + 1
        return math.prod(self.left.values.shape[:-1]), math.prod(self.right.values.shape[:-1])

    def core(self, relation: Relation) -> Core:
        return fitting_core(relation, *self.ends)

    def network(self, side: str, names: tuple[str, ...] | None = None) -> Network:
        """One side as a network of one head, or of one block of units, with `rank` outputs."""
        own = self.left if side == "left" else self.right
        writes = tuple(f"{'phi' if side == 'left' else 'psi'}{i + 1}" for i in range(self.rank))
        names = names or tuple(f"v{k + 1}" for k in range(len(own.keys)))
        readout = np.hstack([np.zeros((self.rank, len(own.keys))), np.eye(self.rank)])
        if own.lines is not None:
            readout[:, 0] = own.lines[0]
            units = ReluBlock("hats", own.keys[0].axis(0, 1), own.values, writes)
            return Network(names, (Layer((units,)),), readout, own.lines[1], writes, own.box)
        axes = tuple(k.axis(v, len(own.keys)) for v, k in enumerate(own.keys))
        cell = "cell " + ", ".join(f"{{{v}}} of {name}" for v, name in enumerate(names))
        head = Head("cells", axes, own.values, writes, cell)
        return Network(names, (Layer((head,)),), readout, np.zeros(self.rank), writes, own.box)

    def tower(self, relation: Relation, k: int) -> Network:
        return self.network(SIDES[0 if self.one else k], self.core(relation).sides[k][0].names)

    def side(self, name: str, points: AnyArray, dtype: str = "float64") -> AnyArray:
        """(n, variables) → (n, rank) of one side, in float64 by its network."""
        return evaluate(self.network(name), points).astype(dtype)
