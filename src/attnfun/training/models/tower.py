"""TowerModel: towers that were trained towards a relation of two or three variables; what `train` makes of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnfun.certify import Certificate
from attnfun.certify.stored import kept, read_back
from attnfun.errors import DamagedFile, InvalidRequest
from attnfun.learn.towers import Reading, Side, TowerTask
from attnfun.network import Architecture, Cost, Network, to_torch
from attnfun.network.model_file import load_model, save_model
from attnfun.network.sealed import Source
from attnfun.targets import Box
from attnfun.targets.relation import Relation
from attnfun.targets.ternary import Ternary

if TYPE_CHECKING:
    import torch

KIND = "towers"


@dataclass(frozen=True, eq=False)
class TowerModel:
    """Σ_i s_i φ_i(x) ψ_i(y) (…) with the networks `towers`, one that serves both sides or one a variable.

    No proof is known for them.
    """

    task: TowerTask
    towers: tuple[Network, ...]
    certificate: Certificate
    request: Mapping[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> Relation | Ternary:
        return self.task.target

    @property
    def network(self) -> tuple[Network, ...]:
        return self.towers

    @property
    def architecture(self) -> tuple[Architecture, ...]:
        return tuple(tower.architecture for tower in self.towers)

    @property
    def rank(self) -> int:
        return len(self.task.signs)

    def features(self, k: int, X: ArrayLike) -> NDArray[np.float64]:
        """(n, variables of side k) → (n, rank): what the tower of that side says, without signs."""
        return self.task.features(self.towers, k, _points(X, self.task.target.boxes[k]))

    def left(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, left variables) → (n, rank)."""
        return self.features(0, X)

    def right(self, Y: ArrayLike) -> NDArray[np.float64]:
        """(n, right variables) → (n, rank), J included."""
        return np.asarray(self.features(1, Y) * self.task.signs)

    def __call__(self, *points: ArrayLike) -> NDArray[np.float64]:
        """Of a relation (m, left variables), (n, right variables) → (m, n) scores; of three variables as `pairs`."""
        self._count(points)
        return np.asarray(self.left(points[0]) @ self.right(points[1]).T) if len(points) == 2 else self.pairs(*points)

    def pairs(self, *points: ArrayLike) -> NDArray[np.float64]:
        """(n, variables) of every side → (n,) scores."""
        self._count(points)
        features = [self.features(k, one) for k, one in enumerate(points)]
        if len({len(one) for one in features}) != 1:
            raise InvalidRequest("the sides have unequal numbers of points")
        product = features[0]
        for one in features[1:]:
            product = product * one
        return np.asarray(np.sum(product * self.task.signs, axis=1))

    def _count(self, points: tuple[ArrayLike, ...]) -> None:
        if len(points) != len(self.task.target.boxes):
            raise InvalidRequest(f"points of {len(points)} sides: {len(self.task.target.boxes)} are needed")

    @property
    def cost(self) -> Cost:
        """Of all towers together; one that serves both sides counts once."""
        return cost_of(self.towers)

    def to_torch(self, dtype: Any = None) -> tuple[torch.nn.Module, ...]:
        """The towers as modules, (n, inputs) → (n, rank) each."""
        modules: list[Any] = [to_torch(tower, dtype) for tower in self.towers]
        for module in modules:
            module.rows = True
        return tuple(modules)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Towers, relation, request and certificate in one safetensors file."""
        sides = [{"shape": s.architecture.to_json(), "reads": s.reads.to_json()} for s in self.task.sides]
        target = {"kind": KIND, "of": self.target.to_json(), "sides": sides, "signs": self.task.signs.tolist()}
        meta = {"target": target, **kept(self.request, self.certificate)}
        save_model(path, self.towers, {}, meta)

    def explain(self) -> str:
        """In words: what it is and what was seen of it."""
        cost, c, units = self.cost, self.certificate, self.towers[0].is_mlp
        what = "units" if units else "keys"
        return (
            f"{self.target.text}  on  {self.target.domain_text}\n"
            f"Trained: {len(self.towers)} tower(s) of {'ReLU units' if units else 'attention'}, {self.rank} features, "
            f"{cost.layers} layer(s), {cost.keys:,} {what}, {cost.parameters:,} parameters, {self.towers[0].dtype}.\n"
            f"{c.heading}: {c.reason}."
        )


def load_tower_model(path: Source) -> TowerModel:
    """The towers of a file that `TowerModel.save` wrote; the certificate is the stored one."""
    (towers, tables), meta = load_model(path)
    try:
        held = meta["target"]
        if held["kind"] != KIND or tables:
            raise InvalidRequest("another kind of model")
        read = Ternary.from_json if held["of"].get("kind") == "ternary" else Relation.from_json
        target: Relation | Ternary = read(held["of"])
        signs = np.array(held["signs"], dtype=np.float64)
        if signs.ndim != 1 or not np.isin(signs, (-1.0, 1.0)).all():
            raise InvalidRequest("its signs are not ±1")
        sides = [
            _side(one, network, target.boxes[k])
            for k, (one, network) in enumerate(zip(held["sides"], towers, strict=True))
        ]
        task = TowerTask(target, tuple(sides), signs)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError, InvalidRequest) as error:
        raise DamagedFile(f"{os.fspath(path)} holds no trained towers ({error})") from None
    certificate, request, _ = read_back(meta, towers[0].dtype, target.text, target.domain_text)
    return TowerModel(task, towers, certificate, request)


def _side(data: Mapping[str, Any], network: Network, box: Box) -> Side:
    shape, reads = Architecture.from_json(data["shape"]), Reading.from_json(data["reads"])
    width = len(reads.names) if reads.inner is None else len(reads.inner.outputs)
    if not shape.holds(network.architecture) or reads.names != box.names or width != len(network.inputs):
        raise InvalidRequest("a tower that does not fit its side")
    low, high = (tuple(float(v) for v in end) for end in (network.low, network.high))
    return Side(shape, Box(network.inputs, low, high), reads)


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


def _points(X: ArrayLike, box: Box) -> NDArray[np.float64]:
    points = np.asarray(X, dtype=np.float64)
    points = points[:, None] if points.ndim == 1 and box.dim == 1 else points
    if points.ndim != 2 or points.shape[1] != box.dim:
        raise InvalidRequest(f"points of shape {np.shape(X)}: (n, {box.dim}) is needed")
    if not box.contains(points).all():
        raise InvalidRequest(f"a point lies outside the domain {box.text}")
    return points
