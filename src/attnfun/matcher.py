"""`matching`: tokens that find their partners mod M by softmax attention; the object it returns."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate, Status
from attnfun.certify.matching import MatchBound, prove_by_matching
from attnfun.certify.stored import kept
from attnfun.certify.verdict import above, status_of
from attnfun.certify.view import Undecided
from attnfun.constructions.matching.encoding import residues
from attnfun.constructions.matching.match2 import encode2, least_scale, match2
from attnfun.constructions.matching.match3 import encode3, match3, third_order
from attnfun.errors import DamagedFile, Infeasible, InvalidRequest
from attnfun.gate import Gate, require_sup
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, load_tokens, save_tokens, tokens_to_torch
from attnfun.network.claim import Claim
from attnfun.network.network import DTYPES
from attnfun.network.sealed import Source
from attnfun.targets.matching import MOST_TOKENS, matched
from attnfun.targets.numbers import whole_number

if TYPE_CHECKING:
    import torch

KIND = "matching"
MARGIN = 0.3
EPS = 0.5 - MARGIN
"""What `matching` asks for: at least 1 − EPS on a match, at most EPS otherwise."""
_DOUBLINGS = 24


@dataclass(frozen=True, eq=False)
class Matching:
    """A network that marks tokens which sum to 0 mod `modulus` with `order` − 1 others, and what is proved of it."""

    tokens: int
    modulus: int
    order: int
    self_allowed: bool
    network: TokenNetwork
    bound: MatchBound
    trilinear: MatchBound | None

    def encode(self, x: ArrayLike) -> NDArray[np.float64]:
        """(N,) or (batch, N) whole numbers -> token matrices: a look-up of cosines and sines (of pairs too)."""
        given = self._given(x)
        if self.order == 2:
            return encode2(given, self.modulus, self_allowed=self.self_allowed, dtype=self.network.dtype)
        return encode3(given, self.modulus, self.network.dtype)

    def __call__(self, x: ArrayLike) -> NDArray[np.float64]:
        """(..., N) outputs: above 0.8 on a match, below 0.2 otherwise."""
        given = self._given(x)
        n = given.shape[-1]
        return np.asarray(self.network.run(self.encode(given))[..., :n, 0], dtype=np.float64)

    def decide(self, x: ArrayLike) -> NDArray[np.bool_]:
        """(..., N): is the output above 1/2."""
        return self(x) > 0.5

    def third_order(self, x: ArrayLike) -> NDArray[np.float64]:
        """The same by third-order attention: a softmax over pairs of the trilinear form, no pair tokens."""
        if self.order != 3:
            raise InvalidRequest(f"order={self.order}: third-order attention matches triples")
        return third_order(self._given(x), self.modulus, self.bound.scale, self.bound.null, self.network.dtype)

    def exact(self, x: ArrayLike) -> NDArray[np.bool_]:
        """The target itself, by counting."""
        return matches(self._given(x), self.modulus, self.order, self.self_allowed)

    def _given(self, x: ArrayLike) -> NDArray[np.int64]:
        r = residues(x, self.modulus)
        if r.ndim not in (1, 2) or not 1 <= r.shape[-1] <= self.tokens:
            raise InvalidRequest(f"numbers of shape {r.shape}: at most {self.tokens} tokens, or a batch of them")
        return r

    @property
    def margin(self) -> float:
        """The proved distance of every output from 1/2."""
        return min(b.margin for b in (self.bound, self.trilinear) if b is not None)

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (`encode`)."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights, target and certificate as one safetensors file."""
        target = {"kind": KIND, "tokens": self.tokens, "modulus": self.modulus, "order": self.order}
        target["self_allowed"] = self.self_allowed
        save_tokens(path, self.network, {"target": target, **kept({"eps": EPS}, self.certificate)})

    @property
    def certificate(self) -> Certificate:
        """`error`: how far an output may be below 1 on a match or above 0 otherwise (above 1 on a match is right)."""
        return self.judged(EPS)

    def judged(self, eps: float | None) -> Certificate:
        """The certificate for another eps than the one that `matching` asks for."""
        high = 0.5 - self.margin if self.margin > 0 else math.inf
        status, why = status_of(high, eps), "rounding eats the gap between a sum of 0 and one of 1"
        text = matching_text(self.modulus, self.order, self.self_allowed)
        return Certificate(
            status,
            (0.0, high),
            eps,
            math.inf,
            self.network.dtype,
            "matching",
            text,
            f"{self.tokens} tokens of Z_{self.modulus}",
            f"match{self.order}",
            hypotheses=self.bound.hypotheses,
            reason=(above(high, eps) if high < math.inf else why) if status is Status.UNDECIDED else None,
        )

    def record(self) -> dict[str, Any]:
        return {
            "status": self.certificate.status.value,
            "eps": EPS,
            "tokens": self.tokens,
            "modulus": self.modulus,
            "order": self.order,
            "self_allowed": self.self_allowed,
            "match_at_least": self.bound.match,
            "other_at_most": self.bound.other,
            "margin": self.margin,
            "scale": self.bound.scale,
            "null": self.bound.null,
            "logit_error": self.bound.logit_error,
            "heads": self.cost.heads,
            "rank": self.cost.rank,
            "parameters": self.cost.parameters,
            "dtype": self.network.dtype,
            "hypotheses": list(self.bound.hypotheses),
        }


def matches(x: ArrayLike, modulus: int, order: int = 2, self_allowed: bool = True) -> NDArray[np.bool_]:
    """[∃ j (, k): x_i + x_j (+ x_k) ≡ 0 mod M] for every i, by brute force; `self_allowed=False` (pairs): j ≠ i."""
    return matched(residues(x, modulus), modulus, order, self_allowed)


def matching(
    tokens: int, modulus: int, order: int = 2, *, self_allowed: bool = True, dtype: str = "float64"
) -> Matching:
    """A network that finds pairs (order 2) or triples (order 3) summing to 0 mod `modulus` among up to `tokens` tokens.

    Proved, rounding included: at least 0.8 on a match, at most 0.2 otherwise. `self_allowed=False` (pairs only): a
    token is no partner of itself. Raises Infeasible, with the largest modulus, where the dtype cannot tell 0 from ±1.
    """
    N = whole_number("tokens", tokens, 1)
    M = whole_number("modulus", modulus, 2)
    if order not in (2, 3):
        raise InvalidRequest(f"order={order!r}: 2 for pairs, 3 for triples")
    if order == 3 and not self_allowed:
        raise InvalidRequest("self_allowed=False is for pairs: a softmax over pair tokens does not know which is whose")
    if dtype not in DTYPES:
        raise InvalidRequest(f"dtype={dtype!r}: {' or '.join(DTYPES)}")
    most = MOST_TOKENS[order]
    if most < N:
        nearest = {"tokens": most}
        raise Infeasible(f"tokens={N:,}: attention over {N**order:,} products is not run here", nearest)
    found = _built(N, M, order, self_allowed, dtype)
    if found is None:
        largest = _largest_modulus(N, M, order, self_allowed, dtype)
        reason = f"modulus={M:,}: rounding in {dtype} blurs a sum of 0 with one of ±1 for {N} tokens"
        raise Infeasible(reason, {"modulus": largest} if largest else None)
    return found


def matching_text(modulus: int, order: int, self_allowed: bool) -> str:
    wanted = "x_i + x_j" if order == 2 else "x_i + x_j + x_k"
    return f"[some {wanted} = 0 mod {modulus}]" + ("" if self_allowed else ", j other than i")


def load_matching(path: Source) -> Matching:
    """The network of a file, proved anew from its weights and its target: the stored certificate is not read."""
    network, (N, M, order, allowed), _ = _read(path)
    try:
        return _proved(network, N, M, order, allowed)
    except Undecided as why:
        raise DamagedFile(f"the file's network does not match anything: {why}") from None


def verify_matching(path: Source, gate: Gate, _progress: Any = None) -> Certificate:
    """What is proved of the weights of a file, for its eps or another."""
    network, (N, M, order, allowed), claim = _read(path)
    gate.no_expression("the file of a matching network is proved against what it matches")
    eps = gate.tolerance(claim, network.dtype)
    try:
        return _proved(network, N, M, order, allowed).judged(eps)
    except Undecided as why:
        about = matching_text(M, order, allowed), f"{N} tokens of Z_{M}", f"match{order}"
        undecided = Status.UNDECIDED, (0.0, math.inf), eps, math.inf, network.dtype, "matching"
        return Certificate(*undecided, *about, reason=str(why))


def _read(path: Source) -> tuple[TokenNetwork, tuple[int, int, int, bool], Claim]:
    network, meta = load_tokens(path, ignore=("certificate",))
    target, claim = meta["target"], Claim.of(meta)
    require_sup(claim)
    N, M, order = asked = tuple(target.get(name) for name in ("tokens", "modulus", "order"))
    allowed = target.get("self_allowed")
    if not (all(type(n) is int and n >= 1 for n in asked) and order in (2, 3) and type(allowed) is bool):
        raise DamagedFile("the file does not say what its network matches")
    return network, (N, M, order, allowed), claim


def _proved(network: TokenNetwork, N: int, M: int, order: int, allowed: bool) -> Matching:
    bound = prove_by_matching(network, N, M, order, self_allowed=allowed)
    other = prove_by_matching(network, N, M, order, trilinear=True) if order == 3 else None
    return Matching(N, M, order, allowed, network, bound, other)


def _built(N: int, M: int, order: int, self_allowed: bool, dtype: str) -> Matching | None:
    if M >= 1 << 60:
        return None
    scale = least_scale(N ** (order - 1), M)
    for _ in range(_DOUBLINGS):
        if not scale < 2.0**100:
            return None
        if order == 2:
            network = match2(N, M, scale=scale, self_allowed=self_allowed, dtype=dtype)
        else:
            network = match3(N, M, scale=scale, dtype=dtype)
        try:
            made = _proved(network, N, M, order, self_allowed)
        except Undecided:
            return None
        if made.margin >= MARGIN:
            return made
        scale *= 2
    return None


def _largest_modulus(N: int, M: int, order: int, self_allowed: bool, dtype: str) -> int | None:
    """A modulus that is proved while the next one is not, by bisection below M."""
    low, high = 2, M
    if _built(N, low, order, self_allowed, dtype) is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2 if high < 4 * low else 2 * low
        low, high = (low, middle) if _built(N, middle, order, self_allowed, dtype) is None else (middle, high)
    return low
