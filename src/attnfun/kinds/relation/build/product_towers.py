"""Towers of attention in two layers: factors of few variables by Bernstein heads, their products by corners of a cube.

Statement: heads on small product grids give p ≈ atanh(δ Π P) for groups of blocks; a head on the 2^m corners of a cube,
logits σ·p, values Πσ, is Π tanh p without error (`towers`).
Source: tanh a · tanh b as a softmax average over signs, as in the tangent constructions; Bernstein 1912 for layer 1.
Size: Σ over groups of Π keys, and 2^m keys per feature: polynomial in the number of variables where one head on the
whole grid has P^d keys. Bound: `prove_tower_products`, from the stored weights.
Failure mode: a block of more than three variables; fewer than two blocks; tolerances near rounding.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.relation.build.bernstein_towers import bernstein_keys, fitted
from attnfun.kinds.relation.features import Features, Half, along, chebyshev_columns
from attnfun.kinds.relation.towers import MOST_GROUPS, Keys, TowerWeights, require_room
from attnfun.network.head import Array

_LARGEST = 0.35  # of |δ Π P|: atanh is then nearly linear, and needs few keys more than the factors themselves
_NODES = {1: 64, 2: 40, 3: 24}
_VARIABLES = 3
_MOST_GRID = 6_000_000
Group = tuple[int, ...]


def product_tower(features: Features, side: str, tolerance: float) -> TowerWeights:
    """Keys, values, groups and scales with every group's products within about `tolerance` of the features'."""
    half = features.half(side)
    low, high = half.box
    sizes = _degrees(half, tolerance)
    groups = _grouping(half, sizes)
    require_room(half, groups)
    keys: dict[int, Keys] = {}
    values, scales = [], []
    for group in groups:
        places = half.variables(group)
        scale = math.prod(_scale(half, b) for b in group) * _LARGEST
        out = _targets(half, group, scale, [sizes[v] for v in places])
        fits, own = fitted(out, tolerance * scale)
        for v, (tau, matrix) in zip(places, fits, strict=True):
            keys[v] = bernstein_keys(tau, len(matrix), float(low[v]), float(high[v]))
        values.append(own)
        scales.append(scale)
    return TowerWeights(tuple(keys[v] for v in range(len(low))), tuple(values), None, groups, np.array(scales))


def _rows(n: int, count: int) -> Array:
    """(n, count) T_0, … at n Chebyshev nodes."""
    return chebyshev_columns(np.cos((2 * np.arange(n) + 1) * np.pi / (2 * n)), count)


def _at_nodes(P: Array, counts: list[int]) -> Array:
    return along((_rows(n, size) for n, size in zip(counts, P.shape, strict=False)), P)


def _scale(half: Half, b: int) -> float:
    """What makes the used columns of a block about 1 in size at most."""
    P = half.tables[b][..., np.unique(half.selection[:, b])]
    top = float(np.abs(_at_nodes(P, [2 * n + 1 for n in P.shape[:-1]])).max()) * 1.02
    return 1 / max(top, 1e-250)


def _coefficients(values: Array) -> Array:
    """Chebyshev coefficients of values at Chebyshev nodes, all axes but the last."""
    for j in range(values.ndim - 1):
        n = values.shape[j]
        matrix = _rows(n, n).T * (2 / n)
        matrix[0] /= 2
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, j)), 0, j)
    return values


def _degrees(half: Half, tolerance: float) -> dict[int, int]:
    """For every variable: how many Chebyshev coefficients atanh of its block's columns has above the tolerance."""
    out: dict[int, int] = {}
    for b in half.alive:
        places = half.places[b]
        text = f"a factor of {len(places)} variables is out of a tower's reach; {_VARIABLES} may belong together"
        feasible(len(places) <= _VARIABLES, text, {"features_only": True})
        P, scale = half.tables[b][..., np.unique(half.selection[:, b])], _scale(half, b) * _LARGEST
        counts = [max(_NODES[len(places)], m + 8) for m in P.shape[:-1]]
        if math.prod(counts) * P.shape[-1] > _MOST_GRID:
            raise Infeasible("the factors of the features are too large for a tower", {"features_only": True})
        table = np.abs(_coefficients(np.arctanh(scale * _at_nodes(P, counts))))
        for j, v in enumerate(places):
            line = np.moveaxis(table, j, 0).reshape(table.shape[j], -1).max(axis=1)
            rest = np.cumsum(line[::-1])[::-1]
            out[v] = max(1, int(np.count_nonzero(rest > 0.1 * tolerance * scale)))
    return out


def _targets(half: Half, group: Group, scale: float, degrees: list[int]) -> Array:
    """(N_1, …, N_a, tuples): Chebyshev coefficients of atanh(scale Π P) for every tuple of columns of the group."""
    tuples = half.distinct(group)[0]
    counts = [n + 4 for n in degrees]
    out, place = np.full((*counts, len(tuples)), scale), 0
    for k, b in enumerate(group):
        P = half.tables[b]
        a = P.ndim - 1
        value = _at_nodes(P, counts[place : place + a])[..., tuples[:, k]]
        before, after = (1,) * place, (1,) * (len(counts) - place - a)
        out = out * value.reshape(*before, *value.shape[:-1], *after, len(tuples))
        place += a
    return _coefficients(np.arctanh(out))


def _grouping(half: Half, sizes: dict[int, int]) -> tuple[Group, ...]:
    """The partition of the blocks that asks for the fewest parameters; at least two groups."""
    alive = half.alive
    text = "a tower of two layers multiplies factors, and these features have only one"
    feasible(len(alive) >= 2, text, {"features_only": True})

    @cache
    def cost(group: Group) -> tuple[float, int]:
        grid = math.prod(sizes[v] + 2 for v in half.variables(group))
        tuples = len(half.distinct(group)[0])
        return float(grid) * (len(group) + 1 + tuples), tuples

    best: tuple[float, tuple[Group, ...]] | None = None
    for groups in _partitions(alive, half) if len(alive) <= 8 else [_runs(half)]:
        if not 2 <= len(groups) <= MOST_GROUPS:
            continue
        m, width = len(groups), len(sizes) + sum(cost(g)[1] for g in groups)
        grids = [math.prod(sizes[v] + 4 for v in half.variables(g)) * cost(g)[1] for g in groups]
        if max(grids) > _MOST_GRID:
            continue
        total = sum(cost(g)[0] for g in groups) + half.rank * (2**m * (m + 2) + m * (width + 1))
        if best is None or total < best[0]:
            best = (total, groups)
    if best is None:
        raise Infeasible("the features have too many factors for a tower of two layers", {"features_only": True})
    return best[1]


def _partitions(blocks: Group, half: Half) -> Iterator[tuple[Group, ...]]:
    """All partitions into groups of at most three variables."""
    if not blocks:
        yield ()
        return
    first, rest = blocks[0], blocks[1:]
    for mask in range(1 << len(rest)):
        group = (first, *(b for i, b in enumerate(rest) if mask >> i & 1))
        if len(half.variables(group)) <= _VARIABLES:
            left = tuple(b for i, b in enumerate(rest) if not mask >> i & 1)
            yield from ((group, *others) for others in _partitions(left, half))


def _runs(half: Half) -> tuple[Group, ...]:
    """Neighbours together, two variables per group where they fit."""
    out: list[Group] = []
    for b in half.alive:
        if out and len(half.variables((*out[-1], b))) <= 2:
            out[-1] = (*out[-1], b)
        else:
            out.append((b,))
    return tuple(out)
