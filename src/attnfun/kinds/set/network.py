"""SetNetwork: a network on sequences, its tokens made of the points of a set, its first token read.

| form | tokens | what the sequence network computes at every token |
| --- | --- | --- |
| elements | n, one an element | the target as written, if all its sums are over elements |
| power-sums | n, one an element | a polynomial target, rewritten exactly by its fewest sums over elements |
| pairs | n², one an ordered pair | the target as written |

The form is a name; which sequence map it stands for is worked out from the target alone (`pattern.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from attnfun.kinds.sequence.network import SequenceNetwork, TokenSequence
from attnfun.kinds.set.target import pair_box, pair_tokens
from attnfun.language.domain import Box
from attnfun.model import Of
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.head import AnyArray
from attnfun.network.network import Cost

if TYPE_CHECKING:
    import torch

Form = Literal["elements", "power-sums", "pairs"]


@dataclass(frozen=True, eq=False)
class SetNetwork:
    """`sequence` on the tokens of a set; all tokens hold the same outputs."""

    form: Form
    sequence: SequenceNetwork | TokenSequence

    @property
    def pairs(self) -> bool:
        return self.form == "pairs"

    dtype, cost, architecture = Of[str]("sequence"), Of[Cost]("sequence"), Of[TokenArchitecture]("sequence")
    networks, literal = Of[tuple[Any, ...]]("sequence"), Of[Callable[[], TokenSequence]]("sequence")

    def tokens_of(self, points: int) -> int:
        return points**2 if self.pairs else points

    def serves(self, box: Box, points: int, outputs: int) -> bool:
        """Whether it is for sets of so many points of a box."""
        return self.sequence.serves(pair_box(box) if self.pairs else box, self.tokens_of(points), outputs)

    def run(self, X: npt.NDArray[Any]) -> AnyArray:
        """(batch, n, d) -> (batch, outputs)."""
        return self.sequence.run(pair_tokens(X) if self.pairs else X)[:, 0]

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """(batch, n, d) → (batch, outputs): a linear layer that makes the pairs, then one attention call a layer."""
        literal = self.literal()
        module: Any = literal.to_torch(dtype)
        from attnfun.kinds.set.torch_module import SetAttention

        n, d = len(literal.constant), len(literal.terms[0][1])
        return SetAttention(module, *((math.isqrt(n), d // 2) if self.pairs else (n, d)), self.pairs)
