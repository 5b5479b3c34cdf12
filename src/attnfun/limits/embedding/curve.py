"""Documents on a curve: an order with few changes of sign is an embedding of few dimensions.

Statement. Put the documents on a line in some order; if no row changes sign more than s times, dimension s is enough.
In particular rows of at most k documents need no more than 2k dimensions, however many documents there are. With the
queries on the curve instead: if no document's column changes sign more than s times, s + 1 are enough.

Source. The moment curve and cyclic polytopes (C. Carathéodory 1911; D. Gale 1963); for retrieval arXiv 2508.21038 and
arXiv 2601.20844 (2k dimensions for all k-subsets).

Construction. A row with c changes of sign is the sign of a polynomial with c roots, one in each gap where it changes.
The polynomial's constant term adds the same to all documents and is dropped. Three bases:

* `moments`: documents (t, t², …, t^s) with t = 2p − (n−1), roots at the even numbers between. All integers, exact for
  any size, the least well conditioned.
* `chebyshev`: cos θ, …, cos sθ for θ equispaced in (0, π): the same curve, scaled to ±1.
* `circle`: (cos hθ, sin hθ) for h ≤ s/2, θ equispaced on the circle: all documents of one length; s even, changes of
  sign counted around the circle.

Bound. None is claimed here: the vectors are rounded to integers and checked.

Failure mode. An unlucky order: s grows with the number of runs of a row.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.limits.embedding.relevance import Array, Core, Indices, places


def circle(core: Core, order: Indices, s: int) -> tuple[Array, Array]:
    """Queries and documents of s dimensions, s even; rows with more than s changes around the circle get 0."""
    angle = 2 * np.pi * np.arange(core.n) / core.n
    harmonics = np.arange(1, s // 2 + 1)
    on_curve = np.empty((core.n, s))
    on_curve[:, 0::2] = np.cos(angle[:, None] * harmonics)
    on_curve[:, 1::2] = np.sin(angle[:, None] * harmonics)
    queries = np.zeros((core.m, s))
    for i, positive in enumerate(_along(core.rows, order)):
        ends = np.flatnonzero(positive != np.roll(positive, 1))
        if len(ends) > s:
            continue
        coefficients = np.ones(1, np.complex128)
        for root in (ends - 0.5) * (2 * np.pi / core.n):
            factor = np.array([np.exp(-0.5j * root), -np.exp(0.5j * root)])  # of e^{iθ/2}, e^{−iθ/2}
            coefficients = np.convolve(coefficients, factor) / 2j
        half = len(ends) // 2
        upper = coefficients[:half][::-1]  # of e^{iθ}, e^{2iθ}, …
        queries[i, 0 : 2 * half : 2] = 2 * upper.real
        queries[i, 1 : 2 * half : 2] = -2 * upper.imag
        values = on_curve @ queries[i]
        if values[positive].mean() < values[~positive].mean():
            queries[i] *= -1.0
    return _unit(queries), on_curve[places(order)]


def chebyshev(core: Core, order: Indices, s: int) -> tuple[Array, Array]:
    """Queries and documents of s dimensions; rows with more than s changes along the order get 0."""
    angle = np.pi * (np.arange(core.n) + 0.5) / core.n
    queries = np.zeros((core.m, s))
    for i, positive in enumerate(_along(core.rows, order)):
        ends = _changes(positive)
        if len(ends) <= s:
            found = np.polynomial.chebyshev.chebfromroots(np.cos(ends * np.pi / core.n))
            queries[i, : len(ends)] = found[1:] if positive[0] else -found[1:]
    return _unit(queries), np.cos(angle[:, None] * np.arange(1, s + 1))[places(order)]


def moments(core: Core, order: Indices, s: int) -> tuple[Any, Any]:
    """Exact integers of any size, as Python's; rows with more than s changes along the order get 0."""
    n = core.n
    documents = np.array([[(2 * p - (n - 1)) ** k for k in range(1, s + 1)] for p in places(order).tolist()], object)
    queries = np.zeros((core.m, s), object)
    for i, positive in enumerate(_along(core.rows, order)):
        ends = _changes(positive).tolist()
        if len(ends) <= s:
            sign = 1 if positive[-1] else -1  # beyond the last root the polynomial is positive
            queries[i, : len(ends)] = [sign * c for c in _from_roots([2 * end - n for end in ends])[1:]]
    return queries, documents


def column_changes(core: Core, order: Indices) -> int:
    """The most changes of sign in a column along an order of the queries."""
    return max(len(_changes(positive)) for positive in _along(core.columns, order))


def columns_on_curve(core: Core, order: Indices, s: int) -> tuple[Array, Array]:
    """Queries on the curve, in `order`, and documents as polynomials: s + 1 dimensions for s changes in a column."""
    angle = np.pi * (np.arange(core.m) + 0.5) / core.m
    documents = np.zeros((core.n, s + 1))
    for j, positive in enumerate(_along(core.columns, order)):
        found = np.polynomial.chebyshev.chebfromroots(np.cos(_changes(positive) * np.pi / core.m))
        found /= np.linalg.norm(found)
        documents[j, : len(found)] = found if positive[0] else -found
    return _unit(np.cos(angle[:, None] * np.arange(s + 1))[places(order)]), documents


def _along(lines: Iterable[Indices], order: Indices) -> Iterator[NDArray[np.bool_]]:
    """The members of each line, along the order."""
    place = places(order)
    for line in lines:
        positive = np.zeros(len(order), np.bool_)
        positive[place[line]] = True
        yield positive


def _changes(positive: NDArray[np.bool_]) -> Indices:
    """Before which places the sign changes."""
    return np.flatnonzero(positive[1:] != positive[:-1]) + 1


def _from_roots(roots: list[int]) -> list[int]:
    """Coefficients of Π (t − r), constant term first."""
    out = [1]
    for r in roots:
        out = [a - r * b for a, b in zip([0, *out], [*out, 0])]
    return out


def _unit(vectors: Array) -> Array:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
