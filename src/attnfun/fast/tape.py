"""A network as a tape: flat arrays of operations and numbers that one compiled kernel plays (`kernels.py`).

Every head gets the cheapest operation that applies to it. FORM, KEYS, FACTOR and WINDOW apply by themselves; LATTICE
(`lattice.py`) where its error is proved to be at most what the certificate of the network counts for that head anyway.

Logits are safe where no exp can overflow and nothing that underflows matters: for queries within the limits on the
tape every |logit| is at most S, with n max|V| e^S below every number that is too large, and 4 n η e^S (what products
that underflow lose, η the least positive number) at most 2^-60 times the spread of the values, which every certificate
counts for windows that are not used here. Elsewhere the kernel subtracts the largest logit.

Failure mode: None for networks of ReLU units, and for more rows than fit in a cache; those keep the NumPy routes.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnfun.certify.rounding import FAR, LARGEST, TINY
from attnfun.fast.codes import FACTOR, FORM, KEYS, LATTICE, SAFE, WINDOW
from attnfun.fast.lattice import Polynomial, polynomial
from attnfun.network.evaluate import stream
from attnfun.network.head import AnyArray, Array, Axis, Head
from attnfun.network.key_windows import LocalPlan, local_plan
from attnfun.network.network import Network

_CACHE = 1 << 18  # bytes of rows
_MOST_ROWS = 1 << 13
_SEEN = 256  # points that show where the queries of deeper layers lie


@dataclass(frozen=True, eq=False)
class Tape:
    """`arguments` of the kernel: operations, indices, numbers, table, shape, rows of the results; `block` points at a
    time; `routes` says by layer and head which operation was taken; `work`: what a point costs, counted.
    """

    arguments: tuple[AnyArray, ...]
    block: int
    routes: tuple[tuple[str, ...], ...]
    work: Mapping[str, int]


@dataclass
class _Writer:
    dtype: str
    ops: list[tuple[int, int, int, int]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)
    tables: list[Array] = field(default_factory=list)
    count: int = 0
    cells: int = 0
    rows: int = 0
    scratch: int = 0
    work: Counter[str] = field(default_factory=Counter)

    def add(
        self, code: int, index: Sequence[int], numbers: Sequence[Any], scratch: int = 0, other: int = 0, **work: int
    ) -> None:
        self.ops.append((code, len(self.index), self.count, other))
        self.work.update(work)
        self.index += [int(i) for i in index]
        for part in numbers:
            flat = np.atleast_1d(np.asarray(part, dtype=np.float64)).ravel()
            self.numbers.append(flat)
            self.count += len(flat)
        self.scratch = max(self.scratch, scratch)

    def form(self, row: Array, offset: float, dst: int) -> None:
        used = np.flatnonzero(row)
        self.add(FORM, [dst, len(used), *used], [row[used], offset], flops=2 * len(used) + 1)

    def table(self, values: Array) -> int:
        start = self.cells
        self.tables.append(values.reshape(-1))
        self.cells += values.size
        return start


def tape_of(network: Network) -> Tape | None:
    """The tape of `network` in its dtype, or None where there is none."""
    width = len(network.coordinates)
    if network.is_mlp or width > _MOST_ROWS:
        return None
    out = _Writer(network.dtype, rows=width)
    free, routes = width, []
    seen = _seen(network) if len(network.layers) > 1 else None
    at = len(network.inputs)
    for number, layer in enumerate(network.layers):
        rows = {name: at + k for k, name in enumerate(layer.writes)}
        writers: dict[str, list[int]] = {name: [] for name in layer.writes}
        several = {n for n in layer.writes if sum(n in head.writes for head in layer.heads) > 1}
        spare, own = free, []
        for head in layer.attention:
            to = []
            for name in head.writes:
                if name in several:
                    to.append(spare)
                    writers[name].append(spare)
                    spare += 1
                else:
                    to.append(rows[name])
            reached = [_reach(network, axis, None if number == 0 else seen) for axis in head.axes]
            own.append(_head(out, head, reached, to, spare))
        for name in sorted(several, key=list(rows).index):
            terms = writers[name]
            out.add(FORM, [rows[name], len(terms), *terms], [np.ones(len(terms)), 0.0])
        out.rows = max(out.rows, spare)
        routes.append(tuple(own))
        at += len(layer.writes)
    results = range(out.rows, out.rows + len(network.outputs))
    for k, row in enumerate(results):
        out.form(network.readout[k], float(network.readout_bias[k]), row)
    out.rows += len(results)
    if out.rows + out.scratch > _MOST_ROWS:
        return None
    kind = np.dtype(network.dtype)
    size = 256
    while size > 64 and (out.rows + out.scratch) * size * kind.itemsize > _CACHE:
        size //= 2
    tables = out.tables[0] if len(out.tables) == 1 else np.concatenate([np.zeros(1), *out.tables])
    arguments = (
        np.array(out.ops, dtype=np.int64).reshape(-1, 4),
        np.array(out.index, dtype=np.int64),
        np.concatenate(out.numbers).astype(kind),
        tables.astype(kind, copy=False),
        np.array([out.rows, max(out.scratch, 1), size], dtype=np.int64),
        np.array(results, dtype=np.int64),
    )
    return Tape(arguments, size, tuple(routes), dict(out.work))


def _seen(network: Network) -> Array:
    """The stream at some points of the box, its corners among them as far as they go."""
    rng = np.random.default_rng(0)
    return np.asarray(stream(network, network.domain.probe(_SEEN, rng)), dtype=np.float64)


def _reach(network: Network, axis: Axis, seen: Array | None) -> tuple[float, float]:
    """Where the queries of an axis of one dimension lie: proved in the first layer, later as seen, with a margin."""
    row, offset = axis.query[0], float(axis.offset[0])
    if seen is None:
        ends = np.stack([row * network.low, row * network.high])
        low, high = float(ends.min(axis=0).sum()) + offset, float(ends.max(axis=0).sum()) + offset
        margin = 1e-6 * (high - low + abs(low) + abs(high))
    else:
        queries = seen[:, : len(row)] @ row + offset
        low, high = float(queries.min()), float(queries.max())
        margin = 0.05 * (high - low) + 1e-6 * (abs(low) + abs(high))
    return low - margin, high + margin


def _head(out: _Writer, head: Head, reached: list[tuple[float, float]], to: list[int], spare: int) -> str:
    """Write one head; its queries take rows from `spare` on. Returns the name of the operation."""
    dtype, p = out.dtype, head.outputs
    queries = []
    for axis in head.axes:
        rows = []
        for row, offset in zip(axis.query, axis.offset, strict=True):
            used = np.flatnonzero(row)
            if len(used) == 1 and row[used[0]] == 1.0 and offset == 0.0:
                rows.append(int(used[0]))
                continue
            out.form(row, float(offset), spare)
            rows.append(spare)
            spare += 1
        queries.append(rows)
    out.rows = max(out.rows, spare)
    A, grid = len(head.axes), head.grid
    plan = local_plan(head, dtype)
    found = polynomial(head, reached, dtype)
    prices = {"keys": 0.6 * head.keys * (1 + 0.2 * p)} if A == 1 else {"factor": 0.6 * sum(grid) + 0.1 * p * head.keys}
    if plan is not None:
        prices["window"] = sum(6.0 + 2.0 * axis.window for axis in plan.axes) + 1.5 * p * plan.cells
    if found is not None:
        prices["lattice"] = 2.0 * A + 0.07 * p * found.size
    name = min(prices, key=lambda k: prices[k])
    if name == "window":
        assert plan is not None
        _window(out, head, plan, queries, to)
    elif name == "lattice":
        assert found is not None
        _lattice(out, found, queries, to)
    elif name == "keys":
        (axis,) = head.axes
        n, r = axis.slopes.shape
        limits = _limits(head, dtype)[0]
        numbers = [-FAR[dtype], limits, axis.slopes, axis.biases, head.values]
        flops = n * (2 * r + 2 * p + 1)
        out.add(KEYS, [n, r, p, *queries[0], *to], numbers, 3, exps=n, divisions=p, flops=flops)
    else:
        index, numbers = [A, p], []
        for axis, rows, limits in zip(head.axes, queries, _limits(head, dtype), strict=True):
            index += [*axis.slopes.shape, *rows]
            numbers += [-FAR[dtype], limits, axis.slopes, axis.biases]
        values = np.moveaxis(head.values, -1, 0)
        work = {"exps": sum(grid), "divisions": p, "flops": 2 * p * head.keys + 3 * sum(grid)}
        out.add(FACTOR, [*index, *to], [*numbers, values], A + 1 + sum(n + 2 for n in grid), **work)
    return name


def _limits(head: Head, dtype: str) -> list[Array]:
    """For each axis the largest size of its queries for which the logits are safe; negative: none are."""
    flat = np.abs(head.values.reshape(-1, head.outputs))
    n, spread = head.keys, float(np.ptp(head.values.reshape(-1, head.outputs), axis=0).min())
    with np.errstate(all="ignore"):
        size = math.log(LARGEST[dtype]) - math.log(max(n * float(flat.max()), 1.0))
        lost = math.log(2.0**-60 * spread / (4 * n * TINY[dtype])) if spread * 2.0**-60 > 0 else 0.0
    room = (min(SAFE[dtype], size, lost) - 1.0) / len(head.axes)
    found = []
    for axis in head.axes:
        slope, bias = float(np.abs(axis.slopes).max(axis=0).sum()), float(np.abs(axis.biases).max())
        left = (room - bias) * (1 - 1e-6)
        limit = left / slope if slope > 0 and left > 0 else (LARGEST[dtype] if left > 0 else -1.0)
        found.append(np.full(axis.dim, min(limit, LARGEST[dtype])))
    return found


def _window(out: _Writer, head: Head, plan: LocalPlan, queries: list[list[int]], to: list[int]) -> None:
    index, numbers = [len(head.axes), head.outputs], []
    for axis, local, rows in zip(head.axes, plan.axes, queries, strict=True):
        index += [rows[0], axis.keys, local.window, local.radius]
        numbers += [-np.inf, local.breakpoints, np.inf, local.steps, -FAR[out.dtype]]
    scratch = len(head.axes) + 2 + sum(axis.window for axis in plan.axes)
    exps = sum(axis.window for axis in plan.axes)
    work = {"exps": exps, "divisions": head.outputs, "flops": 2 * plan.cells * head.outputs + 8 * exps}
    out.add(WINDOW, [*index, *to], numbers, scratch, out.table(head.values), gathers=plan.cells * head.outputs, **work)


def _lattice(out: _Writer, found: Polynomial, queries: list[list[int]], to: list[int]) -> None:
    A, p = len(queries), len(to)
    runs = [number for own, ends in found.runs for number in (own.shape[1], ends)]
    index = [A, p, *(queries[a][0] for a in found.order), *to, len(found.runs), *runs]
    coefficients = [own[k] for k in range(p) for own, _ in found.runs]
    numbers = [found.reach, *(np.array(own) for own in found.constants), *coefficients]
    work = {"exps": A, "divisions": A, "flops": 2 * p * (found.size + len(found.runs)) + 4 * A}
    out.add(LATTICE, index, numbers, 2 * A - 1, **work)
