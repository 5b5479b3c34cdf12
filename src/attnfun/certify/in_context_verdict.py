"""The verdict on an in-context network: proved, sampled, refuted or undecided, from stored weights and task alone.

Linear and ridge regression are proved by `in_context.py`. Of lasso and logistic regression the error is measured on
example prompts of the class: a number that is never called a bound. A prompt with an error above eps refutes eps, for
every task: the computed prediction is what a user would get. The exact one is computed too, so what it may itself be
off (`in_context_exact.doubt`) is taken from the error first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnfun.certify.certificate import Certificate, Status
from attnfun.certify.in_context import prove_by_in_context
from attnfun.certify.rounding import hypotheses
from attnfun.certify.verdict import status_of
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.targets.in_context import InContextTask, prompt
from attnfun.targets.in_context_exact import doubt, exact_predictions, example_prompts

_WORK = 5 * 10**9  # attention weights
_HYPOTHESES = (
    "exp(0) is 1: tokens that a head shuts out, further queries among them, rescale no running sum",
    "the given examples and queries lie in the declared class",
)


def measured_error(
    network: TokenNetwork, task: InContextTask, count: int = 5, alone: bool = False
) -> tuple[float, int]:
    """(largest error on example prompts, their number); infinity for predictions that are not finite."""
    worst, _, tried = _measured(network, task, count, alone)
    return worst, tried


def _measured(
    network: TokenNetwork, task: InContextTask, count: int = 5, alone: bool = False
) -> tuple[float, float, int]:
    """(largest error on example prompts, the largest that is beyond doubt, their number).

    Large networks get fewer prompts, at least one.
    """
    worst, sure, tried = 0.0, 0.0, 0
    work = (2 * task.examples + 20) ** 2 * len(network.heads)
    for X, y, queries in example_prompts(task, max(1, min(count, _WORK // work))):
        got = predictions(network, task, X, y, queries, alone)
        error = np.abs(got - exact_predictions(task, X, y, queries))
        worst = max(worst, float(np.where(np.isfinite(error), error, math.inf).max()))
        beyond = error * (1 - 1e-15) - doubt(task, X, y, queries)
        beyond = np.where(np.isfinite(beyond), beyond, 0.0)  # where the exact prediction is not known
        sure = max(sure, float(np.where(np.isfinite(got), beyond, math.inf).max()))
        tried += 1
    return worst, sure, tried


def predictions(
    network: TokenNetwork | TokenTransformer,
    task: InContextTask,
    X: np.ndarray,
    y: np.ndarray,
    queries: np.ndarray,
    alone: bool = False,
) -> np.ndarray:
    """What the network says of the queries of one prompt, or with `alone` of each in a prompt of its own."""
    if alone:
        return np.concatenate([predictions(network, task, X, y, query[None]) for query in queries])
    try:
        tokens = prompt(network.coordinates, task, X, y, queries)
    except KeyError as error:
        raise InvalidRequest(f"the network has no coordinate {error} for its prompt") from None
    with np.errstate(all="ignore"):
        return np.asarray(network.run(tokens)[2 * task.examples :, 0], dtype=np.float64)


def judge(
    network: TokenNetwork, task: InContextTask, eps: float | None, construction: str = "", alone: bool = False
) -> Certificate:
    """The certificate of `network` for `task`; nothing but these two is read.

    `alone`: measure every query in a prompt of its own, which is how networks that were trained so are used.
    """
    common: dict[str, Any] = {
        "eps": eps,
        "norm": math.inf,
        "dtype": network.dtype,
        "target": task.text,
        "domain": task.domain,
        "construction": construction,
    }
    try:
        bound = prove_by_in_context(network, task)
        high, why = bound.total, ""
        parts = {"optimisation": bound.optimisation, "bias": bound.bias, "rounding": bound.rounding}
        if bound.input:
            parts["input"] = bound.input
        if not (high >= 0 and all(value >= 0 for value in parts.values())):  # NaN must not pass
            high, why = math.inf, "no finite bound could be proved"
    except Undecided as error:
        high, why, parts = math.inf, str(error), {}
    status = status_of(high, eps)
    if status in (Status.PROVED, Status.BOUNDED):
        return Certificate(
            status,
            (0.0, high),
            method="in_context",
            parts=parts,
            hypotheses=(*hypotheses(network.dtype), *_HYPOTHESES),
            details={"largest logit": bound.logits},
            **common,
        )
    try:
        worst, sure, tried = _measured(network, task, alone=alone)
    except InvalidRequest as error:
        return Certificate(Status.UNDECIDED, (0.0, math.inf), method="none", reason=str(error), **common)
    if eps is not None and sure > eps:
        reason = f"on an example prompt of the class the prediction is off by {sure:.3g}, above eps {eps:.3g}"
        return Certificate(
            Status.REFUTED,
            (sure if math.isfinite(sure) else 0.0, math.inf),
            method="sampling",
            reason=reason,
            **common,
        )
    if task.task in ("lasso", "logistic") and tried:
        reason = f"{why}; the largest error on {tried} example prompts is {worst:.3g}"
        return Certificate(Status.SAMPLED, (worst, worst), method="sampling", reason=reason, **common)
    if math.isfinite(high):
        why = f"the proved bound {high:.3g} is above eps {eps:.3g}" if eps is not None else why
    reason = f"{why}; the largest error on {tried} example prompts is {worst:.3g}" if tried else why
    return Certificate(Status.UNDECIDED, (0.0, high), method="in_context", parts=parts, reason=reason, **common)
