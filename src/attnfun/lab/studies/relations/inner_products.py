"""Towers that are trained: MLPs whose inner product Σ_i φ_1i(x_1) … φ_ki(x_k) is fitted to a table of a relation.

One tower for all sides (`shared`) is the self inner product ⟨φ(x), φ(y)⟩; two are ⟨φ(x), ψ(y)⟩; three a trilinear form.
Adam on the mean square over the whole table, then LBFGS on the same loss: a bounded number of steps, so the same seed
gives the same weights. Points are scaled to [−1, 1] by the range of those that are given. Nothing is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import attnfun as af

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
ACTIVATIONS = ("tanh", "relu")
_FORMS = {2: "ar,br->ab", 3: "ar,br,cr->abc"}


@dataclass(frozen=True, eq=False)
class MLP:
    """x → W_2 a(W_1 (x − centre)/half + b_1) + b_2, with `width` hidden units a layer; weights as NumPy arrays."""

    centre: Array
    half: Array
    layers: tuple[tuple[Array, Array], ...]
    activation: str

    def __call__(self, X: Array) -> Array:
        """(n, variables) → (n, rank)."""
        values = (np.asarray(X, dtype=np.float64) - self.centre) / self.half
        for k, (weight, bias) in enumerate(self.layers):
            values = values @ weight + bias
            if k + 1 < len(self.layers):
                values = np.tanh(values) if self.activation == "tanh" else np.maximum(values, 0.0)
        return values

    @property
    def neurons(self) -> int:
        return sum(len(bias) for _, bias in self.layers[:-1])


@dataclass(frozen=True, eq=False)
class InnerProduct:
    """The trained towers, one a side (the same one twice if shared), and the last loss of the descent."""

    towers: tuple[MLP, ...]
    loss: float

    def __call__(self, *sides: Array) -> Array:
        """Points of every side → the table of their scores."""
        return np.asarray(np.einsum(_FORMS[len(sides)], *(t(X) for t, X in zip(self.towers, sides, strict=True))))

    def pairs(self, *sides: Array) -> Array:
        """Equally many points of every side → their scores, one by one."""
        features = [t(X) for t, X in zip(self.towers, sides, strict=True)]
        return np.asarray(math.prod(features[1:], start=features[0]).sum(axis=1))


def train_inner_product(
    sides: Sequence[Array],
    table: Array,
    rank: int,
    width: int,
    *,
    steps: int,
    polish: int = 0,
    seed: int = 0,
    shared: bool = False,
    activation: str = "tanh",
    depth: int = 1,
    lr: float = 1e-2,
) -> InnerProduct:
    """Towers of `depth` hidden layers of `width` units and `rank` outputs, fitted to table[i, j] = r(x_i, y_j)."""
    torch = af.learn.require_torch()
    if len(sides) not in _FORMS or activation not in ACTIVATIONS or table.shape != tuple(len(s) for s in sides):
        raise af.InvalidRequest("two or three sides, a table of their shape, and tanh or relu are needed")
    scale = float(np.abs(table).max()) or 1.0
    kept = sides[:1] if shared else sides
    centres = [(s.max(axis=0) + s.min(axis=0)) / 2 for s in kept]
    halves = [np.maximum((s.max(axis=0) - s.min(axis=0)) / 2, 1e-300) for s in kept]
    with af.learn.one_torch_thread():
        weights = [_start(s.shape[1], width, rank, depth, activation, seed, k) for k, s in enumerate(kept)]
        flat = [part.requires_grad_() for tower in weights for layer in tower for part in layer]
        inputs = [torch.from_numpy((s - c) / h) for s, c, h in zip(kept, centres, halves, strict=True)]
        wanted = torch.from_numpy(np.ascontiguousarray(table / scale))

        def loss(_step: int) -> Tensor:
            features = [_run(tower, x, activation) for tower, x in zip(weights, inputs, strict=True)]
            features = features * len(sides) if shared else features
            return (torch.einsum(_FORMS[len(sides)], *features) - wanted).square().mean()

        af.learn.descend(flat, loss, steps=steps, lr=lr)
        if polish:
            af.learn.polished(flat, lambda: loss(0), polish)
        with torch.no_grad():
            last = float(loss(steps))
    root = scale ** (1 / len(sides))
    made = []
    for tower, c, h in zip(weights, centres, halves, strict=True):
        arrays = [(w.detach().numpy().copy(), b.detach().numpy().copy()) for w, b in tower]
        arrays[-1] = (arrays[-1][0] * root, arrays[-1][1] * root)
        made.append(MLP(c, h, tuple(arrays), activation))
    return InnerProduct(tuple(made) * (len(sides) if shared else 1), last * scale**2)


def _start(
    inputs: int, width: int, rank: int, depth: int, activation: str, seed: int, side: int
) -> list[tuple[Tensor, Tensor]]:
    """Random weights: the first layer bends all over the box, the others keep the size of what they read."""
    torch = af.learn.require_torch()
    draw = af.learn.generator(seed, side)
    sizes = [inputs, *[width] * depth, rank]
    out = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        normal = torch.randn(n, m, generator=draw, dtype=torch.float64)
        uniform = 2 * torch.rand(m, generator=draw, dtype=torch.float64) - 1
        if k == 0:
            normal = normal * (2.0 if activation == "tanh" else 1.0)
            out.append((normal, uniform * normal.norm(dim=0)))
        else:
            last = k == len(sizes) - 2
            out.append((normal / math.sqrt(n * (rank if last else 1)), uniform * 0.0))
    return out


def _run(tower: list[tuple[Tensor, Tensor]], x: Tensor, activation: str) -> Tensor:
    for k, (weight, bias) in enumerate(tower):
        x = x @ weight + bias
        if k + 1 < len(tower):
            x = x.tanh() if activation == "tanh" else x.relu()
    return x
