"""`sparse_average`: heads that average over the positions each token names; the object it returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate, Status
from attnfun.certify.sparse_average import AverageBound, prove_by_sparse_average
from attnfun.certify.verdict import above, status_of
from attnfun.certify.view import Undecided
from attnfun.constructions.matching.sparse_average import (
    KEYS,
    check_average_inputs,
    check_subsets,
    curve_keys,
    encode_average,
    random_sign_keys,
    set_queries,
    sparse_average_network,
)
from attnfun.errors import Infeasible, InvalidRequest
from attnfun.limits.separation.published import Quoted, sparse_average_width
from attnfun.network import Cost, TokenArchitecture, TokenNetwork, tokens_to_torch
from attnfun.targets.numbers import whole_number

if TYPE_CHECKING:
    import torch

_MOST_SUBSETS = 20_000
_MOST_TOKENS = 8192
_MOST_SCORES = 1 << 26  # sets × heads × tokens


@dataclass(frozen=True, eq=False)
class SparseAverage:
    """Heads that average z over the q positions each token names, with what is proved for the sets they were given."""

    tokens: int
    q: int
    dim: int
    keys: str
    heads: int
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
        values, named = check_average_inputs(z, subsets, self.tokens, self.q, self.dim, self.z_range)
        queries = set_queries(self.codes, self.keys, named, self.heads)
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
    def architecture(self) -> TokenArchitecture:
        return self.network.architecture

    @property
    def certificate(self) -> Certificate:
        """For the sets given; others are proved when they are encoded."""
        about = self.q, self.tokens, self.z_range, len(self.subsets)
        return average_certificate(self.network, self.bound, *about, self.eps)

    @property
    def bits(self) -> int:
        """Bits of a query's numbers, sign and all: each the nearest of 2^bits equally spaced ones from −W to W, W the
        largest of them. That moves logits by D = β reach/(2^bits − 1) at most, and costs at most (range) tanh(D/2) ≤
        eps on top of the proved error.
        """
        width = self.z_range[1] - self.z_range[0]
        steps = self.bound.beta * self.bound.reach * width / (2 * self.eps) * (1 + 1e-9)
        return max(1, math.ceil(math.log2(steps + 1)))

    @property
    def published(self) -> Quoted:
        """The lower bound of the literature, constant taken as 1."""
        return sparse_average_width(self.q, self.bits)

    def to_torch(self, dtype: Any = None) -> torch.nn.Module:
        """The same network as a module on token matrices (`encode`)."""
        return tokens_to_torch(self.network, dtype)

    def record(self) -> dict[str, Any]:
        return {
            "status": self.certificate.status.value,
            "tokens": self.tokens,
            "q": self.q,
            "keys": self.keys,
            "heads": self.heads,
            "dimension": self.width,
            "margin": self.bound.margin,
            "beta": self.bound.beta,
            "bits": self.bits,
            "error": self.bound.error,
            "eps": self.eps,
            "subsets": len(self.subsets),
            "rule_of_thumb": rule_of_thumb(self.tokens, self.q),
            "parameters": self.cost.parameters,
            "hypotheses": list(self.certificate.hypotheses),
            "published": [self.published.record()],
        }


def average_certificate(
    network: TokenNetwork,
    bound: AverageBound,
    q: int,
    tokens: int,
    z_range: tuple[float, float],
    sets: int,
    eps: float | None,
) -> Certificate:
    """What a bound says of the network it was proved for."""
    status = status_of(bound.error, eps)
    about = (eps, math.inf, network.dtype, "sparse average", f"means over {q} named positions of {tokens:,}")
    domain = f"{tokens:,} tokens, z={z_range[0]:g}:{z_range[1]:g}, {sets:,} sets"
    given = (f"for the {sets:,} sets given; others are proved when encoded", *bound.hypotheses)
    why = above(bound.error, eps) if status is Status.UNDECIDED else None
    return Certificate(status, (0.0, bound.error), *about, domain, "sparse average", hypotheses=given, reason=why)


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
    heads: int = 1,
    eps: float = 1e-3,
    dim: int = 1,
    z_range: Sequence[float] = (-1.0, 1.0),
    seed: int = 0,
) -> SparseAverage:
    """Heads that average z over q positions of `tokens`, within `eps` for z in `z_range`.

    `subsets`: the sets to prove it for, or how many random ones; all of them if not given and at most 20,000. `keys`:
    "random" (signs in `width` dimensions, 4 q ln N if not given) or "curve" (2q dimensions, tiny margins). `heads`, a
    divisor of q, share the positions: q stands for q/heads in both.
    """
    N, size = whole_number("tokens", tokens, 2), whole_number("dim", dim, 1)
    if not 1 <= whole_number("q", q, 1) < N:
        raise InvalidRequest(f"q={q}: at least 1 and fewer than the {N} tokens")
    if keys not in KEYS:
        raise InvalidRequest(f"keys={keys!r}: {' or '.join(KEYS)}")
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating)) or not 0 < eps < math.inf:
        raise InvalidRequest(f"eps={eps!r:.40}: a positive number is needed")
    low, high = (float(end) for end in z_range)
    if not (-1e100 < low < high < 1e100):
        raise InvalidRequest(f"z_range={z_range!r:.60}: a lower and a higher number")
    if not 1 <= whole_number("heads", heads, 1) <= q or q % heads:
        raise InvalidRequest(f"heads={heads}: a divisor of q={q} is needed")
    if N > _MOST_TOKENS:
        raise Infeasible(f"tokens={N:,}: attention over {N**2:,} pairs is not run here", {"tokens": _MOST_TOKENS})
    named = _sets(subsets, N, q, seed)
    if len(named) * heads * N > _MOST_SCORES:
        most = _MOST_SCORES // (heads * N)
        raise Infeasible(f"{len(named):,} sets of {N:,} tokens are too many scores to prove", {"subsets": most})
    share = q // heads
    if keys == "curve":
        if width not in (None, 2 * share):
            raise InvalidRequest(f"width={width}: codes on the curve have 2q/heads = {2 * share} coordinates")
        codes = curve_keys(N, share)
    else:
        codes = random_sign_keys(N, whole_number("width", rule_of_thumb(N, share) if width is None else width, 1), seed)
    queries = set_queries(codes, keys, named, heads)
    mu = _margin(codes, queries, named)
    if not mu > 0:
        nearest: dict[str, Any] = {"keys": "random"}
        if keys == "random":
            nearest = {"width": max(2 * codes.shape[1], 2 * rule_of_thumb(N, share))}
        raise Infeasible(f"averages over {q} of {N}: {codes.shape[1]} coordinates do not tell every set apart", nearest)
    wanted = max(math.log((N - share) / share * (high - low) / eps), 1.0) / mu
    beta = 2.0 ** math.ceil(math.log2(wanted))
    why = ""
    for _ in range(3):
        network = sparse_average_network(codes.shape[1], size, beta, heads)
        try:
            bound = _proved(network, codes, queries, named, (low, high), float(eps))
        except Infeasible as error:
            why, beta = f"averages over {q} of {N} with margin {mu:.2g}: {error}", 2 * beta
            continue
        return SparseAverage(
            N, q, size, keys, heads, codes.shape[1], float(eps), (low, high), seed, named, network, bound, codes
        )
    raise Infeasible(why, {"keys": "random"} if keys == "curve" else {"eps": 4 * float(eps)})


def _margin(codes: NDArray[np.float64], queries: NDArray[np.float64], named: tuple[tuple[int, ...], ...]) -> float:
    """1 − the largest score of a position outside its set, as computed."""
    worst = -math.inf
    heads = queries.shape[1]
    for head in range(heads):
        for row, subset in zip(queries[:, head] @ codes.T, named, strict=True):
            worst = max(worst, float(np.delete(row, list(subset[head::heads])).max()))
    return 1 - worst


def _sets(subsets: Any, N: int, q: int, seed: int) -> tuple[tuple[int, ...], ...]:
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


def _proved(
    network: TokenNetwork,
    codes: NDArray[np.float64],
    queries: NDArray[np.float64],
    named: tuple[tuple[int, ...], ...],
    z_range: tuple[float, float],
    eps: float,
) -> AverageBound:
    try:
        bound = prove_by_sparse_average(network, codes, queries, named, z_range)
    except Undecided as why:
        raise Infeasible(f"eps={eps:g}: {why}") from None
    if not bound.error <= eps:
        raise Infeasible(f"eps={eps:g}: only {bound.error:.3g} is proved for these sets")
    return bound
