"""Errors that are seen: fresh draws of the target, the same for constructed and learned models of one target.

Drawn for neither training nor choosing. What is seen there is called sampled, never a bound.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate
from attnfun.certify.verdict import About, Proof, verdict
from attnfun.errors import InvalidRequest
from attnfun.language.target import Array, Target
from attnfun.network.claim import MEAN_SQUARE

_STREAM = 77


@dataclass(frozen=True, eq=False)
class Measured:
    """(count, entries) errors at `inputs`, and the share of `decisions` that were wrong, if there are any."""

    inputs: tuple[Any, ...]
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
    return Measured(inputs, target.errors(outputs, wanted), share, 0 if wrong is None else int(np.size(wrong)))


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
    if not math.isfinite(high):
        raise InvalidRequest("the network is not finite at points of its domain; its training has diverged")
    first = seen.inputs[0]
    point = len(seen.inputs) == 1 and isinstance(first, np.ndarray) and first.ndim == 2 and math.isinf(norm)
    at = tuple(float(v) for v in first[int(np.argmax(seen.errors.max(axis=1)))]) if point else None
    proof = Proof("sampling", high, high, witness=at, measured=True, reason=reason, details=details)
    return verdict(proof, None, About(target.text, target.domain, weights.dtype, norm, construction))
