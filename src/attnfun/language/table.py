"""Table: a function given by numbers on a grid, joined by lines or by cubics; exact, in one to three variables.

    f(x_1, …, x_d) = Σ Z[i_1, r_1, …, i_d, r_d] Π_k H_{i_k, r_k}(x_k)

| symbol | meaning |
| --- | --- |
| t_i | knots of an axis, increasing doubles |
| H_i,0 | linear axis: the hat that is 1 at t_i; cubic axis: the cubics with value 1 at t_i, slope 0 at all knots |
| H_i,1 | cubic axis alone: slope 1 at t_i, value 0 at all knots |
| Z | the *jets*, doubles: values, and of cubic axes slopes (of two cubic axes mixed slopes too) |

A cubic axis has (value, slope) at each knot and the one cubic between them that meets both (Hermite), so f has a
continuous gradient along it, exactly and not up to rounding. Natural and clamped splines, PCHIP and Akima are all of
this kind; they differ in the slopes. Outside the knots the end pieces go on.

As an operation of the language `table` takes d arguments and carries a `Table`. `derived(k)` is ∂f/∂x_k, on a knot
both pieces where a set is asked for, the right one where a number is. Every algebra's method stands here.
Failure mode: over a box of many cells the range is that of the control points, which is wider than the truth.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.language.enclosures import NAN, ZERO, Ball, arb, lower, span, upper

Array = NDArray[np.float64]
MOST: Final = 200_000  # numbers of one table
MOST_AXES: Final = 3
_CELLS: Final = 64  # of a box that are looked at one by one

# the functions of a cell [0, h] in powers of t/h: of its left knot, then of its right one; a slope's come times h
_LINE: Final = ((1, -1), (0, 1))
_CUBIC: Final = ((1, 0, -3, 2), (0, 1, -2, 1), (0, 0, 3, -2), (0, 0, -1, 1))


@dataclass(frozen=True, eq=False)
class Table:
    """`knots` of every axis, `jets` of shape (n_1, r_1, …, n_d, r_d), r = 1 of a linear axis and 2 of a cubic one;
    `orders` are the derivatives taken of it.
    """

    knots: tuple[Array, ...]
    jets: Array
    orders: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        knots = tuple(np.array(t, dtype=np.float64) for t in self.knots)
        jets = np.array(self.jets, dtype=np.float64)
        for array in (*knots, jets):
            array.setflags(write=False)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "jets", jets)
        object.__setattr__(self, "orders", tuple(self.orders) or (0,) * len(knots))
        fits = 1 <= len(knots) <= MOST_AXES and jets.ndim == 2 * len(knots) and jets.size <= MOST
        fits = fits and jets.shape[::2] == tuple(len(t) for t in knots) and set(jets.shape[1::2]) <= {1, 2}
        require(fits, "a table needs one to three axes, a number for every point, and at most 200,000 numbers")
        good = all(t.ndim == 1 and len(t) > 1 and bool((np.diff(t) > 0).all()) for t in knots)
        finite = bool(np.isfinite(jets).all()) and all(bool(np.isfinite(t).all()) for t in knots)
        require(good and finite, "a table needs knots that increase, two at least, and finite numbers")
        size = max(float(np.abs(jets).max()), *(float(np.abs(t).max()) for t in knots))
        gap = min(float(np.diff(t).min()) for t in knots)
        require(size <= 1e100 and gap >= 1e-100, "a table's numbers must stay below 1e100, its knots 1e-100 apart")

    @property
    def dim(self) -> int:
        return len(self.knots)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return tuple(t.tobytes() for t in self.knots), self.jets.shape, self.jets.tobytes(), self.orders

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.knots, self.jets, self.orders)

    @property
    def name(self) -> str:
        """What stands for it in a formula: its degrees, its size, and four letters that tell it from others."""
        kind = {(1,): "linear", (2,): "cubic"}.get(tuple(sorted(set(self.jets.shape[1::2]))), "mixed")
        mark = hashlib.sha256(repr(self._key).encode()).hexdigest()[:4]
        order = "".join(f"_d{k + 1}" * n for k, n in enumerate(self.orders))
        return f"{kind}_table_{'x'.join(str(len(t)) for t in self.knots)}_{mark}{order}"

    def derived(self, k: int) -> Table:
        """∂/∂x_k."""
        return replace(self, orders=tuple(n + (i == k) for i, n in enumerate(self.orders)))

    def to_json(self) -> dict[str, Any]:
        shape = list(self.jets.shape)
        return {"knots": [t.tolist() for t in self.knots], "shape": shape, "jets": self.jets.ravel().tolist()}

    @classmethod
    def from_json(cls, data: object) -> Table | None:
        """The table that `to_json` wrote; None for what it cannot have written."""
        if not isinstance(data, dict) or set(data) != {"knots", "shape", "jets"}:
            return None
        knots, shape, jets = data["knots"], data["shape"], data["jets"]
        if not all(isinstance(one, list) for one in (knots, shape, jets)) or len(jets) > MOST:
            return None
        whole = all(type(n) is int and 0 < n <= MOST for n in shape)
        rows = (jets, *(row if isinstance(row, list) else [None] for row in knots))
        if not whole or math.prod(shape) != len(jets) or not all(type(v) is float for row in rows for v in row):
            return None
        try:
            return cls(tuple(np.array(t) for t in knots), np.array(jets).reshape(shape))
        except InvalidRequest:
            return None

    # ------------------------------------------------------------ floats

    def at(self, *x: Array) -> Array:
        """NumPy's values at points of any shape, all alike; with rounding of its own, never evidence."""
        points = [np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(*x)]
        total: Any = 0.0
        cells = [np.clip(np.searchsorted(t, v, side="right") - 1, 0, len(t) - 2) for t, v in zip(self.knots, points)]
        rows = [self._weights(k, cell, v) for k, (cell, v) in enumerate(zip(cells, points, strict=True))]
        for corner in product(*(range(2 * r) for r in self.jets.shape[1::2])):
            index: tuple[Any, ...] = ()
            weight: Any = 1.0
            for k, b in enumerate(corner):
                r = self.jets.shape[2 * k + 1]
                index += (cells[k] + b // r, b % r)
                weight = weight * rows[k][b]
            total = total + weight * self.jets[index]
        return np.asarray(np.where(sum(points) == sum(points), total, np.nan))

    def _weights(self, k: int, cell: NDArray[np.intp], x: Array) -> list[Array]:
        """The functions of a cell, differentiated `orders[k]` times, at points of it."""
        left = self.knots[k][cell]
        h = self.knots[k][cell + 1] - left
        t, r, order = (x - left) / h, self.jets.shape[2 * k + 1], self.orders[k]
        out = []
        for b, row in enumerate(_LINE if r == 1 else _CUBIC):
            value = np.zeros_like(t)
            for c in reversed(_slope(row, order)):
                value = value * t + c
            out.append(value * h ** ((b % r) - order))
        return out

    # ------------------------------------------------------------ sets

    @cached_property
    def control(self) -> tuple[Array, float]:
        """The control points, (n_1, …) of a linear axis its knots, of a cubic one 3(n − 1) + 1, and how far they are
        off: on a cell f is a weighted mean of those of that cell.
        """
        out, size = self.jets, np.abs(self.jets)
        for k, t in enumerate(self.knots):
            out, size = (control_points(array, k, t, sign) for array, sign in ((out, -1.0), (size, 1.0)))
        return out, float(size.max()) * 16 * self.dim * 2.0**-53

    def ball(self, x: Sequence[Ball]) -> Ball:
        """A ball that holds f(x) for every x of the balls."""
        if not all(v.is_finite() for v in x):
            return NAN
        ends = [(v.lower(), v.upper()) for v in x]
        near = [_touched(t, lower(a), upper(b)) for t, (a, b) in zip(self.knots, ends, strict=True)]
        count = math.prod(last - first + 1 for first, last in near)
        if count > _CELLS:
            return self._hull(near, ends)
        found = [self._on_cell(cell, x, ends) for cell in product(*(range(a, b + 1) for a, b in near))]
        if len(found) == 1:
            return found[0]
        return span(min(v.lower() for v in found), max(v.upper() for v in found))

    def _hull(self, near: Sequence[tuple[int, int]], ends: Sequence[tuple[Ball, Ball]]) -> Ball:
        """The range of the control points of many cells: f lies within them where x does within the knots."""
        inside = all(a >= arb(t[0]) and b <= arb(t[-1]) for t, (a, b) in zip(self.knots, ends, strict=True))
        if any(self.orders) or not inside:
            return NAN
        control, off = self.control
        place = (
            slice(a * (2 * r - 1), (b + 1) * (2 * r - 1) + 1)
            for (a, b), r in zip(near, self._control_steps, strict=True)
        )
        part = control[tuple(place)]
        return span((arb(float(part.min())) - arb(off)).lower(), (arb(float(part.max())) + arb(off)).upper())

    @property
    def _control_steps(self) -> tuple[int, ...]:
        """r of every axis: a cell has 2r − 1 control points more than the one before."""
        return self.jets.shape[1::2]

    def _on_cell(self, cell: Sequence[int], x: Sequence[Ball], ends: Sequence[tuple[Ball, Ball]]) -> Ball:
        """The polynomial of one cell over the part of the balls that lies in it; outside the knots over all of it."""
        parts = []
        for i, t, v, (a, b) in zip(cell, self.knots, x, ends, strict=True):
            left, right = arb(float(t[i])), arb(float(t[i + 1]))
            cut_left, cut_right = i > 0 and a < left, i < len(t) - 2 and b > right
            parts.append(span(left if cut_left else a, right if cut_right else b) if cut_left or cut_right else v)
        if self.dim == 1:
            row, (i,) = self.polynomial(cell[0]), cell
            middle = parts[0].mid()
            s, t0 = parts[0] - middle, middle - arb(float(self.knots[0][i]))
            return _horner(_moved(row, t0), s)
        bases = []
        for k, (i, part) in enumerate(zip(cell, parts, strict=True)):
            middle = part.mid()
            s, t0 = part - middle, middle - arb(float(self.knots[k][i]))
            bases.append([_horner(_moved(row, t0), s) for row in self._basis(k, i)])
        total = ZERO
        for corner in product(*(range(len(b)) for b in bases)):
            weight = arb(float(self.jets[self._corner(cell, corner)]))
            for row, b in zip(bases, corner, strict=True):
                weight = weight * row[b]
            total = total + weight
        return total

    def _corner(self, cell: Sequence[int], corner: Sequence[int]) -> tuple[int, ...]:
        """Where the jet stands that is multiplied by these functions of these cells."""
        index: tuple[int, ...] = ()
        for k, (i, b) in enumerate(zip(cell, corner, strict=True)):
            r = self.jets.shape[2 * k + 1]
            index += (i + b // r, b % r)
        return index

    def _basis(self, k: int, i: int) -> list[list[Ball]]:
        """The functions of cell i of axis k, differentiated, as polynomials in x − t_i."""
        h, r = arb(float(self.knots[k][i + 1])) - arb(float(self.knots[k][i])), self.jets.shape[2 * k + 1]
        out = []
        for b, row in enumerate(_LINE if r == 1 else _CUBIC):
            order = self.orders[k]
            out.append([arb(c) * h ** (b % r - order - j) for j, c in enumerate(_slope(row, order))] or [ZERO])
        return out

    def polynomial(self, i: int) -> list[Ball]:
        """Cell i of a table of one variable as a polynomial in x − t_i, at the working precision."""
        basis = self._basis(0, i)
        jets = [arb(float(self.jets[self._corner((i,), (b,))])) for b in range(len(basis))]
        return [sum((z * row[j] for z, row in zip(jets, basis, strict=True)), ZERO) for j in range(len(basis[0]))]

    def taylor(self, c: Ball, count: int) -> list[Ball] | None:
        """`count` Taylor coefficients of a table of one variable on a ball that meets no knot; None where it does."""
        if self.dim != 1 or not c.is_finite():
            return None
        t = self.knots[0]
        first, last = _touched(t, lower(c.lower()), upper(c.upper()))
        if first != last:
            return None
        row = _moved(self.polynomial(first), c - arb(float(t[first])))
        return (row + [ZERO] * count)[:count]


def _slope(row: Sequence[int], order: int) -> list[int]:
    """The coefficients of the derivative."""
    out = list(row)
    for _ in range(order):
        out = [j * c for j, c in enumerate(out)][1:]
    return out


def _touched(t: Array, low: float, high: float) -> tuple[int, int]:
    """The first and the last closed cell that meets [low, high]; outside the knots the end cells."""
    first = min(max(int(np.searchsorted(t, low, side="left")) - 1, 0), len(t) - 2)
    last = min(max(int(np.searchsorted(t, high, side="right")) - 1, 0), len(t) - 2)
    return first, max(first, last)


def _horner(row: Sequence[Ball], s: Ball) -> Ball:
    total = ZERO
    for c in reversed(row):
        total = total * s + c
    return total


def _moved(row: Sequence[Ball], t: Ball) -> list[Ball]:
    """The same polynomial in powers of s, its variable being t + s."""
    out = list(row)
    for j in range(len(out) - 1):
        for i in range(len(out) - 2, j - 1, -1):
            out[i] = out[i] + t * out[i + 1]
    return out


def control_points(jets: Array, k: int, t: Array, sign: float) -> Array:
    """Axes (n, r), which stand at (k, k + 1), as one axis of control points; sign +1 gives bounds of their parts."""
    rows = np.moveaxis(jets, (k, k + 1), (0, 1))
    if rows.shape[1] == 1:
        out = rows[:, 0]
    else:
        third = (np.diff(t) / 3).reshape(-1, *[1] * (rows.ndim - 2))
        value, slope = rows[:, 0], rows[:, 1]
        inner = (value[:-1], value[:-1] + third * slope[:-1], value[1:] + sign * third * slope[1:])
        out = np.concatenate([np.stack(inner, axis=1).reshape(-1, *rows.shape[2:]), value[-1:]])
    return np.moveaxis(out, 0, k)


# ---------------------------------------------------------------- the operation, algebra by algebra


def on_arrays(algebra: Any, *given: Any) -> Any:
    from attnfun.language.interpret import NotAnalytic

    *x, table = given
    if any(np.iscomplexobj(v) for v in x):
        raise NotAnalytic("a table has no complex derivative, so it has no value for complex arguments")
    kind = np.result_type(*(np.asarray(v) for v in x))
    return table.at(*x).astype(kind if kind.kind == "f" else np.float64)


@lru_cache(maxsize=64)
def _lifted(table: Table) -> Any:
    each = np.frompyfunc(lambda *x: table.ball(x), table.dim, 1)
    return lambda *x: each(*x) if any(isinstance(v, np.ndarray) for v in x) else table.ball(x)


def on_balls(algebra: Any, *given: Any) -> Any:
    *x, table = given
    return _lifted(table)(*x)


def on_intervals(algebra: Any, *given: Any) -> Any:
    """By balls of 64 bits: no hypothesis on libraries is needed."""
    from attnfun.language.enclosures import balls, lowers, precision, uppers
    from attnfun.language.intervals import Interval

    *x, table = given
    with precision(64):
        value = np.asarray(on_balls(None, *(balls(v.lo, v.hi) for v in x), table), dtype=object)
        return Interval(lowers(value), uppers(value))


def on_series(algebra: Any, *given: Any) -> Any:
    from attnfun.language.interpret import NotAnalytic
    from attnfun.language.series import REAL, Kink

    *x, table = given
    if algebra.field is not REAL:
        raise NotAnalytic("a table is not analytic")

    def taylor(c: Ball, count: int) -> list[Ball]:
        found = table.taylor(c, count)
        if found is None:
            raise Kink(f"a table changes its piece at {c.str(5)}")
        return found

    return algebra._compose("a table", taylor, x[0])


def on_duals(algebra: Any, *given: Any) -> Any:
    """The chain rule. Over sets ∂f/∂x_k holds both pieces of a knot, so it encloses every Clarke gradient."""
    from attnfun.language.gradient import Dual

    *x, table = given
    values = [one.value for one in x]
    partials: list[Any] = [None] * max(len(one.partials) for one in x)
    for k, one in enumerate(x):
        if any(p is not None for p in one.partials):
            slope = algebra.base.table(*values, table.derived(k))
            for j, p in enumerate(one.partials):
                if p is not None:
                    partials[j] = algebra.sum(partials[j], algebra.base.mul(slope, p))
    return Dual(algebra.base.table(*values, table), tuple(partials))


def cells(t: Array, low: float, high: float) -> Iterator[tuple[int, float, float]]:
    """The cells that [low, high] meets in more than a point, each with the part of the interval in it."""
    first, last = _touched(t, low, high)
    for i in range(first, last + 1):
        a = low if i == first else max(low, float(t[i]))
        b = high if i == last else min(high, float(t[i + 1]))
        if a < b:
            yield i, a, b
