"""How a network is trained on a sampler: all weights of its shape."""

from typing import Any

from attnfun.learn.lesson import Ask, Lesson, token_lesson
from attnfun.learn.sampled import SampledTask


def lesson(given: Any, ask: Ask[SampledTask]) -> Lesson:
    """An architecture, or the shape of a model that was trained before, towards what the sampler wants."""
    return token_lesson(given, ask, reads=ask.target.tokens, chosen_by=ask.target.chosen_by)
