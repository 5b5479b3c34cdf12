"""table: numbers on a grid, joined by lines or cubics, by one head: in one to three variables.

| symbol | meaning |
| --- | --- |
| H_i, Z | the table's functions of an axis, its numbers: f = Z·(H ⊗ … ⊗ H) |
| p(x), A | softmax weights of an axis' keys; a matrix with p(x)·A ≈ H(x) |

Statement. A piecewise linear or cubic function of one variable is within ε of one head, of a few keys a piece
(`table_keys`): two for a line, three or four for a cubic. The tensor product of such functions is one product head with
the values V = Z·(Aᵀ ⊗ … ⊗ Aᵀ): each axis repeats the same piece by piece.
Source: the max-affine partition of `partition`, with pairs of keys of nearly one slope in place of a constant in each
cell.
Construction. Pieces and keys of each axis for all its columns, then V from f at the product of the pieces'
points, one axis after the other. The error is sampled, and what is asked of the axes is changed until it fits.
Size: keys of one variable times those of the others. Smooth data need far fewer than their knots.
Bound: *tables*, from the stored weights.
Failure mode: rounding. Slopes of keys add up to the changes of the data's slope over ε; noisy data of many points at a
small ε are refused with the ε that can be met.
Example: af.compile(af.table([0, 1, 3], [0.0, 2.0, 1.0]), eps=1e-3).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from attnfun.certify.rounding import rounding_bound
from attnfun.certify.tables import tables_of
from attnfun.certify.view import view
from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request, admitting
from attnfun.kinds.function.build.table_keys import Array, AxisKeys, Columns, fit_axis
from attnfun.language.table import Table, control_points
from attnfun.network import Axis, Head, Network, rounded

_TRIES = 8
_LARGEST = {1: (1e11, 1e6, 1e3), 2: (1e5, 1e4, 1e3, 1e2), 3: (1e4, 1e3, 1e2)}  # values over the data, by axes
_NORM = 2.5  # what the error of an axis grows by where it passes another one
_ROOM = 0.97  # of eps, for what sampling misses
_FIBRES = 48  # lines parallel to an axis that its keys are fitted to, at most
_TOGETHER = 5_000  # points that are looked at together
_COARSER = (2.0, 4.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6)


def is_table(request: Request) -> bool:
    """Is the target a table of all its variables, and nothing else?"""
    function = request.function
    return function.graph is not None and tables_of(function.graph, function.box.names) is not None


class TableHead(Construction):
    name = "table"
    summary = "one head of a few keys a piece: numbers on a grid, joined by lines or cubics"

    def plan(self, request: Request) -> Plan:
        graph = request.expression("table: a black box is no table")
        tables = tables_of(graph, request.function.box.names)
        if tables is None:
            raise Infeasible("table: the target is no table of its variables")
        try:
            keys, values, error = _fitted(request, tables, request.eps)
        except Infeasible as no:
            raise Infeasible(str(no), _nearest(request, tables)) from None
        count = int(np.prod([len(axis.slopes) for axis in keys]))
        why = f"table: {count:,} keys are needed, more than {request.max_keys:,}"
        feasible(count <= request.max_keys, why, admitting(count))
        story: dict[str, Any] = {
            "pieces": [len(axis.edges) - 1 for axis in keys],
            "keys a piece": [a.size for a in keys],
        }
        size = float(np.abs(values).max())
        story |= {"largest value": size, "sampled error": error}
        return Plan(self.name, count, 1, 1, len(keys) + 1, size, (keys, values), story, settles=True)

    def build(self, request: Request, plan: Plan) -> Network:
        return _network(request, *plan.data)


def _nearest(request: Request, tables: list[Table]) -> dict[str, float] | None:
    """The next larger eps of a short list that can be met."""
    for factor in _COARSER:
        try:
            _fitted(request, tables, factor * request.eps)
        except Infeasible:
            continue
        return {"eps": float(f"{1.05 * factor * request.eps:.2g}")}
    return None


def _fitted(request: Request, tables: list[Table], eps: float) -> tuple[list[AxisKeys], Array, float]:
    """Keys of every axis, values (keys, …, outputs), and the sampled error; what rounding adds leaves room for it."""
    why, box = "", request.function.box
    for most in _LARGEST[box.dim]:
        room = eps
        while room > 0.2 * eps:
            try:
                keys, values, error = _within(request, tables, room, most)
            except Infeasible as no:
                why = why or str(no)
                break
            seen = view(_network(request, keys, values), box.low_array, box.high_array)
            rounding = rounding_bound(seen, request.dtype)
            if error + rounding <= eps:
                return keys, values, error
            why = f"table: values of {request.dtype} round by {rounding:.2g}, too much for eps={eps:.3g}"
            room = min(0.9 * room, eps - 1.3 * rounding)
    raise Infeasible(why)


def _within(request: Request, tables: list[Table], eps: float, most: float) -> tuple[list[AxisKeys], Array, float]:
    """The same without a look at rounding; values are at most about `most` times the data on each axis."""
    box, share = request.function.box, 1.0
    lines = [_fibres(tables, k) for k in range(box.dim)]
    for _ in range(_TRIES):
        keys = [
            fit_axis(columns, knots, low, high, share * eps / box.dim, request.dtype, most)
            for columns, knots, low, high in zip(lines, tables[0].knots, box.low, box.high, strict=True)
        ]
        off = sorted(_sampled(columns, axis) for columns, axis in zip(lines, keys, strict=True))
        error = sum(_NORM**k * one for k, one in enumerate(reversed(off)))  # about as the proof has it
        if error <= _ROOM * eps:
            return keys, _values(tables, keys), error
        share *= max(0.5, 0.9 * eps / error)
    raise Infeasible(f"table: no keys within eps={eps:.3g} of the data were found")


def _network(request: Request, keys: list[AxisKeys], values: Array) -> Network:
    axes = []
    for k, one in enumerate(keys):
        query = np.zeros((1, len(keys)))
        query[0, k] = one.w
        axes.append(Axis(query, np.array([one.offset]), one.slopes[:, None], one.biases))
    names = ", ".join(f"key {{{k}}} of {name}" for k, name in enumerate(request.function.box.names))
    writes = tuple(f"head {o}" for o in request.function.outputs)
    return request.network_of(Head("table", tuple(axes), rounded(values, request.dtype), writes, names))


def _fibres(tables: list[Table], k: int) -> Columns:
    """Functions of variable k alone: the tables along it, at some control points of the others."""
    rows = []
    for table in tables:
        out, place = table.jets, 0
        for i, t in enumerate(table.knots):
            if i != k:
                out = control_points(out, place, t, -1.0)
            place += 1 + (i == k)
        r = table.jets.shape[2 * k + 1]
        row = np.moveaxis(out, (k, k + 1), (0, 1)).reshape(len(table.knots[k]), r, -1)
        keep = np.unique(np.linspace(0, row.shape[-1] - 1, max(2, _FIBRES // len(tables))).round().astype(int))
        rough = np.argsort(np.abs(np.diff(row[:, 0], 2, axis=0)).sum(axis=0))[-4:]
        rows.append(row[..., np.union1d(keep, rough)])
    jets = np.concatenate(rows, axis=-1)
    knots, r = tables[0].knots[k], jets.shape[1]
    lines = [Table((knots,), jets[..., c]) for c in range(jets.shape[-1])]
    return lambda x: np.stack([line.at(x) for line in lines], axis=1)


def _values(tables: list[Table], keys: list[AxisKeys]) -> Array:
    """V: the tables at the product of the pieces' points, and each axis' groups inverted in turn."""
    grid = np.meshgrid(*(axis.nodes.ravel() for axis in keys), indexing="ij")
    out = np.stack([table.at(*grid) for table in tables], axis=-1)
    for k, axis in enumerate(keys):
        rows = np.moveaxis(out, k, 0)
        at_nodes = rows.reshape(*axis.nodes.shape, -1)
        out = np.moveaxis(axis.values(at_nodes).reshape(rows.shape), 0, k)
    return out


def _sampled(columns: Columns, axis: AxisKeys) -> float:
    """The largest error of one axis at points that are dense at the edges of its pieces."""
    values = axis.values(columns(axis.nodes.ravel()).reshape(*axis.nodes.shape, -1))
    points, worst = _points(axis), 0.0
    for i in range(0, len(points), _TOGETHER):
        x = points[i : i + _TOGETHER]
        index, p = axis.near(x)
        worst = max(worst, float(np.abs(np.einsum("ni,nic->nc", p, values[index]) - columns(x)).max()))
    return worst


def _points(axis: AxisKeys) -> Array:
    """Points of every piece, closer and closer to its edges."""
    ladder = np.geomspace(1e-5, 0.5, 24)
    steps = np.concatenate([[0.0], ladder, 1 - ladder[::-1]])
    pairs = np.array(list(pairwise(axis.edges.tolist())))
    return np.asarray((pairs[:, :1] + (pairs[:, 1:] - pairs[:, :1]) * steps).ravel())
