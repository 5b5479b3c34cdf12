"""Lessons of networks on tokens: what their kinds share.

A target draws inputs, says what is wanted of them and writes them as tokens (`Drawn`); `token_lesson` sets the weights
of a shape free, from a random start or from weights, with the entries that the kind holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.language.target import Target
from attnfun.learn.lesson import Ask, Lesson
from attnfun.network import TokenArchitecture, TokenNetwork, TokenTransformer
from attnfun.network.head import Array

Held = Mapping[str, tuple[Array, Array]]
"""By the name of an array: (values, which entries are free)."""


class TokenTask(Protocol):
    """What the loop asks of a task on tokens (`torch_tokens.py`)."""

    def to_json(self) -> dict[str, Any]: ...

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        """(count, n, width) tokens and (count, tokens read, outputs) values."""
        ...

    def read(self, outputs: Any) -> Any:
        """(count, n, outputs) of a network, NumPy's or torch's -> the tokens that are read."""
        ...

    @property
    def chosen_by(self) -> str:
        """What the best network has least of, "sup" or "loss"."""
        ...

    def errors(self, outputs: Array, values: Array) -> Array:
        """(count, entries): the errors of every draw, from what was read and what was wanted."""
        ...


@dataclass(frozen=True, eq=False)
class Drawn:
    """The task of a target whose inputs are written as tokens for `weights` (all that `encode` looks at in them).

    `reads` takes the tokens that are read out of a network's outputs; `wanted` turns `exact` into values of that shape;
    `noisy(rng, inputs, noise)` moves the inputs, where noise has a meaning.
    """

    target: Target
    weights: Any
    outputs: int
    reads: Callable[[Any], Any] = lambda outputs: outputs
    wanted: Callable[[Any], Any] = lambda exact: exact
    noisy: Callable[[np.random.Generator, tuple[Any, ...], float], tuple[Any, ...]] | None = None
    chosen_by: str = "sup"

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target.to_json()}

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        inputs = self.target.draw(rng, count)
        values = np.asarray(self.wanted(self.target.exact(*inputs)), dtype=np.float64)
        if noise:
            if self.noisy is None:
                raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
            inputs = self.noisy(rng, inputs, noise)
        (tokens,), _ = self.target.encode(self.weights, *inputs)
        return np.asarray(tokens, dtype=np.float64), values.reshape(count, -1, self.outputs)

    def read(self, outputs: Any) -> Any:
        return self.reads(outputs)

    def errors(self, outputs: Array, values: Array) -> Array:
        return self.target.errors(outputs, values)


@dataclass(frozen=True)
class Shape:
    """The shape that is trained; `free`: it is not the construction's own, and nothing in it is held."""

    architecture: TokenArchitecture
    free: bool
    request: Mapping[str, Any] = field(default_factory=dict)


def shape_of(given: Any, ask: Ask) -> Shape:
    """An architecture of one's own, or that of the given model."""
    ask.no_towers()
    found = given.architecture if ask.architecture is None else ask.architecture
    if not isinstance(found, TokenArchitecture):
        raise InvalidRequest(f"{ask.target.text[:60]} is learned by a TokenArchitecture, not a {type(found).__name__}")
    free = ask.architecture is not None or given.request.get("shape") == "free"
    return Shape(found, free, {"shape": "free"} if free else {})


def require_tokens(shape: TokenArchitecture, names: tuple[str, ...], outputs: int) -> None:
    """InvalidRequest unless tokens with these coordinates, and perhaps free ones behind them, go in and `outputs` come
    out."""
    if shape.coordinates[: len(names)] != names or len(shape.outputs) != outputs:
        raise InvalidRequest("the architecture has other coordinates or outputs than the tokens of this target")


def token_lesson(
    ask: Ask,
    task: TokenTask,
    shape: Shape,
    *,
    target: Target | None = None,
    held: Held | None = None,
    weights: Callable[[Any], Any] = lambda network: network,
) -> Lesson:
    """The lesson of `task` in this shape; `weights` makes a model's weights of a network, `target` is what it is then
    for, if not what was asked."""
    from attnfun.learn.torch_tokens import TokenProblem

    begin: Any = ask.recipe.seed
    if not isinstance(ask.start, str):
        begin = getattr(ask.start, "network", ask.start)
        if not isinstance(begin, (TokenNetwork, TokenTransformer)):
            raise ask.other_start()
        if begin.architecture != shape.architecture:
            raise InvalidRequest("the start is not a network of the architecture that is to be trained")
    if ask.recipe.noise:
        task.draw(np.random.default_rng(0), 1, ask.recipe.noise)  # refused here where it has no meaning
    problem = TokenProblem(shape.architecture, task, {} if shape.free else held or {}, begin)
    return Lesson(target or ask.target, problem, weights, shape.request)
