"""Coded: a network that averages over named positions, and the codes of the positions that its tokens hold.

Tokens hold a key code, a query code per head, z, and room for the average. The query of a set is worked out here, by a
linear solve (random keys) or a product (curve), not by the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.circle import circle
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.head import AnyArray, Array, Of, frozen
from attnfun.network.network import Cost
from attnfun.network.plain import HasPlain, Plain
from attnfun.network.tokens import TokenHead, TokenLayer, TokenNetwork, TokenTransformer

KEYS = ("random", "curve")
Sets = tuple[tuple[int, ...], ...]


def least_norm_query(keys: Array, subset: NDArray[np.int64]) -> Array:
    """w of least norm with ⟨w, u_j⟩ = 1 on the subset (least squares where there is none)."""
    return np.asarray(np.linalg.lstsq(keys[subset], np.ones(len(subset)), rcond=None)[0], dtype=np.float64)


def curve_query(tokens: int, subset: NDArray[np.int64]) -> Array:
    """The coefficients of −Π(1 − cos(t − t_i)) but the constant, scaled so that the subset scores 1."""
    cos, sin = circle(subset % tokens, tokens, "float64")
    product = np.ones(1, dtype=np.complex128)
    for c, s in zip(cos, sin, strict=True):
        product = np.convolve(product, [-(c + 1j * s) / 2, 1.0, -(c - 1j * s) / 2])
    q = len(subset)
    upper, constant = product[q + 1 :], product[q].real
    return np.concatenate([-2 * upper.real, 2 * upper.imag]) / constant


def encode_average(keys: Array, queries: Array, z: Array) -> Array:
    """(N, m), (..., N, H, m), (..., N, dim) -> (..., N, m + H m + 2 dim) tokens."""
    codes = np.broadcast_to(keys, (*z.shape[:-1], keys.shape[1]))
    return np.concatenate([codes, queries.reshape((*z.shape[:-1], -1)), z, np.zeros_like(z)], axis=-1)


def positions(subsets: Any, tokens: int, q: int) -> NDArray[np.int64]:
    """(…, q) sorted positions of sets in any nesting; InvalidRequest for anything but sets of q of N positions."""
    if isinstance(subsets, np.ndarray) and subsets.dtype.kind in "iu" and subsets.ndim > 1 and subsets.shape[-1] == q:
        found = np.sort(subsets.astype(np.int64), axis=-1)
        if found.size and found.min() >= 0 and found.max() < tokens and (np.diff(found, axis=-1) > 0).all():
            return found
    return np.array(check_subsets(subsets, tokens, q))


def check_subsets(subsets: Any, tokens: int, q: int) -> Sets:
    """Sets of q different positions from 0 to N − 1, sorted; InvalidRequest for anything else."""
    if isinstance(subsets, (str, bytes)) or not isinstance(subsets, (Sequence, np.ndarray)) or len(subsets) == 0:
        raise InvalidRequest("subsets: a list of sets of positions is needed")
    out = []
    for one in subsets:
        try:
            members = sorted(one)
            whole = all(isinstance(j, (int, np.integer)) and not isinstance(j, bool) for j in members)
        except (TypeError, ValueError):  # ValueError: rows of an array, which have no order
            raise InvalidRequest(f"a subset is a set of positions, and not {one!r:.40}") from None
        if not whole or len(members) != q or len(set(members)) != q or not 0 <= members[0] <= members[-1] < tokens:
            raise InvalidRequest(f"the subset {members!r:.60} is not {q} different positions from 0 to {tokens - 1}")
        out.append(tuple(int(j) for j in members))
    return tuple(out)


def coordinates(width: int, dim: int, heads: int) -> tuple[str, ...]:
    """Of a token: a key code, a query code a head, z, room for the average."""
    m, sizes = range(1, width + 1), range(1, dim + 1)
    queries = (f"query {h + 1}.{k}" for h in range(heads) for k in m)
    return (*(f"key {k}" for k in m), *queries, *(f"z{k}" for k in sizes), *(f"mean{k}" for k in sizes))


def sparse_average_network(width: int, dim: int, beta: float, heads: int = 1) -> TokenNetwork:
    """Heads on tokens of these coordinates."""
    names = coordinates(width, dim, heads)
    eye = np.eye(len(names))
    start = (1 + heads) * width
    values, means = eye[:, start : start + dim], eye[:, start + dim :]
    made = []
    for h in range(heads):
        queries = eye[:, (1 + h) * width : (2 + h) * width]
        made.append(TokenHead(f"average {h + 1}", queries, beta * eye[:, :width], values, means.T / heads))
    return TokenNetwork(names, (TokenLayer(tuple(made)),), np.zeros((0, len(names))), means, names[-dim:])


@dataclass(frozen=True, eq=False)
class Coded(HasPlain):
    """`codes` (N, m): the key of every position."""

    network: TokenNetwork | TokenTransformer
    codes: Array
    known: dict[Any, dict[tuple[int, ...], Array]] = field(init=False, repr=False, default_factory=dict)
    """Queries that were worked out, by kind of keys and heads, and by set."""

    dtype, cost, architecture = Of[str]("network"), Of[Cost]("network"), Of[TokenArchitecture]("network")
    run, plain = Of[Callable[..., AnyArray]]("network"), Of[Callable[..., Plain]]("network")

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", frozen(self.codes))
        if self.codes.ndim != 2 or not self.codes.size or not np.isfinite(self.codes).all():
            raise InvalidRequest(f"codes of positions: (N, m) finite numbers, not an array of shape {self.codes.shape}")

    def queries(self, keys: str, named: Sets, heads: int) -> Array:
        """(sets, heads, m): the query of every head's share of every set, worked out once."""
        known, places = self.known.setdefault((keys, heads), {}), {one: k for k, one in enumerate(dict.fromkeys(named))}
        query = partial(curve_query, len(self.codes)) if keys == "curve" else partial(least_norm_query, self.codes)
        for one in places:
            if one not in known:
                known[one] = np.array([query(np.array(one[h::heads])) for h in range(heads)])
        return np.array([known[one] for one in places])[[places[one] for one in named]]

    def holding(self, network: TokenNetwork | TokenTransformer) -> Coded:
        """Another network with these codes, and with the queries that are known already."""
        made = Coded(network, self.codes)
        object.__setattr__(made, "known", self.known)
        return made

    @property
    def networks(self) -> tuple[TokenNetwork | TokenTransformer]:
        return (self.network,)
