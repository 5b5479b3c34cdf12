"""compose: any number of variables, layer by layer along the target's own expression.

Statement. Let a program compute f by affine maps and functions g_i of one variable (see `compose_walk`). Give every g_i
a tangent head on the range of its argument, accurate to ε_i (a g_i of two or three variables a tensor head, see
`compose_steps`); affine maps are linear and free, and so is the affine part of every g_i. Then the network's error is
at most Σ_i S_i ε_i to first order, S_i the sensitivity of the output to step i, whatever the number of variables.
Source: the composition of approximations is folklore (e.g. Yarotsky 2017 for ReLU networks); products by squares are
due to the polarisation identity; the heads are those of `tangent`.
Construction. Rewrites (`language/canonical.py`; sums under roots as squares, `compose_program`), the walk, ranges of
all arguments, S_i from sampled slopes, ε_i = 0.9 ε/(N S_i), one fit a step; equal steps share a head; a step stands in
the first layer in which its argument is known.
As an MLP (`realise="mlp"`): the same program with blocks of ReLU units for the heads, a ReLU network with skip
connections, see `unary/spline`; for comparison at equal tolerance, under the same certificate.
Size: the sum of the steps' keys: it grows with the expression, not like P^d.  Bound: *composition*, from the stored
weights and labels.
Failure mode: sums that reach 0 under a root and are no sums of squares need inner errors of ε²; factors that vanish.
Example: G m1 m2/((x2−x1)² + (y2−y1)² + (z2−z1)²) in nine variables: 3 layers, 8 heads.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from attnfun.errors import Infeasible, feasible
from attnfun.kinds.function.build.compose_fronts import Fronts, as_staircases
from attnfun.kinds.function.build.compose_program import ARGUMENTS, Finished, as_norms, rough_keys
from attnfun.kinds.function.build.compose_steps import Forms, Step, fit_tensor, guarded, names_of, steps_of
from attnfun.kinds.function.build.compose_walk import Walk
from attnfun.kinds.function.build.plan import Construction, Plan, Request
from attnfun.kinds.function.build.relu_network import KINKS, kink_fit
from attnfun.kinds.function.build.unary.features import KINKS as NOT_SMOOTH
from attnfun.kinds.function.build.unary.fit import Missed, fit_unary
from attnfun.kinds.function.build.unary.keys import Array, Fit
from attnfun.kinds.function.build.unary.search import TUNABLE
from attnfun.kinds.function.build.unary.spline import fit_spline, nearest_request, rough_units, shares
from attnfun.kinds.function.build.unary.staircase import fit_staircase
from attnfun.language import Graph
from attnfun.language.canonical import canonical
from attnfun.language.factored import factored
from attnfun.language.relu_units import read_units
from attnfun.network import Head, Label, Labels, Layer, Network, ReluBlock

_LENT = 4  # times its share of eps that a step may miss: near what float64 holds, others do not use theirs
_MANY = 32  # steps from which on the first size that works is taken for each
_KINKS = 12  # steps that are relu or abs, from which on their keys are known without a search
_MOST_STEPS, _MOST_FITS = 20_000, 64  # steps, and different ones among them
_FITS_EACH = 4  # different steps for each variable, where that is more
_MOST_KEYS = 6_000  # of all different steps together, as estimated: past it fits and proofs take minutes
_MOST_STORED = 100_000  # of all steps together
_GRID = 1.1  # ratio of the tolerances that many steps are given, so that those nearly alike are alike
_LARGE = 400  # operations of affine maps and relu: choices that the walk would weigh one by one, to no end


class Compose(Construction):
    name = "compose"
    summary = "one tangent head a step of the expression: any number of variables"
    realisations = ("attention", "mlp")
    stepwise = True

    def plan(self, request: Request) -> Plan:
        graph = request.expression("compose: a black box has no expression to follow")
        in_sup = math.isinf(request.norm) and request.function.band is None
        feasible(in_sup or request.realise == "attention", "compose: of ReLU units only the sup norm is offered")
        why = f"compose: {len(graph.nodes):,} operations of a ReLU network, which relu_network reads whole"
        feasible(len(graph.nodes) <= _LARGE or read_units(graph) is None, why, {"method": "relu_network"})
        thin = request.max_rank is not None and request.max_rank <= max(ARGUMENTS)
        tensors = request.realise == "attention" and request.attempt == 0 and not thin
        kinked = any(node.op in NOT_SMOOTH for node in graph.nodes)
        if kinked and request.realise == "attention" and request.prefer != "layers" and request.max_layers is None:
            try:
                return self._plan(request, _program(graph, request, tensors, apart=True))
            except Infeasible:
                pass
        finished = _program(graph, request, tensors)
        try:
            return self._plan(request, finished)
        except Infeasible:
            if not any(len(arguments) > 1 for _, arguments in finished.heads):
                raise
        return self._plan(request, _program(graph, request, tensors=False))

    def _plan(self, request: Request, finished: Finished) -> Plan:
        mlp = request.realise == "mlp"
        forms = Forms(finished.graph, steps_of(finished, request))
        steps, norms = forms.steps, {} if mlp else forms.norms()
        fronts = Fronts.of(forms, request)
        request = replace(request, eps=fronts.eps)
        if not mlp:
            _require_few(steps, request.function.box.dim)
            if _is_tangent(request, finished, steps):
                raise Infeasible("compose: one step, a function of the variable itself, as tangent has it")
        weights = forms.sensitivities(norms, request.eps, fronts.allowed)
        if mlp:
            tolerances = shares([(step.function, step.low, step.high) for step in steps], weights, request)
        else:
            tolerances = tuple(0.9 * request.eps / len(steps) / max(s, 1e-300) for s in weights)
        if len(steps) > _MANY:
            tolerances = tuple(_GRID ** math.floor(math.log(t, _GRID)) for t in tolerances)
        pinned = {i: False for parts in norms.values() for i in parts}
        if request.dtype == "float64":
            pinned |= {i: True for i in forms.graded(norms, weights, request.eps)}
        shifts = forms.shifts(norms, tolerances)
        hardest = sorted(range(len(steps)), key=lambda i: tolerances[i])  # what fails is best known at once
        kinked = sum(step.function in KINKS for step in steps) > _KINKS and request.prefer != "float32"
        direct = {i for i in hardest if kinked and steps[i].function in KINKS}
        many = len(steps) > _MANY
        found = {
            i: fit_staircase(
                steps[i].function, steps[i].low, steps[i].high, fronts.widths[i], tolerances[i], request.dtype
            )
            if steps[i].jumps
            else _fit(steps[i], shifts[i], tolerances[i], pinned.get(i), request, many, i in direct)
            for i in hardest
        }
        fits = tuple(found[i] for i in range(len(steps)))
        layers, rank = forms.layers(), 1 + max(len(step.arguments) for step in steps)
        told = [
            {"layer": k + 1, "step": finished.graph.text(s.phi, 60), "keys": f.keys, "tolerance": t}
            for s, f, t, k in zip(steps, fits, tolerances, layers, strict=True)
        ]
        nearest = partial(nearest_request, fixed=1, request=request) if mlp else None
        return Plan.of(self.name, request, fits, max(layers) + 1, (forms, fits), {"steps": told}, rank, nearest)

    def build(self, request: Request, plan: Plan) -> Network:
        return build(request, *plan.data)


def _program(target: Graph, request: Request, tensors: bool, apart: bool = False) -> Finished:
    """The program of the walk: of few keys, or of few layers where that is preferred or asked for."""
    mlp, box = request.realise == "mlp", request.function.box
    graph, squares, stairs = factored(canonical(target)), frozenset[int](), dict[int, int]()
    if not mlp:  # broken lines are not pinned
        graph, squares = as_norms(graph, box)
        graph, at, stairs = as_staircases(graph)
        squares = frozenset(at[n] for n in squares)
    keys_of, shallow = rough_units if mlp else rough_keys, request.prefer == "layers"
    walk = Walk(graph, box, keys_of, squares, shallow, tensors, stairs, apart)
    if not mlp:
        _require_few_fits(walk.least_steps(), box.dim)
    finished = walk.finished
    feasible(finished.heads, "compose: the target is affine")
    if request.max_layers is not None and finished.depth > request.max_layers and not shallow:
        finished = Walk(graph, box, keys_of, squares, True, tensors, stairs, apart).finished
    return finished


def _is_tangent(request: Request, finished: Finished, steps: tuple[Step, ...]) -> bool:
    """Is this the head that another construction has sized already, so large that no tuning would change it, or has
    refused? Of one variable and one output, the step would have less of eps than the whole had; only in float32 may
    it miss its share.
    """
    sized = "tangent" in request.beside and request.max_keys > TUNABLE
    alone = request.function.box.dim == 1 and len(request.function.outputs) == 1
    refused = "tangent" in request.refused and alone and request.dtype == "float64"
    return (
        (sized or refused)
        and len(steps) == 1
        and not steps[0].jumps
        and finished.graph.nodes[steps[0].argument].op == "var"
    )


def _require_few(steps: tuple[Step, ...], variables: int) -> None:
    """An estimate of the whole before the first search."""
    feasible(len(steps) <= _MOST_STEPS, f"compose: {len(steps):,} steps; at most {_MOST_STEPS:,} are fitted and proved")
    different = {(s.function, s.ranges): s for s in steps}
    _require_few_fits(len(different), variables)
    sizes = {k: 0 if s.is_tensor else rough_keys(s.function, s.low, s.high) for k, s in different.items()}
    keys = sum(sizes[s.function, s.ranges] for s in steps)
    most = max(_MOST_KEYS, _MOST_KEYS * _FITS_EACH * variables // _MOST_FITS)
    if len(steps) > 1 and (sum(sizes.values()) > most or keys > _MOST_STORED):
        raise Infeasible(f"compose: about {keys:,.0f} keys in {len(steps)} steps; at most {most:,} are fitted")


def _require_few_fits(count: int, variables: int) -> None:
    most = max(_MOST_FITS, _FITS_EACH * variables)
    feasible(count <= most, f"compose: {count} different steps; at most {most} are fitted and proved")


def _fit(
    step: Step, shift: float, tolerance: float, pinned: bool | None, request: Request, quick: bool, many_kinks: bool
) -> Fit:
    """The head (or heads), or the broken line, of one step, whose argument may be off by `shift`; `pinned` if it
    is not None, and then graded or not.
    """
    dtype = request.dtype
    if step.is_tensor:
        return fit_tensor(step.function, step.ranges, tolerance, request)
    single = dtype == "float32"  # where one step cannot be as good as its share, others leave room
    interval = guarded(step, 2 * shift)
    try:
        if request.realise == "mlp":
            return fit_spline(*interval, tolerance, dtype=dtype)
        if many_kinks and interval[1] < 0 < interval[2]:  # past its interval a head is level, and a kink is not
            return kink_fit(interval[0], interval[1] - 2 * shift, interval[2] + 2 * shift, tolerance, dtype)
        how = {"pinned": pinned is not None, "graded": bool(pinned), "quick": quick, "settle": single}
        return fit_unary(*interval, tolerance, dtype=dtype, **how)
    except Infeasible as why:  # what the step could reach, as an eps of the whole request
        ratio = (why.nearest or {}).get("eps", 0.0) / tolerance
        if isinstance(why, Missed) and ratio <= _LENT:
            return why.fit
        text = step.function.text(step.function.outputs[0], 60)
        where = f"compose: the step {text} on [{step.low:.4g}, {step.high:.4g}] may be off by {tolerance:.2g}"
        nearest = {"eps": float(f"{1.05 * ratio * request.eps:.2g}")} if ratio > 1 else None
        raise Infeasible(f"{where} ({why})", nearest) from None


def build(request: Request, program: Forms, fits: Sequence[Fit], key_names: str = "") -> Network:
    """The network of a program whose steps have these fits, labelled; `key_names` of its heads, where they are not
    those of the fits.
    """
    steps, at_layer = program.steps, program.layers()
    names = names_of(program.program, steps, request.function.box.names)
    forms = Forms(program.program, steps, [(fit.slope, fit.offset) for fit in fits])
    stream: list[str | int] = [*request.function.box.names]

    def rows(nodes: Sequence[int]) -> tuple[Array, list[float]]:
        """Affine forms of the stream, and their constants."""
        found = [forms(node) for node in nodes]
        return np.array([[form.get(n, 0.0) for n in stream] for form, _ in found]), [constant for _, constant in found]

    layers = []
    for depth in range(max(at_layer) + 1):
        here = [i for i, k in enumerate(at_layer) if k == depth]
        heads: list[Head | ReluBlock] = []
        for i in here:
            heads += fits[i].written(names[i], *rows(steps[i].arguments), request.dtype, key_names)
        layers.append(Layer(tuple(heads)))
        stream += here
    graph, at = program.program.plain()
    labels = tuple(
        Label(name, at[step.phi], at[step.argument], fit.slope, fit.offset, tuple(at[a] for a in step.arguments[1:]))
        for name, step, fit in zip(names, steps, fits, strict=True)
    )
    return request.network(layers, *rows(program.program.outputs), Labels(graph, labels).canonical())
