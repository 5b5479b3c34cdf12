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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.target import source_name
from attnfun.language.domain import Box
from attnfun.network.evaluate import evaluate
from attnfun.network.head import AnyArray, Array, frozen, require_weights
from attnfun.network.network import DTYPES, Cost, Network

if TYPE_CHECKING:
    import torch

    from attnfun.kinds.sequence.token_sequence import TokenSequence
    from attnfun.network.architecture import TokenArchitecture

_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class GatherHead:
    """softmax_j(S_ij + k . z_j) averages of z_j V, plus o, written to new coordinates."""

    name: str
    writes: tuple[str, ...]
    scores: Array | None
    key: Array
    value: Array
    offset: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "writes", tuple(self.writes))
        for part in ("key", "value", "offset"):
            object.__setattr__(self, part, frozen(getattr(self, part)))
        if self.scores is not None:
            object.__setattr__(self, "scores", frozen(self.scores))
        p = len(self.writes)
        if self.key.ndim != 1 or self.value.shape != (len(self.key), p) or self.offset.shape != (p,) or not p:
            raise InvalidRequest(
                f"gather head {self.name!r} has a key, values and offsets of shapes {self.key.shape}, "
                f"{self.value.shape}, {self.offset.shape}; (width,), (width, {p}), ({p},) are needed"
            )

    @property
    def arrays(self) -> dict[str, Array]:
        own = {"key": self.key, "value": self.value, "offset": self.offset}
        return own if self.scores is None else {"scores": self.scores, **own}

    def weights(self, Z: AnyArray) -> AnyArray:
        """(batch, n, width) -> the attention matrices (batch, n, n), rows the tokens that ask."""
        terms = self._terms(Z)
        result: AnyArray = terms / terms.sum(axis=2, keepdims=True)
        return result

    def _terms(self, Z: AnyArray) -> AnyArray:
        logits = (Z @ self.key.astype(Z.dtype))[:, None, :]
        if self.scores is not None:
            logits = logits + self.scores.astype(Z.dtype)
        logits = np.broadcast_to(logits, (len(Z), Z.shape[1], Z.shape[1]))
        return np.asarray(np.exp(logits - logits.max(axis=2, keepdims=True)))

    def run(self, Z: AnyArray) -> AnyArray:
        """(batch, n, width) -> (batch, n, p)."""
        terms = self._terms(Z)
        result: AnyArray = (terms @ (Z @ self.value.astype(Z.dtype))) / terms.sum(axis=2, keepdims=True)
        return result + self.offset.astype(Z.dtype)


@dataclass(frozen=True, eq=False)
class Gather:
    heads: tuple[GatherHead, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(self.heads))
        if not self.heads:
            raise InvalidRequest("a gather stage needs at least one head")

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for head in self.heads for name in head.writes)


@dataclass(frozen=True, eq=False)
class Spread:
    """Token i gets the inputs of the tokens sources[i] (from 0): one selection matrix A_k a column of `sources`."""

    inputs: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "sources", tuple(tuple(row) for row in self.sources))
        n = len(self.sources)
        good = n > 0 and len({len(row) for row in self.sources}) == 1 and len(self.sources[0]) > 0
        if not good or not all(type(j) is int and 0 <= j < n for row in self.sources for j in row):
            raise InvalidRequest("a spread stage needs, for every token, equally many tokens to read")

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(source_name(name, k) for k in range(len(self.sources[0])) for name in self.inputs)


@dataclass(frozen=True, eq=False)
class Apply:
    """networks[of_token[i]] at token i; its inputs name the coordinates it reads, its outputs become `writes`."""

    networks: tuple[Network, ...]
    of_token: tuple[int, ...]
    writes: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in ("networks", "of_token", "writes"):
            object.__setattr__(self, part, tuple(getattr(self, part)))
        used = set(self.of_token)
        if not self.networks or used != set(range(len(self.networks))):
            raise InvalidRequest("an apply stage must name one of its networks for every token, and use them all")
        if any(len(network.outputs) != len(self.writes) or network.is_mlp for network in self.networks):
            raise InvalidRequest("an apply stage needs attention networks that write as many numbers as it names")

    @property
    def depth(self) -> int:
        """Its layers; networks that differ from token to token need one even for their affine parts alone (constants
        come with the positions)."""
        affine = any(bool(network.readout[:, : len(network.inputs)].any()) for network in self.networks)
        return max(int(affine and not self.shared), *(len(network.layers) for network in self.networks))

    @property
    def shared(self) -> bool:
        return len(self.networks) == 1


Stage = Gather | Apply | Spread


@dataclass(frozen=True, eq=False)
class SequenceNetwork:
    """Stages in order on n tokens with the coordinates `inputs`; `outputs` are coordinates of the last stream.

    `box` holds the least and the largest inputs that it is for.

    Refuses with InvalidRequest shapes that do not meet, a coordinate written twice or read before it is written, and
    weights that are not finite or that `dtype` cannot hold.
    """

    inputs: tuple[str, ...]
    tokens: int
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    box: tuple[Array, Array]
    dtype: str = "float64"
    networks: ClassVar[tuple[()]] = ()
    """Whose keys have one norm for the whole: those of its stages have not."""

    def __post_init__(self) -> None:
        for part in ("inputs", "stages", "outputs"):
            object.__setattr__(self, part, tuple(getattr(self, part)))
        low, high = self.box
        object.__setattr__(self, "box", (frozen(low), frozen(high)))
        self.validate()

    def validate(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidRequest(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if type(self.tokens) is not int or self.tokens < 1 or not self.inputs or not self.outputs or not self.stages:
            raise InvalidRequest("a sequence network needs tokens, inputs, outputs and stages")
        low, high = self.box
        if not low.shape == high.shape == (len(self.inputs),) or not (np.isfinite(high - low) & (low < high)).all():
            raise InvalidRequest("a sequence network needs a box of its inputs")
        names = list(self.inputs)
        for number, stage in enumerate(self.stages):
            if isinstance(stage, Gather):
                for head in stage.heads:
                    if len(head.key) != len(names):
                        raise InvalidRequest(f"gather head {head.name!r} reads {len(head.key)} of {len(names)} numbers")
                    if head.scores is not None and head.scores.shape != (self.tokens, self.tokens):
                        raise InvalidRequest(f"gather head {head.name!r} has scores of shape {head.scores.shape}")
            elif isinstance(stage, Spread):
                if stage.inputs != self.inputs or len(stage.sources) != self.tokens or number:
                    raise InvalidRequest("a spread stage comes first and reads the inputs of every token")
            else:
                if len(stage.of_token) != self.tokens:
                    raise InvalidRequest(f"stage {number} applies networks at {len(stage.of_token)} tokens")
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
        return not any(
            isinstance(stage, Spread)
            or (isinstance(stage, Apply) and not stage.shared)
            or (isinstance(stage, Gather) and any(head.scores is not None for head in stage.heads))
            for stage in self.stages
        )

    @property
    def layers(self) -> int:
        """Attention layers: one a gather stage, and those of the deepest network of every apply stage."""
        return sum(stage.depth if isinstance(stage, Apply) else isinstance(stage, Gather) for stage in self.stages)

    @cached_property
    def cost(self) -> Cost:
        """As plain self-attention: heads of one position are blocks of keys of one head; `keys` counts constant tokens
        (keys of networks; the given tokens come on top)."""
        heads = keys = parameters = rank = query_dim = 0
        largest = 0.0
        for stage in self.stages:
            if isinstance(stage, Gather):
                heads += len(stage.heads)
                for head in stage.heads:
                    own = int(np.linalg.matrix_rank(head.scores)) if head.scores is not None else 0
                    rank = max(rank, own + int(np.any(head.key != 0)), 1)
                    query_dim = max(query_dim, (self.tokens if head.scores is not None else 0) + 1)
                    largest = max(largest, float(np.abs(head.value).max()))
                    parameters += sum(array.size for array in head.arrays.values())
            elif isinstance(stage, Apply):
                for depth in range(stage.depth):
                    heads += max(len(n.layers[depth].heads) if depth < len(n.layers) else 0 for n in stage.networks)
                if not stage.shared:  # the affine part of each, at its own positions
                    heads += sum(bool(n.readout[:, : len(n.inputs)].any()) for n in stage.networks)
                for network in stage.networks:
                    cost = network.cost
                    keys, parameters = keys + cost.keys, parameters + cost.parameters
                    rank, query_dim = max(rank, cost.rank), max(query_dim, cost.query_dim)
                    largest = max(largest, cost.max_value)
        return Cost(self.layers, heads, rank, keys, parameters, query_dim, largest, parameters)

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

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, n, p): a linear embedding, then one F.scaled_dot_product_attention a layer."""
        return self.literal().to_torch(dtype)

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

    def stream(self, X: AnyArray) -> AnyArray:
        """Every coordinate of every token, (batch, n, d) -> (batch, n, len(coordinates))."""
        if np.asarray(X).dtype.kind not in "fiub" or not np.isfinite(X).all():
            raise InvalidRequest("sequences must be finite real numbers")
        Z: AnyArray = np.asarray(X).astype(self.dtype)
        names = list(self.inputs)
        for stage in self.stages:
            if isinstance(stage, Gather):
                new = [head.run(Z) for head in stage.heads]
            elif isinstance(stage, Spread):
                sources = np.array(stage.sources)
                new = [Z[:, sources[:, k], : len(self.inputs)] for k in range(sources.shape[1])]
            else:
                new = [_applied(stage, Z, names)]
            Z = np.concatenate([Z, *new], axis=2)
            names.extend(stage.writes)
        return Z


def _applied(stage: Apply, Z: AnyArray, names: list[str]) -> AnyArray:
    out = np.empty((*Z.shape[:2], len(stage.writes)), dtype=Z.dtype)
    which = np.array(stage.of_token)
    for number, network in enumerate(stage.networks):
        at = np.flatnonzero(which == number)
        columns = [names.index(name) for name in network.inputs]
        out[:, at] = evaluate(network, Z[:, at][:, :, columns])
    return out
