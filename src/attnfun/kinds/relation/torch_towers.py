"""The problem of training the towers of a relation; importing this file imports torch."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attnfun.errors import InvalidRequest
from attnfun.kinds.relation.form import TrainedTowers
from attnfun.kinds.relation.target import probe_tuples
from attnfun.kinds.relation.view import Side, random_weights
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, key_norms, off
from attnfun.learn.torch_function import run
from attnfun.learn.weights import Units, network_of, power_of_two, unlabelled, vector_of
from attnfun.network import Network
from attnfun.network.head import Array
from attnfun.network.store import fingerprint

_PROBE = 4000


class SidesProblem(Problem):
    """Towards a relation of two or three sides: what all of them have in common."""

    stream: ClassVar[int]
    target: Any

    @cached_property
    def probe(self) -> tuple[tuple[Array, ...], Array]:
        """The points behind the rows of a history, and what is wanted there; never those of a batch."""
        points = probe_tuples(self.target.boxes, _PROBE, np.random.default_rng([20, self.stream]))
        return points, self.target.values(*points)

    @cached_property
    def scale(self) -> float:
        """Of every side, so that their product has that of the target."""
        values = np.abs(self.probe[1])
        size = float(values[np.isfinite(values)].max(initial=0.0)) or 1.0
        return float(power_of_two(size ** (1 / len(self.target.boxes))))

    def drawn(self, rng: np.random.Generator, count: int) -> tuple[list[Array], Array]:
        """Points of every side at which the target is finite, and its values in the units of the weights."""
        points = [box.sample(count, rng) for box in self.target.boxes]
        values = self.target.values(*points)
        good = np.isfinite(values)
        return [one[good] for one in points], values[good] / self.scale ** len(points)


@dataclass(frozen=True, eq=False)
class TowerProblem(SidesProblem):
    """Towers with Σ_i s_i φ_i(x) ψ_i(y) … near `target`, one a side or one that serves all; their weights, one vector.

    `signs` are the s_i: the diagonal of J of a symmetric relation, else ones.
    """

    stream: ClassVar[int] = 3

    target: Any
    sides: tuple[Side, ...]
    signs: Array
    origin: tuple[Network, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sides) not in (1, len(self.target.boxes)):
            raise InvalidRequest(f"{len(self.sides)} towers for {len(self.target.boxes)} variables")
        if len(self.sides) == 1 and len({(box.low, box.high) for box in self.target.boxes}) != 1:
            raise InvalidRequest("one tower serves sides of equal boxes only")
        for side in self.sides:
            if len(side.architecture.outputs) != len(self.signs):
                raise InvalidRequest(f"towers of {len(side.architecture.outputs)} and {len(self.signs)} features")

    @property
    def dtype(self) -> str:
        return self.sides[0].architecture.dtype

    @cached_property
    def units(self) -> tuple[Units, ...]:
        """Of every tower."""
        return tuple(Units.on(side.box, self.scale) for side in self.sides)

    @property
    def places(self) -> tuple[int, ...]:
        """For every side the number of its tower."""
        return tuple(range(len(self.sides))) if len(self.sides) > 1 else (0,) * len(self.target.boxes)

    def random(self, seed: int) -> tuple[Network, ...]:
        """Towers to start from; the same seed gives the same bits."""
        shapes = [side.architecture for side in self.sides]
        rngs = (np.random.default_rng([seed, 0, k]) for k in range(len(shapes)))
        return self._networks([random_weights(shape, rng) for shape, rng in zip(shapes, rngs, strict=True)])

    def weights(self, towers: tuple[Network, ...]) -> TrainedTowers:
        """The weights of a model with these towers."""
        shapes, reads = tuple(s.architecture for s in self.sides), tuple(s.reads for s in self.sides)
        return TrainedTowers(towers, shapes, reads, self.signs)

    def identity(self) -> dict[str, Any]:
        return {
            "towers": [side.architecture.to_json() for side in self.sides],
            "signs": self.signs.tolist(),
            "target": self.target.to_json(),
            "values": digest(self.probe[1]),
            "start": [fingerprint(network) for network in self.origin],
        }

    def start(self) -> Array:
        parts = zip(self.origin, self.sides, self.units, strict=True)
        return np.concatenate([vector_of(network, side.architecture, units) for network, side, units in parts])

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        points, wanted = self.drawn(rng, count)
        t = [
            (self.sides[k].reads(one) - self.units[k].centre) / self.units[k].half
            for one, k in zip(points, self.places, strict=True)
        ]
        return self.tensors(np.concatenate(t, axis=1), wanted)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        parts, start, product = self._split(theta), 0, None
        for k in self.places:
            shape = self.sides[k].architecture
            end = start + len(shape.inputs)
            own = run(shape, parts[k], inputs[:, start:end])
            product, start = own if product is None else product * own, end
        assert product is not None
        return torch.sum(product * torch.tensor(self.signs, dtype=theta.dtype), dim=1)

    def _split(self, theta: Any) -> list[Any]:
        ends = np.cumsum([0, *(side.architecture.free_weights for side in self.sides)]).tolist()
        return [theta[a:b] for a, b in pairwise(ends)]

    def network(self, vector: Array | None) -> tuple[Network, ...]:
        if vector is None:
            return tuple(unlabelled(n, side.box) for n, side in zip(self.origin, self.sides, strict=True))
        return self._networks(self._split(vector))

    def _networks(self, parts: list[Array]) -> tuple[Network, ...]:
        every = zip(parts, self.sides, self.units, strict=True)
        return tuple(network_of(side.architecture, part, side.box, units) for part, side, units in every)

    def measure(self, network: tuple[Network, ...], step: int, phase: str) -> Row:
        points, wanted = self.probe
        with np.errstate(all="ignore"):
            weights = self.weights(network)
            first, second, *third = (weights.reading(None, k)(one) for k, one in enumerate(points))
            outputs = weights.run(first, second, third[0] if third else True)
            norms = [pair for one in network if (pair := key_norms(one))[0] is not None]
            mean = float(np.mean([m for m, _ in norms if m is not None])) if norms else None
            top = max((t for _, t in norms if t is not None), default=None)
            value = max((head.max_value for one in network for head in one.heads), default=0.0)
            return Row.of(step, phase, off(outputs, wanted), (mean, top), value)
