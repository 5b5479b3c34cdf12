"""Neighbours: the view of a network that finds neighbours; what `neighbours` and `load` return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.kinds.neighbours.measure import Measured, measured
from attnfun.kinds.neighbours.prediction import Prediction
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.language.target import Array
from attnfun.limits.separation.rank import rank as rank_bound
from attnfun.model import Model
from attnfun.network import TokenNetwork, TokenTransformer


class Neighbours(Model[PointsOnSphere, TokenNetwork | TokenTransformer]):
    """A network for `which` of `points` points in dimension `dim`, what is proved of its mean square, and `predicted`.

    Where every point is a query (method "full_rank"), called on (batch, points, dim) it gives (batch, points, dim).
    Else the last point is the query: (batch, dim), and for "biased" (batch,) signs.
    """

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.weights

    @property
    def method(self) -> str:
        """The construction that the weights, or the shape that was trained, come from."""
        return str(self.request.get("construction") or self.story.get("construction") or "free")

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def points(self) -> int:
        return self.target.points

    @property
    def which(self) -> str:
        return self.target.which

    def tokens(self, points: ArrayLike) -> Array:
        """(batch, points, dim) -> (batch, points, width): what the network, here and in torch, reads."""
        return self.target.tokens(self.network.coordinates, self.target.checked(points))

    def chosen(self, points: ArrayLike) -> NDArray[np.int64]:
        """(batch, queries): which point is right, by number."""
        return self.target.chosen(self.target.checked(points))

    def measured(self, n: int = 10_000, seed: int = 0, progress: Callable[..., None] | None = None) -> Measured:
        """Run the network on at least `n` queries of independent uniform points."""
        return measured(self.target, self.weights, n, seed, progress)

    @cached_property
    def predicted(self) -> Prediction:
        """What the construction says of its error before it runs; of trained weights, Monte Carlo on fresh points."""
        told = self.story.get("predicted")
        if told is not None:
            return Prediction.told(told, self.certificate.verified)
        seen = self.measured(20_000, seed=77)
        how = f"measured at {seen.queries:,} queries of fresh points (uncertainty: a standard error)"
        details = {name: float(value) for name, value in asdict(seen).items()}
        return Prediction(seen.error, how, seen.error_se, accuracy=seen.accuracy, details=details)

    @property
    def limit(self) -> dict[str, Any] | None:
        """For one layer of heads of low rank: what no such heads get below, from `af.bounds.rank`.

        None for trained heads: their values are matrices, which these bounds do not cover.
        """
        asked, dim = self.request, self.dim
        if self.trained:
            return None
        if self.target.bias is not None:
            bound = rank_bound(dim, max(1, dim // 2), 1, bias=self.target.bias)
            return {"lower": bound.lower, "rank": bound.rank, "heads": 1, "setting": bound.setting}
        if self.method == "random_heads" and {"rank", "heads"} <= set(asked):
            bound = rank_bound(dim, int(asked["rank"]), int(asked["heads"]), setting="softmax-scalar-v")
            scalar = rank_bound(dim, int(asked["rank"]), int(asked["heads"]))
            upper = None if scalar.upper is None else scalar.upper / 2
            return {"lower": bound.lower, "generalised_heads_upper": upper, "setting": bound.setting}
        return None
