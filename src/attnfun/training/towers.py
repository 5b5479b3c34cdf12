"""`train` for towers: those of a relation with free weights, or perceptrons of given widths in their place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.learn import Fit
from attnfun.learn.towers import Reading, Side, TowerTask, random_towers, relu_tower, require_widths
from attnfun.network import Network
from attnfun.relations import RelationApproximant, Tower
from attnfun.targets import Box
from attnfun.training.models.tower import TowerModel
from attnfun.training.request import NOTHING, Asked
from attnfun.trilinear import TrilinearForm

Towered = RelationApproximant | TowerModel | TrilinearForm


def train_towers(given: Towered, asked: Asked) -> tuple[TowerModel, Fit]:
    """The towers of `given`, or those of `widths`, trained."""
    from attnfun.learn.torch_towers import TowerProblem

    asked.no_noise()
    task, own = _task(given, asked.widths, asked.rank)
    if asked.start == "random":
        origin = random_towers(task, asked.recipe.seed)
    elif isinstance(asked.start, TowerModel):
        origin = asked.start.towers
    elif asked.start == "constructed" and own is not None:
        origin = own
    else:
        raise InvalidRequest("towers start at random, from the constructed ones (without widths), or from trained ones")
    shapes = [network.architecture for network in origin]
    if len(shapes) != len(task.sides) or not all(
        side.architecture.holds(shape) for side, shape in zip(task.sides, shapes, strict=True)
    ):
        raise InvalidRequest("the start is not a pair of towers of the architecture that is to be trained")
    fit = asked.descended(TowerProblem(task, origin))
    return TowerModel(task, fit.network, NOTHING, asked.request), fit


def _task(
    given: Towered, widths: Sequence[int] | None, rank: int | None
) -> tuple[TowerTask, tuple[Network, ...] | None]:
    if widths is None and rank is not None:
        raise InvalidRequest("rank belongs to widths: without them the towers are those of the relation")
    if isinstance(given, TowerModel) and widths is None:
        return given.task, given.towers
    if widths is not None:
        return _perceptrons(given, widths, given.rank if rank is None else rank), None
    assert isinstance(given, RelationApproximant)
    if given.features_only:
        raise InvalidRequest("this relation has features and no towers: give widths=(64, 64), or ask for towers")
    sides, networks = [], []
    for tower in (given.left,) if given.stored.signs is not None else (given.left, given.right):
        network = tower.network
        low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
        sides.append(Side(network.architecture, Box(network.inputs, low, high), reading_of(tower)))
        networks.append(network)
    return TowerTask(given.target, tuple(sides), np.array(given.signs, dtype=np.float64)), tuple(networks)


def reading_of(tower: Tower) -> Reading:
    """What `Tower.inputs` does, as something that a file can hold."""
    if tower.weights is not None and tower.weights.inner is not None:
        return Reading(tower.box.names)
    low, high = tower.features.left_box if tower.side == "left" else tower.features.right_box
    inner = tower.core.left_inner if tower.side == "left" else tower.core.right_inner
    return Reading(tower.box.names, inner, (np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)))


def _perceptrons(given: Towered, widths: Sequence[int], features: int) -> TowerTask:
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
        raise InvalidRequest(f"widths={widths!r:.40}: the widths of the hidden layers are needed, as in (64, 64)")
    require_widths(widths, features)
    one, old = False, np.ones(given.rank)
    if isinstance(given, TowerModel):
        one, old = len(given.task.sides) == 1, given.task.signs
    elif isinstance(given, RelationApproximant):
        one, old = given.stored.signs is not None, given.signs
    if one and len(old) != features and not bool(np.all(old == 1)):
        raise InvalidRequest("the towers of a relation with signs keep its rank: leave rank out")
    signs = old if len(old) == features else np.ones(features)
    sides = [Side(relu_tower(box.names, list(widths), features), box, Reading(box.names)) for box in given.target.boxes]
    return TowerTask(given.target, tuple(sides[:1] if one else sides), np.array(signs))
