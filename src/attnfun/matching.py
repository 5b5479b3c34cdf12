"""`matching` and `sparse_average`: tokens that find their partners by softmax attention; the objects they return."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify.matching import MatchBound, prove_matching
from attnfun.certify.sparse_average import AverageBound, prove_sparse_average
from attnfun.certify.view import Undecided
from attnfun.constructions.matching.encoding import residues
from attnfun.constructions.matching.match2 import encode2, least_scale, match2
from attnfun.constructions.matching.match3 import encode3, match3, third_order
from attnfun.constructions.matching.sparse_average import (
    KEYS,
    check_subsets,
    curve_keys,
    curve_query,
    encode_average,
    least_norm_query,
    random_sign_keys,
    sparse_average_network,
)
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.limits.separation.published import Quoted, sparse_average_width
from attnfun.network import Cost, TokenNetwork, save_tokens, tokens_to_torch
from attnfun.network.network import DTYPES

if TYPE_CHECKING:
    import torch

MARGIN = 0.3
_MOST_TOKENS = {2: 1 << 14, 3: 128}
_DOUBLINGS = 24
_MOST_SUBSETS = 20_000


@dataclass(frozen=True, eq=False)
class Matching:
    """A network that marks the tokens which sum to 0 mod `modulus` with `order` − 1 others, and what is proved of it."""

    tokens: int
    modulus: int
    order: int
    self_allowed: bool
    network: TokenNetwork
    bound: MatchBound
    trilinear: MatchBound | None

    def encode(self, x: ArrayLike) -> NDArray[np.float64]:
        """(N,) or (batch, N) whole numbers -> token matrices: a look-up of cosines and sines (order 3: of pairs too)."""
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

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (`encode`)."""
        return tokens_to_torch(self.network, dtype)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights and target as one safetensors file (`network.load_tokens` reads it)."""
        target = {"kind": "matching", "tokens": self.tokens, "modulus": self.modulus, "order": self.order}
        save_tokens(path, self.network, {"target": {**target, "self_allowed": self.self_allowed}})

    def record(self) -> dict[str, Any]:
        return {
            "status": "proved",
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
    r = residues(x, modulus)
    n = r.shape[-1]
    sums = (r[..., :, None] + r[..., None, :]) % modulus
    if order == 2:
        hit = sums == 0
        return np.asarray((hit if self_allowed else hit & ~np.eye(n, dtype=bool)).any(axis=-1))
    wanted = (modulus - r) % modulus
    flat = sums.reshape((*r.shape[:-1], n * n))
    found = [np.isin(w, s) for w, s in zip(wanted.reshape(-1, n), flat.reshape(-1, n * n), strict=True)]
    return np.asarray(found).reshape(r.shape)


def matching(
    tokens: int, modulus: int, order: int = 2, *, self_allowed: bool = True, dtype: str = "float64"
) -> Matching:
    """A network that finds pairs (order 2) or triples (order 3) summing to 0 mod `modulus` among up to `tokens` tokens.

    Proved, rounding included: at least 0.8 on a match, at most 0.2 otherwise. `self_allowed=False` (pairs only): a token
    is no partner of itself. Raises Infeasible, with the largest modulus, where the dtype cannot tell 0 from ±1.
    """
    N = _whole("tokens", tokens, 1)
    M = _whole("modulus", modulus, 2)
    if order not in (2, 3):
        raise InvalidRequest(f"order={order!r}: 2 for pairs, 3 for triples")
    if order == 3 and not self_allowed:
        raise InvalidRequest("self_allowed=False is for pairs: a softmax over pair tokens does not know which is whose")
    if dtype not in DTYPES:
        raise InvalidRequest(f"dtype={dtype!r}: {' or '.join(DTYPES)}")
    if N > _MOST_TOKENS[order]:
        nearest = {"tokens": _MOST_TOKENS[order]}
        raise Infeasible(f"tokens={N:,}: attention over {N**order:,} products is not run here", nearest)
    found = _built(N, M, order, self_allowed, dtype)
    if found is None:
        largest = _largest_modulus(N, M, order, self_allowed, dtype)
        reason = f"modulus={M:,}: rounding in {dtype} blurs a sum of 0 with one of ±1 for {N} tokens"
        raise Infeasible(reason, {"modulus": largest} if largest else None)
    return found


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
            bound = prove_matching(network, N, M, order, self_allowed=self_allowed)
            other = prove_matching(network, N, M, order, trilinear=True) if order == 3 else None
        except Undecided:
            return None
        made = Matching(N, M, order, self_allowed, network, bound, other)
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


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or int(value) < least:
        raise InvalidRequest(f"{name}={value!r:.40}: a whole number of at least {least} is needed")
    return int(value)


@dataclass(frozen=True, eq=False)
class SparseAverage:
    """A head that averages z over the q positions each token names, with what is proved for the sets it was given."""

    tokens: int
    q: int
    dim: int
    keys: str
    width: int
    eps: float
    z_range: tuple[float, float]
    seed: int
    subsets: tuple[tuple[int, ...], ...]
    network: TokenNetwork
    bound: AverageBound
    codes: NDArray[np.float64]

    def encode(self, z: ArrayLike, subsets: Any) -> NDArray[np.float64]:
        """(N, dim) numbers and one set for every token -> (N, width of tokens); sets are proved before they are used.

        The query of a set is computed here, by a linear solve (random keys) or a product (curve), not by the network.
        """
        values = np.asarray(z, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape != (self.tokens, self.dim) or not np.isfinite(values).all():
            raise InvalidRequest(f"z of shape {values.shape}: {(self.tokens, self.dim)} finite numbers are needed")
        if not (values.min() >= self.z_range[0] and values.max() <= self.z_range[1]):
            raise InvalidRequest(f"z leaves the range {self.z_range} the network was made for")
        named = check_subsets(subsets, self.tokens, self.q)
        if len(named) != self.tokens:
            raise InvalidRequest(f"{len(named)} sets for {self.tokens} tokens: every token names one")
        queries = _queries(self.codes, self.keys, named)
        if not set(named) <= set(self.subsets):
            _proved(self.network, self.codes, queries, named, self.z_range, self.eps)
        return encode_average(self.codes, queries, values)

    def __call__(self, z: ArrayLike, subsets: Any) -> NDArray[np.float64]:
        """(N, dim) averages, within eps of the true ones."""
        return np.asarray(self.network.run(self.encode(z, subsets)), dtype=np.float64)

    def exact(self, z: ArrayLike, subsets: Any) -> NDArray[np.float64]:
        """The target itself."""
        values = np.asarray(z, dtype=np.float64).reshape(self.tokens, self.dim)
        return np.array([values[list(s)].mean(axis=0) for s in check_subsets(subsets, self.tokens, self.q)])

    @property
    def cost(self) -> Cost:
        return self.network.cost

    @property
    def bits(self) -> int:
        """Bits of a logit whose rounding costs no more than eps: D = β max|score| 2^−bits, (range) tanh(D/2) ≤ eps."""
        width = self.z_range[1] - self.z_range[0]
        return max(1, math.ceil(math.log2(self.bound.beta * self.bound.largest_score * width / (2 * self.eps))))

    @property
    def published(self) -> Quoted:
        """The lower bound of the literature, constant taken as 1."""
        return sparse_average_width(self.q, self.bits)

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (`encode`)."""
        return tokens_to_torch(self.network, dtype)

    def record(self) -> dict[str, Any]:
        return {
            "status": "proved",
            "tokens": self.tokens,
            "q": self.q,
            "keys": self.keys,
            "dimension": self.width,
            "margin": self.bound.margin,
            "beta": self.bound.beta,
            "bits": self.bits,
            "error": self.bound.error,
            "eps": self.eps,
            "subsets": len(self.subsets),
            "rule_of_thumb": rule_of_thumb(self.tokens, self.q),
            "parameters": self.cost.parameters,
            "hypotheses": [f"for the {len(self.subsets):,} sets given; others are proved when encoded"]
            + list(self.bound.hypotheses),
            "published": [self.published.record()],
        }


def rule_of_thumb(tokens: int, q: int) -> int:
    """4 q ln N: a width at which random signs usually do."""
    return max(q + 1, math.ceil(4 * q * math.log(max(tokens, 2))))


def sparse_average(
    tokens: int,
    q: int,
    *,
    subsets: Any = None,
    width: int | None = None,
    keys: str = "random",
    eps: float = 1e-3,
    dim: int = 1,
    z_range: Sequence[float] = (-1.0, 1.0),
    seed: int = 0,
) -> SparseAverage:
    """A head that averages z over q positions of `tokens`, within `eps` for z in `z_range`.

    `subsets`: the sets to prove it for, or how many random ones; all of them if not given and at most 20,000. `keys`:
    "random" (signs in `width` dimensions, 4 q ln N if not given) or "curve" (2q dimensions, tiny margins).
    """
    N, size = _whole("tokens", tokens, 2), _whole("dim", dim, 1)
    if not 1 <= _whole("q", q, 1) < N:
        raise InvalidRequest(f"q={q}: at least 1 and fewer than the {N} tokens")
    if keys not in KEYS:
        raise InvalidRequest(f"keys={keys!r}: {' or '.join(KEYS)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating)) or not 0 < eps < math.inf:
        raise InvalidRequest(f"eps={eps!r:.40}: a positive number is needed")
    low, high = (float(end) for end in z_range)
    if not (-1e100 < low < high < 1e100):
        raise InvalidRequest(f"z_range={z_range!r:.60}: a lower and a higher number")
    named = _sets(subsets, N, q, seed)
    if keys == "curve":
        if width not in (None, 2 * q):
            raise InvalidRequest(f"width={width}: codes on the curve have 2q = {2 * q} coordinates")
        codes = curve_keys(N, q)
    else:
        codes = random_sign_keys(N, _whole("width", rule_of_thumb(N, q) if width is None else width, 1), seed)
    queries = _queries(codes, keys, named)
    scores = queries @ codes.T
    rest = [float(np.delete(row, list(s)).max()) for row, s in zip(scores, named, strict=True)]
    mu = 1 - max(rest)
    if not mu > 0:
        wider = {"width": max(2 * codes.shape[1], 2 * rule_of_thumb(N, q))} if keys == "random" else None
        what = f"{codes.shape[1]} coordinates do not separate every set (largest score outside {max(rest):.4g})"
        raise Infeasible(f"sparse averages over {q} of {N}: {what}", wider or {"keys": "random"})
    wanted = max(math.log((N - q) / q * (high - low) / eps), 1.0) / mu
    beta = 2.0 ** math.ceil(math.log2(wanted))
    why = f"sparse averages over {q} of {N} with margin {mu:.2g}: rounding in float64 exceeds eps={eps:g}"
    for _ in range(3):
        network = sparse_average_network(codes.shape[1], size, beta)
        try:
            bound = _proved(network, codes, queries, named, (low, high), float(eps))
        except Infeasible as error:
            why, beta = str(error), 2 * beta
            continue
        return SparseAverage(
            N, q, size, keys, codes.shape[1], float(eps), (low, high), seed, named, network, bound, codes
        )
    raise Infeasible(why, {"keys": "random"} if keys == "curve" else {"eps": 4 * float(eps)})


def _sets(subsets: Any, N: int, q: int, seed: int) -> tuple[tuple[int, ...], ...]:
    from itertools import combinations

    if subsets is None:
        if math.comb(N, q) > _MOST_SUBSETS:
            raise InvalidRequest(f"{math.comb(N, q):,} sets of {q} of {N}: give subsets, or how many random ones")
        return tuple(combinations(range(N), q))
    if isinstance(subsets, (int, np.integer)) and not isinstance(subsets, bool):
        if not 1 <= subsets <= _MOST_SUBSETS:
            raise InvalidRequest(f"subsets={subsets}: from 1 to {_MOST_SUBSETS:,} random ones")
        random = np.random.default_rng([seed, 1])
        return tuple(tuple(sorted(random.choice(N, q, replace=False).tolist())) for _ in range(subsets))
    return check_subsets(subsets, N, q)


def _queries(codes: NDArray[np.float64], keys: str, named: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
    if keys == "curve":
        return np.array([curve_query(len(codes), np.array(s)) for s in named])
    return np.array([least_norm_query(codes, np.array(s)) for s in named])


def _proved(
    network: TokenNetwork,
    codes: NDArray[np.float64],
    queries: NDArray[np.float64],
    named: tuple[tuple[int, ...], ...],
    z_range: tuple[float, float],
    eps: float,
) -> AverageBound:
    try:
        bound = prove_sparse_average(network, codes, queries, named, z_range)
    except Undecided as why:
        raise Infeasible(f"eps={eps:g}: {why}") from None
    if not bound.error <= eps:
        raise Infeasible(f"eps={eps:g}: only {bound.error:.3g} is proved for these sets")
    return bound
