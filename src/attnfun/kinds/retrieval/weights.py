"""A retrieval head: the left tower of a relation, then one softmax head over stored keys.

    x ─ tower ─► φ(x) ∈ R^r ─ head ─► Σ_j softmax_j(⟨φ(x), K_j⟩) V_j,      K_j = β ψ(y_j)

| symbol | here | shape |
| --- | --- | --- |
| y_j | `points`, the keys as points of the right box | (n, right variables) |
| K_j | `vectors`, what the head meets the query with | (n, r) |
| V_j | `values`, what it hands out | (n, p) |
| β | `beta`, the inverse temperature, already in K | |

The network is plain softmax attention in two layers (the tower's own, and one head of query dimension r without
biases); what the tower reads out linearly is the query map of the head. Nothing but weights is here.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import Infeasible, InvalidRequest, feasible, require
from attnfun.kinds.relation.form import Polynomials, Reading
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.retrieval.target import blocks
from attnfun.network import Architecture, Cost, HasPlain, Layer, Network, Plain, attention, evaluate, stream
from attnfun.network.head import DENSE_KEYS, AnyArray, Array, Axis, Head, Of, freeze, softmax
from attnfun.network.playing import played

MOST_ENTRIES = 1 << 27


@dataclass(frozen=True, eq=False)
class TableHead(HasPlain):
    """A head over a table, constructed or trained: the base of both."""

    points: Array
    values: Array
    beta: float
    ids: tuple[str, ...] | None

    if TYPE_CHECKING:  # a field or a property of the classes

        @property
        def network(self) -> Network: ...

        @property
        def architecture(self) -> Architecture: ...

    def weighed(self, inputs: Array) -> Iterator[AnyArray]:
        """(block, keys) softmax weights, block after block."""
        raise NotImplementedError

    def reading(self, utility: Relation) -> Reading:
        """What the tower reads of queries."""
        raise NotImplementedError

    def _require_table(self, *more: str) -> None:
        freeze(self)
        for name in ("points", "values", *more):
            array = getattr(self, name)
            if array.ndim != 2 or array.size == 0 or not np.isfinite(array).all():
                raise InvalidRequest(f"the {name} of a retrieval head are not a table of finite numbers")
            require(len(array) == len(self.points), f"a retrieval head has unequal numbers of keys and {name}")
        require(math.isfinite(self.beta) and self.beta > 0, f"beta={self.beta!r}: a positive finite number is needed")
        require(self.ids is None or len(self.ids) == len(self.points), "its keys and their names are not equally many")

    @property
    def keys(self) -> int:
        return len(self.points)

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.network,)

    cost = Of[Cost]("network")

    def plain(self, dtype: str | None = None) -> Plain:
        """That of `network`."""
        return self.network.plain(dtype)

    def top(self, inputs: Array) -> NDArray[np.int64]:
        """(m,) the most attended keys."""
        return np.concatenate([np.argmax(w, axis=1) for w in self.weighed(inputs)])

    def handed_out(self, inputs: Array) -> AnyArray:
        """(m, columns): Σ_j softmax_j V_j."""
        return np.asarray(evaluate(self.network, inputs), dtype=np.float64)

    def run(self, inputs: Array, picks: bool = False) -> Any:
        """What is handed out; with `picks` also the most attended keys."""
        return (self.handed_out(inputs), self.top(inputs)) if picks else self.handed_out(inputs)


@dataclass(frozen=True, eq=False)
class RetrievalWeights(TableHead):
    """A relation's features and towers, keys, key vectors and values; `outputs` names the columns of the values."""

    dtype: ClassVar[str] = "float64"

    relation: Polynomials
    vectors: Array
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        self._require_table("vectors")
        if len(self.outputs) != self.values.shape[1] or len(set(self.outputs)) != len(self.outputs):
            raise InvalidRequest(f"values of {self.values.shape[1]} columns need as many distinct names")
        entries, rank = self.vectors.shape[1], self.relation.rank
        require(entries == rank, f"key vectors of {entries} entries do not meet {rank} features")
        require(self.relation.realise != "mlp", "a retrieval head stands behind an attention tower, not ReLU units")

    @cached_property
    def network(self) -> Network:
        """Query → output: plain softmax attention, the tower's layers and one more. Its inputs are the tower's."""
        tower, word, p = self.relation.network("left"), "value", len(self.outputs)
        axis = Axis(tower.readout, tower.readout_bias, self.vectors, np.zeros(self.keys))
        while any(name.startswith(word) for name in tower.coordinates):
            word += "_"  # the stream has no such name
        head = Head("retrieve", (axis,), self.values, tuple(f"{word}{k + 1}" for k in range(p)))
        readout = np.hstack([np.zeros((p, len(tower.coordinates))), np.eye(p)])
        return Network(tower.inputs, (*tower.layers, Layer((head,))), readout, np.zeros(p), self.outputs, tower.box)

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.network,) if self.relation.realise else ()

    @property
    def cost(self) -> Cost:  # type: ignore[override]
        """Of `network`; behind polynomials instead of a tower the head alone."""
        if self.relation.realise:
            return self.network.cost
        n, rank, size = self.keys, self.relation.rank, self.keys * (self.relation.rank + self.values.shape[1])
        return Cost(1, 1, rank, n, size, rank, float(np.abs(self.values).max()), size)

    architecture = Of[Architecture]("network")  # type: ignore[assignment]

    def unfit(self, utility: Relation) -> str:
        return self.relation.unfit(utility)

    def reading(self, utility: Relation) -> Reading:
        return self.relation.reading(utility, 0)

    def handed_out(self, inputs: Array) -> AnyArray:
        entries = len(inputs) * (self.vectors.size + self.values.size)
        found = played("table", entries / 2, self, lambda: self.relation.values(0, inputs))
        if found is not None:
            return np.asarray(found)
        if self.relation.realise:
            return super().handed_out(inputs)
        return np.concatenate([w @ self.values for w in self.weighed(inputs)])

    def logits(self, inputs: Array) -> Iterator[AnyArray]:
        """(block, keys), block after block."""
        phi = self.relation.values(0, inputs)
        return (phi[rows] @ self.vectors.T for rows in blocks(len(phi), self.keys))

    def weighed(self, inputs: Array) -> Iterator[AnyArray]:
        return (softmax(own) for own in self.logits(inputs))

    def top(self, inputs: Array) -> NDArray[np.int64]:
        return np.concatenate([np.argmax(w, axis=1) for w in self.logits(inputs)])


@dataclass(frozen=True, eq=False)
class TrainedHead(TableHead):
    """A trained network whose last head attends over the table: what it reads of queries, and the table.

    `shape` is the architecture that was trained, which holds that of the network.
    """

    network: Network
    shape: Architecture
    reads: Reading

    def __post_init__(self) -> None:
        self._require_table()
        own = self.network
        head = own.layers[-1].attention[0] if own.layers and not own.is_mlp and own.layers[-1].attention else None
        fits = head is not None and len(own.layers[-1].heads) == 1 and head.keys == len(self.points)
        fits = fits and len(own.outputs) == self.values.shape[1] and self.reads.width == len(own.inputs)
        require(fits and self.shape.holds(own.architecture), "a network that does not fit its table")

    dtype, outputs = Of[str]("network"), Of[tuple[str, ...]]("network")

    @property
    def architecture(self) -> Architecture:
        return self.shape

    def unfit(self, utility: Relation) -> str:
        return "" if len(self.reads.names) == utility.left.dim else "its network reads other queries than its utility's"

    def reading(self, utility: Relation) -> Reading:
        return self.reads

    def weighed(self, inputs: Array) -> Iterator[AnyArray]:
        last = self.network.layers[-1]
        (head,) = last.attention
        for rows in blocks(len(inputs), self.keys):
            tokens = stream(self.network, inputs[rows])[:, : last.width]
            yield attention(head, tokens, self.dtype).reshape(len(tokens), -1).astype(np.float64)


def key_vectors(features: Array, beta: float) -> Array:
    """β ψ(y_j) in float64; refuses what overflows, and sizes past memory."""
    require_size(*features.shape)
    with np.errstate(over="ignore"):
        vectors = beta * features
    feasible(np.isfinite(vectors).all(), f"beta={beta:.3g}: key vectors of this temperature overflow", {"beta": 1e280})
    return np.asarray(vectors)


def require_size(keys: int, rank: int) -> None:
    """Refuse a head past memory before it is made."""
    if keys > DENSE_KEYS or keys * rank > MOST_ENTRIES:
        most = min(DENSE_KEYS, MOST_ENTRIES // rank)
        raise Infeasible(f"{keys:,} keys of rank {rank} are out of reach", {"keys": most})
