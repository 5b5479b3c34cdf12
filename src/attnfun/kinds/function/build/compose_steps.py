"""The steps of a program of `compose`: their ranges, how far each moves the outputs, the layers they stand in.

Everything here is in floats and steers: tolerances and layers are chosen by it, nothing is proved.

A step of `compose` with two or three arguments: one tensor head, the Bernstein head of `bernstein.py`.

Where a node has no recipe of one variable, or none that is as small or as shallow, one head on the product grid of its
arguments takes it whole: φ = g(U_1, …, U_d), the U's affine in the variables and in other heads.
Size: a product of degrees, so it pays for two or three smooth arguments.  Bound: *nodes*, by `certify/steps.py`.
Failure mode: Infeasible past `MOST_KEYS` estimated keys, and where g is not defined a little beyond its arguments.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from attnfun.certify.staircase import jumps
from attnfun.errors import AttnfunError, Infeasible, InvalidRequest, feasible
from attnfun.kinds.function.build.bernstein import Bernstein, rough_keys
from attnfun.kinds.function.build.compose_program import Finished, Ranges, argument_names, step_graph
from attnfun.kinds.function.build.plan import Request
from attnfun.kinds.function.build.unary.features import evaluated
from attnfun.kinds.function.build.unary.keys import Array, Fit
from attnfun.kinds.function.build.unary.staircase import staircase
from attnfun.language import ArrayAlgebra, Box, Builder, Graph, Node, run
from attnfun.language.definedness import natural_domain, require_defined
from attnfun.language.function import Function
from attnfun.language.graph import arguments_first
from attnfun.language.ranges import Effort, is_tight, range_of
from attnfun.language.squares import is_square
from attnfun.network import Head


@dataclass(frozen=True)
class Step:
    """One head (or a few that write one coordinate): φ = g(U) for U in [low, high], or a tensor head of several U."""

    phi: int
    arguments: tuple[int, ...]
    function: Graph
    ranges: Ranges

    @property
    def is_tensor(self) -> bool:
        return len(self.arguments) > 1

    @property
    def jumps(self) -> bool:
        return jumps(self.function)

    @property
    def argument(self) -> int:
        return self.arguments[0]

    @property
    def low(self) -> float:
        return self.ranges[0][0]

    @property
    def high(self) -> float:
        return self.ranges[0][1]


def steps_of(finished: Finished, request: Request) -> tuple[Step, ...]:
    """Every step with the ranges of its arguments; to what reads it a step that jumps may have any value between its
    levels.
    """
    nodes = list(finished.graph.nodes)
    builder = Builder()
    at = builder.copy(nodes)
    steps, known, box, effort = [], dict[int, tuple[float, float]](), request.function.box, Effort()
    for (phi, arguments), plainly in zip(finished.heads, finished.plainly, strict=True):
        g = step_graph(builder, at[phi], tuple(at[a] for a in arguments))
        least, most = natural_domain(g) if len(arguments) == 1 else (-math.inf, math.inf)
        for argument, plain in zip(arguments, plainly, strict=True):  # ranges may overhang the natural domain of g
            graph = Graph(tuple(nodes), (argument,))
            ((low, high),) = range_of(graph, box, known=known, within=(least, most), effort=effort)
            if not (jumps(plain) or is_tight(plain, box, low, high)):
                ((a, b),) = range_of(plain, box, within=(least, most), effort=effort)
                low, high = max(low, a), min(high, b)
            if not (math.isfinite(low) and math.isfinite(high) and high > low):
                raise Infeasible(f"compose: {finished.graph.text(argument, 80)} is not bounded on the box, or constant")
            known[argument] = max(low, least), min(high, most)
        step = Step(phi, arguments, g, tuple(known[a] for a in arguments))
        if step.jumps:
            _, levels = staircase(g, step.low, step.high)
            feasible(len(levels) > 1, "compose: a step that does not jump on the range of its argument")
            name = f"jump{phi}"
            nodes[phi] = Node("var", (), name)
            box = Box((*box.names, name), (*box.low, min(levels)), (*box.high, max(levels)))
        steps.append(step)
    return tuple(steps)


# ---------------------------------------------------------------- affine forms in floats


_ROUNDED = 1.8e-7  # the root of 12 roundings of values of size 24
T = TypeVar("T", float, Fraction)
Form = tuple[dict[str | int, T], T]  # coefficients by variable and by index of a step, and a constant


def affine(op: str, parts: Sequence[Form[T]]) -> Form[T] | None:
    """The form of an operation on forms; None where it is no affine one."""
    (terms, constant), (others, other) = parts[0], parts[-1]
    if op == "neg":
        return affine("sub", [({}, constant - constant), parts[0]])
    if op in ("add", "sub"):
        sign, sums = 1 if op == "add" else -1, dict(terms)
        for name, value in others.items():
            sums[name] = sums.get(name, 0) + sign * value
        return sums, constant + sign * other
    if op == "mul" and not terms:
        terms, constant, others, other = others, other, terms, constant
    if op not in ("mul", "div") or others or (op == "div" and not other):
        return None
    factor = other if op == "mul" else 1 / other
    return {name: 0 + factor * value for name, value in terms.items()}, 0 + factor * constant


def constants(nodes: Sequence[Node]) -> list[bool]:
    """Of every node whether it reads no variable."""
    found: list[bool] = []
    for node in nodes:
        found.append(node.op != "var" and all(found[a] for a in node.args))
    return found


class Forms:
    """Affine forms of program nodes, in floats: coefficients by variable and by index of a step, and a constant. In
    φ's, and in the coordinates of the stream once the affine parts (slope, offset) that the steps leave to it are
    known.
    """

    def __init__(
        self, program: Graph, steps: tuple[Step, ...], parts: Sequence[tuple[float, float]] | None = None
    ) -> None:
        self.program, self.steps = program, steps
        self.index = {s.phi: i for i, s in enumerate(steps)}
        self.parts = parts if parts is not None else [(0.0, 0.0)] * len(steps)
        self.memo: dict[int, Form[float]] = {}
        self._constant = constants(program.nodes)

    def __call__(self, node: int) -> Form[float]:
        """(coefficients, constant)."""
        for i in arguments_first(node, self._needs, self.memo):
            self.memo[i] = self._form(i)
        return self.memo[node]

    def read(self, node: int) -> dict[int, float]:
        """The steps that a node reads, with the sizes of their coefficients."""
        return {i: abs(v) for i, v in self(node)[0].items() if isinstance(i, int)}

    def _needs(self, i: int) -> tuple[int, ...]:
        """The nodes whose forms the form of node i is made of."""
        k = self.index.get(i)
        if k is not None:
            return (self.steps[k].argument,) if self.parts[k][0] else ()
        return () if self._constant[i] else self.program.nodes[i].args

    def _form(self, i: int) -> Form[float]:
        node, k = self.program.nodes[i], self.index.get(i)
        if k is not None:
            slope, offset = self.parts[k]
            if not slope:
                return {k: 1.0}, offset
            form, constant = self.memo[self.steps[k].argument]
            out = {n: slope * v for n, v in form.items()}
            out[k] = out.get(k, 0.0) + 1.0
            return out, slope * constant + offset
        if node.op == "var":
            return {str(node.value): 1.0}, 0.0
        if self._constant[i]:
            return {}, float(run(self.program.reachable((i,)), ArrayAlgebra(), {})[0])
        made = affine(node.op, [self.memo[a] for a in node.args])
        if made is None:
            raise Infeasible(f"compose: {self.program.text(i, 80)} is not affine in the steps before it")
        return made

    # ------------------------------------------------------------ tolerances and layers

    def norms(self) -> dict[int, dict[int, float]]:
        """Steps that are a root of a sum of squares coming down to 0: for each the squares' steps, with their
        weights.
        """
        found, steps = {}, self.steps
        for j, step in enumerate(steps):
            if step.is_tensor or not (step.low <= 1e-3 * step.high and natural_domain(step.function)[0] == 0):
                continue
            form, constant = self(step.argument)
            squares = {n: w for n, w in form.items() if isinstance(n, int) and w > 0 and is_square(steps[n].function)}
            if constant >= 0 and len(squares) == len(form):
                found[j] = squares
        return found

    def sensitivities(
        self, norms: dict[int, dict[int, float]], eps: float | None, allowed: Mapping[int, float] | None = None
    ) -> list[float]:
        """How much the outputs move for a unit error of each step: products of the largest slopes along paths, summed.

        A norm N = √(Σ β_i p_i²), or a function h of it, moves by h' √β_i for a unit error of p_i, and by h' N/(2 r²)
        for a unit error of the pinned square at its reach r, an error that falls with p_i². Without `eps` no slope is
        above 1. The argument of a step that jumps may be off by what `allowed` says of it: the share of eps that this
        takes is the whole.
        """
        steps = self.steps
        weight, through = [0.0] * len(steps), [0.0] * len(steps)  # `through`: of the argument of a square, in norms
        for o in self.program.outputs:
            for i, size in self.read(o).items():
                weight[i] = max(weight[i], size)
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
            slopes: tuple[float, ...] = (1.0,) if weight[j] else (0.0,)
            if step.is_tensor:
                slopes = _gradient(step)
            elif step.jumps:
                slopes = (eps / allowed[j] / weight[j],) if eps is not None and allowed else (1.0,)
            elif weight[j] and eps is not None:
                slopes = (_slope(step, 0.25 * eps / weight[j]),)
            for argument, one in zip(step.arguments, slopes, strict=True):
                slope = one * weight[j] if not through[j] else through[j]
                for i, size in self.read(argument).items():
                    weight[i] += size * slope
        return weight

    def graded(self, norms: dict[int, dict[int, float]], weights: Sequence[float], eps: float) -> set[int]:
        """Squares of norms for which rounding of pinned heads of a few keys, about `_ROUNDED` of their reach under the
        root, would move the outputs by eps.
        """
        found: set[int] = set()
        for j, parts in norms.items():
            reaches = (beta * max(abs(self.steps[i].low), abs(self.steps[i].high)) ** 2 for i, beta in parts.items())
            if _ROUNDED * weights[j] * _root_slope(self.steps[j]) * math.sqrt(sum(reaches)) > eps:
                found |= parts.keys()
        return found

    def shifts(self, norms: dict[int, dict[int, float]], tolerances: tuple[float, ...]) -> list[float]:
        """How far the (first) argument of each step may be off: tolerances carried forward by the largest slopes.

        Sums of pinned squares stray below 0 by little more than rounding.
        """
        errors: list[float] = []
        shifts = []
        for j, (step, tolerance) in enumerate(zip(self.steps, tolerances, strict=True)):
            moves = [sum(size * errors[i] for i, size in self.read(a).items()) for a in step.arguments]
            shift, carried = max(moves), tolerance
            if step.jumps:
                carried = 0.0
            elif step.is_tensor:
                carried = sum(slope * move for slope, move in zip(_gradient(step), moves, strict=True))
            elif shift and j not in norms:
                carried = _slope(step, tolerance) * shift
            errors.append(tolerance + (carried if shift else 0.0))
            shifts.append(1e-12 * step.high if j in norms else shift)
        return shifts

    def layers(self) -> tuple[int, ...]:
        """The first layer in which all arguments of each step are known."""
        layers: list[int] = []
        for step in self.steps:
            layers.append(1 + max((layers[i] for a in step.arguments for i in self.read(a)), default=-1))
        return tuple(layers)


def names_of(program: Graph, steps: tuple[Step, ...], inputs: tuple[str, ...]) -> list[str]:
    """A readable, unique name for every coordinate."""
    names: dict[str, int] = dict.fromkeys(inputs, 1)  # how often each was asked for
    for step in steps:
        text = name = program.text(step.phi, 48)
        while name in names:
            names[text] += 1
            name = f"{text} ({names[text]})"
        names[name] = 1
    return list(names)[len(inputs) :]


def _steepest(g: Array, u: Array) -> float:
    """The largest finite difference quotient."""
    with np.errstate(all="ignore"):
        slopes = np.abs(np.diff(g) / np.diff(u))
    return float(slopes[np.isfinite(slopes)].max(initial=0.0))


def _root_slope(step: Step) -> float:
    """sup |h'| of h(t) = g(t²), by differences."""
    t = np.linspace(0, math.sqrt(step.high), 801)
    return _steepest(evaluated(step.function, np.clip(t * t, step.low, step.high)), t)


def guarded(step: Step, margin: float) -> tuple[Graph, float, float]:
    """g with its interval; at an end of g's natural domain (a root at 0) continued by its end value over `margin`.

    The argument a head sees may stray past such an end, where g means nothing: the head must stay put there.
    """
    least, most = natural_domain(step.function)
    low_end, high_end = margin > 0 and step.low <= least, margin > 0 and step.high >= most
    if not (low_end or high_end):
        return step.function, step.low, step.high
    out = Builder()
    u = out.var("u")
    if low_end:
        end = out.const(Fraction(step.low))
        u = out.apply("add", out.apply("relu", out.apply("sub", u, end)), end)
    if high_end:
        end = out.const(Fraction(step.high))
        u = out.apply("sub", end, out.apply("relu", out.apply("sub", end, u)))
    graph = out.graph(out.substitute(step.function, u))
    return graph, step.low - margin * low_end, step.high + margin * high_end


def _slope(step: Step, allowed: float) -> float:
    """sup |g'| on the range by differences; where g has no slope (a root at 0), the chord that costs `allowed`."""
    s = np.concatenate([np.linspace(0, 1, 401), np.geomspace(1e-15, 0.5, 200), 1 - np.geomspace(1e-15, 0.5, 200)])
    u = np.unique(np.clip(step.low + (step.high - step.low) * s, step.low, step.high))
    g = evaluated(step.function, u)
    steep, inner = _steepest(g, u), g[np.isfinite(g)]
    if not steep or steep <= 1e3 * (float(np.ptp(inner)) / (step.high - step.low)):
        return steep
    low, high = 1e-30 * (step.high - step.low), step.high - step.low
    for _ in range(100):
        middle = math.sqrt(low * high)
        moved = np.clip(u + middle, step.low, step.high)
        with np.errstate(all="ignore"):
            change = np.abs(evaluated(step.function, moved) - g)
        low, high = (middle, high) if np.nanmax(change) <= allowed else (low, middle)
    return min(steep, allowed / max(low, 5e-324))


def _gradient(step: Step) -> tuple[float, ...]:
    """sup |∂_k g| over a grid of the ranges, by differences."""
    count = {2: 33, 3: 13}[len(step.arguments)]
    names = argument_names(len(step.arguments))
    lines = [np.linspace(a, b, count) for a, b in step.ranges]
    grid = dict(zip(names, np.meshgrid(*lines, indexing="ij"), strict=True))
    with np.errstate(all="ignore"):
        g = np.asarray(run(step.function, ArrayAlgebra(), grid)[0], dtype=np.float64)
    steps = (np.abs(np.diff(g, axis=k)) / (line[1] - line[0]) for k, line in enumerate(lines))
    return tuple(float(np.nanmax(np.where(np.isfinite(s), s, 0.0))) for s in steps)


MOST_KEYS = 1500
_MARGIN = 1e-6  # of the width of a range: how far beyond it g must be defined


def tensor_keys(g: Graph, ranges: Ranges, eps: float = 1e-7) -> float:
    """Estimated keys of a head for g on the product of `ranges`, `eps` a fraction of g's range there."""
    function = _function(g, ranges)
    with np.errstate(all="ignore"):
        values = function.values(function.box.probe(256, np.random.default_rng(0)))
    feasible(np.isfinite(values).all(), "compose: a step is not defined on the ranges of its arguments")
    return rough_keys(Request(function, eps * max(float(np.ptp(values)), 1e-300), math.inf, "float64"))


def require_room(g: Graph, ranges: Ranges) -> None:
    """Infeasible unless g is defined a little beyond its ranges, where errors of the arguments may take it."""
    wide = tuple((a - _MARGIN * (b - a), b + _MARGIN * (b - a)) for a, b in ranges)
    try:
        require_defined(g, _function(g, wide).box)
    except AttnfunError as why:
        raise Infeasible(f"compose: a tensor step needs room around its arguments ({why})") from None


def fit_tensor(g: Graph, ranges: Ranges, tolerance: float, request: Request) -> Fit:
    """The smallest Bernstein head within `tolerance` of g on the product of `ranges`."""
    own = replace(request, function=_function(g, ranges), eps=tolerance, max_keys=min(request.max_keys, 4 * MOST_KEYS))
    bernstein = Bernstein()
    (head,) = bernstein.build(own, bernstein.plan(own)).heads
    assert isinstance(head, Head)
    return Fit((replace(head, key_names=", ".join(f"degree {{{k}}}" for k in range(len(ranges)))),))


def _function(g: Graph, ranges: Ranges) -> Function:
    names = argument_names(len(ranges))
    feasible(all(a < b for a, b in ranges), "compose: an argument of a step does not vary on the box")
    try:
        box = Box(names, tuple(a for a, _ in ranges), tuple(b for _, b in ranges))
    except InvalidRequest as why:
        raise Infeasible(f"compose: the argument of a step is not bounded on the box ({why})") from None
    return Function(g, box, ("g",))
