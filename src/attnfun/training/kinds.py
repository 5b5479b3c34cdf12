"""`train` for networks that are no function on a box, kind by kind.

| kind | file |
| --- | --- |
| prompts, sequences, sets, points on a sphere, samplers, constructed heads on tokens | `tokens.py` (`neighbours.py`) |
| towers of a relation, perceptrons in their place (of ternary relations too) | `towers.py` |
| a head over a table of keys | `retrieval.py` |
| a trilinear form | `forms.py` |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from attnfun.averages import SparseAverage
from attnfun.certify import Certificate, Status
from attnfun.certify.in_context_verdict import judge
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.learn import Progress, Recipe
from attnfun.learn.descend import one_torch_thread
from attnfun.lexicographic_head import LexicographicHead
from attnfun.matcher import Matching
from attnfun.neighbour_networks import Neighbours
from attnfun.network import TokenArchitecture, TokenNetwork
from attnfun.relations import RelationApproximant
from attnfun.retrieval import Retrieval
from attnfun.sequence_approximant import SequenceApproximant
from attnfun.set_functions import SetApproximant
from attnfun.solver import InContextSolver
from attnfun.training.forms import judged_form, train_form
from attnfun.training.measuring import sampled
from attnfun.training.models.head import HeadModel, judged
from attnfun.training.models.retrieval import RetrievalModel
from attnfun.training.models.sequence import SequenceModel
from attnfun.training.models.set import SetModel
from attnfun.training.models.token import TokenModel
from attnfun.training.models.tower import TowerModel
from attnfun.training.neighbours import measured
from attnfun.training.request import Asked
from attnfun.training.retrieval import train_retrieval
from attnfun.training.tokens import train_tokens
from attnfun.training.towers import train_towers
from attnfun.training.train import Learned
from attnfun.trilinear import TrilinearForm
from attnfun.verbs import one_thread

_TOKENS = (
    TokenArchitecture,
    InContextSolver,
    SequenceApproximant,
    SequenceModel,
    SetApproximant,
    SetModel,
    Neighbours,
    TokenModel,
    Matching,
    LexicographicHead,
    SparseAverage,
    HeadModel,
)
_SIDES = (RelationApproximant, TowerModel, TrilinearForm)
KINDS = (*_TOKENS, *_SIDES, Retrieval, RetrievalModel)


def train_model(
    network: Any,
    target: Any,
    recipe: Recipe,
    start: Any,
    proof: bool,
    checkpoint: str | os.PathLike[str] | None,
    progress: Callable[[Progress], None] | None,
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
    if not isinstance(given, _SIDES) and not (widths is None and rank is None):
        raise InvalidRequest("widths and rank are those of the towers of a relation")
    if target is not None and not isinstance(given, TokenArchitecture):
        raise InvalidRequest("this network brings its own target; leave target and domain out")
    request = {"method": "train", "start": name, "recipe": recipe.to_json()}
    asked = Asked(recipe, begin, checkpoint, progress, request, widths, rank)
    with one_thread(), one_torch_thread():
        approximant: Any
        if isinstance(given, TrilinearForm) and widths is None and rank is None:
            approximant, fit = train_form(given, asked)
        elif isinstance(given, _SIDES):
            approximant, fit = train_towers(given, asked)
        elif isinstance(given, (Retrieval, RetrievalModel)):
            approximant, fit = train_retrieval(given, asked)
        else:
            approximant, fit = train_tokens(given, target, asked)
        seen = sampled(approximant, _dtype(fit.network))
        if isinstance(approximant, Neighbours):
            approximant = replace(approximant, predicted=measured(approximant))
        else:
            approximant = replace(approximant, certificate=_certified(approximant, seen) if proof else seen)
    return Learned(approximant, fit, recipe, name, seen)


def _dtype(network: Any) -> str:
    return str(network[0].dtype if isinstance(network, tuple) else network.dtype)


def _certified(made: Any, seen: Certificate) -> Certificate:
    """A bound where the checker has one for these weights, else what was seen, with the reason."""
    why = "no method for trained networks of this kind"
    if isinstance(made, InContextSolver) and isinstance(made.network, TokenNetwork):
        found = judge(made.network, made.task, None, "learned", alone=True)
        if found.status is Status.BOUNDED:
            return found
        why = (found.reason or "").split(";")[0]
    elif isinstance(made, HeadModel):
        try:
            return judged(made.target, made.network, None)
        except Undecided as undecided:
            why = str(undecided)
    elif isinstance(made, TrilinearForm):
        found = judged_form(made, seen.error[1])
        if found.status is Status.BOUNDED:
            return found
        why = found.reason or why
    elif isinstance(made, RetrievalModel):
        why = "the proof of a head needs the features behind its tower and keys, and trained weights have none"
    return replace(seen, reason=f"{seen.reason}; not proved: {why}")
