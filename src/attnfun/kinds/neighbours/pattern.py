"""The networks that find neighbours, written from their few numbers; how points become tokens is the target's.

The constructions choose the numbers; `prove` reads them off stored weights, writes the network that has them, and holds
every stored entry against it.
"""

from collections.abc import Sequence

import numpy as np

from attnfun.language.target import Array
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.network.named_coordinates import GAP, Stream

HARD = 1e8  # an inverse temperature at which a softmax of scores of order 1 is a choice
_POINT = {("x", 0): 1.0}  # a point, read and written where the query's own point would be


def pointing(stream: Stream, nearest: bool, *layers: Sequence[TokenHead], carry: Array | None = None) -> TokenNetwork:
    """Layers of heads whose answer is a point."""
    made = tuple(TokenLayer(tuple(heads), carry) for heads in layers)
    names = tuple(f"{'nearest' if nearest else 'furthest'}{i + 1}" for i in range(stream.d))
    return TokenNetwork(stream.names, made, np.zeros((0, stream.width)), np.eye(stream.width, stream.d), names)


def looking(stream: Stream, name: str, of_query: Array, of_key: Array, value: Array, output: Array) -> TokenHead:
    """A head with logits (q A)(x B)ᵀ, A = `of_query` and B = `of_key` (d, r), that does not see the query itself."""
    d, r = of_query.shape
    query, key = np.zeros((2, stream.width, r + 1))
    at = stream.at("q1")
    query[at : at + d, :r] = of_query
    key[:d, :r] = of_key
    # no logit of unit vectors is larger
    largest = float(np.sum(np.linalg.norm(of_query, axis=0) * np.linalg.norm(of_key, axis=0)))
    query[stream.at("one"), r] = -(2 * largest + GAP)
    key[stream.at("query"), r] = 1.0
    return TokenHead(name, query, key, value, output)


def look_up(stream: Stream, sharpness: float) -> TokenHead:
    """The head of rank 1 that takes the point whose index has the sign of the scratch."""
    parts = {("scratch", 0): sharpness}, {("index", 0): 1.0}, _POINT, _POINT
    return stream.head("look-up by sign", "float64", *parts)


def full_rank(dim: int, points: int, nearest: bool, beta: float, gap: float) -> TokenNetwork:
    """Logits ±β⟨x_i, x_j⟩; for the nearest, −gap of a token on itself."""
    stream = Stream(dim, "x", [f"p{i + 1}" for i in range(points)] if nearest else [])
    query, value = np.zeros((stream.width, stream.width)), np.eye(stream.width, dim)
    query[:dim, :dim] = (beta if nearest else -beta) * np.eye(dim)
    query[dim:, dim:] = -gap * np.eye(stream.width - dim)
    head = TokenHead("nearest" if nearest else "furthest", query, np.eye(stream.width), value, value.T)
    return pointing(stream, nearest, [head], carry=np.zeros((stream.width, stream.width)))


def scores(
    dim: int, nearest: bool, small: float, values: tuple[float, float], c: float, choice: tuple[float, float]
) -> TokenNetwork:
    """Two heads per entry with logits ±small x_k y_k, `values` at the query and elsewhere, written c times; then the
    `choice`: B and the gap of the query.
    """
    stream, scoring = Stream(dim, "xq", ("query", "one", "scratch")), []
    value = {("query", 0): values[0], ("one", 0): values[1]}
    for k in range(1, dim + 1):
        for sign in (1.0, -1.0):
            parts = {(f"x{k}", 0): sign * small}, {(f"q{k}", 0): 1.0}, value, {("scratch", 0): sign * c}
            scoring.append(stream.head(f"score of entry {k}, {'+' if sign > 0 else '-'}", "float64", *parts))
    key = {("scratch", 0): choice[0] if nearest else -choice[0], ("query", 0): -choice[1]}
    last = stream.head("choice by score", "float64", {("one", 0): 1.0}, key, _POINT, _POINT)
    return pointing(stream, nearest, scoring, [last])


def tally(dim: int, nearest: bool, beta: float, sharpness: float) -> TokenNetwork:
    """A head an entry with logits ±β x_k y_k that writes its average index; then the look-up."""
    stream, counting = Stream(dim, "xq", ("index", "scratch")), []
    for k in range(1, dim + 1):
        query, key = {(f"q{k}", 0): beta if nearest else -beta}, {(f"x{k}", 0): 1.0}
        parts = query, key, {("index", 0): 1.0}, {("scratch", 0): 1.0}
        counting.append(stream.head(f"tally of entry {k}", "float64", *parts))
    return pointing(stream, nearest, counting, [look_up(stream, sharpness)])


def biased(dim: int, beta: float, level: float, gap: float) -> TokenNetwork:
    """Logits β⟨z, y⟩ at z, `level` at a constant token and −gap at the query; values 1 and −1."""
    stream = Stream(dim, "xq", ("query", "one", "anchor", "answer"))
    query = {("q", 0): beta, ("one", dim): 1.0}
    key = {("x", 0): 1.0, ("anchor", dim): level, ("query", dim): -gap}
    answer = {("answer", 0): 1.0}
    head = stream.head("half-space", "float64", query, key, {("one", 0): 1.0, ("anchor", 0): -2.0}, answer)
    anchor = stream.matrix(1, {("one", 0): 1.0, ("anchor", 0): 1.0}).T
    return TokenNetwork(stream.names, (TokenLayer((head,)),), anchor, stream.matrix(1, answer), ("sign",))
