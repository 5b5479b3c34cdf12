"""SequenceModel: a sequence map and plain self-attention that was trained towards it; what `train` makes of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept, read_back
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, TokenTransformer, load_tokens, save_tokens
from attnfun.network.sealed import Source
from attnfun.network.sequence_tokens import TokenSequence
from attnfun.network.torch_form import sequence_to_torch
from attnfun.sequence_approximant import sequences_of
from attnfun.targets import Box, SequenceMap
from attnfun.training.models.common import trained_words

if TYPE_CHECKING:
    import torch

KIND = "sequence model"


@dataclass(frozen=True, eq=False)
class SequenceModel:
    """`tokens` writes sequences as a token matrix and runs the network on it; no proof is known for it."""

    target: SequenceMap
    tokens: TokenSequence
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, X: ArrayLike, outside: str = "raise") -> NDArray[np.float64]:
        """(n, d) → (n, p), or (batch, n, d) → (batch, n, p), float64."""
        sequences, single = sequences_of(self.target, X, outside)
        values = self.tokens.run(sequences).astype(np.float64)
        return values[0] if single else values

    @property
    def network(self) -> TokenNetwork | TokenTransformer:
        return self.tokens.network

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def equivariant(self) -> bool:
        """Whether all tokens are embedded alike, so that a permutation of the tokens permutes the outputs."""
        alike = len(self.tokens.terms) == 1 and bool((self.tokens.constant == self.tokens.constant[0]).all())
        return alike and np.array_equal(self.tokens.terms[0][0], np.eye(self.target.tokens))

    @property
    def cost(self) -> Cost:
        return self.network.cost

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, n, p): a linear embedding, then one F.scaled_dot_product_attention a layer."""
        return sequence_to_torch(self.tokens, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, embedding, target, request and certificate in one safetensors file."""
        terms = [[A.tolist(), B.tolist()] for A, B in self.tokens.terms]
        target = {"kind": KIND, "map": self.target.to_json(), "embedding": terms}
        meta: dict[str, Any] = {"target": {**target, "constant": self.tokens.constant.tolist()}}
        meta["domain"] = self.target.box.text
        save_tokens(path, self.network, meta | kept(self.request, self.certificate))

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        asked = f"{self.target.text}  for {self.target.tokens} tokens in  {self.target.box.text}"
        return trained_words(asked, self.network, self.certificate)


def load_sequence_model(path: Source) -> SequenceModel:
    """The model of a file that `SequenceModel.save` wrote; its certificate is the stored one."""
    network, meta = load_tokens(path, units=True)
    try:
        held = meta["target"]
        if held["kind"] != KIND:
            raise ValueError("another kind of target")
        target = SequenceMap.from_json(held["map"], Box.parse(str(meta["domain"])))
        terms = tuple((_matrix(A), _matrix(B)) for A, B in held["embedding"])
        constant = _matrix(held["constant"])
        shapes = {(A.shape, B.shape) for A, B in terms}
        n, d, width = target.tokens, target.box.dim, network.width
        if not shapes <= {((n, n), (d, width))} or constant.shape != (n, width):
            raise ValueError("an embedding of another shape")
        if len(network.outputs) != target.outputs:
            raise ValueError("outputs of another number")
    except (KeyError, TypeError, ValueError, OverflowError, InvalidRequest) as error:
        raise DamagedFile(f"{os.fspath(path)} holds no model of a sequence map ({error})") from None
    sequence = TokenSequence(terms, constant, network)
    certificate, request, _ = read_back(meta, network.dtype, target.text, f"{target.tokens} tokens, {target.box.text}")
    return SequenceModel(target, sequence, certificate, request)


def _matrix(rows: Any) -> NDArray[np.float64]:
    found = np.array(rows, dtype=np.float64)
    if found.ndim != 2 or not np.isfinite(found).all():
        raise ValueError("a matrix of finite numbers is needed")
    return found
