"""SetNetwork: a network on sequences, its tokens made of the points of a set, its first token read.

| form | tokens | what the sequence network computes at every token |
| --- | --- | --- |
| elements | n, one an element | the target as written, if all its sums are over elements |
| power-sums | n, one an element | a polynomial target, rewritten exactly by its fewest sums over elements |
| pairs | n², one an ordered pair | the target as written |

The form is a name; which sequence map it stands for is worked out from the target alone (`pattern.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attnfun.kinds.sequence.network import SequenceNetwork, TokenSequence
from attnfun.kinds.set.target import pair_box, pair_tokens
from attnfun.language.domain import Box
from attnfun.model import Of
from attnfun.network.architecture import TokenArchitecture
from attnfun.network.head import AnyArray
from attnfun.network.network import Cost
from attnfun.network.plain import HasPlain, Plain, Term

Form = Literal["elements", "power-sums", "pairs"]


@dataclass(frozen=True, eq=False)
class SetNetwork(HasPlain):
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
        return self.sequence.run(self.written(X))[:, 0]

    def looks(self, X: npt.NDArray[Any]) -> Iterator[tuple[str, AnyArray, int]]:
        """As of its sequence network."""
        return self.sequence.looks(self.written(X))

    def written(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Its tokens."""
        return pair_tokens(X) if self.pairs else X

    def plain(self, dtype: str | None = None) -> Plain:
        """(batch, n, d) → (batch, outputs); of pairs: A [L X, R X] B = (A L) X B_1 + (A R) X B_2, L and R of zeros and
        ones that take the first and the second element of every ordered pair."""
        own = self.sequence.plain(dtype)
        if not self.pairs:
            return replace(own, reads="first")
        n, d, terms = math.isqrt(own.length or 0), len(own.inputs[0]) // 2, []
        first, second = np.repeat(np.eye(n), n, axis=0), np.tile(np.eye(n), (n, 1))
        for term in own.terms:
            A, B = term.select, term.embed
            assert A is not None and B is not None
            terms += [Term(0, A @ first, B[:d]), Term(0, A @ second, B[d:])]
        box = None if own.box is None else (own.box[0][:d], own.box[1][:d])
        return replace(own, inputs=(own.inputs[0][:d],), terms=tuple(terms), length=n, reads="first", box=box)
