"""ReLU networks that the user brings: a torch module, or weights in a safetensors file, taken exactly.

The target is the network in real arithmetic: every weight is the number its float is, however the network was trained
or stored (float16, bfloat16, float32, float64). A torch module may be nested `Sequential`s of Linear, ReLU and
Identity. It is recognised without importing torch, and compared with its own forward pass at a few points. A file
holds pairs `<name>.weight` (outputs × inputs) and `<name>.bias` (a missing one is zeros), in natural order of their
names ("2.weight" before "10.weight"), and means Linear, ReLU, Linear, …, Linear: a file of weights does not say what
stands between them. Inputs are x1, x2, … unless the domain names them.
Failure mode: InvalidRequest in one line for other layers, hooks, shapes that do not meet, NaN and infinities;
DamagedFile for what is no safetensors file. Nothing is ever unpickled.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from attnfun.errors import DamagedFile, InvalidRequest, require
from attnfun.files import read_bytes
from attnfun.language import Array, Box, Builder, Graph
from attnfun.language.domain import intervals

MAX_WEIGHTS: Final = 60_000  # about three operations of the graph each
FILE_LIMIT: Final = 64 << 20
SUFFIX: Final = ".safetensors"


@dataclass(frozen=True)
class Linear:
    """y = W x + b, W of shape (outputs, inputs)."""

    weight: Array
    bias: Array


@dataclass(frozen=True)
class Mlp:
    """Linear maps in order; `relu[i]` says whether a ReLU follows the i-th, `first` whether one comes before all."""

    maps: tuple[Linear, ...]
    relu: tuple[bool, ...]
    first: bool = False

    def __post_init__(self) -> None:
        require(len(self.maps) > 0, "the network has no linear layer")
        for i, one in enumerate(self.maps):
            layer, shape = f"linear layer {i + 1}", one.weight.shape
            fits = len(shape) == 2 and one.bias.shape == shape[:1] and 0 not in shape
            require(fits, f"{layer}: a weight of shape {shape} cannot have a bias of shape {one.bias.shape}")
            given = len(self.maps[i - 1].bias) if i else shape[1]
            require(shape[1] == given, f"{layer} takes {shape[1]} numbers and layer {i} gives {given}")
            finite = bool(np.isfinite(one.weight).all() and np.isfinite(one.bias).all())
            require(finite, f"{layer} has a weight that is NaN or infinite")
        count = sum(int(np.count_nonzero(one.weight)) for one in self.maps)
        require(count <= MAX_WEIGHTS, f"the network has {count:,} weights; at most {MAX_WEIGHTS:,} are read")

    @property
    def inputs(self) -> int:
        return int(self.maps[0].weight.shape[1])

    def box(self, domain: Any) -> Box:
        """The domain of the inputs (`input_box`)."""
        return input_box(domain, self.inputs)

    def graph(self, names: Sequence[str]) -> Graph:
        """The network as an expression of exact constants; weights that are 0 leave no trace."""
        require(len(names) == self.inputs, f"domain: {len(names)} variables for the network's {self.inputs} inputs")
        builder = Builder()
        values = [builder.var(name) for name in names]
        if self.first:
            values = [builder.apply("relu", v) for v in values]
        for one, bent in zip(self.maps, self.relu, strict=True):
            rows = [_row(builder, w, b, values) for w, b in zip(one.weight.tolist(), one.bias.tolist(), strict=True)]
            values = [_bent(builder, row) for row in rows] if bent else rows
        return builder.graph(values)

    def values(self, X: Array) -> Array:
        """(n, inputs) → (n, outputs) in float64."""
        Y = np.maximum(X, 0.0) if self.first else X
        for one, bent in zip(self.maps, self.relu, strict=True):
            Y = Y @ one.weight.T + one.bias
            Y = np.maximum(Y, 0.0) if bent else Y
        return Y


def input_box(domain: Any, inputs: int) -> Box:
    """The domain of the inputs: named as `Box.parse` reads it, or a pair of numbers or "low:high" for every input,
    or a list with a pair for each. Text may mix both: "-1:1" for the inputs x1, x2, … that are not named. Of these
    names the number counts, of all others the order.
    """
    names = [f"x{k + 1}" for k in range(inputs)]
    pairs = intervals(domain)
    if pairs is not None:
        require(len(pairs) in (1, inputs), f"domain: {len(pairs)} intervals for {inputs} inputs; give one each, or one")
        return Box.parse(dict(zip(names, pairs * (inputs // len(pairs)), strict=True)))
    texts = [domain] if isinstance(domain, str) else domain
    if isinstance(texts, Sequence) and all(isinstance(t, str) for t in texts):
        parts = [part.strip() for text in texts for part in text.split(";") if part.strip()]
        plain, named = [p for p in parts if "=" not in p], [p for p in parts if "=" in p]
        if len(plain) > 1:
            raise InvalidRequest(f"domain: {plain[0]} and {plain[1]} are both for every input; write x1={plain[0]}")
        if plain:
            own = {p.partition("=")[0].strip(): p for p in named}
            foreign = [name for name in own if name not in names]
            if foreign:
                raise InvalidRequest(f"domain: no input {foreign[0]}; they are {names[0]} to {names[-1]}")
            domain = [own.get(name, f"{name}={plain[0]}") for name in names]
    box = Box.parse(domain)
    require(box.dim == inputs, f"domain: {box.dim} variables for the {inputs} inputs of the network")
    return box.part(names) if set(box.names) == set(names) else box  # x2 is the second input wherever it is written


def _row(builder: Builder, weights: Sequence[float], bias: float, values: Sequence[int]) -> int:
    """bias + Σ w v, added up in pairs: graphs stay shallow however wide a layer is."""
    terms = [
        builder.apply("mul", builder.const(Fraction(w)), v) for w, v in zip(weights, values, strict=True) if w != 0
    ]
    if bias != 0 or not terms:
        terms.append(builder.const(Fraction(bias)))
    while len(terms) > 1:
        pairs = [builder.apply("add", a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(terms) - len(terms) % 2 :]
    return terms[0]


def _bent(builder: Builder, row: int) -> int:
    value = builder.node(row).value
    if isinstance(value, Fraction):
        return builder.const(max(value, Fraction(0)))
    return builder.apply("relu", row)


# ---------------------------------------------------------------- reading


def read_mlp(target: Any) -> Mlp | None:
    """The network that `target` is: an Mlp, a torch module or the path of a safetensors file; None for all else."""
    if isinstance(target, Mlp):
        return target
    if isinstance(target, os.PathLike) or (isinstance(target, str) and target.strip().endswith(SUFFIX)):
        return _from_file(Path(target.strip() if isinstance(target, str) else os.fspath(target)))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.nn.Module):
        return _from_torch(target, torch)
    return None


def _from_torch(module: Any, torch: Any) -> Mlp:
    maps: list[Linear] = []
    relu: list[bool] = []
    first = False
    everywhere = ("_global_forward_hooks", "_global_forward_pre_hooks")
    if any(getattr(torch.nn.modules.module, name, None) for name in everywhere):
        raise InvalidRequest("torch has global hooks that change what modules compute")
    for one in _flat(module, torch):
        if type(one) is torch.nn.Linear:
            bias = torch.zeros(one.out_features) if one.bias is None else one.bias
            maps.append(Linear(_numbers(one.weight), _numbers(bias)))
            relu.append(False)
        elif relu:
            relu[-1] = True
        else:
            first = True
    mlp = Mlp(tuple(maps), tuple(relu), first)
    X = np.random.default_rng(0).uniform(-1, 1, (16, mlp.inputs))
    like = next(module.parameters())
    try:
        with torch.no_grad():
            seen = module(torch.as_tensor(X, dtype=like.dtype, device=like.device)).double().cpu().numpy()
    except (RuntimeError, NotImplementedError) as why:  # layers of several dtypes, or a kernel that is not there
        raise InvalidRequest(f"the module cannot be called: {' '.join(str(why).split())[:120]}") from None
    X = torch.as_tensor(X, dtype=like.dtype).double().numpy()
    own, near = mlp.values(X), 64 * mlp.inputs * torch.finfo(like.dtype).eps
    if seen.shape != own.shape or not np.allclose(seen, own, rtol=near, atol=near * (1 + np.abs(own).max())):
        raise InvalidRequest("calling the module gives other numbers than its layers do (is its forward changed?)")
    return mlp


def _flat(module: Any, torch: Any) -> Iterator[Any]:
    """The Linear and ReLU layers of nested Sequentials, in order."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    if any(getattr(module, name, None) for name in hooks):
        raise InvalidRequest(f"the module {type(module).__name__} has hooks that change what it computes")
    if "forward" in vars(module):  # a few points might not tell relu6 from relu
        raise InvalidRequest(f"the module {type(module).__name__} has a forward of its own, not that of its class")
    if type(module) is torch.nn.Sequential:
        for inner in module:
            yield from _flat(inner, torch)
    elif type(module) in (torch.nn.Linear, torch.nn.ReLU):
        yield module
    elif type(module) is not torch.nn.Identity:
        raise InvalidRequest(
            f"the module {type(module).__name__} is not read: only Sequential, Linear, ReLU and Identity are"
        )


def _numbers(tensor: Any) -> Array:
    require(tensor.is_floating_point(), f"weights of type {tensor.dtype} are not read")
    require(not tensor.is_meta, "the module is on the device meta: its weights have no numbers")
    return np.array(tensor.detach().cpu().double().numpy(), dtype=np.float64)


def _from_file(path: Path) -> Mlp:
    tensors = read_tensors(path)
    if any(name == "readout" or name.startswith(("layers/", "left/", "network/")) for name in tensors):
        raise InvalidRequest(f"{path} holds a network that attnfun made, not the weights of an MLP: see verify")
    names = sorted({_stem(path, name) for name in tensors}, key=_natural)
    for one, other in pairwise(names):
        if _natural(one) == _natural(other):
            raise InvalidRequest(f"{path}: which of the layers {one!r:.60} and {other!r:.60} comes first?")
    maps = []
    for name in names:
        weight, bias = tensors.get(_key(name, "weight")), tensors.get(_key(name, "bias"))
        if weight is None or weight.ndim != 2:
            raise InvalidRequest(f"{path}: {_key(name, 'weight')} is missing, or no matrix")
        maps.append(Linear(weight, np.zeros(len(weight)) if bias is None else bias))
    order = ", ".join(names)[:120]
    try:
        return Mlp(tuple(maps), tuple(i < len(maps) - 1 for i in range(len(maps))))
    except InvalidRequest as why:
        raise InvalidRequest(f"{path}: {why} (layers in the order {order})") from None


def _stem(path: Path, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    require(kind in ("weight", "bias"), f"{path}: tensor {name!r:.80} is no <layer>.weight and no <layer>.bias")
    return stem


def _key(stem: str, kind: str) -> str:
    return f"{stem}.{kind}" if stem else kind


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Numbers in names count as numbers: layer 2 comes before layer 10."""
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.split(r"([0-9]+)", text) if p]


_KINDS: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors as float64, exactly; bfloat16, which NumPy has not, is the head of a float32."""
    from safetensors import SafetensorError, deserialize

    data = read_bytes(path, FILE_LIMIT)
    try:
        entries = deserialize(data)
    except ValueError as error:
        raise InvalidRequest(f"cannot read {path}: {error}") from None
    except SafetensorError as error:
        raise DamagedFile(f"{path} is not a whole safetensors file: {' '.join(str(error).split())[:80]}") from None
    found: dict[str, Array] = {}
    for name, entry in entries:
        kind = _KINDS.get(entry["dtype"])
        if kind is None:
            raise InvalidRequest(f"{path}: tensor {name!r:.80} is of type {entry['dtype']}; weights are floats")
        raw = np.frombuffer(entry["data"], dtype=kind).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        found[name] = raw.astype(np.float64)
    require(len(found) > 0, f"{path}: no tensor in it")
    return found
