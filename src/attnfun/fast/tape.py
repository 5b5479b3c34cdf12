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
from attnfun.fast.lattice import MOST_KEYS, Polynomial, lattice
from attnfun.fast.powers import powers
from attnfun.network.evaluate import stream
from attnfun.network.head import AnyArray, Array, Axis, Head
from attnfun.network.key_windows import LocalPlan, local_plan
from attnfun.network.network import Network

_CACHE = 3 << 15  # bytes of rows
_MOST_POINTS = 1 << 10  # of a block
_MOST_ROWS = 1 << 13
_CONVERTED = 64  # heads, each takes some hundredths of a second
_SIGMOID = 16  # coefficients that take as long
_SEEN = 2_000  # points that show where the queries of deeper layers lie


@dataclass(frozen=True, eq=False)
class Tape:
    """`arguments` of the kernel: operations, indices, numbers, table, shape, rows of the results; `block` points at a
    time; `routes` says by layer and head which operation was taken; `work`: what a point costs, counted; `heads`: whose
    operation it is and the rows it writes, None for FORM.
    """

    arguments: tuple[AnyArray, ...]
    block: int
    routes: tuple[tuple[str, ...], ...]
    work: Mapping[str, int]
    heads: tuple[tuple[Head, tuple[int, ...]] | None, ...]


@dataclass
class _Writer:
    dtype: str
    ops: list[tuple[int, ...]] = field(default_factory=list)
    heads: list[tuple[Head, tuple[int, ...]] | None] = field(default_factory=list)
    own: tuple[Head, tuple[int, ...]] | None = None
    index: list[int] = field(default_factory=list)
    numbers: list[Array] = field(default_factory=list)
    tables: list[Array] = field(default_factory=list)
    count: int = 0
    cells: int = 0
    rows: int = 0
    scratch: int = 0
    busy: int = 0  # of it, what is used where polynomials apply
    work: Counter[str] = field(default_factory=Counter)
    known: dict[tuple[Any, ...], Polynomial | None] = field(default_factory=dict)

    def data(self, code: int, index: Sequence[int], numbers: Sequence[Any], scratch: int = 0) -> tuple[int, int, int]:
        """Write what an operation reads; where it stands."""
        place = code, len(self.index), self.count
        self.index += [int(i) for i in index]
        for part in numbers:
            flat = np.atleast_1d(np.asarray(part, dtype=np.float64)).ravel()
            self.numbers.append(flat)
            self.count += len(flat)
        self.scratch = max(self.scratch, scratch)
        return place

    def add(
        self,
        place: tuple[int, int, int],
        other: int = 0,
        beside: tuple[int, int, int] = (FORM, 0, 0),
        work: Mapping[str, int] = {},
        busy: int = 0,
    ) -> None:
        self.busy = max(self.busy, busy)
        self.ops.append((*place, other, *beside))
        self.heads.append(None if place[0] == FORM else self.own)
        self.work.update(work)

    def form(self, row: Array, offset: float, dst: int) -> None:
        used = np.flatnonzero(row)
        self.add(self.data(FORM, [dst, len(used), *used], [row[used], offset]), work={"flops": 2 * len(used) + 1})

    def polynomial(self, head: Head, reached: list[tuple[float, float]]) -> Polynomial | None:
        """The head as a polynomial, each head that is there several times once, and no more than CONVERTED of them."""
        if head.keys > MOST_KEYS:
            return None
        arrays = (*(array for axis in head.axes for array in (axis.slopes, axis.biases)), head.values)
        key = (*(array.tobytes() for array in arrays), *reached)
        if key not in self.known and len(self.known) < _CONVERTED:
            found = lattice(head, reached, self.dtype)
            plain = powers(head, reached[0], self.dtype) if len(head.axes) == 1 else None
            both = [one for one in (found, plain) if one is not None]
            self.known[key] = min(both, key=lambda one: one.size + (0 if one.plain else _SIGMOID), default=None)
        return self.known.get(key)

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
        times = Counter(name for head in layer.heads for name in head.writes)
        several = [name for name in layer.writes if times[name] > 1]
        spare, own = free, []
        for head in layer.attention:
            to = []
            for name in head.writes:
                if times[name] > 1:
                    to.append(spare)
                    writers[name].append(spare)
                    spare += 1
                else:
                    to.append(rows[name])
            reached = [_reach(network, axis, None if number == 0 else seen) for axis in head.axes]
            own.append(_head(out, head, reached, to, spare))
        for name in several:
            terms = writers[name]
            sums = np.zeros(max(terms) + 1)
            sums[terms] = 1.0
            out.form(sums, 0.0, rows[name])
        out.rows = max(out.rows, spare)
        routes.append(tuple(own))
        at += len(layer.writes)
    results = []
    for row, bias in zip(network.readout, network.readout_bias, strict=True):
        used = np.flatnonzero(row)
        if len(used) == 1 and row[used[0]] == 1.0 and bias == 0.0:
            results.append(int(used[0]))  # a row as it is
            continue
        out.form(row, float(bias), out.rows)
        results.append(out.rows)
        out.rows += 1
    if out.rows + out.scratch > _MOST_ROWS:
        return None
    kind = np.dtype(network.dtype)
    size = _MOST_POINTS
    while size > 64 and (out.rows + out.busy) * size * kind.itemsize > _CACHE:
        size //= 2
    tables = out.tables[0] if len(out.tables) == 1 else np.concatenate([np.zeros(1), *out.tables])
    arguments = (
        np.array(out.ops, dtype=np.int64).reshape(-1, 7),
        np.array(out.index, dtype=np.int64),
        np.concatenate([np.zeros(0), *out.numbers]).astype(kind),
        tables.astype(kind, copy=False),
        np.array([out.rows, max(out.scratch, 1), size], dtype=np.int64),
        np.array(results, dtype=np.int64),
    )
    return Tape(arguments, size, tuple(routes), dict(out.work), tuple(out.heads))


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
        margin = 0.02 * (high - low) + 1e-6 * (abs(low) + abs(high))
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
    out.own = head, tuple(to)
    plan, found = local_plan(head, dtype), out.polynomial(head, reached)
    index, numbers, scratch, work = _plain(head, queries, dtype)
    name = "keys" if len(head.axes) == 1 else "factor"
    prices = {name: 0.45 * work["exps"] + 0.03 * work["flops"]}
    if plan is not None:
        prices["window"] = sum(3.0 + 2.0 * axis.window for axis in plan.axes) + 1.0 * p * plan.cells
    if found is not None:
        prices["powers" if found.plain else "lattice"] = (
            0.2 if found.plain else 0.7 * len(head.axes)
        ) + 0.03 * p * found.size
    taken = min(prices, key=lambda k: prices[k])
    if taken == "window":
        assert plan is not None
        _window(out, head, plan, queries, to)
        return taken
    plain = out.data(KEYS if name == "keys" else FACTOR, [*index, *to], numbers, scratch)
    if taken == name:
        out.add(plain, work=work, busy=scratch)
    else:
        assert found is not None
        _lattice(out, found, queries, to, plain)
    return taken


def _plain(head: Head, queries: list[list[int]], dtype: str) -> tuple[list[int], list[Any], int, dict[str, int]]:
    """What KEYS or FACTOR reads, but for the rows to write; rows that it needs; its work."""
    A, p, grid = len(head.axes), head.outputs, head.grid
    limits = _limits(head, dtype)
    if A == 1:
        (axis,) = head.axes
        n, r = axis.slopes.shape
        numbers = [-FAR[dtype], limits[0], axis.slopes, axis.biases, head.values]
        return [n, r, p, *queries[0]], numbers, 3, {"exps": n, "divisions": p, "flops": n * (2 * r + 2 * p + 1)}
    index, numbers = [A, p], []
    for axis, rows, own in zip(head.axes, queries, limits, strict=True):
        index += [*axis.slopes.shape, *rows]
        numbers += [-FAR[dtype], own, axis.slopes, axis.biases]
    work = {"exps": sum(grid), "divisions": p, "flops": 2 * p * head.keys + 3 * sum(grid)}
    return index, [*numbers, np.moveaxis(head.values, -1, 0)], A + 1 + sum(n + 2 for n in grid), work


def _limits(head: Head, dtype: str) -> list[Array]:
    """For each axis the largest size of its queries for which the logits are safe; negative: none are."""
    n, spread = head.keys, float(head.spread.min())
    with np.errstate(all="ignore"):
        size = math.log(LARGEST[dtype]) - math.log(max(n * head.max_value, 1.0))
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
    windows, p = [axis.window for axis in plan.axes], head.outputs
    work = {"exps": sum(windows), "divisions": p, "flops": 2 * plan.cells * p + 6 * sum(windows)}
    # of breakpoints and steps, and of cells, of which those of one run along the last axis lie together
    work["lookups"], work["runs"] = 2 * sum(windows) + plan.cells * p, plan.cells // windows[-1]
    place = out.data(WINDOW, [*index, *to], numbers, scratch)
    out.add(place, out.table(head.values), work=work, busy=scratch)


def _lattice(
    out: _Writer, found: Polynomial, queries: list[list[int]], to: list[int], plain: tuple[int, int, int]
) -> None:
    A, p = len(queries), len(to)
    runs = [number for own, ends in found.runs for number in (own.shape[1], ends)]
    index = [A, p, *(queries[a][0] for a in found.order), *to, len(found.runs), *runs]
    coefficients = [own[k] for k in range(p) for own, _ in found.runs]
    numbers = [found.reach, *(np.array(own) for own in found.constants), *coefficients]
    place, sigmoids = out.data(LATTICE, index, numbers, 2 * A - 1), 0 if found.plain else A
    work = {"exps": sigmoids, "divisions": sigmoids, "flops": 2 * p * (found.size + len(found.runs)) + 4 * A}
    out.add(place, beside=plain, work=work, busy=2 * A - 1)
