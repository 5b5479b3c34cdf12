"""HeadModel: a network that matches, picks the best key or averages over sets, with trained weights.

What `train` makes of `matching`, `lexicographic` and `sparse_average`: their tasks, encoders and shapes with other
weights. It claims nothing that was proved of the constructed one; the checkers of matching and of sparse averages look
at the weights themselves, and know their own construction's pattern only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnfun.averages import SparseAverage, average_certificate
from attnfun.certify import Certificate
from attnfun.certify.matching import prove_by_matching
from attnfun.certify.sparse_average import prove_by_sparse_average
from attnfun.certify.stored import kept, read_back
from attnfun.certify.view import Undecided
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.gate import Gate, require_sup
from attnfun.learn.head_tasks import AverageTask, BestKeyTask, HeadTask, MatchingTask, task_from_json
from attnfun.learn.token_tasks import widened
from attnfun.lexicographic_head import LexicographicHead
from attnfun.matcher import Matching
from attnfun.network import (
    Cost,
    TokenArchitecture,
    TokenNetwork,
    TokenTransformer,
    load_tokens,
    save_tokens,
    tokens_to_torch,
)
from attnfun.network.claim import Claim
from attnfun.network.head import Array
from attnfun.network.sealed import Source
from attnfun.training.models.common import trained_words

if TYPE_CHECKING:
    import torch

KIND = "trained head"
Built = Matching | LexicographicHead | SparseAverage


@dataclass(frozen=True, eq=False)
class HeadModel:
    """Called as the constructed network is: whole numbers, keys, or (z, subsets).

    `free`: it has a shape of one's own, of which nothing was held in training.
    """

    target: HeadTask
    network: TokenNetwork | TokenTransformer
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)
    free: bool = False

    def __call__(self, *inputs: Any) -> NDArray[np.float64]:
        """What the network says of the task's inputs, in the shapes of the constructed one."""
        return self.target.answer(self.network.run(self.encode(*inputs)), *inputs)

    def encode(self, *inputs: Any) -> NDArray[np.float64]:
        """The inputs as token matrices: the encoder of the construction, which is a look-up, and zeros behind it."""
        return widened(self.target.tokens_of(*inputs), self.network.width)

    def exact(self, *inputs: Any) -> NDArray[np.float64]:
        """The target itself."""
        return self.target.exact(*inputs)

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (`encode`)."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, task, request and certificate in one safetensors file."""
        target = {"kind": KIND, "task": self.target.to_json(), "free": self.free}
        save_tokens(path, self.network, {"target": target, **kept(self.request, self.certificate)})

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        return trained_words(f"{self.target.text}  for  {self.target.domain}", self.network, self.certificate)


def task_of(given: Built | HeadModel) -> HeadTask:
    """What a network of these kinds is for."""
    if isinstance(given, HeadModel):
        return given.target
    if isinstance(given, Matching):
        return MatchingTask(given.tokens, given.modulus, given.order, given.self_allowed, given.network.dtype)
    if isinstance(given, LexicographicHead):
        return BestKeyTask(given.levels, given.limits.coordinates, given.network.coordinates)
    shape = given.tokens, given.q, given.dim, given.keys, given.heads, given.width
    return AverageTask(*shape, given.z_range, given.seed, given.subsets)


def held_of(given: Built | HeadModel) -> dict[str, tuple[Array, Array]]:
    """What training leaves as it is, by name, as (values, which entries are free).

    Of matching and of a lexicographic cascade the constant token, which says what it is by its coordinates; of triples
    the numbers that keep single tokens out of sight, and of pairs without j = i those that keep flagged tokens from the
    first head. Nothing of averages: their keys and queries are in the tokens.
    """
    network, held = given.network, dict[str, tuple[Array, Array]]()
    if isinstance(network, TokenTransformer) or (isinstance(given, HeadModel) and given.free):
        return held
    if len(network.constants):
        held["constants"] = network.constants, np.zeros(network.constants.shape, dtype=bool)
    task, at = task_of(given), network.coordinates.index
    if isinstance(task, MatchingTask) and (task.order == 3 or not task.self_allowed):
        head, column = network.heads[0], 2 if task.order == 3 else 3
        query, key = (np.ones(array.shape, dtype=bool) for array in (head.query, head.key))
        query[:, column] = False
        if task.order == 3:
            key[[at("one"), at("pair")], column] = False
        else:
            key[:, column] = False
        held |= {"layer0/head0/query": (head.query, query), "layer0/head0/key": (head.key, key)}
    return held


def judged(task: HeadTask, network: TokenNetwork | TokenTransformer, eps: float | None) -> Certificate:
    """A verdict on these weights; raises Undecided where the checker of the kind has no bound."""
    if isinstance(network, TokenTransformer):
        raise Undecided("it has ReLU units between its layers, and nothing is proved of those")
    if isinstance(task, MatchingTask):
        bound = prove_by_matching(network, task.tokens, task.modulus, task.order, self_allowed=task.self_allowed)
        made = Matching(task.tokens, task.modulus, task.order, task.self_allowed, network, bound, None).judged(eps)
        if made.error[1] == math.inf:
            raise Undecided(made.reason or "nothing is proved of these weights")
        return replace(made, construction="learned")
    if isinstance(task, AverageTask):
        found = prove_by_sparse_average(network, task.codes, task.queries, task.subsets, task.z_range)
        about = task.q, task.tokens, task.z_range, len(task.subsets)
        alone = (f"for the {len(task.subsets):,} sets it was trained on, and no others", *found.hypotheses)
        return replace(average_certificate(network, found, *about, eps), construction="learned", hypotheses=alone)
    raise Undecided("lexicographic heads are proved by construction, and no checker reads other weights")


def load_head_model(path: Source) -> HeadModel:
    """The trained network of a file; its certificate is the stored one, not proved anew."""
    return _read(path, ())[0]


def verify_head_model(path: Source, gate: Gate, _progress: Any = None) -> Certificate:
    """Judge the weights of a file against its task; no number of the stored certificate is read."""
    found, claim = _read(path, ("certificate",))
    gate.no_expression("the file of a trained head is proved against the task it holds")
    eps = gate.tolerance(claim, found.network.dtype)
    try:
        return judged(found.target, found.network, eps)
    except Undecided as why:
        return replace(found.certificate, eps=eps, reason=str(why))


def _read(path: Source, ignore: tuple[str, ...]) -> tuple[HeadModel, Claim]:
    network, meta = load_tokens(path, ignore=ignore, units=True)
    try:
        held = meta["target"]
        if held["kind"] != KIND or type(held["free"]) is not bool:
            raise InvalidRequest("another kind of target")
        task = task_from_json(held["task"])
        own = task.token_width
        if own > network.width or any(not name.startswith("free ") for name in network.coordinates[own:]):
            raise InvalidRequest("tokens of another width")
        if isinstance(task, BestKeyTask) and task.names != network.coordinates[:own]:
            raise InvalidRequest("tokens of other coordinates")
        if isinstance(task, MatchingTask) and task.dtype != network.dtype:
            raise InvalidRequest("tokens of another dtype")
        if len(network.outputs) != task.outputs:
            raise InvalidRequest("outputs of another number")
    except (KeyError, TypeError, ValueError, OverflowError, InvalidRequest) as error:
        raise DamagedFile(f"{os.fspath(path)} holds no trained head ({error})") from None
    certificate, request, claim = read_back(meta, network.dtype, task.text, task.domain)
    require_sup(claim)
    return HeadModel(task, network, certificate, request, held["free"]), claim
