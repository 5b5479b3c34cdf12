"""Matching: the view of a model that matches; what `matching`, `load` and `train` return."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.kinds.matching.prove import MatchBound, bounds
from attnfun.kinds.matching.target import Matches
from attnfun.kinds.matching.third_order import third_order
from attnfun.model import Model
from attnfun.network import TokenNetwork, TokenTransformer


class Matching(Model[Matches, TokenNetwork | TokenTransformer]):
    """A network that marks tokens which sum to 0 mod `modulus` with `order` − 1 others, and what is proved of it.

    Called on (N,) or (batch, N) whole numbers: above 0.8 on a match, below 0.2 otherwise, where that is proved.
    """

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.weights

    @property
    def tokens(self) -> int:
        return self.target.tokens

    @property
    def modulus(self) -> int:
        return self.target.modulus

    @property
    def order(self) -> int:
        return self.target.order

    @property
    def self_allowed(self) -> bool:
        return self.target.self_allowed

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
        if self.order != 3:
            raise InvalidRequest(f"order={self.order}: third-order attention matches triples")
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
