"""A head over a table, trained: what it reads, what is wanted of it, what of its weights stays. No torch here.

    x ─ tower ─► φ(x) ─ head ─► Σ_j softmax_j(⟨φ(x), K_j⟩) V_j        wanted: Σ_j softmax_j(β u(x, y_j)) V_j

Free are the tower, the query map and the key vectors K_j. The values V_j are the table's and stay, so do the zeros that
stand for biases of the head and the read-out that hands the values out: the head goes on looking up.
A random start is that of `tower_task.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from attnfun.kinds.relation.form import Reading
from attnfun.kinds.relation.tower_task import random_weights
from attnfun.language.domain import Box
from attnfun.learn.weights import Units, layout, network_of, power_of_two, vector_of
from attnfun.network import Architecture, Network
from attnfun.network.head import Array

_PROBE = 4000


@dataclass(frozen=True, eq=False)
class LookupTask:
    """`given`: where queries lie; `box`: of what the network reads of them; `built`: the network whose table stays."""

    architecture: Architecture
    given: Box
    box: Box
    reads: Reading
    wanted: Callable[[Array], Array]
    about: dict[str, Any]
    built: Network

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Uniform queries and what is wanted of them."""
        X = self.given.sample(count, rng)
        return X, self.wanted(X)

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """The queries behind the rows of a history; never those of a batch. Fewer for large tables."""
        count = max(64, min(_PROBE, (1 << 23) // max(1, self.architecture.heads[-1].keys)))
        X = self.given.probe(count, np.random.default_rng([20, 4]))
        return X, self.wanted(X)

    @cached_property
    def units(self) -> Units:
        low, high = self.box.low_array, self.box.high_array
        half = power_of_two(np.where(high > low, (high - low) / 2, 1.0))
        size = float(np.abs(self.probe[1]).max(initial=0.0)) or 1.0
        return Units(low / 2 + high / 2, half, float(power_of_two(size)))

    @cached_property
    def kept(self) -> tuple[Array, Array]:
        """(values, free): the vector that entries which are not free have, and which are."""
        here = f"layer{len(self.architecture.layers) - 1}/head0"
        still = {f"{here}/values", f"{here}/axis0/biases", "readout", "readout_bias"}
        free = [np.full(shape, name not in still).reshape(-1) for name, shape in layout(self.architecture)]
        return vector_of(self.built, self.architecture, self.units), np.concatenate(free)

    def holding(self, vector: Array) -> Array:
        values, free = self.kept
        return np.where(free, vector, values)

    def random(self, seed: int) -> Network:
        """A random start; the same seed gives the same bits."""
        return self._network(random_weights(self.architecture, np.random.default_rng([seed, 0])))

    def taken(self, network: Network) -> Network:
        """Another network's weights around this table."""
        return self._network(vector_of(network, self.architecture, self.units))

    def _network(self, vector: Array) -> Network:
        return network_of(self.architecture, self.holding(vector), self.box, self.units)
