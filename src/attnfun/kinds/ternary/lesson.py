"""How a ternary relation is trained: other coefficients in the shape of a form, or three towers."""

from __future__ import annotations

from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.lesson import lesson as towers
from attnfun.kinds.ternary.target import Ternary
from attnfun.kinds.ternary.weights import Trilinear
from attnfun.learn.lesson import Ask, Lesson


def lesson(given: Any, ask: Ask) -> Lesson:
    """The coefficients of a form; with `widths`, and of towers, as for a relation of two variables."""
    from attnfun.kinds.ternary.torch_trilinear import FormProblem, FormTask

    target = ask.target
    assert isinstance(target, Ternary)
    if not isinstance(given.weights, Trilinear) or ask.widths is not None or ask.rank is not None:
        return towers(given, ask)
    ask.no_noise()
    task = FormTask(target, given.architecture)
    if ask.start == "random":
        origin = task.random(ask.recipe.seed)
    elif isinstance(ask.start, Trilinear) and ask.start.architecture == given.architecture:
        origin = ask.start.coefficients
    else:
        raise InvalidRequest("a form starts at random, from the constructed one, or from another of its shape")
    return Lesson(target, FormProblem(task, origin), lambda sides: Trilinear(sides, target.box))
