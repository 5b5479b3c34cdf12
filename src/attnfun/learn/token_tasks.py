"""What a network on tokens is trained towards: a way to draw token matrices and the values wanted of them.

| task | tokens | wanted | errors are |
| --- | --- | --- | --- |
| `SequenceTask` | sequences, uniform in the box | the map's values at every token | by entry |
| `PromptTask` | prompts of the class, one query each | the exact solver's prediction at the query | by prompt |
| `SetTask` | sets, uniform in the box, one token an element or a pair | the set function's value | by entry |
| `SampledTask` | a sampler's | the sampler's | by entry |
| `PointsTask` | uniform points on the sphere | the furthest or nearest point, or a sign | lengths, by query |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.network import TokenArchitecture, token_coordinates
from attnfun.network.head import AnyArray, Array
from attnfun.network.sequence_tokens import embedded
from attnfun.targets import Box, SequenceMap
from attnfun.targets.in_context import InContextTask
from attnfun.targets.in_context_batch import draw_prompts, exact_for_all
from attnfun.targets.set_function import pair_tokens

Embedding = tuple[tuple[tuple[Array, Array], ...], Array]
_PAIRS = 1 << 24  # of tokens at a time: 128 MB of logits a head


class TokenTask(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def domain(self) -> str: ...

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
class SequenceTask:
    """A sequence map; `embedding` has the terms and the constant (`sequence_embedding`, or a constructed network's)
    that write sequences as tokens.
    """

    target: SequenceMap
    embedding: Embedding
    dtype: str
    chosen_by = "sup"

    @property
    def text(self) -> str:
        return self.target.text

    @property
    def domain(self) -> str:
        return f"{self.target.tokens} tokens, {self.target.box.text}"

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target.to_json(), "domain": self.target.box.text}

    def sequences(self, rng: np.random.Generator, count: int) -> Array:
        box = self.target.box
        return box.sample(count * self.target.tokens, rng).reshape(count, self.target.tokens, box.dim)

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        X = self.sequences(rng, count)
        values = self.target.values(X)
        if noise:
            width = (self.target.box.high_array - self.target.box.low_array) / 2
            X = X + noise * width * rng.standard_normal(X.shape)
        return embedded(*self.embedding, X, self.dtype).astype(np.float64), values

    def read(self, outputs: Any) -> Any:
        return outputs

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.abs(outputs - values).reshape(len(values), -1))


@dataclass(frozen=True, eq=False)
class SetTask(SequenceTask):
    """Sets of `points` points of `box`, as the tokens of a sequence map: one an element, or with `pairs` one a pair.

    The map says the set function's value at every token; only token matrices that are of a set are drawn.
    """

    box: Box
    points: int
    pairs: bool

    def sequences(self, rng: np.random.Generator, count: int) -> Array:
        sets = self.box.sample(count * self.points, rng).reshape(count, self.points, self.box.dim)
        return pair_tokens(sets) if self.pairs else sets


def sequence_embedding(target: SequenceMap, architecture: TokenArchitecture) -> Embedding:
    """The tokens of `token_coordinates`, zeros in all other coordinates."""
    names, n, d = token_coordinates(target), target.tokens, target.box.dim
    if architecture.coordinates[: len(names)] != names:
        raise InvalidRequest(
            f"tokens of {', '.join(architecture.coordinates)[:60]} cannot hold the sequence: "
            "make the architecture by TokenArchitecture.for_target"
        )
    constant = np.zeros((n, architecture.width))
    constant[:, d] = 1.0
    if len(names) > d + 1:
        constant[:, d + 1 : d + 1 + n] = np.eye(n)
    return ((np.eye(n), np.eye(d, architecture.width)),), constant


@dataclass(frozen=True, eq=False)
class PromptTask:
    """A regression in context, with tokens of these coordinates (`targets.in_context.prompt`)."""

    target: InContextTask
    coordinates: tuple[str, ...]
    chosen_by = "sup"

    def __post_init__(self) -> None:
        missing = [name for name in token_coordinates(self.target) if name not in self.coordinates]
        if missing:
            raise InvalidRequest(f"tokens without {', '.join(missing)[:60]} cannot hold a prompt of {self.target.text}")

    @property
    def text(self) -> str:
        return self.target.text

    @property
    def domain(self) -> str:
        return self.target.domain

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target.to_json(), "coordinates": list(self.coordinates)}

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        if noise:
            raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
        X, y, q = draw_prompts(self.target, rng, count)
        return prompts(self.coordinates, self.target, X, y, q), exact_for_all(self.target, X, y, q)[:, None, None]

    def read(self, outputs: Any) -> Any:
        return outputs[:, 2 * self.target.examples :]

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.abs(outputs - values)[:, :, 0])


def prompts(coordinates: tuple[str, ...], task: InContextTask, X: Array, y: Array, q: Array) -> Array:
    """(count, 2 examples + 1, width): `targets.in_context.prompt` for many full prompts with one query each."""
    at = {name: k for k, name in enumerate(coordinates)}
    xs, qs = ([at[f"{letter}{j + 1}"] for j in range(task.dim)] for letter in "xq")
    N = task.examples
    tokens = np.zeros((len(X), 2 * N + 1, len(coordinates)))
    tokens[:, :N, xs], tokens[:, N : 2 * N, xs] = X, -X
    tokens[:, :N, at["y"]], tokens[:, N : 2 * N, at["y"]] = y, -y
    tokens[:, 2 * N, qs] = q
    tokens[:, :, at["one"]] = 1.0
    tokens[:, : 2 * N, at["data"]] = 1.0
    return tokens


@dataclass(frozen=True, eq=False)
class PointsTask:
    """Points on a sphere; `given` draws them, `tokens` and `wanted` are those of the network that is trained."""

    text: str
    domain: str
    about: dict[str, Any]
    given: Callable[[np.random.Generator, int], Array]
    tokens: Callable[[Array], Array]
    wanted: Callable[[Array], Array]
    every: bool
    chosen_by = "loss"  # their error is a mean: the largest says little

    def to_json(self) -> dict[str, Any]:
        return {"target": self.about}

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        if noise:
            raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
        points = self.given(rng, count)
        goal = self.wanted(points)
        return self.tokens(points), goal if self.every else goal.reshape(count, 1, -1)

    def read(self, outputs: Any) -> Any:
        return outputs if self.every else outputs[:, -1:]

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.linalg.norm(outputs - values, axis=2))


@dataclass(frozen=True, eq=False)
class SampledTask:
    """Any sampler: `sampler(rng, count)` gives (count, n, width) tokens and (count, tokens read, outputs) values.

    `tokens`: which tokens are read, a slice of the n; all of them unless given. `name` stands for the sampler in
    checkpoints, beside the values of the probe. `coordinates` and `outputs` are those of an architecture for it
    (`TokenArchitecture.plain(task.coordinates, task.outputs, …)`).
    """

    name: str
    sampler: Callable[[np.random.Generator, int], tuple[Array, Array]]
    coordinates: tuple[str, ...]
    outputs: tuple[str, ...] = ("f",)
    tokens: slice = field(default_factory=lambda: slice(None))
    chosen_by: str = "sup"

    def __post_init__(self) -> None:
        if self.chosen_by not in ("sup", "loss"):
            raise InvalidRequest(f"chosen_by={self.chosen_by!r:.30}: write sup or loss")
        if not callable(self.sampler) or not isinstance(self.tokens, slice):
            raise InvalidRequest("a SampledTask needs a sampler(rng, count) and, as tokens, a slice of those it draws")

    @property
    def text(self) -> str:
        return self.name

    @property
    def domain(self) -> str:
        return "token matrices of its sampler"

    def to_json(self) -> dict[str, Any]:
        at = [self.tokens.start, self.tokens.stop, self.tokens.step]
        return {"target": self.name, "coordinates": list(self.coordinates), "tokens": at, "chosen by": self.chosen_by}

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        if noise:
            raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
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
        if not np.isfinite(tokens).all() or not np.isfinite(values).all():
            raise InvalidRequest("the sampler gives numbers that are not finite")
        return tokens, values

    def read(self, outputs: Any) -> Any:
        return outputs[:, self.tokens]

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.abs(outputs - values).reshape(len(values), -1))


@dataclass(frozen=True, eq=False)
class Widened:
    """A task whose tokens get coordinates that start at 0, up to the width of an architecture."""

    task: TokenTask
    width: int

    @property
    def text(self) -> str:
        return self.task.text

    @property
    def domain(self) -> str:
        return self.task.domain

    @property
    def chosen_by(self) -> str:
        return self.task.chosen_by

    def to_json(self) -> dict[str, Any]:
        return self.task.to_json()

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        tokens, values = self.task.draw(rng, count, noise)
        return widened(tokens, self.width), values

    def read(self, outputs: Any) -> Any:
        return self.task.read(outputs)

    def errors(self, outputs: Array, values: Array) -> Array:
        return self.task.errors(outputs, values)


def widened(tokens: Array, width: int) -> Array:
    """Zeros behind the coordinates, up to `width`."""
    return np.concatenate([tokens, np.zeros((*tokens.shape[:-1], width - tokens.shape[-1]))], axis=-1)


def run_tokens(network: Any, tokens: AnyArray) -> Array:
    """(batch, n, width) → the network's outputs in float64; infinities and NaN as they come. Few pairs at a time."""
    step = max(1, _PAIRS // max(1, tokens.shape[1] ** 2))
    with np.errstate(all="ignore"):
        parts = [network.run(tokens[start : start + step]) for start in range(0, len(tokens), step)]
    return np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
