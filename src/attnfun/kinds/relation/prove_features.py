"""The features of a relation as stored: sup |r − ⟨φ, ψ⟩| in real arithmetic, three ways, and their rounding.

| symbol | meaning |
| --- | --- |
| g = Π_k g_k | the core of the relation and its factors (`core`), derived anew here |
| C_k, e_k, S_k | Chebyshev coefficients of factor k: sup |g_k − C_k| ≤ e_k, Σ|C_k| ≤ S_k (`prove_coefficients`) |
| P_k, Q_k, S | stored coefficients of the towers and the selected products (`features`) |

**Target.** |Π g_k − Π C_k| ≤ E_0 = Σ_k e_k Π_{j<k} (S_j + e_j) Π_{j>k} S_j (telescoped; |C_k| ≤ S_k as functions).
Then one of three bounds of the rest; the least counts. All are about exactly the stored numbers.

*coefficients*: |T_J| ≤ 1, so sup |ΠC_k − Σ_{i∈S} φ_i ψ_i| ≤ Σ |⊗_k C_k − L Rᵀ|, L, R the coefficients of the products.
Float64: entries of the Kronecker products are off by (K−1)u relatively, sums of r products by γ_r Σ|L||R|, so the
total is off by at most 1.01 u (K + 2) Π S_k + 1.01 u (r + 2K + 4) Σ_i ‖L_i‖₁‖R_i‖₁, plus the relative rounding of the
sum of non-negative terms.

*factors*: let d_k = Σ|C_k − P_k Q_kᵀ| over all stored columns, s_kc ≥ sup |P_kc| · sup |Q_kc| (oversampled, proved) and
B_k = S_k + d_k ≥ |P_k Q_kᵀ|. Then |ΠC_k − Π P_kQ_kᵀ| ≤ E_1 = Σ_k d_k Π_{j<k} B_j Π_{j>k} S_j, and the products that are
not selected weigh at most Σ_{c∉S} Π_k s_{k c_k}: any number of variables, at the cost of one-dimensional maxima.

*diagonal* (one tower, no minus sign among the stored columns): what is not selected is a sum of squares of functions,
D(x, y) = Σ_{c∉S} p_c(x) p_c(y), so |D(x, y)| ≤ sup_x D(x, x) by Cauchy and Schwarz, and D(x, x) = Π_k |P_k(x)|² −
Σ_{i∈S} φ_i(x)² is a polynomial of degree 2(N_j − 1) in each variable: its supremum is at most its maximum on N'
nodes per axis divided by Π_j cos(2(N_j − 1)π/(2N'_j)) (Ehlich and Zeller). Total: E_0 + E_1 + that.

**Rounding** (part "rounding", in float64; the operations are those of `Features.side`): t is off by at most 5u, T_j by
8j²u (Markov's inequality for the 5u; the recurrence adds Σ_i |U_{j−i}| 4.1u ≤ 2.05 j² u), so a block's function is off
by Σ_J |P_J| (Π(1 + 8 J_j² u)(1 + γ_{ΣN_j + 2a}) − 1), products and the inner product of r terms carry it on.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from attnfun.certify.view import Array, provided
from attnfun.kinds.relation import prove_coefficients as chebyshev
from attnfun.kinds.relation.core import Core, Factor, core_of, factors_of
from attnfun.kinds.relation.features import Features, Index
from attnfun.kinds.relation.prove_coefficients import LEAST, multiplied, times
from attnfun.kinds.relation.target import Relation
from attnfun.language import precision

_U = 2.0**-53
_ENTRIES = 40_000_000  # of the Kronecker product that *coefficients* walks through
_PRODUCTS = 40_000_000  # columns multiplied out by *factors*
_POINTS = 3_000_000  # of the grid of *diagonal*


@dataclass(frozen=True)
class Parts:
    """The relation taken apart: its core, factors, and their expansions with an error of about `tolerance`."""

    core: Core
    factors: tuple[Factor, ...]
    expansions: tuple[chebyshev.Expansion, ...]


@lru_cache(maxsize=1)
def take_apart(relation: Relation, tolerance: float, core: Core | None = None) -> Parts:
    """Core, factors and enclosed coefficients; raises Undecided. `tolerance` steers, and proves nothing.

    The last one is remembered: a search proves many features of one relation.
    """
    core = core or core_of(relation)
    factors = tuple(factors_of(core, relation.symmetric))
    with precision(128):

        def expanded(factor: Factor, tolerance: float) -> chebyshev.Expansion:
            left, right = list(factor.left), list(factor.right)
            names = tuple(core.left.names[k] for k in left) + tuple(core.right.names[k] for k in right)
            low = np.r_[core.left.low_array[left], core.right.low_array[right]]
            high = np.r_[core.left.high_array[left], core.right.high_array[right]]
            return chebyshev.expansion(factor.graph, names, low, high, tolerance)

        found = [expanded(factor, tolerance) for factor in factors]
        for k, factor in enumerate(factors):  # the error of a factor is multiplied by the sizes of the others
            others = math.prod(x.size for j, x in enumerate(found) if j != k)
            if 100 * tolerance < found[k].error * others < math.inf:
                found[k] = expanded(factor, tolerance / others)
    return Parts(core, factors, tuple(found))


# ---------------------------------------------------------------- the three bounds


KINDS = ("coefficients", "factors", "diagonal")


def construction_error(
    parts: Parts, features: Features, kinds: tuple[str, ...] = KINDS
) -> tuple[float, str, dict[str, Any]]:
    """(proved sup |r − ⟨φ, ψ⟩| in real arithmetic, which of `kinds` gave it, all that were worked out)."""
    tables, halves = _matrices(parts, features)
    size = [x.size for x in parts.expansions]
    gaps = [_gap(C, P, Q) for C, (P, Q) in zip(tables, halves, strict=True)]  # d_k
    first, carried = (
        _telescoped(off, [a + b for a, b in zip(size, off, strict=True)], size)
        for off in ([x.error for x in parts.expansions], gaps)
    )
    found = {}
    if "coefficients" in kinds:
        found["coefficients"] = _by_coefficients(tables, halves, features, size)
    if "factors" in kinds:
        found["factors"] = carried + _by_factors(features)
    if "diagonal" in kinds and features.signs is not None and all((s > 0).all() for s in features.signs):
        found["diagonal"] = carried + _by_diagonal(features)
    finite = {k: v for k, v in found.items() if v == v}
    method = min(finite, key=lambda k: finite[k]) if finite else ""
    provided(method and math.isfinite(finite[method]), "the tables of this relation are out of reach")
    total = (finite[method] + first) * (1 + 4 * _U)
    return total, method, {k: v for k, v in {"target": first, **finite}.items() if math.isfinite(v)}


def _telescoped(off: list[float], before: list[float], after: list[float]) -> float:
    """Σ_k off_k Π_{j<k} before_j Π_{j>k} after_j, rounded up."""
    total = 0.0
    for k, one in enumerate(off):
        for factor in (*before[:k], *after[k + 1 :]):
            one = times(one, factor)
        total += one
    return total * (1 + 8 * (len(off) + 2) ** 2 * _U)


def _matrices(parts: Parts, features: Features) -> tuple[list[Array], list[tuple[Array, Array]]]:
    """For every factor C_k as a matrix (left, right), and P_k, Q_k padded to the same rows."""
    tables, halves = [], []
    for x, block in zip(parts.expansions, features.blocks, strict=True):
        a, m = len(block.left_vars), block.columns
        left = tuple(max(p) for p in zip(x.table.shape[:a], block.left.shape, strict=False))
        right = tuple(max(p) for p in zip(x.table.shape[a:], block.right.shape, strict=False))
        tables.append(chebyshev.padded(x.table, left + right).reshape(math.prod(left), math.prod(right)))
        P, Q = chebyshev.padded(block.left, (*left, m)), chebyshev.padded(block.right, (*right, m))
        halves.append((P.reshape(-1, m), Q.reshape(-1, m)))
    return tables, halves


def _gap(C: Array, P: Array, Q: Array) -> float:
    """Σ|C − P Qᵀ| over all columns, rounded up."""
    weight = float(np.abs(P).sum(axis=0) @ np.abs(Q).sum(axis=0))
    value = float(np.abs(C - P @ Q.T).sum())
    n = C.size + P.size + Q.size
    return (value + 1.01 * _U * ((P.shape[1] + 4) * weight + float(np.abs(C).sum()))) * (1 + (n + 8) * _U) + 1e-290


def _by_coefficients(
    tables: list[Array], halves: list[tuple[Array, Array]], features: Features, size: list[float]
) -> float:
    rows, columns = math.prod(len(C) for C in tables), math.prod(C.shape[1] for C in tables)
    rank = features.rank
    if rows * columns > _ENTRIES or (rows + columns) * rank > _ENTRIES:
        return math.inf
    lefts, rights = [p for p, _ in halves], [q for _, q in halves]
    L, R = products(lefts, features.selection), products(rights, features.selection)
    weight = float(np.abs(L).sum(axis=0) @ np.abs(R).sum(axis=0))
    total = 0.0
    rest: Array = np.ones((1, 1))
    for table in tables[1:]:
        rest = np.asarray(np.kron(rest, table), dtype=np.float64)
    inner = len(rest)
    for i in range(len(tables[0])):
        block = np.kron(tables[0][i : i + 1], rest) - L[i * inner : (i + 1) * inner] @ R.T
        total += float(np.abs(block).sum())
    k = len(tables)
    lost = 1.01 * _U * ((k + 2) * _telescoped([1.0], [], [1.0, *size]) + (rank + 2 * k + 4) * weight)
    left, right = rows * _vanished(lefts), columns * _vanished(rights)
    lost += left * float(np.abs(R).sum()) + right * float(np.abs(L).sum()) + 2 * rank * left * right
    lost += rows * columns * (_vanished(tables) + (rank + 2) * LEAST)
    return (total + lost) * (1 + (rows * columns + L.size + R.size + 8) * _U) + 1e-290


def _vanished(arrays: list[Array]) -> float:
    """What underflow may take off an entry of the Kronecker product: later factors enlarge what earlier ones lost."""
    return math.prod(max(1.0, float(np.abs(a).max())) for a in arrays) * len(arrays) * LEAST if len(arrays) > 1 else 0.0


def products(columns: list[Array], selection: Index) -> Array:
    """(rows_k, m_k) a block, (r, blocks) → (Π rows_k, r): Kronecker products of the selected columns."""
    out = columns[0][:, selection[:, 0]]
    for k in range(1, len(columns)):
        out = (out[:, None, :] * columns[k][None, :, selection[:, k]]).reshape(-1, out.shape[1])
    return np.asarray(out)


def factor_weights(features: Features) -> list[Array]:
    """s_kc ≥ sup|P_kc| sup|Q_kc| for every stored column of every block."""
    out = []
    for block in features.blocks:
        left = chebyshev.sup_of_columns(block.left)
        right = left if features.signs is not None else chebyshev.sup_of_columns(block.right)
        out.append(np.where((left > 0) & (right > 0), times(left, right), 0.0))
    return out


def _by_factors(features: Features) -> float:
    """Σ over the products that are not selected of Π s_kc, rounded up."""
    weights = factor_weights(features)
    if math.prod(len(w) for w in weights) > _PRODUCTS:
        return math.inf
    table = weights[0]
    for w in weights[1:]:
        table = times(table[..., None], w)
    table = np.array(table)
    table[tuple(features.selection.T)] = 0.0
    return float(table.sum()) * (1 + (table.size + 4 * len(weights) + 4) * _U) + 1e-290


def _by_diagonal(features: Features) -> float:
    """sup_x Σ_{c∉S} p_c(x)², from its values on an oversampled product grid."""
    sizes = [n for block in features.blocks for n in block.left.shape[:-1]]
    over = {1: 16, 2: 4, 3: 3}.get(len(sizes), 0)
    fine = [max(1, over * (2 * n - 1)) for n in sizes]
    if not over or math.prod(fine) > _POINTS or math.prod(fine) * features.rank > 60 * _PRODUCTS:
        return math.inf
    keep, left = chebyshev.kept([2 * n - 2 for n in sizes], fine), iter(fine)
    values = [
        chebyshev.on_grid(block.left, [next(left) for _ in block.left_vars]).reshape(-1, block.columns)
        for block in features.blocks
    ]
    grids = [len(value) for value in values]
    # absolute error of Σφ² in float64: each function within its `offs`, sums and products relatively
    lost, weight, large = 0.0, 1.0, 1.0
    for size, off in (chebyshev.column_errors(block.left) for block in features.blocks):
        square = float((size + off) @ (size + off)) * (1 + 1e-9)
        change = float((2 * size + off) @ off) * (1 + 1e-9)
        lost, weight = multiplied(lost, weight, change, square)
        large *= max(1.0, square)
    steps = features.rank + sum(v.shape[1] for v in values) + 8 * len(values)
    lost = 2 * lost + 4.04 * _U * steps * weight + 8 * steps * large * LEAST
    biggest = -math.inf
    whole = [np.sum(v * v, axis=1) for v in values]
    step = max(1, 4_000_000 // max(1, math.prod(grids[1:]) * features.rank))
    for start in range(0, grids[0], step):
        rows = slice(start, min(start + step, grids[0]))
        chosen = products([values[0][rows], *values[1:]], features.selection)
        total = whole[0][rows]
        for w in whole[1:]:
            total = np.multiply.outer(total, w)
        rest = total.ravel() - np.sum(chosen * chosen, axis=1)
        top = float(np.max(np.abs(rest)))
        biggest = max(biggest, top) if top == top else math.inf
    return (biggest + lost) / keep * (1 + 1e-12)


# ---------------------------------------------------------------- rounding


def side_errors(features: Features, side: str) -> tuple[Array, Array]:
    """(rank,) bounds of |computed − φ_i| and of |φ_i| on the box, for one side by `Features.side` in float64."""
    size, off = np.ones(features.rank), np.zeros(features.rank)
    for k, P in enumerate(features.half(side).tables):
        s, o = (bound[features.selection[:, k]] for bound in chebyshev.column_errors(P))
        off = (off * (s + o) + size * o) + 1.01 * _U * (size + off) * (s + o) + LEAST
        size = times(size, s)
    return off * (1 + 1e-9), size


def rounding(features: Features) -> float:
    """A bound of |computed score − ⟨φ, ψ⟩| when both sides are computed by `Features.side` in float64."""
    (da, a), (db, b) = side_errors(features, "left"), side_errors(features, "right")
    products_off = float(da @ (b + db) + db @ a)
    return (products_off + 1.01 * (features.rank + 2) * _U * float((a + da) @ (b + db))) * (1 + 1e-9)
