"""Plain self-attention on a token matrix, and ReLU units between its layers: networks of prompts, sequences and sets.

    Z = [ X ; T ]                                                             X: the given tokens, T: constant tokens
    Z <- Z C + sum_h softmax( (Z W_Q)(Z W_K)^T ) (Z W_V) W_O                  every layer; C: carry, the identity
    output = the rows of X of Z, times the read-out                                      unless a layer has another

| symbol | here | shape |
| --- | --- | --- |
| Z | the token matrix | (n + m, width) |
| W_Q, W_K | `TokenHead.query`, `.key` | (width, r) |
| W_V, W_O | `TokenHead.value`, `.output` | (width, p), (p, width) |
| C | `TokenLayer.carry`, or None for the identity | (width, width) |

A bias is a coordinate that holds 1 in every token; a head that must not see a token meets a large negative number in
another. Linear maps and the residual stream are free, every nonlinearity is a softmax over all n + m tokens; no mask.
Nothing but weights lives here; arrays are float64 whose entries the network's dtype can hold. Compared by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from attnfun.errors import InvalidRequest, require
from attnfun.language.brief import Brief
from attnfun.network.architecture import TokenArchitecture, TokenLayerShape
from attnfun.network.head import AnyArray, Array, Matrices, Of, freeze, require_heads, require_names, require_weights
from attnfun.network.network import Cost
from attnfun.network.plain import HasPlain, Plain
from attnfun.network.playing import played

_BLOCK = 1 << 17  # attention weights, or numbers in the stream, at a time: they stay in cache
_MANY = 32  # heads of a layer from which on those alike are evaluated together


@dataclass(frozen=True, eq=False)
class TokenHead(Matrices):
    """softmax((Z W_Q)(Z W_K)^T)(Z W_V) W_O."""

    name: str
    query: Array
    key: Array
    value: Array
    output: Array

    def __post_init__(self) -> None:
        freeze(self)
        shapes = [array.shape for array in self.arrays.values()]
        fits = all(len(shape) == 2 and min(shape) > 0 for shape in shapes) and shapes[1] == shapes[0]
        if not fits or shapes[2][0] != shapes[0][0] or shapes[3] != shapes[2][::-1]:
            raise InvalidRequest(
                f"head {self.name!r} has W_Q, W_K, W_V, W_O of shapes {', '.join(map(str, shapes))}; "
                "(width, r), (width, r), (width, p), (p, width) are needed"
            )

    @property
    def width(self) -> int:
        return int(self.query.shape[0])

    @property
    def query_dim(self) -> int:
        return int(self.query.shape[1])

    @property
    def outputs(self) -> int:
        return int(self.value.shape[1])

    @property
    def product(self) -> Array:
        """A small matrix with the singular values of W_Q W_K^T: the product of two triangles."""
        return np.linalg.qr(self.query)[1] @ np.linalg.qr(self.key)[1].T

    @cached_property
    def moved(self) -> tuple[int, int, float, float] | None:
        """Where W_V and W_O have one entry each that is not 0: the coordinates read and written, and the two entries.

        Their products with finite tokens then need no matrices, and have the same bits: all other terms are 0.
        """
        if self.outputs != 1 or not np.count_nonzero(self.value) == np.count_nonzero(self.output) == 1:
            return None
        source, goal = int(np.flatnonzero(self.value)[0]), int(np.flatnonzero(self.output)[0])
        return source, goal, float(self.value[source, 0]), float(self.output[0, goal])

    @cached_property
    def rank(self) -> int:
        """The rank of W_Q W_K^T."""
        values = np.linalg.svd(self.product, compute_uv=False)
        return int(np.sum(values > values.max() * self.width * np.finfo(np.float64).eps))


@dataclass(frozen=True, eq=False)
class TokenLayer(Brief):
    """Heads side by side, added to the stream; `carry` is what becomes of the stream itself."""

    heads: tuple[TokenHead, ...]
    carry: Array | None = None

    def __post_init__(self) -> None:
        freeze(self)
        require_heads(self.heads)
        if self.carry is not None and self.carry.shape != (self.width, self.width):
            raise InvalidRequest(f"a layer of width {self.width} has a carry of shape {self.carry.shape}")

    @property
    def width(self) -> int:
        return self.heads[0].width


@dataclass(frozen=True, eq=False)
class FeedForward(Matrices):
    """relu(Z `inner` + `bias`) `outer`: (width, units), (units,), (units, width)."""

    inner: Array
    bias: Array
    outer: Array

    def __post_init__(self) -> None:
        freeze(self)
        flat = self.inner.ndim == 2 and self.outer.ndim == 2
        if not flat or self.outer.shape != self.inner.shape[::-1] or self.bias.shape != self.outer.shape[:1]:
            raise InvalidRequest(
                f"units of shapes {self.inner.shape}, {self.bias.shape}, {self.outer.shape}; "
                "(width, units), (units,), (units, width) are needed"
            )

    @property
    def units(self) -> int:
        return int(self.inner.shape[1])


class OnTokens(HasPlain):
    """What is done with a network on tokens: `attention`, and after its layer l the ReLU units `blocks[l]` or None."""

    _shown = ("coordinates", "outputs", "dtype", "cost")

    attention: TokenNetwork
    blocks: tuple[FeedForward | None, ...]

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(0 if block is None else block.units for block in self.blocks)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every weight with its name, 'layer0/head1/query' or 'layer0/ffn/inner' style: those of `layout`."""
        plain = self.attention
        for number, (layer, block) in enumerate(zip(plain.layers, self.blocks, strict=True)):
            for place, head in enumerate(layer.heads):
                yield from ((f"layer{number}/head{place}/{name}", array) for name, array in head.arrays.items())
            if layer.carry is not None:
                yield f"layer{number}/carry", layer.carry
            if block is not None:
                yield from ((f"layer{number}/ffn/{name}", array) for name, array in block.arrays.items())
        yield "constants", plain.constants
        yield "readout", plain.readout

    @cached_property
    def cost(self) -> Cost:
        """`keys` counts the constant tokens; the given ones come on top and are the user's."""
        heads, parameters = self.attention.heads, sum(array.size for _, array in self.arrays())
        values = [float(np.abs(head.value).max()) for head in heads]
        return Cost.of(heads, len(self.blocks), len(self.attention.constants), parameters, values, parameters)

    @cached_property
    def architecture(self) -> TokenArchitecture:
        """Its shape: what `train` fills with other weights."""
        plain = self.attention
        layers = []
        for layer, ffn in zip(plain.layers, self.units, strict=True):
            heads = tuple((head.query_dim, head.outputs) for head in layer.heads)
            layers.append(TokenLayerShape(heads, layer.carry is not None, ffn))
        return TokenArchitecture(plain.coordinates, tuple(layers), plain.outputs, len(plain.constants), plain.dtype)

    def looks(self, tokens: Array) -> Iterator[tuple[str, AnyArray, int]]:
        """Of one input (1, n, …) every head's name, its (tokens, tokens) softmax weights, and how many are given."""
        plain = self.attention
        for layer, state in zip(plain.layers, self.states(plain.joined(plain.given(tokens))), strict=False):
            for head in layer.heads:
                terms = attention_terms(head, state)[0]
                yield head.name, terms / terms.sum(axis=1, keepdims=True), tokens.shape[1]

    def run(self, tokens: npt.ArrayLike) -> AnyArray:
        """(n, width) or (batch, n, width) tokens -> (n, outputs) or (batch, n, outputs), computed in the dtype."""
        plain = self.attention
        given = plain.given(tokens)
        flat = given.reshape((-1, *given.shape[-2:]))
        n = flat.shape[1]
        size = n + len(plain.constants)
        if (found := played("tokens", len(flat) * size**2 * len(plain.heads), self, flat)) is not None:
            return found.reshape((*given.shape[:-1], len(plain.outputs)))  # type: ignore[no-any-return]
        step = max(1, _BLOCK // (size * max(size, plain.width)))
        parts = [self.states(plain.joined(flat[k : k + step]))[-1][:, :n] for k in range(0, len(flat), step)]
        last = np.concatenate(parts) if parts else flat
        return (last @ plain.readout.astype(plain.dtype)).reshape((*given.shape[:-1], len(plain.outputs)))

    def plain(self, dtype: str | None = None) -> Plain:
        """As matrices alone, on token matrices."""
        from attnfun.network.plain_form import of_tokens

        return of_tokens(self, dtype or self.attention.dtype)

    def states(self, Z: AnyArray) -> list[AnyArray]:
        """The token matrices (batch, n + m, width) before the first layer and after every one."""
        seen = [Z]
        for layer, block in zip(self.attention.layers, self.blocks, strict=True):
            Z = layer_output(layer, Z)
            if block is not None:
                W_1, b, W_2 = (array.astype(Z.dtype) for array in block.arrays.values())
                Z = Z + np.maximum(Z @ W_1 + b, 0) @ W_2
            seen.append(Z)
        return seen


@dataclass(frozen=True, eq=False)
class TokenNetwork(OnTokens):
    """Layers in order on tokens with the named `coordinates`, then a linear read-out of the given tokens.

    `constants` (m, width) are the tokens that the first, linear layer appends; m may be 0.
    Refuses with InvalidRequest shapes that do not meet and weights that are not finite or that `dtype` cannot hold.
    """

    coordinates: tuple[str, ...]
    layers: tuple[TokenLayer, ...]
    constants: Array
    readout: Array
    outputs: tuple[str, ...]
    dtype: str = "float64"

    def __post_init__(self) -> None:
        """Raise InvalidRequest, naming the part, unless shapes meet, weights are finite and fit the dtype."""
        freeze(self)
        require_names(coordinates=self.coordinates, outputs=self.outputs)
        for number, layer in enumerate(self.layers):
            require(layer.width == self.width, f"layer {number} reads {layer.width} coordinates of {self.width}")
        if self.readout.shape != (self.width, len(self.outputs)):
            raise InvalidRequest(f"read-out has shape {self.readout.shape}, not {(self.width, len(self.outputs))}")
        if self.constants.ndim != 2 or self.constants.shape[1] != self.width:
            raise InvalidRequest(f"constant tokens have shape {self.constants.shape}, not (m, {self.width})")
        require_weights(self.arrays(), self.dtype)

    @property
    def attention(self) -> TokenNetwork:  # type: ignore[override]
        """Itself: all that it is."""
        return self

    @property
    def blocks(self) -> tuple[FeedForward | None, ...]:  # type: ignore[override]
        return (None,) * len(self.layers)

    @property
    def width(self) -> int:
        return len(self.coordinates)

    @property
    def heads(self) -> tuple[TokenHead, ...]:
        return tuple(head for layer in self.layers for head in layer.heads)

    def stream(self, tokens: npt.ArrayLike) -> list[AnyArray]:
        """The token matrix (n + m, width) before the first layer and after every layer, for one token matrix."""
        return [Z[0] for Z in self.states(self.joined(self.given(tokens)[None]))]

    def given(self, tokens: npt.ArrayLike) -> AnyArray:
        """Tokens as an array of the dtype; InvalidRequest for other shapes."""
        array = np.asarray(tokens, dtype=self.dtype)
        if array.ndim not in (2, 3) or array.shape[-1] != self.width or array.shape[-2] == 0:
            raise InvalidRequest(f"tokens of shape {array.shape}: (n, {self.width}) or (batch, n, {self.width})")
        return array

    def joined(self, tokens: AnyArray) -> AnyArray:
        """(batch, n, width) -> (batch, n + m, width): the constant tokens behind the given ones."""
        constants = np.broadcast_to(self.constants.astype(self.dtype), (len(tokens), *self.constants.shape))
        return np.concatenate([tokens, constants], axis=1)


@dataclass(frozen=True, eq=False)
class TokenTransformer(OnTokens):
    """A token network whose layers are each followed by ReLU units, the same at every token, or by none:

        Z <- Z + relu( Z W_1 + b ) W_2                                after the layer's own attention

    No construction makes one and no checker proves anything of one: it is a type of its own, so that what is proved of
    the attention alone is never said of both. `blocks[l]` stands after layer l of `attention`.
    """

    attention: TokenNetwork
    blocks: tuple[FeedForward | None, ...]

    coordinates = Of[tuple[str, ...]]("attention")
    outputs = Of[tuple[str, ...]]("attention")
    width = Of[int]("attention")

    def __post_init__(self) -> None:
        freeze(self)
        if len(self.blocks) != len(self.attention.layers):
            raise InvalidRequest(f"{len(self.blocks)} feed-forward blocks for {len(self.attention.layers)} layers")
        if any(block is not None and len(block.inner) != self.width for block in self.blocks):
            raise InvalidRequest(f"the units must read the {self.width} coordinates of a token")
        require_weights(self.arrays(), self.dtype)

    @property
    def dtype(self) -> str:
        return self.attention.dtype


def same_entries(one: TokenNetwork, other: TokenNetwork) -> bool:
    """Whether both have the same coordinates, the same heads and carries in every layer, and every entry alike."""
    mine, theirs = dict(one.arrays()), dict(other.arrays())
    same = one.coordinates == other.coordinates and list(mine) == list(theirs)
    return same and all(np.array_equal(array, theirs[name]) for name, array in mine.items())


def sample_size(tokens: int, heads: int) -> int:
    """How many token matrices a network of so many heads is measured at: fewer where each is much work."""
    pairs = tokens**2 * max(1, heads)
    return max(min(200, max(8, (1 << 28) // pairs)), min(5000, (1 << 24) // pairs))


def layer_output(layer: TokenLayer, Z: AnyArray, first: int = 0) -> AnyArray:
    """(batch, n, width) token matrices after one layer, in their dtype: their tokens from `first` on."""
    new = Z[:, first:] if layer.carry is None else Z[:, first:] @ layer.carry.astype(Z.dtype)
    new, finite = new + 0, bool(np.isfinite(Z).all())  # a copy, to be written into
    for heads in _alike(layer, Z) if finite else [[head] for head in layer.heads]:
        if len(heads) > 1 and _moved_at_once(heads, Z, first, new):
            continue
        for head in heads:
            new = _with_head(head, Z, first, new, finite)
    return new


def _with_head(head: TokenHead, Z: AnyArray, first: int, new: AnyArray, finite: bool) -> AnyArray:
    """`new` and what the head adds; where it moves one coordinate, written into `new`."""
    terms = attention_terms(head, Z, first)
    sums, moved = _over_keys(np.add, terms), head.moved if finite else None
    if moved is not None:
        source, goal, scale, write = moved
        average = (terms @ (Z[:, :, source, None] * Z.dtype.type(scale) + 0)) / sums
        if np.isfinite(average).all():
            new[:, :, goal] += average[:, :, 0] * Z.dtype.type(write)
            return new
    W_V, W_O = (head.value.astype(Z.dtype), head.output.astype(Z.dtype))
    return new + ((terms @ (Z @ W_V)) / sums) @ W_O  # type: ignore[no-any-return]


def _alike(layer: TokenLayer, Z: AnyArray) -> list[list[TokenHead]]:
    """The heads in their order: by themselves, or where tokens are few and heads many, rows of them that fit in cache,
    of one rank, which all move one coordinate.
    """
    (batch, n, _), rows = Z.shape, list[list[TokenHead]]()
    most = max(1, _BLOCK // (n * n * batch)) if n < 8 and len(layer.heads) >= _MANY else 1
    for head in layer.heads:
        last = rows[-1] if rows else []
        fits = 0 < len(last) < most and last[0].query_dim == head.query_dim and None not in (last[0].moved, head.moved)
        if fits:
            last.append(head)
        else:
            rows.append([head])
    return rows


def _moved_at_once(heads: list[TokenHead], Z: AnyArray, first: int, new: AnyArray) -> bool:
    """Add to `new` what heads of one rank move, their logits by one product, with points as the last axis; False, and
    nothing added, where an average is not finite. Coordinates that none of them reads are left out of the product.
    """
    maps = []
    for matrices, tokens in (([h.query for h in heads], Z[:, first:]), ([h.key for h in heads], Z)):
        W = np.concatenate(matrices, axis=1).astype(Z.dtype)
        read = np.flatnonzero(W.any(axis=1))
        columns = tokens.transpose(2, 1, 0)[read]
        product = np.ascontiguousarray(W[read].T) @ columns.reshape(len(read), -1)
        maps.append(product.reshape(len(heads), -1, *columns.shape[1:]))
    queries, keys = maps
    terms = queries[:, 0, :, None] * keys[:, 0, None]
    for k in range(1, queries.shape[1]):
        terms += queries[:, k, :, None] * keys[:, k, None]
    terms -= terms.max(axis=2, keepdims=True)
    np.exp(terms, out=terms)
    sums = terms.sum(axis=2)
    moves = [head.moved for head in heads if head.moved is not None]
    values = np.stack([Z[:, :, source].T * Z.dtype.type(scale) + 0 for source, _, scale, _ in moves])
    terms *= values[:, None]
    average = terms.sum(axis=2) / sums
    if not np.isfinite(average).all():
        return False
    for (_, goal, _, write), one in zip(moves, average, strict=True):
        new[:, :, goal] += one.T * Z.dtype.type(write)
    return True


def attention_terms(head: TokenHead, Z: AnyArray, first: int = 0) -> AnyArray:
    """exp(logits − their maximum), (batch, n, n): the attention weights before they are divided by their sum, of the
    tokens from `first` on.
    """
    logits = (Z[:, first:] @ head.query.astype(Z.dtype)) @ np.swapaxes(Z @ head.key.astype(Z.dtype), 1, 2)
    logits -= _over_keys(np.maximum, logits)
    return np.exp(logits, out=logits)  # type: ignore[no-any-return]


def _over_keys(combine: np.ufunc, terms: AnyArray) -> AnyArray:
    """`combine.reduce` over the last axis, which is kept; where keys are few, key by key: in the order of NumPy's own
    sum of fewer than 8 numbers, and without a call for each row.
    """
    if not 0 < terms.shape[2] < 8:
        return np.asarray(combine.reduce(terms, axis=2, keepdims=True))
    found = terms[:, :, :1]
    for k in range(1, terms.shape[2]):
        found = combine(found, terms[:, :, k : k + 1])
    return found


def widened(tokens: Array, width: int) -> Array:
    """Zeros behind the coordinates, up to `width`."""
    return np.concatenate([tokens, np.zeros((*tokens.shape[:-1], width - tokens.shape[-1]))], axis=-1)


def misfit(network: Any, names: tuple[str, ...], outputs: int) -> str:
    """Why a network cannot read tokens with these coordinates, free ones behind them allowed, or has not so many
    outputs; empty where it fits."""
    own = len(names)
    if network.coordinates[:own] != names or any(not name.startswith("free ") for name in network.coordinates[own:]):
        return "the file's network reads other tokens than those of its target"
    return "" if len(network.outputs) == outputs else "the file's network has another number of outputs than its target"
