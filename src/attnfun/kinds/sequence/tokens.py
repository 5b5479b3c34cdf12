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

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnfun.errors import Infeasible
from attnfun.kinds.sequence.network import Apply, Gather, GatherHead, SequenceNetwork, Spread
from attnfun.kinds.sequence.token_sequence import TokenSequence
from attnfun.network.head import Array, Head, rounded
from attnfun.network.literal import ENTRY_LIMIT, GAP, shut_out
from attnfun.network.network import Network
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork


@dataclass
class _Layer:
    """A layer in the making: what its heads write is added to Z carried by `carry`."""

    heads: list[list[Any]] = field(default_factory=list)  # [name, W_Q, W_K, W_V, W_O]
    carry: Array | None = None


def to_tokens(network: SequenceNetwork) -> TokenSequence:
    """`network`, on inputs of its box, as matrices alone."""
    return _Lowering(network).result()


class _Lowering:
    def __init__(self, network: SequenceNetwork) -> None:
        self.network, self.dtype = network, network.dtype
        self.gap = GAP[self.dtype] + 100.0
        self.n = network.tokens
        self.names: list[str] = [*network.inputs, "1", "in memory", "is null"]
        stages = network.stages
        if any(isinstance(s, Gather) and any(h.scores is not None for h in s.heads) for s in stages) or any(
            isinstance(s, Apply) and not s.shared for s in stages
        ):  # an equivariant network has no positions at all
            self.names += [f"position {i + 1}" for i in range(self.n)]
        self.slots: list[tuple[int, Array, float]] = []  # (first coordinate, rows of a head's keys, closed bias)
        self.sizes = dict(zip(network.inputs, np.maximum(*map(np.abs, network.box)), strict=True))
        self._name_all()
        self.width = len(self.names)
        keys = 1 + sum(len(rows) for _, rows, _ in self.slots)
        if max((self.n + keys) ** 2, keys * self.width, self.width**2) > ENTRY_LIMIT:
            raise Infeasible(
                f"as plain self-attention: {self.n + keys:,} tokens of width {self.width:,} need matrices past "
                f"{ENTRY_LIMIT:,} entries"
            )
        self.layers: list[_Layer] = []
        self.terms: list[tuple[Array, Array]] = []
        self.constant = np.zeros((self.n, self.width))

    def at(self, name: str) -> int:
        return self.names.index(name)

    # --- names and slots, before anything has a width

    def _name_all(self) -> None:
        self.plans: dict[tuple[int, int], list[_Merged]] = {}
        for number, stage in enumerate(self.network.stages):
            if isinstance(stage, Apply):
                for r, one in enumerate(stage.networks):
                    self.names += [inner(number, r, name) for layer in one.layers for name in layer.writes]
                if not stage.shared:
                    self.names += [f"stage {number}: affine {name}" for name in stage.writes]
            self.names += stage.writes
            for name in stage.writes:
                self.sizes[name] = 0.0
            self._bound(number, stage)
            if isinstance(stage, Apply):
                for depth in range(stage.depth):
                    self._merge(number, stage, depth)

    def _bound(self, number: int, stage: Any) -> None:
        """Generous bounds of the size of what a stage writes at a given token."""
        if isinstance(stage, Spread):
            for name in stage.writes:
                self.sizes[name] = max(self.sizes[c] for c in self.network.inputs)
        elif isinstance(stage, Gather):
            before = self.network.coordinates[: len(stage.heads[0].key)]
            sizes = np.array([self.sizes[c] for c in before])
            for head in stage.heads:
                for k, name in enumerate(head.writes):
                    self.sizes[name] = 1.01 * float(np.abs(head.value[:, k]) @ sizes + abs(head.offset[k]))
        else:
            for r, one in enumerate(stage.networks):
                low, high = one.ranges
                far = np.maximum(np.abs(low), np.abs(high))
                for k, name in enumerate(one.coordinates[len(one.inputs) :]):
                    self.sizes[inner(number, r, name)] = 1.01 * float(far[len(one.inputs) + k])
                reach = np.array([self.sizes[self._stream(number, r, one, c)] for c in one.coordinates])
                reach = np.abs(one.readout) @ reach + np.abs(one.readout_bias)
                for k, name in enumerate(stage.writes):
                    self.sizes[name] = max(self.sizes[name], 1.01 * float(reach[k]))

    @staticmethod
    def _stream(number: int, r: int, one: Network, name: str) -> str:
        return name if name in one.inputs else inner(number, r, name)

    def _merge(self, number: int, stage: Apply, depth: int) -> None:
        """The heads of one layer, networks side by side, and the slots of their keys."""
        per = [one.layers[depth].attention if depth < len(one.layers) else () for one in stage.networks]
        merged = []
        for h in range(max(len(heads) for heads in per)):
            blocks = [(r, stage.networks[r], heads[h] if h < len(heads) else None) for r, heads in enumerate(per)]
            merged.append(self._merged(number, stage, depth, h, blocks))
        self.plans[number, depth] = merged

    def _merged(
        self, number: int, stage: Apply, depth: int, h: int, blocks: list[tuple[int, Network, Head | None]]
    ) -> _Merged:
        real = [(r, one, head) for r, one, head in blocks if head is not None]
        dims = sum(head.query_dim for _, _, head in real)
        gates = 0 if stage.shared else len(stage.networks)
        writes = [inner(number, r, name) for r, _, head in real for name in head.writes]
        closed = min(shut_out(one, one.layers[depth], head, self.dtype) for _, one, head in real)
        most = 0.0
        for r, one, head in real:
            Q, c = head.query_map
            read = [self._stream(number, r, one, name) for name in one.coordinates[: Q.shape[1]]]
            reach = np.abs(Q) @ np.array([self.sizes[name] for name in read]) + np.abs(c)
            K, b = head.dense_keys()
            most = max(most, float((np.abs(K) @ reach + np.abs(b)).max()))
        gate = _ceil(abs(closed) + 1.01 * most + 2.0, self.dtype)
        rows, start, column = [], 0, 0
        for r, _, own in blocks:
            K, b, V = np.zeros((1, 0)), np.zeros(1), np.zeros((1, 0))  # one key of value 0
            if own is not None:
                K, b = own.dense_keys()
                V = own.values.reshape(-1, own.outputs)
            block = np.zeros((len(b), dims + gates + 1 + len(writes)))
            block[:, start : start + K.shape[1]] = K
            if gates:
                block[:, dims + r] = -gate
            block[:, dims + gates] = b
            block[:, dims + gates + 1 + column : dims + gates + 1 + column + V.shape[1]] = V
            start, column = start + K.shape[1], column + V.shape[1]
            rows.append(block)
        first = len(self.names)
        label = f"stage {number} layer {depth} head {h}"
        self.names += [f"{label}: slot {k}" for k in range(dims + gates + 1 + len(writes))]
        self.slots.append((first, np.concatenate(rows), closed))
        name = real[0][2].name if len(blocks) == 1 else f"{real[0][2].name} and others, by position"
        return _Merged(name, first, dims, gates, tuple(writes), real)

    # --- matrices

    def result(self) -> TokenSequence:
        net = self.network
        self._embed()
        for number, stage in enumerate(net.stages):
            if isinstance(stage, Gather):
                self._open()
                before = net.coordinates[: len(stage.heads[0].key)]
                for head in stage.heads:
                    self._gather_head(head, before)
            elif isinstance(stage, Spread):
                self._spread(stage)
            else:
                self._apply(number, stage)
        readout = np.zeros((self.width, len(net.outputs)))
        for k, name in enumerate(net.outputs):
            readout[self.at(name), k] = 1.0
        layers = tuple(
            TokenLayer(
                tuple(TokenHead(name, *(rounded(m, self.dtype) for m in maps)) for name, *maps in layer.heads),
                None if layer.carry is None else rounded(layer.carry, self.dtype),
            )
            for layer in self.layers
        )
        constants = self._constants()
        outputs = tuple(net.outputs)
        network = TokenNetwork(tuple(self.names), layers, constants, readout, outputs, self.dtype)
        terms = tuple((A, rounded(B, self.dtype)) for A, B in self.terms)
        return TokenSequence(terms, rounded(self.constant, self.dtype), network)

    def _embed(self) -> None:
        d = len(self.network.inputs)
        B = np.zeros((d, self.width))
        B[:, :d] = np.eye(d)
        self.terms.append((np.eye(self.n), B))
        self.constant[:, self.at("1")] = 1.0
        for i in range(self.n):
            if f"position {i + 1}" in self.names:
                self.constant[i, self.at(f"position {i + 1}")] = 1.0
        for first, rows, closed in self.slots:
            self.constant[:, self._bias(first, rows)] = closed

    def _bias(self, first: int, rows: Array) -> int:
        plan = next(p for plans in self.plans.values() for p in plans if p.first == first)
        return first + plan.dims + plan.gates

    def _constants(self) -> Array:
        """null first, then the keys of every head."""
        total = 1 + sum(len(rows) for _, rows, _ in self.slots)
        T = np.zeros((total, self.width))
        T[:, self.at("in memory")] = 1.0
        T[0, self.at("is null")] = 1.0
        row = 1
        for first, rows, closed in self.slots:
            T[:, self._bias(first, rows)] = closed
            T[row : row + len(rows), first : first + rows.shape[1]] = rows
            row += len(rows)
        return rounded(T, self.dtype)

    def _spread(self, stage: Spread) -> None:
        d = len(stage.inputs)
        for k in range(len(stage.sources[0])):
            A, B = np.zeros((self.n, self.n)), np.zeros((d, self.width))
            A[np.arange(self.n), [row[k] for row in stage.sources]] = 1.0
            for c in range(d):
                B[c, self.at(stage.writes[k * d + c])] = 1.0
            self.terms.append((A, B))

    def _open(self) -> None:
        self.layers.append(_Layer())

    def _head(self, name: str, W_Q: Array, W_K: Array, W_V: Array, writes: list[int]) -> None:
        """One more query coordinate, by which constant tokens ask *null* alone; then the head joins the layer."""
        ask, answer = np.zeros((self.width, 1)), np.zeros((self.width, 1))
        ask[self.at("in memory"), 0], answer[self.at("is null"), 0] = 1.0, self.gap
        W_O = np.zeros((len(writes), self.width))
        W_O[np.arange(len(writes)), writes] = 1.0
        W_Q, W_K = np.concatenate([W_Q, ask], axis=1), np.concatenate([W_K, answer], axis=1)
        self.layers[-1].heads.append([name, W_Q, W_K, W_V, W_O])

    def _gather_head(self, head: GatherHead, before: tuple[str, ...]) -> None:
        n, one = self.n, self.at("1")
        places = [self.at(name) for name in before]
        W_Q, W_K = np.zeros((self.width, 1)), np.zeros((self.width, 1))
        W_Q[one, 0] = 1.0
        W_K[places, 0] = head.key
        reach = float(np.abs(head.key) @ np.array([self.sizes[name] for name in before]))
        least = 0.0 if head.scores is None else min(0.0, float(head.scores.max(axis=1).min()))
        W_K[self.at("in memory"), 0] = -_ceil(self.gap + 1.01 * reach - least + 1.0, self.dtype)
        if head.scores is not None:
            codes = [self.at(f"position {i + 1}") for i in range(n)]
            Q, K = np.zeros((self.width, n)), np.zeros((self.width, n))
            Q[codes], K[codes] = head.scores, np.eye(n)
            W_Q, W_K = np.concatenate([W_Q, Q], axis=1), np.concatenate([W_K, K], axis=1)
        W_V = np.zeros((self.width, len(head.writes)))
        W_V[places] = head.value
        self._head(head.name, W_Q, W_K, W_V, [self.at(name) for name in head.writes])
        for k, name in enumerate(head.writes):
            if head.offset[k] != 0:
                self._carry()[one, self.at(name)] += head.offset[k]

    def _carry(self) -> Array:
        layer = self.layers[-1]
        if layer.carry is None:
            layer.carry = np.eye(self.width)
        return layer.carry

    def _apply(self, number: int, stage: Apply) -> None:
        for depth in range(stage.depth):
            self._open()
            for plan in self.plans[number, depth]:
                self._memory_head(number, stage, plan)
        if not stage.shared:
            self._affine_heads(number, stage)
        for o, name in enumerate(stage.writes):
            form = np.zeros(self.width)
            for r, one in enumerate(stage.networks):
                d = len(one.inputs)
                for c, written in enumerate(one.coordinates):
                    if c >= d or stage.shared:
                        form[self.at(self._stream(number, r, one, written))] += one.readout[o, c]
                if stage.shared:
                    form[self.at("1")] += one.readout_bias[o]
                else:
                    for i in np.flatnonzero(np.array(stage.of_token) == r):
                        form[self.at(f"position {i + 1}")] += one.readout_bias[o]
            if not stage.shared:
                form[self.at(f"stage {number}: affine {name}")] += 1.0
            self._linear(name, form)

    def _memory_head(self, number: int, stage: Apply, plan: _Merged) -> None:
        r_all = plan.dims + plan.gates + 1
        W_Q, W_K = np.zeros((self.width, r_all)), np.zeros((self.width, r_all))
        W_K[plan.first : plan.first + r_all] = np.eye(r_all)
        column = 0
        for r, one, head in plan.real:
            Q, c = head.query_map
            for k, name in enumerate(one.coordinates[: Q.shape[1]]):
                W_Q[self.at(self._stream(number, r, one, name)), column : column + len(c)] = Q[:, k]
            W_Q[self.at("1"), column : column + len(c)] = c
            column += len(c)
        for r in range(plan.gates):
            for i in np.flatnonzero(np.array(stage.of_token) != r):
                W_Q[self.at(f"position {i + 1}"), plan.dims + r] = 1.0
        W_Q[self.at("1"), plan.dims + plan.gates] = 1.0
        W_V = np.zeros((self.width, len(plan.writes)))
        W_V[plan.first + r_all : plan.first + r_all + len(plan.writes)] = np.eye(len(plan.writes))
        self._head(plan.name, W_Q, W_K, W_V, [self.at(name) for name in plan.writes])

    def _affine_heads(self, number: int, stage: Apply) -> None:
        """Every token of network r looks at itself, every other one at *null*; values: the affine part of r."""
        G = self.gap
        codes = [self.at(f"position {i + 1}") for i in range(self.n)]
        writes = [self.at(f"stage {number}: affine {name}") for name in stage.writes]
        for r, one in enumerate(stage.networks):
            if not one.readout[:, : len(one.inputs)].any():
                continue
            W_Q, W_K = np.zeros((self.width, self.n + 1)), np.zeros((self.width, self.n + 1))
            W_Q[self.at("1"), 0] = 1.0
            W_K[[self.at("1"), self.at("in memory")], 0] = -2 * G
            W_K[self.at("is null"), 0] = G
            for i in np.flatnonzero(np.array(stage.of_token) == r):
                W_Q[codes[i], 1 + i] = 2 * G
                W_K[codes[i], 1 + i] = 1.0
            W_V = np.zeros((self.width, len(stage.writes)))
            for c, name in enumerate(one.inputs):
                W_V[self.at(name)] = one.readout[:, c]
            self._head(f"affine part {r + 1}", W_Q, W_K, W_V, writes)

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
        for head in self.layers[-1].heads:
            head[4][:, place] += head[4] @ form


@dataclass(frozen=True, eq=False)
class _Merged:
    """Heads of several networks as one: where its slots begin, how many query and gate slots, what it writes."""

    name: str
    first: int
    dims: int
    gates: int
    writes: tuple[str, ...]
    real: list[tuple[int, Network, Head]]


def inner(stage: int, network: int, name: str) -> str:
    """The coordinate that network `network` of a stage writes under `name`."""
    return f"stage {stage}, network {network}: {name}"


def _ceil(value: float, dtype: str) -> float:
    """A whole number of `dtype`, at least `value`."""
    result = float(np.dtype(dtype).type(math.ceil(value)))
    while result < value:
        result = float(np.nextafter(np.dtype(dtype).type(result), np.dtype(dtype).type(np.inf)))
    if not math.isfinite(result):
        raise Infeasible(f"logits of size {value:.3g} are too large to shut anything out below them in {dtype}")
    return result
