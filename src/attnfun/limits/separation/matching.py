"""Heads that one layer of attention needs for triples, by the bits that two parties must exchange; and for averages.

Statement. If a layer of H heads with value width r decides, for every N tokens of Z_M with M = 10(N−1) (N odd; one less
if even), whether token 0 is in a triple that sums to 0, and if its decision survives rounding the largest logit, the
normaliser and the r averages of every head over a part of the tokens to p bits each, then H (r+2) p ≥ ⌊(N−1)/2⌋.

Derivation. The layer solves disjointness of n = ⌊(N−1)/2⌋ elements by the reduction and the protocol of `disjointness`,
with H(r+2)p bits from Alice; and any deterministic protocol needs n bits: the 2^n pairs (S, complement of S) are
disjoint, and no two of them may have the same transcript, for one of the two crossed pairs meets (a fooling set). What
follows the layer at token 0, an MLP of any size, is free.

Statement (averages). If one layer with a linear read-out averages over every q-subset of N positions within ε < w/(4q),
w the width of the range of z, with queries of H r numbers of p bits, and keys and values that are functions of z_j and
j (not of the sets tokens name), then H r p ≥ log2 C(N, q).

Derivation. Two sets S ≠ S' of equal query numbers, named by token i: what the heads add is the same function of all z,
and what the residual stream adds depends on z_i alone. Some j ≠ i is in one of the two and not in the other; moving z_j
through its range moves the difference of the two means by w/q, and the difference of the two outputs not at all: one of
the four errors is at least w/(4q).

Source. C. Sanford, D. Hsu, M. Telgarsky 2023, arXiv 2306.02896, for the reduction to communication; their forms,
p r H of the order of N/log log N and m p of the order of q, are quoted with unknown constants (`published`). The counts
with constants are derived here.
Failure mode: a bound on bits. With unbounded precision it says nothing; and it constructs nothing.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from attnfun.errors import require
from attnfun.language.numbers import whole_number
from attnfun.limits.record import Record, texts
from attnfun.limits.separation.published import Quoted, matching_heads

_TEXTS = texts("matching")


@dataclass(frozen=True)
class MatchingBound(Record):
    """No layer of fewer than `heads_needed` heads; `excluded`: are `heads` too few (None where none were asked)."""

    also: ClassVar[tuple[str, ...]] = ("published",)

    tokens: int
    rank: int
    bits: int
    heads: int | None
    bits_needed: int
    heads_needed: int
    excluded: bool | None
    hypotheses: tuple[str, ...] = _TEXTS["hypotheses"]
    source: str = _TEXTS["source"]

    @property
    def published(self) -> tuple[Quoted, ...]:
        return (matching_heads(self.tokens, self.rank, self.bits),)


def matching(tokens: int, rank: int, bits: int, heads: int | None = None) -> MatchingBound:
    """Heads that one layer needs for triples among `tokens` tokens: values of width `rank`, numbers of `bits` bits."""
    N, r, p = whole_number("tokens", tokens, 1), whole_number("rank", rank, 1), whole_number("bits", bits, 1)
    h = None if heads is None else whole_number("heads", heads, 0)
    n = (N - 1) // 2
    needed = -(-n // (p * (r + 2)))
    return MatchingBound(N, r, p, h, n, needed, None if h is None else h < needed)


def average_bits(tokens: int, q: int) -> int:
    """⌈log2 C(N, q)⌉: bits H r p with which a layer must see the query, at an error below w/(4q)."""
    N, k = whole_number("tokens", tokens, 1), whole_number("q", q, 1)
    require(k <= N, f"q={k}: there are {N} tokens")
    return (math.comb(N, k) - 1).bit_length()
