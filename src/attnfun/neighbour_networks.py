"""`neighbours`: networks that find the furthest or nearest of points on a sphere; the object it returns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.stored import kept
from attnfun.constructions.neighbours import (
    METHODS,
    Prediction,
    biased,
    full_rank,
    majority_vote,
    random_heads,
    scores,
    tally,
)
from attnfun.constructions.neighbours.layout import tokens
from attnfun.constructions.neighbours.sphere import uniform_points
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.limits.separation.rank import MOST_DIM
from attnfun.limits.separation.rank import rank as rank_bound
from attnfun.network import (
    Cost,
    TokenArchitecture,
    TokenNetwork,
    TokenTransformer,
    load_tokens,
    save_tokens,
    tokens_to_torch,
)
from attnfun.network.claim import MEAN_SQUARE, Claim
from attnfun.network.sealed import Source
from attnfun.targets.numbers import whole_number

if TYPE_CHECKING:
    import torch

KIND = "neighbours"
WHICH = ("furthest", "nearest")
MOST_POINTS = 4096
MOST_HEADS = 20_000
_MOST_PARAMETERS = 2 * 10**8
_BLOCK = 1 << 22  # entries of tokens at a time
_DEFAULT_EPS = 1e-3

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """Monte Carlo of the network itself: E|target − output|² and how often it points at the right point, each with its
    standard error over independent sets of points."""

    error: float
    error_se: float
    accuracy: float
    accuracy_se: float
    queries: int
    seed: int


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A network for `which` of `points` points in dimension `dim`, and what is predicted of it.

    method "full_rank": every point is a query; called on (batch, points, dim) it gives (batch, points, dim). Other
    methods: the last point is the query; (batch, dim), and for "biased" (batch,) signs.
    """

    method: str
    dim: int
    points: int
    which: str
    network: TokenNetwork | TokenTransformer
    predicted: Prediction
    request: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, points: ArrayLike) -> Array:
        given = self._points(points)
        step = max(1, _BLOCK // (self.points * self.network.width))
        parts = [self._read(self.network.run(self.tokens(given[k : k + step]))) for k in range(0, len(given), step)]
        return np.concatenate(parts)

    def tokens(self, points: ArrayLike) -> Array:
        """(batch, points, dim) -> (batch, points, width): what the network, here and in torch, reads."""
        return tokens(self.network.coordinates, self._points(points))

    def target(self, points: ArrayLike) -> Array:
        """What the network should put out, in the same shape; of exact ties the first."""
        given = self._points(points)
        if self.method == "biased":
            return np.where(np.sum(given[:, 0] * given[:, 1], axis=1) > self.request["bias"], 1.0, -1.0)
        chosen = self.chosen(given)
        found = np.take_along_axis(given, chosen[:, :, None], axis=1)
        return found if self.method == "full_rank" else found[:, 0]

    def chosen(self, points: ArrayLike) -> NDArray[np.int64]:
        """(batch, queries): which point is right, by number."""
        given = self._points(points)
        if self.method == "full_rank":
            gram = given @ np.swapaxes(given, 1, 2)
            at = np.arange(self.points)
            gram[:, at, at] = np.inf if self.which == "furthest" else -np.inf
        else:
            gram = (given[:, -1:] @ np.swapaxes(given[:, :-1], 1, 2))
        return np.asarray(gram.argmin(axis=2) if self.which == "furthest" else gram.argmax(axis=2))

    def measured(self, n: int = 10_000, seed: int = 0, progress: Callable[..., None] | None = None) -> Measured:
        """Run the network on at least `n` queries of independent uniform points."""
        count, start = whole_number("n", n, 2), whole_number("seed", seed, 0)
        per = self.points if self.method == "full_rank" else 1
        sets = max(2, -(-count // per))
        rng = np.random.default_rng([start, 7])
        step = max(1, min(sets, _BLOCK // (8 * self.points * max(self.network.width, self.points))))
        errors, right = np.empty(sets), np.empty(sets)
        for k in range(0, sets, step):
            points = uniform_points(rng, min(step, sets - k), self.points, self.dim)
            errors[k : k + step], right[k : k + step] = self._judged(points)
            if progress is not None:
                progress(min(1.0, (k + step) / sets))
        root = math.sqrt(sets)
        return Measured(
            error=float(errors.mean()),
            error_se=float(errors.std(ddof=1) / root),
            accuracy=float(right.mean()),
            accuracy_se=float(right.std(ddof=1) / root),
            queries=sets * per,
            seed=start,
        )

    def _judged(self, points: Array) -> tuple[Array, Array]:
        """Per set of points: mean squared error and share of right answers."""
        out, goal = self(points), self.target(points)
        if self.method == "biased":
            return (out - goal) ** 2, (np.sign(out) == goal).astype(np.float64)
        wide, wanted = out.reshape(len(points), -1, self.dim), goal.reshape(len(points), -1, self.dim)
        errors = np.sum((wide - wanted) ** 2, axis=2).mean(axis=1)
        seen = points if self.method == "full_rank" else points[:, :-1]
        closeness = wide @ np.swapaxes(seen, 1, 2)
        if self.method == "full_rank":
            at = np.arange(self.points)
            closeness[:, at, at] = -np.inf
        return errors, (closeness.argmax(axis=2) == self.chosen(points)).mean(axis=1)

    def _points(self, points: ArrayLike) -> Array:
        try:
            given = np.asarray(points, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidRequest("points must be an array of numbers") from error
        if given.ndim != 3 or given.shape[1:] != (self.points, self.dim) or not len(given):
            raise InvalidRequest(f"points of shape {given.shape}: (batch, {self.points}, {self.dim}) is needed")
        if not np.all(np.abs(np.sum(given * given, axis=2) - 1) <= 1e-6):
            raise InvalidRequest("points must be unit vectors, to 1e-6: divide by their norms")
        return given

    def _read(self, out: Any) -> Array:
        wide = np.asarray(out, dtype=np.float64)
        if self.method == "full_rank":
            return wide
        return wide[:, -1, 0] if self.method == "biased" else wide[:, -1]

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def limit(self) -> dict[str, Any] | None:
        """For one layer of heads of low rank: what no such heads get below, from `af.bounds.rank`.

        None for trained heads: their values are matrices, which these bounds do not cover.
        """
        asked, dim = self.request, self.dim
        if asked.get("method") == "train" or (self.method == "random_heads" and not {"rank", "heads"} <= set(asked)):
            return None
        if self.method == "random_heads":
            bound = rank_bound(dim, int(asked["rank"]), int(asked["heads"]), setting="softmax-scalar-v")
            scalar = rank_bound(dim, int(asked["rank"]), int(asked["heads"]))
            upper = None if scalar.upper is None else scalar.upper / 2
            return {"lower": bound.lower, "generalised_heads_upper": upper, "setting": bound.setting}
        if self.method == "biased":
            bound = rank_bound(dim, max(1, dim // 2), 1, bias=float(asked["bias"]))
            return {"lower": bound.lower, "rank": bound.rank, "heads": 1, "setting": bound.setting}
        return None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        c = self.cost
        return {
            "method": self.method,
            "verified": self.predicted.claimed is None,
            "which": self.which,
            "dim": self.dim,
            "points": self.points,
            "eps": self.request.get("eps"),
            "beta": self.request.get("beta"),
            "request": dict(self.request),
            "predicted": {**asdict(self.predicted), "details": dict(self.predicted.details)},
            "limit": self.limit,
            "layers": c.layers,
            "heads": c.heads,
            "rank": c.rank,
            "parameters": c.parameters,
            "width": self.network.width,
        }

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (see `tokens`): one attention call a layer."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, target, request and prediction in one safetensors file."""
        target: dict[str, Any] = {"kind": KIND, "dim": self.dim, "points": self.points, "which": self.which}
        target |= {"method": self.method} | ({"bias": self.request["bias"]} if self.method == "biased" else {})
        meta = {"target": target, "prediction": self.predicted.to_file(), **kept(self.request, None, MEAN_SQUARE)}
        save_tokens(path, self.network, meta)


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
    may be above eps, and only `measured` tells it (`predicted.of`). Raises Infeasible, with the nearest request that
    would do, where eps is not reached.
    """
    asked = _Asked(
        dim,
        points,
        method,
        eps=eps,
        heads=heads,
        rank=rank,
        which=which,
        beta=beta,
        sampler=sampler,
        bias=bias,
        seed=seed,
    )
    return asked.made()


class _Asked:
    """One request, checked; `made` gives the network."""

    def __init__(
        self,
        dim: Any,
        points: Any,
        method: Any,
        *,
        eps: Any = None,
        heads: Any = None,
        rank: Any = 1,
        which: Any = "furthest",
        beta: Any = None,
        sampler: Any = "same",
        bias: Any = 0.0,
        seed: Any = 0,
    ) -> None:
        self.method = method.replace("-", "_") if isinstance(method, str) else method
        if self.method not in METHODS:
            raise InvalidRequest(f"method={method!r}: write one of {', '.join(METHODS)}")
        if which not in WHICH:
            raise InvalidRequest(f"which={which!r}: write furthest or nearest")
        if sampler not in random_heads.SAMPLERS:
            raise InvalidRequest(f"sampler={sampler!r}: write {', '.join(random_heads.SAMPLERS)}")
        self.dim, self.points = whole_number("dim", dim, 3, MOST_DIM), whole_number("points", points, 2, MOST_POINTS)
        fixed = {"biased": 2, "scores": None, "full_rank": None}.get(self.method, 3)
        if fixed is not None and self.points != fixed:
            raise InvalidRequest(f"points={points}: {self.method} takes {fixed}, the query included")
        if fixed is None and self.points < 3:
            raise InvalidRequest(f"points={points}: one candidate leaves nothing to choose; at least 3")
        self.eps, self.beta = _positive("eps", eps), _positive("beta", beta)
        self.heads = None if heads is None else whole_number("heads", heads, 1, MOST_HEADS)
        self.rank, self.seed = whole_number("rank", rank, 1, self.dim), whole_number("seed", seed, 0)
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -1 < bias < 1:
            raise InvalidRequest(f"bias={bias!r}: a half-space that cuts the sphere has -1 < bias < 1")
        self.bias, self.which, self.sampler = float(bias), which, sampler
        self._belong(bias != 0, "bias", "biased")
        self._belong(heads is not None, "heads", "majority_vote", "random_heads")
        self._belong(rank != 1 or sampler != "same", "rank and sampler", "random_heads")
        self._belong(beta is not None, "beta", "full_rank", "scores", "tally", "biased")
        if self.beta is not None and self.eps is not None:
            raise InvalidRequest("give eps or beta, not both: eps decides beta")
        if self.beta is not None and self.beta > full_rank.MOST_BETA:
            raise InvalidRequest(f"beta={beta!r}: at most {full_rank.MOST_BETA:g}")

    def _belong(self, given: bool, what: str, *methods: str) -> None:
        if given and self.method not in methods:
            raise InvalidRequest(f"{what}: for {' and '.join(methods)}, not for {self.method}")

    @property
    def nearest(self) -> bool:
        return bool(self.which == "nearest")

    def made(self) -> Neighbours:
        request, network, predicted = getattr(self, f"_{self.method}")()
        asked = {"eps": self.eps, "seed": self.seed, **request}
        found = Neighbours(self.method, self.dim, self.points, self.which, network, predicted, asked)
        reached = predicted.error if self.method in ("majority_vote", "random_heads") else predicted.proved
        if self.eps is not None and not (reached is not None and reached <= self.eps):
            nearest = {"eps": _up(reached)} if reached is not None else None
            raise Infeasible(f"{self.method} in dimension {self.dim} does not reach eps={self.eps:g}", nearest=nearest)
        return found

    def _fits(self, parameters: int) -> None:
        if parameters > _MOST_PARAMETERS:
            raise Infeasible(f"{self.method} in dimension {self.dim} would have {parameters:,} parameters: too many")

    def _full_rank(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        width = self.dim + (self.points if self.nearest else 0)
        self._fits(3 * width * width)
        target = _DEFAULT_EPS if self.eps is None else self.eps
        beta = self.beta or full_rank.beta_for(self.dim, self.points, target, self.nearest)
        network = full_rank.build(self.dim, self.points, beta, self.nearest)
        return {"beta": beta}, network, full_rank.predict(self.dim, self.points, beta, self.nearest)

    def _scores(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        self._fits(2 * self.dim * 4 * (2 * self.dim + 3))
        target = _DEFAULT_EPS if self.eps is None else self.eps
        beta = self.beta or scores.beta_for(self.dim, self.points, target)
        if not math.isfinite(beta):
            raise Infeasible(f"eps={target:g} needs scores finer than {scores.SCORE_ERROR:g}; full_rank does without")
        return (
            {"beta": beta},
            scores.build(self.dim, self.points, beta, self.nearest),
            scores.predict(self.dim, self.points, beta),
        )

    def _tally(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        self._fits(self.dim * 4 * (2 * self.dim + 2))
        target = _DEFAULT_EPS if self.eps is None else self.eps
        beta = self.beta or tally.beta_for(self.dim, target)
        if beta < tally.LEAST_BETA:
            nearest = {"eps": _up(tally.predict(self.dim, tally.LEAST_BETA).proved)}
            raise Infeasible(f"eps={target:g} needs beta={beta:.2g}, which rounding drowns", nearest=nearest)
        return {"beta": beta}, tally.build(self.dim, beta, self.nearest), tally.predict(self.dim, beta)

    def _majority_vote(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        heads = self.heads
        if heads is None and self.eps is not None:
            heads = majority_vote.heads_for(self.dim, self.eps, MOST_HEADS)
            if heads is None:
                reached = majority_vote.predict(self.dim, MOST_HEADS - 1).error
                raise Infeasible(
                    f"eps={self.eps:g} takes about {self.dim / self.eps**2:.2g} votes, more than {MOST_HEADS:,}",
                    nearest={"eps": _up(reached)},
                )
        heads = self.dim**2 | 1 if heads is None else heads
        if heads % 2 == 0:
            raise InvalidRequest(f"heads={heads}: an odd number of votes is needed, or they may be even")
        if heads > MOST_HEADS:
            raise Infeasible(f"{heads:,} votes are more than {MOST_HEADS:,}", nearest={"heads": MOST_HEADS - 1})
        self._fits(heads * 6 * (2 * self.dim + 4))
        network = majority_vote.build(self.dim, heads, self.nearest, self.seed)
        return {"heads": heads}, network, majority_vote.predict(self.dim, heads)

    def _random_heads(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        heads = self.heads or self.dim
        self._fits(2 * heads * (2 * self.dim + 2) * (self.dim + self.rank + 1))
        if self.sampler == "compromise" and self.rank != 1:
            raise InvalidRequest("sampler='compromise' is for rank 1: an angle between two directions")
        hard = self.rank == 1
        if hard:
            found = random_heads.hard_heads(self.dim, heads, self.sampler, self.seed)
        else:
            found = random_heads.soft_heads(self.dim, self.rank, heads, self.sampler, self.seed)
        request = {"heads": heads, "rank": self.rank, "sampler": self.sampler}
        predicted = random_heads.predict(self.dim, found, hard)
        return request, random_heads.build(self.dim, found, self.nearest), predicted

    def _biased(self) -> tuple[dict[str, Any], TokenNetwork, Prediction]:
        target = _DEFAULT_EPS if self.eps is None else self.eps
        beta = self.beta or biased.beta_for(self.dim, target)
        if beta > full_rank.MOST_BETA:
            least = biased.predict(self.dim, self.bias, full_rank.MOST_BETA).proved
            raise Infeasible(f"eps={target:g} needs beta above {full_rank.MOST_BETA:g}", nearest={"eps": _up(least)})
        network = biased.build(self.dim, self.bias, beta)
        return {"beta": beta, "bias": self.bias}, network, biased.predict(self.dim, self.bias, beta)


def load_neighbours(path: Source) -> Neighbours:
    """The network of a file that `Neighbours.save` wrote, with the stored prediction, not made anew."""
    network, meta = load_tokens(path, units=True)
    target, claim = meta.get("target"), Claim.of(meta)
    if not isinstance(target, dict) or target.get("kind") != KIND or claim.norm != MEAN_SQUARE:
        raise DamagedFile(f"{path} holds no network of neighbours")
    try:
        dim, points, method, which = (target[key] for key in ("dim", "points", "method", "which"))
        request = claim.request(meta.get("request"))
        if method == "biased":
            request["bias"] = target["bias"]
        _Asked(dim, points, method, which=which, bias=request.get("bias", 0.0))
        predicted = Prediction.stored(meta.get("prediction") or {"error": None, "how": "the file holds no prediction"})
        found = Neighbours(method, dim, points, which, network, predicted, request)
        fits = found.tokens(np.eye(dim)[None, np.zeros(points, dtype=int)]).shape[2] == network.width
    except (KeyError, TypeError, ValueError, AttributeError, InvalidRequest) as error:
        raise DamagedFile(f"{path} says of its network what cannot be") from error
    if not fits:
        raise DamagedFile(f"{path} says of its network what cannot be")
    return found


def _up(value: float | None) -> float | None:
    """Two digits, rounded up."""
    if value is None or not (math.isfinite(value) and value > 0):
        return None
    digits = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digits) * digits


def _positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, (int, float, np.floating, np.integer)) and not isinstance(value, bool)
    if not number or not (math.isfinite(value) and value > 0):
        raise InvalidRequest(f"{name}={value!r}: a positive number is needed")
    return float(value)
