"""Matching: the view of a model that matches, what `matching`, `load` and `train` return; and its words."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest, require
from attnfun.kinds.matching.encoding import third_order
from attnfun.kinds.matching.prove import MatchBound, bounds
from attnfun.kinds.matching.target import Matches
from attnfun.learn.lesson import Ask, Held, Lesson, token_lesson
from attnfun.model import Of, TokenModel
from attnfun.network import TokenNetwork
from attnfun.network.words import explain as explain


class Matching(TokenModel[Matches]):
    """A network that marks tokens which sum to 0 mod `modulus` with `order` − 1 others, and what is proved of it.

    Called on (N,) or (batch, N) whole numbers: above 0.8 on a match, below 0.2 otherwise, where that is proved.
    """

    tokens, modulus, order = Of[int]("target"), Of[int]("target"), Of[int]("target")
    self_allowed = Of[bool]("target")

    def encode(self, x: ArrayLike) -> NDArray[np.float64]:
        """(N,) or (batch, N) whole numbers -> token matrices: a look-up of cosines and sines (of pairs too)."""
        return self.target.encode(self.weights, x)[0][0]

    def decide(self, x: ArrayLike) -> NDArray[np.bool_]:
        """(..., N): is the output above 1/2."""
        return np.asarray(self(x) > 0.5)

    def exact(self, x: ArrayLike) -> NDArray[np.bool_]:
        """The target itself, by counting."""
        return self.target.exact(x) > 0.5

    def third_order(self, x: ArrayLike) -> NDArray[np.float64]:
        """The same by third-order attention: a softmax over pairs of the trilinear form, no pair tokens."""
        require(self.order == 3, f"order={self.order}: third-order attention matches triples")
        return third_order(self.target.given(x), self.modulus, self.bound.scale, self.bound.null, self.dtype)

    @cached_property
    def _bounds(self) -> tuple[MatchBound, ...]:
        try:
            return bounds(self.target, self.weights)
        except Undecided as why:
            raise InvalidRequest(f"nothing is proved of these weights: {why}") from None

    @property
    def bound(self) -> MatchBound:
        """What is proved of the outputs, worked out from the weights when it is asked for."""
        return self._bounds[0]

    @property
    def trilinear(self) -> MatchBound | None:
        """The same of `third_order`; None for pairs."""
        return self._bounds[1] if self.order == 3 else None

    @property
    def margin(self) -> float:
        """The proved distance of every output from 1/2."""
        return min(bound.margin for bound in self._bounds)


def record(model: Matching) -> dict[str, Any]:
    """What it matches, and what is proved of these weights; of weights that nothing is proved of only the former."""
    told = {**model.target.to_json(), "eps": model.request.get("eps"), "dtype": model.dtype}
    try:
        bound, margin = model.bound, model.margin
    except InvalidRequest:
        return told
    told |= {"status": model.certificate.status.value, "match_at_least": bound.match, "other_at_most": bound.other}
    told |= {"margin": margin, "scale": bound.scale, "null": bound.null, "logit_error": bound.logit_error}
    told |= {name: getattr(model.cost, name) for name in ("heads", "rank", "parameters")}
    return told | {"hypotheses": list(bound.hypotheses)}


def lesson(given: Any, ask: Ask[Matches]) -> Lesson:
    """All weights but what is held. One wrong decision is an error of 1, so the best network is that of least loss."""

    def held(model: Any) -> Held:
        return held_of(ask.target, model.weights)

    return token_lesson(given, ask, held=held, reads=slice(ask.target.tokens), chosen_by="loss")


def held_of(target: Matches, network: TokenNetwork) -> Held:
    """The constant token, which says what it is by its coordinates; of triples the numbers that keep single tokens out
    of sight, and of pairs without j = i those that keep flagged tokens from the first head.
    """
    held = {"constants": (network.constants, np.zeros(network.constants.shape, dtype=bool))}
    if target.order == 2 and target.self_allowed:
        return held
    head, column, at = network.heads[0], 2 if target.order == 3 else 3, network.coordinates.index
    query, key = (np.ones(array.shape, dtype=bool) for array in (head.query, head.key))
    query[:, column] = False
    if target.order == 3:
        key[[at("one"), at("pair")], column] = False
    else:
        key[:, column] = False
    return held | {"layer0/head0/query": (head.query, query), "layer0/head0/key": (head.key, key)}
