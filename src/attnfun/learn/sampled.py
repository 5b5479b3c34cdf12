"""SampledTask: token matrices and what is wanted of them, both from a sampler."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from attnfun.errors import InvalidRequest, require
from attnfun.language.inputs import numbers
from attnfun.language.target import Array, Json, Target
from attnfun.network.tokens import misfit, sample_size, widened

Sampler = Callable[[np.random.Generator, int], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class SampledTask(Target):
    """Any sampler: `sampler(rng, count)` gives (count, n, width) tokens and (count, tokens read, outputs) values.

    `tokens`: which tokens are read, a slice of the n; all of them unless given. `name` stands for the sampler in
    checkpoints, beside the values of the probe, and in files, which do not hold it. `coordinates` and `outputs` are
    those of an architecture for it (`TokenArchitecture.plain(task.coordinates, task.outputs, …)`).
    """

    kind: ClassVar[str] = "sampled"
    draws_what: ClassVar[str] = "draws of its sampler"

    name: str
    sampler: Sampler
    coordinates: tuple[str, ...]
    outputs: tuple[str, ...] = ("f",)
    tokens: slice = field(default_factory=lambda: slice(None))
    chosen_by: str = "sup"

    def __post_init__(self) -> None:
        require(self.chosen_by in ("sup", "loss"), f"chosen_by={self.chosen_by!r:.30}: write sup or loss")
        if not callable(self.sampler) or not isinstance(self.tokens, slice):
            raise InvalidRequest("a SampledTask needs a sampler(rng, count) and, as tokens, a slice of those it draws")

    @property
    def text(self) -> str:
        return self.name

    @property
    def domain(self) -> str:
        return "token matrices of its sampler"

    def to_json(self) -> Json:
        own = {"name": self.name, "coordinates": list(self.coordinates), "outputs": list(self.outputs)}
        at = [self.tokens.start, self.tokens.stop, self.tokens.step]
        return {**own, "tokens": at, "chosen_by": self.chosen_by}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Without the sampler: whatever asks for draws is refused, and told why."""
        name, names, outputs, ends = (data[key] for key in ("name", "coordinates", "outputs", "tokens"))
        texts = [name, *names, *outputs]
        whole = len(ends) == 3 and all(end is None or type(end) is int for end in ends) and ends[2] != 0
        if not whole or not all(isinstance(text, str) for text in texts):
            raise InvalidRequest("the file does not say what its network was trained on")
        return cls(name, _no_sampler(name), tuple(names), tuple(outputs), slice(*ends), data["chosen_by"])

    def fits(self, weights: Any) -> str:
        return misfit(weights, self.coordinates, len(self.outputs))

    def encode(self, weights: Any, tokens: Any, _wanted: Any = None) -> tuple[tuple[Array], None]:
        """(batch, n, coordinates of the task); what is wanted of them, where it comes along, is not looked at."""
        given, width = numbers(tokens, "tokens"), len(self.coordinates)
        require(given.ndim == 3 and given.shape[2] == width, f"tokens of shape {given.shape}, not (batch, n, {width})")
        return (widened(given, weights.width),), None

    def decode(self, outputs: Any, _how: None) -> Array:
        """(batch, tokens read, outputs)."""
        return np.asarray(outputs[:, self.tokens], dtype=np.float64)

    def sample_size(self, weights: Any) -> int:
        tokens = self.draw(np.random.default_rng(0), 1)[0].shape[1]
        return sample_size(tokens + weights.cost.keys, weights.cost.heads)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Tokens, and what is wanted of them."""
        drawn = self.sampler(rng, count)
        if not isinstance(drawn, (tuple, list)) or len(drawn) != 2:
            raise InvalidRequest(f"the sampler gives {drawn!r:.60}, not tokens and values")
        tokens, values = (np.asarray(part, dtype=np.float64) for part in drawn)
        fits = tokens.ndim == values.ndim == 3 and len(tokens) == len(values) == count
        fits = fits and tokens.shape[2] == len(self.coordinates) and values.shape[2] == len(self.outputs)
        if not fits or values.shape[1] != len(range(tokens.shape[1])[self.tokens]):
            wanted = f"(draws, n, {len(self.coordinates)}) and (draws, tokens that are read, {len(self.outputs)})"
            raise InvalidRequest(
                f"the sampler gives tokens of shape {tokens.shape} and values of shape {values.shape} for {count} "
                f"draws; wanted are {wanted}"
            )
        require(np.isfinite(tokens).all() and np.isfinite(values).all(), "some numbers of the sampler are not finite")
        return tokens, values

    def exact(self, _tokens: Any, values: Any) -> Array:
        """What the sampler said, for drawn inputs."""
        return np.asarray(values, dtype=np.float64)


def _no_sampler(name: str) -> Sampler:
    def sampler(_rng: np.random.Generator, _count: int) -> tuple[Any, Any]:
        raise InvalidRequest(
            f"the sampler of {name!r:.60} is a Python function that is not in the file: the network runs without it, "
            "but to train, measure or compare it give af.train(model.architecture, task) the task again"
        )

    return sampler
