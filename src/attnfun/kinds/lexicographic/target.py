"""The best key of a grid, the first coordinate deciding first: the target behind `lexicographic`."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import InvalidRequest
from attnfun.language.inputs import plain
from attnfun.language.target import Array, Target
from attnfun.limits.grids import check_grid
from attnfun.network.tokens import sample_size

_DRAWN = 8  # keys
MOST_KEYS = {"float32": 2**22, "float64": 2**51}
"""By dtype: two bits fewer than its significand has."""


@dataclass(frozen=True)
class BestKey(Target):
    """The lexicographically best of keys in {0, …, levels − 1}^coordinates."""

    kind: ClassVar[str] = "lexicographic"
    draws_what: ClassVar[str] = f"sets of {_DRAWN} keys"
    keys_drawn: ClassVar[int] = _DRAWN
    decided: ClassVar[str] = "sets whose rounded answer is not their best key"

    levels: int
    coordinates: int = 2

    def __post_init__(self) -> None:
        check_grid(self.coordinates, self.levels)

    @property
    def text(self) -> str:
        return f"the lexicographically best key, {self.coordinates} coordinates of {self.levels:,} levels"

    @property
    def domain(self) -> str:
        return f"sets of keys of {{0, …, {self.levels - 1:,}}}^{self.coordinates}"

    @property
    def reads(self) -> tuple[str, ...]:
        """The coordinates of a token that say what its key is."""
        return (*(f"x{i + 1}" for i in range(self.coordinates)), "one")

    def fits(self, weights: Any) -> str:
        if not set(self.reads) <= set(weights.coordinates):
            return "the file's network reads other tokens than those of its target"
        return "" if len(weights.outputs) == self.coordinates else "the file's network has another number of outputs"

    def encode(self, weights: Any, keys: Any) -> tuple[tuple[Array], None]:
        """(n, k) whole numbers of the grid, or a batch of them → tokens that hold them and a 1."""
        X = self._given(keys)
        if X.shape[-2] > MOST_KEYS[weights.dtype]:
            raise InvalidRequest(f"{X.shape[-2]:,} keys; at most {MOST_KEYS[weights.dtype]:,} in {weights.dtype}")
        Z = np.zeros((*X.shape[:-1], len(weights.coordinates)))
        Z[..., [weights.coordinates.index(name) for name in self.reads[:-1]]] = X
        Z[..., weights.coordinates.index("one")] = 1.0
        return (Z,), None

    def decode(self, outputs: Any, _how: None) -> Array:
        """The first token's answer; every token holds it."""
        return np.asarray(outputs[..., 0, :], dtype=np.float64)

    def _given(self, keys: Any) -> Array:
        X = plain(keys)
        k = self.coordinates
        if X.ndim not in (2, 3) or X.shape[-1] != k or not X.shape[-2] or X.dtype.kind not in "iuf":
            raise InvalidRequest(f"keys of shape {X.shape}: (n, {k}) whole numbers are needed")
        if not ((X >= 0) & (self.levels - 1 >= X) & (np.floor(X) == X)).all():
            raise InvalidRequest(f"keys must be whole numbers from 0 to {self.levels - 1:,}")
        return X.astype(np.float64)

    def sample_size(self, weights: Any) -> int:
        return sample_size(_DRAWN + weights.cost.keys, weights.cost.heads)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array]:
        """8 keys each, in half of the draws with ties but in the last coordinate."""
        shape = (count, _DRAWN, self.coordinates)
        X: Array = rng.integers(0, self.levels, shape).astype(np.float64)
        two = np.where(rng.random(shape) < 0.5, X[:, :1], X[:, 1:2])
        tied = (rng.random(count) < 0.5)[:, None, None] & (np.arange(self.coordinates) < self.coordinates - 1)
        return (np.where(tied, two, X),)

    def exact(self, keys: Any) -> Array:
        """Coordinate after coordinate the largest among those not beaten yet."""
        X = self._given(keys)
        still, out = np.ones(X.shape[:-1], dtype=bool), np.empty((*X.shape[:-2], X.shape[-1]))
        for i in range(X.shape[-1]):
            out[..., i] = np.where(still, X[..., i], -1.0).max(axis=-1)
            still &= X[..., i] == out[..., i, None]
        return out

    def wrong(self, outputs: Any, wanted: Any) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            return np.asarray((np.rint(outputs) != wanted).any(axis=-1))
