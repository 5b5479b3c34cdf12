"""How points become tokens, by the names of coordinates, and heads with which one query token looks at the others.

| coordinate | holds |
| --- | --- |
| x1 … xd | the point; 0 for the query, where there are q's |
| q1 … qd | the query, which is the last point; 0 for the others |
| p1 … pN | 1 in the token of that position |
| index | +1 in the first token, −1 in the second |
| query | 1 in the query's token |
| one | 1 |
| others (scratch, …) | 0, for heads to write to |

So the query stands in coordinates of its own: a linear embedding, the form in which cross-attention is self-attention.
A head that must not see the query itself adds a column, −gap at the query's key: rank one more than in cross-attention.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnfun.constructions.in_context.stream import GAP, Stream
from attnfun.network import TokenHead

Array = NDArray[np.float64]

HARD = 1e8  # an inverse temperature at which a softmax of scores of order 1 is a choice


def tokens(names: tuple[str, ...], points: Array) -> Array:
    """(batch, N, d) points -> (batch, N, width) tokens of these coordinates."""
    batch, n, dim = points.shape
    out = np.zeros((batch, n, len(names)))
    place = {name: at for at, name in enumerate(names)}
    out[:, :, :dim] = points
    if "q1" in place:
        out[:, -1, :dim] = 0.0
        out[:, -1, place["q1"] : place["q1"] + dim] = points[:, -1]
    for name, at in place.items():
        if name == "index":
            out[:, 0, at], out[:, 1, at] = 1.0, -1.0
        elif name == "query":
            out[:, -1, at] = 1.0
        elif name == "one":
            out[:, :, at] = 1.0
        elif name[0] == "p" and name[1:].isdigit():
            out[:, int(name[1:]) - 1, at] = 1.0
    return out


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


def picked(stream: Stream) -> tuple[Array, Array]:
    """W_V, W_O that read a point and write it where the query's own point would be."""
    point = np.eye(stream.width, stream.d)
    return point, point.T


def answer(dim: int, nearest: bool) -> tuple[str, ...]:
    return tuple(f"{'nearest' if nearest else 'furthest'}{i + 1}" for i in range(dim))
