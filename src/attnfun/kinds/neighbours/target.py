"""What is asked of a network that finds neighbours: which of N points on a sphere, or on which side of a plane.

Points become tokens by the names of coordinates:

| coordinate | holds |
| --- | --- |
| x1 … xd | the point; 0 for the query, where there are q's |
| q1 … qd | the query, which is the last point; 0 for the others |
| p1 … pN | 1 in the token of that position |
| index | +1 in the first token, −1 in the second |
| query | 1 in the query's token |
| one | 1 |
| others (scratch, …) | 0, for heads to write to |

So the query stands in coordinates of its own: a linear embedding, the form in which cross-attention is self-attention.
A head that must not see the query itself adds a column, −gap at the query's key: rank one more than in cross-attention.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.errors import InvalidRequest, require
from attnfun.kinds.neighbours.sphere import uniform_points
from attnfun.language.inputs import numbers
from attnfun.language.numbers import one_of, whole_number
from attnfun.language.target import Array, Target, settle
from attnfun.limits.separation.rank import MOST_DIM
from attnfun.network.claim import MEAN_SQUARE
from attnfun.network.tokens import sample_size

WHICH = ("furthest", "nearest")
MOST_POINTS = 4096


@dataclass(frozen=True)
class PointsOnSphere(Target):
    """Which of `points` points in dimension `dim`: the furthest or the nearest of the others, for `every` point as the
    query or for the last one. With a `bias`: the sign of ⟨z, y⟩ − bias for two points z, y.

    The error is E|wanted − output|² for independent uniform points.
    """

    kind: ClassVar[str] = "neighbours"
    norms: ClassVar[tuple[str, ...]] = (MEAN_SQUARE,)
    draws_what: ClassVar[str] = "sets of points"

    dim: int
    points: int
    which: str = "furthest"
    every: bool = False
    bias: float | None = None

    def __post_init__(self) -> None:
        one_of("which", self.which, WHICH)
        dim, points = whole_number("dim", self.dim, 3, MOST_DIM), whole_number("points", self.points, 2, MOST_POINTS)
        if type(self.every) is not bool or (self.every and self.bias is not None):
            raise InvalidRequest(f"every={self.every!r:.40}: whether every point is a query; of a half-space it is not")
        bias = 0.0 if self.bias is None else self.bias
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -1 < bias < 1:
            raise InvalidRequest(f"bias={bias!r:.40}: a half-space that cuts the sphere has -1 < bias < 1")
        require(self.bias is None or self.points == 2, f"points={self.points}: a half-space takes 2, with the query")
        settle(self, {"dim": dim, "points": points, "bias": None if self.bias is None else float(bias)})
        require(self.bias is not None or self.points >= 3, f"points={self.points}: below 3 there is nothing to choose")

    @property
    def text(self) -> str:
        if self.bias is not None:
            return f"the sign of ⟨z, y⟩ − {self.bias:g}"
        return f"the {self.which} of {self.points} points, for {'every' if self.every else 'the last'} point"

    @property
    def domain(self) -> str:
        return f"independent uniform points on the sphere in R^{self.dim}"

    @property
    def outputs(self) -> int:
        return self.dim if self.bias is None else 1

    @property
    def queries(self) -> int:
        return self.points if self.every else 1

    def tokens(self, coordinates: tuple[str, ...], points: Array) -> Array:
        """(batch, N, d) points -> (batch, N, width) tokens of these coordinates."""
        out = np.zeros((*points.shape[:2], len(coordinates)))
        place, dim = {name: at for at, name in enumerate(coordinates)}, self.dim
        out[:, :, :dim] = points
        if "q1" in place:
            out[:, -1, :dim] = 0.0
            out[:, -1, place["q1"] : place["q1"] + dim] = points[:, -1]
        for name, at in place.items():
            if name == "index":
                out[:, 0, at], out[:, 1, at] = 1.0, -1.0
            elif name == "query":
                out[:, -1, at] = 1.0
            elif name == "one":
                out[:, :, at] = 1.0
            elif name[0] == "p" and name[1:].isdigit():
                out[:, int(name[1:]) - 1, at] = 1.0
        return out

    def checked(self, points: ArrayLike) -> Array:
        """(batch, points, dim) unit vectors; InvalidRequest for anything else."""
        given = numbers(points, "points")
        if given.ndim != 3 or given.shape[1:] != (self.points, self.dim) or not len(given):
            raise InvalidRequest(f"points of shape {given.shape}: (batch, {self.points}, {self.dim}) is needed")
        if not np.all(np.abs(np.sum(given * given, axis=2) - 1) <= 1e-6):
            raise InvalidRequest("points must be unit vectors, to 1e-6: divide by their norms")
        return given

    def encode(self, weights: Any, points: ArrayLike) -> tuple[tuple[Array], None]:
        """(batch, points, dim) unit vectors; the last point is the query, unless every one is."""
        return (self.tokens(weights.coordinates, self.checked(points)),), None

    def decode(self, outputs: Any, how: None) -> Array:
        """(batch, points, dim) where every point is a query, else (batch, dim), and of a half-space (batch,) signs."""
        wide = np.asarray(outputs, dtype=np.float64)
        if self.every:
            return wide
        return wide[:, -1] if self.bias is None else wide[:, -1, 0]

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array]:
        return (uniform_points(rng, count, self.points, self.dim),)

    def chosen(self, points: Array) -> NDArray[np.int64]:
        """(batch, queries): which point is right, by number; of exact ties the first."""
        if self.every:
            gram = points @ np.swapaxes(points, 1, 2)
            at = np.arange(self.points)
            gram[:, at, at] = np.inf if self.which == "furthest" else -np.inf
        else:
            gram = points[:, -1:] @ np.swapaxes(points[:, :-1], 1, 2)
        return np.asarray(gram.argmin(axis=2) if self.which == "furthest" else gram.argmax(axis=2))

    def exact(self, points: Array) -> Array:
        """What the network should put out, in the shape of `decode`."""
        if self.bias is not None:
            return np.where(np.sum(points[:, 0] * points[:, 1], axis=1) > self.bias, 1.0, -1.0)
        found = np.take_along_axis(points, self.chosen(points)[:, :, None], axis=1)
        return found if self.every else found[:, 0]

    def errors(self, outputs: Any, wanted: Any) -> Array:
        """(batch, queries) lengths."""
        gap = (np.asarray(outputs, dtype=np.float64) - wanted).reshape(len(wanted), self.queries, self.outputs)
        length = np.linalg.norm(gap, axis=2)
        return np.where(np.isnan(length), np.inf, length)

    def sample_size(self, weights: Any) -> int:
        return sample_size(self.points, weights.cost.heads)

    def fits(self, weights: Any) -> str:
        names, d = weights.coordinates, self.dim
        good = names[:d] == tuple(f"x{j + 1}" for j in range(d)) and len(weights.outputs) == self.outputs
        if good and "q1" in names:
            at = names.index("q1")
            good = names[at : at + d] == tuple(f"q{j + 1}" for j in range(d))
        places = [int(name[1:]) for name in names if name[:1] == "p" and name[1:].isdigit() and len(name) < 9]
        good = good and all(names) and all(1 <= place <= self.points for place in places)
        return "" if good else "the file's network has other coordinates or outputs than tokens of these points"
