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

Errors |e|: bias and rounding of the sum over examples (`prove_sums.py`, ẑ = κ(Xv − y), |ẑ| ≤ κ(√L|v − w*| +
|y|)); √d|t − sΛ|, for thresholds move S by no more; |C_w − 1 − ω||w| where the carry is another; and of the threshold
itself: a head with logits βb and 0 and values b and 0, b = a − t or −a − t, gives bσ(βb), off max(b, 0) by
|b|σ(−β|b|) ≤ 0.2785/β; where the logit is off by Δ, by at most (0.2785 + |Δ|)/β. Two heads per coordinate. The stored w
is what both logit and value are made of, so a coefficient that is off is off exactly.

Foreign tokens. The token "null" attends to itself alone and stays 0. Examples and queries hold, after a threshold, at
most 2(|w| + √d t) of the solver's w; no head reads it but as a key that is shut out.

Failure modes: another pattern; steps that differ from each other; sL > 1 or μ > m with momentum; a spectrum that
reaches 0; logits past the circles of `prove_sums.py`; more than 4,000 layers.
"""

import math
from fractions import Fraction

import numpy as np

from attnfun.certify.rounding import LARGEST, ROUNDOFF, TINY, gamma, kernel_move
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.in_context.prove_class import SAFE, seen
from attnfun.kinds.in_context.prove_linear import InContextBound
from attnfun.kinds.in_context.prove_pattern import read_lasso
from attnfun.kinds.in_context.prove_sums import tanh_errors
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.target import Array
from attnfun.network import TokenNetwork


def prove_by_in_context_lasso(network: TokenNetwork, task: InContextTask) -> InContextBound:
    """The bound for all prompts of the class, from the stored weights; Undecided where the pattern is another."""
    return _Proof(network, task).bound()


class _Proof:
    def __init__(self, network: TokenNetwork, task: InContextTask) -> None:
        self.g, self.h, self.r, self.steps = read_lasso(network, task.dim, task.examples)
        self.dtype, self.u, self.data = network.dtype, ROUNDOFF[network.dtype], seen(task, network.dtype)
        d = self.data
        self.m, self.L = d.low / SAFE, d.high * SAFE
        self.kappa = -self.g.logits[-1]
        self.s = -self.g.sum.moment(1) * Fraction(self.kappa)
        penalty = Fraction(task.strength) * task.examples
        provided(self.s > 0, "the steps do not go downhill")
        self.missed = float(abs(Fraction(self.h.t) - self.s * penalty)) * math.sqrt(d.d) * SAFE
        self.image = max(0.0, d.y - float(penalty) / math.sqrt(self.L) / SAFE) * SAFE  # ≥ |Xw*|
        self.w = self.image / math.sqrt(self.m) * SAFE
        self.logits = self.largest = 0.0

    def bound(self) -> InContextBound:
        d, r = self.data, self.r
        away = self._iterated()  # optimisation, bias, rounding of w
        length = self.w + float(away.sum())
        size = d.q * length * SAFE  # ≥ |⟨q, w⟩|
        slope = r.sum.moment(1) * Fraction(r.kappa_q) / 2
        drift = float(abs(slope - 1)) * size
        foreign = r.sum.gap - abs(r.kappa_q) * d.q * 4 * (length + math.sqrt(d.d) * self.h.t) * SAFE
        shift = gamma(d.d + 6, self.u) * abs(r.kappa_q) * size
        read = tanh_errors(r.sum.heads, abs(r.kappa_q) * size / 2 * SAFE, shift, foreign, self.dtype)
        self.logits = max(self.logits, abs(r.kappa_q) * size / 2)
        optimisation, bias, rounding = (float(part) * d.q * SAFE for part in away)
        bias, rounding = (bias + read.bias + drift) * SAFE, (rounding + read.rounding) * SAFE
        return InContextBound(optimisation, bias, rounding, self._input(), self.logits)

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
        provided(0 < omega < 1, "the momentum is not between 0 and 1")
        r = (1 - omega) / (1 + omega)
        mu = r * r / self.s
        provided(self.s * Fraction(self.L) <= 1 and mu <= Fraction(self.m), "step and momentum do not fit the class")
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
        kappa, root = abs(self.kappa), math.sqrt(d.d) * SAFE
        now, before = (self.w + far) * SAFE, (self.w + previous) * SAFE
        carried = abs(g.C_w) * now + abs(g.C_u) * before
        other = float(abs(Fraction(g.C_w) + Fraction(g.C_u) - 1)) * now
        away += other
        zeta = kappa * (min(math.sqrt(d.top) * away + d.y, residual + math.sqrt(d.top) * other)) * SAFE
        shift = gamma(d.d + 5, u) * kappa * (d.row * carried + d.y_entry)
        self.logits = max(self.logits, zeta)
        found = g.sum.errors(d, dtype, zeta, zeta, shift)
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
        if not (abs(self.kappa) * d.row * most + g.sum.gap + h.beta * (most + h.t)) * 1e6 * d.N < LARGEST[self.dtype]:
            raise Undecided("the stream may overflow")

    def _input(self) -> float:
        """What rounding the data to float32 costs: m|w' − w*| ≤ |X'ᵀ(ΔX w* − Δy) + ΔXᵀ(Xw* − y)|, and Δq."""
        d, tiny = self.data, math.sqrt(self.data.N) * TINY[self.dtype]

        def change(move: float) -> float:
            return (math.sqrt(d.high) * (move * self.w + self.u * d.y + tiny) + move * d.y) / self.m

        return d.lost(self.dtype, self.w, change)
