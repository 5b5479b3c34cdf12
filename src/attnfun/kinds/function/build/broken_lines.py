"""Broken lines as programs: targets made of affine forms, clip, relu, abs, max and min.

Walks an expression bottom up and writes a program (as `compose` does) in which every step is a *unit* φ, relu(U) or
clip(U, a, b), U affine in the variables and in earlier units:

    max(A, B) = B + relu(A − B),    min(A, B) = A − relu(A − B),    |A| = 2 relu(A) − A,
    relu(A) = A + relu(−A), whichever has the shorter range,        min(max(A, a), b) as it stands, if both ends matter.

Equal units, and relu of opposite arguments, are one. Where the proved range of an argument decides a branch, the branch
is taken. All are identities on the box.
Failure mode: Infeasible for anything else, with the part that is not affine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from attnfun.errors import Infeasible, InvalidRequest, feasible, require
from attnfun.kinds.function.build.compose_program import step_graph
from attnfun.kinds.function.build.compose_steps import Form, Forms, Step, affine, constants
from attnfun.language import ArrayAlgebra, Box, Builder, Graph, run
from attnfun.language.graph import arguments_first, reached
from attnfun.language.ranges import Effort, range_of

_FREE = ("add", "sub", "neg", "mul", "div")
Key = tuple[frozenset[tuple[str | int, Fraction]], Fraction]  # of a form in variables and units


@dataclass(frozen=True)
class Unit:
    """φ = clip(U, low, high) on the box: a relu has low = 0 and for high the end of U's range."""

    step: Step
    low: float
    high: float


@dataclass(frozen=True)
class BrokenLine:
    """A program and its units, in an order in which arguments come first."""

    program: Graph
    units: tuple[Unit, ...]

    @property
    def forms(self) -> Forms:
        return Forms(self.program, tuple(unit.step for unit in self.units))


def broken_line(graph: Graph, box: Box) -> BrokenLine:
    """The program of a target."""
    walk = _Walk(graph, box)
    program = walk.program([walk.at(o) for o in graph.outputs])
    used = reached(program.outputs, lambda i: program.nodes[i].args)
    return BrokenLine(program, tuple(unit for phi, unit in walk.units.items() if phi in used))


class _Walk:
    def __init__(self, graph: Graph, box: Box) -> None:
        self.graph, self.box = graph, box
        self.builder, self._effort = Builder(), Effort()
        self.units: dict[int, Unit] = {}
        self.known: dict[int, tuple[float, float]] = {}
        self._done: dict[int, int] = {}
        self._relus: dict[Key, int] = {}
        self._forms: dict[int, Form[Fraction] | None] = {}
        self._constant = constants(graph.nodes)

    def program(self, outputs: Sequence[int]) -> Graph:
        return Graph(self.builder.nodes[: max(outputs) + 1], tuple(outputs))

    def at(self, index: int) -> int:
        """Where a node of the target came to lie in the program."""
        for i in arguments_first(index, lambda i: (self._clip(i) or self.graph.nodes[i].args)[::-1], self._done):
            self._done[i] = self._write(i)
        return self._done[index]

    def _clip(self, i: int) -> tuple[int, int, int] | None:
        """(A, inner end, outer end) of min(max(A, a), b) or max(min(A, b), a) with constant ends."""
        node = self.graph.nodes[i]
        split = self._with_constant(i, ("min", "max"))
        if split is None:
            return None
        inner = self._with_constant(split[0], ("max",) if node.op == "min" else ("min",))
        return None if inner is None else (*inner, split[1])

    def _with_constant(self, i: int, ops: tuple[str, ...]) -> tuple[int, int] | None:
        node = self.graph.nodes[i]
        if node.op not in ops:
            return None
        a, b = node.args
        if self._constant[a] == self._constant[b]:
            return None
        return (b, a) if self._constant[a] else (a, b)

    def _write(self, i: int) -> int:
        node, out = self.graph.nodes[i], self.builder
        clip = self._clip(i)
        if clip is not None:
            return self._clipped(node.op, clip)
        args = [self._done[a] for a in node.args]
        if self._constant[i] or node.op in ("var", "add", "sub", "neg"):
            return out.apply(node.op, *args, value=node.value)
        factors = {"mul": node.args, "div": node.args[1:]}.get(node.op, ())
        if any(self._constant[a] for a in factors):
            return out.apply(node.op, *args)
        if node.op == "relu":
            return self._relu(args[0])
        if node.op == "abs":
            low, high = self._range(args[0])
            if low >= 0:
                return args[0]
            if high <= 0:
                return out.apply("neg", args[0])
            return out.apply("sub", out.apply("mul", out.const(2), self._relu(args[0])), args[0])
        if node.op in ("max", "min"):
            op, outer = ("add", args[1]) if node.op == "max" else ("sub", args[0])
            return out.apply(op, outer, self._relu(out.apply("sub", *args)))
        why = "is not made of affine forms, clip, relu, abs, max and min"
        raise Infeasible(f"interpolation: {self.graph.text(i, 60)} {why}")

    def _relu(self, argument: int) -> int:
        """relu of a program node: a unit, or one that is there already, or a branch."""
        out, form = self.builder, self._form(argument)
        if form is not None:
            if not form[0]:
                return out.const(max(form[1], Fraction(0)))
            if _key(form, 1) in self._relus:
                return self._relus[_key(form, 1)]
            if _key(form, -1) in self._relus:
                return out.apply("add", argument, self._relus[_key(form, -1)])
        low, high = self._range(argument)
        if low >= 0:
            return argument
        if high <= 0:
            return out.const(0)
        if high <= -low:
            return self._relu_unit(argument, high)
        other = out.apply("neg", argument)
        self.known[other] = (-high, -low)
        return out.apply("add", argument, self._relu_unit(other, -low))

    def _relu_unit(self, argument: int, high: float) -> int:
        phi = self._unit(self.builder.apply("relu", argument), argument, 0.0, high)
        form = self._form(argument)
        if form is not None:
            self._relus[_key(form, 1)] = phi
        return phi

    def _form(self, index: int) -> Form[Fraction] | None:
        """The affine form of a program node in variables and units, if its coefficients are rational."""
        for i in arguments_first(index, self._addends, self._forms):
            self._forms[i] = self._read_form(i)
        return self._forms[index]

    def _addends(self, index: int) -> tuple[int, ...]:
        node = self.builder.node(index)
        return node.args if node.op in _FREE and index not in self.units else ()

    def _read_form(self, index: int) -> Form[Fraction] | None:
        node = self.builder.node(index)
        if isinstance(node.value, Fraction) and node.op == "const":
            return {}, node.value
        if node.op == "var" or index in self.units:
            return {str(node.value) if node.op == "var" else index: Fraction(1)}, Fraction(0)
        parts = [form for a in self._addends(index) if (form := self._forms[a]) is not None]
        made = affine(node.op, parts) if parts and len(parts) == len(node.args) else None
        return made and ({name: value for name, value in made[0].items() if value}, made[1])

    def _clipped(self, op: str, clip: tuple[int, int, int]) -> int:
        """min(max(A, inner), outer) for op min, max(min(A, inner), outer) for op max; its ends a, b are lo, hi."""
        out = self.builder
        argument, inner, outer = (self._done[part] for part in clip)
        (a, b), (lo, hi) = (inner, outer), (self._value(clip[1]), self._value(clip[2]))
        if op == "max":
            a, b, lo, hi = b, a, hi, lo
        low, high = self._range(argument)
        if not lo < hi:
            return outer
        if low < lo and high > hi:
            return self._whole(op, clip, lo, hi)
        if low >= hi:
            return b
        if high <= lo:
            return a
        if high > hi:
            return out.apply("sub", argument, self._relu(out.apply("sub", argument, b)))
        if low < lo:
            return out.apply("add", a, self._relu(out.apply("sub", argument, a)))
        return argument

    def _whole(self, op: str, clip: tuple[int, int, int], lo: float, hi: float) -> int:
        """The clip as one unit."""
        argument, inner, outer = (self._done[part] for part in clip)
        first = self.builder.apply("max" if op == "min" else "min", argument, inner)
        return self._unit(self.builder.apply(op, first, outer), argument, lo, hi)

    def _unit(self, phi: int, argument: int, low: float, high: float) -> int:
        if phi not in self.units:
            unary = step_graph(self.builder, phi, (argument,))
            self.units[phi] = Unit(Step(phi, (argument,), unary, (self._range(argument),)), low, high)
        return phi

    def _range(self, argument: int) -> tuple[float, float]:
        if argument not in self.known:
            graph = self.program([argument])
            ((low, high),) = range_of(graph, self.box, known=self.known, effort=self._effort)
            if not (math.isfinite(low) and math.isfinite(high)):
                raise Infeasible(f"interpolation: {graph.text(argument, 60)} could not be bounded")
            self.known[argument] = low, high
        return self.known[argument]

    def _value(self, i: int) -> float:
        value = float(run(self.graph.reachable((i,)), ArrayAlgebra(), {})[0])
        feasible(math.isfinite(value), f"interpolation: the constant {self.graph.text(i, 60)} is not finite")
        return value


def _key(form: Form[Fraction], sign: int) -> Key:
    """The form, or the opposite one, as a key: equal forms have equal keys."""
    return frozenset((name, sign * value) for name, value in form[0].items()), sign * form[1]


def single_clip(graph: Graph, box: Box) -> BrokenLine:
    """The program of clip(A, a, b) as one unit, whatever part of it the box shows."""
    walk = _Walk(graph, box)
    (output,) = graph.outputs
    clip = walk._clip(output)
    if clip is None:
        raise InvalidRequest(f"{graph.text(output, 80)} is no truncated function of a varying query")
    walk.at(clip[0])
    require(not walk.units, f"the query {graph.text(clip[0], 60)} is not affine")
    for end in clip[1:]:
        walk.at(end)
    ends = sorted(walk._value(end) for end in clip[1:])
    phi = walk._whole(graph.nodes[output].op, clip, ends[0], ends[1])
    return BrokenLine(walk.program([phi]), (walk.units[phi],))
