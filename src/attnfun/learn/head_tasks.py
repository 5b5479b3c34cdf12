"""What constructed heads on tokens are trained towards: matches mod M, the best key of a grid, averages over sets.

| task | draws | wanted | decided |
| --- | --- | --- | --- |
| `MatchingTask` | uniform residues, in half of the draws with partners planted | 1 on a match, else 0 | at 1/2 |
| `BestKeyTask` | 8 keys, in half of the draws with ties but in the last coordinate | the best key | by rounding |
| `AverageTask` | z uniform in its range, every token naming one of the sets | the mean over the set | nothing |

Tokens are those of the construction's encoder, which is a look-up and is not trained. Each task can be written as JSON
and read back, so that a trained network's file says what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnfun.constructions.matching.encoding import residues
from attnfun.constructions.matching.match2 import encode2
from attnfun.constructions.matching.match3 import encode3
from attnfun.constructions.matching.sparse_average import (
    KEYS,
    check_average_inputs,
    check_subsets,
    curve_keys,
    encode_average,
    random_sign_keys,
    set_queries,
)
from attnfun.errors import InvalidRequest
from attnfun.learn.token_tasks import TokenTask
from attnfun.network.head import Array
from attnfun.targets.matching import MOST_TOKENS, matched

KEYS_DRAWN = 8


class HeadTask(TokenTask, Protocol):
    """A `TokenTask` with inputs of its own, which an encoder writes as tokens."""

    def tokens_of(self, *inputs: Any) -> Array:
        """The token matrix of inputs as a user gives them; InvalidRequest for others."""
        ...

    def answer(self, outputs: Array, *inputs: Any) -> Array:
        """What is read of the network's outputs for these inputs."""
        ...

    def exact(self, *inputs: Any) -> Array:
        """The target itself."""
        ...

    def wrong(self, outputs: Array, values: Array) -> Array | None:
        """Which decisions are wrong, and None where nothing is decided."""
        ...

    @property
    def decided(self) -> str:
        """What `wrong` counts, in words."""
        ...

    @property
    def token_width(self) -> int:
        """How many coordinates its tokens have."""
        ...

    @property
    def outputs(self) -> int: ...


@dataclass(frozen=True)
class MatchingTask:
    """Of `tokens` whole numbers those that sum to 0 mod `modulus` with `order` − 1 others."""

    tokens: int
    modulus: int
    order: int
    self_allowed: bool
    dtype: str
    chosen_by = "loss"  # one wrong decision is an error of 1: the largest says little
    decided = "tokens decided wrongly at 1/2"
    outputs = 1

    @property
    def token_width(self) -> int:
        return 8 if self.order == 3 else 5 if self.self_allowed else 7

    @property
    def text(self) -> str:
        wanted = "x_i + x_j" if self.order == 2 else "x_i + x_j + x_k"
        return f"[some {wanted} = 0 mod {self.modulus}]" + ("" if self.self_allowed else ", j other than i")

    @property
    def domain(self) -> str:
        return f"{self.tokens} tokens of Z_{self.modulus}"

    def to_json(self) -> dict[str, Any]:
        own = {"tokens": self.tokens, "modulus": self.modulus, "order": self.order}
        return {"kind": "matching", **own, "self_allowed": self.self_allowed, "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MatchingTask:
        sizes = [data[name] for name in ("tokens", "modulus", "order")]
        allowed = data["self_allowed"]
        whole = all(type(n) is int and n >= 1 for n in sizes) and sizes[2] in MOST_TOKENS and 2 <= sizes[1] < 1 << 62
        whole = whole and sizes[0] <= MOST_TOKENS[sizes[2]] and type(allowed) is bool
        if not whole or (sizes[2] == 3 and not allowed):
            raise InvalidRequest("it does not say what its network matches")
        return cls(sizes[0], sizes[1], sizes[2], allowed, _dtype(data))

    def tokens_of(self, *inputs: Any) -> Array:
        (x,) = _inputs(inputs, "whole numbers")
        return self._encoded(self._given(x))

    def answer(self, outputs: Array, *inputs: Any) -> Array:
        n = self._given(inputs[0]).shape[-1]
        return np.asarray(outputs[..., :n, 0], dtype=np.float64)

    def exact(self, *inputs: Any) -> Array:
        (x,) = _inputs(inputs, "whole numbers")
        return matched(self._given(x), self.modulus, self.order, self.self_allowed).astype(np.float64)

    def _given(self, x: Any) -> NDArray[np.int64]:
        r = residues(x, self.modulus)
        if r.ndim not in (1, 2) or not 1 <= r.shape[-1] <= self.tokens:
            raise InvalidRequest(f"numbers of shape {r.shape}: at most {self.tokens} tokens, or a batch of them")
        return r

    def _encoded(self, r: NDArray[np.int64]) -> Array:
        if self.order == 2:
            return encode2(r, self.modulus, self_allowed=self.self_allowed, dtype=self.dtype)
        return encode3(r, self.modulus, self.dtype)

    def numbers(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """(count, N) residues; in half of the draws every token is, with probability 1/2, made a partner of others."""
        M, n = self.modulus, self.tokens
        r = rng.integers(0, M, (count, n))
        first, second = r[:, rng.permutation(n)], r[:, rng.permutation(n)]
        partner = (-first) % M if self.order == 2 else ((-first) % M + (-second) % M) % M
        planted = (rng.random((count, n)) < 0.5) & (rng.random(count) < 0.5)[:, None]
        return np.asarray(np.where(planted, partner, r), dtype=np.int64)

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        _no_noise(noise)
        r = self.numbers(rng, count)
        wanted = matched(r, self.modulus, self.order, self.self_allowed)
        return self._encoded(r), wanted[:, :, None].astype(np.float64)

    def read(self, outputs: Any) -> Any:
        return outputs[:, : self.tokens]

    def errors(self, outputs: Array, values: Array) -> Array:
        """How far below 1 on a match, how far above 0 otherwise: what is beyond is right, as in the proof."""
        off = np.where(values > 0.5, values - outputs, outputs)[:, :, 0]
        return np.where(np.isfinite(off), np.maximum(off, 0.0), np.inf)

    def wrong(self, outputs: Array, values: Array) -> Array | None:
        return np.asarray((outputs > 0.5) != (values > 0.5))[:, :, 0]


@dataclass(frozen=True)
class BestKeyTask:
    """The lexicographically best of keys in {0, …, levels − 1}^coordinates, for tokens with these `names`."""

    levels: int
    coordinates: int
    names: tuple[str, ...]
    chosen_by = "loss"
    decided = "sets whose rounded answer is not their best key"

    @property
    def token_width(self) -> int:
        return len(self.names)

    @property
    def outputs(self) -> int:
        return self.coordinates

    @property
    def text(self) -> str:
        return f"the lexicographically best key, {self.coordinates} coordinates of {self.levels:,} levels"

    @property
    def domain(self) -> str:
        return f"sets of {KEYS_DRAWN} keys of {{0, …, {self.levels - 1:,}}}^{self.coordinates}"

    def to_json(self) -> dict[str, Any]:
        own = {"levels": self.levels, "coordinates": self.coordinates, "names": list(self.names)}
        return {"kind": "lexicographic", **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BestKeyTask:
        levels, k, names = data["levels"], data["coordinates"], tuple(data["names"])
        needed = [*(f"x{i + 1}" for i in range(k if type(k) is int and 1 <= k <= 64 else 0)), "one"]
        whole = type(levels) is int and 2 <= levels < 1 << 53 and len(needed) > 1
        if not whole or not all(isinstance(name, str) for name in names) or not set(needed) <= set(names):
            raise InvalidRequest("it does not say which keys its network reads")
        return cls(levels, k, names)

    def tokens_of(self, *inputs: Any) -> Array:
        (keys,) = _inputs(inputs, "keys")
        return self._encoded(self._given(keys)[None])[0]

    def answer(self, outputs: Array, *inputs: Any) -> Array:
        return np.asarray(outputs[0], dtype=np.float64)

    def exact(self, *inputs: Any) -> Array:
        (keys,) = _inputs(inputs, "keys")
        return self.best(self._given(keys)[None])[0]

    def _given(self, keys: Any) -> Array:
        X = np.asarray(keys)
        if X.ndim != 2 or X.shape[1] != self.coordinates or not len(X) or X.dtype.kind not in "iuf":
            raise InvalidRequest(f"keys of shape {X.shape}: (n, {self.coordinates}) whole numbers are needed")
        if not ((X >= 0) & (self.levels - 1 >= X) & (np.floor(X) == X)).all():
            raise InvalidRequest(f"keys must be whole numbers from 0 to {self.levels - 1:,}")
        return X.astype(np.float64)

    def _encoded(self, X: Array) -> Array:
        Z = np.zeros((*X.shape[:2], len(self.names)))
        Z[:, :, [self.names.index(f"x{i + 1}") for i in range(self.coordinates)]] = X
        Z[:, :, self.names.index("one")] = 1.0
        return Z

    @staticmethod
    def best(X: Array) -> Array:
        """(count, n, k) → (count, k): coordinate after coordinate the largest among those not beaten yet."""
        still = np.ones(X.shape[:2], dtype=bool)
        out = np.empty((len(X), X.shape[2]))
        for i in range(X.shape[2]):
            out[:, i] = np.where(still, X[:, :, i], -1.0).max(axis=1)
            still &= X[:, :, i] == out[:, i : i + 1]
        return out

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        _no_noise(noise)
        shape = (count, KEYS_DRAWN, self.coordinates)
        X: Array = rng.integers(0, self.levels, shape).astype(np.float64)
        two = np.where(rng.random(shape) < 0.5, X[:, :1], X[:, 1:2])
        tied = (rng.random(count) < 0.5)[:, None, None] & (np.arange(self.coordinates) < self.coordinates - 1)
        X = np.where(tied, two, X)
        return self._encoded(X), np.repeat(self.best(X)[:, None], KEYS_DRAWN, axis=1)

    def read(self, outputs: Any) -> Any:
        return outputs

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.abs(outputs - values).reshape(len(values), -1))

    def wrong(self, outputs: Array, values: Array) -> Array | None:
        with np.errstate(invalid="ignore"):
            return np.asarray((np.rint(outputs[:, 0]) != values[:, 0]).any(axis=1))


@dataclass(frozen=True)
class AverageTask:
    """Means of z over the q positions that each token names; codes and queries are those of the construction."""

    tokens: int
    q: int
    dim: int
    keys: str
    heads: int
    width: int
    z_range: tuple[float, float]
    seed: int
    subsets: tuple[tuple[int, ...], ...]
    chosen_by = "sup"
    decided = ""

    @property
    def token_width(self) -> int:
        return (1 + self.heads) * self.width + 2 * self.dim

    @property
    def outputs(self) -> int:
        return self.dim

    @property
    def text(self) -> str:
        return f"means over {self.q} named positions of {self.tokens:,}"

    @property
    def domain(self) -> str:
        low, high = self.z_range
        return f"{self.tokens:,} tokens, z={low:g}:{high:g}, {len(self.subsets):,} sets"

    def to_json(self) -> dict[str, Any]:
        whole = {name: getattr(self, name) for name in ("tokens", "q", "dim", "keys", "heads", "width", "seed")}
        return {
            "kind": "sparse average",
            **whole,
            "z_range": list(self.z_range),
            "subsets": [list(s) for s in self.subsets],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AverageTask:
        numbers = {name: data[name] for name in ("tokens", "q", "dim", "heads", "width", "seed")}
        whole = all(type(n) is int and 0 <= n <= 1 << 20 for n in numbers.values())
        N, q, dim, H, m = (numbers[name] for name in ("tokens", "q", "dim", "heads", "width"))
        low, high = (float(end) for end in data["z_range"])
        fits = whole and 1 <= q < N <= 1 << 13 and dim >= 1 and H >= 1 and q % H == 0 and m >= 1
        fits = fits and data["keys"] in KEYS and (data["keys"] == "random" or m == 2 * (q // H))
        if not fits or not -1e100 < low < high < 1e100:
            raise InvalidRequest("it does not say which averages its network takes")
        sets = check_subsets(data["subsets"], N, q)
        return cls(N, q, dim, data["keys"], H, m, (low, high), numbers["seed"], sets)

    @cached_property
    def codes(self) -> Array:
        if self.keys == "curve":
            return curve_keys(self.tokens, self.q // self.heads)
        return random_sign_keys(self.tokens, self.width, self.seed)

    @cached_property
    def queries(self) -> Array:
        """(sets, heads, width): the query of every head's share of every set."""
        return set_queries(self.codes, self.keys, self.subsets, self.heads)

    def tokens_of(self, *inputs: Any) -> Array:
        z, named = self._given(*inputs)
        return encode_average(self.codes, set_queries(self.codes, self.keys, named, self.heads), z)

    def answer(self, outputs: Array, *inputs: Any) -> Array:
        return np.asarray(outputs, dtype=np.float64)

    def exact(self, *inputs: Any) -> Array:
        z, named = self._given(*inputs)
        return np.asarray(z[np.array(named)].mean(axis=1))

    def _given(self, *inputs: Any) -> tuple[Array, tuple[tuple[int, ...], ...]]:
        z, subsets = _inputs(inputs, "z", "subsets")
        return check_average_inputs(z, subsets, self.tokens, self.q, self.dim, self.z_range)

    def draw(self, rng: np.random.Generator, count: int, noise: float = 0.0) -> tuple[Array, Array]:
        _no_noise(noise)
        at = rng.integers(0, len(self.subsets), (count, self.tokens))
        z = rng.uniform(*self.z_range, (count, self.tokens, self.dim))
        members = np.array(self.subsets)[at]
        means = z[np.arange(count)[:, None, None], members].mean(axis=2)
        return encode_average(self.codes, self.queries[at], z), means

    def read(self, outputs: Any) -> Any:
        return outputs

    def errors(self, outputs: Array, values: Array) -> Array:
        return np.asarray(np.abs(outputs - values).reshape(len(values), -1))

    def wrong(self, outputs: Array, values: Array) -> Array | None:
        return None


TASKS: dict[str, Any] = {"matching": MatchingTask, "lexicographic": BestKeyTask, "sparse average": AverageTask}


def task_from_json(data: Any) -> HeadTask:
    """What `to_json` of a task wrote; InvalidRequest for anything else."""
    try:
        made: HeadTask = TASKS[data["kind"]].from_json(data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"it does not say what its network is for ({error})") from None
    return made


def _dtype(data: Mapping[str, Any]) -> str:
    if data["dtype"] not in ("float64", "float32"):
        raise InvalidRequest("its dtype is neither float64 nor float32")
    return str(data["dtype"])


def _inputs(inputs: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    if len(inputs) != len(names):
        raise InvalidRequest(f"{len(inputs)} inputs: {' and '.join(names)} are needed")
    return inputs


def _no_noise(noise: float) -> None:
    if noise:
        raise InvalidRequest("noise on the inputs is for functions and sequence maps; leave it out")
