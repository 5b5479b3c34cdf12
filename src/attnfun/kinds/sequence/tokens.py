"""A sequence network as plain self-attention on a token matrix: a `TokenSequence`.

    Z = [ sum_k A_k X B_k + C ; T ]      A_0 the identity; C: ones and positions; T: the constant tokens

| coordinates of a token | given token i | constant token |
| --- | --- | --- |
| the stream, by name | x, then what stages write | 0, always |
| "1", "in memory", "is null" | 1, 0, 0 | 0, 1, and 1 for one token, *null*, whose values are all 0 |
| "position 1" ... "position n", where positions matter | one-hot | 0 |
| slots of a head: key, gates, bias, value | 0, 0, -G, 0 | its own; 0, 0, -G, 0 in those of other heads |

Every head has one query coordinate more than it needs, which only constant tokens have and only *null* answers, GAP
above everything else: so the stream of constant tokens stays 0 and they disturb nothing. Tokens that a head must not
see lie at least GAP (800 in float64, 110 in float32) below its largest logit: an exact zero by underflow.

An apply stage whose networks differ from token to token becomes one head for the h-th heads of all of them: *blocks* of
keys, the block of network r with the gate -g where a token's position is not one of r's (a linear form of the position
coordinates, exactly 0 where it is); a network without an h-th head has a block of one key with value 0. Its affine part
is a head by which every token of r looks at itself, and every other token at *null*.

Failure mode: Infeasible, with the size, when tokens^2 attention weights or the matrices do not fit.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.errors import Infeasible
from attnfun.kinds.sequence.network import Apply, Gather, GatherHead, SequenceNetwork, Spread, TokenSequence
from attnfun.network.head import Array, Head, rounded
from attnfun.network.literal import ENTRY_LIMIT, GAP, one_hot, shut_out
from attnfun.network.network import Network
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork


@dataclass(frozen=True, eq=False)
class _Merged:
    """Heads of several networks as one: where its slots begin, what its queries read of a token, what it writes; the
    rows of its keys in these slots, and the bias that shuts other tokens out.
    """

    name: str
    first: int
    asks: Mapping[str, Array]
    writes: tuple[str, ...]
    rows: Array
    closed: float

    @property
    def dims(self) -> int:
        """Of a query: those of the heads, one a gate, and the bias, whose slot is the last of them."""
        return len(self.asks["1"])

    @property
    def bias(self) -> int:
        """The slot of the bias."""
        return self.first + self.dims - 1


def to_tokens(network: SequenceNetwork) -> TokenSequence:
    """`network`, on inputs of its box, as matrices alone."""
    return _Lowering(network).result()


class _Lowering:
    def __init__(self, network: SequenceNetwork) -> None:
        self.network, self.dtype, self.n = network, network.dtype, network.tokens
        self.gap = GAP[self.dtype] + 100.0
        self.names: list[str] = [*network.inputs, "1", "in memory", "is null"]
        self.codes: list[str] = []
        if any(stage.positional and not isinstance(stage, Spread) for stage in network.stages):
            self.codes = [f"position {i + 1}" for i in range(self.n)]  # an equivariant network has no positions at all
        self.names += self.codes
        self.sizes = dict(zip(network.inputs, np.maximum(*map(np.abs, network.box)), strict=True))
        self.plans: dict[tuple[int, int], list[_Merged]] = {}
        self._name_all()
        self.width = len(self.names)
        self.merged = [plan for plans in self.plans.values() for plan in plans]
        keys = 1 + sum(len(plan.rows) for plan in self.merged)
        if max((self.n + keys) ** 2, keys * self.width, self.width**2) > ENTRY_LIMIT:
            raise Infeasible(
                f"as plain self-attention: {self.n + keys:,} tokens of width {self.width:,} need matrices past "
                f"{ENTRY_LIMIT:,} entries"
            )
        # a layer in the making: [name, W_Q, W_K, W_V, W_O] of its heads; what they write is added to Z carried by C
        self.layers: list[list[list[Any]]] = []
        self.carries: list[Array | None] = []
        self.terms: list[tuple[Array, Array]] = [(np.eye(self.n), np.eye(len(network.inputs), self.width))]
        self.constant = np.zeros((self.n, self.width))
        self.constant[:, self.at("1")] = 1.0
        if self.codes:
            self.constant[:, [self.at(code) for code in self.codes]] = np.eye(self.n)
        for plan in self.merged:
            self.constant[:, plan.bias] = plan.closed

    def at(self, name: str) -> int:
        return self.names.index(name)

    def _map(self, columns: int, rows: Mapping[str, npt.ArrayLike]) -> Array:
        """(width, columns), zero but for the rows of these coordinates."""
        M = np.zeros((self.width, columns))
        for name, row in rows.items():
            M[self.at(name)] = row
        return M

    # --- names and slots, before anything has a width

    def _name_all(self) -> None:
        """Names, and generous bounds of the size of what a stage writes at a given token."""
        for number, stage in enumerate(self.network.stages):
            if isinstance(stage, Apply):
                self._plan(number, stage)
                continue
            self.names += stage.writes
            if isinstance(stage, Spread):
                self.sizes |= dict.fromkeys(stage.writes, max(self.sizes[c] for c in self.network.inputs))
                continue
            for head in stage.heads:
                sizes = self._sizes(self.network.coordinates[: len(head.key)])
                for k, name in enumerate(head.writes):
                    self.sizes[name] = 1.01 * float(np.abs(head.value[:, k]) @ sizes + abs(head.offset[k]))

    def _sizes(self, names: Sequence[str]) -> Array:
        return np.array([self.sizes[name] for name in names])

    def _plan(self, number: int, stage: Apply) -> None:
        """The names of an apply stage, their sizes, and its heads."""
        self.sizes |= dict.fromkeys(stage.writes, 0.0)
        for r, one in enumerate(stage.networks):
            self.names += [inner(number, r, name) for layer in one.layers for name in layer.writes]
            far, own = np.maximum(*map(np.abs, one.ranges)), len(one.inputs)
            for size, name in zip(far[own:], one.coordinates[own:], strict=True):
                self.sizes[inner(number, r, name)] = 1.01 * float(size)
            reach = np.abs(one.readout) @ self._sizes(_stream(number, r, one)) + np.abs(one.readout_bias)
            for k, name in enumerate(stage.writes):
                self.sizes[name] = max(self.sizes[name], 1.01 * float(reach[k]))
        if not stage.shared:
            self.names += self._affine(number, stage)
        self.names += stage.writes
        for depth in range(stage.depth):
            per = [one.layers[depth].attention if depth < len(one.layers) else () for one in stage.networks]
            self.plans[number, depth] = [
                self._merged(stage, heads, (number, depth, h)) for h, heads in enumerate(zip_longest(*per))
            ]

    def _merged(self, stage: Apply, blocks: tuple[Head | None, ...], place: tuple[int, int, int]) -> _Merged:
        """Heads of one layer, networks side by side, and the slots of their keys."""
        number, depth, h = place
        real = [(r, stage.networks[r], head) for r, head in enumerate(blocks) if head is not None]
        dims = sum(head.query_dim for _, _, head in real)
        bias = dims + (0 if stage.shared else len(stage.networks))
        asks: dict[str, Array] = defaultdict(lambda: np.zeros(bias + 1))
        asks["1"][bias] = 1.0
        if not stage.shared:
            for code, r in zip(self.codes, stage.of_token, strict=True):
                asks[code][dims:bias] = np.arange(bias - dims) != r
        start, most = 0, 0.0
        for r, one, head in real:
            (Q, c), (K, b) = head.query_map, head.dense_keys()
            names = _stream(number, r, one)[: Q.shape[1]]
            reach = np.abs(Q) @ self._sizes(names) + np.abs(c)
            most = max(most, float((np.abs(K) @ reach + np.abs(b)).max()))
            for name, row in (*zip(names, Q.T, strict=True), ("1", c)):
                asks[name][start : start + len(c)] = row
            start += len(c)
        closed = min(shut_out(one, one.layers[depth], head, self.dtype) for _, one, head in real)
        gate = _ceil(abs(closed) + 1.01 * most + 2.0, self.dtype)
        writes = tuple(inner(number, r, name) for r, _, head in real for name in head.writes)
        rows, start, column = [], 0, bias + 1
        for r, own in enumerate(blocks):
            K, b, V = np.zeros((1, 0)), np.zeros(1), np.zeros((1, 0))  # one key of value 0
            if own is not None:
                (K, b), V = own.dense_keys(), own.values.reshape(-1, own.outputs)
            block = np.zeros((len(b), bias + 1 + len(writes)))
            block[:, start : start + K.shape[1]] = K
            if not stage.shared:
                block[:, dims + r] = -gate
            block[:, bias] = b
            block[:, column : column + V.shape[1]] = V
            start, column = start + K.shape[1], column + V.shape[1]
            rows.append(block)
        first = len(self.names)
        self.names += [f"stage {number} layer {depth} head {h}: slot {k}" for k in range(bias + 1 + len(writes))]
        name = real[0][2].name if len(blocks) == 1 else f"{real[0][2].name} and others, by position"
        return _Merged(name, first, asks, writes, np.concatenate(rows), closed)

    # --- matrices

    def result(self) -> TokenSequence:
        net = self.network
        for number, stage in enumerate(net.stages):
            if isinstance(stage, Gather):
                self._open()
                for head in stage.heads:
                    self._gather_head(head)
            elif isinstance(stage, Spread):
                self._spread(stage)
            else:
                self._apply(number, stage)
        layers = tuple(
            TokenLayer(
                tuple(TokenHead(name, *(rounded(m, self.dtype) for m in maps)) for name, *maps in heads),
                None if carry is None else rounded(carry, self.dtype),
            )
            for heads, carry in zip(self.layers, self.carries, strict=True)
        )
        readout = self._map(len(net.outputs), dict(zip(net.outputs, np.eye(len(net.outputs)), strict=True)))
        network = TokenNetwork(tuple(self.names), layers, self._constants(), readout, net.outputs, self.dtype)
        terms = tuple((A, rounded(B, self.dtype)) for A, B in self.terms)
        return TokenSequence(terms, rounded(self.constant, self.dtype), network)

    def _constants(self) -> Array:
        """null first, then the keys of every head."""
        T = np.zeros((1 + sum(len(plan.rows) for plan in self.merged), self.width))
        T[:, self.at("in memory")] = 1.0
        T[0, self.at("is null")] = 1.0
        row = 1
        for plan in self.merged:
            T[:, plan.bias] = plan.closed
            T[row : row + len(plan.rows), plan.first : plan.first + plan.rows.shape[1]] = plan.rows
            row += len(plan.rows)
        return rounded(T, self.dtype)

    def _spread(self, stage: Spread) -> None:
        d = len(stage.inputs)
        for k in range(len(stage.sources[0])):
            A = np.eye(self.n)[[row[k] for row in stage.sources]]
            self.terms.append((A, self._map(d, dict(zip(stage.writes[k * d : k * d + d], np.eye(d), strict=True))).T))

    def _open(self) -> None:
        self.layers.append([])
        self.carries.append(None)

    def _head(self, name: str, W_Q: Array, W_K: Array, W_V: Array, writes: Sequence[str]) -> None:
        """One more query coordinate, by which constant tokens ask *null* alone; then the head joins the layer."""
        ask, answer = self._map(1, {"in memory": 1.0}), self._map(1, {"is null": self.gap})
        W_O = one_hot([self.at(name) for name in writes], self.width)
        self.layers[-1].append([name, np.hstack([W_Q, ask]), np.hstack([W_K, answer]), W_V, W_O])

    def _gather_head(self, head: GatherHead) -> None:
        before = self.network.coordinates[: len(head.key)]
        reach = float(np.abs(head.key) @ self._sizes(before))
        least = 0.0 if head.scores is None else min(0.0, float(head.scores.max(axis=1).min()))
        shut = -_ceil(self.gap + 1.01 * reach - least + 1.0, self.dtype)
        W_Q = self._map(1, {"1": 1.0})
        W_K = self._map(1, {**dict(zip(before, head.key, strict=True)), "in memory": shut})
        if head.scores is not None:
            W_Q = np.hstack([W_Q, self._map(self.n, dict(zip(self.codes, head.scores, strict=True)))])
            W_K = np.hstack([W_K, self._map(self.n, dict(zip(self.codes, np.eye(self.n), strict=True)))])
        W_V = self._map(len(head.writes), dict(zip(before, head.value, strict=True)))
        self._head(head.name, W_Q, W_K, W_V, head.writes)
        for k, name in enumerate(head.writes):
            if head.offset[k] != 0:
                self._carry()[self.at("1"), self.at(name)] += head.offset[k]

    def _carry(self) -> Array:
        carry = self.carries[-1]
        if carry is None:
            carry = self.carries[-1] = np.eye(self.width)
        return carry

    def _apply(self, number: int, stage: Apply) -> None:
        for depth in range(stage.depth):
            self._open()
            for plan in self.plans[number, depth]:
                W_K = np.eye(self.width, plan.dims, -plan.first)
                W_V = np.eye(self.width, len(plan.writes), -plan.first - plan.dims)
                self._head(plan.name, self._map(plan.dims, plan.asks), W_K, W_V, plan.writes)
        if not stage.shared:
            self._affine_heads(number, stage)
        rows: dict[str, Array] = {}
        for r, one in enumerate(stage.networks):
            own = 0 if stage.shared else len(one.inputs)  # the affine part has a head and coordinates of its own
            rows |= dict(zip(_stream(number, r, one)[own:], one.readout.T[own:], strict=True))
            places = ["1"] if stage.shared else [self.codes[i] for i in stage.tokens_of(r)]
            rows |= dict.fromkeys(places, one.readout_bias)
        if not stage.shared:
            rows |= dict(zip(self._affine(number, stage), np.eye(len(stage.writes)), strict=True))
        for name, form in zip(stage.writes, self._map(len(stage.writes), rows).T.copy(), strict=True):
            self._linear(name, form)

    def _affine_heads(self, number: int, stage: Apply) -> None:
        """Every token of network r looks at itself, every other one at *null*; values: the affine part of r."""
        G, n = self.gap, self.n
        for r, one in enumerate(stage.networks):
            if not one.readout[:, : len(one.inputs)].any():
                continue
            own = self._map(n, {self.codes[i]: np.eye(n)[i] for i in stage.tokens_of(r)})
            W_Q = np.hstack([self._map(1, {"1": 1.0}), 2 * G * own])
            W_K = np.hstack([self._map(1, {"is null": G, "1": -2 * G, "in memory": -2 * G}), own])
            W_V = self._map(len(stage.writes), dict(zip(one.inputs, one.readout.T, strict=False)))
            self._head(f"affine part {r + 1}", W_Q, W_K, W_V, self._affine(number, stage))

    @staticmethod
    def _affine(number: int, stage: Apply) -> list[str]:
        """The coordinates of the affine parts of a stage whose networks differ."""
        return [f"stage {number}: affine {name}" for name in stage.writes]

    def _linear(self, name: str, form: Array) -> None:
        """A coordinate that is a linear form of the stream after the last layer (or of the embedding)."""
        place = self.at(name)
        if not self.layers:
            for _, B in self.terms:
                B[:, place] += B @ form
            self.constant[:, place] += self.constant @ form
            return
        carry = self._carry()
        carry[:, place] = carry @ form
        for head in self.layers[-1]:
            head[4][:, place] += head[4] @ form


def inner(stage: int, network: int, name: str) -> str:
    """The coordinate that network `network` of a stage writes under `name`."""
    return f"stage {stage}, network {network}: {name}"


def _stream(stage: int, network: int, one: Network) -> list[str]:
    """Where the coordinates of a network of a stage are."""
    return [name if name in one.inputs else inner(stage, network, name) for name in one.coordinates]


def _ceil(value: float, dtype: str) -> float:
    """A whole number of `dtype`, at least `value`."""
    result = float(np.dtype(dtype).type(math.ceil(value)))
    while result < value:
        result = float(np.nextafter(np.dtype(dtype).type(result), np.dtype(dtype).type(np.inf)))
    if not math.isfinite(result):
        raise Infeasible(f"logits of size {value:.3g} are too large to shut anything out below them in {dtype}")
    return result
