"""How a network that picks the best key is trained: towards the best key in every token."""

from typing import Any

import numpy as np

from attnfun.kinds.lexicographic.target import BestKey
from attnfun.learn.lesson import Ask, Held, Lesson, token_lesson


def lesson(given: Any, ask: Ask) -> Lesson:
    """All weights but a cascade's constant token; the best network is that of least loss, as something is decided."""
    target = ask.target
    assert isinstance(target, BestKey)

    def wanted(best: Any) -> Any:
        return np.repeat(best[:, None], target.keys_drawn, axis=1)

    return token_lesson(given, ask, held=_held, wanted=wanted, chosen_by="loss")


def _held(model: Any) -> Held:
    constants = model.weights.constants
    return {"constants": (constants, np.zeros(constants.shape, dtype=bool))} if len(constants) else {}
