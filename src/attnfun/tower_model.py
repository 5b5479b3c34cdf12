"""TowerModel: two towers that were trained towards a relation; what `train` makes of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.errors import InvalidRequest
from attnfun.learn.towers import TowerTask
from attnfun.network import Cost, Network, evaluate, to_torch
from attnfun.targets.relation import Relation

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class TowerModel:
    """⟨φ(x), J ψ(y)⟩ with the networks φ = towers[0], ψ = towers[-1]; no proof is known for them."""

    task: TowerTask
    towers: tuple[Network, ...]
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Relation:
        return self.task.target

    @property
    def network(self) -> tuple[Network, ...]:
        return self.towers

    @property
    def rank(self) -> int:
        return len(self.task.signs)

    def left(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, left variables) → (n, rank)."""
        return np.asarray(evaluate(self.towers[0], self.task.left.reads(_points(X, self.target.left.dim))))

    def right(self, Y: ArrayLike) -> NDArray[np.float64]:
        """(n, right variables) → (n, rank), J included."""
        side = self.task.right or self.task.left
        points = _points(Y, self.target.right.dim)
        return np.asarray(evaluate(self.towers[-1], side.reads(points)) * self.task.signs)

    def __call__(self, X: ArrayLike, Y: ArrayLike) -> NDArray[np.float64]:
        """(m, left variables), (n, right variables) → (m, n) scores."""
        return np.asarray(self.left(X) @ self.right(Y).T)

    def pairs(self, X: ArrayLike, Y: ArrayLike) -> NDArray[np.float64]:
        """(n, left variables), (n, right variables) → (n,) scores."""
        return np.asarray(np.sum(self.left(X) * self.right(Y), axis=1))

    @property
    def cost(self) -> Cost:
        """Of both towers together; one that serves both sides counts once."""
        return cost_of(self.towers)

    def to_torch(self, dtype: Any = None) -> tuple[torch.nn.Module, ...]:
        """The towers as modules, (n, inputs) → (n, rank) each."""
        modules: list[Any] = [to_torch(tower, dtype) for tower in self.towers]
        for module in modules:
            module.rows = True
        return tuple(modules)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise InvalidRequest("trained towers have no file: keep the state of their torch modules")


def cost_of(towers: tuple[Network, ...]) -> Cost:
    costs = [tower.cost for tower in towers]
    return Cost(
        layers=max(c.layers for c in costs),
        heads=sum(c.heads for c in costs),
        rank=max(c.rank for c in costs),
        keys=sum(c.keys for c in costs),
        parameters=sum(c.parameters for c in costs),
        query_dim=max(c.query_dim for c in costs),
        max_value=max(c.max_value for c in costs),
        stored=sum(c.stored for c in costs),
    )


def _points(X: ArrayLike, dim: int) -> NDArray[np.float64]:
    points = np.asarray(X, dtype=np.float64)
    points = points[:, None] if points.ndim == 1 and dim == 1 else points
    if points.ndim != 2 or points.shape[1] != dim:
        raise InvalidRequest(f"points of shape {np.shape(X)}: (n, {dim}) is needed")
    return points
