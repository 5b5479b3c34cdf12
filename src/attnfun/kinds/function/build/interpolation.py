"""interpolation: truncated linear functions, and broken lines made of them, by softmax over interpolation points.

| symbol | meaning |
| --- | --- |
| clip(y, a, b) | the truncated linear function min(max(y, a), b) of an affine query y = w·x + t |
| L_k, Δ | interpolation points and their spacing; p of them in one head, or n in each of H heads |
| c = β Δ² | sharpness: logits β(2 L_k y − L_k²) = −β(y − L_k)² + common |

Statement. A head with keys (2β L_k, −β L_k²), query (y, 1) and values L_k is a Gaussian average of the L_k near y: it
is within O(Δ) of clip(y, a, b) for every y, however far outside [a, b], whatever the number of variables. H heads of n
points add up to the same with Δ of order (b − a)/(nH).
Source: Hu, Liu, Chen, Wu, Liu, "Universal Approximation with Softmax Attention" (arXiv 2504.15956), the two
interpolation theorems; the weights are derived anew, and no bound is the paper's unless it is called "published".
Construction. Three variants, see `unary/grid.py`: "published" (points a + k(b − a)/p; many heads: midpoints, end caps
of value 0), "inclusive" (both ends are points), "optimal" (the same at the temperature of the least error; many heads:
each truncates its own stretch). Targets that are affine plus multiples of clip, relu, abs, max, min of affine forms
become such units (`broken_lines`), one head each; nested ones stand in later layers. Tolerances E_i minimise Σ keys
under Σ S_i E_i = ε, S_i the sensitivities: E_i ∝ (width_i/S_i)^{1/2}.
Size: about 0.062 (b − a)/ε + 1 keys per unit; few at loose ε, where nothing is smaller, many at tight ε.
Bound (published): max(|a|,|b|) ε₀ + (b − a)/p, and (b − a)/((n − 2)H) for many heads; the first is attained but for ε₀,
its points leave b out. With both ends Δ/2 and less, at the best temperature 0.062 Δ. Proved from the stored weights by
*moments*, or by *composition*.
Failure mode: keys grow like 1/ε; refused past 2,048, with the ε that would fit. A temperature that is too soft blurs
the ends, and makes the caps of many published heads leak.
Example: af.compile("clip(2*x + y, -1, 1)", domain=..., eps=0.05, method="interpolation").
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.broken_lines import Unit, broken_line
from attnfun.kinds.function.build.compose import build
from attnfun.kinds.function.build.compose_steps import Forms
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.unary.grid import VARIANTS, Grid, constant, grid_fit
from attnfun.kinds.function.build.unary.keys import Fit
from attnfun.language.numbers import bisected
from attnfun.network import Network

MOST_KEYS = 2048
"""The most keys that are built, whatever `max_keys` allows: past it the proof would take minutes."""
MOST_POINTS = 10**12
"""The most points that are counted at all."""
KEY_NAMES = "interpolation point {0}"
_LABELLED = 0.94  # of eps, where *composition* proves: its heads are proved to 6 %


class Interpolation(Construction):
    name = "interpolation"
    summary = "truncated linear functions by interpolation points: clip, relu, abs, max and min of affine forms"

    def plan(self, request: Request) -> Plan:
        variant = request.options.get("variant", "optimal")
        feasible(variant in VARIANTS, f"interpolation: variant={variant!r} is not one of {', '.join(VARIANTS)}")
        graph = request.expression("interpolation: a black box has no expression to read kinks from")
        box = request.function.box
        line = broken_line(graph, box)
        feasible(line.units, "interpolation: the target is affine")
        forms = line.forms
        weights, layers = forms.sensitivities({}, None), forms.layers()
        plain = box.dim == 1 and max(layers) == 0  # one variable, one layer: *moments* sees all units at once
        feasible(plain or math.isinf(request.norm), "interpolation: only the sup norm is offered for several variables")
        eps = request.eps * (1.0 if plain else _LABELLED)
        root = [math.sqrt((unit.high - unit.low) * s) for unit, s in zip(line.units, weights, strict=True)]
        tolerances = [eps * r / sum(root) / s if s > 0 else math.inf for r, s in zip(root, weights, strict=True)]
        grids = _grids(line.units, forms, tolerances, str(variant), request)
        fits = tuple(grid_fit(grid, request.dtype) for grid in grids)
        units = [
            {"unit": line.program.text(unit.step.phi, 60), "points": grid.points, "spacing": grid.spacing}
            | {"sharpness": grid.c, "published bound": grid.published}
            for unit, grid in zip(line.units, grids, strict=True)
        ]
        story = {"variant": variant, "units": units}
        return Plan.of(self.name, request, fits, max(layers) + 1, (forms, fits, plain), story)

    def build(self, request: Request, plan: Plan) -> Network:
        return build_units(request, *plan.data)


def build_units(request: Request, forms: Forms, fits: Sequence[Fit], plain: bool) -> Network:
    """The network of a program whose steps are clips; `plain` leaves the labels out, for one variable and one layer."""
    network = build(request, forms, fits, KEY_NAMES)
    return replace(network, labels=None) if plain else network


# ---------------------------------------------------------------- sizes


def _grids(units: Sequence[Unit], forms: Forms, tolerances: list[float], variant: str, request: Request) -> list[Grid]:
    """The fewest points for each unit's tolerance; an end that is only the end of a range leaves room for what the
    argument may be off.
    """
    limit = min(request.max_keys, MOST_KEYS)
    off: list[float] = []
    grids: list[Grid] = []
    for unit, tolerance in zip(units, tolerances, strict=True):
        read = forms.read(unit.step.argument)
        shift = sum(read.get(i, 0.0) * e for i, e in enumerate(off))
        high = unit.high + (shift if unit.high >= unit.step.high else 0.0)
        feasible(math.isfinite(high), "interpolation: the reach of a unit is past what float64 can hold")
        wanted = points_for(unit.low, high, tolerance, variant)
        grids.append(Grid(unit.low, high, wanted, None, variant))
        off.append(tolerance + shift)
        total = sum(grid.keys for grid in grids)
        if total > limit:
            more = f"{total:,}" if len(grids) == len(units) else f"more than {total:,}"
            nearest = {"eps": float(f"{1.1 * request.eps * total / limit:.2g}"), "method": "interpolation"}
            raise Infeasible(f"interpolation: {more} keys would be needed, past the {limit:,} that are built", nearest)
    return grids


def points_for(low: float, high: float, tolerance: float, variant: str) -> int:
    """The fewest points of a single head whose sampled error is within the tolerance: doubling, then bisection.

    The error in units of the spacing changes little with the number of points, so the error itself falls with it.
    """

    def error(points: int) -> float:
        grid = Grid(low, high, points, None, variant)
        return constant(grid) * grid.spacing

    least = 1 if variant == "published" else 2
    if error(least) <= tolerance:
        return least
    few, enough = least, 2 * least  # too few, and enough of them
    while not error(enough) <= tolerance:
        few, enough = enough, 2 * enough
        feasible(enough <= MOST_POINTS, f"interpolation: more than {MOST_POINTS:.0e} points would be needed")
    return bisected(few, enough, lambda points: error(points) <= tolerance)
