"""The table of in-context regressions: layers at which ten unseen data sets are within eps, beside the proved depth.

    python benchmarks/in_context.py [--output FILE]

Data: 64 standard normal examples in 8 dimensions, their eigenvalues stretched over the declared spectrum, |y| up to 3,
32 queries each. Errors are those of predictions, against scikit-learn where it is installed (logistic regression:
against Newton's method, which is closer to the optimum), else against the same closed forms. *limit* is the goal;
*needed* is the least depth that was tried and met eps on all ten, *proved at* the depth at which eps is proved for
every prompt of the class.
"""

import sys
from dataclasses import dataclass

import numpy as np

import attnfun as af
from attnfun.kinds.in_context.exact import exact_coefficients, exact_predictions, example_prompts
from attnfun.kinds.in_context.target import InContextTask
from bench import Row, asked, table

DIM, EXAMPLES, SETS, SEED = 8, 64, 10, 7


@dataclass(frozen=True)
class Case:
    task: str
    spectrum: tuple[float, float]
    eps: float
    limit: int  # layers, for lasso and logistic iterations
    algorithm: str | None = None
    dtype: str = "float64"


CASES = (
    Case("ridge", (30, 96), 1e-6, 12, "chebyshev"),
    Case("ridge", (30, 96), 1e-6, 22, "gd"),
    Case("ridge", (30, 96), 1e-9, 18, "chebyshev"),
    Case("ridge", (30, 96), 1e-9, 33, "gd"),
    Case("ridge", (15, 150), 1e-6, 25, "chebyshev"),
    Case("ridge", (15, 150), 1e-6, 75, "gd"),
    Case("lasso", (29, 95), 1e-6, 28),
    Case("lasso", (29, 95), 2e-9, 42),
    Case("logistic", (29, 95), 1e-6, 46),
    Case("logistic", (29, 95), 1e-8, 67),
    Case("ridge", (30, 96), 3e-6, 12, "chebyshev", "float32"),
)


def reference(task: InContextTask, X: np.ndarray, y: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """scikit-learn's predictions, or the exact ones."""
    try:
        from sklearn.linear_model import Lasso, Ridge
    except ImportError:
        return exact_predictions(task, X, y, queries)
    if task.task == "logistic":
        return exact_predictions(task, X, y, queries)
    kind, more = (Ridge, {}) if task.task == "ridge" else (Lasso, {"tol": 1e-14, "max_iter": 100_000})
    model = kind(alpha=task.strength, fit_intercept=False, **more)
    return np.asarray(model.fit(X, y).predict(queries), dtype=np.float64)


def worst(net: af.InContextSolver, prompts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[float, bool]:
    """(largest error over the prompts, is every support right?)."""
    error, support = 0.0, True
    for X, y, queries in prompts:
        error = max(error, float(np.abs(net.predict(X, y, queries) - reference(net.task, X, y, queries)).max()))
        if net.task.task == "lasso":
            support &= np.array_equal(net.coefficients(X, y) != 0, exact_coefficients(net.task, X, y) != 0)
    return error, support


def measure(case: Case) -> Row:
    """The least depth at which all data sets are within eps."""
    shape = {"dim": DIM, "examples": EXAMPLES, "spectrum": case.spectrum, "algorithm": case.algorithm}
    step = 1 if case.task == "ridge" else 2
    most = case.limit if step == 1 else 2 * case.limit + 1
    net, error, support, prompts = None, np.inf, True, []
    for layers in range(most // 2 - (most // 2) % 2 + (step == 2), most + 1, step):
        net = af.in_context(case.task, layers=layers, dtype=case.dtype, accept="sampled", **shape)
        prompts = prompts or example_prompts(net.task, SETS, queries=32, seed=SEED)
        error, support = worst(net, prompts)
        if error <= case.eps:
            break
    assert net is not None
    exact = case.dtype == "float64"
    proved = len(af.in_context(case.task, eps=case.eps, **shape).network.layers) if exact else None
    met, depth = bool(error <= case.eps and support), len(net.network.layers)
    name = case.task + (f" ({case.algorithm})" if case.algorithm else "")
    row: Row = {"task": name, "condition": f"{net.task.condition:.3g}", "dtype": case.dtype, "eps": f"{case.eps:g}"}
    row["limit"] = f"{case.limit} {'layers' if step == 1 else 'iterations'}"
    row |= {"needed": net.iterations if step == 2 else depth, "attention layers": depth, "measured": f"{error:.2g}"}
    row |= {"predicted": f"{net.budget.total:.2g}", "proved at": proved}
    return row | {"met": "yes" if met else "NO", "sound": met}


def head(rows: list[Row]) -> list[str]:
    return ["# In-context regressions", "", *(__doc__ or "").split("\n\n", 2)[2].splitlines(), ""]


COLUMNS = ("task", "condition", "dtype", "eps", "limit", "needed", "attention layers", "measured", "predicted")
if __name__ == "__main__":
    sys.exit(table(asked(__doc__), map(measure, CASES), (*COLUMNS, "proved at", "met"), head))
