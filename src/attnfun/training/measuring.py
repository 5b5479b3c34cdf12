"""What errors are measured at: for each kind of target the same fresh draws, for constructed and learned alike.

Drawn for neither training nor choosing. Errors seen there are called sampled, never bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.averages import SparseAverage
from attnfun.certify import Certificate, Status
from attnfun.constructions.neighbours.sphere import uniform_points
from attnfun.errors import InvalidRequest
from attnfun.learn.token_tasks import prompts, run_tokens, widened
from attnfun.learn.towers import probe_tuples
from attnfun.lexicographic_head import LexicographicHead
from attnfun.matcher import Matching
from attnfun.neighbour_networks import Neighbours
from attnfun.relations import RelationApproximant
from attnfun.retrieval import Retrieval
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.set_functions import SetApproximant
from attnfun.solver import InContextSolver
from attnfun.targets import SequenceMap
from attnfun.targets.in_context import InContextTask
from attnfun.targets.in_context_batch import draw_prompts, exact_for_all
from attnfun.targets.relation import Relation
from attnfun.targets.ternary import Ternary
from attnfun.training.models.head import HeadModel, task_of
from attnfun.training.models.retrieval import RetrievalModel, softmax_of_utilities, wrongly_picked
from attnfun.training.models.sequence import SequenceModel
from attnfun.training.models.set import SetModel
from attnfun.training.models.token import TokenModel
from attnfun.training.models.tower import TowerModel
from attnfun.training.retrieval import table_of
from attnfun.trilinear import TrilinearForm

Array = NDArray[np.float64]
Built = Matching | LexicographicHead | SparseAverage | HeadModel
Measurable = (
    InContextSolver
    | SequenceApproximant
    | SequenceModel
    | SetApproximant
    | SetModel
    | RelationApproximant
    | TowerModel
    | TrilinearForm
    | Neighbours
    | TokenModel
    | Retrieval
    | RetrievalModel
    | Built
)
_DRAWS, _LEAST, _WORK = 5000, 200, 1 << 24
_STREAM = 77


@dataclass(frozen=True, eq=False)
class Yardstick:
    """`errors(network)` are those at `count` draws, (count, entries); `same` holds what two targets must share.

    Where something is decided besides, `wrong(network)` says which decisions are wrong, and `decided` what they are.
    """

    text: str
    domain: str
    count: int
    what: str
    same: Any
    errors: Callable[[Any], Array]
    wrong: Callable[[Any], Any] | None = None
    decided: str = ""


def yardstick(network: Measurable) -> Yardstick:
    """For the target of this network; InvalidRequest for anything that has none of these kinds."""
    rng = np.random.default_rng([_STREAM, 1])
    if isinstance(network, InContextSolver):
        return _prompts(network.task, rng, network)
    if isinstance(network, (SequenceApproximant, SequenceModel)):
        return _sequences(network.target, rng, network)
    if isinstance(network, (SetApproximant, SetModel)):
        return _sets(network, rng)
    if isinstance(network, (RelationApproximant, TowerModel, TrilinearForm)):
        return _pairs(network.target, rng)
    if isinstance(network, (Retrieval, RetrievalModel)):
        return _queries(network, rng)
    if isinstance(network, Built):
        return _decisions(network, rng)
    if isinstance(network, Neighbours):
        return _points(network, rng)
    if isinstance(network, TokenModel):
        return _sampled(network, rng)
    raise InvalidRequest(f"{type(network).__name__} has no error that is measured here")


def _draws(tokens: int, heads: int) -> int:
    pairs = tokens * tokens * max(1, heads)
    return max(min(_LEAST, max(8, (1 << 28) // pairs)), min(_DRAWS, _WORK // pairs))


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


def _sets(network: SetApproximant | SetModel, rng: np.random.Generator) -> Yardstick:
    target = network.target
    tokens = target.points ** (2 if network.method == "pairs" else 1)
    count = _draws(tokens + network.cost.keys, network.cost.heads)
    X = target.box.sample(count * target.points, rng).reshape(count, target.points, target.box.dim)
    values = target.values(X)

    def errors(one: SetApproximant | SetModel) -> Array:
        error = _finite(np.abs(one(X).reshape(count, -1) - values))
        return np.where(np.isfinite(values), error, 0.0)

    where, key = f"sets of {target.points} points, {target.box.text}", (target.text, target.box.text, target.points)
    return Yardstick(target.text, where, count, "sets", key, errors)


def _pairs(target: Relation | Ternary, rng: np.random.Generator) -> Yardstick:
    points = probe_tuples(target, 4 * _DRAWS, rng)
    values = target.values(*points)

    def errors(one: RelationApproximant | TowerModel | TrilinearForm) -> Array:
        with np.errstate(all="ignore"):
            found = one(*points) if isinstance(one, TrilinearForm) else one.pairs(*points)
            error = np.abs(np.asarray(found, dtype=np.float64) - values)
        return np.where(np.isfinite(values), _finite(error), 0.0)[:, None]

    what = "pairs" if len(points) == 2 else "triples"
    return Yardstick(target.text, target.domain_text, len(points[0]), what, target.to_json(), errors)


def _queries(network: Retrieval | RetrievalModel, rng: np.random.Generator) -> Yardstick:
    target, table = table_of(network)
    X = target.left.probe(max(_LEAST, min(_DRAWS, _WORK // len(table.points))), rng)
    wanted = softmax_of_utilities(target, table, X)

    def errors(one: Retrieval | RetrievalModel) -> Array:
        return _finite(np.abs(np.asarray(one(X), dtype=np.float64) - wanted))

    where = f"{target.left.text}, {len(table.points):,} keys, beta {table.beta:.4g}"
    key = target.to_json(), table.beta, table.points.tobytes(), table.values.tobytes()
    text = f"the softmax of {target.text}"
    return Yardstick(
        text,
        where,
        len(X),
        "queries",
        key,
        errors,
        lambda one: wrongly_picked(target, table, X, one.top(X)),
        "queries whose most attended key is not the best",
    )


def _decisions(network: Built, rng: np.random.Generator) -> Yardstick:
    task = task_of(network)
    tokens = task.draw(np.random.default_rng(0), 1)[0].shape[1]
    count = _draws(tokens + network.cost.keys, network.cost.heads)
    given, values = task.draw(rng, count)

    @lru_cache(maxsize=1)  # errors and wrong decisions of one network are asked for one after the other
    def outputs(one: Built) -> Array:
        return np.asarray(task.read(run_tokens(one.network, widened(given, one.network.width))))

    wrong = (lambda one: task.wrong(outputs(one), values)) if task.decided else None
    own, what = {key: value for key, value in task.to_json().items() if key != "dtype"}, "fresh draws"
    return Yardstick(
        task.text,
        task.domain,
        count,
        what,
        own,
        lambda one: _finite(task.errors(outputs(one), values)),
        wrong,
        task.decided,
    )


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
    if stick.wrong is not None:
        wrong = np.asarray(stick.wrong(network))
        reason += f"; {np.mean(wrong):.2%} of {wrong.size:,} {stick.decided}"
    if isinstance(network, Neighbours):
        squares = np.mean(error**2, axis=1)
        norm, high = 2.0, float(np.sqrt(squares.mean()))
        se = float(squares.std(ddof=1) / math.sqrt(len(squares)))
        reason = f"mean squared error {squares.mean():.4g} ± {se:.2g} (standard error) at {stick.count:,} {stick.what}"
    if not math.isfinite(high):
        raise InvalidRequest("the network is not finite at points of its domain; its training has diverged")
    about = (None, norm, dtype, "sampling", stick.text, stick.domain, "learned")
    return Certificate(Status.SAMPLED, (high, high), *about, reason=reason)
