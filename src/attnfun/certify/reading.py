"""What labels say, read off their program: affine forms, functions of one variable, ranges of arguments.

Nothing is believed: φ must depend on its U alone, and U be affine in inputs and earlier φ's.
Failure mode: Undecided where the program has another shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from flint import arb

from attnfun.certify.identity import in_terms_of
from attnfun.certify.view import Undecided, provided
from attnfun.language import BallAlgebra, Box, Builder, Graph, Node, run
from attnfun.language.definedness import natural_domain
from attnfun.language.function import Function
from attnfun.language.graph import arguments_first
from attnfun.language.ranges import Effort, is_tight, plain_ranges, range_of
from attnfun.language.relu_ranges import ReluRanges
from attnfun.language.removable import resolved
from attnfun.network import Label, Labels

_LARGE = 400  # nodes of a ReLU network above which its ranges are those of `relu_ranges` alone


@dataclass
class Form:
    """An affine form with ball coefficients, twice: in the inputs and φ's (by label name; what it means) and in the
    inputs and the stream's coordinates (for comparison with stored weights), each with its constant.
    """

    phis: dict[str, arb] = field(default_factory=dict)
    meant: arb = field(default_factory=lambda: arb(0))
    stream: dict[str, arb] = field(default_factory=dict)
    constant: arb = field(default_factory=lambda: arb(0))

    def plus(self, other: Form, factor: arb) -> Form:
        meant, constant = self.meant + factor * other.meant, self.constant + factor * other.constant
        out = Form(dict(self.phis), meant, dict(self.stream), constant)
        for mine, yours in ((out.phis, other.phis), (out.stream, other.stream)):
            for name, value in yours.items():
                mine[name] = mine.get(name, arb(0)) + factor * value
        return out


class Reading:
    """The program of some labels; every answer is derived from its nodes."""

    def __init__(self, labels: Labels, function: Function) -> None:
        if function.graph is None:
            raise Undecided("composition: a black box has no expression to compare labels with")
        if function.source is not None:
            labels = _continued(labels, function.box)
        self.function, self.program = function, labels.program
        self.relaxed, self.box = labels.program, function.box  # see `release`
        self.by_phi = {label.phi: label for label in labels.coordinates}
        self.by_name = {label.name: label for label in labels.coordinates}
        if len(self.by_phi) != len(labels.coordinates) or len(self.by_name) != len(labels.coordinates):
            raise Undecided("composition: two labels for one coordinate or one node")
        self.ranges: dict[int, tuple[float, float]] = {}  # of the arguments U
        self._effort = Effort()
        self._forms: dict[int, Form] = {}
        self._constant: list[bool] = []
        self.units = ReluRanges.of(self.program, function.box)  # None if there is more than affine maps and relu
        for node in self.program.nodes:
            self._constant.append(node.op != "var" and all(self._constant[a] for a in node.args))

    @cached_property
    def _plain(self) -> list[tuple[float, float]]:
        return plain_ranges(self.program, self.function.box)

    def release(self, label: Label, ends: tuple[float, float]) -> str:
        """Let φ take any value between `ends`, whatever its argument is, in all ranges that are asked for from now on:
        in the program `relaxed` a variable stands in its place, `box` has the ends. The variable's name.
        """
        name = f"jump{label.phi}"
        while name in self.box.names:
            name += "_"
        nodes = list(self.relaxed.nodes)
        nodes[label.phi] = Node("var", (), name)
        self.relaxed = Graph(tuple(nodes), self.relaxed.outputs)
        self.box = Box((*self.box.names, name), (*self.box.low, ends[0]), (*self.box.high, ends[1]))
        return name

    def form(self, node: int) -> Form:
        """The affine form of a program node; Undecided if it is not affine in inputs and labelled φ's."""
        for index in arguments_first(node, lambda i: reversed(self._needs(i)), self._forms):
            self._forms[index] = self._form(index)
        return self._forms[node]

    def _needs(self, index: int) -> list[int]:
        """The nodes whose forms the form of this one is made of."""
        label, node = self.by_phi.get(index), self.program.nodes[index]
        if label is not None:
            provided(max(label.arguments) < index, f"composition: the label of {label.name} refers forward")
            return [] if label.further else [label.argument]
        if node.op not in ("add", "sub", "neg", "mul", "div", "relu"):
            return []
        return [a for a in node.args if not self._constant[a]]

    def _form(self, index: int) -> Form:
        node = self.program.nodes[index]
        label = self.by_phi.get(index)
        if label is not None:
            if label.further:
                provided(label.slope == 0, f"composition: the label of {label.name} has a slope in several arguments")
                return Form({label.name: arb(1)}, arb(0), {label.name: arb(1)}, arb(label.offset))
            inner = self.form(label.argument)
            slope = arb(label.slope)
            stream = {name: slope * value for name, value in inner.stream.items()}
            stream[label.name] = stream.get(label.name, arb(0)) + 1
            return Form({label.name: arb(1)}, arb(0), stream, slope * inner.constant + arb(label.offset))
        if node.op == "var":
            name = str(node.value)
            return Form({name: arb(1)}, arb(0), {name: arb(1)}, arb(0))
        if self._constant[index]:
            return Form(meant=self.value(index), constant=self.value(index))
        args = node.args
        if node.op in ("add", "sub"):
            return self.form(args[0]).plus(self.form(args[1]), arb(1 if node.op == "add" else -1))
        if node.op == "neg":
            return Form().plus(self.form(args[0]), arb(-1))
        if node.op == "mul" and any(self._constant[a] for a in args):
            factor, other = args if self._constant[args[0]] else args[::-1]
            return Form().plus(self.form(other), self.value(factor))
        if node.op == "div" and self._constant[args[1]]:
            return Form().plus(self.form(args[0]), 1 / self.value(args[1]))
        sign = self.units.sign(args[0]) if node.op == "relu" and self.units is not None else 0
        if sign:  # relu(U) is U where U ≥ 0 on the whole box, and 0 where U ≤ 0
            return self.form(args[0]) if sign > 0 else Form()
        raise Undecided(f"composition: {self.program.text(index, 80)} is no affine form of the labelled coordinates")

    def is_constant(self, index: int) -> bool:
        return self._constant[index]

    def value(self, index: int) -> arb:
        """A constant of the program."""
        value = run(self.program.reachable((index,)), BallAlgebra(), {})[0]
        provided(value.is_finite(), "composition: a constant of the program is not finite")
        return value

    def unary(self, label: Label) -> Graph:
        """g with φ = g(U), variable "u" (of a tensor head "u1", "u2", …); Undecided if φ reaches an input by another
        way than its arguments.
        """
        out = Builder()
        at: dict[int, int] = {label.argument: out.var("u")}
        if label.further:
            at = {argument: out.var(f"u{k}") for k, argument in enumerate(label.arguments, start=1)}
        provided(len(at) == len(label.arguments), f"composition: the label of {label.name} names an argument twice")
        for index in arguments_first(label.phi, lambda i: reversed(self.program.nodes[i].args), at):
            node = self.program.nodes[index]
            if node.op == "var":
                raise Undecided(f"composition: the label of {label.name} depends on {node.value} past its argument")
            at[index] = out.apply(node.op, *(at[a] for a in node.args), value=node.value)
        return out.graph([at[label.phi]])

    def argument_range(self, label: Label, g: Graph) -> tuple[float, float]:
        """The range of U over the box, rigorous; g(U) was proved defined, so U never leaves g's natural domain."""
        return self._range(label.argument, *natural_domain(g))

    def argument_ranges(self, label: Label) -> list[tuple[float, float]]:
        """The ranges of the arguments of a tensor head."""
        return [self._range(argument, -math.inf, math.inf) for argument in label.arguments]

    def _range(self, argument: int, least: float, most: float) -> tuple[float, float]:
        box, graph = self.box, Graph(self.relaxed.nodes, (argument,))
        exact = set(graph.reachable((argument,)).variables) <= set(self.function.box.names)
        if self.units is not None and len(self.program.nodes) > _LARGE:
            (low, high), (a, b) = self.units(argument), self._plain[argument]
            low, high = max(low, a), min(high, b)
        else:
            ((low, high),) = range_of(graph, box, known=self.ranges, within=(least, most), effort=self._effort)
            if exact and self._effort.left > 0 and not is_tight(graph, box, low, high):
                # the target may say it better: products are not written as squares
                box = self.function.box
                other = in_terms_of(self.program, argument, self.function.formula, box)
                if other is not None:
                    ((a, b),) = range_of(other, box, within=(least, most), effort=self._effort)
                    low, high = max(low, a), min(high, b)
        low, high = max(low, least), min(high, most)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise Undecided(f"composition: {self.program.text(argument, 60)} could not be bounded")
        self.ranges[argument] = low, high
        return low, high


def _continued(labels: Labels, box: Box) -> Labels:
    """The same labels on the program with its removable divisions continued; files hold plain divisions only."""
    program, at = resolved(labels.program, box)
    moved = (
        replace(c, phi=at[c.phi], argument=at[c.argument], further=tuple(at[a] for a in c.further))
        for c in labels.coordinates
    )
    return Labels(program, tuple(moved))
