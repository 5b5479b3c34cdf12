"""Trilinear forms Σ_i a_i(x) b_i(y) c_i(z): their evaluation, and their file (`sealed.py`'s container).

| JSON key | what |
| --- | --- |
| format | "ternary 2" |
| target | the relation and its box (hashed) |
| claim | what was asked of it (`claim.py`; hashed) |
| request, certificate, rank_lower | may be deleted without harm to the rest |

Tensors, float64: side0, side1, side2, the Chebyshev coefficients (N, rank) of the a_i, b_i, c_i on the box.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile
from attnfun.network import sealed
from attnfun.network.features import contracted
from attnfun.network.head import AnyArray, Array, frozen

FORMAT = "ternary 2"
Sides = tuple[Array, Array, Array]


@dataclass(frozen=True)
class FormShape:
    """A trilinear form without its coefficients: the variables, how many coefficients each has, how many terms."""

    inputs: tuple[str, ...]
    sizes: tuple[int, int, int]
    rank: int

    @property
    def free_weights(self) -> int:
        return sum(self.sizes) * self.rank

    def to_json(self) -> dict[str, Any]:
        return {"inputs": list(self.inputs), "sizes": list(self.sizes), "rank": self.rank}


def evaluate_trilinear(sides: Sides, low: Array, high: Array, points: Array) -> Array:
    """(n, 3) → (n,), in float64.

    Operations, for the rounding bound: t = ((x − low) − (high − x))/(high − low), cut to [-1, 1]; T_j by its
    recurrence; one sum a side; two products a term; one sum.
    """
    out = np.ones((len(points), sides[0].shape[1]))
    for k, P in enumerate(sides):
        x, a, b = points[:, k], low[k], high[k]
        out = out * contracted(P, [np.clip(((x - a) - (b - x)) / (b - a), -1.0, 1.0)])
    return np.asarray(out.sum(axis=1))


def save_trilinear(
    path: str | os.PathLike[str], target: Mapping[str, Any], sides: Sides, meta: Mapping[str, Any]
) -> None:
    structure, tensors = _parts(sides)
    sealed.write(path, structure, tensors, {**meta, "target": dict(target)})


def load_trilinear(path: sealed.Source) -> tuple[dict[str, Any], Sides, dict[str, Any]]:
    """(target, sides, the rest of the record); raises DamagedFile for what `save_trilinear` did not write."""
    sides, meta = sealed.load(path, (FORMAT,), ("format", "dtype"), (), _built, _parts)
    target = meta.pop("target", None)
    if not isinstance(target, dict):
        sealed.damaged(Path(path), "it has no relation")
    return target, sides, meta


def _parts(sides: Sides) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    arrays: dict[str, AnyArray] = {f"side{k}": np.ascontiguousarray(side, dtype="<f8") for k, side in enumerate(sides)}
    return {"format": FORMAT, "dtype": "float64"}, arrays


def _built(_own: Mapping[str, Any], tensors: dict[str, AnyArray]) -> Sides:
    a, b, c = (tensors.pop(f"side{k}") for k in range(3))
    if tensors:
        raise DamagedFile(f"tensor {next(iter(tensors))} belongs to nothing")
    for side in (a, b, c):
        if side.dtype != np.float64 or side.ndim != 2 or not side.size or not np.isfinite(side).all():
            raise DamagedFile("a side of its form is not finite float64 in two dimensions")
    if not a.shape[1] == b.shape[1] == c.shape[1]:
        raise DamagedFile("its sides have unequal numbers of terms")
    return frozen(a), frozen(b), frozen(c)
