"""Towers that are trained: MLPs whose inner product Σ_i φ_1i(x_1) … φ_ki(x_k) is fitted to a table of a relation.

One tower for all sides (`shared`) is the self inner product ⟨φ(x), φ(y)⟩; two are ⟨φ(x), ψ(y)⟩; three a trilinear form.
Adam on the mean square over the whole table, then LBFGS on the same loss: a bounded number of steps, so the same seed
gives the same weights. Points are scaled to [−1, 1] by the range of those that are given. Nothing is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """x → W_2 a(W_1 (x − centre)/half + b_1) + b_2, with `width` hidden units; weights as NumPy arrays."""

    centre: Array
    half: Array
    layers: tuple[tuple[Array, Array], ...]
    activation: str

    def __call__(self, X: Array) -> Array:
        """(n, variables) → (n, rank)."""
        (first, shift), (last, end) = self.layers
        hidden = (np.asarray(X, dtype=np.float64) - self.centre) / self.half @ first + shift
        return (np.tanh(hidden) if self.activation == "tanh" else np.maximum(hidden, 0.0)) @ last + end


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
    lr: float = 1e-2,
) -> InnerProduct:
    """Towers of `width` hidden units and `rank` outputs, fitted to table[i, j] = r(x_i, y_j)."""
    torch = af.learn.require_torch()
    if len(sides) not in _FORMS or activation not in ACTIVATIONS or table.shape != tuple(len(s) for s in sides):
        raise af.InvalidRequest("two or three sides, a table of their shape, and tanh or relu are needed")
    scale = float(np.abs(table).max()) or 1.0
    kept = sides[:1] if shared else sides
    centres = [(s.max(axis=0) + s.min(axis=0)) / 2 for s in kept]
    halves = [np.maximum((s.max(axis=0) - s.min(axis=0)) / 2, 1e-300) for s in kept]
    with af.learn.one_torch_thread():
        weights = [_start(s.shape[1], width, rank, activation, seed, k) for k, s in enumerate(kept)]
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


def _start(inputs: int, width: int, rank: int, activation: str, seed: int, side: int) -> list[tuple[Tensor, Tensor]]:
    """Random weights: the first layer bends all over the box, the last keeps the size of what it reads."""
    torch = af.learn.require_torch()
    exact = {"generator": af.learn.generator(seed, side), "dtype": torch.float64}
    first = torch.randn(inputs, width, **exact) * (2.0 if activation == "tanh" else 1.0)
    shift = (2 * torch.rand(width, **exact) - 1) * first.norm(dim=0)
    last = torch.randn(width, rank, **exact) / math.sqrt(width * rank)
    return [(first, shift), (last, torch.zeros(rank, dtype=torch.float64))]


def _run(tower: list[tuple[Tensor, Tensor]], x: Tensor, activation: str) -> Tensor:
    (first, shift), (last, end) = tower
    hidden = x @ first + shift
    return (hidden.tanh() if activation == "tanh" else hidden.relu()) @ last + end
