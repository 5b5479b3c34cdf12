"""What a history keeps of a network: its error on fixed points, the norms of its keys, how many keys share a point.

| column | what |
| --- | --- |
| loss, sup | mean squared error and largest error on the probe points, of the network as NumPy evaluates it |
| key_norm_mean, key_norm_max | over all keys j of all heads: the Euclidean norm of W_Qᵀ k_j, its logit's gradient |
| value_max | the largest value of any head |
| effective_keys | exp(entropy of the attention weights), averaged over points and heads; None for an MLP |

A key norm is an inverse temperature: it is in units of the head's own stream and does not change when a query map is
scaled and its keys are scaled back.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.network import Head, Network, attention, evaluate, stream
from attnfun.network.head import AnyArray, Array

_POINTS, _GRID, _FEW = 2000, 2001, 64
_MANY = 1 << 16  # keys of a head that are still looked at one by one


@dataclass(frozen=True)
class Row:
    """The network after `step` steps; `phase` is "gradient" or "polish"."""

    step: int
    phase: str
    loss: float
    sup: float
    key_norm_mean: float | None
    key_norm_max: float | None
    value_max: float
    effective_keys: float | None

    @classmethod
    def of(cls, step: int, phase: str, error: Array, norms: Any, value: float, keys: float | None = None) -> Row:
        """From the errors on the probe and the mean and largest key norm."""
        mean, top = norms
        return cls(step, phase, float(np.mean(error**2)), float(error.max()), mean, top, value, keys)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(v) for v in asdict(self).values() if isinstance(v, float))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def probe_points(box: Box) -> Array:
    """The points behind `loss` and `sup`: the same for every run on a box, and never those of a training batch."""
    X = box.probe(_POINTS, np.random.default_rng([20, box.dim]))
    return X if box.dim > 1 else np.concatenate([X, np.linspace(box.low[0], box.high[0], _GRID)[:, None]])


def errors(network: Network, function: Function, X: Array) -> Array:
    """(n, outputs) |network − target|, infinite where the network is not finite, 0 where the target is not."""
    with np.errstate(all="ignore"):
        return off(evaluate(network, X), function.values(X))


def off(found: AnyArray, wanted: Array) -> Array:
    """|found − wanted|, infinite where what was found is NaN, 0 where what is wanted is not finite."""
    error = np.abs(np.asarray(found, dtype=np.float64) - wanted)
    return np.where(np.isfinite(wanted), np.where(np.isnan(error), np.inf, error), 0.0)


def measure(network: Network, function: Function, X: Array, step: int, phase: str) -> Row:
    """A row of a history. Of a network that has diverged the numbers may be infinite or NaN."""
    with np.errstate(all="ignore"):
        value = max((head.max_value for head in network.heads), default=0.0)
        keys = effective_keys(network, X[:_FEW])
        return Row.of(step, phase, errors(network, function, X), key_norms(network), value, keys)


def key_norms(network: Network) -> tuple[float | None, float | None]:
    """Mean and largest |W_Qᵀ k_j|; None without heads, or where a head has too many keys to look at."""
    found = []
    for head in network.heads:
        if head.keys > _MANY:
            return None, None
        keys = head.dense_keys()[0] if isinstance(head, Head) else head.axis.slopes
        found.append(np.linalg.norm(keys @ head.query_map[0], axis=1))
    if not found:
        return None, None
    norms = np.concatenate(found)
    return float(norms.mean()), float(norms.max())


def effective_keys(network: Network, X: Array) -> float | None:
    """exp(entropy) of the attention weights, averaged over points and heads."""
    if not network.heads or network.is_mlp or any(head.keys > _MANY for head in network.heads):
        return None
    final, counts = stream(network, X), []
    for layer in network.layers:
        for head in layer.attention:
            weights = attention(head, final[:, : layer.width], network.dtype).reshape(len(X), -1)
            counts.append(effective(weights))
    return float(np.mean(counts))


def effective(weights: AnyArray) -> Array:
    """exp(entropy) of the weights along the last axis."""
    own = weights.astype(np.float64)
    return np.asarray(np.exp(-np.sum(own * np.log(np.maximum(own, 1e-300)), axis=-1)))
