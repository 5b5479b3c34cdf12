"""TokenSequence: plain self-attention on the token matrix of a sequence.

    tokens = sum_k A_k X B_k + C      (n, d) → (n, width), linear in the sequence; then a network on tokens

It is what a sequence network is as matrices alone (`tokens.py`), and what training finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from attnfun.errors import InvalidRequest
from attnfun.kinds.sequence.target import SequenceMap
from attnfun.language.domain import Box
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.head import AnyArray, Array, frozen
from attnfun.network.network import Cost
from attnfun.network.tokens import TokenNetwork, TokenTransformer

if TYPE_CHECKING:
    import torch

Embedding = tuple[tuple[tuple[Array, Array], ...], Array]


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """The embedding sum_k A_k X B_k + C and the token network behind it; InvalidRequest for what does not fit."""

    terms: tuple[tuple[Array, Array], ...]
    constant: Array
    network: TokenNetwork | TokenTransformer

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple((frozen(A), frozen(B)) for A, B in self.terms))
        object.__setattr__(self, "constant", frozen(self.constant))
        n, width = len(self.constant), self.network.width
        shapes = {(A.shape, B.shape) for A, B in self.terms}
        fits = len(shapes) == 1 and all(a == (n, n) and b[1:] == (width,) and b[0] for a, b in shapes)
        if not fits or self.constant.shape != (n, width) or not n:
            raise InvalidRequest(f"an embedding of sequences does not fit tokens of {width} coordinates")
        if not all(np.isfinite(array).all() for array in (self.constant, *(a for term in self.terms for a in term))):
            raise InvalidRequest("an embedding of sequences holds numbers that are not finite")

    @property
    def dtype(self) -> str:
        return self.network.dtype

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def networks(self) -> tuple[TokenNetwork | TokenTransformer]:
        return (self.network,)

    @property
    def equivariant(self) -> bool:
        """Whether all tokens are embedded alike, so that a permutation of the tokens permutes the outputs."""
        alike = len(self.terms) == 1 and bool((self.constant == self.constant[0]).all())
        return alike and np.array_equal(self.terms[0][0], np.eye(len(self.constant)))

    def serves(self, box: Box, tokens: int, outputs: int) -> bool:
        """Whether it is for sequences of so many tokens of a box."""
        own = len(self.constant), len(self.terms[0][1]), len(self.network.outputs)
        return own == (tokens, box.dim, outputs)

    def literal(self) -> TokenSequence:
        return self

    def tokens(self, X: npt.ArrayLike) -> AnyArray:
        """(batch, n, d) -> the given tokens (batch, n, width)."""
        return embedded(self.terms, self.constant, X, self.dtype)

    def run(self, X: npt.ArrayLike) -> AnyArray:
        """(batch, n, d) -> (batch, n, p)."""
        return self.network.run(self.tokens(X))

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) or (n, d) in, (batch, n, p) or (n, p) out: the embedding, then one attention call a layer."""
        from attnfun.network.torch_form import torch_dtype

        name = torch_dtype(self.dtype, dtype)
        from attnfun.kinds.sequence.torch_module import SequenceAttention

        return SequenceAttention(self, name).telling()


def embedded(terms: tuple[tuple[Array, Array], ...], constant: Array, X: npt.ArrayLike, dtype: str) -> AnyArray:
    """sum_k A_k X B_k + C for (batch, n, d) sequences, in `dtype`."""
    given = np.asarray(X, dtype=dtype)
    total: AnyArray = np.broadcast_to(constant.astype(dtype), (len(given), *constant.shape))
    for A, B in terms:
        total = total + A.astype(dtype) @ (given @ B.astype(dtype))
    return total


def sequence_embedding(target: SequenceMap, architecture: TokenArchitecture) -> Embedding:
    """The tokens of `token_coordinates`, zeros in all other coordinates."""
    names, n, d = target.token_coordinates(), target.tokens, target.box.dim
    if architecture.coordinates[: len(names)] != names:
        raise InvalidRequest(
            f"tokens of {', '.join(architecture.coordinates)[:60]} cannot hold the sequence: "
            "make the architecture by TokenArchitecture.for_target"
        )
    constant = np.zeros((n, architecture.width))
    constant[:, d] = 1.0
    if len(names) > d + 1:
        constant[:, d + 1 : d + 1 + n] = np.eye(n)
    return ((np.eye(n), np.eye(d, architecture.width)),), constant
