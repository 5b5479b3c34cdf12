"""Chebyshev coefficients of a function of several variables, enclosed: a polynomial p and a bound of sup |f − p|.

Statement. Let f be continuous on a box, N_k Chebyshev nodes of the first kind on axis k, I_k interpolation in variable
k. If f, as a function of variable k alone with the others real, is analytic on the ellipse E_{ρ_k} (see `ellipse`) and
|f| ≤ M_k there, then with Λ_N = (2/π) ln N + 1 ≥ the Lebesgue constant

    sup |f − I_1 … I_m f| ≤ tail = Σ_k (Π_{i<k} Λ_{N_i}) · 4 M_k ρ_k^{−(N_k−1)}/(ρ_k − 1),

for f − I_1 … I_m f = Σ_k I_1 … I_{k−1} (f − I_k f), and in one variable the interpolant is off by at most twice the
tail of the Chebyshev series (`nodes`). Only one variable is complex at a time, so M_k is small and ρ_k large.

The coefficients of I_1 … I_m f are linear in the values at the nodes. Up to `_BALLS` values are balls, and so are the
coefficients. Beyond, values are float64 intervals (mid ± rad) and each axis is one float64 matrix product with
D = ((2 − δ_j0)/N · cos(jθ_i)): with u = 2^−53, in Frobenius norms,

    ‖D‖₂ ≤ sqrt(2/N) (its rows are orthogonal, with squared norms 1/N and 2/N),
    ‖computed − exact‖ ≤ 1.01 (N + 12) u ‖|D|‖₂ ‖F‖,  ‖|D|‖₂ ≤ sqrt(‖|D|‖_1 ‖|D|‖_∞),

and Σ|δC| ≤ sqrt(entries) ‖δC‖: `slack`. What is returned is the float64 table C with

    sup |f − Σ_J C_J T_J| ≤ slack + tail = error,    Σ|C_J| ≤ size.

Failure mode: Undecided where f is not analytic near the box, or the table would be too large.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import flint
import numpy as np
from flint import arb

from attnfun.certify.ellipse import Work, bound_on_boundary, looks_analytic, prove_analytic, sampled_maximum
from attnfun.certify.nodes import chebyshev_nodes
from attnfun.certify.view import Array, Undecided, provided
from attnfun.kinds.relation.features import along
from attnfun.language import ArrayAlgebra, BallAlgebra, Graph, NotAnalytic, precision, run, run_all
from attnfun.language.enclosures import lowers, upper, uppers
from attnfun.language.graph import NOT_ANALYTIC
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.numbers import bisected

_U = 2.0**-53
_BALLS = 40_000
_VALUES = 6_000_000
_MOST_NODES = 400
_MOST_WORK = 2_000_000  # boxes times nodes of the graph, of the covers of an axis that are of one kind
_MOST_VARIABLES = 6
_RHO = 1 + np.geomspace(0.02, 60, 64)


@dataclass(frozen=True)
class Expansion:
    """C (N_1, …, N_m): sup |f − Σ C_J T_J| ≤ error and Σ|C_J| ≤ size; `libm` if float64 intervals were used."""

    table: Array
    error: float
    size: float
    libm: bool


def expansion(graph: Graph, names: tuple[str, ...], low: Array, high: Array, tolerance: float) -> Expansion:
    """Coefficients with an error near `tolerance` (it steers, and proves nothing). Call under `precision(128)`."""
    if any(node.op in NOT_ANALYTIC for node in graph.nodes):
        raise Undecided("coefficients: the relation has a kink, so its Chebyshev series decays too slowly")
    d = len(names)
    if d == 0:
        value = run(graph, BallAlgebra(), {})[0]
        mid = float(value.mid())
        return Expansion(np.array(mid), upper(abs(value - arb(mid))), upper(abs(value)), False)
    provided(d <= _MOST_VARIABLES, f"coefficients: {d} variables that belong together are more than {_MOST_VARIABLES}")
    used, part = set(graph.variables), tolerance / (2 * d)
    axes = [_axis(graph, names, low, high, k, part) if name in used else (1, arb(0)) for k, name in enumerate(names)]
    counts, tail = [n for n, _ in axes], summed_tails(axes)
    provided(math.prod(counts) <= _VALUES, f"coefficients: a grid of {' × '.join(map(str, counts))} is out of reach")
    nodes = [chebyshev_nodes(n, float(a), float(b)) for n, a, b in zip(counts, low, high, strict=True)]
    exact = math.prod(counts) <= _BALLS
    table, slack = _by_balls(graph, names, nodes) if exact else _by_intervals(graph, names, nodes)
    error = math.nextafter(slack * (1 + 1e-12) + upper(tail), math.inf)
    size = float(np.abs(table).sum()) * (1 + 2 * (table.size + 2) * _U)
    provided(math.isfinite(error) and math.isfinite(size), "coefficients: the relation is not enclosed at the nodes")
    return Expansion(table, error, size, not exact)


def summed_tails(axes: Sequence[tuple[int, arb]]) -> arb:
    """Σ_k (Π_{i<k} Λ_{N_i}) bound_k for (N_k, bound_k) of every axis."""
    tail, lebesgue = arb(0), arb(1)
    for n, one in axes:
        tail += lebesgue * one
        lebesgue *= 2 / arb.pi() * arb(n).log() + 1
    return tail


def _axis(graph: Graph, names: tuple[str, ...], low: Array, high: Array, k: int, tolerance: float) -> tuple[int, arb]:
    """(nodes, bound of |f − I_k f|) for variable k."""
    covers, boundaries = Work(_MOST_WORK), Work(_MOST_WORK)

    def ellipse(i: int) -> Array:
        rho = np.ones(len(names))
        rho[k] = _RHO[i]
        return rho

    def analytic(i: int) -> bool:
        rho = ellipse(i)
        try:
            looks = looks_analytic(graph, names, low, high, rho) and _looks_clear(graph, names, low, high, rho)
            return looks and prove_analytic(graph, names, low, high, rho, covers)
        except NotAnalytic:
            return False

    # an ellipse inside one on which f is analytic needs no second proof; where the smallest fails none is looked for
    last, trials = len(_RHO) - 1, []
    good = -1 if not analytic(0) else last if analytic(last) else bisected(0, last, lambda i: not analytic(i)) - 1
    for i in range(good + 1):
        r, size = float(_RHO[i]), sampled_maximum(graph, names, low, high, ellipse(i))
        if math.isfinite(size):
            trials.append((_enough(size, r, tolerance), i, r, size))
    for n, i, r, size in sorted(trials)[:8]:
        bound = bound_on_boundary(graph, names, low, high, ellipse(i), size, boundaries)
        if not math.isfinite(bound):
            continue
        n = max(n, _enough(bound, r, tolerance))
        if n <= _MOST_NODES:
            return n, 4 * arb(bound) * arb(r) ** (1 - n) / (arb(r) - 1)
    raise Undecided(f"coefficients: no ellipse around {names[k]} is known on which the relation is analytic")


def _enough(size: float, r: float, tolerance: float) -> int:
    """The nodes for which the tail 4 size r^{1−n}/(r − 1) is about `tolerance`, whatever the sizes: steers only."""
    tolerance = max(tolerance, math.ulp(0.0))
    n = math.log(4) + math.log(max(size, tolerance)) - math.log(tolerance) - math.log(r - 1)
    return max(2, math.ceil(n / math.log(r)) + 1)


_POLES = {"tanh": 1.5, "sigmoid": 3.0, "softplus": 3.0}


def _looks_clear(graph: Graph, names: tuple[str, ...], low: Array, high: Array, rho: Array) -> bool:
    """Do samples keep the arguments of tanh and its kin in the strip without poles? Saves covers, proves nothing."""
    if not any(node.op in _POLES for node in graph.nodes):
        return True
    theta = np.linspace(0, np.pi, {1: 65, 2: 33, 3: 13}.get(len(names), 7))
    lines = [(a + b) / 2 + (b - a) / 2 * np.cos(theta + 1j * np.log(r)) for a, b, r in zip(low, high, rho, strict=True)]
    with np.errstate(all="ignore"):
        values = run_all(graph, ArrayAlgebra(), dict(zip(names, np.ix_(*lines), strict=True)))
    for node in graph.nodes:
        if node.op in _POLES and not np.all(np.abs(np.imag(values[node.args[0]])) < _POLES[node.op]):
            return False
    return True


# ---------------------------------------------------------------- the values at the nodes, and their coefficients


def _grid(names: tuple[str, ...], nodes: list[list[arb]]) -> dict[str, Any]:
    """The nodes of every variable along an axis of its own."""
    return dict(zip(names, np.ix_(*(np.array(own, dtype=object) for own in nodes)), strict=True))


def _by_balls(graph: Graph, names: tuple[str, ...], nodes: list[list[arb]]) -> tuple[Array, float]:
    shape = tuple(len(n) for n in nodes)
    value = run(graph, BallAlgebra(), _grid(names, nodes))[0]
    F = np.array(np.broadcast_to(np.asarray(value, dtype=object), shape))
    for k, n in enumerate(shape):
        rest = F.size // n
        moved = np.moveaxis(F, k, 0)
        product = ball_matrix(n) * flint.arb_mat(n, rest, list(moved.ravel()))
        F = np.moveaxis(np.array(product.entries(), dtype=object).reshape(moved.shape), 0, k)
    mids = np.array([float(v.mid()) for v in F.ravel()])
    slack = sum((abs(v - arb(float(m))) for v, m in zip(F.ravel(), mids, strict=True)), arb(0))
    return mids.reshape(shape), upper(slack)


def floats(table: flint.arb_mat) -> tuple[Array, Array]:
    """A matrix of balls as doubles, and by how much each may be off."""
    entries = table.entries()
    mids = np.array([float(v.mid()) for v in entries])
    rads = np.array([upper(abs(v - arb(float(m)))) for v, m in zip(entries, mids, strict=True)])
    return mids.reshape(table.nrows(), -1), rads.reshape(table.nrows(), -1)


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """With zeros up to this shape."""
    return np.pad(array, [(0, n - m) for n, m in zip(shape, array.shape, strict=True)])


def ball_matrix(n: int) -> flint.arb_mat:
    """c_j = (2 − δ_j0)/n Σ_i f_i cos(j (2i+1)π/(2n)), as a matrix of balls."""
    turn = [(arb(q) * arb.pi() / (2 * n)).cos() for q in range(4 * n)]
    entries = [turn[j * (2 * i + 1) % (4 * n)] * (1 if j == 0 else 2) / n for j in range(n) for i in range(n)]
    return flint.arb_mat(n, n, entries)


def _by_intervals(graph: Graph, names: tuple[str, ...], nodes: list[list[arb]]) -> tuple[Array, float]:
    shape = tuple(len(n) for n in nodes)
    env = {name: Interval(lowers(line), uppers(line)) for name, line in _grid(names, nodes).items()}
    value = run(graph, IntervalAlgebra(), env)[0]
    lo, hi = np.broadcast_to(value.lo, shape), np.broadcast_to(value.hi, shape)
    F = np.array((lo + hi) / 2)
    rad = np.maximum(hi - F, F - lo) * (1 + 4 * _U) + 1e-300
    if not (np.isfinite(F).all() and np.isfinite(rad).all()):
        return F, math.inf
    off = _frobenius(rad)
    for k, n in enumerate(shape):
        D = _float_matrix(n)
        wide = math.sqrt(float(np.abs(D).sum(axis=0).max()) * float(np.abs(D).sum(axis=1).max())) * (1 + 1e-9)
        gamma = (n + 12) * _U * 1.01
        off = (off * math.sqrt(2 / n) + gamma * wide * _frobenius(F)) * (1 + 1e-9)
        F = np.moveaxis(np.tensordot(D, F, axes=(1, k)), 0, k)
    return F, math.sqrt(F.size) * off * (1 + 1e-9)


def _float_matrix(n: int) -> Array:
    """`ball_matrix` in float64, every entry within 4u · 2/n, so within 8u in Frobenius norm (‖|D|‖₂ ≥ 1)."""
    turn = _turn(n)
    j, i = np.arange(n)[:, None], np.arange(n)[None, :]
    D = turn[j * (2 * i + 1) % (4 * n)] * (2.0 / n)
    D[0] = 1.0 / n
    return np.asarray(D)


def _frobenius(F: Array) -> float:
    return math.sqrt(float(np.sum(F * F))) * (1 + (F.size + 4) * _U) + 1e-150  # squares may underflow


# ---------------------------------------------------------------- polynomials in float64


def sup_of_columns(coefficients: Array, over: int = 32) -> Array:
    """(N_1, …, N_a, m) → (m,): proved bounds of sup |Σ_J c_J T_J| on [-1, 1]^a.

    On `over` · N_k Chebyshev nodes per axis a polynomial keeps Π cos((N_k − 1)π/(2 over N_k)) of its maximum (`nodes`);
    never more than Σ|c_J|.
    """
    ones = np.abs(coefficients.reshape(-1, coefficients.shape[-1])).sum(axis=0) * (1 + (coefficients.size + 4) * _U)
    shape = coefficients.shape[:-1]
    if not shape or max(shape) == 1:
        return ones
    over = over if len(shape) == 1 else 8 if len(shape) == 2 else 4
    if math.prod(over * n for n in shape) * coefficients.shape[-1] > 40_000_000:
        return ones
    fine = [over * n for n in shape]
    most = np.abs(on_grid(coefficients, fine)).reshape(-1, coefficients.shape[-1]).max(axis=0)
    keep = kept([n - 1 for n in shape], fine)
    lost = 1.01 * sum(n + 4 for n in shape) * _U * ones
    rough = (most + lost) / keep * (1 + 1e-12) + 2.0**-1000  # for products that underflow
    return np.asarray(np.minimum(ones, np.where(np.isfinite(rough), rough, np.inf)))


LEAST = 2.0**-1060


def times(a: Any, b: Any) -> Any:
    """a b rounded up, for bounds a, b ≥ 0: never 0 by underflow, for a later factor may be as large as 1/0 is small."""
    return a * b * (1 + 4 * _U) + LEAST


def multiplied(off: Any, size: Any, more: Any, by: Any) -> tuple[Any, Any]:
    """(error, size) of a product of what is off by `off`, `size` large, with what is off by `more`, `by` large."""
    return off * (by + more) + times(size, more), times(size, by)


def on_grid(P: Array, fine: Sequence[int]) -> Array:
    """(N_1, …, N_a, m) → (fine_1, …, fine_a, m): Σ_J P_J T_J at `fine` Chebyshev nodes per axis."""
    return along((cosine_rows(n, size) for n, size in zip(fine, P.shape, strict=False)), P)


def kept(degrees: Sequence[int], fine: Sequence[int]) -> float:
    """Π cos(degree π/(2 fine)), rounded down: what a polynomial keeps of its maximum on these nodes (`nodes`)."""
    return math.prod(math.cos(k * math.pi / (2 * n)) * (1 - 1e-12) for k, n in zip(degrees, fine, strict=True))


def cosine_rows(fine: int, n: int) -> Array:
    """(fine, n) T_j at `fine` Chebyshev nodes, j < n, every entry within 2u."""
    turn = _turn(fine)
    return np.asarray(turn[np.outer(2 * np.arange(fine) + 1, np.arange(n)) % (4 * fine)])


@lru_cache(maxsize=64)
def _turn(n: int) -> Array:
    """cos(qπ/(2n)), q = 0 … 4n − 1, nearest doubles of 64-bit balls or better."""
    with precision(max(64, flint.ctx.prec)):
        return np.array([float((arb(q) * arb.pi() / (2 * n)).cos().mid()) for q in range(4 * n)])


def column_errors(P: Array) -> tuple[Array, Array]:
    """(columns,) Σ|P_J| and a bound of |computed − P| in float64 for coefficients (N_1, …, N_a, columns).

    The operations are those of `features.Features.side` before its products: t = x mapped to [-1, 1] and cut is
    off by at most 5u, T_j by 8j²u (Markov's inequality for the 5u; the recurrence adds Σ_i |U_{j−i}| 4.1u ≤ 2.05 j² u),
    and one sum per axis, in any order.
    """
    shape = P.shape[:-1]
    growth = np.ones(shape)
    for j in np.ix_(*(np.arange(n) for n in shape)):
        growth = growth * (1 + 8 * j**2 * _U)
    growth = growth * (1 + 1.01 * (sum(shape) + 2 * len(shape)) * _U) - 1 + 16 * _U  # 16u: the rounding of this line
    flat = np.abs(P).reshape(-1, P.shape[-1])
    sizes = flat.sum(axis=0) * (1 + (flat.size + 2) * _U)
    offs = (flat * growth.reshape(-1, 1)).sum(axis=0) * (1 + (flat.size + 8) * _U) + 1e-290
    return np.asarray(sizes), np.asarray(offs)
