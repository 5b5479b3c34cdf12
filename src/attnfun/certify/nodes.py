"""Method *nodes*: analytic targets of one to four variables, from the residual at Chebyshev nodes.

Statement. Let r = f − net be analytic on the product P_ρ of ellipses around the box (see `ellipse`), |r| ≤ M there, n_k
Chebyshev nodes of the first kind on axis k, p the polynomial of degree < n_k in t_k that interpolates r at the nodes.
Then

    |r − p| ≤ T = 2M Σ_k (Π_{i<k} q_i) · 2ρ_k^{−(n_k−1)}/(ρ_k−1) · (Π_{i>k} p_i),    p_i = (ρ_i+1)/(ρ_i−1),
    q_i = 1 + 2(1 − ρ_i^{−(n_i−1)})/(ρ_i−1),

because Chebyshev coefficients obey |c_j| ≤ 2^{nonzero} M ρ^−j and interpolation only aliases T_j to ±T_j', so it adds
at most the same tail once more (the telescoped sum avoids the cancellation of Πp − Πq). p is then evaluated on N_k >
n_k nodes per axis; with θ = arccos t it is a trigonometric polynomial of degree n_k − 1 whose maximum is within
π/(2N_k) of a node in each angle, and there it keeps cos((n_k−1)π/(2N_k)) of it (Riesz; Ehlich and Zeller 1964). So

    sup|r| ≤ max_grid |p| / Π_k cos((n_k−1)π/(2N_k)) + T.

In one variable p is skipped: r itself is evaluated at the N nodes and its Chebyshev partial sum is within T/2 of it:
sup|r| ≤ (max + T/2)/cos + T/2. Doubles with a proved error (`exact.network_in_doubles`) say first at which nodes |r|
may be among the largest, and only those are looked at in balls.

The residual at the nodes is in balls. The fine grid is in float64 with its own rounding bound: the interpolation matrix
L has entries off by at most 4(n+6)u, so each contraction costs a relative (γ_n + 4n(n+6)u) of max|p| ΠΛ_k, Λ_k ≥ 1 its
row sums.

Failure modes: no ρ can be proved (singularities close to the box, heads of large slope spread); too many nodes wanted
(3000 / 200 / 60 / 24 an axis for 1 / 2 / 3 / 4 variables, in one variable fewer for targets of many operations);
targets with kinks.
"""

import math
from functools import lru_cache

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from attnfun.certify import ellipse
from attnfun.certify.branches import has_kinks
from attnfun.certify.exact import Balls, network_in_doubles, residual_on_grid
from attnfun.certify.view import Array, Bound, Undecided, View, provided
from attnfun.certify.witness import best_witness
from attnfun.language import BallAlgebra, Graph, precision, run
from attnfun.language.enclosures import abs_upper, doubles, upper

_CAP = {1: 3000, 2: 200, 3: 60, 4: 24}
_OVER = {1: 8, 2: 6, 3: 5, 4: 3}
_U = 2.0**-53
_WORK = 4_000_000  # operations with balls at all nodes of one variable; *moments* takes fewer for such targets
_STARTS = 6  # points from which a witness is looked for


def prove_by_nodes(
    view: View, graph: Graph, names: tuple[str, ...], estimate: float, eps: float, witnessed: bool = True
) -> Bound:
    """Prove a bound of sup|f − net|; `estimate` is a float guess of it, `eps` what would be good enough.

    Not `witnessed`: the lower end is 0, for those who do not ask for it.
    """
    provided(view.dim in _CAP, f"nodes: {view.dim} variables; at most 4 are supported")
    provided(not has_kinks(graph), "nodes: the target has kinks inside the box")
    tolerance = max(estimate / 60, eps * 1e-9, 1e-300)
    with precision(128):
        rho, size, n = _choose(view, graph, names, tolerance, max(tolerance, (eps - estimate) / 4))
        tail = _tail(size, rho, n)
    work = _OVER[1] * int(n[0]) * (len(graph.nodes) + sum(head.values.size for head in view.heads))
    if view.dim == 1 and work > _WORK:
        raise Undecided(
            f"nodes: {int(n[0]):,} nodes and {work:,} operations wanted, past the {_WORK:,} that are budgeted"
        )
    resolved = max(estimate, eps * 1e-6) / 1000
    for bits in (128, 256, 512):
        with precision(bits):
            largest, radius, fine, starts = _residual(view, graph, names, n)
        if radius <= resolved:
            break
    else:
        raise Undecided("nodes: the residual cannot be resolved at 512 bits (cancellation between huge values)")
    with precision(128):
        shrink = arb(1)
        for k in range(view.dim):
            shrink = shrink * (arb(int(n[k]) - 1) * arb.pi() / (2 * int(fine[k]))).cos()
        if view.dim == 1:
            high = upper((arb(largest) + tail / 2) / shrink + tail / 2)
        else:
            high = upper(arb(largest) / shrink + tail)
    provided(math.isfinite(high), "nodes: the bound is not finite")
    step = (view.high - view.low) / 2 * np.pi / fine
    low, witness = best_witness(view, graph, names, starts, step) if witnessed else (0.0, None)
    details = {"nodes": [int(v) for v in n], "rho": [round(float(v), 6) for v in rho], "grid": [int(v) for v in fine]}
    return Bound("nodes", low, high, witness, details)


# ---------------------------------------------------------------- choosing ρ and n


def _choose(view: View, graph: Graph, names: tuple[str, ...], tolerance: float, lax: float) -> tuple[Array, arb, Array]:
    """ρ, a proved bound M of |f − net| on P_ρ, and node counts with T ≤ tolerance (or ≤ lax if the caps demand it)."""
    half = (view.high - view.low) / 2
    ceiling = np.minimum(ellipse.largest_rho_of_heads(view.heads, half, view.dim), 60.0)
    rho = _scan(view, graph, names, tolerance, ceiling)
    for _ in range(14):
        if np.any(rho - 1 < 2e-3):
            break
        net = ellipse.bound_of_network(view, rho)
        if net is not None and ellipse.looks_analytic(graph, names, view.low, view.high, rho):
            rough = ellipse.sampled_maximum(graph, names, view.low, view.high, rho)
            if math.isfinite(rough) and ellipse.prove_analytic(graph, names, view.low, view.high, rho):
                f = ellipse.bound_on_boundary(graph, names, view.low, view.high, rho, rough)
                if math.isfinite(f):
                    size = arb(f) + arb(float(net.max()))
                    for goal in (tolerance, lax):
                        n = _counts(upper(size), rho, goal)
                        if np.all(n <= _CAP[view.dim]):
                            return rho, size, n
                    raise Undecided(f"nodes: {int(n.max())} nodes per axis wanted, the cap is {_CAP[view.dim]}")
        rho = 1 + (rho - 1) * 0.8
    raise Undecided("nodes: no complex ellipse around the box could be proved free of singularities")


def _scan(view: View, graph: Graph, names: tuple[str, ...], tolerance: float, ceiling: Array) -> Array:
    """A float search for the ρ that needs the fewest nodes: first one for all axes, then axis by axis."""

    def cost(rho: Array) -> tuple[float, float]:
        f = ellipse.sampled_maximum(graph, names, view.low, view.high, rho)
        net = ellipse.bound_of_network(view, rho)
        if net is None or not math.isfinite(f) or not ellipse.looks_analytic(graph, names, view.low, view.high, rho):
            return math.inf, f
        return float(np.prod(_counts(f + float(net.max()), rho, tolerance).astype(np.float64))), f

    best, best_cost, previous = np.minimum(np.full(view.dim, 1.02), ceiling), math.inf, 0.0
    for excess in np.geomspace(0.01, 30.0, 36):
        rho = np.minimum(1 + excess, ceiling)
        value, f = cost(rho)
        if f < previous * 0.999:
            break  # |f| on growing ellipses can only fall when a pole was passed
        previous = f
        if value < best_cost:
            best, best_cost = rho, value
        if np.all(rho >= ceiling):
            break
    if view.dim > 1:
        for factor in (1.4, 1.15):
            for k in range(view.dim):
                for change in (factor, 1 / factor):
                    for _ in range(4):
                        trial = best.copy()
                        trial[k] = min(1 + (trial[k] - 1) * change, ceiling[k])
                        value, _f = cost(trial)
                        if not value < best_cost:
                            break
                        best, best_cost = trial, value
    return best


def _counts(size: float, rho: Array, tolerance: float) -> Array:
    """(d,) node counts with T ≤ tolerance, by the formula for T with every q replaced by p."""
    d = len(rho)
    with np.errstate(all="ignore"):  # ρ = 1 asks for more nodes than there are
        p = (rho + 1) / (rho - 1)
        other = np.prod(p) / p
        wanted = np.log(4 * max(size, 1e-300) * d * other / ((rho - 1) * tolerance)) / np.log(rho)
    wanted = np.where(wanted < 1e9, wanted, 1e9)
    return np.maximum(np.ceil(wanted).astype(np.int64) + 1, 3)


def _tail(size: arb, rho: Array, n: Array) -> arb:
    """T of the module's statement, in balls."""
    r = [arb(float(v)) for v in rho]
    p = [(v + 1) / (v - 1) for v in r]
    q = [1 + 2 * (1 - v ** (1 - int(m))) / (v - 1) for v, m in zip(r, n, strict=True)]
    total = arb(0)
    for k in range(len(r)):
        term = 2 * r[k] ** (1 - int(n[k])) / (r[k] - 1)
        for i in range(k):
            term = term * q[i]
        for i in range(k + 1, len(r)):
            term = term * p[i]
        total = total + term
    return 2 * size * total


# ---------------------------------------------------------------- the residual on the fine grid


def chebyshev_nodes(count: int, low: float, high: float) -> list[arb]:
    """mid + half cos((2i+1)π/(2 count)), as balls."""
    mid, half = (arb(low) + arb(high)) / 2, (arb(high) - arb(low)) / 2
    return [mid + half * t for t in _unit_nodes(count, ctx.prec)]


@lru_cache(maxsize=32)
def _unit_nodes(count: int, _precision: int) -> list[arb]:
    return [(arb(2 * i + 1) * arb.pi() / (2 * count)).cos() for i in range(count)]


def _residual(view: View, graph: Graph, names: tuple[str, ...], n: Array) -> tuple[float, float, Array, Array]:
    """(upper bound of max|p| or |r| on the fine grid, largest ball radius, N, starting points for the witness)."""
    fine = np.array([_OVER[view.dim] * int(v) for v in n])
    used = fine if view.dim == 1 else n
    nodes = [chebyshev_nodes(int(used[k]), float(view.low[k]), float(view.high[k])) for k in range(view.dim)]
    rough, leading = np.zeros(0), np.arange(0)
    if view.dim == 1:
        rough, leading = _leading(view, graph, names, nodes[0])
        nodes = [[nodes[0][i] for i in leading]]
    residuals = residual_on_grid(view, graph, names, nodes)
    largest, radius = 0.0, 0.0
    starts: list[tuple[float, Array]] = []
    for o, r in enumerate(residuals):
        values, rads = _floats(r)
        radius = max(radius, float(rads.max()))
        if view.dim == 1:
            grid = rough[o]
            grid[leading] = values
            largest = max(largest, max(abs_upper(v) for v in r.ravel()))
        else:
            grid, error = _refine(values, rads, n, fine)
            size = float(np.max(np.abs(grid))) * (1 + 4 * _U) + error
            largest = max(largest, size if size == size else math.inf)  # max() would drop a NaN
        for flat in np.argsort(np.abs(grid), axis=None)[-2:]:
            index = np.unravel_index(flat, grid.shape)
            t = [math.cos((2 * i + 1) * math.pi / (2 * m)) for i, m in zip(index, fine, strict=True)]
            point = (view.low + view.high) / 2 + (view.high - view.low) / 2 * np.array(t)
            starts.append((float(np.abs(grid[index])), point))
    starts = sorted(starts, key=lambda pair: -pair[0])[:_STARTS]  # two an output would be many
    return largest, radius if math.isfinite(radius) else math.inf, fine, np.array([point for _, point in starts])


def _leading(view: View, graph: Graph, names: tuple[str, ...], nodes: list[arb]) -> tuple[Array, NDArray[np.intp]]:
    """r at all nodes in doubles (outputs, N), and the nodes at which |r| may be among the two largest of an output.

    At the others |r| is proved to be smaller: only the leading ones are worth balls. The further the doubles are off,
    the more of them there are; all, where nothing is known of how far.
    """
    f = run(graph, BallAlgebra(clip_sqrt=True), {names[0]: np.array(nodes, dtype=object)})
    exact, off = _floats(np.stack([np.broadcast_to(np.asarray(value, dtype=object), (len(nodes),)) for value in f]))
    with np.errstate(all="ignore"):
        net, doubt = network_in_doubles(view, np.array([float(node) for node in nodes]))
        rough = exact - net
        doubt = (doubt + off + 2 * _U * np.abs(rough)) * (1 + 1e-9)
        size = np.abs(rough)
        if not np.isfinite(doubt).all():
            return rough, np.arange(len(nodes))
        second = np.partition(size - doubt, -2, axis=1)[:, -2:-1]
        return rough, np.flatnonzero(np.any(~(size + doubt < second), axis=0))


def _floats(r: Balls) -> tuple[Array, Array]:
    """`doubles`; the distance is infinite where either is not finite."""
    mids, off = doubles(r)
    return mids, np.where(np.isfinite(mids) & np.isfinite(off), off, np.inf)


def _cosines(n: int) -> Array:
    """cos(jπ/(2n)), j = 0 … 4n−1, each within u of the truth (balls, rounded once)."""
    assert ctx.prec >= 64
    quarter = [float((arb(j) * arb.pi() / (2 * n)).cos().mid()) for j in range(n + 1)]
    c = np.empty(4 * n)
    j = np.arange(n + 1)
    c[j] = quarter
    c[2 * n - j] = -np.array(quarter)
    c[(2 * n + j)] = -np.array(quarter)
    c[(4 * n - j) % (4 * n)] = quarter
    return c


def interpolation_matrix(n: int, fine: int) -> Array:
    """(fine, n) values of the Lagrange polynomials of n Chebyshev nodes at `fine` Chebyshev nodes, within 4(n+6)u."""
    i, j, k = np.arange(fine), np.arange(n), np.arange(n)
    at = _cosines(fine)[np.outer(2 * i + 1, k) % (4 * fine)]
    own = _cosines(n)[np.outer(2 * j + 1, k) % (4 * n)] * (2.0 / n)
    own[:, 0] = 1.0 / n
    return np.asarray(at @ own.T)


def _refine(values: Array, rads: Array, n: Array, fine: Array) -> tuple[Array, float]:
    """The interpolant on the fine grid in float64 and a bound of its error (see the module's last paragraph)."""
    grid, relative, product = values, 0.0, 1.0
    for k, (m, big) in enumerate(zip(n, fine, strict=True)):
        matrix = interpolation_matrix(int(m), int(big))
        entry = 4 * (m + 6) * _U
        row_sum = max(1.0, float(np.abs(matrix).sum(axis=1).max()) * (1 + 1e-9) + m * entry)
        relative += 2 * (m + 2) * _U + m * entry
        product *= row_sum
        grid = np.moveaxis(np.tensordot(matrix, grid, axes=(1, k)), 0, k)
    error = product * (float(rads.max()) + float(np.abs(values).max()) * relative * 1.01) * (1 + 1e-9)
    return grid, error
