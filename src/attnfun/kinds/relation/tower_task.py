"""Towers φ, ψ (, …) with Σ_i φ_i(x) ψ_i(y) … near a target: their shapes, units and random starts. No torch here.

A random start, in the units of `weights.py`: of ReLU units slopes normal over √(dim/2), biases normal, values normal
over √units; of softmax heads as for functions; the read-out normal over √(what it reads), no bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.reading import Reading
from attnfun.kinds.relation.target import probe_tuples
from attnfun.kinds.relation.trained import TrainedTowers
from attnfun.language.domain import Box
from attnfun.learn.weights import Units, joined, network_of
from attnfun.network import Architecture, AxisShape, HeadShape, Network
from attnfun.network.head import Array

_PROBE = 4000


@dataclass(frozen=True, eq=False)
class Side:
    """One tower: its shape, the box of what it reads, and how points become that."""

    architecture: Architecture
    box: Box
    reads: Reading


@dataclass(frozen=True, eq=False)
class TowerTask:
    """Σ_i s_i φ_i(x) ψ_i(y) …, one tower a variable of `target`; of a symmetric relation one that serves both.

    `signs` are the s_i: the diagonal of J of a symmetric relation, else ones. `target` is a relation of two or three
    variables: a Relation or a Ternary.
    """

    target: Any
    sides: tuple[Side, ...]
    signs: Array

    def __post_init__(self) -> None:
        if len(self.sides) not in (1, len(self.target.boxes)):
            raise InvalidRequest(f"{len(self.sides)} towers for {len(self.target.boxes)} variables")
        if len(self.sides) == 1 and len({(box.low, box.high) for box in self.target.boxes}) != 1:
            raise InvalidRequest("one tower serves sides of equal boxes only")
        for side in self.sides:
            if len(side.architecture.outputs) != len(self.signs):
                raise InvalidRequest(f"towers of {len(side.architecture.outputs)} and {len(self.signs)} features")

    @property
    def places(self) -> tuple[int, ...]:
        """For every variable the number of its tower."""
        return tuple(range(len(self.sides))) if len(self.sides) > 1 else (0,) * len(self.target.boxes)

    @property
    def serving(self) -> tuple[Side, ...]:
        return tuple(self.sides[k] for k in self.places)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[tuple[Array, ...], Array]:
        """Points of every variable and what is wanted of them."""
        points = tuple(box.sample(count, rng) for box in self.target.boxes)
        return points, self.target.values(*points)

    def probe(self) -> tuple[tuple[Array, ...], Array]:
        """The points behind the rows of a history; never those of a batch."""
        points = probe_tuples(self.target.boxes, _PROBE, np.random.default_rng([20, 3]))
        return points, self.target.values(*points)

    def units(self) -> tuple[Units, ...]:
        """Of each side; all have the same scale, so that their products have its power."""
        values = np.abs(self.probe()[1])
        size = float(values[np.isfinite(values)].max(initial=0.0)) or 1.0
        return tuple(Units.on(side.box, size ** (1 / len(self.places))) for side in self.sides)

    def features(self, towers: tuple[Network, ...], k: int, X: Array) -> Array:
        """(n, rank) of variable k, without signs."""
        from attnfun.network import evaluate

        return np.asarray(evaluate(towers[self.places[k]], self.serving[k].reads(X)), dtype=np.float64)

    def weights(self, towers: tuple[Network, ...]) -> TrainedTowers:
        """The weights of a model with these towers."""
        shapes, reads = tuple(s.architecture for s in self.sides), tuple(s.reads for s in self.sides)
        return TrainedTowers(towers, shapes, reads, self.signs)

    def scores(self, towers: tuple[Network, ...], *points: Array) -> Array:
        """(n,) Σ_i s_i φ_i ψ_i …"""
        product = self.features(towers, 0, points[0])
        for k in range(1, len(points)):
            product = product * self.features(towers, k, points[k])
        return np.asarray(np.sum(product * self.signs, axis=1))


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
        network_of(
            side.architecture, random_weights(side.architecture, np.random.default_rng([seed, 0, k])), side.box, units
        )
        for k, (side, units) in enumerate(zip(task.sides, task.units(), strict=True))
    )


def random_weights(architecture: Architecture, rng: np.random.Generator) -> Array:
    """The vector of a random start, in the units of `weights.py`."""
    block, arrays = architecture.kind == "block", dict[str, Array]()
    for name, shape in architecture.layout():
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
