"""Two towers φ, ψ with ⟨φ(x), ψ(y)⟩ near a relation: their shapes, units and random starts. No torch here.

A random start, in the units of `weights.py`: of ReLU units slopes normal over √(dim/2), biases normal, values normal
over √units; of softmax heads as for functions; the read-out normal over √(what it reads), no bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.learn.weights import Units, joined, layout, network_of, power_of_two
from attnfun.network import Architecture, AxisShape, HeadShape, Network
from attnfun.network.head import Array
from attnfun.targets import Box
from attnfun.targets.relation import Relation

_PROBE = 4000


@dataclass(frozen=True, eq=False)
class Side:
    """One tower: its shape, the box of what it reads, and how points of the relation become that."""

    architecture: Architecture
    box: Box
    reads: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class TowerTask:
    """A relation and the shape of its towers; of a symmetric one `right` is None and `signs` is the diagonal of J."""

    target: Relation
    left: Side
    right: Side | None
    signs: Array

    def __post_init__(self) -> None:
        for side in (self.left, self.right or self.left):
            if len(side.architecture.outputs) != len(self.signs):
                raise InvalidRequest(f"towers of {len(side.architecture.outputs)} and {len(self.signs)} features")

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.left,) if self.right is None else (self.left, self.right)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
        """Pairs of points and what is wanted of them."""
        X, Y = self.target.left.sample(count, rng), self.target.right.sample(count, rng)
        return X, Y, self.target.values(X, Y)

    def probe(self) -> tuple[Array, Array, Array]:
        """The pairs behind the rows of a history; never those of a batch."""
        X, Y = probe_pairs(self.target, _PROBE, np.random.default_rng([20, 3]))
        return X, Y, self.target.values(X, Y)

    def units(self) -> tuple[Units, ...]:
        """Of each side; both have the same scale, so that their products have its square."""
        values = np.abs(self.probe()[2])
        size = float(values[np.isfinite(values)].max(initial=0.0)) or 1.0
        scale = float(power_of_two(size**0.5))
        found = []
        for side in self.sides:
            low, high = side.box.low_array, side.box.high_array
            half = power_of_two(np.where(high > low, (high - low) / 2, 1.0))
            found.append(Units(low / 2 + high / 2, half, scale))
        return tuple(found)

    def scores(self, towers: tuple[Network, ...], X: Array, Y: Array) -> Array:
        """(n,) ⟨φ(x_i), J ψ(y_i)⟩."""
        from attnfun.network import evaluate

        last = self.right or self.left
        phi, psi = evaluate(towers[0], self.left.reads(X)), evaluate(towers[-1], last.reads(Y))
        return np.asarray(np.sum(phi.astype(np.float64) * psi * self.signs, axis=1))


def probe_pairs(target: Relation, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Pairs of `Box.probe` points; a box of more variables has more corners, so the longer list is cut."""
    X, Y = target.left.probe(count, rng), target.right.probe(count, rng)
    n = min(len(X), len(Y))
    return X[:n], Y[:n]


def require_widths(widths: Sequence[int], features: int) -> None:
    """Refuse what are no widths of layers, or no number of features."""
    if not widths or not all(type(w) is int and w >= 1 for w in (*widths, features)):
        raise InvalidRequest(f"widths={list(widths)!r:.40}, rank={features!r:.20}: whole numbers from 1 on are needed")


def relu_tower(inputs: Sequence[str], widths: Sequence[int], features: int, dtype: str = "float64") -> Architecture:
    """A ReLU multilayer perceptron as an architecture: hidden layers of these widths, each reading the one before."""
    require_widths(widths, features)
    layers, reads, seen = [], tuple(range(len(inputs))), len(inputs)
    for k, units in enumerate(widths):
        writes = features if k == len(widths) - 1 else min(units, widths[k + 1])
        layers.append((HeadShape((AxisShape(units, len(reads), reads),), tuple(range(writes))),))
        reads = tuple(range(seen, seen + writes))
        seen += writes
    outputs = tuple(f"feature {k + 1}" for k in range(features))
    return Architecture(tuple(inputs), tuple(layers), outputs, dtype, "block", reads)


def random_towers(task: TowerTask, seed: int) -> tuple[Network, ...]:
    """Towers of these shapes; the same seed gives the same bits."""
    return tuple(
        network_of(side.architecture, _random(side.architecture, np.random.default_rng([seed, 0, k])), side.box, units)
        for k, (side, units) in enumerate(zip(task.sides, task.units(), strict=True))
    )


def _random(architecture: Architecture, rng: np.random.Generator) -> Array:
    block, arrays = architecture.kind == "block", dict[str, Array]()
    for name, shape in layout(architecture):
        kind = name.rsplit("/", 1)[-1]
        if kind == "query":
            square = shape[0] == shape[1]
            arrays[name] = np.eye(shape[0]) if square else rng.standard_normal(shape) / np.sqrt(max(1, shape[1]))
            continue
        spread = {
            "offset": 0.0,
            "slopes": (2 / shape[-1]) ** 0.5 if block else 1.0,
            "biases": 1.0,
            "values": shape[0] ** -0.5 if block else 1.0,
            "readout": max(1, shape[-1]) ** -0.5,
            "readout_bias": 0.0,
        }[kind]
        arrays[name] = spread * rng.standard_normal(shape)
    return joined(architecture, arrays)
