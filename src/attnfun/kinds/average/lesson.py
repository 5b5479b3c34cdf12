"""How heads that average are trained: all their weights; keys and queries are in the tokens, and are not."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnfun.kinds.average.build import position_codes
from attnfun.kinds.average.target import Averages
from attnfun.kinds.average.weights import Coded
from attnfun.learn.lesson import Ask, Lesson, shape_of, token_lesson
from attnfun.learn.weights import random_tokens


def lesson(given: Any, ask: Ask[Averages]) -> Lesson:
    """The codes of positions are the model's that the target comes from, else those that the target names."""
    target, shape = ask.target, shape_of(given, ask)
    codes = position_codes(target) if ask.source is None else ask.source.weights.codes
    coded = Coded(random_tokens(shape, np.ones(shape.width), 1.0, 0), codes)
    return token_lesson(given, ask, target=replace(target, others=None), weights=coded.holding, written=coded)
