"""How a head over a table is trained (`lookup_task.py` says what is free)."""

from __future__ import annotations

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.retrieval.lookup_task import LookupTask
from attnfun.kinds.retrieval.target import Lookup
from attnfun.kinds.retrieval.weights import TableHead, TrainedHead
from attnfun.language.domain import Box
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network import Network


def lesson(given: Any, ask: Ask) -> Lesson:
    """The tower, the query map and the key vectors of a head, towards the softmax of the utilities."""
    from attnfun.kinds.retrieval.torch_lookup import LookupProblem

    ask.no_noise()
    ask.no_towers()
    target, own = ask.target, given.weights
    assert isinstance(target, Lookup)
    if not own.networks:
        raise InvalidRequest("this head stands behind features and no tower: leave features_only out to have a network")
    network, shape, reads = own.network, own.architecture, own.reading(target.utility)
    low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
    about = {"kind": "lookup", "utility": target.to_json(), "beta": own.beta}
    box = Box(network.inputs, low, high)
    task = LookupTask(shape, target.utility.left, box, reads, target.exact, about, network)
    if ask.start == "random":
        origin = task.random(ask.recipe.seed)
    elif ask.start is own:
        origin = network
    elif isinstance(ask.start, TableHead):
        if not ask.start.networks or not shape.holds(ask.start.network.architecture):
            raise InvalidRequest("the start is not a network of the architecture that is to be trained")
        origin = task.taken(ask.start.network)
    else:
        raise InvalidRequest(f"start={ask.start!r:.60}: random, constructed, or a head over the same table is needed")

    def weights(found: Network) -> TrainedHead:
        return TrainedHead(found, shape, reads, own.points, own.values, own.beta, own.ids)

    return Lesson(target, LookupProblem(task, origin), weights)
