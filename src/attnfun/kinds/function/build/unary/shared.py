"""Many functions of one variable in one head: the same keys for all, values of its own for each.

    f_o(u) ≈ slope_o u + offset_o + Σ_j softmax_j(slopes_j q + biases_j) values_jo,      q = w u + c

Gaussian keys of rising number; the values of all functions are one least-squares problem with as many right sides, so
that 200 functions cost little more than one. The first number of keys that is good enough on points four times as dense
is taken: nothing here is a bound.
Failure mode: kinks and singular points, and functions that need many keys; then there is none (None).
"""

from collections.abc import Callable

import numpy as np

from attnfun.kinds.function.build.unary.keys import Array, gaussian
from attnfun.kinds.function.build.unary.pieces import Fit, head_of
from attnfun.network import rounded

SHARED = 12  # functions above which they are tried together
_SIZES = (4, 5, 6, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60, 72, 86, 103)
_WORK = 1_500_000  # keys² times functions: a proof takes about as many operations
_ROOM = 0.9  # of eps
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}


def fit_shared(
    functions: Callable[[Array], Array], low: float, high: float, eps: float, dtype: str
) -> tuple[Fit, Array, Array] | None:
    """One head for all columns of `functions`, (n, 1) → (n, p), on [low, high], and their slopes and offsets; None
    where no small one was found.
    """
    for size in _SIZES:
        head = gaussian(low, high, size, 1.3, 0.3, dtype).stored(dtype)
        lines = (np.cos(np.linspace(0, np.pi, 10 * size * dense)) for dense in (1, 4))  # denser towards the ends
        u, check = (np.clip(low + (high - low) * (1 - line) / 2, low, high) for line in lines)
        with np.errstate(all="ignore"):
            wanted, seen = functions(u[:, None]), functions(check[:, None])
        outputs = wanted.shape[1]
        if size * size * outputs > _WORK or not (np.isfinite(wanted).all() and np.isfinite(seen).all()):
            return None
        span = max(float(np.ptp(wanted, axis=0).max()), eps)
        ridge = np.concatenate([np.diag(np.full(size, eps / (30 * span))), np.zeros((size, 2))], axis=1)
        unit = (u - (low + (high - low) / 2)) / ((high - low) / 2)
        columns = np.concatenate([head.weights(u), np.ones((len(u), 1)), unit[:, None]], axis=1)
        system = np.concatenate([columns / np.sqrt(len(u)), ridge])
        right = np.concatenate([wanted / np.sqrt(len(u)), np.zeros((size, outputs))])
        x = np.linalg.lstsq(system, right, rcond=None)[0]
        slopes = rounded(x[-1] / ((high - low) / 2), dtype)
        offsets = rounded(x[-2] - slopes * (low + (high - low) / 2), dtype)
        values = rounded(x[:-2], dtype)
        found = head.weights(check) @ values + check[:, None] * slopes + offsets
        error = float(np.abs(found - seen).max())
        rounding = 4 * (size + 8) * _ROUNDOFF[dtype] * float(np.abs(values).max())
        if error + rounding <= _ROOM * eps and float(np.abs(values).max()) <= 100 * span:
            return Fit((head_of(head, values, dtype),), error=error), slopes, offsets
    return None
