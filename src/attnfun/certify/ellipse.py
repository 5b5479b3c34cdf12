"""Bounds on complex ellipses: of the target (complex balls) and of heads (closed forms).

| symbol | meaning |
| --- | --- |
| t_k | variable mapped affinely to [-1, 1]: x_k = mid_k + half_k t_k |
| E_ρ | filled ellipse with semi-axes a = (ρ + 1/ρ)/2, b = (ρ − 1/ρ)/2; its boundary is cos(θ + i ln ρ) |
| P_ρ | product of the E_{ρ_k}; its distinguished boundary is the product of the boundaries |

**Target.** By the maximum principle |f| on P_ρ is at most its maximum on the distinguished boundary, *provided f is
analytic on P_ρ*; boundary values alone prove nothing about a pole inside. So every operation that is not entire is
checked on the family of boundaries E_{ρ^r}, r ∈ [0, 1].

Lemma. Let g be analytic wherever its own operations are, and let C be {0} (for 1/g) or (−∞, 0] (for log g, sqrt g). If
g avoids C on the distinguished boundary of P_{ρ^r} for every r ∈ [0, 1], then g avoids C on P_ρ.
Proof. r = 0 is the real box, where the claim is the hypothesis. Suppose it fails and let r* be the infimum of failures.
For r < r* the function 1/g (for C = {0}), or φ(g) with φ(w) = (√w − 1)/(√w + 1), |φ| < 1 off the cut (for C = (−∞, 0]),
is analytic on P_{ρ^r}, so it is bounded there by its maximum over the compact family of boundaries, a finite number
(respectively one below 1). By continuity the same bound holds on P_{ρ^{r*}}: g avoids C there and, C being closed and
the sets compact, for a little more than r*. Contradiction. Applied inside out along the expression. ∎
The operations of the registry come under it. Poles (of gamma, zeta, …): C = {a} for each of them, with 1/(g − a). Where
f is analytic on a domain U that is simply connected and not the plane (off a cut, off both cuts of asin, one side of
the imaginary axis, erf(D) of `operations/special/errors.py`), C is what U leaves out, and φ is Riemann's map of U onto
the disc; on the compact boundaries |φ(g)| has a maximum below 1, as above.
A `ratio` N(g)/D(g) is finite on a ball only if the operations of N and D are analytic there and δ, D without its zero
at the point (see `language/ratio.py`), is not 0; the lemma then applies to those operations and to 1/δ(g).

**Heads.** With u = e^{τ z}, |Im τz| ≤ φ < π: (1 + |u|)/|1 + u| ≤ 1/cos(φ/2), because |1+u|² − (1+|u|)² cos²(φ/2) = (1 −
cos φ)(1 − |u|)²/2 ≥ 0 for Im τz = φ. So an axis with slopes τ j and biases ln C(m, j) has Σ_j |softmax_j(z)| ≤ S =
cos(φ/2)^−m; if the stored biases are off by at most dev (up to a common shift), with η = e^dev − 1 and ηS < 1 it is at
most (1 + η) S/(1 − ηS), and the denominator has no zero. Any other axis, with spread Δ of its slopes: turn the middle
phase out; all phases lie within ±Δ|Im q|/2, so Σ|softmax_j| ≤ 1/cos(Δ|Im q|/2) while Δ|Im q| < π.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import acb, arb

from attnfun.certify.view import Array, HeadView, LineAxis, View
from attnfun.language import ArrayAlgebra, ComplexBallAlgebra, Graph, Node, run, run_all
from attnfun.language.domain import halved, sub_boxes
from attnfun.language.enclosures import upper
from attnfun.language.operations import OPERATIONS
from attnfun.language.ratio import opened

_ARITHMETIC = frozenset({"const", "var", "pi", "e", "neg", "add", "sub", "mul"})
ENTIRE = _ARITHMETIC | {name for name, entry in OPERATIONS.items() if entry.entire}
# in floats, what must avoid (−∞, 0] for each operation with a branch cut
_CUTS: dict[str, Callable[[Any], Any]] = {name: e.cut for name, e in OPERATIONS.items() if e.cut is not None}
_CUTS |= dict.fromkeys(("powr", "pow"), lambda g: g)

_FAMILY_BOXES = 20000
_BOUNDARY_BOXES = 30000
_ROUNDS = 20  # halvings a side: a pole is not chased to the last bit


@dataclass
class Work:
    """What several covers may spend together: boxes times nodes."""

    left: float = math.inf

    def spend(self, boxes: int, graph: Graph) -> bool:
        """False once it is used up; nothing is proved then."""
        self.left -= boxes * len(graph.nodes)
        return self.left >= 0


def is_entire(graph: Graph) -> bool:
    """No operation of the graph can lose analyticity anywhere."""
    return all(map(_entire, graph.nodes))


def _entire(node: Node) -> bool:
    return node.op in ENTIRE or (node.op == "powi" and isinstance(node.value, int) and node.value >= 0)


# ---------------------------------------------------------------- the target


def _sampled_points(
    names: tuple[str, ...], low: Array, high: Array, rho: Array, n: int, r: float = 1.0, closed: bool = True
) -> dict[str, Any]:
    """n angles an axis of the distinguished boundary of P_{ρ^r}; `closed`: the last angle is the first one again."""
    env = {}
    for k, name in enumerate(names):
        theta = np.linspace(0, np.pi if k == 0 else 2 * np.pi, n, endpoint=closed or k == 0)
        z = np.cos(theta + 1j * r * np.log(rho[k])).reshape([-1 if i == k else 1 for i in range(len(names))])
        env[name] = (low[k] + high[k]) / 2 + (high[k] - low[k]) / 2 * z
    return env


def sampled_maximum(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array, points: int = 0
) -> float:
    """max |f| at finitely many points of the distinguished boundary, in floats: guides the choice of ρ, proves
    nothing.
    """
    n = points or {1: 128, 2: 32, 3: 16}.get(len(low), 8)
    env = _sampled_points(names, low, high, rho, n, closed=False)
    with np.errstate(all="ignore"):
        values = [np.abs(np.asarray(v)) for v in run(graph, ArrayAlgebra(), env)]
    worst = max(float(np.max(v)) for v in values)
    return worst if np.isfinite(worst) else math.inf


def looks_analytic(graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array) -> bool:
    """A float look at the conditions `prove_analytic` will have to prove: saves hopeless covers, proves nothing."""
    if is_entire(graph):
        return True
    graph = opened(graph)
    n = {1: 96, 2: 20, 3: 10}.get(len(names), 6)
    for r in (0.35, 0.7, 1.0):
        env = _sampled_points(names, low, high, rho, n, r)
        with np.errstate(all="ignore"):
            values = run_all(graph, ArrayAlgebra(), env)
        for node in graph.nodes:
            g = np.asarray(values[node.args[-1 if node.op == "div" else 0]]) if node.args else None
            if g is None or g.ndim == 0 or node.op in ENTIRE:
                continue
            if node.op in _CUTS:
                g = _CUTS[node.op](g)
                if not np.all(np.abs(np.angle(g)) < 0.97 * np.pi):
                    return False
            elif node.divides:
                for axis in range(g.ndim):
                    steps = np.abs(np.diff(g, axis=axis))
                    if not np.all(np.abs(np.take(g, range(steps.shape[axis]), axis=axis)) >= 0.6 * steps):
                        return False
    return True


def _points(low: Array, high: Array, names: tuple[str, ...], theta: Any, eta: Any) -> dict[str, Any]:
    """x_k = mid + half cos(θ_k + i η_k) for object arrays of real balls θ_k, η_k."""
    env = {}
    for k, name in enumerate(names):
        mid, half = (arb(float(low[k])) + arb(float(high[k]))) / 2, (arb(float(high[k])) - arb(float(low[k]))) / 2
        make = np.frompyfunc(lambda t, e, mid=mid, half=half: acb(mid) + acb(half) * acb(t, e).cos(), 2, 1)
        env[name] = make(theta[k], eta[k])
    return env


def _finite_rows(values: list[Any], n: int) -> Any:
    good = np.ones(n, dtype=bool)
    finite = np.frompyfunc(lambda z: bool(z.is_finite()), 1, 1)
    for v in values:
        good &= np.broadcast_to(np.asarray(finite(np.asarray(v, dtype=object)), dtype=bool), (n,))
    return good


def _ball_array(low: Array, high: Array) -> Any:
    make = np.frompyfunc(lambda a, b: (arb(a) + arb(b)) / 2 + arb(0, 1) * ((arb(b) - arb(a)) / 2), 2, 1)
    return make(low, high)


def _turns(d: int, parts: int) -> list[Array]:
    """Edges of the angles, ends rounded up: conjugate symmetry of real targets lets the first angle stop at π."""
    half, whole = math.nextafter(math.pi, 10.0), math.nextafter(2 * math.pi, 10.0)
    return [np.linspace(0, half, parts // 2 + 1)] + [np.linspace(0, whole, parts + 1)] * (d - 1)


def prove_analytic(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array, work: Work | None = None
) -> bool:
    """True if the lemma's covers prove every non-entire operation analytic on P_ρ."""
    work = work or Work()
    if is_entire(graph):
        return True
    groups: dict[tuple[str, ...], list[int]] = {}
    for g in (i for i, node in enumerate(graph.nodes) if not _entire(node)):
        groups.setdefault(tuple(sorted(graph.reachable((g,)).variables)), []).append(g)
    for own, nodes in groups.items():
        sub = graph.reachable(nodes)
        keep = [k for k, n in enumerate(names) if n in own]
        if keep and not _cover_family(sub, tuple(names[k] for k in keep), low[keep], high[keep], rho[keep], work):
            return False
    return True


def _cover_family(graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array, work: Work) -> bool:
    """Is every node of the graph finite (hence analytic) on boxes covering {r ∈ [0,1]} × angles?"""
    d = len(names)
    boxes_low, boxes_high = sub_boxes([np.linspace(0, 1, 4), *_turns(d, {1: 16, 2: 8, 3: 6}.get(d, 3))])
    logs = [arb(float(r)).log() for r in rho]
    done, rounds = 0, 0
    while len(boxes_low):
        done, rounds = done + len(boxes_low), rounds + 1
        if done > _FAMILY_BOXES or rounds > _ROUNDS * (d + 1) or not work.spend(len(boxes_low), graph):
            return False
        balls = [_ball_array(boxes_low[:, k], boxes_high[:, k]) for k in range(d + 1)]
        env = _points(low, high, names, balls[1:], [balls[0] * logs[k] for k in range(d)])
        good = _finite_rows(run_all(graph, ComplexBallAlgebra(), env), len(boxes_low))
        boxes_low, boxes_high = halved(boxes_low[~good], boxes_high[~good], np.r_[np.max(np.log(rho)), np.ones(d)])
    return True


def bound_on_boundary(
    graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array, rough: float, work: Work | None = None
) -> float:
    """A proved bound of max_o |f_o| on the distinguished boundary; boxes above 8 × `rough` (or infinite) are halved."""
    d, work = len(names), work or Work()
    boxes_low, boxes_high = sub_boxes(_turns(d, {1: 32, 2: 16, 3: 10}.get(d, 6)))
    logs = [arb(float(r)).log() for r in rho]
    worst, done, rounds = 0.0, 0, 0
    absolute = np.frompyfunc(lambda z: upper(abs(z)), 1, 1)
    while len(boxes_low):
        done, rounds = done + len(boxes_low), rounds + 1
        if not work.spend(len(boxes_low), graph):
            return math.inf
        theta = [_ball_array(boxes_low[:, k], boxes_high[:, k]) for k in range(d)]
        env = _points(low, high, names, theta, logs)
        size = np.zeros(len(boxes_low))
        for v in run(graph, ComplexBallAlgebra(), env):
            size = np.maximum(
                size, np.broadcast_to(np.asarray(absolute(np.asarray(v, dtype=object)), dtype=np.float64), size.shape)
            )
        limit = 8 * max(rough, worst)
        good = size <= limit
        if done + 2 * int((~good).sum()) > _BOUNDARY_BOXES or rounds > _ROUNDS * d:
            good = np.isfinite(size)
            if not good.all():
                return math.inf
        if good.any():
            worst = max(worst, float(size[good].max()))
        boxes_low, boxes_high = halved(boxes_low[~good], boxes_high[~good], np.ones(d))
    return worst


# ---------------------------------------------------------------- heads


def axis_factor(axis: LineAxis, half: float, b: arb) -> arb | None:
    """A bound of Σ_j |softmax_j| on the ellipse of minor semi-axis b, or None where neither closed form applies."""
    height = abs(arb(axis.w)) * arb(half) * b  # |Im q|
    factors = []
    spread = arb(float(axis.slopes.max())) - arb(float(axis.slopes.min()))
    angle = spread * height / 2
    if angle < arb.pi() / 2:
        factors.append(1 / angle.cos())
    tau = axis.lattice_step
    if tau is not None:
        m = axis.size - 1
        angle = arb(tau) * height / 2
        if angle < arb.pi() / 2:
            dev = arb(axis.binomial_deviation)
            s = angle.cos() ** (-m)
            eta = dev.exp() - 1
            if eta * s < 1:
                factors.append((1 + eta) * s / (1 - eta * s))
    finite = [f for f in factors if f.is_finite()]
    return min(finite, key=lambda f: float(f.mid())) if finite else None


def bound_of_network(view: View, rho: Array) -> Array | None:
    """(outputs,) a proved bound of |net_o| on P_ρ, or None where a head may have a pole there."""
    half = (view.high - view.low) / 2
    total = np.zeros(view.outputs)
    b = [(arb(float(r)) - 1 / arb(float(r))) / 2 for r in rho]
    for o in range(view.outputs):
        value = abs(arb(float(view.bias[o])))
        for k in range(view.dim):
            a = (arb(float(rho[k])) + 1 / arb(float(rho[k]))) / 2
            reach = arb(max(abs(float(view.low[k])), abs(float(view.high[k])))) + 2 * arb(float(half[k])) * a
            value = value + abs(arb(float(view.affine[o, k]))) * reach
        for head in view.heads:
            factor = arb(1)
            for axis in head.axes:
                one = axis_factor(axis, math.nextafter(float(half[axis.variable]), math.inf), b[axis.variable])
                if one is None:
                    return None
                factor = factor * one
            centre = arb(float((np.abs(head.mix[o]) @ np.abs(head.centre)) * (1 + 1e-12)))
            value = value + centre + arb(float(head.output_values_bound[o])) * factor
        total[o] = upper(value)
    return total if np.isfinite(total).all() else None


def largest_rho_of_heads(heads: tuple[HeadView, ...], half: Array, d: int) -> Array:
    """(d,) a float estimate of the ρ_k beyond which some head's closed form fails; guides the search only."""
    b = np.full(d, 1e3)
    for head in heads:
        for axis in head.axes:
            unit = abs(axis.w) * half[axis.variable]
            tau = axis.lattice_step
            step = tau if tau is not None else float(np.ptp(axis.slopes))
            if step > 0:
                b[axis.variable] = min(b[axis.variable], 0.98 * math.pi / (step * unit))
    return np.asarray(b + np.sqrt(1 + b * b))
