"""TokenModel: a network that was trained on a sampler of token matrices; what `train` makes of a `SampledTask`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept, read_back
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.learn.token_tasks import SampledTask, widened
from attnfun.network import (
    Cost,
    TokenArchitecture,
    TokenNetwork,
    TokenTransformer,
    load_tokens,
    save_tokens,
    tokens_to_torch,
)
from attnfun.network.sealed import Source
from attnfun.training.models.common import trained_words

if TYPE_CHECKING:
    import torch


KIND = "sampled task"


@dataclass(frozen=True, eq=False)
class TokenModel:
    """The network and the task it was trained on; called on token matrices it gives the tokens that the task reads."""

    target: SampledTask
    network: TokenNetwork | TokenTransformer
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """(batch, n, coordinates of the task) → (batch, tokens read, outputs), float64."""
        given, width = np.asarray(tokens, dtype=np.float64), len(self.target.coordinates)
        if given.ndim != 3 or given.shape[2] != width:
            raise InvalidRequest(f"tokens of shape {given.shape}: (batch, n, {width}) is needed")
        given = widened(given, self.network.width)
        return np.asarray(self.target.read(self.network.run(given)), dtype=np.float64)

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, width) → (batch, n, outputs): every token read out."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, the name of the task, request and certificate in one safetensors file; no sampler is in it."""
        task = self.target
        target = {"kind": KIND, "name": task.name, "coordinates": list(task.coordinates), "outputs": list(task.outputs)}
        target |= {"tokens": [task.tokens.start, task.tokens.stop, task.tokens.step], "chosen_by": task.chosen_by}
        meta = {"target": target, **kept(self.request, self.certificate)}
        save_tokens(path, self.network, meta)

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        return trained_words(f"{self.target.text}  for  {self.target.domain}", self.network, self.certificate)


def load_token_model(path: Source) -> TokenModel:
    """The network of a file, without the sampler: whatever asks for draws is refused, and told why."""
    network, meta = load_tokens(path, units=True)
    try:
        held = meta["target"]
        if held["kind"] != KIND:
            raise InvalidRequest("another kind of target")
        names, outputs, ends = tuple(held["coordinates"]), tuple(held["outputs"]), held["tokens"]
        if len(ends) != 3 or not all(end is None or type(end) is int for end in ends) or ends[2] == 0:
            raise InvalidRequest("tokens that are no slice")
        name = held["name"]
        if not isinstance(name, str) or network.coordinates[: len(names)] != names or network.outputs != outputs:
            raise InvalidRequest("coordinates or outputs of another task")
        task = SampledTask(name, _no_sampler(name), names, outputs, slice(*ends), held["chosen_by"])
    except (KeyError, TypeError, ValueError, OverflowError, InvalidRequest) as error:
        raise DamagedFile(f"{os.fspath(path)} holds no network that was trained on a sampler ({error})") from None
    certificate, request, _ = read_back(meta, network.dtype, task.text, task.domain)
    return TokenModel(task, network, certificate, request)


def _no_sampler(name: str) -> Callable[[np.random.Generator, int], tuple[Any, Any]]:
    def sampler(_rng: np.random.Generator, _count: int) -> tuple[Any, Any]:
        raise InvalidRequest(
            f"the sampler of {name!r:.60} is a Python function that is not in the file: the network runs without it, "
            "but to train, measure or compare it give af.train(model.architecture, task) the task again"
        )

    return sampler
