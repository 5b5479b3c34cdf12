"""`train` for networks of neighbours: their task, what is held, and the error that is measured afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attnfun.constructions.neighbours import Prediction
from attnfun.constructions.neighbours.layout import tokens as point_tokens
from attnfun.constructions.neighbours.sphere import uniform_points
from attnfun.learn.token_tasks import PointsTask
from attnfun.neighbour_networks import Neighbours
from attnfun.network import TokenNetwork
from attnfun.network.head import Array
from attnfun.training.measuring import described


def points_task(given: Neighbours, names: tuple[str, ...]) -> PointsTask:
    """Its points as tokens with these coordinates."""
    text, domain, key = described(given)
    return PointsTask(
        text,
        domain,
        {"kind": "neighbours", **key},
        lambda rng, count: uniform_points(rng, count, given.points, given.dim),
        lambda points: point_tokens(names, points),
        given.target,
        given.method == "full_rank",
    )


def gates(given: Neighbours) -> dict[str, tuple[Array, Array]]:
    """Of heads of a given rank the column that keeps the query from seeing itself is not free, nor what they read.

    So the heads of "random_heads" keep their rank as cross-attention from the query to the points: W_Q reads the query,
    W_K and W_V the points, and the head that averages goes on averaging.
    """
    if given.method != "random_heads":
        return {}
    assert isinstance(given.network, TokenNetwork)
    d, names, held = given.dim, given.network.coordinates, dict[str, tuple[Array, Array]]()
    q = names.index("q1")
    for k, head in enumerate(given.network.heads):
        averages = not head.query[:, :-1].any()
        free = {part: np.zeros(array.shape, dtype=bool) for part, array in head.arrays.items()}
        free["query"][q : q + d, :-1] = free["key"][:d, :-1] = not averages
        free["value"][:d] = True
        free["output"][:, :d] = True
        for part, array in head.arrays.items():
            held[f"layer0/head{k}/{part}"] = array, free[part]
    held["readout"] = given.network.readout, np.zeros(given.network.readout.shape, dtype=bool)
    return held


def found_with(given: Neighbours, request: dict[str, Any]) -> Callable[[Any], Neighbours]:
    asked = {**given.request, "eps": None, **request}
    nothing = Prediction(error=None, how="not measured yet")
    return lambda net: replace(given, network=net, predicted=nothing, request=asked)


def measured(found: Neighbours) -> Prediction:
    """Monte Carlo on fresh points, in the place of a prediction."""
    seen = found.measured(20_000, seed=77)
    how = f"measured at {seen.queries:,} queries of fresh points (uncertainty: a standard error)"
    details = {name: float(value) for name, value in asdict(seen).items()}
    return Prediction(seen.error, how, seen.error_se, accuracy=seen.accuracy, details=details)
