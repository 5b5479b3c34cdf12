"""How a network is trained to solve a regression in context: on fresh prompts of the class, one query each."""

from typing import Any

from attnfun.kinds.in_context.target import InContextTask
from attnfun.learn.lesson import Ask, Lesson, token_lesson


def lesson(given: Any, ask: Ask) -> Lesson:
    """The shape of `given` (a model or an architecture), all of it free, towards the asked task."""
    assert isinstance(ask.target, InContextTask)
    return token_lesson(given, ask, reads=slice(2 * ask.target.examples, None))
