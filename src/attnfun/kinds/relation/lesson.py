"""How towers are trained: those of a relation with free weights, or perceptrons of given widths in their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.reading import Reading
from attnfun.kinds.relation.tower_task import Side, TowerTask, random_towers, relu_tower, require_widths
from attnfun.kinds.relation.trained import TrainedTowers
from attnfun.language.domain import Box
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network import Network


def lesson(given: Any, ask: Ask) -> Lesson:
    """The towers of a model of a relation of two or three variables, or those of `widths`."""
    from attnfun.kinds.relation.torch_towers import TowerProblem

    ask.no_noise()
    task, own = _task(given.weights, ask)
    if ask.start == "random":
        origin = random_towers(task, ask.recipe.seed)
    elif ask.start is given.weights and own is not None:
        origin = own
    elif isinstance(ask.start, TrainedTowers):
        origin = ask.start.networks
    else:
        raise InvalidRequest("towers start at random, from the constructed ones (without widths), or from trained ones")
    shapes = [network.architecture for network in origin]
    if len(shapes) != len(task.sides) or not all(
        side.architecture.holds(shape) for side, shape in zip(task.sides, shapes, strict=True)
    ):
        raise InvalidRequest("the start is not a pair of towers of the architecture that is to be trained")
    return Lesson(ask.target, TowerProblem(task, origin), task.weights)


def _task(weights: Any, ask: Ask) -> tuple[TowerTask, tuple[Network, ...] | None]:
    """What is to be trained, and the towers that are there already."""
    if ask.widths is not None:
        return _perceptrons(weights, ask.target, ask.widths, weights.rank if ask.rank is None else ask.rank), None
    if ask.rank is not None:
        raise InvalidRequest("rank belongs to widths: without them the towers are those of the relation")
    if not weights.networks:
        raise InvalidRequest("this relation has features and no towers: give widths=(64, 64), or ask for towers")
    sides = []
    for k, (network, shape) in enumerate(zip(weights.networks, weights.architecture, strict=True)):
        low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
        sides.append(Side(shape, Box(network.inputs, low, high), weights.reading(ask.target, k)))
    signs = np.array(weights.product_signs, dtype=np.float64)
    return TowerTask(ask.target, tuple(sides), signs), weights.networks


def _perceptrons(weights: Any, target: Any, widths: Sequence[int], features: int) -> TowerTask:
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
        raise InvalidRequest(f"widths={widths!r:.40}: the widths of the hidden layers are needed, as in (64, 64)")
    require_widths(widths, features)
    one, old = weights.one, weights.product_signs
    if one and len(old) != features and not bool(np.all(old == 1)):
        raise InvalidRequest("the towers of a relation with signs keep its rank: leave rank out")
    signs = old if len(old) == features else np.ones(features)
    sides = [Side(relu_tower(box.names, list(widths), features), box, Reading(box.names)) for box in target.boxes]
    return TowerTask(target, tuple(sides[:1] if one else sides), np.array(signs))
