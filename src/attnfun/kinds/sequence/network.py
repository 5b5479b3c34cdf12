"""Sequence networks: n tokens in, n tokens out; stages that gather over tokens and stages that apply to each token.

    Z_0 = X;      Z_(s+1) = ( Z_s , what stage s writes ),      output = the named coordinates of the last stream

| stage | at token i | in torch |
| --- | --- | --- |
| `Gather` | every head: sum_j softmax_j( S_ij + k . z_j ) (z_j V) + o, over the n tokens | one attention layer |
| `Apply` | a `Network` of constant keys on coordinates of token i, for all tokens or by position | its own layers |
| `Spread` | the inputs of the tokens sources[i]: sum_k A_k X B_k, linear in the flattened X | linear, no layer |

| symbol | here | shape |
| --- | --- | --- |
| S | `GatherHead.scores`, the positional part of the logits; None where positions do not matter | (n, n) |
| k, V, o | `GatherHead.key`, `.value`, `.offset` | (width,), (width, p), (p,) |

`tokens.py` writes the same network as plain self-attention on a token matrix, positions as one-hot
coordinates. Evaluation here is stage by stage in the dtype: a gather head computes z_j . k (a sum of the nonzero
products), adds S_ij, subtracts the largest logit, takes exp, and divides the sum of e_j v_j by the sum of e_j; then o
is added. Nothing but weights lives here; arrays are float64 whose entries the dtype can hold. Compared by identity.

`TokenSequence` is plain self-attention on the token matrix of a sequence,

    tokens = sum_k A_k X B_k + C      (n, d) → (n, width), linear in the sequence; then a network on tokens

It is what a sequence network is as matrices alone (`tokens.py`), and what training finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.sequence.target import SequenceMap, source_name
from attnfun.language.brief import Brief
from attnfun.language.domain import Box
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, Matrices, Of, freeze, frozen, require_weights
from attnfun.network.network import DTYPES, Cost, Network
from attnfun.network.plain import HasPlain, Plain, Term
from attnfun.network.playing import played
from attnfun.network.tokens import TokenNetwork, TokenTransformer

_BLOCK = 1 << 22
Embedding = tuple[tuple[tuple[Array, Array], ...], Array]


@dataclass(frozen=True, eq=False)
class GatherHead(Matrices):
    """softmax_j(S_ij + k . z_j) averages of z_j V, plus o, written to new coordinates."""

    name: str
    writes: tuple[str, ...]
    scores: Array | None
    key: Array
    value: Array
    offset: Array

    def __post_init__(self) -> None:
        freeze(self)
        p, width = len(self.writes), self.key.size
        shapes, wanted = (self.key.shape, self.value.shape, self.offset.shape), ((width,), (width, p), (p,))
        what = f"gather head {self.name!r} has a key, values and offsets of shapes"
        require(p > 0 and shapes == wanted, f"{what} {shapes}; {wanted} are needed")

    @property
    def arrays(self) -> dict[str, Array]:
        return super().arrays if self.scores is None else {"scores": self.scores, **super().arrays}

    @property
    def cost(self) -> Cost:
        n, rank = (0, 0) if self.scores is None else (len(self.scores), int(np.linalg.matrix_rank(self.scores)))
        rank, size = max(rank + int(np.any(self.key != 0)), 1), sum(array.size for array in self.arrays.values())
        return Cost(0, 1, rank, 0, size, n + 1, float(np.abs(self.value).max()), size)

    def weights(self, Z: AnyArray) -> AnyArray:
        """(batch, n, width) -> the attention matrices (batch, n, n), rows the tokens that ask."""
        terms = self._terms(Z)
        return np.asarray(terms / terms.sum(axis=2, keepdims=True))

    def _terms(self, Z: AnyArray) -> AnyArray:
        logits = (Z @ self.key.astype(Z.dtype))[:, None, :]
        if self.scores is not None:
            logits = logits + self.scores.astype(Z.dtype)
        logits = np.broadcast_to(logits, (len(Z), Z.shape[1], Z.shape[1]))
        logits = logits - logits.max(axis=2, keepdims=True)
        return np.asarray(np.exp(logits, out=logits))

    def run(self, Z: AnyArray) -> AnyArray:
        """(batch, n, width) -> (batch, n, p)."""
        key, value = self.key.astype(Z.dtype), self.value.astype(Z.dtype)
        average = played("gather", Z[:, :, 0].size * Z.shape[1], self.scores, Z, key, value)
        if average is None:
            terms = self._terms(Z)
            average = (terms @ (Z @ value)) / terms.sum(axis=2, keepdims=True)
        return np.asarray(average + self.offset.astype(Z.dtype))


@dataclass(frozen=True, eq=False)
class Gather(Brief):
    heads: tuple[GatherHead, ...]

    def __post_init__(self) -> None:
        freeze(self)
        require(bool(self.heads), "a gather stage needs at least one head")

    depth: ClassVar[int] = 1

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for head in self.heads for name in head.writes)

    @property
    def positional(self) -> bool:
        return any(head.scores is not None for head in self.heads)

    @property
    def costs(self) -> list[Cost]:
        return [head.cost for head in self.heads]

    def run(self, Z: AnyArray, _names: Sequence[str]) -> AnyArray:
        """What is written to the stream Z, (batch, n, width) -> (batch, n, writes)."""
        return np.concatenate([head.run(Z) for head in self.heads], axis=2)


@dataclass(frozen=True, eq=False)
class Spread(Brief):
    """Token i gets the inputs of the tokens sources[i] (from 0): one selection matrix A_k a column of `sources`."""

    inputs: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "sources", tuple(tuple(row) for row in self.sources))
        n = len(self.sources)
        good = n > 0 and len({len(row) for row in self.sources}) == 1 and len(self.sources[0]) > 0
        if not good or not all(type(j) is int and 0 <= j < n for row in self.sources for j in row):
            raise InvalidRequest("a spread stage needs, for every token, equally many tokens to read")

    depth: ClassVar[int] = 0
    positional: ClassVar[bool] = True
    costs: ClassVar[tuple[Cost, ...]] = ()

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(source_name(name, k) for k in range(len(self.sources[0])) for name in self.inputs)

    def run(self, Z: AnyArray, _names: Sequence[str]) -> AnyArray:
        return np.concatenate([Z[:, list(column), : len(self.inputs)] for column in zip(*self.sources, strict=True)], 2)


@dataclass(frozen=True, eq=False)
class Apply(Brief):
    """networks[of_token[i]] at token i; its inputs name the coordinates it reads, its outputs become `writes`."""

    networks: tuple[Network, ...]
    of_token: tuple[int, ...]
    writes: tuple[str, ...]

    def __post_init__(self) -> None:
        freeze(self)
        used = set(self.of_token)
        if not self.networks or used != set(range(len(self.networks))):
            raise InvalidRequest("an apply stage must name one of its networks for every token, and use them all")
        if any(len(network.outputs) != len(self.writes) or network.is_mlp for network in self.networks):
            raise InvalidRequest("an apply stage needs attention networks that write as many numbers as it names")

    @property
    def depth(self) -> int:
        """Its layers; networks that differ from token to token need one even for their affine parts alone (constants
        come with the positions)."""
        return max(int(self.affine > 0 and not self.shared), *(len(network.layers) for network in self.networks))

    @property
    def affine(self) -> int:
        """How many of the networks have an affine part."""
        return sum(bool(network.readout[:, : len(network.inputs)].any()) for network in self.networks)

    @property
    def shared(self) -> bool:
        return len(self.networks) == 1

    @property
    def positional(self) -> bool:
        return not self.shared

    def tokens_of(self, number: int) -> list[int]:
        """The tokens at which network `number` is applied."""
        return [i for i, which in enumerate(self.of_token) if which == number]

    @property
    def costs(self) -> list[Cost]:
        """Of each network, whose heads are blocks of those of the others; and of the heads, with the affine part of
        each network at its own positions.
        """
        heads = 0 if self.shared else self.affine
        for depth in range(self.depth):
            heads += max(len(n.layers[depth].heads) if depth < len(n.layers) else 0 for n in self.networks)
        return [Cost(0, heads, 0, 0, 0, 0, 0.0, 0), *(replace(network.cost, heads=0) for network in self.networks)]

    def run(self, Z: AnyArray, names: Sequence[str]) -> AnyArray:
        out = np.empty((*Z.shape[:2], len(self.writes)), dtype=Z.dtype)
        for number, network in enumerate(self.networks):
            at = self.tokens_of(number)
            out[:, at] = evaluate(network, Z[:, at][:, :, [names.index(name) for name in network.inputs]])
        return out


Stage = Gather | Apply | Spread


@dataclass(frozen=True, eq=False)
class SequenceNetwork(HasPlain):
    """Stages in order on n tokens with the coordinates `inputs`; `outputs` are coordinates of the last stream.

    `box` holds the least and the largest inputs that it is for.

    Refuses with InvalidRequest shapes that do not meet, a coordinate written twice or read before it is written, and
    weights that are not finite or that `dtype` cannot hold.
    """

    _shown = ("inputs", "tokens", "outputs", "dtype", "cost")

    inputs: tuple[str, ...]
    tokens: int
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    box: tuple[Array, Array]
    dtype: str = "float64"
    networks: ClassVar[tuple[()]] = ()
    """Whose keys have one norm for the whole: those of its stages have not."""

    def __post_init__(self) -> None:
        freeze(self)
        self.validate()

    def validate(self) -> None:
        require(self.dtype in DTYPES, f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if type(self.tokens) is not int or self.tokens < 1 or not self.inputs or not self.outputs or not self.stages:
            raise InvalidRequest("a sequence network needs tokens, inputs, outputs and stages")
        low, high = self.box
        if not low.shape == high.shape == (len(self.inputs),) or not (np.isfinite(high - low) & (low < high)).all():
            raise InvalidRequest("a sequence network needs a box of its inputs")
        names = list(self.inputs)
        for number, stage in enumerate(self.stages):
            if isinstance(stage, Gather):
                for head in stage.heads:
                    require(len(head.key) == len(names), f"head {head.name!r} reads {len(head.key)} of {len(names)}")
                    if head.scores is not None and head.scores.shape != (self.tokens, self.tokens):
                        raise InvalidRequest(f"gather head {head.name!r} has scores of shape {head.scores.shape}")
            elif isinstance(stage, Spread):
                if stage.inputs != self.inputs or len(stage.sources) != self.tokens or number:
                    raise InvalidRequest("a spread stage comes first and reads the inputs of every token")
            else:
                require(len(stage.of_token) == self.tokens, f"stage {number} is for {len(stage.of_token)} tokens")
                for network in stage.networks:
                    if not set(network.inputs) <= set(names) or network.dtype != self.dtype:
                        raise InvalidRequest(f"stage {number} reads what is not there, or in another dtype")
            names.extend(stage.writes)
        if len(set(names)) != len(names) or not set(self.outputs) <= set(names):
            raise InvalidRequest(f"coordinates repeat, or an output is not among them: {names[:40]}")
        require_weights(self.arrays(), self.dtype)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """The weights of the gather heads, 'stage0/head1/key' style; networks hold and check their own."""
        for number, stage in enumerate(self.stages):
            if isinstance(stage, Gather):
                for place, head in enumerate(stage.heads):
                    for name, array in head.arrays.items():
                        yield f"stage{number}/head{place}/{name}", array

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        return (*self.inputs, *(name for stage in self.stages for name in stage.writes))

    @property
    def equivariant(self) -> bool:
        """A permutation of the tokens permutes what it computes, but for rounding: nothing in it knows a position."""
        return not any(stage.positional for stage in self.stages)

    @property
    def layers(self) -> int:
        """Attention layers: one a gather stage, and those of the deepest network of every apply stage."""
        return sum(stage.depth for stage in self.stages)

    @cached_property
    def cost(self) -> Cost:
        """As plain self-attention: heads of one position are blocks of keys of one head; `keys` counts constant tokens
        (keys of networks; the given tokens come on top)."""
        costs = [cost for stage in self.stages for cost in stage.costs]
        heads, keys, size = (sum(getattr(c, name) for c in costs) for name in ("heads", "keys", "parameters"))
        rank, query_dim, most = (max(getattr(c, n) for c in costs) for n in ("rank", "query_dim", "max_value"))
        return Cost(self.layers, heads, rank, keys, size, query_dim, most, size)

    def serves(self, box: Box, tokens: int, outputs: int) -> bool:
        """Whether it is for sequences of so many tokens of a box."""
        same = np.array_equal(self.box[0], box.low_array) and np.array_equal(self.box[1], box.high_array)
        return same and (self.inputs, self.tokens, len(self.outputs)) == (box.names, tokens, outputs)

    def literal(self) -> TokenSequence:
        """The same network as plain self-attention on a token matrix: W_Q, W_K, W_V, W_O, constant tokens."""
        from attnfun.kinds.sequence.tokens import to_tokens

        return to_tokens(self)

    @property
    def architecture(self) -> TokenArchitecture:
        """That of `literal()`: what `train` fills with other weights."""
        return self.literal().architecture

    def plain(self, dtype: str | None = None) -> Plain:
        """That of `literal()`, on the box."""
        return replace(self.literal().plain(dtype), box=self.box)

    def run(self, X: npt.ArrayLike) -> AnyArray:
        """(batch, n, d) -> (batch, n, outputs), stage by stage, in the dtype."""
        given = np.asarray(X)
        if given.ndim != 3 or given.shape[1:] != (self.tokens, len(self.inputs)):
            wanted = f"(batch, {self.tokens}, {len(self.inputs)})"
            raise InvalidRequest(f"sequences of shape {given.shape}: {wanted} is needed")
        step = max(1, _BLOCK // (self.tokens**2 + self.tokens * len(self.coordinates)))
        places = [self.coordinates.index(name) for name in self.outputs]
        parts = [self.stream(given[k : k + step])[:, :, places] for k in range(0, len(given), step)]
        return np.concatenate(parts) if parts else np.zeros((0, self.tokens, len(places)), dtype=self.dtype)

    def looks(self, X: Array) -> Iterator[tuple[str, AnyArray, int]]:
        """Of one sequence (1, n, d) every gather head's name, its (n, n) softmax weights, and n."""
        stream = self.stream(X)
        for stage in self.stages:
            for head in stage.heads if isinstance(stage, Gather) else ():
                yield head.name, head.weights(stream[:, :, : len(head.key)])[0], self.tokens

    def stream(self, X: AnyArray) -> AnyArray:
        """Every coordinate of every token, (batch, n, d) -> (batch, n, len(coordinates))."""
        if np.asarray(X).dtype.kind not in "fiub" or not np.isfinite(X).all():
            raise InvalidRequest("sequences must be finite real numbers")
        Z: AnyArray = np.asarray(X).astype(self.dtype)
        names = list(self.inputs)
        for stage in self.stages:
            Z = np.concatenate([Z, stage.run(Z, names)], axis=2)
            names.extend(stage.writes)
        return Z


@dataclass(frozen=True, eq=False)
class TokenSequence(HasPlain):
    """The embedding sum_k A_k X B_k + C and the token network behind it; InvalidRequest for what does not fit."""

    terms: tuple[tuple[Array, Array], ...]
    constant: Array
    network: TokenNetwork | TokenTransformer

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "terms", tuple((frozen(A), frozen(B)) for A, B in self.terms))
        n, width = len(self.constant), self.network.width
        shapes = {(A.shape, B.shape) for A, B in self.terms}
        fits = len(shapes) == 1 and all(a == (n, n) and b[1:] == (width,) and b[0] for a, b in shapes)
        require(fits and self.constant.shape == (n, width) and n > 0, f"the embedding does not fit a width of {width}")
        if not all(np.isfinite(array).all() for array in (self.constant, *(a for term in self.terms for a in term))):
            raise InvalidRequest("an embedding of sequences holds numbers that are not finite")

    dtype, cost, architecture = Of[str]("network"), Of[Cost]("network"), Of[TokenArchitecture]("network")

    @property
    def networks(self) -> tuple[TokenNetwork | TokenTransformer]:
        return (self.network,)

    @property
    def equivariant(self) -> bool:
        """Whether all tokens are embedded alike, so that a permutation of the tokens permutes the outputs."""
        alike = len(self.terms) == 1 and bool((self.constant == self.constant[0]).all())
        return alike and np.array_equal(self.terms[0][0], np.eye(len(self.constant)))

    def serves(self, box: Box, tokens: int, outputs: int) -> bool:
        """Whether it is for sequences of so many tokens of a box."""
        own = len(self.constant), len(self.terms[0][1]), len(self.network.outputs)
        return own == (tokens, box.dim, outputs)

    def literal(self) -> TokenSequence:
        return self

    def tokens(self, X: npt.ArrayLike) -> AnyArray:
        """(batch, n, d) -> the given tokens (batch, n, width)."""
        return embedded(self.terms, self.constant, X, self.dtype)

    def looks(self, X: npt.ArrayLike) -> Iterator[tuple[str, AnyArray, int]]:
        """As of a network on tokens."""
        return self.network.looks(self.tokens(X))

    def run(self, X: npt.ArrayLike) -> AnyArray:
        """(batch, n, d) -> (batch, n, p)."""
        return self.network.run(self.tokens(X))

    def plain(self, dtype: str | None = None) -> Plain:
        """(batch, n, d) or (n, d) in, (batch, n, p) or (n, p) out: the embedding, then the layers."""
        names = tuple(f"x{k}" for k in range(len(self.terms[0][1])))
        terms = tuple(Term(0, A, B) for A, B in self.terms)
        own = self.network.plain(dtype)
        return replace(own, inputs=(names,), terms=terms, constant=self.constant, length=len(self.constant))


def embedded(terms: tuple[tuple[Array, Array], ...], constant: Array, X: npt.ArrayLike, dtype: str) -> AnyArray:
    """sum_k A_k X B_k + C for (batch, n, d) sequences, in `dtype`."""
    given = np.asarray(X, dtype=dtype)
    total: AnyArray = np.broadcast_to(constant.astype(dtype), (len(given), *constant.shape))
    for A, B in terms:
        total = total + A.astype(dtype) @ (given @ B.astype(dtype))
    return total


def sequence_embedding(target: SequenceMap, architecture: TokenArchitecture) -> Embedding:
    """The tokens of `token_coordinates`, zeros in all other coordinates."""
    names, n, d = target.token_coordinates(), target.tokens, target.box.dim
    if architecture.coordinates[: len(names)] != names:
        raise InvalidRequest(
            f"tokens of {', '.join(architecture.coordinates)[:60]} cannot hold the sequence: "
            "make the architecture by TokenArchitecture.for_target"
        )
    constant = np.zeros((n, architecture.width))
    constant[:, d] = 1.0
    if len(names) > d + 1:
        constant[:, d + 1 : d + 1 + n] = np.eye(n)
    return ((np.eye(n), np.eye(d, architecture.width)),), constant
