"""Numbers on a grid that a user brings: arrays, rows of a file, and SciPy's interpolants, taken exactly.

    table(x, y)    table((x, y), Z, kind="cubic")    table(points, values)    table(frame)

`kind` says what joins the numbers: "linear", "cubic" (the not-a-knot spline, one axis after the other) or, of one
variable, "pchip" or "akima". Of cubics the slopes are SciPy's doubles; the target is the one exact function with these
values and slopes, which what SciPy computes differs from by rounding. SciPy's own objects are recognised by their
public attributes and compared with their own values at a few points; SciPy is loaded where a cubic is asked for and
nowhere else.
Failure mode: InvalidRequest in one line for tables that are not sorted, with points twice, missing, NaN
or alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.domain import Array, Box, intervals
from attnfun.language.graph import Builder, Graph, is_name
from attnfun.language.inputs import numbers
from attnfun.language.numbers import one_of, positive
from attnfun.language.scattered import Scattered
from attnfun.language.table import MOST, MOST_AXES, Table

KINDS: Final = ("linear", "cubic", "pchip", "akima")


@dataclass(frozen=True)
class Tabulated:
    """A table an output, all of the same knots, and the names of the variables; a target, and a function of arrays."""

    tables: tuple[Table, ...]
    names: tuple[str, ...]

    @property
    def whole(self) -> Box:
        """The box of all knots."""
        ends = self.tables[0].knots
        return Box(self.names, tuple(float(t[0]) for t in ends), tuple(float(t[-1]) for t in ends))

    def box(self, domain: Any) -> Box:
        """The domain: that of the table unless another is given, which must lie within it."""
        whole = self.whole
        if domain is None:
            return whole
        pairs = intervals(domain)
        if pairs is not None:
            require(len(pairs) == whole.dim, f"domain: {len(pairs)} intervals for the table's {whole.dim} variables")
            domain = dict(zip(self.names, pairs, strict=True))
        box = Box.parse(domain)
        require(box.dim == whole.dim, f"domain: {box.dim} variables for the table's {whole.dim}")
        if set(box.names) == set(self.names):
            box = box.part(self.names)
        inside = all(a >= b for a, b in zip(box.low, whole.low, strict=True))
        inside = inside and all(a <= b for a, b in zip(box.high, whole.high, strict=True))
        require(inside, f"domain {box.text}: the table holds {whole.text} only")
        return box

    def graph(self, names: Sequence[str]) -> Graph:
        require(len(names) == len(self.names), f"domain: {len(names)} variables for the table's {len(self.names)}")
        builder = Builder()
        variables = [builder.var(name) for name in names]
        return builder.graph([builder.apply("table", *variables, value=table) for table in self.tables])

    def __call__(self, *x: Any) -> Any:
        """The values at arrays, one for each variable; in a function that is traced an operation of its own."""
        from attnfun.language.trace import Tracer

        require(len(x) == len(self.names), f"the table takes {len(self.names)} arguments, not {len(x)}")
        if any(isinstance(one, Tracer) for one in x):
            found = [
                next(one for one in x if isinstance(one, Tracer))._apply("table", *x, value=t) for t in self.tables
            ]
        else:
            found = [table.at(*(numbers(one, "points") for one in x)) for table in self.tables]
        return found[0] if len(found) == 1 else found


def table(
    X: Any, y: Any = None, *, kind: str = "linear", names: Sequence[str] | None = None, lipschitz: float | None = None
) -> Tabulated | Scattered:
    """Measured or computed numbers as a target.

    `X`: increasing coordinates of one variable; a tuple or list of such, one a variable, with `y` an array over their
    grid; or rows of points (n, d) that make up a grid, with `y` their n values; or a data frame or mapping of columns,
    the last of which is the value. `y` of one variable may be (n, outputs). `kind`: "linear", "cubic", "pchip" or
    "akima". With `lipschitz` the points may lie anywhere: the target is then every function of that constant that takes
    these values, and the certificate is conditional.
    """
    one_of("kind", kind, KINDS)
    columns = getattr(X, "columns", None)
    if y is None and (columns is not None or isinstance(X, Mapping)):
        labels = [str(name) for name in (columns if columns is not None else X)]
        require(len(labels) > 1, "table: a column for every coordinate and one for the value are needed")
        rows = np.stack(
            [_finite(X[name], f"column {name}") for name in (columns if columns is not None else X)], axis=1
        )
        own = labels[:-1] if names is None else names
        if lipschitz is not None:
            return table(rows[:, :-1], rows[:, -1], names=own, lipschitz=lipschitz)
        return _from_rows(rows[:, :-1], rows[:, -1], kind, own)
    require(y is not None, "table: values are missing: table(x, y)")
    if lipschitz is None and _is_axes(X, y):
        axes = [_finite(axis, f"table: coordinates {k + 1}") for k, axis in enumerate(X)]
        return _made(axes, _finite(y, "table: values"), kind, names)
    points, values = _finite(X, "table: coordinates"), _finite(y, "table: values")
    if lipschitz is not None:
        rows = points[:, None] if points.ndim == 1 else points
        require(
            rows.ndim == 2 and rows.size > 0, f"table: coordinates of shape {points.shape}: (n, variables) is needed"
        )
        own = names or (("x",) if rows.shape[1] == 1 else tuple(f"x{k + 1}" for k in range(rows.shape[1])))
        return Scattered(rows, values, positive("lipschitz", lipschitz), _named(rows.shape[1], own))
    if points.ndim == 2 and points.shape[1] == 1:
        points = points[:, 0]
    if points.ndim == 1:
        return _made([points], values, kind, names)
    require(points.ndim == 2, f"table: coordinates of shape {points.shape}: (n,) or (n, variables) is needed")
    return _from_rows(points, values, kind, names)


def _is_axes(X: Any, y: Any) -> bool:
    """Are these the coordinates of a grid, axis by axis?"""
    if not isinstance(X, (tuple, list)) or not X or not all(np.ndim(axis) == 1 for axis in X):
        return False
    return isinstance(X, tuple) or np.shape(y)[: len(X)] == tuple(len(axis) for axis in X)


def _finite(given: Any, what: str) -> Array:
    found = numbers(given, what)
    if not np.isfinite(found).all():
        at = tuple(int(k) + 1 for k in np.argwhere(~np.isfinite(found))[0]) if found.ndim else ()
        raise InvalidRequest(f"{what}: entry {at[0] if len(at) == 1 else at} is {float(found[~np.isfinite(found)][0])}")
    return found


def _from_rows(points: Array, values: Array, kind: str, names: Sequence[str] | None) -> Tabulated:
    """A grid from its rows, in any order where there are several variables."""
    n, d = points.shape
    require(values.shape == (n,), f"table: {n} points and values of shape {values.shape}; one value a point is needed")
    require(d <= MOST_AXES, f"table: {d} variables; at most {MOST_AXES} are supported")
    if d == 1:
        return _made([points[:, 0]], values, kind, names)
    axes, index = [], []
    for column in points.T:
        axis, place = np.unique(column, return_inverse=True)
        axes.append(axis)
        index.append(place.ravel())
    shape = tuple(len(axis) for axis in axes)
    flat = np.ravel_multi_index(tuple(index), shape) if np.prod(shape, dtype=float) <= MOST else None
    order = None if flat is None else np.argsort(flat, kind="stable")
    if flat is not None and order is not None:
        twice = np.flatnonzero(np.diff(flat[order]) == 0)
        if len(twice):
            a, b = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
            raise InvalidRequest(f"table: rows {a + 1} and {b + 1} are the same point {points[a].tolist()}")
    if flat is None or len(flat) != np.prod(shape):
        missing = f" (row {points[0].tolist()} and {n - 1} more)"
        if flat is not None:
            lost = int(np.setdiff1d(np.arange(int(np.prod(shape))), flat)[0])
            at = [float(axis[i]) for axis, i in zip(axes, np.unravel_index(lost, shape), strict=True)]
            missing = f": {at} is missing"
        grid = " × ".join(map(str, shape))
        raise InvalidRequest(f"table: the {n} points are no full grid of {grid}{missing}")
    Z = np.empty(shape)
    Z.ravel()[flat] = values
    return _made(axes, Z, kind, names)


def _made(axes: Sequence[Array], Z: Array, kind: str, names: Sequence[str] | None) -> Tabulated:
    """The table of a grid; of one variable Z may have a column for every output."""
    d = len(axes)
    require(d <= MOST_AXES, f"table: {d} variables; at most {MOST_AXES} are supported")
    shape = tuple(len(axis) for axis in axes)
    for k, axis in enumerate(axes):
        which = "x" if d == 1 else f"axis {k + 1}"
        require(len(axis) > 1, f"table: {which} has {len(axis)} point; two at least are needed")
        bad = np.flatnonzero(~(np.diff(axis) > 0))
        if len(bad):
            i = int(bad[0])
            a, b = float(axis[i]), float(axis[i + 1])
            said = f"{b!r} stands twice" if a == b else f"{b!r} follows {a!r}"
            raise InvalidRequest(f"table: {which} must increase, but {said} (rows {i + 1} and {i + 2})")
    many = d == 1 and Z.ndim == 2 and len(Z) == shape[0]
    require(many or Z.shape == shape, f"table: values of shape {Z.shape} for a grid of shape {shape}")
    columns = [Z[:, k] for k in range(Z.shape[1])] if many else [Z]
    require(columns, "table: no values")
    require(
        d == 1 or kind in ("linear", "cubic"), f'table: kind="{kind}" is for one variable; write "linear" or "cubic"'
    )
    require(
        sum(c.size for c in columns) * (1 if kind == "linear" else 2**d) <= MOST, f"table: more than {MOST:,} numbers"
    )
    return Tabulated(tuple(Table(tuple(axes), _jets(axes, c, kind)) for c in columns), _named(d, names))


def _named(d: int, names: Sequence[str] | None) -> tuple[str, ...]:
    found = (("x",) if d == 1 else ("x", "y", "z")[:d]) if names is None else tuple(names)
    good = len(found) == d and len(set(found)) == d and all(map(is_name, found))
    require(good, f"table: {list(found)!r:.80} are no names of {d} variables: letters, digits and _, no keyword")
    return found


def _jets(axes: Sequence[Array], Z: Array, kind: str) -> Array:
    """(n_1, r, n_2, r, …): values, and of cubics SciPy's slopes of one axis after the other."""
    out = Z
    for k, axis in enumerate(axes):
        rows = [out] if kind == "linear" else [out, _slopes(axis, out, 2 * k, kind)]
        out = np.stack(rows, axis=2 * k + 1)
    return out


def _slopes(x: Array, rows: Array, axis: int, kind: str) -> Array:
    from scipy import interpolate

    if kind == "cubic":
        made = interpolate.CubicSpline(x, rows, axis=axis)
    elif kind == "pchip" or len(x) == 2:
        made = interpolate.PchipInterpolator(x, rows, axis=axis)
    else:
        made = interpolate.Akima1DInterpolator(x, rows, axis=axis)
    return np.asarray(made(x, 1), dtype=np.float64)


# ---------------------------------------------------------------- SciPy's objects


def read_table(target: Any) -> Tabulated | Scattered | None:
    """The table that `target` is: one made by `table` or an interpolant of SciPy; None for all else."""
    if isinstance(target, Tabulated | Scattered):
        return target
    if isinstance(target, (str, Sequence, np.ndarray)) or not callable(target):
        return None
    for marks, read in _READERS:
        if all(hasattr(target, mark) for mark in marks):
            found = read(target)
            _compare(found, target)
            return found
    return None


def _from_pieces(target: Any) -> Tabulated:
    """PPoly and what is made of it: CubicSpline, PchipInterpolator, Akima1DInterpolator, CubicHermiteSpline."""
    x, c = _finite(target.x, "table: breakpoints"), _finite(target.c, "table: coefficients")
    fits = c.ndim in (2, 3) and c.shape[1] == len(x) - 1 and 2 <= len(c) <= 4
    require(fits, f"table: piecewise polynomials of degree 1 to 3 and one variable are read, not of shape {c.shape}")
    return _smooth(x, target, 1 if len(c) == 2 else 2)


def _from_spline(target: Any) -> Tabulated:
    """BSpline."""
    t, k = _finite(target.t, "table: knots"), int(target.k)
    require(k in (1, 2, 3), f"table: splines of degree 1 to 3 are read, not of degree {k}")
    return _smooth(np.unique(t[k : len(t) - k]), target, 1 if k == 1 else 2)


def _smooth(x: Array, target: Any, jets: int) -> Tabulated:
    """From values, and slopes, at the knots."""
    rows = [_finite(target(x, nu), "table: values at its breakpoints") for nu in range(jets)]
    columns = [row.reshape(len(x), -1) for row in rows]
    require(columns[0].shape[1] > 0, "table: no values")
    stacked = np.stack(columns, axis=1)
    tables = [_made([x], row, "linear", None).tables[0] for row in columns[0].T]
    made = (Table(one.knots, stacked[:, :, k]) for k, one in enumerate(tables))
    return Tabulated(tuple(made), ("x",))


def _from_grid(target: Any) -> Tabulated:
    """RegularGridInterpolator. Its cubic splines are solved for by iteration, so their own values are taken."""
    axes, method = [_finite(axis, "table: coordinates") for axis in target.grid], str(target.method)
    require(method in ("linear", "slinear", "cubic"), f'table: method="{method}"; "linear" and "cubic" are read')
    Z = _finite(target.values, "table: values")
    flat = _made(axes, Z, "linear", None)
    if method != "cubic":
        return flat
    d, shape = len(axes), Z.shape
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    jets = np.empty([n for size in shape for n in (size, 2)])
    for orders in product((0, 1), repeat=d):
        index: tuple[Any, ...] = sum(((slice(None), order) for order in orders), ())
        jets[index] = _finite(target(grid, nu=orders), "table: values").reshape(shape)
    return Tabulated((Table(flat.tables[0].knots, jets),), flat.names)


_READERS: tuple[tuple[tuple[str, ...], Callable[[Any], Tabulated]], ...] = (
    (("grid", "values", "method"), _from_grid),
    (("t", "c", "k"), _from_spline),
    (("x", "c", "extrapolate"), _from_pieces),
)


def _compare(found: Tabulated, target: Any) -> None:
    """Refuse where the interpolant's own values are others: jumps, kinks in cubics, another basis."""
    box = found.whole
    X = box.sample(200, np.random.default_rng(0))
    own = np.stack([one.at(*X.T) for one in found.tables], axis=1)
    seen = np.asarray(target(X[:, 0] if box.dim == 1 else X), dtype=np.float64).reshape(len(X), -1)
    size = max(float(np.abs(one.jets).max()) for one in found.tables)
    if seen.shape != own.shape or not np.allclose(seen, own, rtol=1e-8, atol=1e-9 * size):
        raise InvalidRequest(
            f"the interpolant {type(target).__name__} is no continuous function of lines, or of cubics without kinks,"
            " between its points"
        )
