"""`train` for networks that are no function on a box: prompts, sequences, points on a sphere, pairs of towers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attnfun.certify import Certificate, Status
from attnfun.certify.in_context_verdict import judge
from attnfun.constructions.neighbours import Prediction
from attnfun.constructions.neighbours.layout import tokens as point_tokens
from attnfun.constructions.neighbours.sphere import uniform_points
from attnfun.errors import InvalidRequest
from attnfun.learn import Fit, Progress, Recipe
from attnfun.learn.descend import one_torch_thread
from attnfun.learn.fit import descended
from attnfun.learn.token_tasks import (
    PointsTask,
    PromptTask,
    SampledTask,
    SequenceTask,
    TokenTask,
    Widened,
    sequence_embedding,
)
from attnfun.learn.token_weights import Tokens
from attnfun.learn.towers import Side, TowerTask, random_towers, relu_tower, require_widths
from attnfun.measuring import described, sampled
from attnfun.neighbour_networks import Neighbours
from attnfun.network import Network, TokenArchitecture, TokenNetwork, TokenTransformer
from attnfun.network.head import Array
from attnfun.network.sequence_tokens import TokenSequence
from attnfun.relations import RelationApproximant
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.sequence_model import SequenceModel
from attnfun.solver import InContextSolver
from attnfun.targets import Box, SequenceMap
from attnfun.targets.in_context import InContextTask
from attnfun.token_model import TokenModel
from attnfun.tower_model import TowerModel
from attnfun.training import Learned
from attnfun.verbs import one_thread

KINDS = (
    TokenArchitecture,
    InContextSolver,
    SequenceApproximant,
    SequenceModel,
    Neighbours,
    RelationApproximant,
    TowerModel,
    TokenModel,
)
Say = Callable[[Progress], None]
Path = str | os.PathLike[str]


def train_model(
    network: Any,
    target: Any,
    recipe: Recipe,
    start: Any,
    proof: bool,
    checkpoint: Path | None,
    progress: Say | None,
    widths: Sequence[int] | None,
    rank: int | None,
) -> Learned:
    """Train what is in KINDS; arguments are those of `train`."""
    given = network.approximant if isinstance(network, Learned) else network
    begin = start.approximant if isinstance(start, Learned) else start
    if isinstance(begin, str) and begin not in ("random", "constructed"):
        raise InvalidRequest(f"start={begin!r:.40}: write random or constructed, or give a network")
    if isinstance(begin, str) and begin == "constructed" and isinstance(given, TokenArchitecture):
        raise InvalidRequest("start='constructed' needs a network with weights, not an architecture alone")
    name = begin if isinstance(begin, str) else "given"
    towers = isinstance(given, (RelationApproximant, TowerModel))
    if not towers and not (widths is None and rank is None):
        raise InvalidRequest("widths and rank are those of the towers of a relation")
    if target is not None and not isinstance(given, TokenArchitecture):
        raise InvalidRequest("this network brings its own target; leave target and domain out")
    request = {"method": "train", "start": name, "recipe": recipe.to_json()}
    with one_thread(), one_torch_thread():
        approximant: Any
        if towers:
            approximant, fit = _towers(given, begin, recipe, checkpoint, progress, widths, rank, request)
        else:
            approximant, fit = _tokens(given, target, begin, recipe, checkpoint, progress, request)
        seen = sampled(approximant, _dtype(fit.network))
        if isinstance(approximant, Neighbours):
            approximant = replace(approximant, predicted=_measured(approximant))
        else:
            approximant = replace(approximant, certificate=_certified(approximant, seen) if proof else seen)
    return Learned(approximant, fit, recipe, name, seen)


def _dtype(network: Any) -> str:
    return str(network[0].dtype if isinstance(network, tuple) else network.dtype)


def _tokens(
    given: Any,
    target: Any,
    start: Any,
    recipe: Recipe,
    checkpoint: Path | None,
    progress: Say | None,
    request: dict[str, Any],
) -> tuple[Any, Fit]:
    from attnfun.learn.torch_tokens import TokenProblem, TokenUnits

    architecture, task, made, own, held = _request(given, target, request)
    units = TokenUnits(architecture, task, held)
    if start == "random":
        origin: Tokens = units.random(recipe.seed)
    else:
        origin = own if start == "constructed" and own is not None else _weights(start)
    if origin.architecture != architecture:
        raise InvalidRequest("the start is not a network of the architecture that is to be trained")
    origin = units.holding(origin)
    if recipe.noise:
        task.draw(np.random.default_rng(0), 1, recipe.noise)  # refused here where it has no meaning
    fit = descended(TokenProblem(units, origin), recipe, checkpoint, progress)
    return made(fit.network), fit


def _request(
    given: Any, target: Any, request: dict[str, Any]
) -> tuple[
    TokenArchitecture, TokenTask, Callable[[Tokens], Any], Tokens | None, Mapping[str, tuple[Array, Array]]
]:
    """(architecture, task, what to make of a trained network, its own weights, what is held) of a request."""
    nothing = Certificate(Status.UNDECIDED, (0.0, np.inf), None, np.inf, "float64", "none", "", "")
    if isinstance(given, Neighbours):
        return given.network.architecture, _points_task(given), _found(given, request), given.network, _gates(given)
    architecture = given if isinstance(given, TokenArchitecture) else None
    source = given if architecture is None else target
    if isinstance(source, (SampledTask, TokenModel)):
        drawn = source.target if isinstance(source, TokenModel) else source
        shape = architecture or given.network.architecture
        if shape.coordinates[: len(drawn.coordinates)] != drawn.coordinates or shape.outputs != drawn.outputs:
            raise InvalidRequest("the architecture has other coordinates or outputs than the sampler")
        model = None if architecture is not None else given.network
        return shape, Widened(drawn, shape.width), lambda net: TokenModel(drawn, net, nothing, request), model, {}
    asked = _target(source)
    if isinstance(asked, InContextTask):
        shape = architecture or given.network.architecture
        own = None if architecture is not None else given.network
        task = PromptTask(asked, shape.coordinates)
        if len(shape.outputs) != 1:
            raise InvalidRequest("a regression in context has one output")
        return shape, task, lambda net: InContextSolver(asked, net, nothing, request), own, {}
    literal = _literal(source)
    if architecture is not None and literal is not None and literal.network.architecture != architecture:
        literal = None
    shape = architecture or literal.network.architecture
    if len(shape.outputs) != asked.outputs:
        raise InvalidRequest(f"{len(shape.outputs)} outputs cannot learn {asked.outputs} of {asked.text[:60]}")
    embedding = sequence_embedding(asked, shape) if literal is None else (literal.terms, literal.constant)
    return (
        shape,
        SequenceTask(asked, embedding, shape.dtype),
        lambda net: SequenceModel(asked, TokenSequence(embedding[0], embedding[1], net), nothing, request),
        None if architecture is not None else literal.network,
        {},
    )


def _literal(source: Any) -> Any:
    """The tokens of a network of sequences, with its embedding; None of a map alone."""
    source = source.approximant if isinstance(source, Learned) else source
    if isinstance(source, SequenceApproximant):
        return source.literal()
    return source.tokens if isinstance(source, SequenceModel) else None


def _target(source: Any) -> SequenceMap | InContextTask:
    if isinstance(source, Learned):
        source = source.approximant
    if isinstance(source, (InContextTask, SequenceMap)):
        return source
    if isinstance(source, InContextSolver):
        return source.task
    if isinstance(source, (SequenceApproximant, SequenceModel)):
        return source.target
    raise InvalidRequest(
        "an architecture of tokens is trained towards a SequenceMap, an InContextTask, a SampledTask or a network "
        f"that has one, not {source!r:.60}"
    )


def _weights(start: Any) -> Tokens:
    if isinstance(start, (TokenNetwork, TokenTransformer)):
        return start
    if isinstance(start, SequenceApproximant):
        return start.literal().network
    if isinstance(start, (InContextSolver, SequenceModel, Neighbours, TokenModel)):
        return start.network
    raise InvalidRequest(f"start={start!r:.60}: random, constructed, or a network of the same kind is needed")


def _certified(made: Any, seen: Certificate) -> Certificate:
    """A proved bound where the checker has one for these weights, else what was seen, with the reason."""
    if isinstance(made, InContextSolver) and isinstance(made.network, TokenNetwork):
        found = judge(made.network, made.task, None, "learned", alone=True)
        if found.status is Status.PROVED:
            return found
        return replace(seen, reason=f"{seen.reason}; not proved: {(found.reason or '').split(';')[0]}")
    return replace(seen, reason=f"{seen.reason}; not proved: no method for trained networks of this kind")


# --- neighbours


def _points_task(given: Neighbours) -> PointsTask:
    text, domain, key = described(given)
    names = given.network.coordinates
    return PointsTask(
        text,
        domain,
        {"kind": "neighbours", **key},
        lambda rng, count: uniform_points(rng, count, given.points, given.dim),
        lambda points: point_tokens(names, points),
        given.target,
        given.method == "full_rank",
    )


def _gates(given: Neighbours) -> dict[str, tuple[Array, Array]]:
    """Of heads of a given rank the column that keeps the query from seeing itself is not free, nor what they read.

    So the heads of "random_heads" keep their rank as cross-attention from the query to the points: W_Q reads the query,
    W_K and W_V the points, and the head that averages goes on averaging.
    """
    if given.method != "random_heads":
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


def _found(given: Neighbours, request: dict[str, Any]) -> Callable[[Any], Neighbours]:
    asked = {**given.request, "eps": None, **request}
    nothing = Prediction(error=None, how="not measured yet")
    return lambda net: replace(given, network=net, predicted=nothing, request=asked)


def _measured(found: Neighbours) -> Prediction:
    """Monte Carlo on fresh points, in the place of a prediction."""
    seen = found.measured(20_000, seed=77)
    how = f"measured at {seen.queries:,} queries of fresh points (uncertainty: a standard error)"
    details = {name: float(value) for name, value in asdict(seen).items()}
    return Prediction(seen.error, how, seen.error_se, accuracy=seen.accuracy, details=details)


# --- towers


def _towers(
    given: RelationApproximant | TowerModel,
    start: Any,
    recipe: Recipe,
    checkpoint: Path | None,
    progress: Say | None,
    widths: Sequence[int] | None,
    rank: int | None,
    request: dict[str, Any],
) -> tuple[TowerModel, Fit]:
    from attnfun.learn.torch_towers import TowerProblem

    if recipe.noise:
        raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
    task, own = _tower_task(given, widths, rank)
    if start == "random":
        origin = random_towers(task, recipe.seed)
    elif isinstance(start, TowerModel):
        origin = start.towers
    elif start == "constructed" and own is not None:
        origin = own
    else:
        raise InvalidRequest("towers start at random, from the constructed ones (without widths), or from trained ones")
    shapes = [network.architecture for network in origin]
    if len(shapes) != len(task.sides) or not all(
        side.architecture.holds(shape) for side, shape in zip(task.sides, shapes, strict=True)
    ):
        raise InvalidRequest("the start is not a pair of towers of the architecture that is to be trained")
    nothing = Certificate(Status.UNDECIDED, (0.0, np.inf), None, np.inf, "float64", "none", "", "")
    fit = descended(TowerProblem(task, origin), recipe, checkpoint, progress)
    return TowerModel(task, fit.network, nothing, request), fit


def _tower_task(
    given: RelationApproximant | TowerModel, widths: Sequence[int] | None, rank: int | None
) -> tuple[TowerTask, tuple[Network, ...] | None]:
    """The towers of a relation with free weights, or perceptrons of these widths in their place."""
    if widths is None and rank is not None:
        raise InvalidRequest("rank belongs to widths: without them the towers are those of the relation")
    if isinstance(given, TowerModel) and widths is None:
        return given.task, given.towers
    one = given.task.right is None if isinstance(given, TowerModel) else given.stored.signs is not None
    target = given.target
    if widths is not None:
        features = given.rank if rank is None else rank
        if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence):
            raise InvalidRequest(f"widths={widths!r:.40}: the widths of the hidden layers are needed, as in (64, 64)")
        require_widths(widths, features)
        old = given.task.signs if isinstance(given, TowerModel) else given.signs
        if one and len(old) != features and not bool(np.all(old == 1)):
            raise InvalidRequest("the towers of a relation with signs keep its rank: leave rank out")
        signs = old if len(old) == features else np.ones(features)

        def side(box: Box) -> Side:
            return Side(relu_tower(box.names, list(widths), features), box, lambda X: X)

        return TowerTask(target, side(target.left), None if one else side(target.right), np.array(signs)), None
    assert isinstance(given, RelationApproximant)
    if given.features_only:
        raise InvalidRequest("this relation has features and no towers: give widths=(64, 64), or ask for towers")
    sides, networks = [], []
    for tower in (given.left,) if one else (given.left, given.right):
        network = tower.network
        low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
        sides.append(Side(network.architecture, Box(network.inputs, low, high), tower.inputs))
        networks.append(network)
    right = None if one else sides[1]
    return TowerTask(target, sides[0], right, np.array(given.signs, dtype=np.float64)), tuple(networks)
