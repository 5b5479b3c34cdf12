"""Points at which the errors of many steps add up: where witnesses of wide networks are looked for. Proves nothing.

To first order the error of a network is Σ_j w_j r_j(u_j), r_j the residual of step j at its argument u_j and w_j how
much the output moves with it. Steps that read one input each are aimed at together: x_k is taken where Σ_j w_j r_j of
its own steps is largest, or smallest. What is outside a sum matters, too: log S errs most where S is small. So
Σ_j w_j (r_j − λ g_j) is looked at for some numbers λ, too. Maxima and minima of many entries err most where all are
equal: points of the diagonal.
"""

from collections.abc import Sequence

import numpy as np

from attnfun.certify.refine import LocalOutput, LocalStep
from attnfun.certify.view import Array
from attnfun.certify.witness import Aim
from attnfun.language import ArrayAlgebra, Graph, run
from attnfun.language.domain import Box

_GRID = 257
_DIAGONAL = 129
_WEIGHTS = tuple(s * w for s in (-1, 1) for w in (0, 0.25, 0.5, 1, 2, 4, 16))  # of λ, in errors over values
_PEAKS = 12
_WORK = 3_000_000  # points times steps that are looked at in one round: 1 s, about


def aimed_points(steps: Sequence[LocalStep], outputs: Sequence[LocalOutput], box: Box) -> Array:
    """Points of the box, a few hundred."""
    t = np.linspace(0, 1, _DIAGONAL)[:, None]
    found = [box.low_array + (box.high_array - box.low_array) * t]
    weights = _influence(steps, outputs)
    own: dict[str, list[LocalStep]] = {}
    for step in steps:
        inputs = list(step.argument.phis)
        if len(inputs) == 1 and inputs[0] in box.names and weights.get(step.name):
            own.setdefault(inputs[0], []).append(step)
    if own:
        grids = {name: np.linspace(a, b, _GRID) for name, a, b in zip(box.names, box.low, box.high, strict=True)}
        sums = {name: _along(parts, weights, grids[name]) for name, parts in own.items()}
        errors = sum(float(np.ptp(r)) for r, _ in sums.values())
        values = sum(float(np.ptp(g)) for _, g in sums.values())
        for scale in _WEIGHTS:
            size = scale * errors / values if values > 0 else 0.0
            for sign in (1.0, -1.0):
                x = (box.low_array + box.high_array) / 2
                for k, name in enumerate(box.names):
                    if name in sums:
                        x[k] = grids[name][int(np.argmax(sign * sums[name][0] - size * sums[name][1]))]
                found.append(x[None])
    return np.clip(np.concatenate(found), box.low_array, box.high_array)


def few_aims(steps: Sequence[LocalStep], box: Box) -> list[Aim]:
    """Aims of steps that read inputs alone, as many as there is time for."""
    reading = [step for step in steps if step.argument.phis and set(step.argument.phis) <= set(box.names)]
    most = max(1, _WORK // (_PEAKS * max(1, len(steps))))
    return [_aim(step) for step in reading[:: -(-len(reading) // most)]] if reading else []


def _aim(step: LocalStep) -> Aim:
    u = np.linspace(*step.range, _GRID)
    size = np.abs(_residual(step, u))
    padded = np.concatenate([[0.0], size, [0.0]])
    peaks = np.flatnonzero((size >= padded[:-2]) & (size > padded[2:]))
    values = u[peaks[np.argsort(size[peaks])[-_PEAKS:]]]
    weights = {name: float(w) for name, w in step.argument.phis.items()}
    return Aim(weights, values - float(step.argument.meant.mid()))


def _influence(steps: Sequence[LocalStep], outputs: Sequence[LocalOutput]) -> dict[str, float]:
    """How much the first output moves with each step, by mean slopes."""
    weights = {name: float(w) for name, w in outputs[0].form.phis.items()}
    for step in reversed(steps):
        low, high = step.range
        ends = _values(step.unary, np.array([low, high]))
        slope = float(ends[1] - ends[0]) / (high - low) * weights.get(step.name, 0.0)
        if slope and np.isfinite(slope):
            for name, w in step.argument.phis.items():
                weights[name] = weights.get(name, 0.0) + slope * float(w)
    return weights


def _along(steps: Sequence[LocalStep], weights: dict[str, float], t: Array) -> tuple[Array, Array]:
    """Σ w r and Σ w g of steps that read one input, at values of that."""
    errors, values = np.zeros_like(t), np.zeros_like(t)
    for step in steps:
        ((_, w),) = step.argument.phis.items()
        u = np.clip(float(w) * t + float(step.argument.meant.mid()), *step.range)
        errors += weights[step.name] * _residual(step, u)
        g = _values(step.unary, u)
        values += weights[step.name] * np.where(np.isfinite(g), g, 0.0)
    return errors, values


def _residual(step: LocalStep, u: Array) -> Array:
    with np.errstate(all="ignore"):
        off = step.seen.floats(u) - _values(step.unary, u)
    return np.where(np.isfinite(off), off, 0.0)


def _values(unary: Graph, u: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(run(unary, ArrayAlgebra(), {"u": u})[0], dtype=np.float64), u.shape)
