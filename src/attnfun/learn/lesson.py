"""Lesson: what training needs to know of a kind; one function `lesson(given, ask)` in the kind's folder makes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnfun.errors import InvalidRequest
from attnfun.language.target import Target
from attnfun.learn.fit import Progress
from attnfun.learn.problem import Problem
from attnfun.learn.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Ask:
    """One request to `train`.

    `target`: what to train towards. `architecture`: a shape that was given alone, without weights; else None, and the
    shape is that of the given model. `start`: "random", "constructed", or weights (a model's or a network). `source`:
    the model that the target comes from, if any. `widths` and `rank` put ReLU towers in the place of a relation's own.
    """

    recipe: Recipe
    target: Target
    architecture: Any = None
    start: Any = "random"
    widths: Sequence[int] | None = None
    rank: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    progress: Callable[[Progress], None] | None = None
    source: Any = None

    def no_towers(self) -> None:
        if self.widths is not None or self.rank is not None:
            raise InvalidRequest("widths and rank are those of the towers of a relation")

    def no_noise(self) -> None:
        if self.recipe.noise:
            raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")


@dataclass(frozen=True, eq=False)
class Lesson:
    """A problem for the loop, and what to make of the network that it finds.

    `target` is what the trained model is for (often the asked one itself); `weights` turns the loop's network into the
    model's weights; `request` is added to the model's request, as {"shape": "free"}.
    """

    target: Target
    problem: Problem
    weights: Callable[[Any], Any] = lambda network: network
    request: Mapping[str, Any] = field(default_factory=dict)
