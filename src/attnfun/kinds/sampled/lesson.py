"""How a network is trained on a sampler: all weights of its shape."""

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.learn.lesson import Ask, Drawn, Lesson, shape_of, token_lesson
from attnfun.learn.sampled import SampledTask


def lesson(given: Any, ask: Ask) -> Lesson:
    """An architecture, or the shape of a model that was trained before, towards what the sampler wants."""
    target, shape = ask.target, shape_of(given, ask)
    assert isinstance(target, SampledTask)
    own = shape.architecture
    if own.coordinates[: len(target.coordinates)] != target.coordinates or own.outputs != target.outputs:
        raise InvalidRequest("the architecture has other coordinates or outputs than the sampler")
    reads = target.tokens
    task = Drawn(target, own, len(own.outputs), lambda outputs: outputs[:, reads], chosen_by=target.chosen_by)
    return token_lesson(ask, task, shape)
