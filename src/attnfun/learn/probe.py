"""What a history keeps of a network: its error on fixed points, the norms of its keys, how many keys share a point.

| column | what |
| --- | --- |
| loss, sup | mean squared error and largest error on the probe points, of the network as NumPy evaluates it |
| key_norm_mean, key_norm_max | over all keys j of all heads: the Euclidean norm of W_Qᵀ k_j, its logit's gradient |
| value_max | the largest value of any head |
| effective_keys | exp(entropy of the attention weights), averaged over points and heads; None for an MLP |

A key norm is an inverse temperature: it is in units of the head's own stream and does not change when a query map is
scaled and its keys are scaled back.

**Errors that are seen: fresh draws of the target, the same for constructed and learned models of one target.**

Drawn for neither training nor choosing. What is seen there is called sampled, never a bound.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate
from attnfun.certify.verdict import About, Proof, verdict
from attnfun.errors import require
from attnfun.language.brief import Brief
from attnfun.language.domain import Box
from attnfun.language.function import Function
from attnfun.language.target import Target
from attnfun.network import Head, Network, attention, evaluate, stream
from attnfun.network.claim import MEAN_SQUARE
from attnfun.network.head import AnyArray, Array

_POINTS, _GRID, _FEW = 2000, 2001, 64
_MANY = 1 << 16  # keys of a head that are still looked at one by one


@dataclass(frozen=True)
class Row(Brief):
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


_STREAM = 77


@dataclass(frozen=True, eq=False)
class Measured(Brief):
    """(count, entries) errors at `inputs`, and the share of `decisions` that were wrong, if there are any."""

    inputs: tuple[Any, ...]
    outputs: Any
    wanted: Any
    errors: Array
    wrong: float | None
    decisions: int

    @property
    def count(self) -> int:
        return len(self.errors)


def measured(target: Target, weights: Any, count: int | None = None) -> Measured:
    """The errors of weights at `count` draws of the target, as many as it takes for itself unless given."""
    rng = np.random.default_rng([_STREAM, target.stream])
    inputs = target.draw(rng, target.sample_size(weights) if count is None else count)
    wanted = target.exact(*inputs)
    with np.errstate(all="ignore"):
        arrays, how = target.encode(weights, *inputs)
        outputs = target.decode(weights.run(*arrays), how)
    wrong = target.wrong(outputs, wanted)
    share = None if wrong is None else float(np.mean(wrong))
    decisions = 0 if wrong is None else int(np.size(wrong))
    return Measured(inputs, outputs, wanted, target.errors(outputs, wanted), share, decisions)


def sampled(target: Target, weights: Any, construction: str = "learned") -> Certificate:
    """The largest error seen, called by its name; where eps is that of a mean square, that mean."""
    seen = measured(target, weights)
    norm, high, details = math.inf, float(seen.errors.max()), dict[str, Any]()
    reason = f"the largest error at {seen.count:,} {target.draws_what}"
    if seen.wrong is not None:
        reason += f"; {seen.wrong:.2%} of {seen.decisions:,} {target.decided}"
    if MEAN_SQUARE in target.norms:
        squares = np.mean(seen.errors**2, axis=1)
        norm, high, details = 2.0, float(squares.mean()), {"norm": MEAN_SQUARE}
        off = float(squares.std(ddof=1) / math.sqrt(len(squares)))
        reason = f"mean squared error {squares.mean():.4g} ± {off:.2g} (standard error) at {seen.count:,} draws"
    require(math.isfinite(high), "the network is not finite at points of its domain; its training has diverged")
    first = seen.inputs[0]
    point = len(seen.inputs) == 1 and isinstance(first, np.ndarray) and first.ndim == 2 and math.isinf(norm)
    at = tuple(float(v) for v in first[int(np.argmax(seen.errors.max(axis=1)))]) if point else None
    proof = Proof("sampling", high, high, witness=at, measured=True, reason=reason, details=details)
    return verdict(
        proof, None, About(target.text, target.domain, weights.dtype, norm, construction, band=target.left_out)
    )
