"""How networks on the tokens of a sequence are trained: all weights of a shape, from random ones or from those given.

The shape is that of a model's literal form, with its embedding, or one that was given alone, with the embedding that
its coordinates name (`sequence_embedding`). Draws are uniform in the box; the values wanted are those of the map.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.network import Embedding, TokenSequence, embedded, sequence_embedding
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.language.target import Target
from attnfun.learn.lesson import Ask, Drawn, Lesson, lesson_of
from attnfun.network import TokenArchitecture
from attnfun.network.head import Array


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceTask(Drawn):
    """Sequences written as tokens by `embedding` (its terms and its constant), and the values of the map at them.

    `drawn(rng, count)` gives the sequences.
    """

    noisy = True

    embedding: Embedding
    drawn: Callable[[np.random.Generator, int], Array]

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        asked: Any = self.target
        X = self.drawn(rng, count)
        values = asked.values(X)
        if noise:
            X = X + noise * ((asked.box.high_array - asked.box.low_array) / 2) * rng.standard_normal(X.shape)
        return embedded(*self.embedding, X, self.architecture.dtype).astype(np.float64), values


def lesson(_given: Any, ask: Ask[SequenceMap]) -> Lesson:
    """The shape of a model, or one given alone, towards the asked map."""
    target, own = ask.target, None if ask.source is None else ask.source.weights
    return taught(target, target, own, ask, lambda rng, count: target.draw(rng, count)[0], lambda weights: weights)


def taught(
    target: Target,
    asked: SequenceMap,
    own: Any,
    ask: Ask[Any],
    drawn: Callable[[np.random.Generator, int], Array],
    dress: Callable[[TokenSequence], Any],
) -> Lesson:
    """The lesson of the map `asked`, whose trained network `dress` makes weights of `target`.

    `own` are weights whose shape and embedding are taken, if no other shape was given.
    """
    ask.no_towers()
    literal = None if own is None else own.literal()
    shape = literal.architecture if ask.architecture is None and literal is not None else ask.architecture
    if not isinstance(shape, TokenArchitecture):
        raise InvalidRequest("sequences are learned by an architecture of tokens, or by a model of theirs")
    if literal is not None and literal.architecture != shape:
        literal = None
    if len(shape.outputs) != asked.outputs:
        raise InvalidRequest(f"{len(shape.outputs)} outputs cannot learn {asked.outputs} of {asked.text[:60]}")
    terms, constant = sequence_embedding(asked, shape) if literal is None else (literal.terms, literal.constant)
    task = SequenceTask(asked, shape, embedding=(terms, constant), drawn=drawn)
    if hasattr(ask.start, "literal"):
        ask = replace(ask, start=ask.start.literal())

    def weights(network: Any) -> Any:
        return dress(TokenSequence(terms, constant, network))

    return lesson_of(ask, task, target, {}, weights, {})
