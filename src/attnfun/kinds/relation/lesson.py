"""How towers are trained: those of a relation with free weights, or perceptrons of given widths in their place.

A random start, in the units of `weights.py`: of ReLU units slopes normal over √(dim/2), biases normal, values normal
over √units; of softmax heads as for functions; the read-out normal over √(what it reads), no bias. No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.relation.form import Reading, TrainedTowers
from attnfun.language.domain import Box
from attnfun.learn.lesson import Ask, Lesson
from attnfun.learn.weights import joined
from attnfun.network import Architecture, AxisShape, HeadShape
from attnfun.network.head import Array

if TYPE_CHECKING:
    from attnfun.kinds.relation.torch_towers import TowerProblem


@dataclass(frozen=True, eq=False)
class Side:
    """One tower: its shape, the box of what it reads, and how points become that."""

    architecture: Architecture
    box: Box
    reads: Reading


def lesson(given: Any, ask: Ask) -> Lesson:
    """The towers of a model of a relation of two or three variables, or those of `widths`."""
    ask.no_noise()
    problem = _problem(given.weights, ask)
    if ask.start == "random":
        origin = problem.random(ask.recipe.seed)
    elif ask.start is given.weights and problem.origin:
        origin = problem.origin
    elif isinstance(ask.start, TrainedTowers):
        origin = ask.start.networks
    else:
        raise InvalidRequest("towers start at random, from the constructed ones (without widths), or from trained ones")
    shapes, sides = [network.architecture for network in origin], problem.sides
    if len(shapes) != len(sides) or not all(s.architecture.holds(own) for s, own in zip(sides, shapes, strict=True)):
        raise InvalidRequest("the start is not a pair of towers of the architecture that is to be trained")
    return Lesson(ask.target, replace(problem, origin=origin), problem.weights)


def _problem(weights: Any, ask: Ask) -> TowerProblem:
    """What is to be trained, with the towers that are there already as its origin."""
    from attnfun.kinds.relation.torch_towers import TowerProblem

    target: Any = ask.target
    if ask.widths is not None:
        sides, signs = _perceptrons(weights, target, ask.widths, weights.rank if ask.rank is None else ask.rank)
        return TowerProblem(target, sides, signs)
    require(ask.rank is None, "rank belongs to widths: without them the towers are those of the relation")
    require(weights.networks, "this relation has features and no towers: give widths=(64, 64), or ask for towers")
    found = []
    for k, (network, shape) in enumerate(zip(weights.networks, weights.architecture, strict=True)):
        low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
        found.append(Side(shape, Box(network.inputs, low, high), weights.reading(target, k)))
    return TowerProblem(target, tuple(found), np.array(weights.product_signs, dtype=np.float64), weights.networks)


def _perceptrons(weights: Any, target: Any, widths: Sequence[int], features: int) -> tuple[tuple[Side, ...], Array]:
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
        raise InvalidRequest(f"widths={widths!r:.40}: the widths of the hidden layers are needed, as in (64, 64)")
    if not widths or not all(type(w) is int and w >= 1 for w in (*widths, features)):
        raise InvalidRequest(f"widths={list(widths)!r:.40}, rank={features!r:.20}: whole numbers from 1 on are needed")
    one, old = weights.one, weights.product_signs
    if one and len(old) != features and not bool(np.all(old == 1)):
        raise InvalidRequest("the towers of a relation with signs keep its rank: leave rank out")
    signs = old if len(old) == features else np.ones(features)
    sides = [Side(relu_tower(box.names, widths, features), box, Reading(box.names)) for box in target.boxes]
    return tuple(sides[:1] if one else sides), np.array(signs)


def relu_tower(inputs: Sequence[str], widths: Sequence[int], features: int) -> Architecture:
    """A ReLU multilayer perceptron as an architecture: hidden layers of these widths, each reading the one before."""
    layers, reads, seen = [], tuple(range(len(inputs))), len(inputs)
    for k, units in enumerate(widths):
        writes = features if k == len(widths) - 1 else min(units, widths[k + 1])
        layers.append((HeadShape((AxisShape(units, len(reads), reads),), tuple(range(writes))),))
        reads = tuple(range(seen, seen + writes))
        seen += writes
    outputs = tuple(f"feature {k + 1}" for k in range(features))
    return Architecture(tuple(inputs), tuple(layers), outputs, "float64", "block", reads)


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
