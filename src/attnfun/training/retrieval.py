"""`train` for a head over a table of keys (`learn/lookup.py` says what is free)."""

from __future__ import annotations

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.learn import Fit
from attnfun.learn.lookup import LookupTask
from attnfun.learn.towers import Reading
from attnfun.network import Network
from attnfun.retrieval import Retrieval
from attnfun.targets import Box
from attnfun.targets.relation import Relation
from attnfun.training.models.retrieval import RetrievalModel, Table, softmax_of_utilities
from attnfun.training.request import NOTHING, Asked
from attnfun.training.towers import reading_of


def table_of(given: Retrieval | RetrievalModel) -> tuple[Relation, Table]:
    """The utility, and the keys with what they hand out."""
    if isinstance(given, RetrievalModel):
        return given.target, given.table
    own = given.weights
    return given.relation.target, Table(np.array(own.points), np.array(own.values), own.beta, given.ids)


def train_retrieval(given: Retrieval | RetrievalModel, asked: Asked) -> tuple[RetrievalModel, Fit]:
    """The tower, the query map and the key vectors of a head, trained towards the softmax of the utilities."""
    from attnfun.learn.torch_lookup import LookupProblem

    asked.no_noise()
    if isinstance(given, Retrieval) and given.relation.features_only:
        raise InvalidRequest("this head stands behind features and no tower: leave features_only out to have a network")
    target, table = table_of(given)
    network, reads = given.network, _reads(given)
    low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
    task = LookupTask(
        network.architecture,
        target.left,
        Box(network.inputs, low, high),
        reads,
        lambda X: softmax_of_utilities(target, table, X),
        {"kind": "lookup", "utility": target.to_json(), "beta": table.beta},
        network,
    )
    if asked.start == "random":
        origin = task.random(asked.recipe.seed)
    elif asked.start == "constructed":
        origin = network
    else:
        other = _weights(asked.start)
        if not task.architecture.holds(other.architecture):
            raise InvalidRequest("the start is not a network of the architecture that is to be trained")
        origin = task.taken(other)
    fit = asked.descended(LookupProblem(task, origin))
    return RetrievalModel(target, table, reads, fit.network, NOTHING, asked.request), fit


def _reads(given: Retrieval | RetrievalModel) -> Reading:
    return given.reads if isinstance(given, RetrievalModel) else reading_of(given.relation.left)


def _weights(start: object) -> Network:
    if isinstance(start, (Retrieval, RetrievalModel)):
        return start.network
    raise InvalidRequest(f"start={start!r:.60}: random, constructed, or a head over the same table is needed")
