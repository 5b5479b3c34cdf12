"""The problem of a head over a table; importing this file imports torch.

    x ─ tower ─► φ(x) ─ head ─► Σ_j softmax_j(⟨φ(x), K_j⟩) V_j        wanted: Σ_j softmax_j(β u(x, y_j)) V_j

Free are the tower, the query map and the key vectors K_j. The values V_j are the table's and stay, so do the zeros that
stand for biases of the head and the read-out that hands the values out: the head goes on looking up.
A random start is that of `kinds/relation/lesson.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from attnfun.kinds.relation.form import Reading
from attnfun.kinds.relation.lesson import random_weights
from attnfun.kinds.retrieval.target import Lookup
from attnfun.kinds.retrieval.weights import TableHead
from attnfun.language.domain import Box
from attnfun.learn.lesson import Problem, digest
from attnfun.learn.probe import Row, effective_keys, key_norms, off
from attnfun.learn.torch_function import run
from attnfun.learn.weights import Units, holding, network_of, unlabelled, vector_of
from attnfun.network import Architecture, Network, evaluate
from attnfun.network.head import Array, Of
from attnfun.network.store import fingerprint

_PROBE, _FEW = 4000, 64


@dataclass(frozen=True, eq=False)
class LookupProblem(Problem):
    """The weights of the tower, the query map and the key vectors of a head.

    `built`: the head whose table stays; `origin`: where to start.
    """

    target: Lookup
    built: TableHead
    origin: Network

    @property
    def shape(self) -> Architecture:
        return self.built.architecture

    dtype = Of[str]("shape")  # type: ignore[assignment]

    @cached_property
    def reads(self) -> Reading:
        return self.built.reading(self.target.utility)

    @cached_property
    def box(self) -> Box:
        """Of what the network reads of queries."""
        own = self.built.network
        return Box(own.inputs, tuple(own.low.tolist()), tuple(own.high.tolist()))

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """The queries behind the rows of a history; never those of a batch. Fewer for large tables."""
        count = max(64, min(_PROBE, (1 << 23) // max(1, self.shape.heads[-1].keys)))
        X = self.target.utility.left.probe(count, np.random.default_rng([20, 4]))
        return X, self.target.exact(X)

    @cached_property
    def units(self) -> Units:
        return Units.on(self.box, float(np.abs(self.probe[1]).max(initial=0.0)))

    @cached_property
    def kept(self) -> tuple[Array, Array]:
        """(values, free): the vector that entries which are not free have, and which are."""
        here = f"layer{len(self.shape.layers) - 1}/head0"
        still = {f"{here}/values", f"{here}/axis0/biases", "readout", "readout_bias"}
        free = [np.full(shape, name not in still).reshape(-1) for name, shape in self.shape.layout()]
        return vector_of(self.built.network, self.shape, self.units), np.concatenate(free)

    def holding(self, vector: Any) -> Any:
        return holding(self.kept, vector)

    def random(self, seed: int) -> Network:
        """A random start; the same seed gives the same bits."""
        return self.network(random_weights(self.shape, np.random.default_rng([seed, 0])))

    def taken(self, network: Network) -> Network:
        """Another network's weights around this table."""
        return self.network(vector_of(network, self.shape, self.units))

    def identity(self) -> dict[str, Any]:
        values, free = self.kept
        return {
            "architecture": self.shape.to_json(),
            "target": {"kind": "lookup", "utility": self.target.to_json(), "beta": self.built.beta},
            "values": digest(self.probe[1]),
            "held": digest(np.where(free, 0.0, values)),
            "start": fingerprint(self.origin),
        }

    def start(self) -> Array:
        return self.holding(vector_of(self.origin, self.shape, self.units))

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        """Uniform queries and what is wanted of them."""
        X = self.target.utility.left.sample(count, rng)
        wanted = self.target.exact(X)
        t = (self.reads(X) - self.units.centre) / self.units.half
        good = np.isfinite(wanted).all(axis=1)
        return self.tensors(t[good], wanted[good] / self.units.scale)

    def outputs(self, theta: Tensor, inputs: Tensor) -> Tensor:
        return run(self.shape, self.holding(theta), inputs)

    def network(self, vector: Array | None) -> Network:
        if vector is None:
            return unlabelled(self.origin, self.box)
        return network_of(self.shape, self.holding(vector), self.box, self.units)

    def measure(self, network: Network, step: int, phase: str) -> Row:
        X, wanted = self.probe
        inputs = self.reads(X)
        with np.errstate(all="ignore"):
            error = off(evaluate(network, inputs), wanted)
            value = max(head.max_value for head in network.heads)
            keys = effective_keys(network, inputs[:_FEW])
            return Row.of(step, phase, error, key_norms(network), value, keys)
