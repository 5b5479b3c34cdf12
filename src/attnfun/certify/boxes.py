"""Method *boxes*: any single head, sharp or soft, keys on grids or anywhere, by boxes that are halved where it pays.

Statement. Let the logits be l_j(x) = a_j·x + b_j (of a product head: all sums of axis logits), V_j the values, B a box
with centre c and half widths h, r a key, cut = λ + 2d. If l_j − l_r ≤ −cut on B, key j weighs at most e^−cut there. It
is *left out* on B; the others are *kept*. All n keys left out weigh at most leak = n e^−λ together, also as computed:
their logits are off by at most d (`head_rounding`), which costs e^{2d}, and what vanishes is counted there. So with
e_j(B) ≥ sup |f − V_j| over the part of B on which j is not left out,

    |f − net| ≤ max over kept j of e_j(B) + leak·(max V − min V)        on B                              (lookup)

as computed too, but for sums. That part of B lies in B ∩ {l_j − l_r ≥ −cut}, for r itself in B ∩ {l_r − l_j ≥ −cut} for
every j. On it f is at most the upper end of its range F(B), and, with s = x − c, g the middle and e the radius of the
range of ∇f over B, at most f(c) + g·s + Σ_k e_k h_k. By duality, for every μ ≥ 0,

    g·s ≤ Σ_k |g_k + μ D_k| h_k + μ τ        where |s_k| ≤ h_k and D·s ≥ −τ,

least at μ = 0 or at a μ = −g_k/D_k. So cells may have walls in any direction, and boxes need not be small beside them.
Below likewise.

For a soft head, let p_j be the weights of the kept keys at c, κ_j = a_j − Σ p_i a_i, y_j = Σ_k |κ_jk| h_k. On B

    p_j e^{−y_j}/Σ p_i e^{y_i}  ≤  p_j(x)  ≤  p_j e^{y_j}

(the sum Σ p_i e^{κ_i s} is at least e^0, by Jensen). Let Δ_j be how far this allows p_j(x) from p_j, v = Σ p_j V_j.
Then |net − v| ≤ ρ = Σ Δ_j |V_j − v|, ∂_k net = Σ p_j(x) κ_jk (V_j − net(x)) is within Σ Δ_j |κ_jk| |V_j − v| + ρ Σ p_j
e^{y_j} |κ_jk| of G_k = Σ p_j κ_jk (V_j − v), and

    |f − net| ≤ |f(c) − v| + Σ_k h_k sup_B |∂_k f − ∂_k net|,        |f − net| ≤ sup_B |f − v| + ρ           (average)

both up to leak·(max V − min V), and as computed up to (max V − min V over kept keys) tanh(d/2) more. The smallest bound
of each box counts. In the sup norm the bound is the largest over all boxes; in L^p it is (Σ vol(B)/vol e(B)^p)^{1/p},
lower bounds of |f − net| on B likewise. Boxes are halved breadth first: in the sup norm those above the goal, in L^p
those with the largest difference between upper and lower bound.

A black box with Lipschitz constant L has f(x) ∈ f(c) ± L |h| on B: conditional on L. It is asked at the centre of every
box, so that a cell on which it hardly varies is proved to, whatever L is.

Everything is in float64: intervals (`language/intervals.py`) for f, and logits with an absolute error ω that is added
wherever they decide. Failure modes: too many keys or boxes; targets without finite ranges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnfun.certify.cells import power, rests_on, root
from attnfun.certify.rounding import head_rounding
from attnfun.certify.view import Array, Bound, provided
from attnfun.language import GradientAlgebra, precision, run
from attnfun.language.domain import cut
from attnfun.language.enclosures import lower, upper, upper_at
from attnfun.language.function import Function
from attnfun.language.intervals import Interval, IntervalAlgebra
from attnfun.language.outward import next_above, next_below
from attnfun.network import Head, Network

Index = NDArray[np.intp]
_KEYS = 300_000
_ENTRIES = 15_000_000  # pairs of a box and a kept key, over the whole proof
_CALLS = 4_000_000  # of a black box
_TOGETHER = 400_000
_AVERAGED = 4_000  # kept keys up to which the second form is tried: their sums are off by less than 1e-12
_CLOSE, _CLOSE_MEAN = 1.02, 1.25  # upper over lower bound, in the sup norm and in L^p, past which nothing is gained
_ENOUGH = 0.1  # of the budget, past which a mean below the goal is not made closer
_MORE = 0.7  # of what is open in a mean, halved at once
_SHARE = 1e-4  # of the goal, for what is left out
_SAFE = 1 + 1e-9
_U = 2.0**-53


@dataclass(frozen=True)
class Keys:
    """The keys of a head as affine functions of x: slopes (n, d), biases (n,), values (n, outputs), off by ω at most.

    `omega` bounds the error of any difference of two logits at a point of the domain as computed here, and of any
    difference of slopes times half widths of a box in it.
    """

    slopes: Array
    biases: Array
    values: Array
    omega: float

    @property
    def count(self) -> int:
        return len(self.biases)

    @cached_property
    def spread(self) -> Array:
        return np.asarray(np.ptp(self.values, axis=0) * _SAFE)


@dataclass(frozen=True)
class Boxes:
    """Boxes (n, d) that cover the domain, the keys kept on each one after the other, and what is known on them.

    `high` ≥ |f − net| ≥ `low` and `computed` as computed, (n, outputs); `seen` and `firm` (n,) are errors proved at the
    centres, in real arithmetic and as computed; `sides` (n, d) says which side to halve, negative if none can be.
    """

    ends: tuple[Array, Array]
    kept: Index
    counts: Index
    high: Array
    low: Array
    computed: Array
    seen: Array
    firm: Array
    sides: Array

    def of(self, which: NDArray[np.bool_]) -> Boxes:
        rows = (getattr(self, name)[which] for name in _ROWS)
        ends = self.ends[0][which], self.ends[1][which]
        return Boxes(ends, self.kept[np.repeat(which, self.counts)], *rows)

    def halves(self) -> tuple[Array, Array, Index, Index]:
        """Ends, kept keys and their counts of the halves."""
        low, high = cut(*self.ends, np.argmax(self.sides, axis=1))
        return low, high, np.tile(self.kept, 2), np.tile(self.counts, 2)

    @classmethod
    def joined(cls, parts: Sequence[Boxes]) -> Boxes:
        low, high = (np.concatenate([part.ends[i] for part in parts]) for i in range(2))
        rows = (np.concatenate([getattr(part, name) for part in parts]) for name in _ROWS)
        return cls((low, high), np.concatenate([part.kept for part in parts]), *rows)


_ROWS = ("counts", "high", "low", "computed", "seen", "firm", "sides")


def prove_by_boxes(network: Network, function: Function, norm: float, eps: float) -> Bound:
    """Prove a bound of the sup or L^p norm of f − net for a network that is a single head; `eps` steers the search."""
    head = _only_head(network)
    low, high = function.box.low_array, function.box.high_array
    keys = _read_keys(head, low, high)
    d, sums = head_rounding(head, np.maximum(np.abs(low), np.abs(high)), network.dtype, network.readout.shape[1])
    provided(d < 1e3 and keys.omega < 1.0, f"boxes: logits of this size mean little in {network.dtype}")
    wanted = keys.count * float(keys.spread.max()) / (_SHARE * eps)
    lam = min(max(math.log(max(wanted, 1.0)), 6.0), 80.0)
    leak = upper_at("exp", -lam) * keys.count * _SAFE
    search = _Search(keys, function, lam + 2 * d, leak * keys.spread, d, sums)
    return _supremum(search, eps) if math.isinf(norm) else _mean(search, norm, eps)


def _only_head(network: Network) -> Head:
    heads = [head for layer in network.layers for head in layer.attention]
    alone = len(network.layers) == len(network.heads) == len(heads) == 1
    provided(alone, "boxes: not a single head")
    head, p = heads[0], len(network.outputs)
    picked = np.zeros((p, len(network.coordinates)))
    if len(head.writes) == p:
        picked[np.arange(p), [network.coordinates.index(name) for name in head.writes]] = 1.0
    plain = np.array_equal(network.readout, picked) and not network.readout_bias.any()
    provided(plain, "boxes: the head's values must be the outputs")
    return head


def _read_keys(head: Head, low: Array, high: Array) -> Keys:
    """Every rounding below is relative to a term of Σ |K| (|Q||x| + |c|) + |b|, x in the box or a half width of one."""
    provided(head.keys <= _KEYS, f"boxes: {head.keys:,} keys, more than {_KEYS:,}")
    K, b = head.dense_keys()
    Q, c = head.query_map
    reach = np.maximum(np.abs(low), np.abs(high))
    size = np.abs(K) @ (np.abs(Q) @ reach + np.abs(c)) + sum(float(np.abs(axis.biases).max()) for axis in head.axes)
    roundings = head.query_dim + head.width + len(head.axes) + 8
    return Keys(K @ Q, K @ c + b, head.values.reshape(-1, head.outputs), 32 * roundings * _U * float(size.max()))


# ---------------------------------------------------------------- one look at boxes

Pair = tuple[Array, Array]


@dataclass(frozen=True)
class _Target:
    """f at the centres and on the boxes (n, outputs), its gradient there (n, outputs, d) where it is known."""

    here: Pair
    whole: Pair
    slopes: Pair | None


@dataclass(frozen=True)
class _Kept:
    """The kept keys of all boxes, one after the other: which box, logits and slopes less those of its reference key."""

    owner: Index
    start: Index
    own: NDArray[np.bool_]
    lag: Array
    tilt: Array
    values: Array

    def sum(self, terms: Array) -> Array:
        return np.asarray(np.add.reduceat(terms, self.start))

    @cached_property
    def counts(self) -> Index:
        return np.diff(np.append(self.start, len(self.owner)))

    def most(self, terms: Array) -> Array:
        return np.asarray(np.maximum.reduceat(terms, self.start))


@dataclass(frozen=True)
class _Search:
    """What boxes are judged by. `lost`: what is left out, times the spread; `sums`: rounding of sums, (outputs,)."""

    keys: Keys
    function: Function
    cut: float
    lost: Array
    d: float
    sums: Array

    def begin(self) -> Boxes:
        box, n = self.function.box, self.keys.count
        return self.look(box.low_array[None], box.high_array[None], np.arange(n), np.array([n]))

    def look(self, low: Array, high: Array, kept: Index, counts: Index) -> Boxes:
        """Boxes judged, some at a time."""
        ends = np.cumsum(counts)
        parts, first, done = [], 0, 0
        while first < len(low):
            last = max(first + 1, int(np.searchsorted(ends, done + _TOGETHER, side="right")))
            rows = slice(first, last)
            parts.append(self._judge(low[rows], high[rows], kept[done : ends[last - 1]], counts[rows]))
            first, done = last, int(ends[last - 1])
        return Boxes.joined(parts)

    def cost(self, boxes: Boxes) -> float:
        """Of halving them, as a share of what may be spent."""
        pairs = 2 * (len(boxes.kept) + len(boxes.counts) * (2 if self.function.graph is None else 1))
        size = 8 if self.function.graph is None else 8 + len(self.function.graph.nodes)
        work = (pairs + len(boxes.counts) * size) / _ENTRIES
        return max(work, 2 * len(boxes.counts) / _CALLS) if self.function.graph is None else work

    @np.errstate(all="ignore")
    def _judge(self, low: Array, high: Array, kept: Index, counts: Index) -> Boxes:
        keys, n = self.keys, len(low)
        c = np.clip(low + (high - low) / 2, low, high)
        h = next_above(np.maximum(high - c, c - low))
        owner = np.repeat(np.arange(n), counts)
        logits = (keys.slopes[kept] * c[owner]).sum(axis=1) + keys.biases[kept]
        top = np.maximum.reduceat(logits, np.cumsum(counts) - counts)[owner]
        tops = np.flatnonzero(logits == top)
        reference = tops[np.searchsorted(owner[tops], np.arange(n))]
        tilt = keys.slopes[kept] - keys.slopes[kept[reference]][owner]
        lag = logits - top
        stay = ~(lag + (np.abs(tilt) * h[owner]).sum(axis=1) + 4 * keys.omega < -self.cut)
        own = np.zeros(len(kept), dtype=bool)
        own[reference] = True
        kept, owner = kept[stay], owner[stay]
        counts = np.bincount(owner, minlength=n)
        near = _Kept(owner, np.cumsum(counts) - counts, own[stay], lag[stay], tilt[stay], keys.values[kept])
        target = self._target(low, high, c, h)
        least, most = np.minimum.reduceat(near.values, near.start), near.most(near.values)
        spread = (most - least) * _SAFE
        lookup = near.most(self._lookup(target, near, h))
        average, apart, v, doubt, swing = self._average(target, near, h)
        real = (np.fmin(lookup, average) + self.lost) * _SAFE
        moved = spread * upper_at("tanh", min(self.d / 2, 20.0))
        computed = (np.fmin(lookup, average + moved) + 3 * self.lost) * _SAFE
        below = np.fmax(np.maximum(target.whole[0] - most, least - target.whole[1]), apart) - 2 * self.lost
        seen = np.maximum(target.here[0] - v, v - target.here[1]) - doubt - 2 * self.lost
        firm = seen - swing * (upper_at("expm1", min(2 * self.d, 50.0)) + 1e-12) - self.lost - self.sums
        return Boxes(
            (low, high),
            kept,
            counts,
            np.where(np.isnan(real), np.inf, real),
            _positive(below * (1 - 1e-9)),
            np.where(np.isnan(computed), np.inf, computed),
            _positive(seen * (1 - 1e-9)).max(axis=1),
            _positive(firm * (1 - 1e-9)).max(axis=1) if self.d < 25 else np.zeros(n),
            self._sides(low, high, h, target, near, spread),
        )

    def _sides(self, low: Array, high: Array, h: Array, target: _Target, near: _Kept, spread: Array) -> Array:
        """How much f and the weights may change along every side: steers and proves nothing."""
        wide = _finite((target.whole[1] - target.whole[0]).max(axis=1), 1.0)[:, None]
        steep = np.full(h.shape, np.inf) if target.slopes is None else _size(target.slopes).max(axis=1)
        turn = near.most(np.abs(near.tilt) * h[near.owner]) / self.cut
        change = np.minimum(_finite(steep * h, np.inf), wide) + np.minimum(turn, 1.0) * spread.max(axis=1)[:, None]
        width = self.function.box.high_array - self.function.box.low_array
        longest = h / width
        share = longest / longest.max(axis=1, keepdims=True)  # ties go to the longest side
        sides = (
            change * share if target.slopes is None else change + (1e-3 * change.max(axis=1)[:, None] + 1e-300) * share
        )
        middle = low + (high - low) / 2
        return np.where((low < middle) & (middle < high), sides, -1.0)

    def _target(self, low: Array, high: Array, c: Array, h: Array) -> _Target:
        function = self.function
        if function.graph is None:
            assert function.call is not None and function.lipschitz is not None
            f = function.call(c)
            far = function.lipschitz * np.sqrt((h * h).sum(axis=1))[:, None] * _SAFE
            return _Target((f, f), (next_below(f - far), next_above(f + far)), None)
        names, n = function.box.names, len(low)
        base = IntervalAlgebra(clip_sqrt=True)
        algebra = GradientAlgebra(base, len(names))
        at = run(function.graph, base, {name: Interval(c[:, k], c[:, k]) for k, name in enumerate(names)})
        boxes = {name: Interval(low[:, k], high[:, k]) for k, name in enumerate(names)}
        duals = run(function.graph, algebra, algebra.variables(names, boxes))
        here, whole = _columns(at, n), _columns([dual.value for dual in duals], n)
        partials = [_columns(algebra.gradient(dual), n) for dual in duals]
        slopes = np.stack([one[0] for one in partials], axis=1), np.stack([one[1] for one in partials], axis=1)
        reach = (_size(slopes) * h[:, None, :]).sum(axis=2) * _SAFE
        below, above = np.fmax(whole[0], next_below(here[0] - reach)), np.fmin(whole[1], next_above(here[1] + reach))
        return _Target(here, (_finite(below, -np.inf), _finite(above, np.inf)), slopes)

    def _lookup(self, target: _Target, near: _Kept, h: Array) -> Array:
        """(pairs, outputs) e_j: sup |f − V_j| over the part of its box on which key j is not left out."""
        low, high = (end[near.owner] for end in target.whole)
        if target.slopes is not None:
            edge, slack = h[near.owner][:, None, :], self.cut + 8 * self.keys.omega
            middle = (target.slopes[0] + target.slopes[1]) / 2
            radius = np.maximum(target.slopes[1] - middle, middle - target.slopes[0])
            around = ((radius * h[:, None, :]).sum(axis=2) * _SAFE)[near.owner]
            g, tilt, lag = middle[near.owner], near.tilt[:, None, :], near.lag[:, None]
            mine = near.own[:, None]
            for side in (1.0, -1.0):
                key = _reach(side * g, tilt, slack + lag, edge)
                reference = np.minimum.reduceat(_reach(side * g, -tilt, slack - lag, edge), near.start)[near.owner]
                rise = np.where(mine, reference, key)
                rise = rise + around + 4 * _U * (np.abs(rise) + around)
                if side > 0:
                    high = np.fmin(high, next_above(target.here[1][near.owner] + rise))
                else:
                    low = np.fmax(low, next_below(target.here[0][near.owner] - rise))
        return next_above(np.maximum(high - near.values, near.values - low))

    def _average(self, target: _Target, near: _Kept, h: Array) -> tuple[Array, Array, Array, Array, Array]:
        """The second form, all (n, outputs): upper and lower bounds of |f − net| on the boxes, net being the average
        of the kept keys; v, how far it may be from net at the centre, and Σ p_j |V_j − v|.

        p_j is off by a share η: logits by ω each, exp by 4 ulp, sums of so many terms by 1e-12. κ_j may be a_j less any
        vector but in Jensen's inequality, where the mean of the κ_j counts.
        """
        owner, omega, many = near.owner, self.keys.omega, 1e-12
        eta = 4 * omega + 4 * many
        t = np.exp(near.lag)
        total = near.sum(t)[owner]
        p, log_p = t / total, near.lag - np.log(total)
        kappa = near.tilt - near.sum(p[:, None] * near.tilt)[owner]
        swing = np.abs(near.tilt) * h[owner]
        y = (np.abs(kappa) * h[owner]).sum(axis=1) * _SAFE + omega + 4 * _U * swing.sum(axis=1)
        tilt = (2 * eta * near.sum(p * y) + omega + 8 * many * near.sum(p * swing.sum(axis=1)))[owner]
        swell = np.exp(np.minimum(y, 700.0)) * _SAFE
        grown = np.exp(np.minimum(log_p + 2 * eta + y + tilt, 0.0)) * _SAFE  # p itself may have vanished
        least = p * (1 - 2 * eta) / (swell * near.sum(p * (1 + 2 * eta) * swell)[owner]) / _SAFE
        delta = np.maximum(grown - p, p - least) * _SAFE + p * (2 * eta + 20 * many) + 1e-290
        v = near.sum(p[:, None] * near.values)
        size = near.most(np.abs(near.values))
        off = np.abs(near.values - v[owner]) + 4 * _U * size[owner]
        mean = near.sum(p[:, None] * off) * _SAFE
        doubt = 2 * eta * mean + 4 * many * size
        rho = np.minimum(near.sum(delta[:, None] * off) * _SAFE, near.most(off)) + doubt
        high = np.maximum(target.whole[1] - (v - rho), (v + rho) - target.whole[0])
        low = np.maximum(target.whole[0] - (v + rho), (v - rho) - target.whole[1])
        if target.slopes is not None:
            form = np.maximum(target.here[1] - v, v - target.here[0]) + doubt
            for k in range(h.shape[1]):
                part = kappa[:, k : k + 1]
                g = near.sum(p[:, None] * part * (near.values - v[owner]))
                doubted = near.sum(delta[:, None] * np.abs(part) * off) + rho * near.sum(grown[:, None] * np.abs(part))
                slope = np.maximum(target.slopes[1][:, :, k] - g, g - target.slopes[0][:, :, k]) + doubted * _SAFE
                form = form + h[:, k : k + 1] * slope * _SAFE
            form = form + 4 * omega * (near.most(off) + rho) * (1 + near.sum(grown)[:, None])
            high = np.fmin(high, form)
        few = (near.counts <= _AVERAGED)[:, None] & (eta < 1e-2)
        high, doubt = np.where(few, high * _SAFE, np.inf), np.where(few, doubt, np.inf)
        return high, np.where(few, low, -np.inf), v, doubt, mean


def _reach(g: Array, D: Array, tau: Array, h: Array) -> Array:
    """(pairs, outputs) an upper bound of g·s for |s_k| ≤ h_k and D·s ≥ −τ; g (pairs, outputs, d), D (pairs, 1, d).

    It may be negative. Every sum is taken up by what its roundings may be.
    """
    best = (np.abs(g) * h).sum(axis=2) * _SAFE
    for k in range(g.shape[2]):
        mu = -g[:, :, k] / D[:, :, k]
        mu = np.where(np.isfinite(mu) & (mu > 0), mu, 0.0)
        tilted = mu[:, :, None] * D
        size = ((np.abs(g) + np.abs(tilted)) * h).sum(axis=2) + mu * np.abs(tau)
        bound = (np.abs(g + tilted) * h).sum(axis=2) + mu * tau + 16 * (g.shape[2] + 4) * _U * size
        best = np.fmin(best, bound)
    return best


def _columns(values: Iterable[Interval], n: int) -> Pair:
    """(n, …) lower and upper ends of intervals, one column each."""
    ends = [(np.broadcast_to(one.lo, (n,)), np.broadcast_to(one.hi, (n,))) for one in values]
    return np.stack([low for low, _ in ends], axis=1), np.stack([high for _, high in ends], axis=1)


def _size(ends: Pair) -> Array:
    return np.maximum(np.abs(ends[0]), np.abs(ends[1]))


def _finite(x: Array, other: float) -> Array:
    """NaN is `other`."""
    return np.where(np.isnan(x), other, x)


def _positive(x: Array) -> Array:
    """0 where nothing is proved."""
    return np.where(np.isfinite(x) & (x > 0), x, 0.0)


# ---------------------------------------------------------------- the search


def _supremum(search: _Search, eps: float) -> Bound:
    """The largest bound over boxes that cover the domain; those above the goal are halved."""
    boxes, spent, used = search.begin(), 0.0, 1
    rounding = float(search.sums.max())
    low, firm, at = 0.0, 0.0, boxes.ends[0][0]
    high = computed = 0.0
    while True:
        best = int(np.argmax(boxes.seen))
        if boxes.seen[best] > low:
            low, at = float(boxes.seen[best]), boxes.ends[0][best] + (boxes.ends[1][best] - boxes.ends[0][best]) / 2
        firm = max(firm, float(boxes.firm.max()))
        goal = max((eps - rounding) * (1 - 1e-12), _CLOSE * low)
        worst = boxes.computed.max(axis=1)
        bad = ~(worst <= goal) & (boxes.sides.max(axis=1) >= 0)
        spent += search.cost(boxes.of(bad))
        done = not bad.any() or spent > 1 or firm > 1.5 * eps
        over = boxes if done else boxes.of(~bad)
        high = max(high, float(over.high.max(initial=0.0)))
        computed = max(computed, float(over.computed.max(initial=0.0)))
        if done:
            break
        boxes = search.look(*boxes.of(bad).halves())
        used += len(boxes.counts)
    provided(math.isfinite(high), "boxes: no finite bound (the target's range is not finite)")
    return _bound(search, (low, high, computed + rounding), at, firm, math.inf, used)


def _mean(search: _Search, p: float, eps: float) -> Bound:
    """The p-th mean of the bounds of all boxes; the boxes that leave most open are halved."""
    boxes, spent = search.begin(), 0.0
    width = search.function.box.high_array - search.function.box.low_array
    rounding = float(search.sums.max())
    while True:
        volume = np.prod((boxes.ends[1] - boxes.ends[0]) / width, axis=1)
        high, computed = _norm(boxes.high, volume, p, 1.0), _norm(boxes.computed, volume, p, 1.0)
        low = _norm(boxes.low, volume, p, -1.0)
        if spent > 1 or low > eps + rounding or (high <= _CLOSE_MEAN * low and computed + rounding <= eps):
            break
        if computed + rounding <= eps and spent > _ENOUGH:
            break
        bad = _worth(boxes, volume, p)
        if not bad.any():
            break
        spent += search.cost(boxes.of(bad)) + len(volume) / _ENTRIES
        boxes = Boxes.joined([boxes.of(~bad), search.look(*boxes.of(bad).halves())])
    provided(math.isfinite(high), "boxes: no finite bound (the target's range is not finite)")
    return _bound(search, (min(low, high), high, computed + rounding), None, 0.0, p, len(volume))


def _norm(e: Array, volume: Array, p: float, way: float) -> float:
    """(Σ volume e^p)^{1/p} of the largest output, rounded up (way 1) or down (way −1)."""
    largest = e.max(axis=0)
    if not np.isfinite(largest).all():
        return math.inf
    unit = np.where(largest > 0, largest, 1.0)  # e^p underflows for large p
    total = (volume[:, None] * (power(e / unit, p) + max(way, 0.0) * 1e-300)).sum(axis=0)
    doubt = (len(volume) + 64) * 2.0**-52 + p * 1e-15
    with precision(64):
        roots = [root(float(t) * (1 + way * doubt), p) for t in total]
        return float(max(u * (upper(r) if way > 0 else lower(r)) for u, r in zip(unit, roots, strict=True))) * (
            1 + way * 1e-12
        )


def _worth(boxes: Boxes, volume: Array, p: float) -> NDArray[np.bool_]:
    """The boxes that can be halved and leave most of what is open; those without a bound first."""
    able = boxes.sides.max(axis=1) >= 0
    endless = ~np.isfinite(boxes.computed).all(axis=1)
    if endless.any():
        return endless & able
    largest = boxes.computed.max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    excess = (volume[:, None] * (power(boxes.computed / unit, p) - power(boxes.low / unit, p))).max(axis=1)
    excess = np.where(able, np.maximum(excess, 0.0), 0.0)
    order = np.argsort(-excess, kind="stable")
    running = np.cumsum(excess[order])
    out = np.zeros(len(volume), dtype=bool)
    out[order[: int(np.searchsorted(running, _MORE * running[-1])) + 1]] = running[-1] > 0
    return out & able


_EXACT = {
    "var",
    "const",
    "pi",
    "e",
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "powi",
    "sqrt",
    "abs",
    "max",
    "min",
    "relu",
    "sign",
}


def _bound(
    search: _Search, ends: tuple[float, float, float], at: Array | None, firm: float, norm: float, used: int
) -> Bound:
    """`ends`: lower end, upper end, upper end as computed."""
    low, high, computed = ends
    function, details = search.function, {"boxes": used, "lambda": search.cut - 2 * search.d}
    resting = rests_on(function, norm)
    if function.graph is None:  # what it says at a point is no proof of what it is there
        low, firm, at = 0.0, 0.0, None
    elif not {node.op for node in function.graph.nodes} <= _EXACT:
        resting = ("NumPy: elementary functions within 4 ulp, SciPy: erf within 8", *resting)
    rounding = math.nextafter(max(computed - high, 0.0), math.inf)
    return Bound("boxes", min(low, high), high, at if low > 0 else None, details, resting, rounding, firm)
