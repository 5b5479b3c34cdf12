"""How a network that picks the best key is trained: towards the best key in every token."""

from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.lexicographic.target import BestKey
from attnfun.learn.lesson import Ask, Drawn, Held, Lesson, shape_of, token_lesson


def lesson(given: Any, ask: Ask) -> Lesson:
    """All weights but a cascade's constant token; the best network is that of least loss, as something is decided."""
    target, shape = ask.target, shape_of(given, ask)
    assert isinstance(target, BestKey)
    if target.fits(shape.architecture):
        raise InvalidRequest(f"the architecture has other coordinates or outputs: {', '.join(target.reads)} are read")

    def wanted(best: Any) -> Any:
        return np.repeat(best[:, None], target.keys_drawn, axis=1)

    constants = np.zeros((0, 0)) if shape.free else given.weights.constants
    held: Held = {"constants": (constants, np.zeros(constants.shape, dtype=bool))} if len(constants) else {}
    task = Drawn(target, shape.architecture, target.coordinates, wanted=wanted, chosen_by="loss")
    return token_lesson(ask, task, shape, held=held)
