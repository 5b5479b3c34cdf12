"""How networks on sets are trained: as those of the sequence map of their form, on tokens that are of a set."""

from typing import Any

import numpy as np

from attnfun.kinds.sequence.lesson import taught
from attnfun.kinds.set.analysis import sequence_map
from attnfun.kinds.set.network import SetNetwork
from attnfun.kinds.set.target import SetFunction, pair_tokens
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network.head import Array


def lesson(_given: Any, ask: Ask) -> Lesson:
    """The shape of a model, with its form, or one given alone, with the form of `token_coordinates`."""
    target = ask.target
    assert isinstance(target, SetFunction)
    own: SetNetwork | None = None if ask.source is None else ask.source.weights
    form = target.plain_form if own is None else own.form

    def drawn(rng: np.random.Generator, count: int) -> Array:
        (sets,) = target.draw(rng, count)
        return pair_tokens(sets) if form == "pairs" else sets

    return taught(target, sequence_map(target, form), own, ask, drawn, lambda sequence: SetNetwork(form, sequence))
