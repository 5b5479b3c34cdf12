"""Networks on tokens, gathers and tables by the compiled kernel of attention (`attention.py`).

Lanes are the tokens of one sequence, which share their keys; or for short ones sequences, BATCH at a time;
or for a table its keys, every LANES-th of them in one lane. Linear maps are products of BLAS on a few sequences at a
time, so that what they make stays in a cache. No array has tokens × tokens entries.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.certify.rounding import FAR
from attnfun.fast import split
from attnfun.fast.attention import LANES, attend
from attnfun.network.head import AnyArray, once_per_dtype
from attnfun.network.tokens import OnTokens, TokenLayer

FEWEST = 24  # tokens that are lanes; of shorter sequences the sequences are
BATCH = 128  # of them at a time


def lanes(
    Q: AnyArray, K: AnyArray, V: AnyArray, S: AnyArray | None = None, heads: AnyArray | None = None, threads: int = 1
) -> tuple[AnyArray, ...]:
    """Numerators (I, p, L), denominators and maxima (I, heads, L) of softmax attention of the queries Q (I, r, L).

    K (J, r) and V (J, p) are of all L lanes, or (J, r, L), (J, p, L) of each; S (I, J) is added to the logits. `heads`
    says where each begins (`attention._attend`); without it there is one.
    """
    items, _, count = Q.shape
    kind, dtype = Q.dtype, Q.dtype.name
    if heads is None:
        heads = np.array([[0, 0, K.shape[1], 0, V.shape[1]]])
    num = np.empty((items, int(heads[:, 4].sum()), count), kind)
    den, peak = np.empty((2, items, len(heads), count), kind)
    kernel, bias = attend(dtype, K.ndim == 3), np.empty((0, 0), kind) if S is None else S
    split(threads, count, lambda a, b: kernel(Q, K, V, bias, heads, num, den, peak, a, b, kind.type(-FAR[dtype])))
    return num, den, peak


def averages(
    Q: AnyArray, K: AnyArray, V: AnyArray, S: AnyArray | None = None, heads: AnyArray | None = None, threads: int = 1
) -> AnyArray:
    """The quotients."""
    num, den, _ = lanes(Q, K, V, S, heads, threads)
    num /= den if heads is None else np.repeat(den, heads[:, 4], axis=1)
    return num


@dataclass(frozen=True, eq=False)
class _Stacked:
    """A layer's carry and the matrices of all its heads together, transposed: queries; keys, then values; outputs.

    `heads` says where each begins in them.
    """

    carry: AnyArray | None
    queries: AnyArray
    rest: AnyArray
    outputs: AnyArray
    heads: AnyArray


@once_per_dtype
def _stacked(layer: TokenLayer, dtype: str) -> _Stacked:
    r, p = np.array([[head.query_dim, head.outputs] for head in layer.heads]).T
    begins, values = np.cumsum(r) - r, np.cumsum(p) - p + r.sum()
    parts = [[np.asarray(W, dtype=dtype) for W in head.arrays.values()] for head in layer.heads]
    queries, keys, given, outputs = zip(*parts, strict=True)
    return _Stacked(
        None if layer.carry is None else np.ascontiguousarray(layer.carry.T, dtype=dtype),
        np.ascontiguousarray(np.hstack(queries).T),
        np.ascontiguousarray(np.hstack([*keys, *given]).T),
        np.ascontiguousarray(np.vstack(outputs).T),
        np.stack([begins, begins, r, values, p], axis=1),
    )


def _through(network: OnTokens, Z: AnyArray, shared: bool, threads: int) -> AnyArray:
    """The stream (items, width, lanes) after all layers. `shared`: the lanes are the tokens of one sequence; else the
    items are, and every lane is a sequence."""
    for layer, block in zip(network.attention.layers, network.blocks, strict=True):
        own = _stacked(layer, Z.dtype.name)
        rest = Z[0].T @ own.rest.T if shared else own.rest @ Z
        found = averages(own.queries @ Z, rest, rest, heads=own.heads, threads=threads)
        Z = own.outputs @ found + (Z if own.carry is None else own.carry @ Z)
        if block is not None:
            W_1, b, W_2 = (array.astype(Z.dtype, copy=False) for array in block.arrays.values())
            Z = Z + W_2.T @ np.maximum(W_1.T @ Z + b[:, None], 0)
    return Z


def tokens(network: OnTokens, given: AnyArray, threads: int) -> AnyArray:
    """(batch, n, width) tokens -> (batch, n, outputs)."""
    plain = network.attention
    batch, n, _ = given.shape
    readout = np.ascontiguousarray(plain.readout.T, dtype=plain.dtype)
    out = np.empty((batch, n, len(readout)), dtype=plain.dtype)
    shared = n >= FEWEST
    step = 1 if shared else BATCH
    within = threads if batch <= step * threads and shared else 1

    def part(first: int, last: int) -> None:
        for k in range(first * step, min(batch, last * step), step):
            Z = plain.joined(given[k : k + step])
            Z = np.ascontiguousarray(Z.transpose(0, 2, 1) if shared else Z.transpose(1, 2, 0))
            Z = _through(network, Z, shared, within)
            found = readout @ (Z[:, :, :n] if shared else Z[:n])
            out[k : k + step] = found.transpose(0, 2, 1) if shared else found.transpose(2, 0, 1)

    split(1 if within > 1 else threads, -(-batch // step), part)
    return out


def gather(scores: AnyArray | None, Z: AnyArray, key: AnyArray, value: AnyArray, threads: int) -> AnyArray:
    """softmax_j(scores_ij + key·z_j) averages of z_j `value`: (batch, n, width) -> (batch, n, p).

    Without scores all tokens ask alike: one query for them all.
    """
    batch, n, _ = Z.shape
    K, V = np.ascontiguousarray((Z @ key).T)[:, None], np.ascontiguousarray((Z @ value).transpose(1, 2, 0))
    S = None if scores is None else np.ascontiguousarray(scores, dtype=Z.dtype)
    found = averages(np.ones((1 if S is None else n, 1, batch), Z.dtype), K, V, S, threads=threads)
    return np.broadcast_to(found, (n, *found.shape[1:])).transpose(2, 0, 1)


@dataclass(frozen=True, eq=False)
class _Laid:
    """Keys (J, r, LANES) and values (J, p, LANES), a block of keys after the other; then those that fill no block."""

    parts: tuple[tuple[AnyArray, AnyArray], ...]


@once_per_dtype
def _laid(table: Any, dtype: str) -> _Laid:
    parts, whole = [], len(table.vectors) // LANES * LANES
    for rows in (slice(0, whole), slice(whole, None)):
        arrays = [np.asarray(array[rows], dtype=dtype) for array in (table.vectors, table.values)]
        if len(arrays[0]):
            many = min(LANES, len(arrays[0]))
            K, V = (np.ascontiguousarray(a.reshape(-1, many, a.shape[1]).transpose(0, 2, 1)) for a in arrays)
            parts.append((K, V))
    return _Laid(tuple(parts))


def table(weights: Any, queries: Any, threads: int) -> AnyArray:
    """Queries (m, r) over the keys of a table -> (m, p)."""
    Q = np.ascontiguousarray(queries() if callable(queries) else queries)
    if len(Q) >= FEWEST:
        K, V = (np.ascontiguousarray(array, dtype=Q.dtype) for array in (weights.vectors, weights.values))
        return averages(np.ascontiguousarray(Q.T)[None], K, V, threads=threads)[0].T
    found = []
    for K, V in _laid(weights, Q.dtype.name).parts:
        asked = np.repeat(Q[:, :, None], K.shape[2], axis=2)

        def part(a: int, b: int, asked: AnyArray = asked, K: AnyArray = K, V: AnyArray = V) -> tuple[AnyArray, ...]:
            return lanes(asked, K[a:b], V[a:b])

        found += split(threads, len(K), part)
    num, den, peak = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
    with np.errstate(under="ignore"):
        change = np.exp(peak - peak.max(axis=2, keepdims=True))
    return (num * change).sum(axis=2) / (den * change).sum(axis=2)
