"""Regressions solved in the forward pass of a softmax-attention network; one file an algorithm.

`build` is the one way in; `depth` says how many layers the whole class needs for eps, in real arithmetic and before
anything is built; `best` names the algorithm that takes the fewest layers.
"""

from attnfun.errors import InvalidRequest
from attnfun.kinds.in_context.build.lasso import build_lasso, lasso_iterations
from attnfun.kinds.in_context.build.linear import build_linear, depth_for
from attnfun.kinds.in_context.build.logistic import build_logistic, logistic_iterations
from attnfun.kinds.in_context.build.richardson import MOST_HEADS
from attnfun.kinds.in_context.target import ALGORITHMS, InContextTask
from attnfun.network import TokenNetwork

__all__ = ["MOST_HEADS", "MOST_LAYERS", "best", "build", "depth"]

MOST_LAYERS = {"linear": 600, "ridge": 600, "lasso": 2400, "logistic": 2400}


def depth(task: InContextTask, algorithm: str, eps: float) -> int:
    """Layers for eps on the whole class."""
    if task.task in ("linear", "ridge"):
        return depth_for(task, algorithm, eps)
    if task.task == "lasso":
        return 2 * lasso_iterations(task, eps, algorithm) + 1
    return 2 * logistic_iterations(task, eps) + 1


def best(task: InContextTask, eps: float | None) -> str:
    """The algorithm of the fewest layers, by default for six digits."""
    return min(ALGORITHMS[task.task], key=lambda name: depth(task, name, eps or 1e-6))


def build(
    task: InContextTask,
    layers: int,
    algorithm: str,
    dtype: str = "float64",
    heads: int | None = None,
    typical: bool = False,
    finer: int = 0,
) -> TokenNetwork:
    """The network of `layers` layers; see the files of the algorithms for `typical` and `finer`.

    Refuses with InvalidRequest a class whose numbers are too far apart for the weights to be numbers of `dtype`.
    """
    stepped = task.task in ("lasso", "logistic")
    if stepped and (layers < 3 or layers % 2 == 0):
        raise InvalidRequest(f"layers={layers}: {task.task} takes two layers per step and one to predict: 3, 5, 7, …")
    make = {"lasso": build_lasso, "logistic": build_logistic}.get(task.task, build_linear)
    try:
        return make(task, layers // 2 if stepped else layers, algorithm, dtype, heads, typical, finer)
    except (ArithmeticError, ValueError) as error:  # a scale that overflows, the logarithm of one that underflows
        raise InvalidRequest(
            f"{task.domain}: these numbers are too far apart for weights in {dtype} ({error}); scale the data"
        ) from None
