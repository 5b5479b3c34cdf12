"""Margins: by how much the best key leads at given queries, enclosed.

The margin at x is u(x, y_*) − max u(x, y_j) over the keys at another place than the best one; `places` numbers them, so
that copies of one key (equal key, equal value) do not stand against each other. At one query utilities are balls
(`query_margin`); at many they are float64 intervals rounded outward (`query_margins`), which rest on NumPy's elementary
functions being within 4 units in the last place.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.view import Array
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.retrieval.target import blocks
from attnfun.language import BallAlgebra, precision, run
from attnfun.language.enclosures import lowers, point_balls, uppers
from attnfun.language.intervals import Interval, IntervalAlgebra

Index = NDArray[np.int64]
HYPOTHESIS = "margins of samples: NumPy's elementary functions err by at most 4 units in the last place"
_PAIRS = 1_000_000  # utilities enclosed together


@dataclass(frozen=True, eq=False)
class Margins:
    """(m,) each: `best`, a key that is not proved to be second; low ≤ margin ≤ high (0 where the best is in doubt)."""

    best: Index
    low: Array
    high: Array


def places_of(*columns: Array) -> Index:
    """(n,) numbers, equal where all columns of two rows are equal."""
    table = np.hstack([np.asarray(c, dtype=np.float64) for c in columns]) + 0.0  # -0.0 is 0.0
    _, inverse = np.unique(table, axis=0, return_inverse=True)
    return np.asarray(inverse, dtype=np.int64).ravel()


def query_margins(relation: Relation, X: Array, Y: Array, places: Index) -> Margins:
    """Margins at (m, left variables) queries over (n, right variables) keys, by intervals."""
    if not len(X):
        return Margins(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    parts = [_lead(*utilities(relation, X[rows], Y), places) for rows in blocks(len(X), len(Y), _PAIRS)]
    return Margins(*(np.concatenate([p[k] for p in parts]) for k in range(3)))


def query_margin(relation: Relation, x: Array, Y: Array, places: Index, bits: int = 128) -> Margins:
    """The margin at one query (left variables,), by balls."""
    with precision(bits):
        env = {name: point_balls(x[k : k + 1])[0] for k, name in enumerate(relation.left.names)}
        env |= {name: point_balls(Y[:, k]) for k, name in enumerate(relation.right.names)}
        value = run(relation.graph, BallAlgebra(), env)[0]
        balls = np.broadcast_to(np.asarray(value, dtype=object), (len(Y),))
        low, high = lowers(balls)[None], uppers(balls)[None]
    return Margins(*_lead(low, high, places))


def utilities(relation: Relation, X: Array, Y: Array) -> tuple[Array, Array]:
    """(m, n) doubles below and above u(x_i, y_j); −inf and inf where the interval is not known."""
    env = {name: Interval(X[:, k, None], X[:, k, None]) for k, name in enumerate(relation.left.names)}
    env |= {name: Interval(Y[None, :, k], Y[None, :, k]) for k, name in enumerate(relation.right.names)}
    value = run(relation.graph, IntervalAlgebra(), env)[0]
    shape = (len(X), len(Y))
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), shape) for end in (value.lo, value.hi))
    return np.where(np.isfinite(low), low, -np.inf), np.where(np.isfinite(high), high, np.inf)


def _lead(low: Array, high: Array, places: Index) -> tuple[Index, Array, Array]:
    """(best, margin from below, margin from above) of every row.

    If the margin is m > 0 at place p: u_p ≤ max high, and of the two places with the largest lower ends one is not p,
    so m ≤ max high − the second largest lower end (of another place than the first).
    """
    best = np.argmax(low, axis=1)
    first = np.take_along_axis(low, best[:, None], 1)[:, 0]
    same = places[None, :] == places[best][:, None]
    with np.errstate(invalid="ignore"):
        above = np.where(same, -np.inf, high).max(axis=1)
        below = np.where(same, -np.inf, low).max(axis=1)
        least = np.nextafter(first - above, -np.inf)
        most = np.nextafter(high.max(axis=1) - below, np.inf)
    least = np.where(np.isnan(least) | (least < 0), 0.0, least)
    most = np.where(np.isnan(most), np.inf, most)
    return best.astype(np.int64), least, np.maximum(most, 0.0)
