"""The torch modules behind `to_torch`; importing this file imports torch.

A certificate counts the rounding of one dtype. In a coarser one it says nothing: float16 and bfloat16 are off by far
more than most tolerances. So every module here is `Proved`: buffers of weights that warn when they leave that dtype.

Points that ask a constant memory (cross and joint form), E = 1 + the largest query dimension, N the most keys, P the
most outputs of the layer's heads:

| buffer, layer l | shape | what |
| --- | --- | --- |
| query_l, query_bias_l | (width, H E), (H E) | the affine query maps, the constant 1 that meets the bias among them |
| key_l | (H, N, E) | (k_j, 0.., b_j); heads with fewer keys are filled up with shut-out keys (0, .., -G_h) |
| value_l, output_l | (H, N, P), (H P, new) | values; which coordinate of the stream each of them is added to |

An MLP has query_l and query_bias_l alike (E the largest query dimension of its blocks), and

| hidden_l, hidden_bias_l | (B E, U), (U) | slopes and biases of all units, every unit reading its own block's query |
| --- | --- | --- |
| output_l | (U, new) | their values, in the columns that their block writes |

Tokens that attend to each other (the self form, networks on tokens), E the largest query dimension:

| buffer, layer l | shape | what |
| --- | --- | --- |
| query_l, key_l | (width, H E) | W_Q and W_K of all heads side by side, E the largest query dimension, zeros beyond |
| value_l, output_l | (width, H P), (H P, width) | W_V and W_O alike, P the most outputs |
| inner_l, bias_l, outer_l | (width, u), (u,), (u, width) | its ReLU units; not there where it has none |
| carry_l | (width, width) | what becomes of the stream itself; not there where it is the identity |
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnfun.errors import Infeasible, InvalidRequest
from attnfun.network.head import AnyArray
from attnfun.network.literal import ENTRY_LIMIT, LiteralHead, literal, one_hot, shut_out, split_inputs
from attnfun.network.network import Layer, Network
from attnfun.network.tokens import OnTokens, TokenHead

_BLOCK = 1 << 22
"""Attention weights at a time; more points than that are taken in blocks."""


class Proved(nn.Module):
    """Weights in `dtype` of a network that was proved for `proved`; warns once when its arithmetic becomes coarser.

    `to`, `half`, `bfloat16`, `float` and `type`, of this module or of one around it, all go through `_apply`.
    """

    def __init__(self, proved: str, dtype: str) -> None:
        super().__init__()
        self.proved: torch.dtype = getattr(torch, proved)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._told = False
        self.register_forward_pre_hook(_see_autocast)

    def _keep(self, name: str, array: AnyArray) -> None:
        self.register_buffer(name, torch.tensor(np.ascontiguousarray(array), dtype=self.dtype))

    def _get(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        return self.telling()

    def telling(self, dtype: torch.dtype | None = None) -> Self:
        """Itself; warns, unless a part of it has, if `dtype` (that of the buffers) is coarser than what was proved."""
        used = next(self.buffers()).dtype if dtype is None else dtype
        parts = [part for part in self.modules() if isinstance(part, Proved)]
        step = torch.finfo(used).eps if used.is_floating_point else 1.0
        if step > torch.finfo(self.proved).eps and not any(part._told for part in parts):
            for part in parts:
                part._told = True
            proved, now = (str(kind).removeprefix("torch.") for kind in (self.proved, used))
            what = f"what the certificate of this network proves is for {proved} arithmetic: in {now} it holds no more"
            then = f"and errors can be far larger; to_torch() of the network gives the {proved} weights again"
            warnings.warn(f"{what}, {then}", stacklevel=_level())
        return self


def _see_autocast(module: nn.Module, _: Any) -> None:
    """Autocast computes with float32 weights in a coarser dtype; float64 ones it leaves alone."""
    buffer = next(module.buffers())
    kind = buffer.device.type
    if buffer.dtype != torch.float64 and torch.is_autocast_enabled(kind):
        module.telling(torch.get_autocast_dtype(kind))  # type: ignore[operator]  # a Proved


def _level() -> int:
    """How many frames up the first one outside torch and this package is: Python shows a warning once a place."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in ("torch", "attnfun"):
        level += 1
    return level


class OnPoints(Proved):
    """Points in, values out: (..., inputs) -> (...) for one output, else (..., outputs), `step` points at a time.

    `embedded` turns the given sequences into rows, and `block` takes rows through the network, any number of them at
    once. A traced program takes all of them: blocks would fix the batch size in it.
    """

    rows = False
    """Whether one output is a row of one a point, not a number."""
    step, form = 1, "cross"

    def __init__(self, network: Network, dtype: str, inputs: tuple[tuple[str, ...], ...]) -> None:
        super().__init__(network.dtype, dtype)
        self.inputs, self.layers = inputs, len(network.layers)
        self.heads = [len(layer.heads) for layer in network.layers]

    def forward(self, *sequences: Tensor) -> Tensor:
        if len(sequences) != len(self.inputs):
            raise InvalidRequest(f"the {self.form} form takes {len(self.inputs)} sequences, not {len(sequences)}")
        tensors = []
        for points, names in zip(sequences, self.inputs, strict=True):
            tensors.append(torch.as_tensor(points).to(self._get("readout")))
            if tensors[-1].ndim < 1 or tensors[-1].shape[-1] != len(names):
                raise InvalidRequest(f"points must have {len(names)} columns, not shape {tuple(tensors[-1].shape)}")
        x = self.embedded(*tensors)
        flat = x.reshape(-1, x.shape[-1])
        blocks = [flat] if torch.compiler.is_compiling() else flat.split(self.step)
        result = torch.cat([self.block(rows) for rows in blocks])
        result = result.reshape(*x.shape[:-1], result.shape[-1])
        return result.squeeze(-1) if result.shape[-1] == 1 and not self.rows else result

    def embedded(self, *tensors: Tensor) -> Tensor:
        first, *others = (tensor @ self._get(f"embed_{k}") for k, tensor in enumerate(tensors))
        return sum(others, start=first)

    def block(self, stream: Tensor) -> Tensor:
        """(n, rows) -> (n, outputs), all points at once."""
        raise NotImplementedError


class Streaming(OnPoints):
    """A stream that every layer makes wider by what it writes, `new`, and a read-out."""

    def __init__(self, network: Network, dtype: str, inputs: tuple[tuple[str, ...], ...], one: int) -> None:
        super().__init__(network, dtype, inputs)
        for number, layer in enumerate(network.layers):
            H, E = len(layer.heads), one + max(head.query_dim for head in layer.heads)
            query, bias = np.zeros((layer.width, H, E)), np.zeros((H, E))
            bias[:, E - one :] = 1.0
            for h, head in enumerate(layer.heads):
                Q, c = head.query_map
                query[:, h, : len(c)], bias[h, : len(c)] = Q.T, c
            self._keep(f"query_{number}", query.reshape(layer.width, H * E))
            self._keep(f"query_bias_{number}", bias.reshape(H * E))
        self._keep("readout", network.readout.T)
        self._keep("readout_bias", network.readout_bias)

    def block(self, stream: Tensor) -> Tensor:
        for number in range(self.layers):
            query = stream @ self._get(f"query_{number}") + self._get(f"query_bias_{number}")
            stream = torch.cat([stream, self.new(number, query)], dim=1)
        return stream @ self._get("readout") + self._get("readout_bias")

    def new(self, number: int, query: Tensor) -> Tensor:
        """(n, new coordinates) of a layer, from the queries of its heads or blocks."""
        raise NotImplementedError


class CrossAttention(Streaming):
    """Points ask a constant memory; in the joint form a point is (x, y) from two sequences."""

    def __init__(self, network: Network, dtype: str, form: str, second: tuple[str, ...]) -> None:
        super().__init__(network, dtype, split_inputs(network, form, second), one=1)
        self.form = form
        self.step = max(1, _BLOCK // max((_padded(layer) for layer in network.layers), default=1))
        for number, names in enumerate(self.inputs):
            self._keep(f"embed_{number}", one_hot([network.inputs.index(name) for name in names], len(network.inputs)))
        for number, layer in enumerate(network.layers):
            self._keep_layer(network, number, layer, dtype)

    def _keep_layer(self, network: Network, number: int, layer: Layer, dtype: str) -> None:
        H, N = len(layer.attention), max(head.keys for head in layer.heads)
        E = 1 + max(head.query_dim for head in layer.heads)
        P = max(head.outputs for head in layer.heads)
        if H * N * max(E, P) > ENTRY_LIMIT:
            raise Infeasible(f"layer {number} in torch: {H} heads of {N} keys need more than {ENTRY_LIMIT} numbers")
        key, value = np.zeros((H, N, E)), np.zeros((H, N, P))
        output = np.zeros((H, P, len(layer.writes)))
        for h, head in enumerate(layer.attention):
            r, n = head.query_dim, head.keys
            if n < N:
                key[h, n:, -1] = shut_out(network, layer, head, dtype)
            key[h, :n, :r], key[h, :n, -1] = head.dense_keys()
            value[h, :n, : head.outputs] = head.values.reshape(-1, head.outputs)
            output[h, : head.outputs] = one_hot([layer.writes.index(name) for name in head.writes], len(layer.writes))
        self._keep(f"key_{number}", key)
        self._keep(f"value_{number}", value)
        self._keep(f"output_{number}", output.reshape(H * P, len(layer.writes)))

    def new(self, number: int, query: Tensor) -> Tensor:
        H = self.heads[number]
        query = query.reshape(query.shape[0], H, query.shape[1] // H).transpose(0, 1)
        key, value = self._get(f"key_{number}"), self._get(f"value_{number}")
        out = F.scaled_dot_product_attention(query[None], key[None], value[None], scale=1.0)[0]
        return out.transpose(0, 1).reshape(out.shape[1], H * out.shape[2]) @ self._get(f"output_{number}")


def _padded(layer: Layer) -> int:
    """Attention weights of a layer for one point, with as many keys in every head as in the largest."""
    return len(layer.heads) * max(head.keys for head in layer.heads)


class ReluNetwork(Streaming):
    """An MLP with skip connections: linear maps and one torch.relu a layer."""

    def __init__(self, network: Network, dtype: str) -> None:
        super().__init__(network, dtype, (network.inputs,), one=0)
        units = [sum(block.keys for block in layer.heads) for layer in network.layers]
        self.step = max(1, _BLOCK // max(units, default=1))
        for number, (layer, U) in enumerate(zip(network.layers, units, strict=True)):
            B, E = len(layer.heads), max(block.query_dim for block in layer.heads)
            if U * max(B * E, len(layer.writes)) > ENTRY_LIMIT:
                raise Infeasible(f"layer {number} in torch: {U} units need more than {ENTRY_LIMIT} numbers")
            hidden, output, start = np.zeros((B, E, U)), np.zeros((U, len(layer.writes))), 0
            for k, block in enumerate(layer.heads):
                (axis,), own = block.axes, slice(start, start + block.keys)
                hidden[k, : axis.dim, own] = axis.slopes.T
                output[own, [layer.writes.index(name) for name in block.writes]] = block.values
                start += block.keys
            self._keep(f"hidden_{number}", hidden.reshape(B * E, U))
            self._keep(f"hidden_bias_{number}", np.concatenate([block.axes[0].biases for block in layer.heads]))
            self._keep(f"output_{number}", output)

    def embedded(self, *tensors: Tensor) -> Tensor:
        return tensors[0]

    def new(self, number: int, query: Tensor) -> Tensor:
        hidden = torch.relu(query @ self._get(f"hidden_{number}") + self._get(f"hidden_bias_{number}"))
        return hidden @ self._get(f"output_{number}")


class SelfAttention(OnPoints):
    """One sequence, the points and then all constant tokens, attends to itself in every layer."""

    def __init__(self, network: Network, dtype: str) -> None:
        super().__init__(network, dtype, (network.inputs,))
        form = literal(network, "self", dtype=dtype)
        tokens, most = max(1, len(form.tokens)), max(self.heads, default=1)
        self.step = max(1, _BLOCK // (most * tokens))
        if self.layers > 1:
            self.step = max(1, len(form.tokens) // 4, int((_BLOCK / most) ** 0.5) - len(form.tokens))
        for number, layer in enumerate(form.layers):
            _keep_heads(self, number, layer.heads)
        for name, array in (("embed_0", form.embed[0]), ("constant", form.constant), ("tokens", form.tokens)):
            self._keep(name, array)
        self._keep("readout", form.readout)

    def embedded(self, *tensors: Tensor) -> Tensor:
        if tensors[0].ndim != 2:
            wanted = f"(n, {len(self.inputs[0])})"
            raise InvalidRequest(f"the self form takes points of shape {wanted}, not {tuple(tensors[0].shape)}")
        return super().embedded(*tensors) + self._get("constant")

    def block(self, stream: Tensor) -> Tensor:
        Z = torch.cat([stream, self._get("tokens")])[None]
        for number in range(self.layers):
            S = Z
            if number == self.layers - 1:  # only these rows are read out
                Z = Z[:, : len(stream)]
            Z = Z + _attended(self, number, Z, S)
        return Z[0, : len(stream)] @ self._get("readout")


class TokenAttention(Proved):
    """(n, width) or (batch, n, width) tokens -> read-out of every given token; one attention call a layer."""

    def __init__(self, model: OnTokens, dtype: str) -> None:
        network = model.attention
        super().__init__(network.dtype, dtype)
        self.width, self.layers = network.width, len(network.layers)
        self.heads = [len(layer.heads) for layer in network.layers]
        self.carries = [layer.carry is not None for layer in network.layers]
        self.units = [block is not None for block in model.blocks]
        for number, (layer, block) in enumerate(zip(network.layers, model.blocks, strict=True)):
            _keep_heads(self, number, layer.heads)
            if layer.carry is not None:
                self._keep(f"carry_{number}", layer.carry)
            for part, array in (block.arrays if block is not None else {}).items():
                self._keep(f"{part}_{number}", array)
        self._keep("constants", network.constants)
        self._keep("readout", network.readout)

    def forward(self, tokens: Tensor) -> Tensor:
        given = torch.as_tensor(tokens).to(self._get("readout"))
        if given.ndim not in (2, 3) or given.shape[-1] != self.width:
            raise InvalidRequest(f"tokens of shape {tuple(given.shape)}: (batch, n, {self.width}) is needed")
        X = given if given.ndim == 3 else given[None]
        constants = self._get("constants")
        Z = torch.cat([X, constants.expand(X.shape[0], *constants.shape)], dim=1)
        for number in range(self.layers):
            kept = Z @ self._get(f"carry_{number}") if self.carries[number] else Z
            Z = kept + _attended(self, number, Z, Z)
            if self.units[number]:
                inner, bias, outer = (self._get(f"{part}_{number}") for part in ("inner", "bias", "outer"))
                Z = Z + torch.relu(Z @ inner + bias) @ outer
        result = Z[:, : X.shape[1]] @ self._get("readout")
        return result if given.ndim == 3 else result[0]


def _keep_heads(module: Proved, number: int, heads: Sequence[TokenHead | LiteralHead]) -> None:
    """W_Q, W_K, W_V and W_O of all heads of a layer side by side, zeros where a head has fewer columns."""
    for part in ("query", "key", "value", "output"):
        own = [getattr(head, part).T if part == "output" else getattr(head, part) for head in heads]
        wide = np.zeros((len(own[0]), len(own), max(matrix.shape[1] for matrix in own)))
        for place, matrix in enumerate(own):
            wide[:, place, : matrix.shape[1]] = matrix
        table = wide.reshape(len(wide), -1)
        module._keep(f"{part}_{number}", table.T if part == "output" else table)


def _attended(module: SelfAttention | TokenAttention, number: int, Z: Tensor, S: Tensor) -> Tensor:
    """What the heads of a layer add to the tokens Z (batch, n, width), which attend to the tokens S."""
    query, key, value = (
        (rows @ module._get(f"{part}_{number}")).unflatten(2, (module.heads[number], -1)).transpose(1, 2)
        for part, rows in (("query", Z), ("key", S), ("value", S))
    )
    out = F.scaled_dot_product_attention(query, key, value, scale=1.0)
    return out.transpose(1, 2).flatten(2) @ module._get(f"output_{number}")
