"""compose: any number of variables, layer by layer along the target's own expression.

Statement. Let a program compute f by affine maps and functions g_i of one variable (see `compose_walk`). Give every g_i
a tangent head on the range of its argument, accurate to ε_i (a g_i of two or three variables a tensor head, see
`compose_tensor`); affine maps are linear and free, and so is the affine part of every g_i. Then the network's error is
at most Σ_i S_i ε_i to first order, S_i the sensitivity of the output to step i, whatever the number of variables.
Source: the composition of approximations is folklore (e.g. Yarotsky 2017 for ReLU networks); products by squares are
due to the polarisation
identity; the heads are those of `tangent`.
Construction. Rewrites (`language/canonical.py`; sums under roots as squares, `compose_norms`), the walk, ranges of
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

import numpy as np

from attnfun.kinds.function.build.compose_mlp import fit_steps, nearest_request, shares
from attnfun.kinds.function.build.compose_norms import as_norms
from attnfun.kinds.function.build.compose_program import Finished, rough_keys
from attnfun.kinds.function.build.compose_steps import (
    Forms,
    Step,
    guarded,
    layers_of,
    names_of,
    norms_of,
    sensitivities,
    shifts_of,
    steps_of,
)
from attnfun.kinds.function.build.compose_tensor import ARGUMENTS, TensorFit, fit_tensor
from attnfun.kinds.function.build.compose_walk import Walk
from attnfun.kinds.function.build.plan import Plan, Request
from attnfun.kinds.function.build.relu_network import RELU, relu_fit
from attnfun.kinds.function.build.unary.fit import UnaryFit, fit_unary
from attnfun.kinds.function.build.unary.search import TUNABLE
from attnfun.kinds.function.build.unary.spline import SplineFit, rough_units
from attnfun.errors import Infeasible
from attnfun.language import Graph
from attnfun.language.canonical import canonical
from attnfun.language.relu_units import read_units
from attnfun.network import Axis, Head, Label, Labels, Layer, Network, ReluBlock, rounded

Fit = UnaryFit | SplineFit | TensorFit
_MANY = 32  # steps from which on the first size that works is taken for each
_MOST_STEPS, _MOST_FITS = 400, 64  # steps, and different ones among them
_MOST_KEYS = 6_000  # of all steps together, as estimated: past it fits and proofs take minutes
_LARGE = 400  # operations of affine maps and relu: choices that the walk would weigh one by one, to no end


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
        thin = request.max_rank is not None and request.max_rank <= max(ARGUMENTS)
        tensors = request.realise == "attention" and request.attempt == 0 and not thin
        finished = _program(function.graph, request, tensors)
        try:
            return self._plan(request, finished)
        except Infeasible:
            if not any(len(arguments) > 1 for _, arguments in finished.heads):
                raise
        return self._plan(request, _program(function.graph, request, tensors=False))

    def _plan(self, request: Request, finished: Finished) -> Plan:
        mlp = request.realise == "mlp"
        steps = steps_of(finished, request)
        norms = {} if mlp else norms_of(finished.graph, steps)
        if not mlp:
            _require_few(steps)
            if _is_tangent(request, finished, steps):
                raise Infeasible("compose: one step, a function of the variable itself, which tangent has sized")
        weights = sensitivities(finished.graph, steps, norms, request.eps)
        share = 0.9 * request.eps / len(steps)
        tolerances = tuple(share / max(s, 1e-300) for s in weights)
        if mlp:
            tolerances = shares([(step.function, step.low, step.high) for step in steps], weights, request)
        shifts = shifts_of(finished.graph, steps, norms, tolerances)
        fits: tuple[Fit, ...]
        if mlp:
            intervals = [guarded(step, 2 * shift) for step, shift in zip(steps, shifts, strict=True)]
            fits = fit_steps(intervals, tolerances, request)
        else:
            pinned = {i for parts in norms.values() for i in parts}
            hardest = sorted(range(len(steps)), key=lambda i: tolerances[i])  # what fails is best known at once
            found = {
                i: _fit(steps[i], shifts[i], tolerances[i], i in pinned, request, len(steps) > _MANY) for i in hardest
            }
            fits = tuple(found[i] for i in range(len(steps)))
        layers, rank = layers_of(finished.graph, steps), 1 + max(len(step.arguments) for step in steps)
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
        return Plan(self.name, keys, heads, max(layers) + 1, rank, max(f.max_value for f in fits), design, story)

    def build(self, request: Request, plan: Plan) -> Network:
        return build(request, plan.data)


def _program(target: Graph, request: Request, tensors: bool) -> Finished:
    """The program of the walk: of few keys, or of few layers where that is preferred or asked for."""
    mlp, box = request.realise == "mlp", request.function.box
    graph, squares = canonical(target), frozenset[int]()
    if not mlp:  # broken lines are not pinned
        graph, squares = as_norms(graph, box)
    keys_of, shallow = rough_units if mlp else rough_keys, request.prefer == "layers"
    walk = Walk(graph, box, keys_of, squares, shallow, tensors)
    if not mlp:
        _require_few_fits(walk.least_steps())
    finished = walk.finished
    if not finished.heads:
        raise Infeasible("compose: the target is affine")
    if request.max_layers is not None and finished.depth > request.max_layers and not shallow:
        finished = Walk(graph, box, keys_of, squares, True, tensors).finished
    return finished


def _is_tangent(request: Request, finished: Finished, steps: tuple[Step, ...]) -> bool:
    """Is this the head that another construction has sized already, so large that no tuning would change it?"""
    argument = finished.graph.nodes[steps[0].argument]
    return "tangent" in request.beside and len(steps) == 1 and argument.op == "var" and request.max_keys > TUNABLE


def _require_few(steps: tuple[Step, ...]) -> None:
    """An estimate of the whole before the first search."""
    if len(steps) > _MOST_STEPS:
        raise Infeasible(f"compose: {len(steps):,} steps; at most {_MOST_STEPS} are fitted and proved one by one")
    different = {(s.function, s.ranges): s for s in steps}
    _require_few_fits(len(different))
    sizes = {k: 0 if s.is_tensor else rough_keys(s.function, s.low, s.high) for k, s in different.items()}
    keys = sum(sizes[s.function, s.ranges] for s in steps)
    if len(steps) > 1 and keys > _MOST_KEYS:
        raise Infeasible(f"compose: about {keys:,.0f} keys in {len(steps)} steps; at most {_MOST_KEYS:,} are fitted")


def _require_few_fits(count: int) -> None:
    if count > _MOST_FITS:
        raise Infeasible(f"compose: {count} different steps; at most {_MOST_FITS} are fitted and proved")


def _fit(
    step: Step, shift: float, tolerance: float, pinned: bool, request: Request, quick: bool
) -> UnaryFit | TensorFit:
    """The head (or heads) of one step, whose argument may be off by `shift`."""
    if step.is_tensor:
        return fit_tensor(step.function, step.ranges, tolerance, request)
    single = request.dtype == "float32"  # where one step cannot be as good as its share, others leave room
    try:
        interval = guarded(step, 2 * shift)
        if quick and step.function == RELU and interval[1] < 0 < interval[2] and request.prefer != "float32":
            return relu_fit(*interval[1:], tolerance, request.dtype)
        return fit_unary(*interval, tolerance, dtype=request.dtype, pinned=pinned, quick=quick, settle=single)
    except Infeasible as why:  # what the step could reach, as an eps of the whole request
        ratio = (why.nearest or {}).get("eps", 0.0) / tolerance
        raise Infeasible(str(why), {"eps": float(f"{1.05 * ratio * request.eps:.2g}")} if ratio > 1 else None) from None


def build(request: Request, design: Design) -> Network:
    """The network of a design, labelled."""
    function, dtype = request.function, request.dtype
    inputs = function.box.names
    names = names_of(design.program, design.steps, inputs)
    forms = Forms(design.program, design.steps, names, [(fit.slope, fit.offset) for fit in design.fits])
    stream = list(inputs)
    layers = []
    for depth in range(max(design.layers) + 1):
        here = [i for i, k in enumerate(design.layers) if k == depth]
        heads: list[Head | ReluBlock] = []
        for i in here:
            fit, read = design.fits[i], [forms(argument) for argument in design.steps[i].arguments]
            rows = [np.array([[form.get(n, 0.0) for n in stream]]) for form, _ in read]
            if isinstance(fit, TensorFit):
                axes = tuple(
                    Axis(rounded(w * row, dtype), rounded([w * constant + c], dtype), slopes[:, None], biases)
                    for (w, c), row, (_, constant), slopes, biases in zip(
                        fit.maps, rows, read, fit.slopes, fit.biases, strict=True
                    )
                )
                keys = ", ".join(f"degree {{{k}}}" for k in range(len(axes)))
                heads.append(Head(names[i], axes, rounded(fit.values, dtype)[..., None], (names[i],), keys))
                continue
            argument, (_, constant) = rows[0], read[0]
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
        Label(name, at[step.phi], at[step.argument], fit.slope, fit.offset, tuple(at[a] for a in step.arguments[1:]))
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
