"""What a sample of queries shows of a retrieval head: margins, failures with confidence, and what was measured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnfun.errors import DamagedFile
from attnfun.kinds.retrieval.prove_bounds import beta_needed, clopper_pearson
from attnfun.kinds.retrieval.prove_margins import Margins, places_of
from attnfun.kinds.retrieval.target import blocks
from attnfun.network.head import Array, softmax

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Study:
    """What a sample of queries shows. Margins are enclosed, intervals have the confidence; `measured` is no bound.

    `failures` queries have a margin that is not proved to be above twice the error: there the best key may be missed.
    `served` queries have a proved winner weight of 1 − delta or more. Both intervals are about the distribution that
    the queries were drawn from, independently: `drawn` says which.
    """

    queries: int
    drawn: str
    margins: Mapping[str, float]
    betas: Mapping[str, float | None]
    failures: int
    failure_interval: tuple[float, float]
    served: int
    served_interval: tuple[float, float]
    confidence: float
    delta: float
    measured: Mapping[str, float]


def quantile(margins: Array, q: float) -> float:
    """A margin that at least 1 − q of the queries have."""
    return float(np.quantile(margins, q, method="lower"))


def studied(head: Any, X: Array, drawn: str, margins: Margins) -> Study:
    """The study of a head at queries X whose margins are known; `delta` and `confidence` are those of its request."""
    relation, weights, error = head.target.utility, head.weights, head.error
    delta, confidence = head.request["delta"], head.request["confidence"]
    n, beta, total, places = weights.keys, weights.beta, len(X), places_of(weights.points, weights.values)
    failures = total - int(np.count_nonzero(margins.low > 2 * error * (1 + 1e-15)))
    enough = 0.0
    if n > 1:  # w ≥ 1 − δ iff β(m − 2e) ≥ log((n−1)(1−δ)/δ), rounded up
        lead = math.log((n - 1) * (1 - delta) / delta) / beta
        enough = lead + 1e-12 * abs(lead) + 2 * error * (1 + 1e-12)
    served = int(np.count_nonzero(margins.low >= enough))
    quantiles = {f"{q:g}": quantile(margins.low, q) for q in QUANTILES}
    betas = {k: beta_needed(n, m, error, delta) for k, m in quantiles.items()}
    wrong, regret, moved = 0, 0.0, 0.0
    for rows in blocks(total, n):
        true = relation.table(X[rows], weights.points)
        logits = weights.relation.values(0, weights.reading(relation)(X[rows])) @ weights.vectors.T
        chosen, best = np.argmax(logits, axis=1), np.argmax(true, axis=1)
        lost = true.max(axis=1) - np.take_along_axis(true, chosen[:, None], 1)[:, 0]
        wrong += int(np.count_nonzero((places[chosen] != places[best]) & (lost > 0)))
        regret = max(regret, float(lost.max()))
        gap = np.abs(softmax(logits) - softmax(beta * true)).sum(axis=1) / 2
        moved = max(moved, float(gap.max()))
    return Study(
        queries=total,
        drawn=drawn,
        margins=quantiles,
        betas={k: v if math.isfinite(v) else None for k, v in betas.items()},
        failures=failures,
        failure_interval=clopper_pearson(failures, total, confidence),
        served=served,
        served_interval=clopper_pearson(served, total, confidence),
        confidence=confidence,
        delta=delta,
        measured={"wrong_top1": wrong / total, "regret": regret, "tv": moved},
    )


def stored_study(data: Any) -> Study | None:
    """The study that a file holds."""
    if data is None:
        return None
    try:
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return Study(**made)
    except (TypeError, AttributeError):
        raise DamagedFile("the stored study cannot be read") from None
