"""Neighbours: the view of a network that finds neighbours, what `neighbours` and `load` return; and its words."""

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.kinds.neighbours.measure import Measured, Prediction, measured
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.language.numbers import at_most
from attnfun.language.target import Array
from attnfun.learn.lesson import Ask, Lesson, token_lesson
from attnfun.limits.separation.rank import rank as rank_bound
from attnfun.model import Of, TokenModel
from attnfun.network import TokenNetwork

_KEPT = ("construction", "beta", "bias", "heads", "rank", "sampler", "seed", "shape")


class Neighbours(TokenModel[PointsOnSphere]):
    """A network for `which` of `points` points in dimension `dim`, what is proved of its mean square, and `predicted`.

    Where every point is a query (method "full_rank"), called on (batch, points, dim) it gives (batch, points, dim).
    Else the last point is the query: (batch, dim), and for "biased" (batch,) signs.
    """

    dim, points, which = Of[int]("target"), Of[int]("target"), Of[str]("target")

    @property
    def method(self) -> str:
        """The construction that the weights, or the shape that was trained, come from."""
        return str(self.request.get("construction") or self.story.get("construction") or "free")

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


def explain(model: Neighbours) -> str:
    """In words: what was built, what is proved of its mean square, what is predicted."""
    c, cost, said = model.certificate, model.cost, model.predicted
    made = "trained" if model.trained else f"built by {model.method}"
    lines = [f"{model.target.text}, {model.target.domain}."]
    size = f"{cost.layers} layers, {cost.heads:,} heads of rank at most {cost.rank:,}, width {model.network.width:,}"
    lines.append(f"{size}, {cost.parameters:,} parameters, {model.dtype}; {made}.")
    bound = f": the mean squared error is at most {at_most(c.error[1])}."
    lines += c.told(bound, f"Hypotheses: {'; '.join(c.hypotheses)}.")
    if said.error is not None:
        how = f": {said.how}" if c.verified else ""
        lines.append(f"Predicted, not a bound: {said.error:.4g} ± {said.uncertainty:.1g}, of {said.of}{how}.")
    return "\n".join(lines)


def record(model: Neighbours) -> dict[str, Any]:
    """What was asked, what is predicted, and limits."""
    told = {name: getattr(model, name) for name in ("method", "which", "dim", "points")}
    told |= {"beta": model.request.get("beta"), "request": dict(model.request)}
    return told | {"predicted": asdict(model.predicted), "limit": model.limit, "width": model.network.width}


def lesson(given: Any, ask: Ask[PointsOnSphere]) -> Lesson:
    """A model in its own shape, with its gates, or an architecture with all weights free."""
    request: dict[str, Any] = {"eps": None}
    if ask.architecture is None:
        request |= {key: value for key, value in given.request.items() if key in _KEPT}
        request |= {"construction": given.method}
    read = slice(None) if ask.target.every else slice(-1, None)
    return token_lesson(given, ask, held=gates, request=request, reads=read, chosen_by="loss")


def gates(given: Neighbours) -> dict[str, tuple[Array, Array]]:
    """Of heads of a given rank the column that keeps the query from seeing itself is not free, nor what they read.

    So the heads of "random_heads" keep their rank as cross-attention from the query to the points: W_Q reads the query,
    W_K and W_V the points, and the head that averages goes on averaging.
    """
    if given.method != "random_heads" or not isinstance(given.network, TokenNetwork):
        return {}
    d, names, held = given.dim, given.network.coordinates, dict[str, tuple[Array, Array]]()
    q = names.index("q1")
    for k, head in enumerate(given.network.heads):
        averages = not head.query[:, :-1].any()
        free = {part: np.zeros(array.shape, dtype=bool) for part, array in head.arrays.items()}
        free["query"][q : q + d, :-1] = free["key"][:d, :-1] = not averages
        free["value"][:d] = True
        free["output"][:, :d] = True
        for part, array in head.arrays.items():
            held[f"layer0/head{k}/{part}"] = array, free[part]
    held["readout"] = given.network.readout, np.zeros(given.network.readout.shape, dtype=bool)
    return held
