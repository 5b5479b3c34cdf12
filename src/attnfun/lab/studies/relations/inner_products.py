"""Towers that are trained: MLPs whose inner product Σ_i φ_1i(x_1) … φ_ki(x_k) is fitted to a table of a relation.

One tower for all sides (`shared`) is the self inner product ⟨φ(x), φ(y)⟩; two are ⟨φ(x), ψ(y)⟩; three a trilinear form.
Adam on the mean square over the whole table, then LBFGS on the same loss: a bounded number of steps, so the same seed
gives the same weights. Points are scaled to [−1, 1] by the range of those that are given. Nothing is proved.

And what else the studies of relations share: points, towers trained on a relation, and sup errors.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attnfun as af
from attnfun.lab.studies.tables import Row

Tensor = Any  # of torch, which is loaded when a function is called
Array = NDArray[np.float64]
ACTIVATIONS = ("tanh", "relu")
_FORMS = {2: "ar,br->ab", 3: "ar,br,cr->abc"}
NODES = {1: 48, 2: 13}
"""Training points per variable, by the variables of a side; they lie denser at the ends, where errors are largest."""
FINE = {1: 301, 2: 31}
"""Points per variable at which sup errors are measured."""


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

        af.learn.descend(flat, loss, steps=steps, lr=1e-2)
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


def relation_of(text: str, d: int, side: tuple[float, float] = (0.0, 1.0), symmetric: bool = False) -> af.Relation:
    """The relation of x1 … xd and y1 … yd, each variable in `side`."""
    left, right = ({f"{v}{k + 1}": side for k in range(d)} for v in "xy")
    return af.Relation.read(text, left, right, symmetric=symmetric)


def built_row(target: af.Relation, found: Any) -> Row:
    """Rank, the largest error seen and the bound proved of constructed towers."""
    error = max(sup_error(target, found), found.certificate.error[0])
    return {"rank": found.rank, "error": error, "proved": found.certificate.error[1]}


def product_grid(box: af.Box, line: Callable[[float, float], Any]) -> Any:
    """(n, variables): the product of a line of points for every variable."""
    axes = [line(a, b) for a, b in zip(box.low, box.high, strict=True)]
    return np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)


def lobatto(box: af.Box, count: int) -> Any:
    """Chebyshev points with the ends, a product grid."""
    t = np.cos(np.pi * np.arange(count) / (count - 1))
    return product_grid(box, lambda a, b: np.clip((a + b) / 2 + (b - a) / 2 * t, a, b))


def fine_grid(box: af.Box) -> Any:
    return product_grid(box, lambda a, b: np.linspace(a, b, FINE[box.dim]))


def sup_error(relation: af.Relation, scores: Callable[[Any, Any], Any]) -> float:
    """The largest |scores − relation| over all pairs of two fine grids: a lower end of the true sup error."""
    X, Y = fine_grid(relation.left), fine_grid(relation.right)
    return float(np.abs(scores(X, Y) - relation.table(X, Y)).max())


def train_on(relation: af.Relation, rank: int, width: int, *, steps: int, seed: int, **options: Any) -> InnerProduct:
    """Towers of one hidden layer fitted to the relation on Chebyshev points; a quarter more steps are LBFGS."""
    X, Y = lobatto(relation.left, NODES[relation.left.dim]), lobatto(relation.right, NODES[relation.right.dim])
    table = relation.table(X, Y)
    return train_inner_product((X, Y), table, rank, width, steps=steps, polish=steps // 4, seed=seed, **options)
