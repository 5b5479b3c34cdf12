"""The problem of a head over a table; importing this file imports torch.

    x ─ tower ─► φ(x) ─ head ─► Σ_j softmax_j(⟨φ(x), K_j⟩) V_j        wanted: Σ_j softmax_j(β u(x, y_j)) V_j

Free are the tower, the query map and the key vectors K_j. The values V_j are the table's and stay, so do the zeros that
stand for biases of the head and the read-out that hands the values out: the head goes on looking up.
A random start is that of `kinds/relation/view.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from attnfun.kinds.relation.form import Reading
from attnfun.kinds.relation.view import random_weights
from attnfun.kinds.retrieval.target import Lookup
from attnfun.kinds.retrieval.weights import TableHead
from attnfun.language.domain import Box
from attnfun.learn.lesson import digest
from attnfun.learn.probe import Row, effective_keys, key_norms, off
from attnfun.learn.torch_function import NetworkProblem
from attnfun.learn.weights import Units, vector_of
from attnfun.network import Architecture, Network, evaluate
from attnfun.network.head import Array, Of
from attnfun.network.store import fingerprint

_PROBE, _FEW = 4000, 64


@dataclass(frozen=True, eq=False)
class LookupProblem(NetworkProblem):
    """The weights of the tower, the query map and the key vectors of a head.

    `built`: the head whose table stays; `origin`: where to start.
    """

    target: Lookup
    built: TableHead
    origin: Network

    architecture = Of[Architecture]("built")  # type: ignore[assignment]

    @cached_property
    def reads(self) -> Reading:
        return self.built.reading(self.target.utility)

    @cached_property
    def box(self) -> Box:  # type: ignore[override]
        """Of what the network reads of queries."""
        own = self.built.network
        return Box(own.inputs, tuple(own.low.tolist()), tuple(own.high.tolist()))

    @cached_property
    def probe(self) -> tuple[Array, Array]:
        """The queries behind the rows of a history; never those of a batch. Fewer for large tables."""
        count = max(64, min(_PROBE, (1 << 23) // max(1, self.architecture.heads[-1].keys)))
        X = self.target.utility.left.probe(count, np.random.default_rng([20, 4]))
        return X, self.target.exact(X)

    @cached_property
    def units(self) -> Units:  # type: ignore[override]
        return Units.on(self.box, float(np.abs(self.probe[1]).max(initial=0.0)))

    @cached_property
    def kept(self) -> tuple[Array, Array]:  # type: ignore[override]
        """(values, free): the vector that entries which are not free have, and which are."""
        here = f"layer{len(self.architecture.layers) - 1}/head0"
        still = {f"{here}/values", f"{here}/axis0/biases", "readout", "readout_bias"}
        free = [np.full(shape, name not in still).reshape(-1) for name, shape in self.architecture.layout()]
        return vector_of(self.built.network, self.architecture, self.units), np.concatenate(free)

    def random(self, seed: int) -> Network:
        """A random start; the same seed gives the same bits."""
        return self.network(random_weights(self.architecture, np.random.default_rng([seed, 0])))

    def taken(self, network: Network) -> Network:
        """Another network's weights around this table."""
        return self.network(self.vector(network))

    def identity(self) -> dict[str, Any]:
        values, free = self.kept
        return {
            "architecture": self.architecture.to_json(),
            "target": {"kind": "lookup", "utility": self.target.to_json(), "beta": self.built.beta},
            "values": digest(self.probe[1]),
            "held": digest(np.where(free, 0.0, values)),
            "start": fingerprint(self.origin),
        }

    def batch(self, rng: np.random.Generator, count: int, noise: float) -> tuple[Tensor, Tensor]:
        """Uniform queries and what is wanted of them."""
        X = self.target.utility.left.sample(count, rng)
        return self.in_units(self.reads(X), self.target.exact(X))

    def measure(self, network: Network, step: int, phase: str) -> Row:
        X, wanted = self.probe
        inputs = self.reads(X)
        with np.errstate(all="ignore"):
            error = off(evaluate(network, inputs), wanted)
            value = max(head.max_value for head in network.heads)
            keys = effective_keys(network, inputs[:_FEW])
            return Row.of(step, phase, error, key_norms(network), value, keys)
