"""What errors are measured at: for each kind of target the same fresh draws, for constructed and learned alike.

Drawn for neither training nor choosing. Errors seen there are called sampled, never bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.certify import Certificate, Status
from attnfun.constructions.neighbours.sphere import uniform_points
from attnfun.errors import InvalidRequest
from attnfun.learn.token_tasks import prompts, run_tokens
from attnfun.learn.towers import probe_pairs
from attnfun.neighbour_networks import Neighbours
from attnfun.relations import RelationApproximant
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.sequence_model import SequenceModel
from attnfun.solver import InContextSolver
from attnfun.targets import SequenceMap
from attnfun.targets.in_context import InContextTask
from attnfun.targets.in_context_batch import draw_prompts, exact_for_all
from attnfun.targets.relation import Relation
from attnfun.token_model import TokenModel
from attnfun.tower_model import TowerModel

Array = NDArray[np.float64]
Measurable = (
    InContextSolver | SequenceApproximant | SequenceModel | RelationApproximant | TowerModel | Neighbours | TokenModel
)
_DRAWS, _LEAST, _WORK = 5000, 200, 1 << 24
_STREAM = 77


@dataclass(frozen=True, eq=False)
class Yardstick:
    """`errors(network)` are those at `count` draws, (count, entries); `same` holds what two targets must share."""

    text: str
    domain: str
    count: int
    what: str
    same: Any
    errors: Callable[[Any], Array]


def yardstick(network: Measurable) -> Yardstick:
    """For the target of this network; InvalidRequest for anything that has none of these kinds."""
    rng = np.random.default_rng([_STREAM, 1])
    if isinstance(network, InContextSolver):
        return _prompts(network.task, rng, network)
    if isinstance(network, (SequenceApproximant, SequenceModel)):
        return _sequences(network.target, rng, network)
    if isinstance(network, (RelationApproximant, TowerModel)):
        return _pairs(network.target, rng)
    if isinstance(network, Neighbours):
        return _points(network, rng)
    if isinstance(network, TokenModel):
        return _sampled(network, rng)
    raise InvalidRequest(f"{type(network).__name__} has no error that is measured here")


def _draws(tokens: int, heads: int) -> int:
    return max(_LEAST, min(_DRAWS, _WORK // (tokens * tokens * max(1, heads))))


def _finite(error: Array) -> Array:
    return np.where(np.isnan(error), np.inf, error)


def _prompts(task: InContextTask, rng: np.random.Generator, network: InContextSolver) -> Yardstick:
    count = _draws(2 * task.examples + 1, network.cost.heads)
    X, y, q = draw_prompts(task, rng, count)
    exact = exact_for_all(task, X, y, q)

    def errors(one: InContextSolver) -> Array:
        tokens = prompts(one.network.coordinates, task, X, y, q)
        return _finite(np.abs(run_tokens(one.network, tokens)[:, -1, :1] - exact[:, None]))

    return Yardstick(task.text, task.domain, count, "prompts with one query", task, errors)


def _sequences(
    target: SequenceMap, rng: np.random.Generator, network: SequenceApproximant | SequenceModel
) -> Yardstick:
    count = _draws(target.tokens + network.cost.keys, network.cost.heads)
    X = target.box.sample(count * target.tokens, rng).reshape(count, target.tokens, target.box.dim)
    values = target.values(X)

    def errors(one: SequenceApproximant | SequenceModel) -> Array:
        error = _finite(np.abs(one(X) - values)).reshape(count, -1)
        return np.where(np.isfinite(values).reshape(count, -1), error, 0.0)

    where = f"{target.tokens} tokens, {target.box.text}"
    return Yardstick(target.text, where, count, "sequences", target.to_json(), errors)


def _pairs(target: Relation, rng: np.random.Generator) -> Yardstick:
    count = 4 * _DRAWS
    X, Y = probe_pairs(target, count, rng)
    values = target.values(X, Y)

    def errors(one: RelationApproximant | TowerModel) -> Array:
        with np.errstate(all="ignore"):
            error = np.abs(np.asarray(one.pairs(X, Y), dtype=np.float64) - values)
        return np.where(np.isfinite(values), _finite(error), 0.0)[:, None]

    return Yardstick(target.text, target.domain_text, len(X), "pairs", target.to_json(), errors)


def _points(network: Neighbours, rng: np.random.Generator) -> Yardstick:
    count = _draws(network.points, network.cost.heads)
    points = uniform_points(rng, count, network.points, network.dim)
    goal = network.target(points)

    def errors(one: Neighbours) -> Array:
        gap = one(points) - goal
        return _finite(np.abs(gap)[:, None] if gap.ndim == 1 else np.linalg.norm(gap, axis=-1).reshape(count, -1))

    text, where, key = described(network)
    return Yardstick(text, where, count, "sets of points", key, errors)


def _sampled(network: TokenModel, rng: np.random.Generator) -> Yardstick:
    task = network.target
    tokens, values = task.draw(rng, _LEAST)
    count = _draws(tokens.shape[1] + network.cost.keys, network.cost.heads)
    tokens, values = task.draw(rng, count)

    def errors(one: TokenModel) -> Array:
        with np.errstate(all="ignore"):
            return _finite(task.errors(one(tokens), values))

    return Yardstick(task.text, task.domain, count, "draws of its sampler", task.to_json(), errors)


def described(network: Neighbours) -> tuple[str, str, dict[str, Any]]:
    """What a network of neighbours is to find, where, and what two of them must share to be compared."""
    every = network.method == "full_rank"
    bias = network.request.get("bias") if network.method == "biased" else None
    key = {"dim": network.dim, "points": network.points, "which": network.which, "every": every, "bias": bias}
    what = f"the {network.which} of {network.points} points" if bias is None else f"the sign of ⟨z, y⟩ − {bias:g}"
    query = ", for every point" if every else ", for the last point"
    return what + (query if bias is None else ""), f"independent uniform points on the sphere in R^{network.dim}", key


def sampled(network: Measurable, dtype: str) -> Certificate:
    """The largest error seen, called by its name; of neighbours, whose error is a mean, the root of the mean square."""
    stick = yardstick(network)
    error = stick.errors(network)
    norm, high = math.inf, float(error.max())
    reason = f"the largest error at {stick.count:,} {stick.what}"
    if isinstance(network, Neighbours):
        squares = np.mean(error**2, axis=1)
        norm, high = 2.0, float(np.sqrt(squares.mean()))
        se = float(squares.std(ddof=1) / math.sqrt(len(squares)))
        reason = f"mean squared error {squares.mean():.4g} ± {se:.2g} (standard error) at {stick.count:,} {stick.what}"
    if not math.isfinite(high):
        raise InvalidRequest("the network is not finite at points of its domain; its training has diverged")
    about = (None, norm, dtype, "sampling", stick.text, stick.domain, "learned")
    return Certificate(Status.SAMPLED, (high, high), *about, reason=reason)
