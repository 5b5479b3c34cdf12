"""A retrieval head: the left tower of a relation, then one softmax head over stored keys.

    x ─ tower ─► φ(x) ∈ R^r ─ head ─► Σ_j softmax_j(⟨φ(x), K_j⟩) V_j,      K_j = β ψ(y_j)

| symbol | here | shape |
| --- | --- | --- |
| y_j | `RetrievalWeights.points`, the keys as points of the right box | (n, right variables) |
| K_j | `RetrievalWeights.vectors`, what the head meets the query with | (n, r) |
| V_j | `RetrievalWeights.values`, what it hands out | (n, p) |
| β | `RetrievalWeights.beta`, the inverse temperature, already in K | |

The network is plain softmax attention in two layers (the tower's own, and one head of query dimension r without
biases); what the tower reads out linearly is the query map of the head. Nothing but weights lives here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network.head import DENSE_KEYS, Array, Axis, Head, frozen
from attnfun.network.network import Layer, Network

MOST_ENTRIES = 1 << 27


@dataclass(frozen=True, eq=False)
class RetrievalWeights:
    """Keys, key vectors and values; `outputs` names the columns of the values."""

    points: Array
    vectors: Array
    values: Array
    beta: float
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("points", "vectors", "values"):
            array = frozen(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
                raise InvalidRequest(f"the {name} of a retrieval head are no table of finite numbers")
        object.__setattr__(self, "outputs", tuple(self.outputs))
        if not len(self.points) == len(self.vectors) == len(self.values):
            raise InvalidRequest("a retrieval head has unequal numbers of keys, vectors and values")
        if len(self.outputs) != self.values.shape[1] or len(set(self.outputs)) != len(self.outputs):
            raise InvalidRequest(f"values of {self.values.shape[1]} columns need as many distinct names")
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise InvalidRequest(f"beta={self.beta!r}: a positive finite number is needed")

    @property
    def keys(self) -> int:
        return len(self.points)


def key_vectors(features: Array, beta: float) -> Array:
    """β ψ(y_j) in float64; refuses what overflows, and sizes past memory."""
    require_size(*features.shape)
    with np.errstate(over="ignore"):
        vectors = beta * features
    if not np.isfinite(vectors).all():
        raise Infeasible(f"beta={beta:.3g}: key vectors of this temperature overflow", {"beta": 1e280})
    return np.asarray(vectors)


def require_size(keys: int, rank: int) -> None:
    """Refuse a head past memory before it is made."""
    if keys > DENSE_KEYS or keys * rank > MOST_ENTRIES:
        most = min(DENSE_KEYS, MOST_ENTRIES // rank)
        raise Infeasible(f"{keys:,} keys of rank {rank} are out of reach", {"keys": most})


def retrieval_network(tower: Network, weights: RetrievalWeights) -> Network:
    """`tower` (points → features) with the retrieval head behind it."""
    rank = weights.vectors.shape[1]
    if tower.is_mlp:
        raise InvalidRequest("a retrieval head stands behind an attention tower, not behind ReLU units")
    if len(tower.outputs) != rank:
        raise InvalidRequest(f"key vectors of {rank} entries do not meet a tower of {len(tower.outputs)} features")
    axis = Axis(tower.readout, tower.readout_bias, weights.vectors, np.zeros(weights.keys))
    writes = _fresh(tower.coordinates, len(weights.outputs))
    head = Head("retrieve", (axis,), weights.values, writes)
    p = len(writes)
    readout = np.hstack([np.zeros((p, len(tower.coordinates))), np.eye(p)])
    return Network(tower.inputs, (*tower.layers, Layer((head,))), readout, np.zeros(p), weights.outputs, tower.box)


def _fresh(taken: Sequence[str], count: int) -> tuple[str, ...]:
    """Names for what the head writes, none of which the stream has."""
    word = "value"
    while any(name.startswith(word) for name in taken):
        word += "_"
    return tuple(f"{word}{k + 1}" for k in range(count))
