"""Where the keys of a partition go, if not on a uniform grid: where the target varies.

| symbol | meaning |
| --- | --- |
| D_a(t) | steepness of the target along axis a at t |
| y = T x + c | coordinates in which cells are as wide as high |
| v_j | centres in y: the power diagram is {j : \\|y − v_j\\| least} |

*Graded*: a product head whose cells are narrow where the target changes along their axis. D_a(t) is the largest sampled
slope along axis a over all points with coordinate t; walls lie at equal steps of ∫ D_a, the centre of a cell at half a
step. The step is the largest at which the error that samples and corners of cells show is small enough. Keys are
tangent lines with these walls.

*Power*: one axis of rank d + 1, logits R(⟨v_j, y⟩ − |v_j|²/2), whose cells are the Voronoi cells of the v_j. They are
the centres of a tree: cubes in y are cut into 2^d until the target varies little on each (in L^p: until the sum of what
is left is small). In y = x (scaled to the box) that suits local features. With T the root of the mean of ∇f ∇fᵀ cells
are thin across an oblique front and long beside it. Both are tried, at several sizes of the first cubes.
A point is at least as near to its centre as to that of its own cube, but where cubes of two sizes meet it may go to the
larger one; so every cell is looked at again by its own points, and cut if need be.

Failure mode: features that no sample saw; the proof then fails, and more are taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attnfun.kinds.function.build.plan import Request
from attnfun.language.domain import Array
from attnfun.network import Axis, Head, Network, rounded

Index = NDArray[np.intp]
Mask = NDArray[np.bool_]
_BINS = 512
_SLOPES = 60_000  # points at which slopes are sampled
_TRIED = 20_000  # points at which cells are tried
_FLAT = 1e-3  # of the largest slope, below which a slope counts as that
_ROOTS = (2, 3, 5, 7)  # first cubes along the longest side
_STRETCH = 1 / 48  # least root of an eigenvalue of the map, of the largest
_FINE = {1: 513, 2: 65, 3: 25}  # samples a side of a first cube, at most
_COARSE = {1: 17, 2: 7, 3: 5}  # of any cube, at least
_ROUNDS = 6
_HALVINGS = 60  # of the range in which the largest step is looked for
_PROBES = 20_000
_TOGETHER = 400_000  # samples at once
_DEEPEST = 24
SITES = 20_000


# ---------------------------------------------------------------- graded along each axis


@dataclass(frozen=True)
class Graded:
    """For every axis the ends of its cells, from end to end of the box, and their centres."""

    edges: tuple[Array, ...]
    centres: tuple[Array, ...]

    @property
    def cells(self) -> list[int]:
        return [len(c) for c in self.centres]

    @property
    def finest(self) -> list[float]:
        """Cells per axis, were all as narrow as the narrowest."""
        return [float((ends[-1] - ends[0]) / np.diff(ends).min()) for ends in self.edges]


def graded_cells(request: Request, most: int) -> Graded | None:
    """Cells along every axis whose sampled error is at most eps; None where more than `most` would be needed."""
    function, box = request.function, request.function.box
    X = box.sample(_SLOPES, np.random.default_rng(request.seed))
    base = function.values(X)
    width = box.high_array - box.low_array
    bins = np.minimum(((X - box.low_array) / width * _BINS).astype(int), _BINS - 1)
    risen = []
    for k in range(box.dim):
        density = _slopes_along(request, X, base, bins[:, k], k)
        risen.append(np.concatenate([[0.0], np.cumsum(density)]) * (width[k] / _BINS))
    lines = [np.linspace(a, b, _BINS + 1) for a, b in zip(box.low, box.high, strict=True)]

    def cells(step: float) -> Graded:
        edges, centres = [], []
        for rise, line in zip(risen, lines, strict=True):
            count = max(1, math.ceil(rise[-1] / step - 1e-9))
            at = np.interp(np.arange(2 * count + 1) / (2 * count) * rise[-1], rise, line)
            edges.append(at[::2])
            centres.append(at[1::2])
        return Graded(tuple(edges), tuple(centres))

    few = slice(0, _TRIED)

    def within(step: float) -> bool:
        return _graded_error(request, X[few], base[few], cells(step)) <= request.eps

    high = max(float(rise[-1]) for rise in risen)
    if not math.isfinite(high):
        return None
    low = high / most
    while math.prod(math.ceil(rise[-1] / low - 1e-9) for rise in risen) > most:
        low *= 1.05
    if not within(low):
        return None
    for _ in range(_HALVINGS):
        if not high / low > 1.01:
            break
        middle = low * math.sqrt(high / low)
        low, high = (middle, high) if within(middle) else (low, middle)
    return cells(low)


def _graded_error(request: Request, X: Array, base: Array, cells: Graded) -> float:
    """The sampled error: at points, and in the sup norm at the corners of their cells."""
    function, norm, d = request.function, request.norm, X.shape[1]
    index = [np.clip(np.searchsorted(e, X[:, k], side="right") - 1, 0, len(e) - 2) for k, e in enumerate(cells.edges)]
    values = function.values(np.stack([c[i] for c, i in zip(cells.centres, index, strict=True)], axis=1))
    error = np.max(np.abs(values - base), axis=1)
    if not math.isinf(norm):
        largest = float(error.max())
        return largest * float(np.mean((error / largest) ** norm)) ** (1 / norm) if largest > 0 else 0.0
    worst = float(np.max(error[np.isfinite(error)], initial=0.0))
    for sides in product((0, 1), repeat=d) if d <= 6 else [(0,) * d, (1,) * d]:
        corner = np.stack([e[i + side] for e, i, side in zip(cells.edges, index, sides, strict=True)], axis=1)
        away = np.abs(values - function.values(corner))
        worst = max(worst, float(np.max(away[np.isfinite(away)], initial=0.0)))
    return worst


def _slopes_along(request: Request, X: Array, base: Array, bins: Index, k: int) -> Array:
    """(bins,) the largest slope along variable k, or in L^p its p-th mean."""
    box = request.function.box
    step = (box.high[k] - box.low[k]) / _BINS
    Y = X.copy()
    Y[:, k] = np.where(X[:, k] + step <= box.high[k], X[:, k] + step, X[:, k] - step)
    slope = np.max(np.abs(request.function.values(Y) - base), axis=1) / step
    slope = np.where(np.isfinite(slope), slope, 0.0)
    found = np.zeros(_BINS)
    if math.isinf(request.norm):
        np.maximum.at(found, bins, slope)
    else:
        count = np.maximum(np.bincount(bins, minlength=_BINS), 1)
        largest = max(float(slope.max()), 1e-300)
        found = largest * (np.bincount(bins, (slope / largest) ** request.norm, _BINS) / count) ** (1 / request.norm)
    return np.asarray(np.maximum(found, max(_FLAT * float(found.max()), 1e-300)))


def build_graded(request: Request, cells: Graded, sharpness: float) -> Network:
    """The product head of these cells: tangent lines that meet at the walls, at least 2S per cell width apart."""
    function, box = request.function, request.function.box
    axes = []
    for k, ends in enumerate(cells.edges):
        middle = float(rounded(np.array(box.low[k] + (box.high[k] - box.low[k]) / 2), request.dtype))
        t, h = ends[1:-1] - middle, np.diff(ends)
        gaps = 2 * sharpness / np.minimum(h[:-1], h[1:])
        slopes = np.concatenate([[0.0], np.cumsum(gaps)])
        slopes = rounded(slopes - slopes[-1] / 2, request.dtype)
        biases = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * t)])
        query = np.zeros((1, box.dim))
        query[0, k] = 1.0
        biases = rounded(biases - (biases.max() + biases.min()) / 2, request.dtype)
        axes.append(Axis(query, np.array([-middle]), slopes[:, None], biases))
    mesh = np.stack(np.meshgrid(*cells.centres, indexing="ij"), axis=-1)
    values = function.values(mesh.reshape(-1, box.dim)).reshape(*mesh.shape[:-1], -1)
    names = "cell " + ", ".join(f"{{{k}}} of {n}" for k, n in enumerate(box.names))
    writes = tuple(f"value of {o}" for o in function.outputs)
    return request.network_of(Head("partition", tuple(axes), rounded(values, request.dtype), writes, names))


# ---------------------------------------------------------------- the centres of a tree


@dataclass(frozen=True)
class Sites:
    """Centres (n, d) in y = T (x − middle of the box), and the values there (n, outputs)."""

    map: Array
    centres: Array
    values: Array

    @cached_property
    def apart(self) -> float:
        """The least distance of two centres."""
        from scipy.spatial import cKDTree

        if len(self.centres) == 1:
            return 1.0
        return float(cKDTree(self.centres).query(self.centres, k=2)[0][:, 1].min())

    @property
    def finest(self) -> list[float]:
        """Cells along every side, were all as narrow as the narrowest."""
        return [float(side) / self.apart + 1 for side in np.ptp(self.centres, axis=0)]


@dataclass(frozen=True)
class _Cubes:
    """Cubes in y, their half sides, how often they were cut, what is left on them, and the value that leaves it."""

    centre: Array
    half: Array
    depth: Index
    left: Array
    value: Array

    def of(self, which: Mask) -> _Cubes:
        return _Cubes(*(part[which] for part in vars(self).values()))

    def children(self) -> tuple[Array, Array, Index]:
        signs = np.array(list(product((-0.5, 0.5), repeat=self.centre.shape[1])))
        centre = self.centre[:, None] + signs * self.half[:, None, None]
        count = len(signs)
        return (
            centre.reshape(-1, self.centre.shape[1]),
            np.repeat(self.half / 2, count),
            np.repeat(self.depth + 1, count),
        )


def power_sites(request: Request, most: int) -> Sites | None:
    """The fewest centres found, None where all that was tried needs more than `most`."""
    best: Sites | None = None
    for T in _maps(request):
        for roots in _ROOTS:
            found = _tree(request, T, roots, most if best is None else len(best.centres) - 1)
            best = found if found is not None else best
    return best


def _maps(request: Request) -> list[Array]:
    """Maps of the box to y: scaled sides, and stretched across the directions in which the target varies."""
    box = request.function.box
    width = box.high_array - box.low_array
    X = box.sample(4000, np.random.default_rng(request.seed + 1))
    base = request.function.values(X)
    slopes = []
    for k in range(box.dim):
        Y = X.copy()
        step = width[k] * 1e-3
        Y[:, k] = np.where(X[:, k] + step <= box.high[k], X[:, k] + step, X[:, k] - step)
        slopes.append((request.function.values(Y) - base) / (Y - X)[:, k : k + 1] * width[k])
    g = np.stack(slopes, axis=-1).reshape(-1, box.dim)
    g = g[np.isfinite(g).all(axis=1)]
    g = g / max(float(np.abs(g).max(initial=0.0)), 1e-300)  # squares of large slopes are no numbers
    out = [np.diag(1 / width)]
    values, vectors = np.linalg.eigh(g.T @ g / max(len(g), 1))
    if box.dim > 1 and values[-1] > 0:
        stretch = np.maximum(np.sqrt(np.maximum(values, 0.0) / values[-1]), _STRETCH)
        out.append((vectors * stretch) @ vectors.T @ np.diag(1 / width))
    return out


@dataclass(frozen=True)
class _Place:
    """The box seen from y, and the samples of cubes in it."""

    request: Request
    map: Array
    back: Array
    middle: Array

    def side(self, depth: int) -> int:
        """Samples along a side of a cube that was cut so often."""
        d = len(self.middle)
        return max(_COARSE.get(d, 4), (_FINE.get(d, 9) << self.request.attempt) >> depth)

    def x(self, y: Array) -> Array:
        return np.asarray(y @ self.back.T + self.middle)

    def judged(self, centre: Array, half: Array, depth: Index) -> tuple[_Cubes, Array, Array]:
        """Cubes of one depth, those that meet the box, with what is left on them, and their samples (y, f)."""
        function, norm, d = self.request.function, self.request.norm, len(self.middle)
        side = self.side(int(depth[0]))
        line = np.linspace(-1, 1, side) if math.isinf(norm) else (2 * np.arange(side) + 1) / side - 1
        offsets = np.array(list(product(line, repeat=d)))
        step = max(1, _TOGETHER // len(offsets))
        parts, ys, fs = [], [], []
        for i in range(0, len(centre), step):
            rows = slice(i, i + step)
            y = centre[rows, None] + offsets * half[rows, None, None]
            x = np.clip(self.x(y), function.box.low_array, function.box.high_array)  # onto faces that cut the cube
            y = (x - self.middle) @ self.map.T
            inside = np.all(np.abs(y - centre[rows, None]) <= half[rows, None, None] * (1 + 1e-9), axis=2)
            f = function.values(x[inside])
            used, left, value = _left(np.nonzero(inside)[0], f, len(y), norm, self.request.eps)
            if not math.isinf(norm):
                share = abs(np.linalg.det(self.back)) / np.prod(function.box.high_array - function.box.low_array)
                left = left * (2 * half[rows]) ** d * share * used / len(offsets)
            parts.append(_Cubes(centre[rows], half[rows], depth[rows], left, value).of(used > 0))
            ys.append(y[inside])
            fs.append(f)
        return _together(parts), np.concatenate(ys), np.concatenate(fs)

    def cut(self, cubes: _Cubes, bad: Mask, clouds: list[tuple[Array, Array]]) -> _Cubes:
        """All cubes, the bad ones cut; their samples are added to the clouds."""
        ahead, parts = cubes.of(bad), [cubes.of(~bad)]
        for depth in np.unique(ahead.depth):
            made, y, f = self.judged(*ahead.of(ahead.depth == depth).children())
            parts.append(made)
            clouds.append((y, f))
        return _together(parts)


def _together(parts: list[_Cubes]) -> _Cubes:
    return _Cubes(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))


def _tree(request: Request, T: Array, roots: int, most: int) -> Sites | None:
    box = request.function.box
    width = box.high_array - box.low_array
    place = _Place(request, T, np.asarray(np.linalg.inv(T), np.float64), box.low_array + width / 2)
    extent = np.abs(T) @ width
    half = float(extent.max()) / roots / 2
    counts = [max(1, math.ceil(e / (2 * half) - 1e-9)) for e in extent]
    if math.prod(counts) > 4 * most:
        return None
    lines = [(np.arange(c) - (c - 1) / 2) * 2 * half for c in counts]
    centre = np.stack([m.ravel() for m in np.meshgrid(*lines, indexing="ij")], axis=1)
    cubes, y, f = place.judged(centre, np.full(len(centre), half), np.zeros(len(centre), dtype=np.intp))
    clouds = [(y, f)]
    bad = _wanting(cubes.left, request.norm)
    while bad.any():
        if len(cubes.left) > most or cubes.depth.max() > _DEEPEST:
            return None
        cubes = place.cut(cubes, bad, clouds)
        bad = _wanting(cubes.left, request.norm)
    if not math.isinf(request.norm):
        return Sites(T, cubes.centre, cubes.value) if len(cubes.left) <= most else None
    X = box.probe(_PROBES, np.random.default_rng([request.seed, request.attempt]))
    clouds.append(((X - place.middle) @ T.T, request.function.values(X)))
    return _mended(place, cubes, clouds, most)


def _mended(place: _Place, cubes: _Cubes, clouds: list[tuple[Array, Array]], most: int) -> Sites | None:
    """The centres, cut further where the target varies too much over what is nearest to one of them."""
    from scipy.spatial import cKDTree

    request = place.request
    for attempt in range(_ROUNDS + 1):
        if len(cubes.left) > most:
            return None
        y, f = (np.concatenate(column) for column in zip(*clouds, strict=True))
        owner = cKDTree(cubes.centre).query(y)[1]
        order = np.argsort(owner, kind="stable")
        used, left, value = _left(owner[order], f[order], len(cubes.left), math.inf, request.eps)
        bad = left > 1
        if not bad.any() or attempt == _ROUNDS:
            break
        cubes = place.cut(cubes, bad, clouds)
    value[used == 0] = cubes.value[used == 0]
    return Sites(place.map, cubes.centre, value)


def build_power(request: Request, sites: Sites, sharpness: float) -> Network:
    """One axis of rank d + 1: keys R v_j, biases −R |v_j|²/2, R from the least distance of two centres."""
    box = request.function.box
    query = rounded(sites.map, request.dtype)
    middle = box.low_array + (box.high_array - box.low_array) / 2
    R = 2 * sharpness / sites.apart**2
    slopes = rounded(R * sites.centres, request.dtype)
    sizes = -(slopes * slopes).sum(axis=1) / (2 * R)
    biases = rounded(sizes - (sizes.max() + sizes.min()) / 2, request.dtype)
    axis = Axis(query, rounded(-query @ middle, request.dtype), slopes, biases)
    writes = tuple(f"value of {o}" for o in request.function.outputs)
    return request.network_of(Head("partition", (axis,), rounded(sites.values, request.dtype), writes, "cell {0}"))


def _left(owner: Index, f: Array, count: int, norm: float, eps: float) -> tuple[Index, Array, Array]:
    """How many samples each has; half the range of f and its middle; in L^p the mean of |f − value|^p and that value,
    the mean or, at a jump, what most samples are near. What is left is in units of eps, whose powers stay.
    """
    seen = np.bincount(owner, minlength=count)
    left, value = np.zeros(count), np.zeros((count, f.shape[1]))
    some = seen > 0
    if not some.any():
        return seen, left, value
    many = seen[some]
    start = np.cumsum(many) - many
    most, least = np.maximum.reduceat(f, start), np.minimum.reduceat(f, start)
    if math.isinf(norm):
        value[some] = least + (most - least) / 2
        left[some] = ((most - least) / 2).max(axis=1) / eps
        return seen, left, value
    mean = np.add.reduceat(f, start) / many[:, None]
    near = np.where(most - mean < mean - least, most, least)
    off = [
        np.add.reduceat((np.abs(f - np.repeat(v, many, axis=0)) / eps) ** norm, start).max(axis=1) / many
        for v in (mean, near)
    ]
    value[some] = np.where((off[0] <= off[1])[:, None], mean, near)
    left[some] = np.minimum(*off)
    return seen, left, value


def _wanting(left: Array, norm: float) -> Mask:
    """The cubes to be cut: those with too much left; in L^p those with most, while the sum is too large."""
    if math.isinf(norm):
        return np.asarray(left > 1)
    order = np.argsort(-left)
    running = np.cumsum(left[order])
    bad = np.zeros(len(left), dtype=bool)
    if running[-1] > 1:
        bad[order[: int(np.searchsorted(running, 0.3 * running[-1])) + 1]] = True
    return bad
