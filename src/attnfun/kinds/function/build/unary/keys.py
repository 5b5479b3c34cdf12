"""Keys as tangent lines of a convex potential φ, and the pieces they make.

| symbol | meaning |
| --- | --- |
| q | the query w u + c of a piece; w = ±1 and −c/w its origin, so that singular points lie at q = 0 |
| t_j | where key j touches φ: logit_j = φ(t_j) + φ'(t_j)(q − t_j) = k_j q + b_j |
| h_j | t_{j+1} − t_j, the local bandwidth |

Softmax weights e^{k_j q + b_j} are largest near t_j and fall like a Gaussian of width (φ'')^{−1/2}: a good potential
has φ'' = 2 c0/h², h the length over which the target changes. In discrete form, from the touching points alone,

    k_{j+1} − k_j = 2 c0/h_j,      b_{j+1} − b_j = −(k_{j+1} − k_j)(t_j + t_{j+1})/2.

Equispaced t_j give the Gaussian head (φ = c0 t²/h²), geometric ones the ladder (φ = −α ln t, for logs, powers and roots
at q = 0). Sums are accumulated from the last key, the flat end: from the steep end, sums of size 1e19 would wipe out
the slopes of size 1.

Fit: what was fitted to a step, before it stands in a network.

    g(u) ≈ slope·u + offset + Σ_i piece_i(u),     piece(u) = Σ_j softmax_j(slopes_j q + biases_j) values_j,  q = w u + c

A piece is a head that reads the arguments of g themselves, or a block of ReLU units, relu in place of softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from attnfun.network import Axis, Head, ReluBlock, rounded
from attnfun.network.head import Array as Array

_FEW = 32


@dataclass(frozen=True)
class Keys:
    """The keys of one head of u: logits slopes·q + biases, q = w u + c. `fixed` of them (the first) are not tuned."""

    w: float
    c: float
    slopes: Array
    biases: Array
    fixed: int = 0

    @property
    def size(self) -> int:
        return len(self.slopes)

    def query(self, u: Array) -> Array:
        return self.w * u + self.c

    def weights(self, u: Array) -> Array:
        """(len(u), size) softmax weights."""
        logits: Array = self.query(u)[:, None] * self.slopes
        logits += self.biases
        if 0 < self.size <= _FEW:  # the same maxima, many times faster than along rows of a few numbers
            logits -= np.ascontiguousarray(logits.T).max(axis=0)[:, None]
        else:
            logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        return logits

    def levelled(self, u: Array) -> Keys:
        """The same head with small logits at u: a common affine function of q is taken off all of them.

        Softmax does not see it; rounding does, which is about the size of slope·q and of the logit.
        """
        if self.fixed:  # a steep constant side: the others are level where they count
            return self
        u = u[:: max(1, len(u) // 200)]
        q, weight = self.query(u)[:, None], self.weights(u)
        best, least = self, np.inf
        for slope in np.quantile(self.slopes, np.linspace(0, 1, 9)):
            k = self.slopes - slope
            logits = q * k + self.biases
            top = logits.max(axis=1)
            level = (top.max() + top.min()) / 2
            size = float((weight * (np.abs(q * k) + np.abs(logits - level))).sum(axis=1).max())
            if size < least:
                best, least = replace(self, slopes=k, biases=self.biases - level), size
        return best

    def stored(self, dtype: str) -> Keys:
        """The same with every number representable in dtype."""
        w, c = (float(rounded(np.array(v), dtype)) for v in (self.w, self.c))
        return replace(self, w=w, c=c, slopes=rounded(self.slopes, dtype), biases=rounded(self.biases, dtype))


def tangents(t: Array, sharpness: float) -> tuple[Array, Array]:
    """Slopes and biases of the tangent lines at the increasing points t, flat at the last one; sharpness is c0."""
    step = 2 * sharpness / np.diff(t)
    slopes = np.concatenate([-np.cumsum(step[::-1])[::-1], [0.0]])
    biases = np.concatenate([np.cumsum((step * (t[:-1] + t[1:]) / 2)[::-1])[::-1], [0.0]])
    return slopes, biases


@lru_cache(maxsize=4096)  # a search for a size asks for the same one at many resolutions
def gaussian(low: float, high: float, n: int, reach: float, sharpness: float, dtype: str) -> Keys:
    """n keys at equispaced points of the interval blown up by `reach` about a short number near its middle."""
    middle, half = centre(low, high, dtype), (high - low) / 2
    t = np.linspace(-reach * half, reach * half, n)
    slopes, biases = tangents(t, sharpness)
    return Keys(1.0, -middle, slopes - slopes.mean(), biases)


def placed(low: float, high: float, nodes: Array, sharpness: float, dtype: str) -> Keys:
    """Keys at given points of the line, measured from a short number near the middle of [low, high]."""
    middle = centre(low, high, dtype)
    slopes, biases = tangents(nodes - middle, sharpness)
    near = int(np.argmin(np.abs(nodes - middle)))  # flat in the middle, where q is small
    return Keys(1.0, -middle, slopes - slopes[near], biases - biases[near])


@lru_cache(maxsize=4096)
def ladder(origin: float, side: int, inner: float, outer: float, n: int, growth: float, sharpness: float) -> Keys:
    """n keys at distances inner … outer from `origin` on one side; constant on the far side.

    The steps of ln(distance) grow by the factor 1 + growth·y with the depth y below the outer end.
    """
    depth = np.log(outer / inner)
    s = np.linspace(0.0, 1.0, n)
    y = depth * s if growth * depth < 1e-9 else np.expm1(s * np.log1p(growth * depth)) / growth
    t = outer * np.exp(-y[::-1])
    slopes, biases = tangents(t, sharpness)
    return Keys(float(side), -side * origin, slopes, biases)


@lru_cache(maxsize=4096)
def geometric(low: float, high: float, rate: float, n: int, delta: float, dtype: str) -> Keys:
    """Slopes 0, rate, 2 rate, …, all lines through one point past the end where e^{rate u} is largest.

    Weights are powers of z = δ e^{rate (u − end)}, so that values (0, 1/δ, 1/δ, …) e^{rate·end} give e^{rate u} with
    relative error z^{n−1} on an interval of any width.
    """
    middle, end = centre(low, high, dtype), high if rate > 0 else low
    j = np.arange(float(n))
    return Keys(1.0, -middle, rate * j, j * (np.log(delta) - rate * (end - middle)))


@lru_cache(maxsize=4096)  # a layout of many kinks is looked at in many resolutions, most of whose pieces are equal
def one_sided(origin: float, side: int, far: float, n: int, reach: float, sharpness: float, steepness: float) -> Keys:
    """n + 1 keys: constant beyond a kink at `origin`, n keys at O(1) slopes on (0, far) on its `side`.

    The constant key has slope −steepness and carries all of it; at q = 0 it weighs as much as the others together, so a
    jump J of the slope costs 0.28 J/steepness.
    """
    half = far / 2
    t = half + np.linspace(-reach * half, reach * half, n) if n > 1 else np.array([half])
    slopes, biases = tangents(t, sharpness)
    slopes = slopes - slopes.mean()
    return tie(Keys(float(side), -side * origin, np.r_[-steepness, slopes], np.r_[0.0, biases], 1))


def tie(keys: Keys) -> Keys:
    """The constant key of a one-sided piece given the weight of all others at q = 0."""
    top = keys.biases[1:].max()
    return replace(keys, biases=np.r_[top + np.log(np.exp(keys.biases[1:] - top).sum()), keys.biases[1:]])


def centre(low: float, high: float, dtype: str) -> float:
    """A number with few bits near the middle of [low, high], so that u − centre is rounded little."""
    middle, width = low + (high - low) / 2, high - low
    step = 2.0 ** np.floor(np.log2(width / 16))
    return float(rounded(np.round(middle / step) * step, dtype))


@dataclass(frozen=True, eq=False)
class Fit:
    """Pieces and the affine part that the stream carries; every entry representable in the dtype.

    `error` is the largest seen on dense, graded points, no bound.
    """

    pieces: tuple[Head | ReluBlock, ...]
    slope: float = 0.0
    offset: float = 0.0
    error: float = 0.0

    @property
    def keys(self) -> int:
        """Keys of heads, units of a block."""
        return sum(piece.keys for piece in self.pieces)

    @property
    def count(self) -> int:
        return len(self.pieces)

    @property
    def max_value(self) -> float:
        return max((piece.max_value for piece in self.pieces), default=0.0)

    def written(
        self, name: str, rows: Array, constants: Sequence[float], dtype: str, key_names: str = ""
    ) -> list[Head | ReluBlock]:
        """The pieces that write the coordinate `name`, the arguments of g being rows·stream + constants."""
        made: list[Head | ReluBlock] = []
        for number, piece in enumerate(self.pieces):
            axes = []
            for k, (axis, row, constant) in enumerate(zip(piece.axes, rows, constants, strict=True)):
                w, c = float(axis.query[0, k]), float(axis.offset[0])
                query, offset = rounded(w * row[None], dtype), rounded([w * constant + c], dtype)
                axes.append(replace(axis, query=query, offset=offset))
            title = name if self.count == 1 else f"{name}, piece {number + 1}"
            if isinstance(piece, Head):
                keys = key_names or piece.key_names
                made.append(replace(piece, name=title, axes=tuple(axes), writes=(name,), key_names=keys))
            else:
                made.append(replace(piece, name=title, axis=axes[0], writes=(name,)))
        return made

    def __call__(self, u: Array) -> Array:
        """The fit of a function of one variable."""
        total = self.slope * u + self.offset
        for piece in self.pieces:
            (axis,), values = piece.axes, piece.values[:, 0]
            logits = np.outer(axis.query[0, 0] * u + axis.offset[0], axis.slopes[:, 0]) + axis.biases
            if isinstance(piece, ReluBlock):
                total = total + np.maximum(logits, 0.0) @ values
            else:
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                total = total + (p @ values) / p.sum(axis=1)
        return np.asarray(total)


def head_of(keys: Keys, values: Array, dtype: str) -> Head:
    """The head of these keys as it is stored, with (keys,) values, or (keys, functions)."""
    k, heights = keys.stored(dtype), rounded(values, dtype).reshape(keys.size, -1)
    writes = tuple(f"g{i + 1}" for i in range(heights.shape[1]))
    return Head("", (axis_of(k),), heights, writes)


def axis_of(keys: Keys) -> Axis:
    """The keys along the one argument of g."""
    return Axis(np.array([[keys.w]]), np.array([keys.c]), keys.slopes[:, None], keys.biases)
