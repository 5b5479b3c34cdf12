"""compose: any number of variables, layer by layer along the target's own expression.

Statement. Let a program compute f by affine maps and functions g_i of one variable (see `compose_walk`). Give every g_i
a tangent head on the range of
its argument, accurate to ε_i; affine maps are linear and free, and so is the affine part of every g_i. Then the
network's error is at most
Σ_i S_i ε_i to first order, S_i the sensitivity of the output to step i, whatever the number of variables.
Source: the composition of approximations is folklore (e.g. Yarotsky 2017 for ReLU networks); products by squares are
due to the polarisation
identity; the heads are those of `tangent`.
Construction. Rewrites (`expressions/canonical.py`; sums under roots as squares, `compose_norms`), the walk, ranges of
all arguments, S_i from sampled slopes, ε_i = 0.9 ε/(N S_i), one fit a step; equal steps share a head; a step stands in
the first layer in which its argument is known.
As an MLP (`realise="mlp"`): the same program with blocks of ReLU units for the heads, a ReLU network with skip
connections, see `compose_mlp` and `unary/spline`; for comparison at equal tolerance, under the same certificate.
Size: the sum of the steps' keys: it grows with the expression, not like P^d.  Bound: *composition*, from the stored
weights and labels.
Failure mode: sums that reach 0 under a root and are no sums of squares need inner errors of ε²; factors that vanish.
Example: G m1 m2/((x2−x1)² + (y2−y1)² + (z2−z1)²) in nine variables: 3 layers, 8 heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.constructions.compose_mlp import fit_steps, nearest_request, shares
from attnfun.constructions.compose_norms import as_norms
from attnfun.constructions.compose_program import Finished, rough_keys, unary_graph
from attnfun.constructions.compose_walk import Walk
from attnfun.constructions.plan import Plan, Request
from attnfun.constructions.unary.fit import UnaryFit, fit_unary
from attnfun.constructions.unary.spline import SplineFit, rough_units
from attnfun.errors import Infeasible
from attnfun.expressions import ArrayAlgebra, Builder, Graph, run
from attnfun.expressions.canonical import canonical
from attnfun.expressions.relu_units import read_units
from attnfun.network import Axis, Head, Label, Labels, Layer, Network, ReluBlock, rounded
from attnfun.targets import natural_domain
from attnfun.targets.ranges import is_tight, range_of
from attnfun.targets.squares import is_square

Fit = UnaryFit | SplineFit
_LARGE = 400  # operations of affine maps and relu: choices that the walk would weigh one by one, to no end


@dataclass(frozen=True)
class Step:
    """One head (or a few that write one coordinate): φ = g(U) on [low, high], with the slope of the output it
    carries.
    """

    phi: int
    argument: int
    unary: Graph
    low: float
    high: float


@dataclass(frozen=True)
class Design:
    """A program with its steps, and for each step its tolerance, its fit, and the layer it stands in."""

    program: Graph
    steps: tuple[Step, ...]
    tolerances: tuple[float, ...]
    fits: tuple[Fit, ...]
    layers: tuple[int, ...]


class Compose:
    name = "compose"
    summary = "one tangent head a step of the expression: any number of variables"
    realisations: tuple[str, ...] = ("attention", "mlp")

    def plan(self, request: Request) -> Plan:
        function = request.function
        if function.graph is None:
            raise Infeasible("compose: a black box has no expression to follow")
        if not math.isinf(request.norm):
            raise Infeasible("compose: only the sup norm is offered")
        if len(function.graph.nodes) > _LARGE and read_units(function.graph) is not None:
            why = f"compose: {len(function.graph.nodes):,} operations of a ReLU network, which relu_network reads whole"
            raise Infeasible(why, {"method": "relu_network"})
        mlp = request.realise == "mlp"
        graph, squares = canonical(function.graph), frozenset[int]()
        if not mlp:  # broken lines are not pinned
            graph, squares = as_norms(graph, function.box)
        keys_of, shallow = rough_units if mlp else rough_keys, request.prefer == "layers"
        finished = Walk(graph, function.box, keys_of, squares, shallow).finished
        if not finished.heads:
            raise Infeasible("compose: the target is affine")
        if request.max_layers is not None and finished.depth > request.max_layers and not shallow:
            finished = Walk(graph, function.box, keys_of, squares, shallow=True).finished
        steps = _steps(finished, request)
        norms = {} if mlp else _norms(finished.graph, steps)
        weights = _sensitivities(finished.graph, steps, norms, request.eps)
        share = 0.9 * request.eps / len(steps)
        tolerances = tuple(share / max(s, 1e-300) for s in weights)
        if mlp:
            tolerances = shares([(step.unary, step.low, step.high) for step in steps], weights, request)
        shifts = _shifts(finished.graph, steps, norms, tolerances)
        intervals = [_guarded(step, 2 * shift) for step, shift in zip(steps, shifts, strict=True)]
        fits: tuple[Fit, ...]
        if mlp:
            fits = fit_steps(intervals, tolerances, request)
        else:
            pinned = {i for parts in norms.values() for i in parts}
            single = request.dtype == "float32"  # where one step cannot be as good as its share, others leave room
            fits = tuple(
                fit_unary(*interval, tol, dtype=request.dtype, pinned=i in pinned, settle=single)
                for i, (interval, tol) in enumerate(zip(intervals, tolerances, strict=True))
            )
        layers = _layers(finished.graph, steps)
        design = Design(finished.graph, steps, tolerances, fits, layers)
        keys = sum(f.keys for f in fits)
        heads = sum(len(f.pieces) if isinstance(f, UnaryFit) else 1 for f in fits)
        if keys > request.max_keys:
            what, nearest = ("ReLU units", nearest_request(keys, 1, request)) if mlp else ("keys", None)
            raise Infeasible(f"compose: {keys:,} {what} would be needed, more than {request.max_keys:,}", nearest)
        story = {
            "steps": [
                {"layer": k + 1, "step": finished.graph.text(s.phi, 60), "keys": f.keys, "tolerance": t}
                for s, f, t, k in zip(steps, fits, tolerances, layers, strict=True)
            ]
        }
        return Plan(self.name, keys, heads, max(layers) + 1, 2, max(f.max_value for f in fits), design, story)

    def build(self, request: Request, plan: Plan) -> Network:
        return build(request, plan.data)


def _steps(finished: Finished, request: Request) -> tuple[Step, ...]:
    nodes = finished.graph.nodes
    builder = Builder()
    at = builder.copy(nodes)
    steps, known, box = [], dict[int, tuple[float, float]](), request.function.box
    for (phi, argument), plainly in zip(finished.heads, finished.plainly, strict=True):
        unary = unary_graph(builder, at[phi], at[argument])
        least, most = natural_domain(unary)  # ranges may overhang what the target, being defined, never leaves
        ((low, high),) = range_of(Graph(nodes, (argument,)), box, known=known, within=(least, most))
        if not is_tight(plainly, box, low, high):
            ((a, b),) = range_of(plainly, box, within=(least, most))
            low, high = max(low, a), min(high, b)
        if not (math.isfinite(low) and math.isfinite(high) and high > low):
            raise Infeasible(f"compose: {finished.graph.text(argument, 80)} is not bounded on the box, or constant")
        known[argument] = max(low, least), min(high, most)
        steps.append(Step(phi, argument, unary, *known[argument]))
    return tuple(steps)


# ---------------------------------------------------------------- affine forms in floats


class Forms:
    """Affine forms of program nodes, in floats: in φ's, and in the coordinates of the stream once the fits are
    known.
    """

    def __init__(
        self, program: Graph, steps: tuple[Step, ...], fits: tuple[Fit, ...] | None, names: list[str]
    ) -> None:
        self.program = program
        self.index = {s.phi: i for i, s in enumerate(steps)}
        self.steps, self.fits, self.names = steps, fits, names
        self.memo: dict[int, tuple[dict[str, float], float]] = {}

    def __call__(self, node: int) -> tuple[dict[str, float], float]:
        """(coefficients by coordinate name, constant)."""
        if node not in self.memo:
            self.memo[node] = self._form(node)
        return self.memo[node]

    def _form(self, i: int) -> tuple[dict[str, float], float]:
        node = self.program.nodes[i]
        if i in self.index:
            k = self.index[i]
            if self.fits is None:
                return {self.names[k]: 1.0}, 0.0
            form, constant = self(self.steps[k].argument)
            slope, offset = self.fits[k].slope, self.fits[k].offset
            out = {n: slope * v for n, v in form.items()}
            out[self.names[k]] = out.get(self.names[k], 0.0) + 1.0
            return out, slope * constant + offset
        if node.op == "var":
            return {str(node.value): 1.0}, 0.0
        if not self.program.reachable((i,)).variables:
            return {}, float(run(self.program.reachable((i,)), ArrayAlgebra(), {})[0])
        parts = [self(a) for a in node.args]
        if node.op in ("add", "sub"):
            return _combine(parts[0], parts[1], 1.0 if node.op == "add" else -1.0)
        if node.op == "neg":
            return _combine(({}, 0.0), parts[0], -1.0)
        if node.op == "mul":
            side = 0 if not parts[0][0] else 1
            return _combine(({}, 0.0), parts[1 - side], parts[side][1])
        if node.op == "div":
            return _combine(({}, 0.0), parts[0], 1 / parts[1][1])
        raise Infeasible(f"compose: {self.program.text(i, 80)} is not affine in the steps before it")


def _combine(
    a: tuple[dict[str, float], float], b: tuple[dict[str, float], float], factor: float
) -> tuple[dict[str, float], float]:
    out = dict(a[0])
    for name, value in b[0].items():
        out[name] = out.get(name, 0.0) + factor * value
    return out, a[1] + factor * b[1]


def _names(program: Graph, steps: tuple[Step, ...], inputs: tuple[str, ...]) -> list[str]:
    """A readable, unique name for every coordinate."""
    names: list[str] = []
    for step in steps:
        text = program.text(step.phi, 48)
        name, count = text, 2
        while name in names or name in inputs:
            name, count = f"{text} ({count})", count + 1
        names.append(name)
    return names


# ---------------------------------------------------------------- tolerances and layers


def _norms(program: Graph, steps: tuple[Step, ...]) -> dict[int, dict[int, float]]:
    """Steps that are a root of a sum of squares coming down to 0: for each the squares' steps, with their weights."""
    forms = Forms(program, steps, None, [str(i) for i in range(len(steps))])
    found = {}
    for j, step in enumerate(steps):
        form, constant = forms(step.argument)
        if not (step.low <= 1e-3 * step.high and natural_domain(step.unary)[0] == 0 and constant >= 0):
            continue
        if all(n.isdigit() and w > 0 and is_square(steps[int(n)].unary) for n, w in form.items()):
            found[j] = {int(n): w for n, w in form.items()}
    return found


def _sensitivities(
    program: Graph, steps: tuple[Step, ...], norms: dict[int, dict[int, float]], eps: float
) -> list[float]:
    """How much the outputs move for a unit error of each step: products of the largest slopes along paths, summed.

    A norm N = √(Σ β_i p_i²), or a function h of it, moves by h' √β_i for a unit error of p_i, and by h' N/(2 r²) for a
    unit error of the pinned square at its reach r, an error that falls with p_i².
    """
    names = [str(i) for i in range(len(steps))]
    forms = Forms(program, steps, None, names)
    weight, through = [0.0] * len(steps), [0.0] * len(steps)  # `through`: of the argument of a square, in norms
    for o in program.outputs:
        form, _ = forms(o)
        for i, name in enumerate(names):
            weight[i] = max(weight[i], abs(form.get(name, 0.0)))
    for j in range(len(steps) - 1, -1, -1):
        if weight[j] == 0 and through[j] == 0:
            continue
        step = steps[j]
        if j in norms:
            slope, top = _root_slope(step) * weight[j], math.sqrt(step.high)
            for i, beta in norms[j].items():
                through[i] += slope * math.sqrt(beta)
                weight[i] += slope * top / (2 * max(abs(steps[i].low), abs(steps[i].high)) ** 2)
            continue
        slope = _slope(step, 0.25 * eps / weight[j]) * weight[j] if not through[j] else through[j]
        form, _ = forms(step.argument)
        for i, name in enumerate(names):
            if name in form:
                weight[i] += abs(form[name]) * slope
    return weight


def _shifts(
    program: Graph, steps: tuple[Step, ...], norms: dict[int, dict[int, float]], tolerances: tuple[float, ...]
) -> list[float]:
    """How far the argument of each step may be off: tolerances carried forward by the largest slopes.

    Sums of pinned squares stray below 0 by little more than rounding.
    """
    names = [str(i) for i in range(len(steps))]
    forms = Forms(program, steps, None, names)
    errors: dict[str, float] = {}
    shifts = []
    for j, (name, step, tolerance) in enumerate(zip(names, steps, tolerances, strict=True)):
        form, _ = forms(step.argument)
        shift = sum(abs(v) * errors[n] for n, v in form.items() if n in errors)
        carried = _slope(step, tolerance) * shift if shift and j not in norms else tolerance
        errors[name] = tolerance + (carried if shift else 0.0)
        shifts.append(1e-12 * step.high if j in norms else shift)
    return shifts


def _root_slope(step: Step) -> float:
    """sup |h'| of h(t) = g(t²), by differences."""
    t = np.linspace(0, math.sqrt(step.high), 801)
    with np.errstate(all="ignore"):
        g = np.asarray(run(step.unary, ArrayAlgebra(), {"u": np.clip(t * t, step.low, step.high)})[0], dtype=np.float64)
    slopes = np.abs(np.diff(g) / np.diff(t))
    slopes = slopes[np.isfinite(slopes)]
    return float(slopes.max()) if len(slopes) else 0.0


def _guarded(step: Step, margin: float) -> tuple[Graph, float, float]:
    """g with its interval; at an end of g's natural domain (a root at 0) continued by its end value over `margin`.

    The argument a head sees may stray past such an end, where g means nothing: the head must stay put there.
    """
    least, most = natural_domain(step.unary)
    low_end, high_end = margin > 0 and step.low <= least, margin > 0 and step.high >= most
    if not (low_end or high_end):
        return step.unary, step.low, step.high
    out = Builder()
    u = out.var("u")
    if low_end:
        end = out.const(Fraction(step.low))
        u = out.apply("add", out.apply("relu", out.apply("sub", u, end)), end)
    if high_end:
        end = out.const(Fraction(step.high))
        u = out.apply("sub", end, out.apply("relu", out.apply("sub", end, u)))
    at: list[int] = []
    for node in step.unary.nodes:
        args = [at[a] for a in node.args]
        at.append(u if node.op == "var" else out.apply(node.op, *args, value=node.value))
    graph = out.graph([at[o] for o in step.unary.outputs])
    return graph, step.low - margin * low_end, step.high + margin * high_end


def _slope(step: Step, allowed: float) -> float:
    """sup |g'| on the range by differences; where g has no slope (a root at 0), the chord that costs `allowed`."""
    s = np.concatenate([np.linspace(0, 1, 401), np.geomspace(1e-15, 0.5, 200), 1 - np.geomspace(1e-15, 0.5, 200)])
    u = np.unique(np.clip(step.low + (step.high - step.low) * s, step.low, step.high))
    with np.errstate(all="ignore"):
        g = np.asarray(run(step.unary, ArrayAlgebra(), {"u": u})[0], dtype=np.float64)
        slopes = np.abs(np.diff(g) / np.diff(u))
    slopes = slopes[np.isfinite(slopes)]
    if not len(slopes):
        return 0.0
    steep, usual = float(slopes.max()), float(np.ptp(g[np.isfinite(g)])) / (step.high - step.low)
    if steep <= 1e3 * usual:
        return steep
    low, high = 1e-30 * (step.high - step.low), step.high - step.low
    for _ in range(100):
        middle = math.sqrt(low * high)
        moved = np.clip(u + middle, step.low, step.high)
        with np.errstate(all="ignore"):
            change = np.abs(np.asarray(run(step.unary, ArrayAlgebra(), {"u": moved})[0]) - g)
        low, high = (middle, high) if np.nanmax(change) <= allowed else (low, middle)
    return min(steep, allowed / max(low, 5e-324))


def _layers(program: Graph, steps: tuple[Step, ...]) -> tuple[int, ...]:
    names = [str(i) for i in range(len(steps))]
    forms = Forms(program, steps, None, names)
    layers: list[int] = []
    for step in steps:
        needed = [layers[int(n)] for n in forms(step.argument)[0] if n.isdigit() and n in names]
        layers.append(1 + max(needed, default=-1))
    return tuple(layers)


# ---------------------------------------------------------------- weights


def build(request: Request, design: Design) -> Network:
    """The network of a design, labelled."""
    function, dtype = request.function, request.dtype
    inputs = function.box.names
    names = _names(design.program, design.steps, inputs)
    forms = Forms(design.program, design.steps, design.fits, names)
    stream = list(inputs)
    layers = []
    for depth in range(max(design.layers) + 1):
        here = [i for i, k in enumerate(design.layers) if k == depth]
        heads: list[Head | ReluBlock] = []
        for i in here:
            form, constant = forms(design.steps[i].argument)
            argument = np.array([[form.get(n, 0.0) for n in stream]])
            fit = design.fits[i]
            if isinstance(fit, SplineFit):
                row, offset = rounded(argument, dtype), rounded([constant], dtype)
                axis = Axis(row, offset, fit.slopes[:, None], fit.biases)
                heads.append(ReluBlock(names[i], axis, fit.values[:, None], (names[i],)))
                continue
            for number, piece in enumerate(fit.pieces):
                row, offset = rounded(piece.w * argument, dtype), rounded([piece.w * constant + piece.c], dtype)
                axis = Axis(row, offset, piece.slopes[:, None], piece.biases)
                title = names[i] if len(fit.pieces) == 1 else f"{names[i]}, piece {number + 1}"
                heads.append(Head(title, (axis,), piece.values[:, None], (names[i],)))
        layers.append(Layer(tuple(heads)))
        stream += [names[i] for i in here]
    readout, bias = np.zeros((len(function.outputs), len(stream))), np.zeros(len(function.outputs))
    for o, node in enumerate(design.program.outputs):
        form, constant = forms(node)
        readout[o] = [form.get(n, 0.0) for n in stream]
        bias[o] = constant
    program, at = design.program.plain()
    labels = tuple(
        Label(name, at[step.phi], at[step.argument], fit.slope, fit.offset)
        for name, step, fit in zip(names, design.steps, design.fits, strict=True)
    )
    return Network(
        inputs=inputs,
        layers=tuple(layers),
        readout=rounded(readout, dtype),
        readout_bias=rounded(bias, dtype),
        outputs=function.outputs,
        box=(function.box.low_array, function.box.high_array),
        dtype=dtype,
        labels=Labels(program, labels).canonical(),
    )
