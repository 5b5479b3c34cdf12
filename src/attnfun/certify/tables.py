"""Method *tables*: targets given on a grid (`language/table.py`), by one head with an axis for every variable.

| symbol | meaning |
| --- | --- |
| H_k(x), p_k(x) | the table's functions of axis k, one for every jet; softmax weights of the head's axis k |
| Z, V | jets of the table, values of the head: f = Z·(H_1 ⊗ … ⊗ H_d), net = V·(p_1 ⊗ … ⊗ p_d) |
| A_k | any matrix, (keys, jets) of axis k; δ_k = A_kᵀ p_k − H_k, what it leaves |

**One variable.** net − f is what `table_axes` bounds, all outputs together.

**Several.** With W = Z·(A_1ᵀ ⊗ … ⊗ A_dᵀ), and ⊗(H_k + δ_k) multiplied out,

    net − f = (V − W)·(p_1 ⊗ … ⊗ p_d) + Σ_{S ≠ ∅} Z·(⊗_{k ∈ S} δ_k ⊗_{k ∉ S} H_k).

 1. Weights sum to 1: the first term is at most max |V − W|.
 2. S = {k}: the H of the other axes give a weighted mean of Z's control points along them (of lines the values, of cubics
    Bernstein's). So it is at most the largest sup |δ_k·column| over these columns, e_k, which `table_axes` bounds.
 3. Larger S, k its first axis: at most e'_k Π_{i ∈ S, i ≠ k} l_i. Here e'_k is the largest sup |δ_k·column| over the columns
    of jets, slopes times the length h_i of a cell beside them, and l_i = sup Σ |δ_i|, slopes' divided by that length. Along
    axes outside S a control point is a value plus at most h_i/3 times a slope: factors 4/3.

A_k is found by the pattern of the construction: keys in groups of equal number, edges where groups weigh alike, the group's
weights inverted at Chebyshev points between its edges. A wrong A_k makes the bound large and never false. Rounding of W, of the
columns and of their products is counted as γ times the sizes of the parts, and added.
Failure mode: Undecided for a head of another form, with an affine part, or of several outputs from several tables of other knots.
"""

from __future__ import annotations

import math
from functools import reduce
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np

from attnfun.certify.rounding import gamma
from attnfun.certify.table_axes import hermite, sup_errors
from attnfun.certify.view import Array, Bound, LineAxis, View, provided
from attnfun.certify.witness import best_witness
from attnfun.language import Graph
from attnfun.language.table import Table, cells, control_points
from attnfun.network.groups import chebyshev_points, group_edges, group_weights, possible_sizes

_U = 2.0**-53
_COLUMNS = 256  # that are looked at together


def tables_of(graph: Graph, names: tuple[str, ...]) -> list[Table] | None:
    """The tables that the outputs are, of all variables in their order and of the same knots; None where they are not."""
    found: list[Table] = []
    for output in graph.outputs:
        node = graph.nodes[output]
        if not isinstance(node.value, Table) or tuple(graph.nodes[a].value for a in node.args) != names:
            return None
        if any(graph.nodes[a].op != "var" for a in node.args):
            return None
        found.append(node.value)
    first = found[0]
    alike = all(
        t.jets.shape == first.jets.shape and all(map(np.array_equal, t.knots, first.knots)) for t in found
    )
    return found if alike and not any(any(t.orders) for t in found) else None


def prove_by_tables(
    view: View, tables: list[Table], graph: Graph, names: tuple[str, ...], eps: float, starts: Array
) -> Bound:
    """Prove a bound of sup |f − net|; `starts` are points of large sampled error."""
    provided(len(view.heads) == 1 and not view.affine.any() and not view.bias.any(), "tables: one head and no more")
    (head,) = view.heads
    provided(np.array_equal(head.mix, np.eye(len(head.mix))), "tables: the head's values must be the outputs")
    order = np.argsort([axis.variable for axis in head.axes])
    provided(len(order) == view.dim, "tables: every variable needs an axis of its own")
    axes = [head.axes[i] for i in order]
    values = np.transpose(head.values, (*order, view.dim))
    parts = [_part(table, view.low, view.high) for table in tables]
    knots = parts[0][0]
    if view.dim == 1:
        jets = np.stack([z for _, z in parts], axis=-1)
        high, _, where = sup_errors(
            axes[0], values, hermite(knots[0], jets), knots[0], view.low[0], view.high[0], eps * 1e-3, False
        )
        starts = np.concatenate([starts, [[where]]])
    else:
        possible = [
            _inverses(axis, t, view.low[k], view.high[k], parts[0][1].shape[2 * k + 1])
            for k, (axis, t) in enumerate(zip(axes, knots, strict=True))
        ]
        inverses = min(product(*possible), key=lambda a: _mismatch(values[..., 0], parts[0][1], a))
        high = max(
            _of_product(view, axes, values[..., o], knots, z, inverses, eps * 1e-3) for o, (_, z) in enumerate(parts)
        )
    provided(math.isfinite(high), "tables: the bound is not finite")
    step = (view.high - view.low) / 200 if view.dim > 1 else (view.high - view.low) / (50 * len(knots[0]))
    low, witness = best_witness(view, graph, names, starts, step, evaluations=30)
    return Bound("tables", low, high, witness, {"keys": [axis.size for axis in axes]})


def _part(table: Table, low: Array, high: Array) -> tuple[list[Array], Array]:
    """Knots and jets of the cells that the box meets, and of no others."""
    knots, jets = [], table.jets
    for k, t in enumerate(table.knots):
        met = [i for i, _, _ in cells(t, float(low[k]), float(high[k]))]
        knots.append(t[met[0] : met[-1] + 2])
        jets = np.take(jets, range(met[0], met[-1] + 2), axis=2 * k)
    return knots, jets


def _inverses(axis: LineAxis, knots: Array, low: float, high: float, jets: int) -> list[Array]:
    """What A_k of the statement may be, (keys, n r): one for every size of group that the keys can be cut into."""
    unit, found = np.eye(len(knots) * jets).reshape(len(knots), jets, -1), []
    for size in possible_sizes(axis.size):
        edges = group_edges(axis.w, axis.c, axis.slopes, axis.biases, size, low, high)
        if edges is None:
            continue
        nodes = chebyshev_points(edges, size)
        own = group_weights(axis.w, axis.c, axis.slopes, axis.biases, nodes)
        at_nodes = _functions(knots, unit, nodes.ravel()).reshape(*nodes.shape, -1)
        try:
            found.append(np.linalg.solve(own, at_nodes).reshape(axis.size, -1))
        except np.linalg.LinAlgError:
            continue
    provided(found, "tables: the keys of an axis form no groups")
    return found


def _functions(knots: Array, unit: Array, x: Array) -> Array:
    """(n, columns) of floats: the table's functions."""
    cell = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    return np.asarray(hermite(knots, unit)(cell, x, np.ones_like(x))[0][0])


def _of_product(
    view: View, axes: list[LineAxis], values: Array, knots: list[Array], jets: Array, inverses: Sequence[Array], goal: float
) -> float:
    """The statement's bound for several variables and one output."""
    d = len(axes)
    total = _mismatch(values, jets, inverses)
    steps = [_beside(t) for t in knots]
    single, mixed, sums = [], [], []
    for k in range(d):
        control, scaled = (_columns(jets, knots, steps, k, one) for one in (True, False))
        single.append(_sup(view, axes[k], k, inverses[k], knots[k], control, goal))
        mixed.append(_sup(view, axes[k], k, inverses[k], knots[k], scaled, goal))
        unit = np.eye(math.prod(jets.shape[2 * k : 2 * k + 2])).reshape(*jets.shape[2 * k : 2 * k + 2], -1)
        if jets.shape[2 * k + 1] == 2:
            unit[:, 1] = unit[:, 1] / steps[k][:, None]
        sums.append(_sup(view, axes[k], k, inverses[k], knots[k], unit, 1e-6, together=True))
    total += sum(single)
    for count in range(2, d + 1):
        for chosen in combinations(range(d), count):
            others = math.prod(sums[i] for i in chosen[1:])
            total += mixed[chosen[0]] * others * (4 / 3) ** (d - count)
    return total * (1 + 1e-9)


def _mismatch(values: Array, jets: Array, inverses: Sequence[Array]) -> float:
    """A bound of max |V − W|."""
    flat = jets.reshape([math.prod(jets.shape[2 * k : 2 * k + 2]) for k in range(len(inverses))])
    made, size = flat, np.abs(flat)
    for a in inverses:  # the first axis goes last: after all of them they stand in order again
        made = np.moveaxis(np.tensordot(a, made, axes=(1, 0)), 0, -1)
        size = np.moveaxis(np.tensordot(np.abs(a), size, axes=(1, 0)), 0, -1)
    rounding = gamma(sum(flat.shape) + 4 * len(inverses), _U) * float(size.max())
    return float(np.abs(values - made).max()) * (1 + 1e-9) + rounding


def _beside(knots: Array) -> Array:
    """The length of the longer cell beside each knot."""
    h = np.diff(knots)
    return np.maximum(np.append(h, 0.0), np.insert(h, 0, 0.0))


def _columns(jets: Array, knots: list[Array], steps: list[Array], k: int, control: bool) -> Array:
    """(n, r, columns): jets along axis k, of the others control points, or jets with slopes times the step."""
    out, place = jets, 0
    for i, t in enumerate(knots):
        if i == k:
            place += 2
        elif control:
            out = control_points(out, place, t, -1.0)
            place += 1
        else:
            rows = np.moveaxis(out, (place, place + 1), (0, 1)).copy()
            if rows.shape[1] == 2:
                rows[:, 1] *= steps[i].reshape(-1, *[1] * (rows.ndim - 2))
            out = np.moveaxis(rows, (0, 1), (place, place + 1))
            place += 2
    first = k if control else 2 * k
    return np.moveaxis(out, (first, first + 1), (0, 1)).reshape(*jets.shape[2 * k : 2 * k + 2], -1)


def _sup(
    view: View, axis: LineAxis, k: int, inverse: Array, knots: Array, columns: Array, goal: float, together: bool = False
) -> float:
    """sup over x of the largest |δ_k·column|, or of their sum; the columns and their products are rounded."""
    values = inverse @ columns.reshape(-1, columns.shape[-1])
    sizes = np.abs(inverse) @ np.abs(columns).reshape(-1, columns.shape[-1])
    rounding = gamma(columns.shape[0] * columns.shape[1] + 8, _U) * float((sizes.sum(axis=1) if together else sizes).max())
    longest = float(np.diff(knots).max())
    rounding += 64 * _U * float(np.abs(columns).max()) * (1 + longest)
    low, high = float(view.low[k]), float(view.high[k])
    step = columns.shape[-1] if together else _COLUMNS
    found = [
        sup_errors(axis, values[:, i : i + step], hermite(knots, columns[..., i : i + step]), knots, low, high, goal, together)[0]
        for i in range(0, columns.shape[-1], step)
    ]
    return float(reduce(max, found)) + rounding
