"""How a network is trained to solve a regression in context: on fresh prompts of the class, one query each."""

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.target import InContextTask
from attnfun.learn.lesson import Ask, Drawn, Lesson, shape_of, token_lesson


def lesson(given: Any, ask: Ask) -> Lesson:
    """The shape of `given` (a model or an architecture), all of it free, towards the asked task."""
    task = ask.target
    assert isinstance(task, InContextTask)
    shape = shape_of(given, ask)
    own = shape.architecture
    if len(own.outputs) != 1:
        raise InvalidRequest("a regression in context has one output")
    missing = [name for name in task.token_coordinates() if name not in own.coordinates]
    if missing:
        raise InvalidRequest(f"tokens without {', '.join(missing)[:60]} cannot hold a prompt of {task.text}")
    return token_lesson(ask, Drawn(task, own, 1, lambda outputs: outputs[:, 2 * task.examples :]), shape)
