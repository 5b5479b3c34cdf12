"""Quantisation by soft Voronoi cells: r at pairs of centres, factored, in the values of two softmax heads.

| symbol | meaning |
| --- | --- |
| v_i, w_j | centres of the cells of the left and of the right box, on product grids of widths h_k |
| R_ij = r(v_i, w_j) | the table of the relation |
| S = β h² | sharpness: logits β(2vx − v²), one softmax per variable |
| c | a constant taken off the residual, the middle of its range: one feature more, up to half the error less |

Statement: R ≈ P Qᵀ of rank k, φ(x) = Pᵀ p(x), ψ(y) = Qᵀ q(y) with the soft indicators p, q of the cells. For continuous
r the error tends to the oscillation of r over half a cell on both sides, plus max_ij |R − P Qᵀ|_ij.
Source: Altabaa and Lafferty, arXiv 2402.08856 (one-hot cells, R = PᵀQ); a continuous tower cannot be one-hot, so cells
are soft here, and the walls between them are in the bound.
Derivation: weights of a softmax are an average, so the score is an average of entries of P Qᵀ at cells near x and y.
The factors are those of the singular value decomposition of R, or of r at fewer points with broken lines between (for
one tower of the eigendecomposition, negative eigenvalues left out unless signs are allowed), cut where the largest
*entry* of the residual, less c, is within its share.
Size: Π_k (b_k − a_k)/h_k keys per side, h_k from the sampled oscillation; rank as it comes: more cells leave more of ε
to the truncation, so rank falls as cells grow. Bound: `prove_cells`.
Failure mode: cells grow like (D L/2ε)^d per side for D variables in all. Refused before building, with the ε that fits.
Example: abs(x − y) on [0, 1]² at 1e-2: 690 cells per side and some twenty-five features.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial

import numpy as np

from attnfun.errors import Infeasible, feasible, require
from attnfun.kinds.relation.build.chebyshev import eigen_columns, leading_columns, singular_columns
from attnfun.kinds.relation.build.search import OUT, Ask, near
from attnfun.kinds.relation.core import Core, core_of, plain_core
from attnfun.kinds.relation.form import Cells, CellSide
from attnfun.kinds.relation.target import Relation
from attnfun.kinds.relation.towers import Keys
from attnfun.language.domain import Box
from attnfun.language.numbers import bisected
from attnfun.network.head import Array
from attnfun.search import MET, Proposal, Proposals

MOST_CELLS = 2_100  # a side: the table is decomposed
MOST_PAIRS = 4_200_000
_EXPONENT = 27.0  # λ assumed when choosing S; the checker chooses its own
_U = 2.0**-53
_SAMPLES = 3000
_COARSER = (3, 5, 8)  # times as coarse as the cells: nodes of broken lines tried in place of the table's own columns
_SHARES = (0.5, 0.25, 0.15)  # of eps for the cells, the rest for the truncation of their table
_LARGE_SHARES = (0.7, 0.9)
_QUICK_PAIRS = 1_100_000
_CACHED = 1 << 16  # entries of a table at a time
_LEADING = 32  # columns of a table that are looked for before all of them
ROOM = 0.97
TRIES = 3


def soft_cells(ask: Ask) -> Proposals:
    """Soft cells of the least rank that is found, of the relation itself or else of its core."""
    core = core_of(ask.relation)
    try:
        yield from _cells_of(ask, plain_core(ask.relation))
        return
    except Infeasible:
        if not core.composed:
            raise
    yield from _cells_of(ask, core)


def _cells_of(ask: Ask, core: Core) -> Proposals:
    eps, inner = ask.eps, ask.inner(core)
    ask.say("how many cells?")
    rough = Oscillation(inner)
    require(ask.realise != "mlp", "method='voronoi' makes softmax heads: write realise='attention'")
    fewest, least = rough.plan(ROOM * _LARGE_SHARES[-1] * eps), math.inf
    reached, why = math.inf, "" if fewest.fits else fewest.text
    for share in (*_SHARES, *_LARGE_SHARES):
        if not fewest.fits or (least < math.inf and share in _LARGE_SHARES):
            break
        error, short = ROOM * share * eps, ROOM * (1 - share) * eps
        for _ in range(TRIES):
            plan = rough.plan(error)
            quick = math.prod(plan.counts) <= _QUICK_PAIRS
            if not plan.fits or (least < math.inf and not quick):
                why = why or plan.text
                break
            ask.say(f"{plan.counts[0]:,} and {plan.counts[1]:,} cells")
            try:
                made = cell_towers(inner, plan, short, ask.signed, eps)
            except Infeasible as reason:
                why = str(reason)
                break
            if not made.rank < 0.97 * least:
                return
            certificate = yield Proposal(made, "voronoi", more=True)
            if certificate.status in MET:
                least = made.rank
                break
            reached, why = min(reached, certificate.error[1]), str(certificate.reason)
            feasible(math.isfinite(certificate.error[1]), f"voronoi: {ask.text}: {why}")
            error *= 0.8
    if least == math.inf:
        best_eps = max(rough.smallest() / (0.85 * _LARGE_SHARES[-1]), reached if math.isfinite(reached) else 0.0)
        text = f"voronoi: eps={eps:.3g} for {ask.text} is out of reach: {why}"
        raise Infeasible(text, near(1.05 * max(best_eps, eps), method="voronoi"))


def cells_fit(ask: Ask, core: Core) -> bool:
    """Could soft cells of the relation, or of its core, be built?"""
    forms = (ask.inner(one) for one in (plain_core(ask.relation), core))
    return any(Oscillation(one).plan(ROOM * _LARGE_SHARES[0] * ask.eps).fits for one in forms)


@dataclass(frozen=True)
class CellPlan:
    """Cells of every left and right variable, and what they may leave of the error (sampled)."""

    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, int]:
        return math.prod(self.left), math.prod(self.right)

    @property
    def fits(self) -> bool:
        left, right = self.counts
        return max(left, right) <= MOST_CELLS and left * right <= MOST_PAIRS

    @property
    def text(self) -> str:
        return f"about {Decimal(self.counts[0]):.3g} and {Decimal(self.counts[1]):.3g} cells, {OUT}"


class Oscillation:
    """The sampled change of a relation over half a cell, and how cells share it among the variables."""

    def __init__(self, relation: Relation) -> None:
        self.relation = relation
        box = relation.joint
        rng = np.random.default_rng(0)
        Z = box.probe(_SAMPLES, rng)
        Z = Z[rng.permutation(len(Z))[: _SAMPLES + 500]]
        if relation.left.dim == relation.right.dim:  # relations are often roughest where both sides meet
            half, d, right = len(Z) // 3, relation.left.dim, relation.right
            Z[:half, d:] = np.clip(Z[:half, :d], right.low_array, right.high_array)
        self.points, self.base = Z, relation.at(Z)
        width = box.high_array - box.low_array
        slopes = []
        for k in range(box.dim):
            moved = Z.copy()
            moved[:, k] = np.where(Z[:, k] + 1e-3 * width[k] <= box.high[k], Z[:, k] + 1e-3 * width[k], box.high[k])
            slopes.append(self._change(moved))
        if relation.symmetric:
            d = relation.left.dim
            slopes = [max(a, b) for a, b in zip(slopes[:d], slopes[d:], strict=True)] * 2
        top = max(slopes) or 1.0
        self.shares = np.array([s / top for s in slopes])
        corners = (np.arange(2**box.dim)[:, None] >> np.arange(box.dim)) & 1 if box.dim <= 6 else None
        self.corners = rng.integers(0, 2, (24, box.dim)) if corners is None else corners

    def _change(self, Z: Array) -> float:
        change = np.abs(self.relation.at(Z) - self.base)
        return float(np.max(np.where(np.isfinite(change), change, 0.0)))

    def over(self, scale: float) -> float:
        """The largest change from a centre to a corner of a cell of widths width_k/(scale · share_k), sampled."""
        box = self.relation.joint
        half = 0.5 * (box.high_array - box.low_array) / np.maximum(1.0, scale * self.shares)
        moved = (self.points + np.where(corner == 1, half, -half) for corner in self.corners)
        return max(self._change(np.clip(Z, box.low_array, box.high_array)) for Z in moved)

    def plan(self, error: float) -> CellPlan:
        """The fewest cells whose sampled oscillation is within `error`; at most 10^9 a variable."""
        low, high = 0.5, 1.0
        while high < 1e9 and not self.over(high) <= error:
            low, high = high, 4 * high
        while high / low > (1.01 if self._plan(low).fits else 1.3):  # how far out of reach need not be known closely
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.over(middle) <= error else (middle, high)
        return self._plan(high)

    def _plan(self, scale: float) -> CellPlan:
        counts = [max(1, math.ceil(scale * s - 1e-9)) for s in self.shares]
        d = self.relation.left.dim
        return CellPlan(tuple(counts[:d]), tuple(counts[d:]))

    def smallest(self) -> float:
        """The sampled oscillation over the smallest cells that can be built."""
        scale = 1.0
        while scale < 1e9 and self._plan(1.02 * scale).fits:
            scale *= 1.02
        return self.over(scale)


def cell_towers(relation: Relation, plan: CellPlan, truncation: float, signed: bool, eps: float) -> Cells:
    """Soft cells of `plan` with the fewest features whose table is within `truncation` of R in every entry."""
    feasible(plan.fits, f"voronoi: {plan.counts[0]:,} and {plan.counts[1]:,} cells are out of reach")
    left, points = _grid(relation.left, plan.left, eps)
    right, others = (left, points) if relation.symmetric else _grid(relation.right, plan.right, eps)
    boxes = [(b.low_array, b.high_array) for b in (relation.left, relation.right)]
    R = relation.table(points, others)
    P, Q, signs = factors(R, truncation, relation.symmetric, signed)
    for coarser in _COARSER:  # broken lines between fewer nodes often take fewer columns
        (zx, W), (zy, V) = _coarse(relation.left, plan.left, coarser), _coarse(relation.right, plan.right, coarser)
        if max(len(zx), len(zy)) > len(R) // 2:
            continue
        try:
            table = relation.table(zx, zy)
            tried = factors(table, truncation, relation.symmetric, signed, (R, W, V), P.shape[1] - 1)
        except Infeasible:
            continue
        if tried[0].shape[1] < P.shape[1]:
            P, Q, signs = W @ tried[0], V @ tried[1], tried[2]
    first = CellSide(left, P.reshape(*plan.left, -1), boxes[0])
    if signs is not None:
        return Cells(first, signs=signs)
    return Cells(first, CellSide(right, Q.reshape(*plan.right, -1), boxes[1]))


def _grid(box: Box, counts: tuple[int, ...], eps: float) -> tuple[tuple[Keys, ...], Array]:
    """Keys of every variable and the centres of all cells, (cells, variables)."""
    keys, lines = [], []
    for low, high, count in zip(box.low, box.high, counts, strict=True):
        h = (high - low) / count
        feasible(h**2 > 1e-300, f"voronoi: cells of width {h:.3g} are too narrow: slopes are 2S/h²")
        middle = low + (high - low) / 2
        v: Array = (np.arange(count, dtype=np.float64) + 0.5) * h + (low - middle)
        # walls of λ/2S cells against the rounding of logits of size S P²/4, and of queries far from 0
        far = 1 + 2 * max(abs(low), abs(high)) / (high - low)
        sharp = math.sqrt(max(eps, 1e-12) * _EXPONENT / (16 * _U * far * (count / 2 + 1) ** 2))
        beta = float(np.clip(sharp, 64.0, 65536.0)) / h**2
        keys.append(Keys(1.0, -middle, np.asarray(2 * beta * v), np.asarray(-beta * v * v)))
        lines.append(np.clip(v + middle, low, high))
    grid = np.stack([g.ravel() for g in np.meshgrid(*lines, indexing="ij")], axis=1)
    return tuple(keys), grid


def _coarse(box: Box, counts: tuple[int, ...], coarser: int) -> tuple[Array, Array]:
    """(nodes, variables) of a grid `coarser` times as coarse as the cells, and its hats at the centres of all cells."""
    lines, W = [], np.ones((1, 1))
    for low, high, count in zip(box.low, box.high, counts, strict=True):
        nodes = max(2, math.ceil(count / coarser))
        place = np.clip((np.arange(count) + 0.5) / count * (nodes - 1), 0, nodes - 1)
        hats = np.maximum(0.0, 1 - np.abs(place[:, None] - np.arange(nodes)))
        W = np.kron(W, hats)
        lines.append(np.clip(np.linspace(low, high, nodes), low, high))
    return np.stack([g.ravel() for g in np.meshgrid(*lines, indexing="ij")], axis=1), W


def factors(
    R: Array,
    truncation: float,
    symmetric: bool,
    signed: bool,
    finer: tuple[Array, Array, Array] | None = None,
    most: int | None = None,
) -> tuple[Array, Array, Array | None]:
    """(P, Q, signs): R ≈ P Qᵀ, a constant column last where it pays, of the fewest columns within `truncation`.

    With `finer` = (fine, left, right) it is |fine − left P Qᵀ rightᵀ| that is within it. `signs`: Q = P · signs
    (symmetric). Infeasible where more than `most` columns, the constant not counted, are needed.
    """
    if not all(np.isfinite(table).all() for table in (R, *(finer or ())[:1])):
        raise Infeasible("the relation is not finite at the points of its table")
    P, Q, signs, k, c = _cut(R, truncation, symmetric, signed, finer, most)
    P, Q = P[:, :k], Q[:, :k]
    if c != 0.0:
        root = math.sqrt(abs(c))
        P = np.column_stack([P, np.full(len(P), root)])
        Q = np.column_stack([Q, np.full(len(Q), math.copysign(root, c))])
    if not P.shape[1]:
        P, Q = np.zeros((len(P), 1)), np.zeros((len(Q), 1))
    if signs is not None:
        signs = np.append(signs[:k], [math.copysign(1.0, c)] if c != 0.0 else [])
        signs = signs if len(signs) else np.ones(1)
    return P, Q, signs


def _cut(
    R: Array,
    truncation: float,
    symmetric: bool,
    signed: bool,
    finer: tuple[Array, Array, Array] | None,
    most: int | None,
) -> tuple[Array, Array, Array | None, int, float]:
    """(P, Q, signs, k, c): columns of R and what `_fewest` takes of them: of a few leading ones, or else of all."""
    for columns in (
        partial(leading_columns, R, symmetric, signed, _LEADING),
        partial(_all_columns, R, symmetric, signed),
    ):
        found = columns()
        if found is None:
            continue
        P, Q, signs = found
        seen = (R, P, Q) if finer is None else (finer[0], finer[1] @ P, finer[2] @ Q)
        try:
            k, c = _fewest(*seen, truncation, signed or not symmetric, most)
        except Infeasible as reason:
            why = reason
            if most is not None and P.shape[1] >= most:
                break
        else:
            return P, Q, signs, k, c
    raise why


def _all_columns(R: Array, symmetric: bool, signed: bool) -> tuple[Array, Array, Array | None]:
    if not symmetric:
        return *singular_columns(R), None
    P, signs = eigen_columns(R, signed)
    return P, P * signs, signs


def _fewest(R: Array, P: Array, Q: Array, truncation: float, both: bool, limit: int | None = None) -> tuple[int, float]:
    """(k, c): the first k columns and the constant c (0: none) within `truncation` of R, of least k + (c ≠ 0).

    Infeasible where it takes more than `limit` columns, which are looked at first.

    `both`: c may have either sign; else it is not negative.
    """

    @cache
    def tried(k: int) -> tuple[float, float, float]:
        low, high, step = math.inf, -math.inf, max(1, _CACHED // R.shape[1])
        for row in range(0, len(R), step):
            rest = R[row : row + step] - P[row : row + step, :k] @ Q[:, :k].T
            low, high = min(low, float(rest.min())), max(high, float(rest.max()))
        middle = (low + high) / 2
        middle = middle if both else max(0.0, middle)
        return max(high, -low), middle, max(high - middle, middle - low)

    def near_enough(kind: int, k: int) -> bool:
        return tried(k)[kind] <= truncation

    best: list[tuple[int, int, float]] = []
    most, least = min(P.shape[1], P.shape[1] if limit is None else limit), 0
    feasible(limit is None or near_enough(2, most), "the table of the relation takes more columns")
    for kind in (2, 0):  # with the constant first: without it no fewer columns do
        low, high = least - 1, min(most, max(4, 2 * least))
        while high < most and not near_enough(kind, high):
            low, high = high, min(most, 2 * high)
        if not near_enough(kind, high):
            continue
        least = bisected(low, high, partial(near_enough, kind))
        c = tried(least)[1] if kind == 2 else 0.0
        best.append((least + (c != 0.0), least, c))
    feasible(best, "the table of the relation has no factors that are near enough")
    _, k, c = min(best)
    return k, c
