"""The torch modules behind `to_torch`, written over the plain form (`plain.py`); importing this file imports torch.

A certificate counts the rounding of one dtype. In a coarser one it says nothing: float16 and bfloat16 are off by far
more than most tolerances. So every module here is `Proved`: it warns when its weights leave that dtype.

| name of a weight | what |
| --- | --- |
| `layers.0.heads.log_m1.q`, `.q_bias`, `.k`, `.v`, `.o` | of a head: W_Q, b_Q, W_K or keys, W_V or values, W_O |
| `layers.0.carry` | what becomes of the stream itself |
| `layers.0.units.inner`, `.bias`, `.outer`, `.query`, `.query_bias` | ReLU units |
| `embed.0.select`, `embed.0.matrix` | how input tokens enter the stream |
| `constant`, `tokens`, `readout`, `readout_bias` | as in the plain form |
| `towers.0. …`, `signs` | of a relation |

All heads of a layer that attend to tokens are one F.scaled_dot_product_attention (scale=1.0), and so are heads of
constant keys of equal shapes. More points, sequences or queries than fit are taken in
blocks, except while torch compiles or exports: a block would fix the batch size in the program.

What may be seen and changed from outside, by a forward hook or by nnsight, is what a submodule returns that is called:

| submodule | what it returns |
| --- | --- |
| `layers.0.heads.log_m1` | the head's weighted mean of its values, (batch, tokens, p), before `o` places it |
| `layers.0.units` | what the units add to the stream |
| `layers.0` | the stream after the layer |
| `towers.0` | of a relation: the features of a side; a tower that serves both sides is called twice |

Points are one batch of tokens that do not see each other: (1, points, p).
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnfun.errors import InvalidRequest, require
from attnfun.network.head import AnyArray
from attnfun.network.plain import Plain, PlainHead, PlainLayer, PlainScores, slugs, stacked
from attnfun.network.torch_form import load_pretrained, needed

_BLOCK = 1 << 22
"""Attention weights at a time."""
OUTSIDE = ("raise", "clamp", "allow")


class Proved(nn.Module):
    """Weights in `dtype` of a network that was proved for `proved`; warns once when its arithmetic becomes coarser.

    `to`, `half`, `bfloat16`, `float` and `type`, of this module or of one around it, all go through `_apply`.
    """

    def __init__(self, proved: str, dtype: str) -> None:
        super().__init__()
        self.proved: torch.dtype = getattr(torch, proved)
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._told = False
        self.form: Any = None
        self.about: dict[str, str] = {}
        self.register_forward_pre_hook(_see_autocast)

    @property
    def own(self) -> Tensor:
        """One of its weights, to ask for dtype and device."""
        return next(w for w in (*self.parameters(), *self.buffers()))

    def fingerprint(self) -> str:
        """A sha256 of the form and all weights: the same for equal names, shapes and numbers, whatever their dtype."""
        digest = hashlib.sha256(json.dumps(self.form, sort_keys=True).encode())
        for name, weight in sorted(self.state_dict().items()):
            digest.update(f"{name} {tuple(weight.shape)} ".encode())
            digest.update(weight.detach().cpu().double().numpy().tobytes())
        return digest.hexdigest()

    def described(self, about: Mapping[str, str]) -> Self:
        """Itself, told what its weights are for; the hash tells later whether they still are these."""
        self.about = {**about, "hash": self.fingerprint()}
        return self

    def save_pretrained(self, folder: str | os.PathLike[str], **options: Any) -> Any:
        """config.json, model.safetensors and a README.md in a folder, through huggingface_hub's mixin (`hub.py`)."""
        needed("huggingface_hub", "huggingface_hub")
        from attnfun.network import hub

        return hub.save(self, folder, **options)

    @classmethod
    def from_pretrained(cls, source: str | os.PathLike[str], **options: Any) -> Self:
        """The module that `save_pretrained` wrote there (`torch_form.load_pretrained`)."""
        found = load_pretrained(source, **options)
        require(isinstance(found, cls), f"what was saved there is no {cls.__name__}: af.load_pretrained reads it")
        return cast(Self, found)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        inner = [(part, part._told) for part in self.modules() if isinstance(part, Proved) and part is not self]
        for part, _ in inner:
            part._told = True  # it is this module that speaks
        super()._apply(fn, recurse)
        for part, told in inner:
            part._told = told
        return self.telling()

    def telling(self, dtype: torch.dtype | None = None) -> Self:
        """Itself; warns, unless a part of it has, if `dtype` (that of the weights) is coarser than what was proved."""
        used = self.own.dtype if dtype is None else dtype
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
    own: Tensor = module.own  # type: ignore[assignment]
    if own.dtype != torch.float64 and torch.is_autocast_enabled(own.device.type):
        module.telling(torch.get_autocast_dtype(own.device.type))  # type: ignore[operator]  # a Proved


def _level() -> int:
    """How many frames up the first one outside torch and this package is: Python shows a warning once a place."""
    level = 1
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in ("torch", "attnfun"):
        level += 1
    return level


class Held(nn.Module):
    """Arrays by name: parameters where they may be trained, else buffers; None where there is none."""

    def hold(self, dtype: torch.dtype, trainable: bool, **arrays: AnyArray | None) -> None:
        for name, array in arrays.items():
            if array is None:
                self.register_buffer(name, None)
                continue
            tensor = torch.tensor(np.ascontiguousarray(array), dtype=dtype)
            if trainable:
                self.register_parameter(name, nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor)


class Head(Held):
    """One head: `q`, `q_bias`, `k`, `v`, `o`. It is called with its weighted mean of values, and hands it on."""

    q: Tensor
    q_bias: Tensor | None
    k: Tensor
    v: Tensor
    o: Tensor

    def __init__(self, head: PlainHead, dtype: torch.dtype, trainable: bool) -> None:
        super().__init__()
        self.hold(dtype, trainable, q=head.query, q_bias=head.query_bias, k=head.key, v=head.value, o=head.output)

    def forward(self, z: Tensor) -> Tensor:
        return z


class Units(Held):
    """The stream → what the ReLU units add to it."""

    inner: Tensor
    bias: Tensor
    outer: Tensor
    query: Tensor | None
    query_bias: Tensor | None

    def before(self, Z: Tensor) -> Tensor:
        """What ReLU is taken of."""
        return (Z if self.query is None else Z @ self.query + self.query_bias) @ self.inner + self.bias

    def forward(self, Z: Tensor) -> Tensor:
        return torch.relu(self.before(Z)) @ self.outer


class Layer(Held):
    """(batch, n, width) tokens that ask and (batch, m, width) tokens that are asked → what the stream becomes."""

    carry: Tensor | None

    def __init__(self, layer: PlainLayer, dtype: torch.dtype, trainable: bool) -> None:
        super().__init__()
        names = head_names(head.name for head in layer.heads)
        self.heads = nn.ModuleDict({n: Head(h, dtype, trainable) for n, h in zip(names, layer.heads, strict=True)})
        groups = stacked(layer.heads)
        self.groups = [([names[k] for k in group], layer.heads[group[0]].constant) for group in groups]
        self.hold(dtype, trainable, carry=layer.carry)
        self.units = Units() if layer.units is not None else None
        if self.units is not None:
            self.units.hold(dtype, trainable, **vars(layer.units))

    def forward(self, Z: Tensor, S: Tensor) -> Tensor:
        out = Z if self.carry is None else Z @ self.carry
        for names, constant in self.groups:
            out = out + self.attended([self.heads[name] for name in names], constant, Z, S)
        return out if self.units is None else out + self.units(out)

    def attended(self, heads: list[Any], constant: bool, Z: Tensor, S: Tensor) -> Tensor:
        """What the heads of a group add to the tokens Z."""
        H = len(heads)
        query = Z @ _side([head.q for head in heads])
        if heads[0].q_bias is not None:
            query = query + _side([head.q_bias for head in heads])
        query = query.unflatten(2, (H, -1)).transpose(1, 2)
        keys, values = [head.k for head in heads], [head.v for head in heads]
        if constant:
            key, value = (torch.stack(own) if H > 1 else own[0][None] for own in (keys, values))
            key, value = (one.expand(Z.shape[0], *one.shape) for one in (key, value))
        else:
            key, value = ((S @ _side(own)).unflatten(2, (H, -1)).transpose(1, 2) for own in (keys, values))
        z = _attention(query, key, value)
        given = [head(z[:, place, :, : head.o.shape[0]]) for place, head in enumerate(heads)]
        return torch.cat(given, -1) @ torch.cat([head.o for head in heads])


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(query key^T) value, (batch, heads, queries, p), as many queries at a time as fit."""
    if torch.compiler.is_compiling():  # before any question about a shape, which would fix it
        return F.scaled_dot_product_attention(query, key, value, scale=1.0)
    step = max(1, _BLOCK // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
    parts = query.split(step, 2)
    found = [F.scaled_dot_product_attention(part, key, value, scale=1.0) for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found, 2)


def _side(matrices: list[Tensor]) -> Tensor:
    """Matrices side by side, zeros where one has fewer columns than another."""
    if len(matrices) == 1:
        return matrices[0]
    most = max(one.shape[-1] for one in matrices)
    return torch.cat([one if one.shape[-1] == most else F.pad(one, (0, most - one.shape[-1])) for one in matrices], -1)


def most_keys(layer: PlainLayer) -> int:
    """Of the heads with constant keys."""
    return max((len(head.key) for head in layer.heads if head.constant), default=0)


def head_names(names: Iterable[str]) -> list[str]:
    """The names under which a `ModuleDict`, whose own methods have names, holds heads of these names."""
    return slugs(names, dir(nn.ModuleDict))


class Attention(Proved, Held):
    """A network in plain form: its inputs → its outputs, shaped as `plain.reads` says."""

    constant: Tensor | None
    tokens: Tensor | None
    readout: Tensor
    readout_bias: Tensor | None
    part: type[Layer] = Layer

    def __init__(self, plain: Plain, trainable: bool = False, outside: str = "raise") -> None:
        super().__init__(plain.proved, plain.dtype)
        self.inputs, self.outputs, self.coordinates = plain.inputs, plain.outputs, plain.coordinates
        self.reads, self.length, self.outside = plain.reads, plain.length, outside
        self.box = None if plain.box is None else _ends(plain)
        self.sources = [term.source for term in plain.terms]
        self.embed = nn.ModuleList(Held() for _ in plain.terms)
        for own, term in zip(self.embed, plain.terms, strict=True):
            own.hold(self.dtype, trainable, select=term.select, matrix=term.embed)  # type: ignore[operator]
        self.layers = nn.ModuleList(self.part(layer, self.dtype, trainable) for layer in plain.layers)
        self.hold(
            self.dtype,
            trainable,
            constant=plain.constant,
            tokens=plain.tokens,
            readout=plain.readout,
            readout_bias=plain.readout_bias,
        )
        self.appended = plain.appended
        sizes = [len(layer.heads) * max(most_keys(layer), plain.appended) for layer in plain.layers]
        self.weighed, self.most = max(sizes, default=1), max((len(layer.heads) for layer in plain.layers), default=1)

    @property
    def points(self) -> bool:
        return self.reads in ("points", "rows")

    def forward(self, *sequences: Tensor) -> Tensor:
        given = [self.taken(number, one) for number, one in self.counted(sequences)]
        shape = given[0].shape[:-1]
        if self.points:
            Z = self.embedded([one.reshape(1, -1, one.shape[-1]) for one in given])
            result = self.in_blocks(Z, 1).reshape(*shape, len(self.outputs))
            return result.squeeze(-1) if result.shape[-1] == 1 and self.reads == "points" else result
        Z = self.embedded([one if one.ndim == 3 else one[None] for one in given])
        result = self.in_blocks(Z, 0)
        result = result[:, 0] if self.reads == "first" else result
        return result if given[0].ndim == 3 else result[0]

    def counted(self, sequences: tuple[Any, ...]) -> Iterable[tuple[int, Any]]:
        if len(sequences) != len(self.inputs):
            raise InvalidRequest(f"this network takes {len(self.inputs)} inputs, not {len(sequences)}")
        return enumerate(sequences)

    def taken(self, number: int, given: Any) -> Tensor:
        """Input `number` as a tensor of the weights' dtype, its shape and its domain checked."""
        names, tensor = self.inputs[number], torch.as_tensor(given)
        shape, d = tuple(tensor.shape), len(names)
        if self.points:
            if not shape or shape[-1] != d:
                raise InvalidRequest(f"points must have {d} column{'s' * (d > 1)}, not shape {shape}")
            if self.tokens is not None and len(shape) != 2:
                raise InvalidRequest(f"the self form takes points of shape (n, {d}), not {shape}")
        elif len(shape) not in (2, 3) or shape[-1] != d or self.length not in (None, shape[-2]):
            raise InvalidRequest(f"tokens of shape {shape}: (batch, {self.length or 'n'}, {d}) is needed")
        checked = self.outside == "clamp" or (self.outside == "raise" and not torch.compiler.is_compiling())
        if self.box is not None and checked:
            tensor = self.within(number, tensor)
        return tensor.to(self.readout)

    def within(self, number: int, tensor: Tensor) -> Tensor:
        """The input, checked against the domain or cut to it; the ends are rounded outward to the input's dtype."""
        start = sum(len(names) for names in self.inputs[:number])
        assert self.box is not None
        low, high = (end[start : start + len(self.inputs[number])].to(tensor.device) for end in self.box)
        if self.outside == "clamp":
            return tensor.to(torch.float64).clamp(low, high)
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            slack = torch.finfo(tensor.dtype).eps
            low, high = low - slack * low.abs(), high + slack * high.abs()
        wide = tensor.to(torch.float64)
        if not bool(((wide >= low) & (wide <= high)).all()):
            raise InvalidRequest(
                f"a point is outside the domain of {', '.join(self.inputs[number])[:80]}: "
                'to_torch(outside="clamp") cuts it to the domain, outside="allow" takes it as it is'
            )
        return tensor

    def embedded(self, given: list[Tensor]) -> Tensor:
        total: Any = self.constant
        for source, own in zip(self.sources, self.embed, strict=True):
            one: Tensor = given[source]
            one = one if own.matrix is None else one @ own.matrix  # type: ignore[operator]
            one = one if own.select is None else own.select @ one  # type: ignore[operator]
            total = one if total is None else total + one
        return total  # type: ignore[no-any-return]

    def in_blocks(self, Z: Tensor, dim: int) -> Tensor:
        """The read-out of the given tokens, as many along `dim` (1: points, 0: sequences) at a time as fit."""
        if torch.compiler.is_compiling():
            return self.run(Z)
        total = Z.shape[1] + self.appended
        each = self.weighed if dim else self.most * total * (Z.shape[1] if len(self.layers) == 1 else total)
        step = max(1, _BLOCK // max(1, each))
        if dim and self.tokens is not None and len(self.layers) > 1:  # the constant tokens ask, too
            step = max(1, self.appended // 4, int((_BLOCK / self.most) ** 0.5) - self.appended)
        whole = Z.shape[dim] <= step
        return self.run(Z) if whole else torch.cat([self.run(part) for part in Z.split(step, dim)], dim)

    def run(self, X: Tensor) -> Tensor:
        """(batch, n, width) given tokens → (batch, n, outputs)."""
        n, Z = X.shape[1], self.joined(X)
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            Z = layer(Z[:, :n] if last else Z, Z)
        return self.read(Z[:, :n])

    def joined(self, X: Tensor) -> Tensor:
        """The constant tokens behind the given ones."""
        return X if self.tokens is None else torch.cat([X, self.tokens.expand(X.shape[0], *self.tokens.shape)], dim=1)

    def read(self, Z: Tensor) -> Tensor:
        result = Z @ self.readout
        return result if self.readout_bias is None else result + self.readout_bias


def _ends(plain: Plain) -> tuple[Tensor, Tensor]:
    assert plain.box is not None
    low, high = (torch.tensor(np.asarray(end), dtype=torch.float64) for end in plain.box)
    return low, high


class Scores(Proved, Held):
    """What the towers read, one tensor per side → scores: (m, n) of two sides, (n,) of three.

    `towers`: one module per tower, (n, inputs) → (n, rank); one serves all sides. `signs`: of the last side's features.
    """

    signs: Tensor
    part: type[Attention] = Attention

    def __init__(self, plain: PlainScores, trainable: bool = False, outside: str = "raise") -> None:
        super().__init__(plain.proved, plain.dtype)
        self.towers = nn.ModuleList(self.part(tower, trainable, outside) for tower in plain.towers)
        self.hold(self.dtype, False, signs=plain.signs)

    def forward(self, *inputs: Tensor) -> Tensor:
        first, *middle, last = (self.towers[min(k, len(self.towers) - 1)](one) for k, one in enumerate(inputs))
        last = last * self.signs
        return (first * middle[0] * last).sum(dim=1) if middle else first @ last.T
