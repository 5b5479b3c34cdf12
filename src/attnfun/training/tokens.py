"""`train` for networks on tokens: prompts, sequences, sets, points on a sphere, samplers, constructed heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnfun.averages import SparseAverage
from attnfun.errors import InvalidRequest
from attnfun.learn import Fit
from attnfun.learn.head_tasks import MatchingTask
from attnfun.learn.token_tasks import (
    PromptTask,
    SampledTask,
    SequenceTask,
    SetTask,
    TokenTask,
    Widened,
    sequence_embedding,
)
from attnfun.learn.token_weights import Tokens
from attnfun.lexicographic_head import LexicographicHead
from attnfun.matcher import Matching
from attnfun.neighbour_networks import Neighbours
from attnfun.network import TokenArchitecture, TokenNetwork, TokenTransformer
from attnfun.network.head import Array
from attnfun.network.sequence_tokens import TokenSequence
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.set_functions import SetApproximant
from attnfun.solver import InContextSolver
from attnfun.targets import SequenceMap
from attnfun.targets.in_context import InContextTask
from attnfun.training.models.head import Built, HeadModel, held_of, task_of
from attnfun.training.models.sequence import SequenceModel
from attnfun.training.models.set import SetModel
from attnfun.training.models.token import TokenModel
from attnfun.training.neighbours import found_with, gates, points_task
from attnfun.training.request import NOTHING, Asked
from attnfun.training.train import Learned


@dataclass(frozen=True, eq=False)
class Kind:
    """What a request comes to: a shape, a task, what to make of a trained network, its own weights, what is held."""

    shape: TokenArchitecture
    task: TokenTask
    made: Callable[[Any], Any]
    own: Tokens | None
    held: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


def train_tokens(given: Any, target: Any, asked: Asked) -> tuple[Any, Fit]:
    """The network of `given`, or one of an architecture towards `target`, trained."""
    from attnfun.learn.torch_tokens import TokenProblem, TokenUnits

    kind = _kind(given, target, asked.request)
    units = TokenUnits(kind.shape, kind.task, kind.held)
    if asked.start == "random":
        origin: Tokens = units.random(asked.recipe.seed)
    else:
        origin = kind.own if asked.start == "constructed" and kind.own is not None else _weights(asked.start)
    if origin.architecture != kind.shape:
        raise InvalidRequest("the start is not a network of the architecture that is to be trained")
    origin = units.holding(origin)
    if asked.recipe.noise:
        kind.task.draw(np.random.default_rng(0), 1, asked.recipe.noise)  # refused here where it has no meaning
    fit = asked.descended(TokenProblem(units, origin))
    return kind.made(fit.network), fit


def _kind(given: Any, target: Any, request: dict[str, Any]) -> Kind:
    architecture = given if isinstance(given, TokenArchitecture) else None
    source = given if architecture is None else target
    source = source.approximant if isinstance(source, Learned) else source
    if isinstance(source, Neighbours):
        return _points(source, architecture, request)
    if isinstance(source, (Matching, LexicographicHead, SparseAverage, HeadModel)):
        return _head(source, architecture, request)
    if isinstance(source, (SampledTask, TokenModel)):
        return _sampled(source, architecture, request)
    asked = _target(source)
    if isinstance(asked, InContextTask):
        shape = architecture or given.network.architecture
        own = None if architecture is not None else given.network
        if len(shape.outputs) != 1:
            raise InvalidRequest("a regression in context has one output")
        task = PromptTask(asked, shape.coordinates)
        return Kind(shape, task, lambda n: InContextSolver(asked, n, NOTHING, request), own)
    literal = _literal(source)
    if architecture is not None and literal is not None and literal.network.architecture != architecture:
        literal = None
    shape = architecture or literal.network.architecture
    if len(shape.outputs) != asked.outputs:
        raise InvalidRequest(f"{len(shape.outputs)} outputs cannot learn {asked.outputs} of {asked.text[:60]}")
    embedding = sequence_embedding(asked, shape) if literal is None else (literal.terms, literal.constant)

    def model(network: Tokens) -> SequenceModel:
        return SequenceModel(asked, TokenSequence(embedding[0], embedding[1], network), NOTHING, request)

    own = None if architecture is not None else literal.network
    if isinstance(source, (SetApproximant, SetModel)):
        sets = SetTask(asked, embedding, shape.dtype, source.target.box, source.target.points, source.method == "pairs")
        return Kind(shape, sets, lambda n: SetModel(source.target, source.method, model(n), NOTHING), own)
    return Kind(shape, SequenceTask(asked, embedding, shape.dtype), model, own)


def _points(source: Neighbours, architecture: TokenArchitecture | None, request: dict[str, Any]) -> Kind:
    """Neighbours in their own shape, with their gates, or in another one with all weights free."""
    own, free = source.network, architecture is not None or source.request.get("shape") == "free"
    shape = architecture or own.architecture
    _same_tokens(shape, tuple(name for name in own.coordinates if not name.startswith("free ")), own.outputs)
    made = found_with(source, request | ({"shape": "free"} if free else {}))
    mine = own if architecture is None else None
    return Kind(shape, points_task(source, shape.coordinates), made, mine, {} if free else gates(source))


def _head(source: Built | HeadModel, architecture: TokenArchitecture | None, request: dict[str, Any]) -> Kind:
    """The task of a head in its own shape, with what it holds, or in another one with all weights free."""
    own, task = source.network, task_of(source)
    free = architecture is not None or (isinstance(source, HeadModel) and source.free)
    shape = architecture or own.architecture
    _same_tokens(shape, own.coordinates[: task.token_width], own.outputs)
    if isinstance(task, MatchingTask):
        task = replace(task, dtype=shape.dtype)  # what is looked up is looked up in the network's own dtype

    def made(network: Any) -> HeadModel:
        return HeadModel(task, network, NOTHING, request, free)

    mine = own if architecture is None else None
    return Kind(shape, Widened(task, shape.width), made, mine, {} if free else held_of(source))


def _same_tokens(shape: TokenArchitecture, names: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    if shape.coordinates[: len(names)] != names or len(shape.outputs) != len(outputs):
        raise InvalidRequest("the architecture has other coordinates or outputs than the tokens of this network")


def _sampled(source: Any, architecture: TokenArchitecture | None, request: dict[str, Any]) -> Kind:
    drawn = source.target if isinstance(source, TokenModel) else source
    shape = architecture or source.network.architecture
    if shape.coordinates[: len(drawn.coordinates)] != drawn.coordinates or shape.outputs != drawn.outputs:
        raise InvalidRequest("the architecture has other coordinates or outputs than the sampler")
    model = None if architecture is not None else source.network
    return Kind(shape, Widened(drawn, shape.width), lambda n: TokenModel(drawn, n, NOTHING, request), model)


def _literal(source: Any) -> Any:
    """The tokens of a network of sequences or sets, with its embedding; None of a map alone."""
    if isinstance(source, SetApproximant):
        source = source.sequence
    if isinstance(source, SetModel):
        source = source.model
    if isinstance(source, SequenceApproximant):
        return source.literal()
    return source.tokens if isinstance(source, SequenceModel) else None


def _target(source: Any) -> SequenceMap | InContextTask:
    if isinstance(source, (InContextTask, SequenceMap)):
        return source
    if isinstance(source, InContextSolver):
        return source.task
    if isinstance(source, SetApproximant):
        return source.sequence.target
    if isinstance(source, SetModel):
        return source.model.target
    if isinstance(source, (SequenceApproximant, SequenceModel)):
        return source.target
    raise InvalidRequest(
        "an architecture of tokens is trained towards a SequenceMap, an InContextTask, a SampledTask or a network "
        f"on tokens, not {source!r:.60}"
    )


def _weights(start: Any) -> Tokens:
    if isinstance(start, (TokenNetwork, TokenTransformer)):
        return start
    literal = _literal(start)
    if literal is not None:
        return literal.network  # type: ignore[no-any-return]
    own = (InContextSolver, Neighbours, TokenModel, HeadModel, Matching, LexicographicHead, SparseAverage)
    if isinstance(start, own):
        return start.network
    raise InvalidRequest(f"start={start!r:.60}: random, constructed, or a network of the same kind is needed")
