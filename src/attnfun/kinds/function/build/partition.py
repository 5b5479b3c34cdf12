"""partition: the max-affine partition of a box into cells, one head, one value per cell.

| symbol | meaning |
| --- | --- |
| v_j | centre of cell j of a product grid, h_k its width, P_k cells on axis k |
| R = 2β | inverse temperature: logits R(⟨v_j, x⟩ − |v_j|²/2), so weights are Gaussian in x − v_j |
| S = β h² | sharpness: the logit gap between neighbours at a cell's centre |

Statement. With logits β_k(2 v_jk x_k − v_jk²) the cells {x : key j is largest} are the boxes around the v_j; as β grows
the head tends to the step function f(v_cell(x)), and for continuous f its error to the oscillation of f over half a
cell.
Source: Liu, Hu, Song, Liu, "Attention Mechanism, Max-Affine Partition, and Universal Approximation" (arXiv 2504.19901):
one head, self- and cross-attention, sup norm for continuous and L^p for integrable targets. Weights here are derived
anew, per axis, on the centred box.
Variants: "uniform" cells; "graded" ones, product cells that are narrow where the target changes along their axis; and
"power", one axis of rank d + 1 whose cells are those of a power diagram, with centres where the target varies and walls
in any direction (`sites`). Of each the count is known before anything is built. The fewest keys win; power diagrams,
whose keys are looked up one by one, from two thirds as many on.
Size: Π P_k keys, or the centres. With Lipschitz constant L the published count is P = ⌈B L √d/ε⌉ an axis on [−B, B]^d;
here P_k follows the sampled oscillation, axis by axis. A black box of uniform cells needs the published count: nothing
is known between the centres. One whose cells follow its samples is asked again at many points by its proof, so that its
count follows the function, and L only sets how many points these are.
Bound (method *cells*): max_j sup over the inflated cell of |f − v_j| + leak, inflation λ/(2S) cells and what rounded
logits add: they are of size 5/8 S P² and move walls by about u P² cells, whatever S is, so the sharp R has no optimum.
Power diagrams, black boxes that are asked at many points, soft heads and L^p norms are bounded by *boxes*.
At most three variables, few cells: a softer R (S about 4) averages neighbours and has a smaller true error; it is taken
where it has fewer keys. Both temperatures are in the story.
L^p: cells need only be good on average; a jump costs h^{1/p}.
Failure mode: P^d, and 1/h^{d−1} cells along a front. Refused before building, with the ε that would fit.
Example: sin(x) + cos(y) on [−3,3]² at 0.05.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.sites import SITES, build_graded, build_power, graded_cells, power_sites
from attnfun.language import BallAlgebra, GradientAlgebra, precision, run
from attnfun.language.brief import shortened
from attnfun.language.domain import Array, halved
from attnfun.language.enclosures import abs_uppers, balls
from attnfun.language.function import Function
from attnfun.language.numbers import one_of
from attnfun.network import Axis, Head, Network, evaluate, rounded

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
_SOFT = (2.0, 3.0, 4.0, 6.0)
_SOFT_CELLS = {1: 400, 2: 4_000, 3: 2_000}
_SOFT_POINTS, _SEEN_SOFT = 20_000, 0.93  # of several variables: samples, and the part of eps that these may show
_LARGE = 400  # operations of a target above which a quick estimate may refuse before the careful one
_FEW, _HOPELESS = 4, 1_000  # variables above which it may, too, where that is so many times more than allowed
_MOST_VARIABLES = 64
_MOST_OUTPUTS = 64
_LEAST_BOXES, _STEEP_WORK = 96, 300_000  # of the search for steep points: boxes, and operations on all of them
_APART = 8  # least width of a cell, in distances of neighbouring numbers
_STEPS = 4_000  # of the interval in a quick estimate
_NARROWEST = 1e-7  # cell, as a part of its axis, that the search for cell counts looks at
_BLURRED = 0.5  # of a cell, above which more cells hardly help
_OPERATIONS = 40_000_000  # of the proof, on all cells together, whatever `max_keys` allows: past it takes minutes
_PLACES, _MARGIN = 4, 1.1  # in L^p: places of a point in its cell that are tried, and room for the proof
_SEEN = 0.96  # of eps that samples may show of cells that follow them
_ASKED = 400_000  # points at which a black box is asked by its proof, about
_GRADED = 300_000  # cells along axes of their own, at most
_SPREAD, _TREES = 6, 3  # variables up to which cells are graded, and placed by need: samples are a power of them
VARIANTS = ("auto", "uniform", "graded", "power")
_SHARPNESS = 4096.0  # walls of 2λ/S cells, λ about 14: thin, and what rounding moves them by does not depend on S


@dataclass(frozen=True)
class Grid:
    """Cells per axis and sharpness S of every axis."""

    cells: tuple[int, ...]
    sharpness: tuple[float, ...]

    @property
    def keys(self) -> int:
        return math.prod(self.cells)


class Partition(Construction):
    name = "partition"
    summary = "one head as a lookup table over max-affine cells: any continuous target, sup and L^p norms"

    def plan(self, request: Request) -> Plan:
        variant = request.options.get("variant", "auto")
        feasible(variant in VARIANTS, f"partition: variant={variant!r} is not one of {', '.join(VARIANTS)}")
        uniform = variant == "uniform" or request.options.get("temperature", "auto") != "auto"
        plans, refusal = [], None
        if variant in ("auto", "uniform"):
            try:
                plans.append(self._uniform(request))
            except Infeasible as why:
                refusal = why
        elsewhere = request.beside or request.refused  # auto: other constructions are for expressions
        if not uniform and not (elsewhere and request.function.graph is not None and math.isinf(request.norm)):
            plans += _adapted(request, variant, plans)
        if not plans:
            raise refusal or Infeasible(f"partition: no {variant} cells within {request.max_keys:,} keys were found")
        plan = min(plans, key=lambda one: one.keys)
        others = [f"{one.story['variant']} {one.keys:,}" for one in plans if one is not plan]
        return replace(plan, story={**plan.story, **({"keys of the others": ", ".join(others)} if others else {})})

    def build(self, request: Request, plan: Plan) -> Network:
        build: Callable[..., Network]
        build, cells = plan.data
        return build(request, cells)

    def _uniform(self, request: Request) -> Plan:
        temperature = request.options.get("temperature", "auto")
        one_of("temperature", temperature, ("auto", "sharp", "soft"))
        sharp = self._sharp(request)
        story: dict[str, object] = {"variant": "uniform"}
        story |= {"cells": list(sharp.cells), "R": _inverse_temperature(request, sharp)}
        grid = sharp
        soft = self._soft(request, sharp)
        if soft is not None:
            story["R of the smallest true error"] = _inverse_temperature(request, soft)
            if temperature == "soft" or (temperature == "auto" and soft.keys < sharp.keys):
                grid = soft
                story["R of the smallest proved bound by cells"] = story["R"]
                story |= {"cells": list(soft.cells), "R": _inverse_temperature(request, soft)}
        elif len(sharp.cells) > 1 and sharp.keys <= 200_000 and request.function.graph is not None:
            softer, error = _softest(request, sharp)
            story["R of the smallest true error (sampled, unproved)"] = _inverse_temperature(request, softer)
            story["its sampled error"] = error
        why = "partition: a soft temperature is for at most three variables and few cells"
        feasible(temperature != "soft" or grid is not sharp, why, {"temperature": "sharp"})
        return _plan(request, grid.keys, (build_grid, grid), story)

    def _sharp(self, request: Request) -> Grid:
        graph = request.function.graph
        many = len(request.function.outputs)
        feasible(many <= _MOST_OUTPUTS, f"partition: {many} outputs; compile at most {_MOST_OUTPUTS} at a time")
        dim = request.function.box.dim
        feasible(dim <= _MOST_VARIABLES, f"partition: {dim} variables; cells of at most {_MOST_VARIABLES} are counted")
        cells: tuple[int, ...] = ()
        room, some = request.max_keys, "at least"
        quick = graph is not None and (len(graph.nodes) > _LARGE or bool(request.beside))
        if graph is not None and (quick or request.function.box.dim > _FEW):
            cells, room = _least_counts(request), room if quick else _HOPELESS * room
        if not cells or math.prod(cells) <= room:
            cells, some = _cell_counts(request, 0.0), "about"
            if 0.01 < _blur(request, cells) <= _BLURRED:
                cells = _cell_counts(request, _blur(request, cells))
        keys, box = math.prod(cells), request.function.box
        for a, b, count in zip(box.low, box.high, cells, strict=True):
            h, apart = (b - a) / count, _APART * float(np.spacing(max(abs(a), abs(b))))
            if h < apart <= (b - a) / 2:
                why = f"partition: cells of width {h:.2g} would be needed where float64 numbers are "
                nearest = {"eps": float(f"{1.2 * request.eps * apart / h:.2g}")}
                raise Infeasible(why + f"{apart / _APART:.2g} apart", nearest)
        if keys > request.max_keys:
            factor = math.exp((math.log(keys) - math.log(max(request.max_keys, 1))) / len(cells)) * 1.1
            near: dict[str, Any] | None = {"eps": float(f"{request.eps * factor:.2g}"), "method": "partition"}
            if max(cells) >= 0.99 / _NARROWEST:  # the search for the counts ended there
                some, near = "more than", None
            grid = shortened(" x ".join(f"{c:,}" for c in cells), 80)
            shown = f"{keys:.3g}" if keys < 1e300 else f"10^{len(str(keys)) - 1}"
            why = f"partition: {some} {shown} cells ({grid}) would be needed, "
            raise Infeasible(why + f"more than {request.max_keys:,}", near)
        work = _work(request, cells)
        if work > _OPERATIONS:
            factor = (work / _OPERATIONS) ** (1 / len(cells)) * 1.1
            why = f"partition: a proof on {keys:,} cells takes about {work:,} operations, more than {_OPERATIONS:,}"
            raise Infeasible(why, {"eps": float(f"{request.eps * factor:.2g}"), "method": "partition"})
        if _blur(request, cells) > _BLURRED:
            why = f"partition: {max(cells):,} cells per axis would be needed, and at such a number logits that round "
            why += f"in {request.dtype} may move walls by {_blur(request, cells) / 2:.2g} of a cell"
            raise Infeasible(why, {"dtype": "float64"} if request.dtype != "float64" else None)
        return Grid(cells, (_SHARPNESS,) * len(cells))

    def _soft(self, request: Request, sharp: Grid) -> Grid | None:
        """Fewer cells at a softer temperature, by the sampled error: for at most three variables and few cells."""
        box, d = request.function.box, len(sharp.cells)
        if d > 3 or not math.isinf(request.norm) or request.function.graph is None:
            return None
        if request.dtype == "float32" and request.attempt:  # its rounding was too much for the proof
            return None
        sides = zip(box.low, box.high, strict=True)
        far = max(max(abs(low), abs(high)) / (high - low) for low, high in sides)
        rough = max(_SOFT) * _ROUNDOFF[request.dtype] * (4 + 8 * far)  # times cells², about what logits round by
        X = (
            np.linspace(box.low[0], box.high[0], 6001)[:, None]
            if d == 1
            else box.probe(_SOFT_POINTS, np.random.default_rng(0))
        )
        truth = request.function.values(X)
        for share in (0.3, 0.4, 0.5, 0.6, 0.75, 0.9):
            counts = tuple(min(c, max(2, math.ceil(c * share))) for c in sharp.cells)
            if math.prod(counts) > _SOFT_CELLS[d] or rough * max(counts) ** 2 > 0.1:
                return None
            best = min((_error(request, Grid(counts, (s,) * d), X, truth), s) for s in _SOFT)
            if best[0] <= (0.97 if d == 1 else _SEEN_SOFT) * request.eps:
                return Grid(counts, (best[1],) * d)
        return None


def _plan(request: Request, keys: int, data: Any, story: dict[str, object]) -> Plan:
    f = request.function.values(request.function.box.probe(256, np.random.default_rng(0)))
    size = float(np.ptp(f[np.isfinite(f)])) if np.isfinite(f).any() else 1.0
    story["published worst case"] = _published(request)
    return Plan(Partition.name, keys, 1, 1, request.function.box.dim + 1, size, data, story)


def _adapted(request: Request, variant: str, plans: list[Plan]) -> list[Plan]:
    """Plans of cells that follow the target, where they have fewer keys than those of `plans` and than is allowed."""
    box = request.function.box
    if box.dim > _SPREAD or not min(box.high_array - box.low_array) > 1e-100:  # squares of widths are to be numbers
        return []
    if not np.isfinite(request.function.values(box.probe(2000, np.random.default_rng(request.seed)))).all():
        return []
    most = min([request.max_keys, *(plan.keys - 1 for plan in plans)])
    found: list[Plan] = []
    narrow = replace(request, eps=request.eps * _room(request))
    if variant in ("auto", "graded"):
        cells = graded_cells(narrow, max(1, min(most, _GRADED)))
        fits = cells is not None and _work(request, tuple(cells.cells)) <= _OPERATIONS
        if cells is not None and fits and _blur(request, cells.finest) <= _BLURRED:
            story: dict[str, object] = {"variant": "graded", "cells": cells.cells}
            found.append(
                _plan(request, math.prod(cells.cells), (partial(build_graded, sharpness=_SHARPNESS), cells), story)
            )
    if variant == "auto":  # cells anywhere are looked up one by one, and take longer to prove
        most = min([most, *(2 * plan.keys // 3 for plan in (*plans, *found))])
    if variant in ("auto", "power") and box.dim <= _TREES:
        sites = power_sites(narrow, min(most, SITES))
        if sites is not None and _blur(request, sites.finest) <= _BLURRED:
            keys = len(sites.centres)
            story = {"variant": "power", "cells": [keys]}
            found.append(_plan(request, keys, (partial(build_power, sharpness=_SHARPNESS), sites), story))
    return found


def _room(request: Request) -> float:
    """The part of eps that cells which follow the samples may use; a black box needs the rest for its Lipschitz
    constant: with (1 − part) ε left, balls of radius (1 − part) ε/L must cover the box.
    """
    function, box = request.function, request.function.box
    if function.lipschitz is None:
        return _SEEN if box.dim <= 2 else 0.88
    if not math.isinf(request.norm):
        return _SEEN
    for part in (_SEEN, 0.85, 0.75, 0.65, 0.5, 0.35):
        radius = (1 - part) * request.eps / function.lipschitz
        count = np.prod((box.high_array - box.low_array) * math.sqrt(box.dim) / (2 * radius) + 1)
        if count <= _ASKED:
            return part
    return 0.35


def _work(request: Request, cells: tuple[int, ...]) -> int:
    """Operations on the product cells of all nodes: a node costs as many as there are cells on its own axes."""
    own: list[frozenset[str]] = []
    for node in request.function.graph.nodes if request.function.graph is not None else ():
        own.append(frozenset({str(node.value)} if node.op == "var" else ()).union(*(own[a] for a in node.args)))
    counts = dict(zip(request.function.box.names, cells, strict=True))
    return sum(math.prod(counts[name] for name in names) for names in own)


def build_grid(request: Request, grid: Grid) -> Network:
    """The head of a grid: slopes 2β v, biases −β v² up to a constant on the centred box, values f at the centres."""
    function = request.function
    box = function.box
    axes, centres = [], []
    for k, (count, s) in enumerate(zip(grid.cells, grid.sharpness, strict=True)):
        low, high = box.low[k], box.high[k]
        h = (high - low) / count
        middle = float(rounded(np.array(low + (high - low) / 2), request.dtype))
        v = rounded((np.arange(count) + 0.5) * h + (low - middle), request.dtype)
        feasible(h**2 > 1e-300, f"partition: cells of width {h:.3g} in {box.names[k]} are too narrow: slopes are 2S/h²")
        beta = s / h**2
        query = np.zeros((1, box.dim))
        query[0, k] = 1.0
        slopes = rounded(2 * beta * v, request.dtype)
        biases = rounded(beta * (v[-1] ** 2 / 2 - v * v), request.dtype)  # centred: half as large as −β v²
        axes.append(Axis(query, np.array([-middle]), slopes[:, None], biases))
        centres.append(np.clip(v + middle, low, high))
    values = np.empty((*grid.cells, len(function.outputs)))
    mesh = np.meshgrid(*centres[1:], indexing="ij")
    rest = np.stack([g.ravel() for g in mesh], axis=1) if mesh else np.empty((1, 0))
    step = max(1, 200_000 // len(rest))
    for i in range(0, grid.cells[0], step):  # never more than a slab of points at once
        first = centres[0][i : i + step]
        X = np.concatenate([np.repeat(first, len(rest))[:, None], np.tile(rest, (len(first), 1))], axis=1)
        values[i : i + step] = function.values(X).reshape(len(first), *grid.cells[1:], -1)
    names = "cell " + ", ".join(f"{{{k}}} of {n}" for k, n in enumerate(box.names))
    writes = tuple(f"value of {o}" for o in function.outputs)
    return request.network_of(Head("partition", tuple(axes), rounded(values, request.dtype), writes, names))


def _error(request: Request, grid: Grid, X: Array, truth: Array) -> float:
    return float(np.abs(evaluate(build_grid(request, grid), X) - truth).max())


def _softest(request: Request, sharp: Grid) -> tuple[Grid, float]:
    """The sharpness, equal on all axes, with the smallest sampled error on the sharp grid's cells."""
    X = request.function.box.probe(2000, np.random.default_rng(0))
    truth = request.function.values(X)
    grids = [Grid(sharp.cells, (s,) * len(sharp.cells)) for s in (*_SOFT, 8.0)]
    errors = [_error(request, grid, X, truth) for grid in grids]
    best = int(np.argmin(errors))
    return grids[best], errors[best]


def _inverse_temperature(request: Request, grid: Grid) -> list[float]:
    """R = 2 S/h² of every axis."""
    widths = request.function.box.high_array - request.function.box.low_array
    return [float(2 * s * (c / w) ** 2) for c, s, w in zip(grid.cells, grid.sharpness, widths, strict=True)]


def _blur(request: Request, cells: Sequence[float]) -> float:
    """About by how much of itself a cell is inflated for logits of size 5/8 S P² that round: 2d/S, whatever S is."""
    return 2 * (2 * len(cells) + 3) * _ROUNDOFF[request.dtype] * 0.625 * sum(c**2 for c in cells)


# ---------------------------------------------------------------- how many cells


def _least_counts(request: Request) -> tuple[int, ...]:
    """Cells an axis that are needed at the very least: each takes up a change of 2ε along it. Sampled, and quick."""
    box = request.function.box
    X = box.sample(32, np.random.default_rng(request.seed))
    ends = np.repeat(X[None, None], 2, axis=0).repeat(box.dim, axis=1)  # (2, d, n, d)
    for k in range(box.dim):
        ends[0, k, :, k], ends[1, k, :, k] = box.low[k], box.high[k]
    values = request.function.values(ends.reshape(-1, box.dim)).reshape(2, box.dim, -1)
    change = np.abs(values[1] - values[0])
    most = np.where(np.isfinite(change), change, 0.0).max(axis=1)
    if box.dim == 1:  # n cells, of which (n δ + 1) at most lie between neighbours of a grid of step δ
        f = request.function.values(np.linspace(box.low[0], box.high[0], _STEPS + 1)[:, None])
        steep = np.abs(np.diff(f, axis=0))
        most = np.maximum(most, _STEPS * (np.max(steep[np.isfinite(steep)], initial=0.0) - 2 * request.eps))
    scale = 1.0 if math.isinf(request.norm) else math.inf  # of an L^p norm single points tell nothing
    return tuple(max(1, math.ceil(0.9 * v / (2 * request.eps * scale))) for v in most)


def _cell_counts(request: Request, blur: float) -> tuple[int, ...]:
    """Cells per axis from the declared Lipschitz constant (black box) or from the sampled oscillation of the target,
    over cells that are inflated by `blur` of themselves.
    """
    function = request.function
    box = function.box
    widths = box.high_array - box.low_array
    if function.lipschitz is not None:
        h = 2 * request.eps * 0.95 / (function.lipschitz * math.sqrt(box.dim) * (1 + blur))
        return tuple(max(1, math.ceil(w / h)) for w in widths)
    rng = np.random.default_rng(request.seed)
    X = box.probe(6000 if box.dim <= 4 else 2000, rng)
    if not math.isinf(request.norm):
        X = box.sample(40_000, rng)
    elif function.graph is not None:
        X = np.concatenate([X[: len(X) // 2], steep_points(function), X[len(X) // 2 :]])
    with np.errstate(all="ignore"):
        base = function.values(X)
    if np.isinf(base).any():
        at = box.text if box.dim > 4 else ", ".join(f"{v:.4g}" for v in X[np.argmax(np.isinf(base).any(axis=1))])
        raise Infeasible(f"partition: the target is past what float64 can hold, at {at}")
    slopes = np.array([_axis_variation(request, X, base, k) for k in range(box.dim)])
    shares = widths / np.where(slopes > 0, slopes, np.inf)  # cell widths with equal oscillation per axis
    shares = np.where(slopes > 0, shares, 2.0 * widths)  # an axis that does not matter gets one cell
    shares = shares / np.max(shares / widths)
    grown = shares * (1.02 + blur)
    low, high = _NARROWEST, 1.0

    def within(h: Array) -> bool:
        """Few points first: the largest change at some is no more than at all."""
        few = slice(None, None, 16)
        if math.isinf(request.norm) and not _oscillation(request, X[few], base[few], h) <= request.eps:
            return False
        return _oscillation(request, X, base, h) <= request.eps

    if within(grown * high):
        low = high
    while high / low >= 1.005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if within(grown * middle) else (low, middle)
    counts = np.ceil(widths / (shares * low) - 1e-9)
    feasible(np.all(counts < 1e9), "partition: more than 1e9 cells per axis would be needed", {"eps": request.eps * 10})
    return tuple(max(1, int(c)) for c in counts)


@lru_cache(maxsize=4)  # of a target whose cells are counted twice
def steep_points(function: Function, boxes: int = 1500) -> Array:
    """Centres of the sub-boxes whose gradient, by ball ranges, may be largest: finds spikes that random points miss."""
    boxes = min(boxes, max(_LEAST_BOXES, _STEEP_WORK // len(function.formula.nodes)))
    box = function.box
    low, high = box.low_array[None], box.high_array[None]
    width = box.high_array - box.low_array
    score = np.array([np.inf])
    algebra = GradientAlgebra(BallAlgebra(clip_sqrt=True), box.dim)
    total = 0
    with precision(64):
        while total < boxes:
            worst = np.argsort(score)[-24:]
            new_low, new_high = halved(low[worst], high[worst], 1 / width)
            values = {n: balls(new_low[:, k], new_high[:, k]) for k, n in enumerate(box.names)}
            steep = np.zeros(len(new_low))
            for dual in run(function.formula, algebra, algebra.variables(box.names, values)):
                for k, partial in enumerate(dual.partials):
                    if partial is not None:
                        size = np.broadcast_to(abs_uppers(np.asarray(partial, dtype=object)), steep.shape)
                        with np.errstate(over="ignore"):
                            steep = steep + np.where(np.isnan(size), np.inf, size) * width[k]
            keep = np.setdiff1d(np.arange(len(low)), worst)
            low, high = np.concatenate([low[keep], new_low]), np.concatenate([high[keep], new_high])
            score = np.concatenate([score[keep], steep])
            total += len(new_low)
    top = np.argsort(score)[-1000:]
    return np.asarray((low[top] + high[top]) / 2)


def _axis_variation(request: Request, X: Array, base: Array, k: int) -> float:
    """Sampled change of f over a small step along variable k, for a step of one thousandth of the width."""
    box = request.function.box
    Y = X.copy()
    Y[:, k] = np.clip(Y[:, k] + (box.high[k] - box.low[k]) * 1e-3, box.low[k], box.high[k])
    change = np.abs(request.function.values(Y) - base)
    return float(np.nanmax(change[np.isfinite(change)], initial=0.0))


def _oscillation(request: Request, X: Array, base: Array, h: Array) -> float:
    """The sampled |f(x ± h/2) − f(x)|, h (d,) or (n, d): the largest; or in L^p the p-th mean for points anywhere in
    their cells, with its margin.
    """
    box, largest = request.function.box, math.isinf(request.norm)
    if largest:
        signs = list(product((-0.5, 0.5), repeat=box.dim)) if box.dim <= 6 else [(-0.5,) * box.dim, (0.5,) * box.dim]
        moves = [np.array(sign) for sign in signs]
    else:
        moves = list(np.random.default_rng(request.seed).uniform(-0.5, 0.5, (_PLACES, len(X), box.dim)))
    found = []
    for move in moves:
        Y = np.clip(X + move * h, box.low_array, box.high_array)
        change = np.abs(request.function.values(Y) - base)
        found.append(np.max(np.where(np.isfinite(change), change, 0.0), axis=1))
    worst = float(np.max(found))
    if largest or not worst:
        return worst
    mean = float(np.mean((np.array(found) / worst) ** request.norm))  # worst^p underflows for large p
    return worst * mean ** (1 / request.norm) * _MARGIN


def _published(request: Request) -> dict[str, object]:
    """The worst case of the published construction: cells of equal width, a Lipschitz constant for the whole box."""
    box = request.function.box
    X = box.probe(4000, np.random.default_rng(1))
    base = request.function.values(X)
    if request.function.lipschitz is not None:
        lipschitz = request.function.lipschitz
    else:
        gradients = np.zeros(len(X))
        for k in range(box.dim):
            step = (box.high[k] - box.low[k]) * 1e-5
            Y = X.copy()
            Y[:, k] = np.where(X[:, k] + step <= box.high[k], X[:, k] + step, X[:, k] - step)
            gradients += np.max((np.abs(request.function.values(Y) - base) / step) ** 2, axis=1)
        lipschitz = float(np.sqrt(np.nanmax(gradients)))
    half = float(np.max(box.high_array - box.low_array)) / 2
    wanted = half * lipschitz * math.sqrt(box.dim) / request.eps
    per_axis = max(1, math.ceil(wanted)) if math.isfinite(lipschitz) else math.inf
    return {"lipschitz (sampled)": lipschitz, "cells per axis": per_axis, "cells": float(per_axis) ** box.dim}
