"""Method *tables*: targets given on a grid (`language/table.py`), by one head with an axis for every variable.

| symbol | meaning |
| --- | --- |
| p_k(x), V | softmax weights of the head's axis k; its values: net = V·(p_1 ⊗ … ⊗ p_d) |
| ξ_n | points of axis k, any, as many as it has keys; F, the target at all products of them |
| I_k, O_k | any matrices (keys, points) and (points, keys), meant to be inverse to one another |
| ℓ_k(x), L_k | I_kᵀ p_k(x); (L_k g)(x) = Σ_n ℓ_k,n(x) g(ξ_n) |
| Λ_k | sup_x Σ_n |ℓ_k,n(x)| |

**One variable.** net − f is what `table_axes` bounds, all outputs together.

**Several.** V' = F·(I_1 ⊗ … ⊗ I_d) are the values of L_1 … L_d f. As L_1 … L_d − 1 = (L_1 − 1) + L_1 (L_2 − 1) +
L_1 L_2 (L_3 − 1), in any order,

    |L_1 … L_d f − f| ≤ e_1 + Λ_1 (e_2 + Λ_2 e_3),    e_k = sup |L_k f − f|.

 1. Within its knots f is, along axis k, a weighted mean of its control points along the others (of lines the values, of
    cubics Bernstein's). So e_k is at most the largest error for these columns, functions of one variable, which
    `table_axes` bounds with I_k c(ξ).
 2. Λ_k likewise: the columns of I_k against 0, their sizes summed.
 3. Let D_k = I_k O_k − 1, G = V·(O_1 ⊗ … ⊗ O_d). Then V − V' = (V − V·⊗(1 + D_k)) + (G − F)·⊗I_k, so |V·p − V'·p| is
    at most max|V| (Π (1 + ‖D_k‖) − 1) + max|G − F| Π Λ_k, ‖·‖ the largest row sum.

Points and matrices follow the pattern of the construction: keys in groups of equal number, edges where groups weigh
alike, Chebyshev points between the edges, O_k the weights of each group alone. Wrong ones make the bound large and
never false. What rounding does to F, G, D_k and I_k c(ξ) is counted as units of roundoff times the sizes of the parts,
and added.
Failure mode: Undecided for a head of another form, with an affine part, or of several outputs from tables
of several knots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations, product

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
_LEBESGUE = 3.0  # a bound of Λ that is not improved


def tables_of(graph: Graph, names: tuple[str, ...]) -> list[Table] | None:
    """The tables that the outputs are, of all variables in their order and of the same knots; None where they are
    not."""
    found: list[Table] = []
    for output in graph.outputs:
        node = graph.nodes[output]
        if not isinstance(node.value, Table) or tuple(graph.nodes[a].value for a in node.args) != names:
            return None
        if any(graph.nodes[a].op != "var" for a in node.args):
            return None
        found.append(node.value)
    first = found[0]
    alike = all(t.jets.shape == first.jets.shape and all(map(np.array_equal, t.knots, first.knots)) for t in found)
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
    else:  # outside its knots f is no weighted mean of control points
        inside = all(t[0] <= a and b <= t[-1] for t, a, b in zip(tables[0].knots, view.low, view.high, strict=True))
        provided(inside, "tables: the box reaches beyond the knots")
        high = max(_of_product(view, axes, values[..., o], knots, z, eps * 1e-3) for o, (_, z) in enumerate(parts))
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


@dataclass(frozen=True)
class Groups:
    """Points of an axis in their groups, (groups, size), with I and O block by block."""

    points: Array
    inverse: Array
    weights: Array

    @property
    def row(self) -> float:
        """The largest row sum of |I|."""
        return float(np.abs(self.inverse).sum(axis=2).max())

    @property
    def defect(self) -> float:
        """A bound of ‖I O − 1‖."""
        size = self.points.shape[1]
        off = np.abs(self.inverse @ self.weights - np.eye(size)).sum(axis=2).max()
        rounding = gamma(size + 2, _U) * (np.abs(self.inverse) @ np.abs(self.weights)).sum(axis=2).max()
        return float(off + rounding) * (1 + 1e-9)

    def applied(self, rows: Array, blocks: Array) -> Array:
        """Blocks times rows (points or keys, columns)."""
        return np.asarray((blocks @ rows.reshape(*self.points.shape, -1)).reshape(rows.shape))


def _groups(axis: LineAxis, low: float, high: float) -> list[Groups]:
    """One for every size of group that the keys can be cut into."""
    found = []
    for size in possible_sizes(axis.size):
        edges = group_edges(axis.w, axis.c, axis.slopes, axis.biases, size, low, high)
        if edges is None:
            continue
        points = np.clip(chebyshev_points(edges, size), low, high)
        weights = group_weights(axis.w, axis.c, axis.slopes, axis.biases, points)
        try:
            found.append(Groups(points, np.asarray(np.linalg.inv(weights), dtype=np.float64), weights))
        except np.linalg.LinAlgError:
            continue
    provided(found, "tables: the keys of an axis form no groups")
    return found


def _of_product(view: View, axes: list[LineAxis], values: Array, knots: list[Array], jets: Array, goal: float) -> float:
    """The statement's bound for several variables and one output."""
    ends = list(zip(view.low.tolist(), view.high.tolist(), strict=True))
    possible = [_groups(axis, *side) for axis, side in zip(axes, ends, strict=True)]
    target = Table(tuple(knots), jets)
    off, groups = min(((_off(values, target, list(one)), one) for one in product(*possible)), key=lambda pair: pair[0])
    errors, norms = [], []
    for k, (axis, one, t) in enumerate(zip(axes, groups, knots, strict=True)):
        columns = _columns(jets, knots, k)
        errors.append(_largest(axis, one, t, columns, *ends[k], goal))
        norms.append(_norm(axis, one, t, *ends[k]))
    most = float(np.abs(values).max())
    total = most * (math.prod(1 + one.defect for one in groups) - 1) + off * math.prod(norms)
    total += min(
        sum(math.prod(norms[i] for i in order[:place]) * errors[k] for place, k in enumerate(order))
        for order in permutations(range(len(axes)))
    )
    return total * (1 + 1e-9)


def _off(values: Array, target: Table, groups: list[Groups]) -> float:
    """A bound of max |G − F|."""
    out = values
    for k, one in enumerate(groups):
        rows = np.moveaxis(out, k, 0)
        out = np.moveaxis(one.applied(rows.reshape(len(rows), -1), one.weights).reshape(rows.shape), 0, k)
    grid = np.meshgrid(*(one.points.ravel() for one in groups), indexing="ij")
    terms = sum(one.points.shape[1] + 4 for one in groups)
    rounding = gamma(terms, _U) * 1.01 * float(np.abs(values).max())
    rounding += 64 * target.dim * _U * _size(target.jets, list(target.knots))
    return float(np.abs(out - target.at(*grid)).max()) * (1 + 1e-9) + rounding


def _size(jets: Array, knots: list[Array]) -> float:
    """More than any value and any control point, their parts counted apart."""
    return float(np.abs(jets).max()) * math.prod(2 + float(np.diff(t).max()) for t in knots)


def _columns(jets: Array, knots: list[Array], k: int) -> Array:
    """(n, r, columns): jets along axis k, control points along the others."""
    out, place = jets, 0
    for i, t in enumerate(knots):
        if i != k:
            out = control_points(out, place, t, -1.0)
        place += 1 + (i == k)
    return np.moveaxis(out, (k, k + 1), (0, 1)).reshape(*jets.shape[2 * k : 2 * k + 2], -1)


def _largest(
    axis: LineAxis, groups: Groups, knots: Array, columns: Array, low: float, high: float, goal: float
) -> float:
    """e_k: the largest error of L_k for the columns."""
    points = groups.points.ravel()
    cell = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, len(knots) - 2)
    worst = 0.0
    for i in range(0, columns.shape[-1], _COLUMNS):
        part = columns[..., i : i + _COLUMNS]
        pieces = hermite(knots, part)
        values = groups.applied(pieces(cell, points, np.ones_like(points))[0][0], groups.inverse)
        worst = max(worst, sup_errors(axis, values, pieces, knots, low, high, goal, False)[0])
    size = _size(columns, [knots]) * 4  # control points of the others are off by some units too
    return worst + (groups.points.shape[1] + 100) * _U * size * (groups.row + 1)


def _norm(axis: LineAxis, groups: Groups, knots: Array, low: float, high: float) -> float:
    """Λ_k, not closely."""
    size = groups.points.shape[1]
    whole = np.zeros((axis.size, axis.size))
    for g, block in enumerate(groups.inverse):
        whole[g * size : (g + 1) * size, g * size : (g + 1) * size] = block
    nothing = hermite(knots, np.zeros((len(knots), 1, axis.size)))
    return sup_errors(axis, whole, nothing, knots, low, high, _LEBESGUE, True)[0]
