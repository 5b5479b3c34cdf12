"""The verdict on an in-context network: proved, refuted or undecided, from stored weights and task alone.

Linear and ridge regression are proved by `prove_linear.py`, the lasso by `prove_lasso.py`, logistic regression by
`prove_logistic.py`. Where nothing is proved the error is measured on example prompts and on hard ones of the
class, and a search climbs from the worst of them: a number that is never called a bound. A prompt with an error
above eps refutes eps: the computed prediction is what a user would get. The exact one is computed too, so what it may
itself be off (`exact.doubt`) is taken from the error first.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from attnfun.certify.rounding import hypotheses
from attnfun.certify.verdict import Proof, undecided
from attnfun.certify.view import Undecided
from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.exact import Prompt, doubt, exact_predictions, example_prompts, hard_prompts, moved
from attnfun.kinds.in_context.prove_lasso import prove_by_in_context_lasso
from attnfun.kinds.in_context.prove_linear import InContextBound, prove_by_in_context
from attnfun.kinds.in_context.prove_logistic import prove_by_in_context_logistic
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.numbers import at_most
from attnfun.language.target import Array
from attnfun.network import TokenNetwork, TokenTransformer
from attnfun.search import Goal, Say

_WORK = 10**9  # attention weights
_CLIMB = 40, 4 * 10**8  # steps of a search for a bad prompt, at most, and attention weights
_METHODS = {
    **dict.fromkeys(("linear", "ridge"), prove_by_in_context),
    "lasso": prove_by_in_context_lasso,
    "logistic": prove_by_in_context_logistic,
}
_HYPOTHESES = (
    "exp(0) is 1: tokens that a head shuts out, further queries among them, rescale no running sum",
    "the given examples and queries lie in the declared class",
    "Python: exp, expm1, sinh, cosh, acosh and tanh within 1e-10 of their value, in the proof itself",
)


@lru_cache(maxsize=2)
def prove(network: TokenNetwork, task: InContextTask) -> InContextBound:
    """The bound for every prompt of the class, by the method of the task; Undecided where there is none."""
    try:
        with np.errstate(all="ignore"):
            return _METHODS[task.task](network, task)
    except (ArithmeticError, ValueError):  # of fractions and series of stored numbers: no double can bound them
        raise Undecided("the stored numbers are too large or too small to be bounded") from None


def measured(
    network: TokenNetwork, task: InContextTask, count: int, eps: float, search: bool = True
) -> tuple[float, float, int]:
    """(largest error on prompts, the largest that is beyond doubt, their number); with `search` hard ones, too.

    The search ends where eps is passed beyond doubt. Large networks get fewer prompts, at least one.
    """
    work = (2 * task.examples + 20) ** 2 * len(network.heads)
    prompts = example_prompts(task, max(1, min(count, _WORK // work)))
    prompts += hard_prompts(task, max(1, min(8, _WORK // work))) if search else []
    worst, sure, tried, rng = 0.0, 0.0, 0, np.random.default_rng(0)
    at: Any = None  # the worst prompt
    climbs = min(_CLIMB[0], _CLIMB[1] // work) if search and prompts else 0
    for k in range(len(prompts) + climbs):
        if k == len(prompts) and not worst <= eps:
            break
        one = prompts[k] if k < len(prompts) else moved(task, at, rng)
        if one is None:
            continue
        error, beyond = _errors(network, task, one)
        tried, sure = tried + 1, max(sure, beyond)
        if error > worst or (error == worst and k < len(prompts)):
            worst, at = error, one
        if sure > eps:
            break
    return worst, sure, tried


def _errors(network: TokenNetwork, task: InContextTask, one: Prompt) -> tuple[float, float]:
    """(largest error of a prompt's predictions, the largest beyond doubt)."""
    X, y, queries = one
    got = predictions(network, task, X, y, queries)
    error = np.abs(got - exact_predictions(task, X, y, queries))
    beyond = error * (1 - 1e-15) - doubt(task, X, y, queries)
    beyond = np.where(np.isfinite(beyond), beyond, 0.0)  # where the exact prediction is not known
    sure = float(np.where(np.isfinite(got), beyond, math.inf).max())
    return float(np.where(np.isfinite(error), error, math.inf).max()), max(sure, 0.0)


def predictions(network: TokenNetwork | TokenTransformer, task: InContextTask, X: Array, y: Array, q: Array) -> Array:
    """What the network says of the queries of one prompt, whether it is of the class or not."""
    (tokens,), apart = task.written(network, X, y, q)
    with np.errstate(all="ignore"):
        return task.decode(network.run(tokens), apart)


def proof(task: InContextTask, network: TokenNetwork | TokenTransformer, goal: Goal, _say: Say) -> Proof:
    """What is proved of `network` for `task`; nothing but these two is read.

    Where nothing is proved a bad prompt is looked for; `details` then has the largest error that was "measured".
    """
    if isinstance(network, TokenTransformer):
        return undecided("it has ReLU units between its layers, and nothing is proved of those")
    method = "in_context" if task.task in ("linear", "ridge") else f"in_context_{task.task}"
    eps, high, why, parts = goal.eps, math.inf, "no finite bound could be proved", {}
    try:
        bound = prove(network, task)
    except Undecided as error:
        why = str(error)
    else:
        parts = {"optimisation": bound.optimisation, "bias": bound.bias, "rounding": bound.rounding}
        parts |= {"input": bound.input} if bound.input else {}
        if bound.total >= 0 and all(value >= 0 for value in parts.values()):  # NaN must not pass
            high = bound.total
    if high < math.inf and (eps is None or high <= eps):
        given = (*hypotheses(network.dtype), *_HYPOTHESES)
        return Proof(method, high, parts=parts, hypotheses=given, details={"largest logit": bound.logits})
    try:
        worst, sure, tried = measured(network, task, 5, math.inf if eps is None else eps)
    except InvalidRequest as error:
        return undecided(error)
    if eps is not None and sure > eps:
        found = f"on an example prompt of the class the prediction is off by {sure:.3g}"
        return Proof("sampling", low=sure if math.isfinite(sure) else 0.0, seen=sure, refuted=found)
    if math.isfinite(high):
        why = f"the proved bound {at_most(high, 3)} is above eps {eps:.3g}"
    reason = f"{why}; the largest error on {tried} example prompts is {worst:.3g}" if tried else why
    details = {"measured": worst, "prompts": tried} if tried and math.isfinite(worst) else {}
    return Proof(method, high, parts=parts, reason=reason, details=details)
