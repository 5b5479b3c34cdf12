"""SparseAverage: the view of a model that averages over named positions; and its words."""

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest, present
from attnfun.kinds.average.prove import AverageBound, averaged
from attnfun.kinds.average.target import Averages, rule_of_thumb
from attnfun.kinds.average.weights import Coded, Sets
from attnfun.limits.separation.published import Quoted, sparse_average_width
from attnfun.model import Model, Of
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.network.words import explain as explain


class SparseAverage(Model[Averages, Coded]):  # type: ignore[type-var]  # `Of` is not seen as what it gives
    """Heads that average z over the q positions each token names: `net(z, subsets)` for (N, dim) numbers and N sets.

    What is proved is about the sets given; other sets are proved when they are encoded.
    """

    network, codes = Of[TokenNetwork | TokenTransformer]("weights"), Of[NDArray[np.float64]]("weights")
    tokens, q, dim = Of[int]("target"), Of[int]("target"), Of[int]("target")
    keys, heads, width, seed = Of[str]("target"), Of[int]("target"), Of[int]("target"), Of[int]("target")
    z_range, subsets = Of[tuple[float, float]]("target"), Of[Sets]("target")

    @property
    def eps(self) -> float:
        """What was asked for; InvalidRequest for trained weights, of which nothing was."""
        return present(self.target.others, InvalidRequest("no eps was asked of these weights"))

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
        try:
            return averaged(self.target, self.weights, self.subsets)
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


def record(model: SparseAverage) -> dict[str, Any]:
    """What it averages, and what is proved of these weights; of weights that nothing is proved of only the former."""
    target = model.target
    told: dict[str, Any] = {"tokens": target.tokens, "q": target.q, "codes": target.keys, "dimension": target.width}
    told |= {"eps": target.others, "subsets": len(target.subsets)}
    told |= {"rule_of_thumb": rule_of_thumb(target.tokens, target.q)}
    try:
        bound, bits = model.bound, model.bits
    except InvalidRequest:
        return told
    told |= {"status": model.certificate.status.value, "heads": target.heads, "margin": bound.margin}
    told |= {"beta": bound.beta, "bits": bits, "error": bound.error, "parameters": model.cost.parameters}
    return told | {"hypotheses": list(model.certificate.hypotheses), "published": [model.published.record()]}
