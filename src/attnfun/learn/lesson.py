"""Lesson: what training needs to know of a kind; one function `lesson(given, ask)` in the kind's folder makes it.

A lesson has a problem: that of functions is in `torch_function.py`, that of networks on tokens in `torch_tokens.py`.
Other kinds bring their own.

**Networks on tokens.** A target draws inputs, says what is wanted of them and writes them as tokens (`Drawn`);
`token_lesson` sets the weights of a shape free, from a random start or from weights, with the entries that the kind
holds. A kind says only what is its own: which tokens are read, what is held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.target import Target
from attnfun.learn.descend import Recipe
from attnfun.learn.probe import Row
from attnfun.network import TokenArchitecture, TokenNetwork, TokenTransformer
from attnfun.network.head import Array

if TYPE_CHECKING:
    from torch import Tensor


class Problem(ABC):
    """What a run needs to know of what it trains: one vector of weights, batches, a loss, a row of the history.

    The loop (`torch_fit.py`) knows nothing else. Weights are one float64 vector in NumPy, one of `dtype` in torch.
    Everything is a function of its arguments.
    """

    chosen_by: str = "sup"
    """The column of a row, "sup" or "loss", that is least for the network that is returned."""

    @property
    @abstractmethod
    def dtype(self) -> str: ...

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """JSON of all that decides a run but its recipe: a checkpoint of another one is refused."""

    @abstractmethod
    def start(self) -> Array:
        """The vector to start from."""

    @abstractmethod
    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        """Fresh inputs and targets; fewer, or none, where targets are not finite."""

    def sample(self, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
        """The fixed inputs and targets of a polish."""
        return self.batch(rng, count, 0.0)

    @abstractmethod
    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """What the weights make of the inputs, in the form of the targets."""

    def loss(self, theta: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return ((self.outputs(theta, inputs) - targets) ** 2).mean()

    @abstractmethod
    def network(self, vector: Array | None) -> Any:
        """The network of a vector, or of the start itself for None; InvalidRequest for weights that are not finite."""

    @abstractmethod
    def measure(self, network: Any, step: int, phase: str) -> Row:
        """Its row, on the probe."""

    def tensors(self, inputs: Array, targets: Array) -> tuple[Tensor, Tensor]:
        """Both in the dtype."""
        import torch

        kind = getattr(torch, self.dtype)
        return torch.tensor(inputs, dtype=kind, device="cpu"), torch.tensor(targets, dtype=kind, device="cpu")


def digest(*arrays: Array) -> str:
    """A sha256 of the bits of arrays."""
    return sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


T = TypeVar("T", bound=Target)


@dataclass(frozen=True, eq=False)
class Ask(Generic[T]):
    """One request to `train`.

    `target`: what to train towards. `architecture`: what was given in a model's place, as a rule a shape alone; else
    None, and the shape is that of the given model. `start`: "random", "constructed", or weights (a model's or a
    network). `source`: the model that the target comes from, if any. `widths` and `rank` put ReLU towers in the place
    of a relation's own.
    """

    recipe: Recipe
    target: T
    architecture: Any = None
    start: Any = "random"
    widths: Sequence[int] | None = None
    rank: int | None = None
    source: Any = None

    def weights_of(self, given: Any) -> Any:
        """The weights of the model that is given: of a kind that a shape alone does not describe."""
        if self.architecture is not None:
            other = type(self.architecture).__name__
            raise InvalidRequest(f"{self.target.text[:60]} is learned by a model of it; what was given is: {other}")
        return given.weights

    def no_towers(self) -> None:
        require(self.widths is None and self.rank is None, "widths and rank are those of the towers of a relation")

    def other_start(self) -> InvalidRequest:
        needed = "random, constructed, or a network of the same kind is needed"
        return InvalidRequest(f"start={self.start!r:.60}: {needed}")

    def no_noise(self) -> None:
        require(not self.recipe.noise, "noise on the inputs is for functions and sequence maps; leave it out")


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


Held = Mapping[str, tuple[Array, Array]]
"""By the name of an array: (values, which entries are free)."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """The task of a target whose inputs are written as tokens for `weights` (all that `encode` looks at in them; the
    shape unless given).

    The loss and the errors are about the tokens `reads` of a network's outputs; `wanted` turns `exact` into values of
    them. `chosen_by`: what the best network has least of, "sup" or "loss".
    """

    target: Target
    architecture: TokenArchitecture
    reads: slice = field(default_factory=lambda: slice(None))
    wanted: Callable[[Any], Any] = lambda exact: exact
    chosen_by: str = "sup"
    weights: Any = None

    noisy: ClassVar[bool] = False
    """Whether noise on the inputs has a meaning."""

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        """(count, n, width) tokens and (count, tokens read, outputs) values."""
        inputs = self.target.draw(rng, count)
        values = np.asarray(self.wanted(self.target.exact(*inputs)), dtype=np.float64)
        (tokens,), _ = self.target.encode(self.weights or self.architecture, *inputs)
        return np.asarray(tokens, dtype=np.float64), values.reshape(count, -1, len(self.architecture.outputs))


def shape_of(given: Any, ask: Ask[Any]) -> TokenArchitecture:
    """An architecture of one's own, or that of the given model."""
    ask.no_towers()
    found = given.architecture if ask.architecture is None else ask.architecture
    if not isinstance(found, TokenArchitecture):
        raise InvalidRequest(f"{ask.target.text[:60]} is learned by a TokenArchitecture, not a {type(found).__name__}")
    return found


def token_lesson(
    given: Any,
    ask: Ask[Any],
    *,
    target: Target | None = None,
    held: Callable[[Any], Held] = lambda model: {},
    weights: Callable[[Any], Any] = lambda network: network,
    request: Mapping[str, Any] | None = None,
    written: Any = None,
    **task: Any,
) -> Lesson:
    """The lesson of a target on tokens, in the shape of `given` (a model or an architecture).

    `held(given)` is asked of a construction's own shape: in any other all weights are free. `weights` makes a model's
    weights of a network, `target` is what it is then for, if not what was asked; inputs are written for `written`, if
    not for the shape. The rest is that of `Drawn`.
    """
    shape, asked = shape_of(given, ask), target or ask.target
    if asked.fits(shape if written is None else written):
        raise InvalidRequest(f"the architecture has other coordinates or outputs than the tokens of {asked.text[:60]}")
    free = ask.architecture is not None or given.request.get("shape") == "free"
    drawn = Drawn(asked, shape, weights=written, **task)
    own = {**(request or {}), **({"shape": "free"} if free else {})}
    return lesson_of(ask, drawn, asked, {} if free else held(given), weights, own)


def lesson_of(
    ask: Ask[Any],
    task: Drawn,
    target: Target,
    held: Held,
    weights: Callable[[Any], Any],
    request: Mapping[str, Any],
) -> Lesson:
    """The lesson of a task, from its own random start or from a network of its shape."""
    from attnfun.learn.torch_tokens import TokenProblem

    begin: Any = ask.recipe.seed
    if not isinstance(ask.start, str):
        begin = getattr(ask.start, "network", ask.start)
        if not isinstance(begin, (TokenNetwork, TokenTransformer)):
            raise ask.other_start()
        require(begin.architecture == task.architecture, "the start has another architecture than the one asked for")
    if not task.noisy:
        ask.no_noise()
    return Lesson(target, TokenProblem(task, held, begin), weights, request)
