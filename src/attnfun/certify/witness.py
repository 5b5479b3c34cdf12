"""The lower end: a float64 point of the box at which balls show the error to be at least so much.

For views (one layer) in real arithmetic; for whole networks also as computed in their dtype, by any route:
`outputs_at` adds the rounding of every query, head and sum at that point to the balls.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from attnfun.certify.exact import contracted, residual_at
from attnfun.certify.pieces import BrokenLine, block_fits, block_rounding
from attnfun.certify.rounding import ROUNDOFF, TINY, gamma, line_bounds, product_bounds, product_fits
from attnfun.certify.view import Array, HeadView, LineAxis, View
from attnfun.language import Graph, precision
from attnfun.language.balls import values_at_point
from attnfun.language.domain import climbed
from attnfun.language.enclosures import abs_lower, abs_upper, ball, lower, point_balls, upper
from attnfun.language.function import Function
from attnfun.network import Head, Network, ReluBlock, evaluate

_RAY, _ON_RAY = 200, 6


def error_at(view: View, graph: Graph, names: tuple[str, ...], x: Array) -> float:
    """A proved lower bound of max_o |f_o(x) − net_o(x)| at the exact point x; 0 where balls cannot tell."""
    lows = [abs_lower(value) for value in residual_at(view, graph, names, x)]
    return max([0.0, *(v for v in lows if v > 0)])


def best_witness(
    view: View, graph: Graph, names: tuple[str, ...], starts: Array, step: Array, evaluations: int = 40
) -> tuple[float, Array]:
    """Pattern search from each start: the largest proved `error_at` found, and its point (always inside the box)."""
    best, where = -1.0, np.clip(starts[0], view.low, view.high)
    known: dict[bytes, float] = {}

    def error(x: Array) -> float:
        if x.tobytes() not in known:  # a step back is tried after every step
            known[x.tobytes()] = error_at(view, graph, names, x)
        return known[x.tobytes()]

    with precision(128):
        for start in starts:
            x = np.clip(start, view.low, view.high)
            value, h, used = error(x), np.array(step, dtype=np.float64), 1
            while used < evaluations and np.any(h > 1e-6 * step):
                moved = False
                for k in range(view.dim):
                    for sign in (1.0, -1.0):
                        y = x.copy()
                        y[k] = min(max(y[k] + sign * h[k], view.low[k]), view.high[k])
                        if y[k] == x[k]:
                            continue
                        other = error(y)
                        used += 1
                        if other > value:
                            x, value, moved = y, other, True
                            break
                if not moved:
                    h = h / 2.5
            if value > best:
                best, where = value, x
    return best, where


_ROUNDS = 8


@dataclass(frozen=True)
class Aim:
    """An affine form of the inputs, and values of it at which the error may be large."""

    weights: Mapping[str, float]
    values: Array


def computed_witness(network: Network, function: Function, X: Array) -> tuple[float, Array | None]:
    """The largest error proved at a few of the `worst_points` X, and its point.

    At the end of a root's domain rounding hides the error. Where less than a third of what was seen is proved, points
    on the way to the middle of the box are looked at, at all distances: heads for roots err alike in all of them.
    """
    best = _proved_at(network, function, X[-3:])
    low, high = function.box.low_array, function.box.high_array
    if best[0] > _errors(network, function, X).max() / 3:
        return best
    away = np.geomspace(1e-12, 1, _RAY)[:, None]
    ray = np.clip(X[-1] + away * ((low + high) / 2 - X[-1]), low, high)
    found = _proved_at(network, function, ray[np.argsort(_errors(network, function, ray), kind="stable")][-_ON_RAY:])
    return max(best, found, key=lambda pair: pair[0])


def aimed_witness(
    network: Network, function: Function, X: Array, aims: Sequence[Aim], known: float
) -> tuple[float, Array | None]:
    """As `computed_witness`, from points that meet the aims one after the other, whichever value gives most; what is
    not above `known` need not be found.
    """
    box = function.box
    for _ in range(2):
        for aim in aims:
            c = np.array([aim.weights.get(name, 0.0) for name in box.names])
            if not 1e-140 < np.abs(c).max() < 1e140:
                continue
            moves = (aim.values[None] - (X @ c)[:, None])[..., None] * c / (c @ c)
            Y = np.clip(X[:, None] + moves, box.low_array, box.high_array)
            Y = np.concatenate([X[:, None], Y], axis=1)
            error = _errors(network, function, Y.reshape(-1, box.dim)).reshape(Y.shape[:2])
            X = Y[np.arange(len(X)), np.argmax(error, axis=1)]
    return _proved_at(network, function, X, known)


def _proved_at(network: Network, function: Function, X: Array, known: float = 0.0) -> tuple[float, Array | None]:
    """The largest error that balls prove at one of the points, the first of equal ones; what is not above `known` need
    not be found.

    A point is left out where its sampled error, and several times what rounding made of one before, is less than what
    is proved elsewhere.
    """
    graph, X = function.graph, X[function.off_band(X)]
    best, where = 0.0, None
    axes = [axis for layer in network.layers for head in layer.heads for axis in head.axes]
    if graph is None or any(axis.dim != 1 for axis in axes):
        return best, where  # `outputs_at` reads one number per axis
    doubt = math.inf
    with precision(128):
        for x, seen in zip(X[::-1], _errors(network, function, X)[::-1], strict=True):
            if seen + 8 * doubt < max(best, known):
                continue
            pairs = zip(values_at_point(graph, function.box.names, x), outputs_at(network, x), strict=True)
            gaps = [a - b for a, b in pairs]
            value, doubt = max(map(abs_lower, gaps)), max(upper(gap.rad()) for gap in gaps)
            if value > 0 and value >= best:
                best, where = value, x
    return best, where


def _errors(network: Network, function: Function, X: Array) -> Array:
    with np.errstate(all="ignore"):
        off = np.max(np.abs(evaluate(network, X).astype(np.float64) - function.values(X)), axis=1)
    return np.where(np.isfinite(off) & function.off_band(X), off, 0.0)


def worst_points(network: Network, function: Function) -> Array:
    """Four points of large sampled error, the largest last: random ones, corners, edges, then shrinking steps from the
    best (seeded).
    """
    return climbed(function.box, lambda X: _errors(network, function, X), 4000, 20, 8)[-4:]


def climbed_witness(
    network: Network, function: Function, X: Array, aims: Sequence[Aim], known: float
) -> tuple[float, Array | None]:
    """As `aimed_witness`, for many aims: those that help and share no input are met together, round by round, from the
    best two of the points X.
    """
    box, best = function.box, []
    weights = [np.array([aim.weights.get(name, 0.0) for name in box.names]) for aim in aims]
    kept = [(c, aim.values) for c, aim in zip(weights, aims, strict=True) if 1e-140 < np.abs(c).max() < 1e140]
    for x in X[np.argsort(_errors(network, function, X))[-2:]]:
        error = float(_errors(network, function, x[None])[0])
        for _ in range(_ROUNDS if kept else 0):
            moved = [np.clip(x + (t - x @ c)[:, None] * c / (c @ c), box.low_array, box.high_array) for c, t in kept]
            seen = np.split(_errors(network, function, np.concatenate(moved)), np.cumsum([len(m) for m in moved])[:-1])
            tops = np.array([float(e.max(initial=0.0)) for e in seen])
            left, chosen = np.ones(box.dim, dtype=bool), []
            for k in np.argsort(-tops):
                if tops[k] > error and not (kept[k][0].astype(bool) & ~left).any():
                    left &= kept[k][0] == 0
                    chosen.append((kept[k][0] != 0, moved[k][int(np.argmax(seen[k]))]))
            if not chosen:
                break
            trials = []
            for count in (len(chosen), -(-len(chosen) // 3), 1):
                y = x.copy()
                for where, point in chosen[:count]:
                    y[where] = point[where]
                trials.append(y)
            errors = _errors(network, function, np.array(trials))
            if not errors.max() > error:
                break
            x, error = trials[int(np.argmax(errors))], float(errors.max())
        best.append(x)
    return _proved_at(network, function, np.array(best), known)


def outputs_at(network: Network, x: Array) -> list[arb]:
    """Balls with the outputs at the exact point x of the network in real arithmetic, and of any computation of it."""
    u, tiny = ROUNDOFF[network.dtype], TINY[network.dtype]

    def affine(row: Array, offset: float, stream: list[arb]) -> arb:
        used = [(arb(float(w)), s) for w, s in zip(row, stream, strict=True) if w != 0]
        value, size = arb(offset), abs(arb(offset))
        for w, s in used:
            value, size = value + w * s, size + abs(w * s)
        return value + _around(gamma(len(used) + 2, u) * abs_upper(size) + (len(used) + 2) * tiny)

    inputs = [arb(float(v)) for v in x]
    stream = [v + _around(u * abs_upper(v) + tiny) if network.dtype != "float64" else v for v in inputs]
    for layer in network.layers:
        new, sizes = dict.fromkeys(layer.writes, arb(0)), dict.fromkeys(layer.writes, arb(0))
        for head in layer.heads:
            queries = [affine(axis.query[0], float(axis.offset[0]), stream) for axis in head.axes]
            if isinstance(head, ReluBlock):
                at = _block_at(head, queries[0], network.dtype)
            else:
                at = _head_at(head, queries, network.dtype)
            for name, value in zip(head.writes, at, strict=True):
                new[name], sizes[name] = new[name] + value, sizes[name] + abs(value)
        more = gamma(len(layer.heads) + 1, u)
        stream += [new[name] + _around(more * abs_upper(sizes[name])) for name in layer.writes]
    return [affine(row, float(bias), stream) for row, bias in zip(network.readout, network.readout_bias, strict=True)]


def _head_at(head: Head, queries: list[arb], dtype: str) -> list[arb]:
    """Balls with the head's outputs, exact and computed, for queries that lie in the balls."""
    axes = tuple(LineAxis(a, 1.0, 0.0, axis.slopes[:, 0], axis.biases) for a, axis in enumerate(head.axes))
    seen = HeadView(head.name, axes, head.values, np.eye(head.outputs), head)
    sizes = [abs_upper(q) for q in queries]
    if not (all(q.is_finite() for q in queries) and product_fits(axes, head.values, sizes, dtype)):
        return [arb("nan")] * head.outputs
    if len(axes) == 1:
        values, rounding = _line_at(seen, queries[0], dtype)
    else:
        values, rounding = _tensor_at(seen, queries, dtype)
    return [value + _around(float(lost)) for value, lost in zip(values, rounding, strict=True)]


def _line_at(head: HeadView, q: arb, dtype: str) -> tuple[list[arb], Array]:
    """The outputs of a head of one axis, and what rounding adds to each."""
    (axis,) = head.axes
    top, terms, total = _terms(axis, q)
    out = []
    for column in head.values.T.tolist():
        value = sum((t * (arb(v) - arb(column[top])) for t, v in zip(terms, column, strict=True)), arb(0))
        out.append(arb(column[top]) + value / total)
    return out, line_bounds(axis, head, lower(q), upper(q), dtype, 0.0)[0]


def _terms(axis: LineAxis, q: arb) -> tuple[int, list[arb], arb]:
    """The key of the largest logit, about, what the others weigh relative to it, and the sum of that."""
    top = int(np.argmax(axis.slopes * float(q.mid()) + axis.biases))
    k, b = arb(float(axis.slopes[top])), arb(float(axis.biases[top]))
    pairs = zip(axis.slopes.tolist(), axis.biases.tolist(), strict=True)
    terms = [((arb(s) - k) * q + (arb(v) - b)).exp() for s, v in pairs]
    return top, terms, sum(terms[1:], terms[0])


def _tensor_at(head: HeadView, queries: list[arb], dtype: str) -> tuple[arb, Array]:
    """The same for a head of several axes: its values, contracted with the weights of one axis after the other."""
    low, high = (np.array([end(q) for q in queries]) for end in (lower, upper))
    outputs, tensor = head.head.outputs, point_balls(head.values)
    at = View(low, high, np.zeros((outputs, len(queries))), np.zeros(outputs), (head,))
    for axis, q in zip(head.axes, queries, strict=True):
        _, terms, total = _terms(axis, q)
        tensor = contracted(tensor, [term / total for term in terms])
    return tensor, product_bounds(at, head, dtype)[0]


def _block_at(block: ReluBlock, q: arb, dtype: str) -> list[arb]:
    """The same for a block of ReLU units."""
    k, b = block.axis.slopes[:, 0], block.axis.biases
    out = []
    for values in block.values.T:
        if not (q.is_finite() and block_fits(k, b, values, abs_upper(q), dtype)):
            out.append(arb("nan"))
            continue
        total = arb(0)
        for slope, bias, value in zip(k.tolist(), b.tolist(), values.tolist(), strict=True):
            seen = arb(slope) * q + arb(bias)
            if not seen <= 0:
                total = total + arb(value) * (seen if seen >= 0 else ball(0.0, upper(seen)))
        line = BrokenLine(0.0, 0.0, 1.0, 0.0, k, b, values)
        out.append(total + _around(block_rounding(line, lower(q), upper(q), dtype)[0]))
    return out


def _around(radius: float) -> arb:
    """[-radius, radius]."""
    return arb(0, radius) if np.isfinite(radius) else arb("nan")
