"""SparseAverage: the view of a model that averages over named positions."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.kinds.average.encoding import Sets
from attnfun.kinds.average.prove import AverageBound, averaged
from attnfun.kinds.average.target import Averages
from attnfun.kinds.average.weights import Coded
from attnfun.limits.separation.published import Quoted, sparse_average_width
from attnfun.model import Model
from attnfun.network import TokenNetwork, TokenTransformer


class SparseAverage(Model[Averages, Coded]):
    """Heads that average z over the q positions each token names: `net(z, subsets)` for (N, dim) numbers and N sets.

    What is proved is about the sets given; other sets are proved when they are encoded.
    """

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.weights.network

    @property
    def codes(self) -> NDArray[np.float64]:
        return self.weights.codes

    @property
    def tokens(self) -> int:
        return self.target.tokens

    @property
    def q(self) -> int:
        return self.target.q

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def keys(self) -> str:
        return self.target.keys

    @property
    def heads(self) -> int:
        return self.target.heads

    @property
    def width(self) -> int:
        return self.target.width

    @property
    def z_range(self) -> tuple[float, float]:
        return self.target.z_range

    @property
    def seed(self) -> int:
        return self.target.seed

    @property
    def subsets(self) -> Sets:
        return self.target.subsets

    @property
    def eps(self) -> float:
        """What was asked for; InvalidRequest for trained weights, of which nothing was."""
        if self.target.others is None:
            raise InvalidRequest("no eps was asked of these weights")
        return self.target.others

    def encode(self, z: ArrayLike, subsets: Any) -> NDArray[np.float64]:
        """(N, dim) numbers and one set for every token -> (N, width of tokens); sets are proved before they are used.

        The query of a set is computed here, by a linear solve (random keys) or a product (curve), not by the network.
        """
        return self.target.encode(self.weights, z, subsets)[0][0]

    def exact(self, z: ArrayLike, subsets: Any) -> NDArray[np.float64]:
        """The target itself."""
        return self.target.exact(z, subsets)

    @cached_property
    def bound(self) -> AverageBound:
        """What is proved for the sets given, worked out from the weights when it is asked for."""
        target = self.target
        queries = self.weights.queries(target.keys, target.subsets, target.heads)
        try:
            return averaged(self.weights, queries, target.subsets, target.z_range)
        except Undecided as why:
            raise InvalidRequest(f"nothing is proved of these weights: {why}") from None

    @property
    def bits(self) -> int:
        """Bits of a query's numbers, sign and all: each the nearest of 2^bits equally spaced ones from −W to W, W the
        largest of them. That moves logits by D = β reach/(2^bits − 1) at most, and costs at most (range) tanh(D/2) ≤
        eps on top of the proved error.
        """
        width = self.z_range[1] - self.z_range[0]
        steps = self.bound.beta * self.bound.reach * width / (2 * self.eps) * (1 + 1e-9)
        return max(1, math.ceil(math.log2(steps + 1)))

    @property
    def published(self) -> Quoted:
        """The lower bound of the literature, constant taken as 1."""
        return sparse_average_width(self.q, self.bits)
