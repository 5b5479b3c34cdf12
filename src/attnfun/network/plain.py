"""The plain form: linear maps and softmax attention as matrices alone. It is the one way out of attnfun.

    Z = [ sum_k A_k X_k B_k + c ;  T ]                        the given tokens, and the constant tokens T behind them
    Z <- Z C + sum_h softmax( (Z W_Q + b_Q) K^T ) V W_O       every layer; K = Z W_K and V = Z W_V, or both constants
    Z <- Z + relu( (Z W_0 + b_0) W_1 + b_1 ) W_2              where a layer has units; W_0 may be the identity
    output = the rows of the given tokens, times the read-out, plus its bias

| symbol | here | shape |
| --- | --- | --- |
| X_k | input number `Term.source`, columns named by `Plain.inputs` | (tokens, columns) |
| A_k, B_k | `Term.select`, `Term.embed`; None for the identity | (n, tokens), (columns, width) |
| c, T | `Plain.constant`, `Plain.tokens`; None for none | (width,) or (n, width), (m, width) |
| W_Q, b_Q | `PlainHead.query`, `.query_bias` | (width, r), (r,) |
| W_K or K | `PlainHead.key` | (width, r), or (keys, r) where the head is `constant` |
| W_V or V, W_O | `PlainHead.value`, `.output` | (width, p) or (keys, p), (p, width) |
| C | `PlainLayer.carry`; None for the identity | (width, width) |

Every kind of weights has `plain(dtype)`. The torch module, the ONNX graph, the hooked model and the NumPy file are
each written once, over this form. Zeros and ones that place a number are exact in every dtype, so what holds of the
network's own evaluation up to rounding holds of this form.

| `reads` | an input | the output |
| --- | --- | --- |
| points | (…, columns): every row is a token that sees no other | (…,) for one output, else (…, outputs) |
| rows | the same | (…, outputs) |
| tokens | (batch, tokens, columns) or (tokens, columns) | (batch, tokens, outputs), or without the batch |
| first | (batch, tokens, columns) | (batch, outputs): all tokens hold the same, and the first is read |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from attnfun.language.brief import Brief
from attnfun.network.head import Array

Reads = Literal["points", "rows", "tokens", "first"]


@dataclass(frozen=True)
class KeyNames:
    """How a person reads a constant key: its index on each axis of `grid`, put into `text` ("cell {0}")."""

    text: str
    grid: tuple[int, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.text.format(*index) for index in product(*map(range, self.grid)))


@dataclass(frozen=True, eq=False)
class PlainHead(Brief):
    """`key_names` are those of constant keys."""

    name: str
    query: Array
    key: Array
    value: Array
    output: Array
    query_bias: Array | None = None
    constant: bool = False
    key_names: KeyNames | None = None


@dataclass(frozen=True, eq=False)
class PlainUnits(Brief):
    inner: Array
    bias: Array
    outer: Array
    query: Array | None = None
    query_bias: Array | None = None


@dataclass(frozen=True, eq=False)
class PlainLayer(Brief):
    heads: tuple[PlainHead, ...]
    carry: Array | None = None
    units: PlainUnits | None = None


@dataclass(frozen=True, eq=False)
class Term(Brief):
    """A_k X_k B_k."""

    source: int = 0
    select: Array | None = None
    embed: Array | None = None


@dataclass(frozen=True, eq=False)
class Plain(Brief):
    """One network as matrices. `proved` is the dtype of its certificate, `dtype` the one it is to run in.

    `length` is the number of tokens of an input, None for any number. `box` holds the ends of the columns of all
    inputs, one behind the other, where a domain is known.
    """

    inputs: tuple[tuple[str, ...], ...]
    coordinates: tuple[str, ...]
    terms: tuple[Term, ...]
    layers: tuple[PlainLayer, ...]
    readout: Array
    outputs: tuple[str, ...]
    proved: str
    dtype: str
    reads: Reads
    constant: Array | None = None
    tokens: Array | None = None
    readout_bias: Array | None = None
    length: int | None = None
    box: tuple[Array, Array] | None = None

    @property
    def width(self) -> int:
        return len(self.coordinates)

    @property
    def appended(self) -> int:
        """How many constant tokens stand behind the given ones."""
        return 0 if self.tokens is None else len(self.tokens)


@dataclass(frozen=True, eq=False)
class PlainScores(Brief):
    """Towers and the product of what they give: (m, n) scores of two inputs, (n,) of three.

    One tower serves all inputs, or there is one for each. `signs` multiply the features of the last input.
    """

    towers: tuple[Plain, ...]
    signs: Array

    @property
    def sides(self) -> int:
        return max(2, len(self.towers))

    @property
    def proved(self) -> str:
        return self.towers[0].proved

    @property
    def dtype(self) -> str:
        return self.towers[0].dtype

    def tower(self, side: int) -> Plain:
        return self.towers[min(side, len(self.towers) - 1)]


AnyPlain = Plain | PlainScores


class HasPlain(Brief):
    """Weights with a plain form, and so with every way out."""

    _shown: ClassVar[tuple[str, ...]] = ("dtype", "cost")

    plain: Callable[..., Any]
    """plain(dtype=None): their plain form in a dtype, their own unless given."""

    def to_torch(self, dtype: Any = None, *, trainable: bool = False, outside: str = "raise", **form: Any) -> Any:
        """A torch module of linear maps and softmax attention with these weights (`torch_form.to_torch`)."""
        from attnfun.network.torch_form import to_torch, torch_dtype

        return to_torch(self.plain(torch_dtype(self.dtype, dtype), **form), trainable, outside)  # type: ignore[attr-defined]

    def to_hooked(self, dtype: Any = None, *, outside: str = "raise", **form: Any) -> Any:
        """The same with a TransformerLens HookPoint at every step (`hooked_modules.py`)."""
        from attnfun.network.torch_form import to_hooked, torch_dtype

        return to_hooked(self.plain(torch_dtype(self.dtype, dtype), **form), outside)  # type: ignore[attr-defined]


def stacked(heads: tuple[PlainHead, ...]) -> list[list[int]]:
    """The numbers of a layer's heads, in groups that one attention call serves: all that attend to tokens (zeros where
    one has fewer columns), and those of constant keys that have equal shapes.
    """
    groups: dict[Any, list[int]] = {}
    for number, head in enumerate(heads):
        shape = (head.key.shape, head.value.shape) if head.constant else None
        groups.setdefault(shape, []).append(number)
    return list(groups.values())


def slugs(names: Iterable[str], reserved: Container[str] = ()) -> list[str]:
    """Names that may stand in the path of a weight: "log(m1)" → "log_m1"; equal ones are numbered."""
    taken: dict[str, int] = {}
    found = []
    for name in names:
        plain = re.sub(r"\W+", "_", name).strip("_") or "head"
        plain += "_" * (plain in reserved)
        taken[plain] = taken.get(plain, 0) + 1
        number = taken[plain]
        found.append(plain if number == 1 else f"{plain}_{number}")
    return found if len(set(found)) == len(found) else [f"{name}_{k}" for k, name in enumerate(found)]


def tree(plain: AnyPlain) -> dict[str, Any]:
    """The weights as they are named: `layers.0.heads.log_m1.q` is tree(plain)["layers"][0]["heads"]["log_m1"]["q"].

    What is None is left out. Besides arrays: the `source` of a term, and whether a head's keys are `constant`.
    """
    if isinstance(plain, PlainScores):
        return {"towers": dict(enumerate(map(tree, plain.towers))), "signs": plain.signs}
    found = {
        "embed": {k: _kept(source=t.source, matrix=t.embed, select=t.select) for k, t in enumerate(plain.terms)},
        "constant": plain.constant,
        "tokens": plain.tokens,
        "layers": dict(enumerate(map(_layer, plain.layers))),
        "readout": plain.readout,
        "readout_bias": plain.readout_bias,
    }
    return _kept(**found)


def _layer(layer: PlainLayer) -> dict[str, Any]:
    names = slugs(head.name for head in layer.heads)
    heads = {
        name: _kept(constant=h.constant, q=h.query, q_bias=h.query_bias, k=h.key, v=h.value, o=h.output)
        for name, h in zip(names, layer.heads, strict=True)
    }
    return _kept(carry=layer.carry, heads=heads, units=None if layer.units is None else _kept(**vars(layer.units)))


def _kept(**parts: Any) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part is not None}


def weights_of(own: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, Array]]:
    """Every array of a tree with its name, as `layers.0.heads.log_m1.q`."""
    for key, part in own.items():
        if isinstance(part, Mapping):
            yield from weights_of(part, f"{path}{key}.")
        elif isinstance(part, np.ndarray):
            yield f"{path}{key}", part
