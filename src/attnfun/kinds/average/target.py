"""Means over named positions: the target behind `sparse_average`."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnfun.certify.view import Undecided
from attnfun.errors import Infeasible, InvalidRequest, require
from attnfun.kinds.average.weights import KEYS, Coded, Sets, check_subsets, coordinates, encode_average, positions
from attnfun.language.inputs import numbers, plain
from attnfun.language.numbers import at_most, one_of, positive_or_none, whole_number
from attnfun.language.target import Array, Target, settle
from attnfun.network.tokens import misfit, sample_size, widened

MOST_TOKENS = 8192
_SIZES = {"tokens": (2,), "q": (1,), "dim": (1, 1 << 20), "heads": (1,), "width": (1, 1 << 20), "seed": (0,)}


@dataclass(frozen=True)
class Averages(Target):
    """Token i of N holds z_i and a set of q positions; wanted is the mean of z over the set, for z in `z_range`.

    `subsets`: the sets it is proved for. `others`: the error that other sets are proved for when they are encoded; None
    where they are encoded as they are. `keys`, `width` and `seed` are those of the codes of positions, which `heads`
    heads read.
    """

    kind: ClassVar[str] = "average"
    draws_what: ClassVar[str] = "fresh draws"

    tokens: int
    q: int
    dim: int
    keys: str
    heads: int
    width: int
    z_range: tuple[float, float]
    seed: int
    subsets: Sets
    others: float | None = None

    def __post_init__(self) -> None:
        settle(self, {name: whole_number(name, getattr(self, name), *ends) for name, ends in _SIZES.items()})
        N, q, heads, (low, high) = self.tokens, self.q, self.heads, (float(end) for end in self.z_range)
        require(q < N, f"q={q}: at least 1 and fewer than the {N} tokens")
        one_of("keys", self.keys, KEYS)
        require(-1e100 < low < high < 1e100, f"z_range={self.z_range!r:.60}: a lower and a higher number")
        require(q % heads == 0, f"heads={heads}: a divisor of q={q} is needed")
        if N > MOST_TOKENS:
            raise Infeasible(f"tokens={N:,}: attention over {N**2:,} pairs is not run here", {"tokens": MOST_TOKENS})
        if self.keys == "curve" and self.width != (usual := 2 * q // heads):
            raise InvalidRequest(f"width={self.width}: codes on the curve have 2q/heads = {usual} coordinates")
        eps, sets = positive_or_none("eps", self.others), check_subsets(self.subsets, N, q)
        settle(self, {"others": eps, "z_range": (low, high), "subsets": sets})

    @property
    def text(self) -> str:
        return f"means over {self.q} named positions of {self.tokens:,}"

    @property
    def domain(self) -> str:
        low, high = self.z_range
        return f"{self.tokens:,} tokens, z={low:g}:{high:g}, {len(self.subsets):,} sets"

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Of its tokens."""
        return coordinates(self.width, self.dim, self.heads)

    def same(self, other: Target) -> bool:
        """What becomes of other sets does not matter to a comparison at these."""
        own, theirs = ({**one.to_json(), "others": None} for one in (self, other))
        return self.kind == other.kind and own == theirs

    def fits(self, weights: Coded) -> str:
        if weights.codes.shape != (self.tokens, self.width):
            return "the file's codes are not those of its positions"
        return misfit(weights.network, self.coordinates, self.dim)

    def encode(self, weights: Coded, z: Any, subsets: Any) -> tuple[tuple[Array], None]:
        """(N, dim) or (N,) numbers and one set for every token, or a batch of both; sets that are not among `subsets`
        are proved before they are used."""
        z, named = self._given(z, subsets)
        flat = tuple(map(tuple, named.reshape(-1, self.q).tolist()))
        queries = weights.queries(self.keys, flat, self.heads)
        if self.others is not None and not set(flat) <= set(self.subsets):
            self._require(weights, flat)
        queries = queries.reshape((*named.shape[:-1], self.heads, self.width))
        return (widened(encode_average(weights.codes, queries, z), weights.network.width),), None

    def _require(self, weights: Coded, named: Sets) -> None:
        from attnfun.kinds.average.prove import averaged

        try:
            error = averaged(self, weights, named).error
        except Undecided as why:
            raise Infeasible(f"eps={self.others:g}: {why}") from None
        if self.others is None or not error <= self.others:
            raise Infeasible(f"eps={self.others:g}: only {at_most(error, 3)} is proved for these sets")

    def decode(self, outputs: Any, _how: None) -> Array:
        return np.asarray(outputs, dtype=np.float64)

    def _given(self, z: Any, subsets: Any) -> tuple[Array, Any]:
        """(…, N, dim) finite numbers in the range, and (…, N, q) positions; InvalidRequest for anything else."""
        values = numbers(z, "z")
        values = values[:, None] if values.ndim == 1 else values
        N, dim = self.tokens, self.dim
        if values.ndim not in (2, 3) or values.shape[-2:] != (N, dim) or not np.isfinite(values).all():
            raise InvalidRequest(f"z of shape {values.shape}: {(N, dim)} finite numbers are needed")
        if values.size and not (values.min() >= self.z_range[0] and values.max() <= self.z_range[1]):
            raise InvalidRequest(f"z leaves the range {self.z_range} the network was made for")
        named = positions(plain(subsets) if hasattr(subsets, "detach") else subsets, N, self.q)
        require(named.shape == (*values.shape[:-1], self.q), f"{len(named)} sets for {N} tokens: every token names one")
        return values, named

    def sample_size(self, weights: Coded) -> int:
        return sample_size(self.tokens + weights.cost.keys, weights.cost.heads)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Any]:
        """z uniform in its range, every token naming one of the sets."""
        at = rng.integers(0, len(self.subsets), (count, self.tokens))
        z = rng.uniform(*self.z_range, (count, self.tokens, self.dim))
        return z, np.array(self.subsets)[at]

    def exact(self, z: Any, subsets: Any) -> Array:
        z, named = self._given(z, subsets)
        many = named.reshape(-1, self.tokens, self.q)
        means = z.reshape(-1, self.tokens, self.dim)[np.arange(len(many))[:, None, None], many].mean(axis=2)
        return np.asarray(means.reshape(z.shape))


def rule_of_thumb(tokens: int, q: int) -> int:
    """4 q ln N: a width at which random signs usually do."""
    return max(q + 1, math.ceil(4 * q * math.log(max(tokens, 2))))
