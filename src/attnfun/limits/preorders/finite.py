"""Finitely many comparisons: a utility that honours them all, or a cycle that none can.

Statement. Given "i is better than j" (strict) and "i is at least as good as j" (weak) for some pairs of n items,
numbers u_i with u_i > u_j, u_i ≥ u_j for them exist iff no cycle of given comparisons holds a strict one. If none
does, u_i = the largest number of strict comparisons on a way down from i is such a utility, with the fewest levels.
Derivation. Around a cycle u would have to fall by a strict step and return. Otherwise contract the strongly connected
components of all comparisons: each has weak ones only, so one value does; what is left is acyclic, and longest ways
are well defined.
Size: linear in the number of comparisons.
"""

from collections.abc import Sequence
from graphlib import TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require

_MOST = 4000


def read_comparisons(given: Any) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """(n, strict pairs, weak pairs) from a square table R[i, j] = "i at least as good as j", or a list (better, worse).

    In a table i is better than j where R[i, j] holds and R[j, i] does not.
    """
    table = np.asarray(given)
    if table.dtype == np.bool_ and table.ndim == 2 and table.shape[0] == table.shape[1]:
        require(0 < len(table) <= _MOST, f"comparisons: a table of {len(table)} items; from 1 to {_MOST}")
        both = table & table.T & ~np.eye(len(table), dtype=bool)
        return len(table), np.argwhere(table & ~table.T), np.argwhere(both)
    if table.ndim == 2 and table.shape[1] == 2 and table.dtype.kind in "iu" and len(table) and table.min() >= 0:
        return int(table.max()) + 1, table.astype(np.int64), np.empty((0, 2), dtype=np.int64)
    raise InvalidRequest("comparisons: a square table of booleans, or pairs (better, worse) of item numbers from 0 on")


def levels(n: int, strict: NDArray[np.int64], weak: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, list[int]]:
    """(u, []) or (None, cycle): items each given as at least as good as the next, the first pair strictly."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    edges = np.concatenate([strict, weak])
    graph = coo_array((np.ones(len(edges), dtype=np.int8), (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
    count, part = connected_components(graph, directed=True, connection="strong")
    inside = np.flatnonzero(part[strict[:, 0]] == part[strict[:, 1]])
    if len(inside):
        better, worse = (int(v) for v in strict[inside[0]])
        before = breadth_first_order(graph, worse)[1]  # along shortest ways; of the start itself it is negative
        way = [better]
        while before[way[-1]] >= 0:
            way.append(int(before[way[-1]]))
        return None, [better, *way[:0:-1]]
    below: dict[int, list[tuple[int, int]]] = {at: [] for at in range(count)}
    for pairs, step in ((strict, 1), (weak, 0)):
        for high, low in part[pairs].tolist():
            if high != low:
                below[high].append((low, step))
    height = np.zeros(count, dtype=np.int64)
    for at in TopologicalSorter({at: [low for low, _ in under] for at, under in below.items()}).static_order():
        height[at] = max((height[low] + step for low, step in below[at]), default=0)
    return height[part], []


def check_cycle(n: int, strict: NDArray[np.int64], weak: NDArray[np.int64], cycle: Sequence[int]) -> bool:
    """Is every step of the cycle (back to its start included) a given comparison, and the first a strict one?"""
    falls = {(int(i), int(j)) for i, j in strict}
    holds = falls | {(int(i), int(j)) for i, j in weak}
    steps = list(zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
    return bool(steps) and max(cycle) < n and steps[0] in falls and all(step in holds for step in steps)
