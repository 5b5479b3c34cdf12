"""A graph of affine maps and relu, unit by unit, in exact rational arithmetic.

Such a graph is a ReLU network: unit j is φ_j = relu(z_j), z_j = c_j + Σ_k w_jk y_k, the y_k variables or earlier units;
the outputs are affine in variables and units. `read_units` finds the w's and c's, exactly. Shared affine nodes are
multiplied out, a relu of a constant is a constant, and a *level* holds the units that need units of lower levels only.
Failure mode: None for a graph with any other operation, a product of two things that vary, or very long constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from attnfun.language.graph import Graph, Node, bits, rational, reached

Floats = npt.NDArray[np.float64]

MAX_ENTRIES: Final = 1 << 26  # of a matrix of all units
MAX_BITS: Final = 8_192  # of a constant that is worked out here


@dataclass(frozen=True)
class AffineForm:
    """constant + Σ weights[i] · (node i), every i a variable or a unit."""

    weights: Mapping[int, Fraction]
    constant: Fraction


@dataclass(frozen=True)
class Unit:
    """The node φ = relu(argument), and the argument as an affine form."""

    node: int
    argument: int
    form: AffineForm


@dataclass(frozen=True)
class Dense:
    """The units in doubles, each weight rounded once: z = weights y + constants for y = (inputs, units), the outputs
    likewise; `levels`, the units of each level.
    """

    weights: Floats
    constants: Floats
    readout: Floats
    readout_constants: Floats
    levels: tuple[npt.NDArray[np.intp], ...]

    def values(self, X: Floats) -> Floats:
        """(n, inputs) → (n, outputs), level by level, with the rounding of matrix products."""
        d = X.shape[1]
        Y = np.zeros((len(X), self.weights.shape[1]))
        Y[:, :d] = X
        for level, read in zip(self.levels, self._reads, strict=True):
            Y[:, d + level] = np.maximum(Y[:, read] @ self.weights[level][:, read].T + self.constants[level], 0.0)
        return np.asarray(Y @ self.readout.T + self.readout_constants)

    @cached_property
    def _reads(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The columns of y that each level reads: a deep network of narrow levels reads few."""
        return tuple(np.flatnonzero(self.weights[level].any(axis=0)) for level in self.levels)


class ReluUnits:
    """The units of a graph in the order of their nodes, and affine forms of any of its nodes."""

    def __init__(self, graph: Graph, constants: list[Fraction | None]) -> None:
        self.graph, self._constants = graph, constants
        self.variables = {i: str(n.value) for i, n in enumerate(graph.nodes) if n.op == "var"}
        self._units = {i for i, n in enumerate(graph.nodes) if n.op == "relu" and constants[i] is None}

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        nodes = self.graph.nodes
        return tuple(Unit(i, nodes[i].args[0], self.form(nodes[i].args[0])) for i in sorted(self._units))

    @cached_property
    def levels(self) -> dict[int, int]:
        """1 for a unit that needs variables only, else one more than the highest unit it needs."""
        found: dict[int, int] = {}
        for unit in self.units:
            found[unit.node] = 1 + max((found[i] for i in unit.form.weights if i in found), default=0)
        return found

    @cached_property
    def outputs(self) -> tuple[AffineForm, ...]:
        return tuple(self.form(o) for o in self.graph.outputs)

    def columns(self, names: Sequence[str]) -> dict[int, int]:
        """Where variables and units stand in y = (inputs in the order of `names`, units)."""
        at = {name: k for k, name in enumerate(names)}
        found = {i: at[name] for i, name in self.variables.items()}
        return found | {unit.node: len(names) + j for j, unit in enumerate(self.units)}

    def row(self, form: AffineForm, columns: Mapping[int, int], width: int) -> tuple[Floats, float]:
        """A form in doubles; OverflowError if a weight is past them."""
        row = np.zeros(width)
        for i, weight in form.weights.items():
            row[columns[i]] = float(weight)
        return row, float(form.constant)

    def dense(self, names: Sequence[str]) -> Dense:
        columns, width = self.columns(names), len(names) + len(self.units)
        if width * len(self.units) > MAX_ENTRIES:
            raise OverflowError(f"{len(self.units):,} units: their matrix would not fit")
        rows = [self.row(unit.form, columns, width) for unit in self.units]
        outs = [self.row(form, columns, width) for form in self.outputs]
        level = np.array([self.levels[unit.node] for unit in self.units])
        return Dense(
            np.stack([row for row, _ in rows]),
            np.array([constant for _, constant in rows]),
            np.stack([row for row, _ in outs]),
            np.array([constant for _, constant in outs]),
            tuple(np.flatnonzero(level == depth) for depth in range(1, int(level.max()) + 1)),
        )

    def form(self, index: int) -> AffineForm:
        """The node as an affine form: factors are carried from it down to variables and units, each node once."""
        nodes, constants = self.graph.nodes, self._constants
        total, weights = Fraction(0), dict[int, Fraction]()
        factors: dict[int, Fraction] = {index: Fraction(1)}
        for i in _cone(nodes, index, self._units, constants):
            factor = factors.pop(i)
            value, node = constants[i], nodes[i]
            if value is not None:
                total += factor * value
            elif node.op == "var" or i in self._units:
                if factor:
                    weights[i] = factor
            else:
                for arg, part in _shares(node, factor, constants):
                    factors[arg] = factors[arg] + part if arg in factors else part
        return AffineForm(weights, total)


def read_units(graph: Graph) -> ReluUnits | None:
    """The units of a graph that is a ReLU network with at least one unit, else None."""
    constants: list[Fraction | None] = []
    for node in graph.nodes:
        args = [constants[a] for a in node.args]
        known = [a for a in args if a is not None]
        if node.op == "const":
            assert isinstance(node.value, Fraction)
            value: Fraction | None = node.value
        elif node.op == "var":
            value = None
        elif node.op not in ("neg", "add", "sub", "mul", "div", "relu"):
            return None
        elif len(known) == len(args):
            value = _folded(node.op, known)
            if value is None:
                return None
        else:
            if (node.op == "mul" and not known) or (node.op == "div" and not args[1]):
                return None
            value = None
        constants.append(value)
    if not any(node.op == "relu" and constants[i] is None for i, node in enumerate(graph.nodes)):
        return None
    return ReluUnits(graph, constants)


def _folded(op: str, values: list[Fraction]) -> Fraction | None:
    if op == "div" and values[1] == 0:
        return None
    result = max(values[0], Fraction(0)) if op == "relu" else rational(op, values)
    return result if bits(result) <= MAX_BITS else None


def _shares(node: Node, factor: Fraction, constants: Sequence[Fraction | None]) -> list[tuple[int, Fraction]]:
    """factor · node as a sum of factors times its arguments."""
    if node.op == "neg":
        return [(node.args[0], -factor)]
    a, b = node.args
    if node.op in ("add", "sub"):
        return [(a, factor), (b, factor if node.op == "add" else -factor)]
    left, right = constants[a], constants[b]
    if node.op == "div":
        assert right
        return [(a, factor / right)]
    if left is not None:
        return [(b, factor * left)]
    assert right is not None
    return [(a, factor * right)]


def _cone(nodes: Sequence[Node], index: int, units: set[int], constants: Sequence[Fraction | None]) -> list[int]:
    """What an affine form of the node passes through, users before what they use; multipliers are left out."""

    def needs(i: int) -> tuple[int, ...]:
        node = nodes[i]
        if node.op == "var" or i in units or constants[i] is not None:
            return ()
        if node.op == "mul":
            return node.args[1:] if constants[node.args[0]] is not None else node.args[:1]
        return node.args[:1] if node.op == "div" else node.args

    return sorted(reached([index], needs), reverse=True)
