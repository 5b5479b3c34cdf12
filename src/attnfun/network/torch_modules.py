"""The torch modules behind `to_torch`; importing this file imports torch.

| buffer, layer l | shape | what |
| --- | --- | --- |
| query_l, query_bias_l | (width, H E), (H E) | the affine query maps, the constant 1 that meets the bias among them |
| key_l | (H, N, E) | (k_j, 0.., b_j); heads with fewer keys are filled up with shut-out keys (0, .., -G_h) |
| value_l, output_l | (H, N, P), (H P, new) | values; which coordinate of the stream each of them is added to |

E = 1 + the largest query dimension, N the most keys, P the most outputs of the layer's heads.

An MLP has query_l and query_bias_l alike (E the largest query dimension of its blocks), and

| hidden_l, hidden_bias_l | (B E, U), (U) | slopes and biases of all units, every unit reading its own block's query |
| --- | --- | --- |
| output_l | (U, new) | their values, in the columns that their block writes |
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network.literal import ENTRY_LIMIT, literal, shut_out, split_inputs
from attnfun.network.network import Layer, Network
from attnfun.network.torch_proved import Proved

_BLOCK = 1 << 22
"""Attention weights at a time; more points than that are taken in blocks."""


class _OnPoints(Proved):
    rows = False

    def _shaped(self, result: Tensor) -> Tensor:
        """One output is a number a point, not a row of one, unless rows are asked for."""
        return result.squeeze(-1) if result.shape[-1] == 1 and not self.rows else result

    def _tensor(self, points: object, columns: int) -> Tensor:
        tensor = torch.as_tensor(points).to(self._get("readout"))
        if tensor.ndim < 1 or tensor.shape[-1] != columns:
            raise InvalidRequest(f"points must have {columns} columns, not shape {tuple(tensor.shape)}")
        return tensor


class CrossAttention(_OnPoints):
    """Points ask a constant memory; in the joint form a point is (x, y) from two sequences."""

    def __init__(self, network: Network, dtype: str, form: str, second: tuple[str, ...]) -> None:
        super().__init__(network.dtype, dtype)
        self.form = form
        self.inputs = split_inputs(network, form, second)
        self.layers = len(network.layers)
        self.heads = [len(layer.heads) for layer in network.layers]
        self.keys = [max(head.keys for head in layer.heads) for layer in network.layers]
        for number, names in enumerate(self.inputs):
            embed = np.zeros((len(names), len(network.inputs)))
            for row, name in enumerate(names):
                embed[row, network.inputs.index(name)] = 1.0
            self._keep(f"embed_{number}", embed)
        for number, layer in enumerate(network.layers):
            self._keep_layer(network, number, layer)
        self._keep("readout", network.readout.T)
        self._keep("readout_bias", network.readout_bias)

    def _keep_layer(self, network: Network, number: int, layer: Layer) -> None:
        H, N = len(layer.attention), max(head.keys for head in layer.heads)
        E = 1 + max(head.query_dim for head in layer.heads)
        P = max(head.outputs for head in layer.heads)
        if H * N * max(E, P) > ENTRY_LIMIT:
            raise Infeasible(f"layer {number} in torch: {H} heads of {N} keys need more than {ENTRY_LIMIT} numbers")
        query, bias = np.zeros((layer.width, H, E)), np.zeros((H, E))
        key, value = np.zeros((H, N, E)), np.zeros((H, N, P))
        output = np.zeros((H, P, len(layer.writes)))
        name = str(self.dtype).removeprefix("torch.")
        for h, head in enumerate(layer.attention):
            r, n = head.query_dim, head.keys
            Q, c = head.query_map
            query[:, h, :r], bias[h, :r], bias[h, -1] = Q.T, c, 1.0
            if n < N:
                key[h, n:, -1] = shut_out(network, layer, head, name)
            key[h, :n, :r], key[h, :n, -1] = head.dense_keys()
            value[h, :n, : head.outputs] = head.values.reshape(-1, head.outputs)
            for i, coordinate in enumerate(head.writes):
                output[h, i, layer.writes.index(coordinate)] = 1.0
        self._keep(f"query_{number}", query.reshape(layer.width, H * E))
        self._keep(f"query_bias_{number}", bias.reshape(H * E))
        self._keep(f"key_{number}", key)
        self._keep(f"value_{number}", value)
        self._keep(f"output_{number}", output.reshape(H * P, len(layer.writes)))

    def forward(self, *sequences: Tensor) -> Tensor:
        if len(sequences) != len(self.inputs):
            raise InvalidRequest(f"the {self.form} form takes {len(self.inputs)} sequences, not {len(sequences)}")
        tensors = [self._tensor(points, len(names)) for points, names in zip(sequences, self.inputs, strict=True)]
        x = tensors[0] @ self._get("embed_0")
        for number, other in enumerate(tensors[1:], start=1):
            x = x + other @ self._get(f"embed_{number}")
        stream = x.reshape(-1, x.shape[-1])
        for number in range(self.layers):
            step = max(1, _BLOCK // (self.heads[number] * self.keys[number]))
            blocks = [self._attend(number, block) for block in stream.split(step)]
            stream = torch.cat([stream, torch.cat(blocks)], dim=1)
        result = stream @ self._get("readout") + self._get("readout_bias")
        result = result.reshape(*x.shape[:-1], result.shape[-1])
        return self._shaped(result)

    def _attend(self, number: int, stream: Tensor) -> Tensor:
        n, H = len(stream), self.heads[number]
        query = stream @ self._get(f"query_{number}") + self._get(f"query_bias_{number}")
        query = query.reshape(n, H, query.shape[1] // H).transpose(0, 1)
        key, value = self._get(f"key_{number}"), self._get(f"value_{number}")
        out = F.scaled_dot_product_attention(query[None], key[None], value[None], scale=1.0)[0]
        return out.transpose(0, 1).reshape(n, H * out.shape[-1]) @ self._get(f"output_{number}")


class SelfAttention(_OnPoints):
    """One sequence, the points and then all constant tokens, attends to itself in every layer."""

    def __init__(self, network: Network, dtype: str) -> None:
        super().__init__(network.dtype, dtype)
        form = literal(network, "self", dtype=dtype)
        self.inputs = len(network.inputs)
        self.layers = len(form.layers)
        self.heads = [len(layer.heads) for layer in form.layers]
        self._keep("embed", form.embed[0])
        self._keep("constant", form.constant)
        self._keep("tokens", form.tokens)
        width = len(form.constant)
        for number, layer in enumerate(form.layers):
            H = len(layer.heads)
            E = max(head.query.shape[1] for head in layer.heads)
            P = max(head.value.shape[1] for head in layer.heads)
            query, key = np.zeros((width, H, E)), np.zeros((width, H, E))
            value, output = np.zeros((width, H, P)), np.zeros((H, P, width))
            for h, head in enumerate(layer.heads):
                e, p = head.query.shape[1], head.value.shape[1]
                query[:, h, :e], key[:, h, :e] = head.query, head.key
                value[:, h, :p], output[h, :p] = head.value, head.output
            self._keep(f"query_{number}", query.reshape(width, H * E))
            self._keep(f"key_{number}", key.reshape(width, H * E))
            self._keep(f"value_{number}", value.reshape(width, H * P))
            self._keep(f"output_{number}", output.reshape(H * P, width))
        self._keep("readout", form.readout)

    def forward(self, points: Tensor) -> Tensor:
        x = self._tensor(points, self.inputs)
        if x.ndim != 2:
            raise InvalidRequest(f"the self form takes points of shape (n, {self.inputs}), not {tuple(x.shape)}")
        tokens = len(self._get("tokens"))
        if self.layers > 1:
            step = max(1, tokens // 4, int((_BLOCK / max(self.heads, default=1)) ** 0.5) - tokens)
        else:
            step = max(1, _BLOCK // (max(self.heads, default=1) * max(tokens, 1)))
        result = torch.cat([self._sequence(block) for block in x.split(step)])
        return self._shaped(result)

    @staticmethod
    def _split(rows: Tensor, heads: int) -> Tensor:
        """(tokens, heads · e) → (1, heads, tokens, e), also for no token at all."""
        return rows.reshape(rows.shape[0], heads, rows.shape[1] // heads).transpose(0, 1)[None]

    def _sequence(self, x: Tensor) -> Tensor:
        Z = torch.cat([x @ self._get("embed") + self._get("constant"), self._get("tokens")])
        for number in range(self.layers):
            S = Z
            if number == self.layers - 1:  # only these rows are read out
                Z = Z[: len(x)]
            query, key, value = (
                self._split(rows @ self._get(f"{part}_{number}"), self.heads[number])
                for part, rows in (("query", Z), ("key", S), ("value", S))
            )
            out = F.scaled_dot_product_attention(query, key, value, scale=1.0)[0]
            Z = Z + out.transpose(0, 1).flatten(1) @ self._get(f"output_{number}")
        return Z[: len(x)] @ self._get("readout")


class ReluNetwork(_OnPoints):
    """An MLP with skip connections: linear maps and one torch.relu a layer."""

    def __init__(self, network: Network, dtype: str) -> None:
        super().__init__(network.dtype, dtype)
        self.inputs = len(network.inputs)
        self.units = [sum(block.keys for block in layer.heads) for layer in network.layers]
        for number, layer in enumerate(network.layers):
            B, U, E = len(layer.heads), self.units[number], max(block.query_dim for block in layer.heads)
            if U * max(B * E, len(layer.writes)) > ENTRY_LIMIT:
                raise Infeasible(f"layer {number} in torch: {U} units need more than {ENTRY_LIMIT} numbers")
            query, bias = np.zeros((layer.width, B, E)), np.zeros((B, E))
            hidden, output, start = np.zeros((B, E, U)), np.zeros((U, len(layer.writes))), 0
            for k, block in enumerate(layer.heads):
                (axis,), own, r = block.axes, slice(start, start + block.keys), block.query_dim
                query[:, k, :r], bias[k, :r] = axis.query.T, axis.offset
                hidden[k, :r, own] = axis.slopes.T
                output[own, [layer.writes.index(name) for name in block.writes]] = block.values
                start += block.keys
            self._keep(f"query_{number}", query.reshape(layer.width, B * E))
            self._keep(f"query_bias_{number}", bias.reshape(B * E))
            self._keep(f"hidden_{number}", hidden.reshape(B * E, U))
            self._keep(f"hidden_bias_{number}", np.concatenate([block.axes[0].biases for block in layer.heads]))
            self._keep(f"output_{number}", output)
        self._keep("readout", network.readout.T)
        self._keep("readout_bias", network.readout_bias)

    def forward(self, points: Tensor) -> Tensor:
        x = self._tensor(points, self.inputs)
        step = max(1, _BLOCK // max(self.units, default=1))
        result = torch.cat([self.block(rows) for rows in x.reshape(-1, self.inputs).split(step)])
        result = result.reshape(*x.shape[:-1], result.shape[-1])
        return self._shaped(result)

    def block(self, stream: Tensor) -> Tensor:
        """(n, inputs) -> (n, outputs), all points at once."""
        for number in range(len(self.units)):
            query = stream @ self._get(f"query_{number}") + self._get(f"query_bias_{number}")
            hidden = torch.relu(query @ self._get(f"hidden_{number}") + self._get(f"hidden_bias_{number}"))
            stream = torch.cat([stream, hidden @ self._get(f"output_{number}")], dim=1)
        return stream @ self._get("readout") + self._get("readout_bias")
