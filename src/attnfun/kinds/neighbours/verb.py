"""`neighbours`: networks that find the furthest or nearest of points on a sphere."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from attnfun.errors import Infeasible, feasible, require
from attnfun.kinds.neighbours.build import METHODS, biased, full_rank, majority_vote, random_heads, scores, tally
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.kinds.neighbours.target import PointsOnSphere
from attnfun.kinds.neighbours.view import Neighbours
from attnfun.language.numbers import one_of, positive_or_none, whole_number
from attnfun.model import Of
from attnfun.network import TokenNetwork
from attnfun.search import Goal, Proposal, Proposals, certified, one_thread, search

MOST_HEADS = 20_000
_MOST_PARAMETERS = 2 * 10**8
_DEFAULT_EPS = 1e-3
_TRIES = 6
_DRAWN = ("majority_vote", "random_heads")  # what is said of them is computed, not proved
Made = tuple[dict[str, Any], TokenNetwork, Prediction]


def neighbours(
    dim: int,
    points: int = 3,
    method: str = "full_rank",
    *,
    eps: float | None = None,
    heads: int | None = None,
    rank: int = 1,
    which: str = "furthest",
    beta: float | None = None,
    sampler: str = "same",
    bias: float = 0.0,
    seed: int = 0,
) -> Neighbours:
    """A softmax-attention network that finds the furthest or nearest of `points` points on the sphere in R^dim.

    | method | what | points | set by |
    | --- | --- | --- | --- |
    | "full_rank" | one head of rank dim; every point is a query | any | eps or beta |
    | "scores" | two layers of rank-1 heads; the last point is the query | any | eps or beta |
    | "tally" | two layers, dim rank-1 heads | 3 | eps or beta |
    | "majority_vote" | two layers, votes of random rank-1 heads | 3 | eps (in the mean over draws) or heads (odd) |
    | "random_heads" | one layer, heads of rank `rank`, `sampler` "same", "independent" or "compromise" | 3 | heads |
    | "biased" | the sign of ⟨z, y⟩ − `bias`, one head | 2 | eps or beta |

    `points` counts the query. `eps` bounds E|target − output|² for independent uniform points (E|target|² = 1): proved,
    but for two methods. For "random_heads" it is computed (those of rank 1 are hard, their error in closed form). For
    "majority_vote" it holds in the mean over draws of the directions, and the network made is one draw: its own error
    may be above eps (`predicted.of`). The certificate of these two is measured. Raises Infeasible, with the nearest
    request that would do, where eps is not reached.
    """
    name = method.replace("-", "_") if isinstance(method, str) else method
    one_of("method", name, METHODS)
    one_of("sampler", sampler, random_heads.SAMPLERS)
    for given, what, methods in (
        (bias != 0 or isinstance(bias, bool), "bias", ("biased",)),
        (heads is not None, "heads", _DRAWN),
        (rank != 1 or sampler != "same", "rank and sampler", ("random_heads",)),
        (beta is not None, "beta", ("full_rank", "scores", "tally", "biased")),
    ):
        require(not given or name in methods, f"{what}: for {' and '.join(methods)}, not for {name}")
    target = PointsOnSphere(dim, points, which, name == "full_rank", bias if name == "biased" else None)
    require(name not in (*_DRAWN, "tally") or points == 3, f"points={points}: {name} takes 3, the query included")
    require(beta is None or eps is None, "give eps or beta, not both: eps decides beta")
    beta = positive_or_none("beta", beta)
    require(beta is None or beta <= full_rank.MOST_BETA, f"beta={beta!r}: at most {full_rank.MOST_BETA:g}")
    eps, wanted = positive_or_none("eps", eps), None if heads is None else whole_number("heads", heads, 1, MOST_HEADS)
    drawn = whole_number("rank", rank, 1, target.dim), sampler, whole_number("seed", seed, 0)
    return _Asked(target, name, eps, beta, wanted, *drawn).made()


@dataclass(frozen=True)
class _Asked:
    """One request, checked; `made` gives the network."""

    target: PointsOnSphere
    method: str
    eps: float | None
    beta: float | None
    heads: int | None
    rank: int
    sampler: str
    seed: int

    dim, points = Of[int]("target"), Of[int]("target")

    @property
    def nearest(self) -> bool:
        return self.target.which == "nearest"

    def made(self) -> Neighbours:
        target, goal = self.target, Goal(self.eps, 2.0)
        if self.eps is None or self.method in _DRAWN:
            found = next(self._proposals())
            reached = found.story["predicted"]["error"]
            if self.eps is not None and not reached <= self.eps:
                why = f"{self.method} in dimension {self.dim} does not reach eps={self.eps:g}"
                raise Infeasible(why, nearest={"eps": _up(reached)})
            with one_thread():  # as `verify` measures
                certificate = certified(target, found.weights, goal, found.construction)
            if certificate.measured and self.method not in _DRAWN:
                nearest = {"beta": 1.0} if self.beta is not None and self.beta < 1 else {"method": "full_rank"}
                raise Infeasible(f"{self.method}, beta={self.beta}: {certificate.reason}", nearest)
        else:
            found, certificate = search(target, self._proposals(), goal, lambda _text: None)
        story = found.told
        asked = {"eps": self.eps, "seed": self.seed, **story.pop("request")}
        return Neighbours(target, found.weights, certificate, asked, story)

    def _proposals(self) -> Proposals:
        """The network of the request; for an eps that its proof misses a colder one, as the roundings of stored numbers
        that were left out when it was chosen may ask for.
        """
        share = 1.0
        for _ in range(_TRIES):
            eps = _DEFAULT_EPS if self.eps is None else share * self.eps
            request, network, predicted = getattr(self, f"_{self.method}")(eps)
            yield Proposal(network, self.method, {"request": request, "predicted": asdict(predicted)})
            share *= 0.99

    def _fits(self, parameters: int) -> None:
        if parameters > _MOST_PARAMETERS:
            raise Infeasible(f"{self.method} in dimension {self.dim} would have {parameters:,} parameters: too many")

    def _full_rank(self, eps: float) -> Made:
        width = self.dim + (self.points if self.nearest else 0)
        self._fits(3 * width * width)
        beta = self.beta or full_rank.beta_for(self.dim, self.points, eps, self.nearest)
        network = full_rank.build(self.dim, self.points, beta, self.nearest)
        return {"beta": beta}, network, full_rank.predict(self.dim, self.points, beta, self.nearest)

    def _scores(self, eps: float) -> Made:
        self._fits(2 * self.dim * 4 * (2 * self.dim + 3))
        beta = self.beta or scores.beta_for(self.dim, self.points, eps)
        if not math.isfinite(beta):
            raise Infeasible(f"eps={eps:g} needs scores finer than {scores.SCORE_ERROR:g}; full_rank does without")
        network = scores.build(self.dim, self.points, beta, self.nearest)
        return {"beta": beta}, network, scores.predict(self.dim, self.points, beta)

    def _tally(self, eps: float) -> Made:
        self._fits(self.dim * 4 * (2 * self.dim + 2))
        beta = self.beta or tally.beta_for(self.dim, eps)
        if beta < tally.LEAST_BETA:
            nearest = {"eps": _up(tally.predict(self.dim, tally.LEAST_BETA).proved)}
            raise Infeasible(f"eps={eps:g} needs beta={beta:.2g}, which rounding drowns", nearest=nearest)
        return {"beta": beta}, tally.build(self.dim, beta, self.nearest), tally.predict(self.dim, beta)

    def _majority_vote(self, _eps: float) -> Made:
        heads = self.heads
        if heads is None and self.eps is not None:
            heads = majority_vote.heads_for(self.dim, self.eps, MOST_HEADS)
            if heads is None:
                nearest = {"eps": _up(majority_vote.predict(self.dim, MOST_HEADS - 1).error)}
                votes = f"{self.dim / self.eps**2:.2g} votes, more than {MOST_HEADS:,}"
                raise Infeasible(f"eps={self.eps:g} takes about {votes}", nearest=nearest)
        heads = self.dim**2 | 1 if heads is None else heads
        require(heads % 2 == 1, f"heads={heads}: an odd number of votes is needed, or they may be even")
        feasible(heads <= MOST_HEADS, f"{heads:,} votes are more than {MOST_HEADS:,}", {"heads": MOST_HEADS - 1})
        self._fits(heads * 6 * (2 * self.dim + 4))
        network = majority_vote.build(self.dim, heads, self.nearest, self.seed)
        return {"heads": heads}, network, majority_vote.predict(self.dim, heads)

    def _random_heads(self, _eps: float) -> Made:
        heads = self.heads or self.dim
        self._fits(2 * heads * (2 * self.dim + 2) * (self.dim + self.rank + 1))
        require(self.sampler != "compromise" or self.rank == 1, "sampler='compromise' is for rank 1: it is an angle")
        if self.rank == 1:
            found = random_heads.hard_heads(self.dim, heads, self.sampler, self.seed)
        else:
            found = random_heads.soft_heads(self.dim, self.rank, heads, self.sampler, self.seed)
        request = {"heads": heads, "rank": self.rank, "sampler": self.sampler}
        predicted = random_heads.predict(self.dim, found, self.rank == 1)
        return request, random_heads.build(self.dim, found, self.nearest), predicted

    def _biased(self, eps: float) -> Made:
        beta, bias = self.beta or biased.beta_for(self.dim, eps), self.target.bias or 0.0
        if beta > full_rank.MOST_BETA:
            least = biased.predict(self.dim, bias, full_rank.MOST_BETA).proved
            raise Infeasible(f"eps={eps:g} needs beta above {full_rank.MOST_BETA:g}", nearest={"eps": _up(least)})
        network = biased.build(self.dim, bias, beta)
        return {"beta": beta, "bias": bias}, network, biased.predict(self.dim, bias, beta)


def and_measured(
    dim: int,
    points: int | None = None,
    method: str = "full-rank",
    queries: int = 10_000,
    seed: int = 0,
    progress: Any = None,
    **rest: Any,
) -> tuple[Neighbours, dict[str, Any]]:
    """What the command makes: a network, and its error on random queries."""
    count = points if points is not None else 2 if method == "biased" else 3
    found = neighbours(dim, count, method, seed=seed, **rest)
    return found, {"measured": asdict(found.measured(queries, seed, progress)) if queries else None}


def _up(value: float | None) -> float | None:
    """Two digits, rounded up."""
    if value is None or not (math.isfinite(value) and value > 0):
        return None
    digits = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digits) * digits
