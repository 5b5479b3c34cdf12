"""Towers: the two networks whose inner product is a relation, and the factors from which their weights come.

Attention. Variable k has keys of its own, slopes and biases, and its query w x_k + c. A tower is *one head* on the
product of these keys: its softmax is the product of the small ones, so with the values

    V[j, i] = Π_b V_b[j_b, S_ib]      (b: blocks of the features, S: their selection)

coordinate i of the head is Π_b (Σ_j weights_j V_b[j, S_ib]), a product of functions of few variables each, exactly.
Only the V_b are stored; `tower_network` multiplies them out.

MLP (one variable a side): one block of ReLU units relu(k_j (w x + c) + b_j) with values (units, columns), and the
affine parts (slope, offset) of the columns in the read-out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network.features import Features
from attnfun.network.head import Array, Axis, Head, frozen
from attnfun.network.network import Layer, Network
from attnfun.network.relu import ReluBlock

MOST_KEYS = 200_000
MOST_VALUES = 40_000_000


@dataclass(frozen=True, eq=False)
class Keys:
    """Logits (or hidden units) slopes_j (w x + c) + biases_j of one variable."""

    w: float
    c: float
    slopes: Array
    biases: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", frozen(self.slopes))
        object.__setattr__(self, "biases", frozen(self.biases))
        if self.slopes.ndim != 1 or self.slopes.shape != self.biases.shape or not len(self.slopes):
            raise InvalidRequest("the keys of a tower have unequal slopes and biases")

    def axis(self, variable: int, width: int) -> Axis:
        query = np.zeros((1, width))
        query[0, variable] = self.w
        return Axis(query, np.array([self.c]), self.slopes[:, None], self.biases)


@dataclass(frozen=True, eq=False)
class TowerWeights:
    """One side: keys of every variable, values of every block, (keys_1, …, keys_a, columns).

    `lines` (2, columns) makes it a tower of ReLU units: slopes and offsets of the affine parts. `inner` is the network
    below it, whose outputs are the core's variables (`stack`); None where these are the relation's own or come from
    outside.
    """

    keys: tuple[Keys, ...]
    values: tuple[Array, ...]
    lines: Array | None = None
    inner: Network | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(frozen(v) for v in self.values))
        if self.lines is not None:
            object.__setattr__(self, "lines", frozen(self.lines))

    @property
    def mlp(self) -> bool:
        return self.lines is not None


def tower_network(features: Features, side: str, weights: TowerWeights, names: tuple[str, ...]) -> Network:
    """The tower as a network of one layer with `rank` outputs; its inputs are the core's variables."""
    low, high = features.left_box if side == "left" else features.right_box
    d, rank = len(names), features.rank
    if len(weights.keys) != d or len(low) != d or len(weights.values) != len(features.blocks):
        raise InvalidRequest("the weights of a tower do not fit its features")
    writes = tuple(f"phi{i + 1}" if side == "left" else f"psi{i + 1}" for i in range(rank))
    readout = np.hstack([np.zeros((rank, d)), np.eye(rank)])
    box = (low, high)
    if weights.lines is not None:
        columns = features.blocks[0].columns
        fits = weights.values[0].shape == (len(weights.keys[0].slopes), columns) and weights.lines.shape == (2, columns)
        if d != 1 or len(features.blocks) != 1 or not fits:
            raise InvalidRequest("a tower of ReLU units has one variable, units and lines for every column")
        picked = features.selection[:, 0]
        units = ReluBlock("features", weights.keys[0].axis(0, 1), weights.values[0][:, picked], writes)
        readout[:, 0] = weights.lines[0, picked]
        return Network(names, (Layer((units,)),), readout, weights.lines[1, picked], writes, box)
    places = [v for block in features.blocks for v in (block.left_vars if side == "left" else block.right_vars)]
    sizes = [len(weights.keys[v].slopes) for v in places]
    if math.prod(sizes) > MOST_KEYS or math.prod(sizes) * rank > MOST_VALUES:
        raise Infeasible(
            f"a tower of {' × '.join(map(str, sizes))} keys and {rank} features is out of reach",
            {"features_only": True},
        )
    values = np.ones((1, rank))
    for k, (block, own) in enumerate(zip(features.blocks, weights.values, strict=True)):
        mine = block.left_vars if side == "left" else block.right_vars
        if own.shape != (*(len(weights.keys[v].slopes) for v in mine), block.columns):
            raise InvalidRequest("the values of a tower do not fit its keys")
        chosen = own.reshape(-1, block.columns)[:, features.selection[:, k]]
        values = (values[:, None, :] * chosen[None]).reshape(-1, rank)
    used = [v for v in places if len(weights.keys[v].slopes) > 1] or places[:1]
    shape = [len(weights.keys[v].slopes) for v in used]
    axes = tuple(weights.keys[v].axis(v, d) for v in used)
    head = Head("features", axes, values.reshape(*shape, rank), writes)
    return Network(names, (Layer((head,)),), readout, np.zeros(rank), writes, box)
