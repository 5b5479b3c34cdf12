"""How a network that matches is trained: towards 1 on a match and 0 otherwise, on tokens that the encoder looks up."""

from typing import Any

import numpy as np

from attnfun.kinds.matching.target import Matches
from attnfun.learn.lesson import Ask, Held, Lesson, token_lesson
from attnfun.network import TokenNetwork


def lesson(given: Any, ask: Ask) -> Lesson:
    """All weights but what is held. One wrong decision is an error of 1, so the best network is that of least loss."""
    target = ask.target
    assert isinstance(target, Matches)

    def held(model: Any) -> Held:
        return held_of(target, model.weights)

    return token_lesson(given, ask, held=held, reads=slice(target.tokens), chosen_by="loss")


def held_of(target: Matches, network: TokenNetwork) -> Held:
    """The constant token, which says what it is by its coordinates; of triples the numbers that keep single tokens out
    of sight, and of pairs without j = i those that keep flagged tokens from the first head.
    """
    held = {"constants": (network.constants, np.zeros(network.constants.shape, dtype=bool))}
    if target.order == 2 and target.self_allowed:
        return held
    head, column, at = network.heads[0], 2 if target.order == 3 else 3, network.coordinates.index
    query, key = (np.ones(array.shape, dtype=bool) for array in (head.query, head.key))
    query[:, column] = False
    if target.order == 3:
        key[[at("one"), at("pair")], column] = False
    else:
        key[:, column] = False
    return held | {"layer0/head0/query": (head.query, query), "layer0/head0/key": (head.key, key)}
