"""What every kind of training is asked with: a recipe, a start, a checkpoint, and the words for its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attnfun.certify import Certificate, Status
from attnfun.errors import InvalidRequest
from attnfun.learn import Fit, Progress, Recipe
from attnfun.learn.fit import descended

NOTHING = Certificate(Status.UNDECIDED, (0.0, float("inf")), None, float("inf"), "float64", "none", "", "")
"""The certificate of a model that was not looked at yet."""


@dataclass(frozen=True, eq=False)
class Asked:
    """`start` is "random", "constructed" or a network; `widths` and `rank` are those of ReLU towers."""

    recipe: Recipe
    start: Any
    checkpoint: str | os.PathLike[str] | None
    progress: Callable[[Progress], None] | None
    request: dict[str, Any]
    widths: Sequence[int] | None = None
    rank: int | None = None

    def descended(self, problem: Any) -> Fit:
        return descended(problem, self.recipe, self.checkpoint, self.progress)

    def no_noise(self) -> None:
        if self.recipe.noise:
            raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
