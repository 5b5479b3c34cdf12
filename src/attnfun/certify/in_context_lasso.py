"""Method *in_context_lasso*: the lasso on token matrices, for every prompt of a declared class.

| symbol | meaning |
| --- | --- |
| F(w) = ½\\|y − Xw\\|² + Λ\\|w\\|₁, Λ = alpha N | N times the objective; w* its minimiser |
| m, L | all eigenvalues of XᵀX are within [m, L], m > 0 (with what `predict` allows outside `spectrum`) |
| s, t, ω | step, threshold and momentum, read from the stored matrices; S_t the soft threshold |

Statement. The network holds w_{k+1} = S_t(v_k − s Xᵀ(X v_k − y)) + e_{k+1}, v_k = (1 + ω) w_k − ω w_{k−1}, w_0 = 0,
and reads ⟨q, w_T⟩ off a tanh. With |e_k| as below (`_Proof.step`), for every prompt of the class

* ω = 0: |w_{k+1} − w*| ≤ ρ|w_k − w*| + |e_{k+1}|, ρ = max(|1 − sm|, |1 − sL|);
* ω > 0, with r = (1 − ω)/(1 + ω), if sL ≤ 1 and μ = r²/s ≤ m: |w_k − w*| ≤ V_k + |e_k|,

      V_{k+1} ≤ √(1 − r) (V_k + (1 + r)/r |η_k|),   η_k = (1 + ω) e_k − ω e_{k−1},   V_0² = |Xw*|²/μ + |w*|².

Argument. First: w* = S_Λs(w* − s Xᵀ(Xw* − y)), S moves no two points apart, and I − sXᵀX has norm ρ. Second: let x_k
= w_k − e_k, so x_{k+1} is the exact proximal step from v_k, and let x̄ = x_k, z = x_{k−1} + (x_k − x_{k−1})/r.
Nesterov's method without errors has v = (x̄ + r z)/(1 + r), and then (1/L' = s ≤ 1/L; convexity with μ ≤ m at x̄ and
at w*)

    F(x⁺) − F* + (μ/2)|z⁺ − w*|² ≤ (1 − r) (F(x̄) − F* + (μ/2)|z − w*|²),     z⁺ = x̄ + (x⁺ − x̄)/r,

(Nesterov 2004, Beck and Teboulle 2009). Here v_k is off by η_k. That is the same as z off by ζ = (1 + r)/r η_k with
x̄ as it is: x⁺ and z⁺ are those of the exact method from (x̄, z + ζ). √(A + |b + ζ|²) ≤ √(A + |b|²) + |ζ|, so V =
√((2/μ)(F(x̄) − F*) + |z − w*|²) obeys the recursion, and |x_k − w*| ≤ V_k for F(x) − F* ≥ (μ/2)|x − w*|². At 0: F(0)
− F* = ½|Xw*|², for Λ|w*|₁ = ⟨Xw*, y − Xw*⟩.

Sizes. From that identity |Xw*|² + Λ|w*|₁ = ⟨Xw*, y⟩ and |w*|₁ ≥ |Xw*|/√L: |Xw*| ≤ max(0, |y| − Λ/√L), |w*| ≤
|Xw*|/√m; and
|y − Xw*| ≤ |y|, for the inner product of Xw* and y − Xw* is not negative.

Errors |e|: bias and rounding of the sum over examples (`in_context_sums.py`, ẑ = κ(Xv − y), |ẑ| ≤ κ(√L|v − w*| +
|y|)); √d|t − sΛ|, for thresholds move S by no more; |C_w − 1 − ω||w| where the carry is another; and of the threshold
itself: a head with logits βb and 0 and values b and 0, b = a − t or −a − t, gives bσ(βb), off max(b, 0) by
|b|σ(−β|b|) ≤ 0.2785/β; where the logit is off by Δ, by at most (0.2785 + |Δ|)/β. Two heads a coordinate. The stored w
is what both logit and value are made of, so a coefficient that is off is off exactly.

Foreign tokens. The token "null" attends to itself alone and stays 0. Examples and queries hold, after a threshold, at
most 2(|w| + √d t) of the solver's w; no head reads it but as a key that is shut out.

Failure modes: another pattern; steps that differ from each other; sL > 1 or μ > m with momentum; a spectrum that
reaches 0; logits past the circles of `in_context_sums.py`; more than 4,000 layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.certify.in_context import InContextBound
from attnfun.certify.in_context_class import SAFE, seen
from attnfun.certify.in_context_pattern import Array, Entries, gap_of, names, ratios_of
from attnfun.certify.in_context_sums import SHUT, Errors, Sum, tanh_errors
from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma, kernel_move
from attnfun.certify.view import Undecided
from attnfun.network import TokenHead, TokenLayer, TokenNetwork
from attnfun.targets.in_context import InContextTask

BLOCKS = "xqwu"
UNITS = ("y", "prediction", "one", "data", "solver", "null")
_MOST = 4000


@dataclass(frozen=True)
class Gradient:
    """w ← C_w w + C_u u + Σ a head, u ← w; logits κ(C_w⟨x, w⟩ + C_u⟨x, u⟩ − y) of the largest head."""

    C_w: float
    C_u: float
    kappa: float
    sum: Sum


@dataclass(frozen=True)
class Threshold:
    beta: float
    t: float


@dataclass(frozen=True)
class Reading:
    """Σ a tanh(ρ κ⟨q, w⟩/2)."""

    kappa: float
    heads: tuple[tuple[Fraction, float], ...]
    gap: float


def prove_by_in_context_lasso(network: TokenNetwork, task: InContextTask) -> InContextBound:
    """The bound for all prompts of the class, from the stored weights; Undecided where the pattern is another."""
    if task.task != "lasso":
        raise Undecided(f"this is about the lasso, not about {task.task}")
    gradient, threshold, reading, steps = read_lasso(network, task.dim, task.examples)
    return _Proof(gradient, threshold, reading, steps, task, network.dtype).bound()


class _Proof:
    def __init__(
        self,
        gradient: Gradient,
        threshold: Threshold,
        reading: Reading,
        steps: int,
        task: InContextTask,
        dtype: str,
    ) -> None:
        self.g, self.h, self.r, self.steps, self.dtype = gradient, threshold, reading, steps, dtype
        self.task, self.data, self.u = task, seen(task, dtype), ROUNDOFF[dtype]
        d = self.data
        self.m, self.L = d.low / SAFE, d.high * SAFE
        self.s = -gradient.sum.moment(1) * Fraction(gradient.kappa)
        penalty = Fraction(task.strength) * task.examples
        if not self.s > 0:
            raise Undecided("the steps do not go downhill")
        self.missed = float(abs(Fraction(threshold.t) - self.s * penalty)) * math.sqrt(d.d) * SAFE
        self.image = max(0.0, d.y - float(penalty) / math.sqrt(self.L) / SAFE) * SAFE  # ≥ |Xw*|
        self.w = self.image / math.sqrt(self.m) * SAFE
        self.logits = self.largest = 0.0

    def bound(self) -> InContextBound:
        d, r = self.data, self.r
        away = self._iterated()  # optimisation, bias, rounding of w
        length = self.w + float(away.sum())
        size = d.q * length * SAFE  # ≥ |⟨q, w⟩|
        slope = sum((Fraction(a) * ratio for ratio, a in r.heads), Fraction(0)) * Fraction(r.kappa) / 2
        drift = float(abs(slope - 1)) * size
        foreign = r.gap - abs(r.kappa) * d.q * 4 * (length + math.sqrt(d.d) * self.h.t) * SAFE
        shift = gamma(d.d + 6, self.u) * abs(r.kappa) * size
        read = tanh_errors(r.heads, abs(r.kappa) * size / 2 * SAFE, shift, foreign, self.dtype)
        self.logits = max(self.logits, abs(r.kappa) * size / 2)
        optimisation, bias, rounding = (float(part) * d.q * SAFE for part in away)
        return InContextBound(
            optimisation,
            (bias + read.bias + drift) * SAFE,
            (rounding + read.rounding) * SAFE,
            self._input(),
            self.logits,
            2 * self.steps + 1,
        )

    def _iterated(self) -> Array:
        """Bounds of |w_T − w*|: without errors, by bias, by rounding."""
        omega = -Fraction(self.g.C_u)
        if omega == 0:
            s = self.s
            rho = max(abs(1 - s * Fraction(self.m)), abs(1 - s * Fraction(self.L)))
            rate = float(rho) * SAFE + 4 * 2.0**-53
            away = np.array([self.w, 0.0, 0.0])
            for _ in range(self.steps):
                reach = float(away.sum())
                bias, rounding = self.step(reach, reach, reach, math.inf)
                away = rate * away + np.array([0.0, bias, rounding])
            return np.asarray(away * SAFE)
        if not 0 < omega < 1:
            raise Undecided("the momentum is not between 0 and 1")
        r = (1 - omega) / (1 + omega)
        mu = r * r / self.s
        if not (self.s * Fraction(self.L) <= 1 and mu <= Fraction(self.m)):
            raise Undecided("step and momentum are not those of the method for this spectrum")
        rate, gain, ahead = math.sqrt(float(1 - r)) * SAFE, float((1 + r) / r) * SAFE, float(omega) * SAFE
        start = math.sqrt(self.image**2 / float(mu) + self.w**2) * SAFE
        V, e, before = np.array([start, 0.0, 0.0]), np.zeros(3), np.zeros(3)
        far = previous = self.w  # |w_k − w*|, |w_{k−1} − w*|
        largest = start  # of V now and a step before
        for _ in range(self.steps):
            eta = (1 + ahead) * e + ahead * before
            residual = (1 + 2 * ahead) * math.sqrt(self.data.y**2 + float(mu) * largest**2)
            residual += math.sqrt(self.data.top) * float(eta.sum())
            bias, rounding = self.step(float((V + eta).sum()), far, previous, residual * SAFE)
            largest = float(V.sum())
            V, e, before = rate * (V + gain * eta), np.array([0.0, bias, rounding]), e
            far, previous = float((V + e).sum()), far
        return np.asarray((V + e) * SAFE)

    def step(self, away: float, far: float, previous: float, residual: float) -> tuple[float, float]:
        """(bias, rounding) of e: |v − w*| ≤ away, |w − w*| ≤ far, |w₋ − w*| ≤ previous, |Xv − y| ≤ residual."""
        d, g, h, u, dtype = self.data, self.g, self.h, self.u, self.dtype
        kappa, root = abs(g.kappa), math.sqrt(d.d) * SAFE
        now, before = (self.w + far) * SAFE, (self.w + previous) * SAFE
        carried = abs(g.C_w) * now + abs(g.C_u) * before
        other = float(abs(Fraction(g.C_w) + Fraction(g.C_u) - 1)) * now
        away += other
        zeta = kappa * (min(math.sqrt(d.top) * away + d.y, residual + math.sqrt(d.top) * other)) * SAFE
        shift = gamma(d.d + 5, u) * kappa * (d.row * carried + d.y_entry)
        self.logits = max(self.logits, zeta)
        found: Errors = g.sum.errors(d, dtype, zeta, zeta, shift)
        summed = gamma(len(g.sum.heads) + 10, u) * (carried + found.size)
        entering = found.bias + found.rounding + other + summed
        size = (self.w + root * h.t + away + entering) * SAFE  # of what is thresholded
        soft = 2 * 0.28 / h.beta * root
        gates = 2 * (16 * u + 2 * kernel_move(1, dtype)) * (size + root * h.t)
        gates += 64 * root * TINY[dtype] * (1 + 1 / h.beta)
        self._no_overflow(size)
        return (found.bias + soft) * SAFE, (found.rounding + other + summed + self.missed + gates) * SAFE

    def _no_overflow(self, size: float) -> None:
        """No token holds more than 2(|w| + √d t) after a threshold, and carry and convex sums of examples later."""
        d, g, h = self.data, self.g, self.h
        self.largest = max(self.largest, size)
        held = 2 * (self.largest + math.sqrt(d.d) * h.t)
        most = (abs(g.C_w) + abs(g.C_u)) * held + sum(abs(a) for _, a in g.sum.heads) * d.row * 2
        if not (abs(g.kappa) * d.row * most + g.sum.gap + h.beta * (most + h.t)) * 1e6 * d.N < LARGEST[self.dtype]:
            raise Undecided("the stream may overflow")

    def _input(self) -> float:
        """What rounding the data to float32 costs: m|w' − w*| ≤ |X'ᵀ(ΔX w* − Δy) + ΔXᵀ(Xw* − y)|, and Δq."""
        if self.dtype == "float64":
            return 0.0
        d, u, tiny = self.data, self.u, TINY[self.dtype]
        move = (u * math.sqrt(d.d * d.high) + math.sqrt(d.N * d.d) * tiny) * SAFE
        slope = math.sqrt(d.high) * (move * self.w + u * d.y + math.sqrt(d.N) * tiny) + move * d.y
        change = slope / self.m
        return float((d.q * change + (u * d.q + math.sqrt(d.d) * tiny) * (self.w + change)) * SAFE)


# -- the pattern -------------------------------------------------------------------------------------------------------


def read_lasso(network: TokenNetwork, dim: int, examples: int) -> tuple[Gradient, Threshold, Reading, int]:
    """The numbers of a lasso network, which are the same in all its steps; or Undecided."""
    if network.coordinates != names(dim, BLOCKS, UNITS):
        raise Undecided("the coordinates are not those of a lasso network")
    layers = len(network.layers)
    if layers < 3 or layers % 2 == 0 or layers > _MOST:
        raise Undecided(f"{layers} layers: an odd number from 3 to {_MOST:,} is needed")
    constant_tokens(network, dim, BLOCKS, UNITS)
    gradients = {layer_key(layer): layer for layer in network.layers[:-1:2]}
    thresholds = {layer_key(layer): layer for layer in network.layers[1::2]}
    if len(gradients) > 1 or len(thresholds) > 1:
        raise Undecided("its steps differ from each other")
    gradient = _gradient(next(iter(gradients.values())), dim, examples)
    threshold = _threshold(next(iter(thresholds.values())), dim)
    return gradient, threshold, _reading(network.layers[-1], dim), layers // 2


def layer_key(layer: TokenLayer) -> tuple[bytes, ...]:
    """The weights of a layer, to tell layers apart."""
    carry = b"" if layer.carry is None else layer.carry.tobytes()
    return (carry, *(part for head in layer.heads for part in _bytes(head)))


def _bytes(head: TokenHead) -> tuple[bytes, ...]:
    return tuple(bytes(str(array.shape), "ascii") + array.tobytes() for array in head.arrays.values())


def constant_tokens(network: TokenNetwork, dim: int, blocks: str, units: tuple[str, ...]) -> None:
    """A solver token and a null token, nothing else; the read-out is the prediction."""
    if network.constants.shape[0] != 2 or network.readout.shape[1] != 1:
        raise Undecided("there must be two constant tokens and one output")
    for row, unit in zip(network.constants, ("solver", "null"), strict=True):
        entries = Entries(row[:, None], dim, f"token {unit}", blocks, units)
        for name in ("one", unit):
            entries.expect(entries.unit(name, 0), 1.0, name)
        entries.done()
    readout = Entries(network.readout, dim, "the read-out", blocks, units)
    readout.expect(readout.unit("prediction", 0), 1.0, "prediction")
    readout.done()


def read_carry(
    layer: TokenLayer, dim: int, what: str, blocks: str, units: tuple[str, ...], rewritten: str = ""
) -> Entries:
    """The carry of a layer, with x, q and the units taken out: all stay as they are, `rewritten` is forgotten."""
    width = len(blocks) * dim + len(units)
    carry = Entries(np.eye(width) if layer.carry is None else layer.carry, dim, f"{what}, carry", blocks, units)
    for block in "xq":
        carry.expect(carry.block(block, blocks.index(block) * dim), 1.0, f"{block} to {block}")
    for place, unit in enumerate(units):
        kept = carry.unit(unit, len(blocks) * dim + place)
        carry.expect(kept, 0.0 if unit == rewritten else 1.0, f"{unit} to {unit}")
    return carry


def momentum_carry(carry: Entries, dim: int) -> tuple[float, float]:
    """(C_w, C_u) of w ← C_w w + C_u u, u ← w."""
    w, u = (carry.blocks.index(block) * dim for block in "wu")
    C_w, C_u = carry.block("w", w), carry.block("u", w)
    carry.expect(carry.block("w", u), 1.0, "w to u")
    carry.expect(carry.block("u", u), 0.0, "u to u")
    carry.done()
    return C_w, C_u


def shielded(key: Entries, column: int, gap: float) -> None:
    """The null token, as a query, attends to itself alone: its own key lies that much higher for it."""
    shield = key.unit("null", column)
    if not shield - gap >= SHUT:
        raise Undecided(f"{key.what}: the null token sees others")


def _entries(head: TokenHead, dim: int, what: str) -> tuple[Entries, Entries, Entries, Entries]:
    return head_entries(head, dim, what, BLOCKS, UNITS)


def head_entries(
    head: TokenHead, dim: int, what: str, blocks: str, units: tuple[str, ...]
) -> tuple[Entries, Entries, Entries, Entries]:
    """W_Q, W_K, W_V and W_O transposed, to be read entry by entry."""

    def made(part: str, array: Array) -> Entries:
        return Entries(array, dim, f"{what}, head {head.name!r}, {part}", blocks, units)

    return made("W_Q", head.query), made("W_K", head.key), made("W_V", head.value), made("W_O", head.output.T)


def _gradient(layer: TokenLayer, dim: int, examples: int) -> Gradient:
    what = "a gradient layer"
    C_w, C_u = momentum_carry(read_carry(layer, dim, what, BLOCKS, UNITS), dim)
    rows, amounts, gaps = [], [], []
    for head in layer.heads:
        if head.query_dim != dim + 3 or head.outputs != dim:
            raise Undecided(f"{what}: a head of another shape")
        query, key, value, output = _entries(head, dim, what)
        rows.append((query.block("w", 0), query.block("u", 0), query.unit("solver", dim)))
        query.expect(query.unit("one", dim + 1), 1.0, "one")
        query.expect(query.unit("null", dim + 2), 1.0, "null")
        key.expect(key.block("x", 0), 1.0, "x")
        key.expect(key.unit("y", dim), 1.0, "y")
        gaps.append(gap_of(key, dim + 1, "data"))
        shielded(key, dim + 2, gaps[-1])
        value.expect(value.block("x", 0), 1.0, "x")
        amounts.append(output.block("w", 0))
        for entries in (query, key, value, output):
            entries.done()
    (kappa_w, kappa_u, kappa_y), ratios = ratios_of(rows, what)
    kappa = -kappa_y
    for logit, carried in ((kappa_w, C_w), (kappa_u, C_u)):
        if Fraction(logit) != Fraction(kappa) * Fraction(carried):
            raise Undecided(f"{what}: the point where the gradient is taken is not the one it is added to")
    return Gradient(C_w, C_u, kappa, Sum(tuple(zip(ratios, amounts, strict=True)), examples, min(gaps)))


def _threshold(layer: TokenLayer, dim: int) -> Threshold:
    what = "a threshold layer"
    carry = read_carry(layer, dim, what, BLOCKS, UNITS)
    w, u = BLOCKS.index("w") * dim, BLOCKS.index("u") * dim
    carry.expect(carry.block("w", w), 0.0, "w to w")
    carry.expect(carry.block("u", u), 1.0, "u to u")
    carry.done()
    found: dict[tuple[int, bool], tuple[float, float]] = {}
    for head in layer.heads:
        if head.query_dim != 4 or head.outputs != 1:
            raise Undecided(f"{what}: a head of another shape")
        query, key, value, output = _entries(head, dim, what)
        place = int(np.abs(head.output[0]).argmax())
        if not w <= place < w + dim:
            raise Undecided(f"{what}: a head that thresholds no coefficient")
        output.expect(output.entry(place, 0), 1.0, "what is written")
        value.expect(value.entry(place, 0), 1.0, "the coefficient")
        slope = query.entry(place, 0)
        beta, upper = abs(slope), slope > 0
        for column, unit in ((1, "one"), (2, "one"), (3, "null")):
            query.expect(query.unit(unit, column), 1.0, unit)
        t = -value.unit("solver", 0) if upper else value.unit("solver", 0)
        key.expect(key.unit("solver", 0), 1.0, "the solver's coefficient")
        if Fraction(key.unit("solver", 1)) != -Fraction(beta) * Fraction(t):
            raise Undecided(f"{what}: logits and values have different thresholds")
        gap = gap_of(key, 2, "solver", "null")
        shielded(key, 3, 0.0)
        if not (gap >= 2 * SHUT and beta > 0 and t >= 0):
            raise Undecided(f"{what}: nothing is shut out")
        for entries in (query, key, value, output):
            entries.done()
        if (place, upper) in found:
            raise Undecided(f"{what}: a coefficient is thresholded twice")
        found[place, upper] = (beta, t)
    if len(found) != 2 * dim or len(set(found.values())) != 1:
        raise Undecided(f"{what}: the coefficients are not thresholded alike")
    return Threshold(*next(iter(found.values())))


def _reading(layer: TokenLayer, dim: int) -> Reading:
    what = "the last layer"
    if layer.carry is not None:
        raise Undecided(f"{what} has a carry")
    rows, amounts, gaps = [], [], []
    for head in layer.heads:
        if head.query_dim != dim + 1 or head.outputs != 1:
            raise Undecided(f"{what}: a head of another shape")
        query, key, value, output = _entries(head, dim, what)
        rows.append((query.block("q", 0),))
        query.expect(query.unit("one", dim), 1.0, "one")
        key.expect(key.block("w", 0), 1.0, "w")
        gaps.append(gap_of(key, dim, "solver", "null"))
        value.expect(value.unit("solver", 0), 1.0, "solver")
        value.expect(value.unit("null", 0), -1.0, "null")
        amounts.append(output.unit("prediction", 0))
        for entries in (query, key, value, output):
            entries.done()
    (kappa,), ratios = ratios_of(rows, what)
    return Reading(kappa, tuple(zip(ratios, amounts, strict=True)), min(gaps))
