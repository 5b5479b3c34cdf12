"""Matches mod M: which of given whole numbers sum to 0 with one or two others; the target behind `matching`."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.matching.encoding import FLAGGED, PLAIN, TRIPLES, encode2, encode3
from attnfun.language.circle import residues
from attnfun.language.inputs import plain
from attnfun.language.numbers import whole_number
from attnfun.language.target import Array, Target, settle
from attnfun.network.tokens import misfit, sample_size, widened

_BLOCK = 1 << 22  # comparisons at a time
MOST_TOKENS = {2: 4096, 3: 64}
"""By order: attention over more products than these make is not run here."""


@dataclass(frozen=True)
class Matches(Target):
    """Of up to `tokens` whole numbers those that sum to 0 mod `modulus` with `order` − 1 others; itself may be one of
    them if `self_allowed`. 1 on a match, else 0: what is above 1 on a match, or below 0 otherwise, is right.
    """

    kind: ClassVar[str] = "matching"
    draws_what: ClassVar[str] = "fresh draws"
    decided: ClassVar[str] = "tokens decided wrongly at 1/2"

    tokens: int
    modulus: int
    order: int = 2
    self_allowed: bool = True

    def __post_init__(self) -> None:
        N, M = whole_number("tokens", self.tokens, 1), whole_number("modulus", self.modulus, 2)
        require(self.order in MOST_TOKENS, f"order={self.order!r}: 2 for pairs, 3 for triples")
        own = {"tokens": N, "modulus": M, "order": int(self.order), "self_allowed": bool(self.self_allowed)}
        settle(self, own)
        if self.order == 3 and not self.self_allowed:
            why = "a softmax over pair tokens does not know which is whose"
            raise InvalidRequest(f"self_allowed=False is for pairs: {why}")
        if MOST_TOKENS[self.order] < N:
            why = f"tokens={N:,}: attention over {N**self.order:,} products is not run here"
            raise Infeasible(why, {"tokens": MOST_TOKENS[self.order]})

    @property
    def text(self) -> str:
        wanted = "x_i + x_j" if self.order == 2 else "x_i + x_j + x_k"
        return f"[some {wanted} = 0 mod {self.modulus}]" + ("" if self.self_allowed else ", j other than i")

    @property
    def domain(self) -> str:
        return f"{self.tokens} tokens of Z_{self.modulus}"

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Of its tokens."""
        return TRIPLES if self.order == 3 else PLAIN if self.self_allowed else FLAGGED

    def given(self, x: Any) -> NDArray[np.int64]:
        """(N,) or (batch, N) whole numbers as residues, checked."""
        r = residues(plain(x), self.modulus)
        if r.ndim not in (1, 2) or not 1 <= r.shape[-1] <= self.tokens:
            raise InvalidRequest(f"numbers of shape {r.shape}: at most {self.tokens} tokens, or a batch of them")
        return r

    def encode(self, weights: Any, x: Any) -> tuple[tuple[Array], int]:
        """A look-up of cosines and sines (of pairs too), in the dtype of the weights."""
        r = self.given(x)
        if self.order == 2:
            tokens = encode2(r, self.modulus, self_allowed=self.self_allowed, dtype=weights.dtype)
        else:
            tokens = encode3(r, self.modulus, weights.dtype)
        return (widened(tokens, weights.width),), r.shape[-1]

    def decode(self, outputs: Any, how: int) -> Array:
        return np.asarray(outputs[..., :how, 0], dtype=np.float64)

    def fits(self, weights: Any) -> str:
        return misfit(weights, self.coordinates, 1)

    def sample_size(self, weights: Any) -> int:
        pairs = self.tokens**2 if self.order == 3 else 0
        return sample_size(self.tokens + pairs + weights.cost.keys, weights.cost.heads)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64]]:
        """Uniform residues; in half of the draws every token is, with probability 1/2, made a partner of others."""
        M, n = self.modulus, self.tokens
        r = rng.integers(0, M, (count, n))
        first, second = r[:, rng.permutation(n)], r[:, rng.permutation(n)]
        partner = (-first) % M if self.order == 2 else ((-first) % M + (-second) % M) % M
        planted = (rng.random((count, n)) < 0.5) & (rng.random(count) < 0.5)[:, None]
        return (np.asarray(np.where(planted, partner, r), dtype=np.int64),)

    def exact(self, *inputs: Any) -> Array:
        return matched(self.given(*inputs), self.modulus, self.order, self.self_allowed).astype(np.float64)

    def errors(self, outputs: Any, wanted: Any) -> Array:
        """How far below 1 on a match, how far above 0 otherwise: what is beyond is right, as in the proof."""
        off = np.where(wanted > 0.5, wanted - outputs, outputs).reshape(len(wanted), -1)
        return np.where(np.isfinite(off), np.maximum(off, 0.0), np.inf)

    def wrong(self, outputs: Any, wanted: Any) -> NDArray[np.bool_]:
        return np.asarray((outputs > 0.5) != (wanted > 0.5))


def matches(x: ArrayLike, modulus: int, order: int = 2, self_allowed: bool = True) -> NDArray[np.bool_]:
    """[∃ j (, k): x_i + x_j (+ x_k) ≡ 0 mod M] for every i, by brute force; `self_allowed=False` (pairs): j ≠ i."""
    return matched(residues(x, modulus), modulus, order, self_allowed)


def matched(r: NDArray[np.int64], modulus: int, order: int, self_allowed: bool) -> NDArray[np.bool_]:
    """The same of residues (..., N)."""
    n = r.shape[-1]
    sums = (r[..., :, None] + r[..., None, :]) % modulus
    if order == 2:
        hit = sums == 0
        return np.asarray((hit if self_allowed else hit & ~np.eye(n, dtype=bool)).any(axis=-1))
    wanted, flat = ((modulus - r) % modulus).reshape(-1, n, 1), sums.reshape(-1, 1, n * n)
    step = max(1, _BLOCK // n**3)
    parts = [(wanted[k : k + step] == flat[k : k + step]).any(axis=2) for k in range(0, len(flat), step)]
    return np.concatenate(parts).reshape(r.shape) if parts else np.zeros(r.shape, dtype=bool)
