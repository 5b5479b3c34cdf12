"""The plain form with a TransformerLens HookPoint at every step; importing this file imports transformer_lens.

    hooked = net.to_hooked()
    out, cache = hooked.run_with_cache(X)
    cache["blocks.0.attn.hook_pattern"]                   # [batch, head, query, key]

| name | what | shape |
| --- | --- | --- |
| `hook_embed` | the stream before the first layer, constant tokens behind the given ones | [batch, pos, d_model] |
| `blocks.0.hook_resid_pre`, `.hook_resid_post` | the stream before and after the layer | the same |
| `blocks.0.hook_carry` | what the layer keeps of the stream, where that is not the stream itself | the same |
| `blocks.0.attn.hook_q` | queries | [batch, pos, head, d_head] |
| `blocks.0.attn.hook_k`, `.hook_v` | keys and values | [batch, key, head, d_head] |
| `blocks.0.attn.hook_attn_scores`, `.hook_pattern` | before and after the softmax | [batch, head, query, key] |
| `blocks.0.attn.hook_z` | what each head gives, before W_O places it | [batch, pos, head, d_head] |
| `blocks.0.attn.hook_result` | what each head adds to the stream | [batch, pos, head, d_model] |
| `blocks.0.hook_attn_out` | the sum of that | [batch, pos, d_model] |
| `blocks.0.hook_resid_mid`, `blocks.0.mlp.hook_pre`, `.hook_post`, `blocks.0.hook_mlp_out` | of units | |
| `hook_readout` | the outputs of the given tokens | [batch, pos, outputs] |

A point is a batch of its own with one position. The keys of a head with constant keys are those, else the positions.
Heads of one layer that differ in size are padded to the largest one: vectors with zeros, scores with -inf, so that the
pattern is 0 there. Everything is computed at once, never in blocks, so that every hook runs once. Arrays that hooks are
given are copies: writing into one changes no weight.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from attnfun.network.plain import KeyNames, Plain, PlainLayer, PlainScores
from attnfun.network.torch_modules import Attention, Layer, Scores


@dataclass(frozen=True)
class Config:
    """Sizes under the names of TransformerLens, and labels.

    `coordinates` are those of the stream, `heads` the names of the heads by layer, in the order of the head axis.
    `n_heads` and `d_head` are those of the largest layer and head; `n_ctx` is None where any number of tokens is taken.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_mlp: int
    n_ctx: int | None
    attn_only: bool
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    coordinates: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    key_names: tuple[tuple[KeyNames | None, ...], ...] = field(repr=False)
    given: tuple[str, ...] | None
    constants: int

    @classmethod
    def of(cls, plain: Plain) -> "Config":
        heads = [head for layer in plain.layers for head in layer.heads]
        units = [layer.units.bias.size for layer in plain.layers if layer.units is not None]
        given = None if plain.length is None else tuple(f"token {k}" for k in range(plain.length))
        given = ("point",) if plain.reads in ("points", "rows") else given
        return cls(
            n_layers=len(plain.layers),
            n_heads=max((len(layer.heads) for layer in plain.layers), default=0),
            d_model=plain.width,
            d_head=max((n for head in heads for n in (head.query.shape[1], head.value.shape[1])), default=0),
            d_mlp=max(units, default=0),
            n_ctx=None if given is None else len(given) + plain.appended,
            attn_only=not units,
            inputs=plain.inputs,
            outputs=plain.outputs,
            coordinates=plain.coordinates,
            heads=tuple(tuple(head.name for head in layer.heads) for layer in plain.layers),
            key_names=tuple(tuple(head.key_names for head in layer.heads) for layer in plain.layers),
            given=given,
            constants=plain.appended,
        )

    def positions(self, tokens: int = 0) -> tuple[str, ...]:
        """Labels of the positions; where any number of tokens is taken, of inputs of so many."""
        own = tuple(f"token {k}" for k in range(tokens)) if self.given is None else self.given
        return own + tuple(f"constant {k}" for k in range(self.constants))

    def keys(self, layer: int, head: int, tokens: int = 0) -> tuple[str, ...]:
        """Labels of the keys of a head: of its own constant ones, else those of the positions."""
        names = self.key_names[layer][head]
        return self.positions(tokens) if names is None else names.labels


def _points(*names: str) -> nn.Module:
    """A module of hook points."""
    made = nn.Module()
    for name in names:
        made.add_module(f"hook_{name}", HookPoint())
    return made


class Block(Layer):
    """A layer, computed head by head, with a hook point at every step."""

    def __init__(self, layer: PlainLayer, dtype: torch.dtype, trainable: bool) -> None:
        super().__init__(layer, dtype, trainable)
        self.constant = [head.constant for head in layer.heads]
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()
        if self.carry is not None:
            self.hook_carry = HookPoint()
        if layer.heads:
            self.attn = _points("q", "k", "v", "attn_scores", "pattern", "z", "result")
            self.hook_attn_out = HookPoint()
        if self.units is not None:
            self.mlp = _points("pre", "post")
            self.hook_resid_mid, self.hook_mlp_out = HookPoint(), HookPoint()

    def forward(self, Z: Tensor, S: Tensor | None = None) -> Tensor:
        Z = self.hook_resid_pre(Z)
        out = Z if self.carry is None else self.hook_carry(Z @ self.carry)
        if self.constant:
            out = out + self.hook_attn_out(self.attention(Z))
        if self.units is not None:
            out = self.hook_resid_mid(out)
            hidden = self.mlp.hook_post(torch.relu(self.mlp.hook_pre(self.units.before(out))))
            out = out + self.hook_mlp_out(hidden @ self.units.outer)
        return self.hook_resid_post(out)  # type: ignore[no-any-return]

    def attention(self, Z: Tensor) -> Tensor:
        heads: list[Any] = list(self.heads.values())
        hooks: Any = self.attn
        asked = [Z @ head.q if head.q_bias is None else Z @ head.q + head.q_bias for head in heads]
        own = list(zip(heads, self.constant, strict=True))
        keys = [head.k.expand(len(Z), *head.k.shape) if constant else Z @ head.k for head, constant in own]
        values = [head.v.expand(len(Z), *head.v.shape) if constant else Z @ head.v for head, constant in own]
        q, k, v = hooks.hook_q(_beside(asked)), hooks.hook_k(_beside(keys)), hooks.hook_v(_beside(values))
        count = torch.tensor([one.shape[1] for one in keys], device=Z.device)
        outside = torch.arange(k.shape[1], device=Z.device) >= count[:, None, None]
        scores = torch.einsum("bqhr,bkhr->bhqk", q, k).masked_fill(outside, -torch.inf)
        pattern = hooks.hook_pattern(hooks.hook_attn_scores(scores).softmax(-1))
        z = hooks.hook_z(torch.einsum("bhqk,bkhp->bqhp", pattern, v))
        added = [z[:, :, place, : head.o.shape[0]] @ head.o for place, head in enumerate(heads)]
        return hooks.hook_result(torch.stack(added, 2)).sum(2)  # type: ignore[no-any-return]


def _beside(parts: list[Tensor]) -> Tensor:
    """(batch, rows, columns) of every head → (batch, rows, heads, columns), zeros where one is smaller than another."""
    rows, columns = (max(one.shape[axis] for one in parts) for axis in (1, 2))
    return torch.stack([F.pad(one, (0, columns - one.shape[2], 0, rows - one.shape[1])) for one in parts], 2)


class HookedAttention(Attention, HookedRootModule):
    """A network with `blocks` of hook points, and `cfg`."""

    part = Block

    def __init__(self, plain: Plain, trainable: bool = False, outside: str = "raise") -> None:
        super().__init__(plain, trainable, outside)
        self.cfg = Config.of(plain)
        self.blocks = self.layers
        del self.layers
        self.hook_embed, self.hook_readout = HookPoint(), HookPoint()
        self.setup()

    def in_blocks(self, Z: Tensor, dim: int) -> Tensor:
        """All at once; of points each is a batch of its own."""
        return self.run(Z.transpose(0, dim)).transpose(0, dim)

    def run(self, X: Tensor) -> Tensor:
        Z = self.hook_embed(self.joined(X))
        for block in self.blocks:
            Z = block(Z)
        return self.hook_readout(self.read(Z[:, : X.shape[1]]))  # type: ignore[no-any-return]


class HookedScores(Scores, HookedRootModule):
    """Scores of a relation: `towers`, one per side, each with its own hook points: `towers.0.blocks.0.attn.hook_z`.

    A tower that serves both sides is there twice, so that one side can be patched without the other.
    """

    part = HookedAttention

    def __init__(self, plain: PlainScores, trainable: bool = False, outside: str = "raise") -> None:
        sides = tuple(plain.tower(side) for side in range(plain.sides))
        super().__init__(replace(plain, towers=sides), trainable, outside)
        self.cfg = tuple(Config.of(tower) for tower in sides)
        self.hook_scores = HookPoint()
        self.setup()

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.hook_scores(super().forward(*inputs))  # type: ignore[no-any-return]
