"""How a network is trained to find neighbours: on fresh uniform points, towards the right point or sign."""

from typing import Any

import numpy as np

from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.kinds.neighbours.view import Neighbours
from attnfun.learn.lesson import Ask, Lesson, token_lesson
from attnfun.network import TokenNetwork
from attnfun.network.head import Array

_KEPT = ("construction", "beta", "bias", "heads", "rank", "sampler", "seed", "shape")


def lesson(given: Any, ask: Ask) -> Lesson:
    """A model in its own shape, with its gates, or an architecture with all weights free."""
    target = ask.target
    assert isinstance(target, PointsOnSphere)
    request: dict[str, Any] = {"eps": None}
    if ask.architecture is None:
        request |= {key: value for key, value in given.request.items() if key in _KEPT}
        request |= {"construction": given.method}
    read = slice(None) if target.every else slice(-1, None)
    return token_lesson(given, ask, held=gates, request=request, reads=read, chosen_by="loss")


def gates(given: Neighbours) -> dict[str, tuple[Array, Array]]:
    """Of heads of a given rank the column that keeps the query from seeing itself is not free, nor what they read.

    So the heads of "random_heads" keep their rank as cross-attention from the query to the points: W_Q reads the query,
    W_K and W_V the points, and the head that averages goes on averaging.
    """
    if given.method != "random_heads" or not isinstance(given.network, TokenNetwork):
        return {}
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
