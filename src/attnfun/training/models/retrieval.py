"""RetrievalModel: a head over a table of keys whose weights were trained; what `train` makes of `retrieve`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept, read_back
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.learn.towers import Reading
from attnfun.network import Architecture, Cost, Network, attention, evaluate, stream, to_torch
from attnfun.network.head import Array
from attnfun.network.model_file import load_model, save_model
from attnfun.network.sealed import Source
from attnfun.targets.columns import Columns
from attnfun.targets.relation import Relation

if TYPE_CHECKING:
    import torch

KIND = "retrieval model"
_BLOCK = 1 << 21  # utilities at a time


@dataclass(frozen=True, eq=False)
class Table:
    """Keys as points of the right box, what they hand out, and the beta of the softmax that is wanted."""

    points: Array
    values: Array
    beta: float
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        whole = self.points.ndim == self.values.ndim == 2 and len(self.points) == len(self.values) > 0
        if not whole or not (math.isfinite(self.beta) and self.beta > 0):
            raise InvalidRequest("a table has as many values as keys, at least one, and a positive beta")


def utilities(target: Relation, table: Table, X: Array) -> Array:
    """(m, left variables) → (m, n) the utilities of all keys, as NumPy computes them."""
    return target.table(X, table.points)


def softmax_of_utilities(target: Relation, table: Table, X: Array) -> Array:
    """(m, left variables) → (m, columns): Σ_j softmax_j(β u(x, y_j)) V_j."""
    parts, step = [], max(1, _BLOCK // len(table.points))
    for start in range(0, len(X), step):
        logits = table.beta * utilities(target, table, X[start : start + step])
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        parts.append(weights / weights.sum(axis=1, keepdims=True) @ table.values)
    return np.concatenate(parts)


def wrongly_picked(target: Relation, table: Table, X: Array, top: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(m,): is the utility of the key that was picked below that of another."""
    parts, step = [], max(1, _BLOCK // len(table.points))
    for start in range(0, len(X), step):
        own = utilities(target, table, X[start : start + step])
        parts.append(own[np.arange(len(own)), top[start : start + step]] < own.max(axis=1))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class RetrievalModel:
    """Called as the constructed head is: queries (m, left variables) → (m, columns of the values)."""

    target: Relation
    table: Table
    reads: Reading
    network: Network
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, X: ArrayLike) -> NDArray[np.float64]:
        return np.asarray(evaluate(self.network, self.reads(self._queries(X))), dtype=np.float64)

    def attention(self, X: ArrayLike) -> NDArray[np.float64]:
        """(m, left variables) → (m, n): the softmax weights of the head over the keys."""
        last, parts = self.network.layers[-1], []
        (head,), queries = last.attention, self._queries(X)
        step = max(1, _BLOCK // len(self.table.points))
        for start in range(0, len(queries), step):
            tokens = stream(self.network, self.reads(queries[start : start + step]))[:, : last.width]
            parts.append(attention(head, tokens, self.network.dtype).reshape(len(tokens), -1).astype(np.float64))
        return np.concatenate(parts)

    def top(self, X: ArrayLike) -> NDArray[np.int64]:
        """(m, left variables) → (m,): the key with the largest weight."""
        return np.asarray(np.argmax(self.attention(X), axis=1))

    def exact(self, X: ArrayLike) -> NDArray[np.float64]:
        """The target itself: the softmax of the utilities, at the table's beta."""
        return softmax_of_utilities(self.target, self.table, self._queries(X))

    def _queries(self, X: ArrayLike) -> Array:
        queries = Columns.given(X, "query", self.target.left.names)
        queries.require_inside(self.target.left)
        return queries.values

    @property
    def architecture(self) -> Architecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """`network` as a torch module."""
        return to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Network, table, utility, request and certificate in one safetensors file."""
        target: dict[str, Any] = {"kind": KIND, "utility": self.target.to_json(), "reads": self.reads.to_json()}
        target |= {"beta": self.table.beta, "ids": None if self.table.ids is None else list(self.table.ids)}
        meta = {"target": target, **kept(self.request, self.certificate)}
        save_model(path, (self.network,), {"points": self.table.points, "values": self.table.values}, meta)

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        cost, c = self.cost, self.certificate
        return (
            f"{self.target.text}  on  {self.target.domain_text}, {len(self.table.points):,} keys\n"
            f"Trained: a tower and a head over the table, {cost.layers} layer(s), {cost.heads} head(s), "
            f"{cost.parameters:,} parameters; beta of the softmax that was wanted {self.table.beta:.4g}.\n"
            f"{c.heading}: {c.reason}."
        )


def load_retrieval_model(path: Source) -> RetrievalModel:
    """The trained head of a file; its certificate is the stored one."""
    (networks, tables), meta = load_model(path)
    try:
        held = meta["target"]
        if held["kind"] != KIND:
            raise InvalidRequest("another kind of model")
        (network,), target, reads = networks, Relation.from_json(held["utility"]), Reading.from_json(held["reads"])
        names, beta = held["ids"], held["beta"]
        ids = None if names is None else tuple(str(name) for name in names)
        table = Table(tables.pop("points"), tables.pop("values"), float(beta), ids)
        _fits(target, table, reads, network)
        if tables or type(beta) not in (int, float) or (ids is not None and len(ids) != len(table.points)):
            raise InvalidRequest("a table that does not fit")
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError, InvalidRequest) as error:
        raise DamagedFile(f"{os.fspath(path)} holds no trained head over a table ({error})") from None
    where = f"{target.left.text}, {len(table.points):,} keys, beta {table.beta:.4g}"
    certificate, request, _ = read_back(meta, network.dtype, f"the softmax of {target.text}", where)
    return RetrievalModel(target, table, reads, network, certificate, request)


def _fits(target: Relation, table: Table, reads: Reading, network: Network) -> None:
    head = network.layers[-1].attention[0] if network.layers and not network.is_mlp else None
    width = len(reads.names) if reads.inner is None else len(reads.inner.outputs)
    fits = head is not None and len(network.layers[-1].heads) == 1 and head.keys == len(table.points)
    fits = fits and len(network.outputs) == table.values.shape[1] and table.points.shape[1] == target.right.dim
    if not fits or reads.names != target.left.names or width != len(network.inputs):
        raise InvalidRequest("a network that does not fit its table")
    if not target.right.contains(table.points).all():
        raise InvalidRequest("a key outside the domain of the utility")


