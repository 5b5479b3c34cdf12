"""Method *moments*: one variable, any head, kinks and end-point singularities allowed: Taylor forms and bisection.

On [c − r, c + r] a head is N/D with D = Σ e^{κ_j s} p_j, N = Σ (V_j − v) e^{κ_j s} p_j + v D, s = x − c, where
p_j = e^{l_j(c) − l_ref} and κ_j is the slope in x less a common one (softmax ignores it). Its Taylor coefficients at c
are softmax moments, D_i = Σ p_j κ_j^i/i!, N_i likewise, and the remainders after n terms are at most
R_D = Σ p_j (|κ_j| r)^n/n! e^{|κ_j| r}, R_N the same with |V_j − v|. D is convex, so D ≥ D_0 − |D_1| r =: δ.
Let h be the power series N/D cut to n terms. Then on the interval

    |N/D − h| = |N − D h|/D ≤ ( Σ_{i ≥ n} |(N − D h)_i| r^i + R_N + R_D Σ|h_i| r^i ) / δ.

The target has its own Taylor form: coefficients f_i at c, and |f_n| r^n with f_n enclosed over the whole interval. So

    |f − net| ≤ max over |s| ≤ r of |Σ_{i<3} g_i s^i| + Σ_{3≤i<n} |g_i| r^i + |f_n| r^n + head remainders,

g_i = f_i − h_i − (affine part)_i; the maximum is that of a parabola, at its vertex or an end. Keys whose logit lies
more than 85 below the largest over the whole interval (a computed bound of the float error of the logits is counted)
are left out; they weigh count · e^−85 (max V − min V)/δ. Where the target's series does not exist on the interval (a
kink, a root at 0), or gives little (a long flat stretch), the range form is used: f in a ball over the interval against
the head's own Taylor range. Intervals are halved, worst first, until each is below the goal. The bound is the maximum
over intervals that always cover the domain, so a search that stops early may only return a larger bound, or nothing. A
target of many operations has few intervals and a long series, which costs such a target hardly more than a short one;
the polynomial Σ g_i s^i of an interval is then halved in place of the interval: p(s + r/2) is a shift of coefficients.

Failure modes: more than 40,000 intervals, fewer for large heads and targets (a discontinuous target, a goal below the
true error).
"""

import heapq
import itertools
import math
import operator
from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat, arb_poly
from numpy.typing import NDArray

from attnfun.certify.view import Array, Bound, HeadView, LineAxis, Undecided, View, provided
from attnfun.certify.witness import best_witness, error_at
from attnfun.language import BallAlgebra, Graph, Kink, SeriesAlgebra, precision, run
from attnfun.language.enclosures import abs_upper, ball, lower, upper
from attnfun.language.ratio import divided
from attnfun.language.series import series_length

_INTERVALS, _LEAST = 40_000, 100
_WORK = 8_000_000  # operations with balls, about, of all intervals together
_LARGE, _LONG = 300, 24  # operations of a target from which on its series is so long
_SERIES = 150_000  # operations with series of a large target, of all intervals together
_HALVINGS = 6  # of the polynomial of a large target
_FAR = 85.0
_GONE = 1.22e-37  # e^-85 = 1.217e-37, and the rounding of the comparison
_SLACK = 1.06  # proved bound over witness that the bisection aims at
_CLOSE = 1.002  # eps over witness from which on eps itself is aimed at, where that asks for more


def prove_by_moments(
    view: View, graph: Graph, names: tuple[str, ...], estimate: float, eps: float, starts: Array, stop: float = math.inf
) -> Bound:
    """Prove a bound of sup|f − net| for one variable; `starts` are points of large sampled error, `stop` an error whose
    witness ends the search.
    """
    provided(view.dim == 1, "moments: only for one variable")
    width = float(view.high[0] - view.low[0])
    looks = 40 if len(graph.nodes) <= _LARGE else 12
    low, witness = best_witness(view, graph, names, starts, np.array([width / 500]), evaluations=looks)
    order = 8 if estimate > 1e-4 * width else 12 if estimate > 1e-8 * width else 18
    order = _LONG if len(graph.nodes) > _LARGE else order
    with precision(160 if estimate > 1e-12 else 256):
        high, count, low, witness = _bisect(view, graph, names, order, low, witness, eps, stop)
    return Bound("moments", low, high, witness, {"intervals": count, "order": order})


def _bisect(
    view: View, graph: Graph, names: tuple[str, ...], order: int, low: float, witness: Array, eps: float, stop: float
) -> tuple[float, int, float, Array]:
    """Best-first halving until every interval is below max(1.06 × witness, a floor far below eps), or below eps where
    that is less and the witness leaves room for it.
    """
    a, b = float(view.low[0]), float(view.high[0])
    columns = sum(head.values.size for head in view.heads)
    most = min(_INTERVALS, max(_LEAST, _WORK // (order * (columns + order * len(graph.nodes)))))
    if len(graph.nodes) > _LARGE:
        most = _SERIES // len(graph.nodes)
    count, goal = 8, 0.0

    def entered(left: float, right: float) -> tuple[float, float, float]:
        return -residual_bound(view, graph, names, order, left, right, goal), left, right

    heap = [entered(left, right) for left, right in itertools.pairwise(np.linspace(a, b, count + 1).tolist())]
    heapq.heapify(heap)
    while True:
        worst, left, right = heap[0]
        usual = goal = max(_SLACK * low, eps * 1e-4)
        if _CLOSE * low <= eps < usual:
            goal = eps
        if -worst <= goal:
            return -worst, count, low, witness
        if low > stop:
            return -worst if math.isfinite(worst) else math.inf, count, low, witness
        middle = left + (right - left) / 2
        if count >= most or not left < middle < right:
            if -worst <= max(usual, eps):
                return -worst, count, low, witness
            raise Undecided(f"moments: not decided after {count} intervals (near {names[0]}={left:.17g})")
        seen = error_at(view, graph, names, np.array([middle]))
        if seen > low:
            low, witness = seen, np.array([middle])
        heapq.heapreplace(heap, entered(left, middle))
        heapq.heappush(heap, entered(middle, right))
        count += 2


Net = tuple[float, float, list[tuple[list[arb], arb]] | None]  # of `_net_models`


@dataclass(frozen=True)
class Model:
    """net − f on |x − c| ≤ radius: Σ_i coefficients[i] (x − c)^i, up to `rest` in absolute value; c is the middle."""

    radius: float
    coefficients: list[arb]
    rest: arb


def residual_models(
    view: View, graph: Graph, names: tuple[str, ...], order: int, left: float, right: float
) -> list[Model] | None:
    """One model an output on [left, right]; None where the target or a head has no Taylor form there."""
    return _models(_net_models(view, order, left, right), graph, names, order, left, right)


def _models(
    net: Net, graph: Graph, names: tuple[str, ...], order: int, left: float, right: float
) -> list[Model] | None:
    c, radius, nets = net
    if nets is None:
        return None
    try:
        with series_length(order + 1):
            algebra = SeriesAlgebra(order + 1)
            whole = algebra.variable(ball(left, right))
            last = [algebra.coefficients(s)[order] for s in run(graph, algebra, {names[0]: whole})]
        with series_length(order):
            algebra = SeriesAlgebra(order)
            centre = [algebra.coefficients(s) for s in run(graph, algebra, {names[0]: algebra.variable(arb(c))})]
    except Kink:
        return None
    if not (all(v.is_finite() for v in last) and all(v.is_finite() for s in centre for v in s)):
        return None
    power = arb(radius) ** order
    return [
        Model(radius, [x - y for x, y in zip(net, f, strict=True)], rest + abs(tail) * power)
        for (net, rest), f, tail in zip(nets, centre, last, strict=True)
    ]


def _net_models(view: View, order: int, left: float, right: float) -> Net:
    """Centre and radius, and per output the network's Taylor coefficients with a bound of what they leave out."""
    c = left + (right - left) / 2
    radius = math.nextafter(max(right - c, c - left), math.inf)
    models = []
    for head in view.heads:
        model = _head_model(head, c, radius, order)
        if model is None:
            return c, radius, None
        models.append(model)
    nets = []
    for o in range(view.outputs):
        net, rest = [arb(0)] * order, arb(0)
        net[0] = arb(float(view.bias[o])) + arb(float(view.affine[o, 0])) * arb(c)
        net[1] = arb(float(view.affine[o, 0]))
        for head, (series, remainders) in zip(view.heads, models, strict=True):
            for k in np.flatnonzero(head.mix[o]).tolist():
                weight = arb(float(head.mix[o, k]))
                net = [x + weight * y for x, y in zip(net, series[k], strict=True)]
                rest = rest + abs(weight) * remainders[k]
        nets.append((net, rest))
    return c, radius, nets


def residual_bound(
    view: View,
    graph: Graph,
    names: tuple[str, ...],
    order: int,
    left: float,
    right: float,
    enough: float = 0.0,
    halvings: int = 0,
) -> float:
    """An upper bound of max_o |f_o − net_o| on [left, right], by Taylor forms, or where those give more than `enough`
    by the range form if it is less; infinity where neither applies. With `halvings`, or for a large target, the
    polynomials are bounded on halves of the interval instead.
    """
    halvings = _HALVINGS if len(graph.nodes) > _LARGE else halvings
    net, bound = _net_models(view, order, left, right), math.inf
    models = _models(net, graph, names, order, left, right)
    if models is not None:
        bound = _largest([top + m.rest for m in models for top in _tops(m.coefficients, m.radius)])
        if halvings and bound > enough:
            worst = 0.0
            for m in models:
                top = _halved_top(m.coefficients, m.radius, max(enough, worst) - upper(m.rest), halvings)
                worst = max(worst, _largest([arb(top) + m.rest]))
            return worst
    if bound <= enough:
        return bound
    values = run(graph, BallAlgebra(clip_sqrt=True), {names[0]: ball(left, right)})
    return min(bound, _range_form(net, values))


def _range_form(net: Net, values: list[arb]) -> float:
    """max_o |values_o − net_o(x)| for x in the models' interval: a ball against the heads' Taylor ranges."""
    _, radius, nets = net
    if nets is None:
        return math.inf
    off = []
    for value, (series, rest) in zip(values, nets, strict=True):
        off.append(arb(abs_upper(value - series[0])) + _size([arb(0), *series[1:]], radius) + rest)
    return _largest(off)


def net_range(view: View, left: float, right: float) -> tuple[float, float]:
    """An interval that contains the first output on [left, right]; (−∞, ∞) where the heads have no Taylor form."""
    _, radius, nets = _net_models(view, 6, left, right)
    if nets is None:
        return -math.inf, math.inf
    net, rest = nets[0]
    swing = _size([arb(0), *net[1:]], radius) + rest
    return lower(net[0] - swing), upper(net[0] + swing)


def _size(coefficients: list[arb], radius: float) -> arb:
    """Σ |c_i| r^i."""
    total, power, r = arb(0), arb(1), arb(radius)
    for value in coefficients:
        total, power = total + abs(value) * power, power * r
    return total


def _tops(coefficients: list[arb], radius: float) -> tuple[arb, arb]:
    """Upper bounds of f and of −f, f = Σ c_i s^i on |s| ≤ r: the parabola of the first three terms by its vertex or its
    ends, Σ_{i≥3} |c_i| r^i for the others.
    """
    a, b, c = [*coefficients[:3], arb(0), arb(0), arb(0)][:3]
    rest = _size([arb(0)] * 3 + coefficients[3:], radius)
    return _parabola(a, b, c, radius) + rest, _parabola(-a, -b, -c, radius) + rest


def _halved_top(coefficients: list[arb], radius: float, enough: float, halvings: int = _HALVINGS) -> float:
    """An upper bound of |f|, f = Σ c_i s^i on |s| ≤ r, on halves of the interval where it is not below `enough`."""
    top = _largest(list(_tops(coefficients, radius)))
    if top <= enough or not halvings:
        return top
    half = arb(radius) / 2  # exact
    worst = 0.0
    for end in (-half, half):  # what cannot be above the worst so far is not halved
        part = arb_poly(coefficients)(arb_poly([end, 1])).coeffs()
        worst = max(worst, _halved_top(part, radius / 2, max(enough, worst), halvings - 1))
    return worst


def _parabola(a: arb, b: arb, c: arb, radius: float) -> arb:
    """An upper bound of a + b s + c s² on |s| ≤ r. Comparisons of balls are true only if they are certain."""
    r = arb(radius)
    straight = a + abs(b) * r
    if not c < 0:
        return straight + (c if c >= 0 else abs(c)) * r * r
    if abs(b) >= -2 * c * r:
        return straight + c * r * r  # the vertex is not inside: an end
    vertex = a - b * b / (4 * c)  # the largest value on the whole line
    return vertex if upper(vertex) < upper(straight) else straight


def _largest(values: list[arb]) -> float:
    """The largest upper end; infinity for NaN."""
    worst = 0.0
    for value in map(upper, values):
        if not value <= worst:  # NaN must not pass
            worst = value if value == value else math.inf
    return worst


def _head_model(head: HeadView, c: float, r: float, n: int) -> tuple[list[list[arb]], list[arb]] | None:
    """Taylor coefficients and remainder bound of every output of the head on |x − c| ≤ r; None if δ is not positive."""
    (axis,) = head.axes
    keep, dropped, slopes, logits = _near_keys(axis, c, r)
    if len(keep) == 1:
        return _resting(head, int(keep[0]), dropped, slopes, r, n)
    centre = arb(axis.w) * arb(c) + arb(axis.c)
    own = [arb(k) for k in axis.slopes[keep].tolist()]
    exact = [k * centre + arb(b) for k, b in zip(own, axis.biases[keep].tolist(), strict=True)]
    reference = exact[int(np.argmax(logits))]
    p = [(v - reference).exp() for v in exact]
    w, common = arb(axis.w), arb(slopes)
    kappa = [w * (k - common) for k in own]
    ball_r = arb(r)
    columns = head.values[keep].T
    shifts = [arb(float(column[int(np.argmax(logits))])) for column in columns]
    weighted = [
        [(arb(v) - shift) * q for v, q in zip(column.tolist(), p, strict=True)]
        for column, shift in zip(columns, shifts, strict=True)
    ]
    (moments_d, remainder_d), *numerators = _moments([p, *weighted], kappa, ball_r, n)
    delta = moments_d[0] - abs(moments_d[1]) * ball_r
    if not delta > 0:
        return None
    poly_d = arb_poly(moments_d)
    series, remainders = [], []
    for k, (shift, (moments_n, remainder_n)) in enumerate(zip(shifts, numerators, strict=True)):
        h = divided(moments_n, moments_d)
        product = poly_d * arb_poly(h)
        rest, power = arb(0), ball_r**n
        for i in range(n, 2 * n - 1):
            rest = rest + abs(product[i]) * power
            power = power * ball_r
        lost = arb(dropped * float(np.ptp(head.values[:, k])) * 1.001)
        remainders.append((rest + remainder_n + remainder_d * _size(h, r) + lost) / delta)
        h[0] = h[0] + shift
        series.append(h)
    return series, remainders


def _resting(
    head: HeadView, j: int, dropped: float, common: float, r: float, n: int
) -> tuple[list[list[arb]], list[arb]] | None:
    """The model where key j alone is in sight: D ≥ δ = 1 − |κ_j| r, and the head is V_j up to what the others weigh."""
    (axis,) = head.axes
    delta = 1 - abs(arb(axis.w) * (arb(float(axis.slopes[j])) - arb(common))) * arb(r)
    if not delta > 0:
        return None
    series = [[arb(float(v))] + [arb(0)] * (n - 1) for v in head.values[j]]
    lost = [arb(dropped * float(np.ptp(column)) * 1.001) / delta for column in head.values.T]
    return series, lost


def _near_keys(axis: LineAxis, c: float, r: float) -> tuple[NDArray[np.intp], float, float, Array]:
    """Keys that matter on the interval, the weight of the others (relative to the largest at c), a common slope,
    logits.
    """
    logits, error = axis.logits(c)
    weights = np.exp(np.clip(logits - logits.max(), -700, 0))
    common = float((weights @ axis.slopes) / weights.sum())
    reach = np.abs(axis.slopes - common) * abs(axis.w) * r * (1 + 1e-9)
    top = np.max(logits - error)
    keep = np.flatnonzero(~(logits + error + reach < top - _FAR))
    dropped = (len(logits) - len(keep)) * _GONE
    return keep, dropped, common, (logits - error)[keep]  # so that the reference key surely reaches `top`


def _moments(weights: list[list[arb]], kappa: list[arb], r: arb, n: int) -> list[tuple[list[arb], arb]]:
    """For every row p of weights Σ p_j κ_j^i/i! for i < n, and Σ |p_j| (|κ_j| r)^n/n! e^{|κ_j| r}."""
    powers = [list(itertools.accumulate(itertools.repeat(k, n), operator.mul, initial=arb(1))) for k in kappa]
    rests = [[abs(row.pop()) * (abs(k) * r).exp()] for row, k in zip(powers, kappa, strict=True)]
    sums = arb_mat(weights) * arb_mat(powers)
    sizes = arb_mat([[abs(p) for p in row] for row in weights]) * arb_mat(rests)
    factorials = [math.factorial(i) for i in range(n)]
    return [
        ([sums[j, i] / factorial for i, factorial in enumerate(factorials)], sizes[j, 0] * r**n / math.factorial(n))
        for j in range(len(weights))
    ]


def range_bound(view: View, values: list[arb], left: float, right: float, goal: float) -> float:
    """max_o |values_o − net_o(x)| for x in [left, right], from the heads' Taylor ranges, worst first halved until below
    `goal` or some hundred times.
    """
    heap = [(-_range_form(_net_models(view, 8, left, right), values), left, right)]
    for _ in range(200):
        worst, a, b = heap[0]
        middle = a + (b - a) / 2
        if -worst <= goal or not a < middle < b:
            break
        heapq.heapreplace(heap, (-_range_form(_net_models(view, 8, a, middle), values), a, middle))
        heapq.heappush(heap, (-_range_form(_net_models(view, 8, middle, b), values), middle, b))
    return -heap[0][0]
