"""Method *in_context_logistic*: logistic regression on token matrices, for every prompt of a declared class.

| symbol | meaning |
| --- | --- |
| f(w) = C Σ ln(1 + e^{−⟨w, x̃_i⟩}) + ½\\|w\\|², x̃_i = y_i x_i | the objective; w* its minimiser |
| L, μ, ρ | L ≥ 1 + C max λ/4, μ ≤ 1, ρ = 1 − √(μ/L): read from the stored numbers, then checked against the class |

Statement. The network holds w⁺ = (1 + β)w − βw₋ − a∇f(v) + e, v = (1 + γ)w − γw₋ + ε, w = w₋ = 0 at first, with the
numbers of the triple momentum method: a = (1 + ρ)/L, β = ρ²/(2 − ρ), γ = β/(1 + ρ). Let z = (w − ρ²w₋)/(1 − ρ²),
which is what is read, c = ρ/(2 − ρ). For every prompt of the class |z_k − w*| ≤ V_k, where

    V_{k+1} ≤ ρV_k + 2ρ|η_k|/(1 − c) + |ζ_k|,
    η_k = ε_k + c(e_k/(1 + ρ) − ε_{k−1}),   ζ_k = e_{k+1}/(1 − ρ²) − (1 − ρ)ε_k,
    V_1² ≤ ρ²|w*|² + 2c(1 − μ/L)/μ · (C N ln 2 − ½(1 + μ)|w*|²),   |w*|² ≤ min(0.2785, 2 ln 2/(1 + μ)) C N,

and a prediction, the sigmoid of ⟨q, z⟩, is off by at most ¼|q|V_T and its rounding.

Argument. f is L-smooth and μ-strongly convex everywhere: no |⟨x, w⟩| is too large for it. (Its curvature is larger,
1 + C min λ σ'(B), where all |⟨x, w⟩| ≤ B. But B is about |x|√(0.28 C N) for the class, and there
C min λ σ'(B) stays below 0.2/d, whatever C: one far example saturates, and others hold w.) Put w* = 0 = f*, and
f̂ = f − (μ/2)|·|², ĝ = ∇f̂, M = L − μ; f̂ is convex and M-smooth, so for all a, b

    f̂(a) ≥ f̂(b) + ⟨ĝ(b), a − b⟩ + |ĝ(a) − ĝ(b)|²/(2M),                                                     (*)

and Q(b) = f̂(b) − |ĝ(b)|²/(2M) ≥ 0. (*) for (a, b) and for (0, b), with weights ρ² and 1 − ρ², is, with P = a − ĝ(a)/M,

    Q(b) ≤ ρ²Q(a) − |ĝ(b)|²/M + ⟨ĝ(b), b − ρ²P⟩.

Let z⁺ = ρz + (1 − ρ)(b − ∇f(b)/μ) = ρz − (1 − ρ)ĝ(b)/μ and W = μ/(1 − μ/L). Then W|z⁺|² has |ĝ(b)|²/M and −(2(1 −
ρ)/(2 − ρ))⟨ĝ(b), z⟩, so Q(b) + W|z⁺|² ≤ ρ²(Q(a) + W|z|²) whenever b = ρ²P + 2(1 − ρ)/(2 − ρ) z = c p + (1 − c) z,
where p = a − ∇f(a)/L = (1 − μ/L)P (Van Scoy, Freeman and Lynch 2018; the proof is that of Taylor and Drori). In the
coordinates of the network p = (w + ρw₋)/(1 + ρ), and w⁺, v, z are as above without errors. With them, let p be the
exact v₋ − ∇f(v₋)/L and z the held one. Inserting: v = c p + (1 − c) z + η and z⁺ = ρz + (1 − ρ)(v − ∇f(v)/μ) + ζ.
That η is the same as z off by η/(1 − c), which comes back in z⁺ times ρ; so with V² = (Q + W|z|²)/W the recursion
follows. First step: v = z = 0, (*) for (0, b) alone gives ⟨ĝ, b⟩ ≥ f̂(b) + |ĝ|²/(2M), hence V_1²W ≤ Wρ²|w*|² +
c(f̂(b) + |ĝ|²/(2M)) ≤ Wρ²|w*|² + 2c f̂(b), and f̂(0) = f(0) − f* − (μ/2)|w*|² ≤ C N ln 2 − ½(1 + μ)|w*|², which is
not negative. |w*|² = C Σ ⟨w*, x̃_i⟩ σ(−⟨w*, x̃_i⟩), and uσ(−u) ≤ 0.2785. Padding has x = 0 and changes f by a
constant.

Errors. ε: stored numbers of v that are not those of the method. e: likewise of the carry; and the sum over examples,
`prove_sums.py` with ẑ_i = κ p_i, 0 ≤ p_i ≤ 1, p_i = σ(−⟨x̃_i, v⟩) from a softmax of two keys (`sigmoid_error`):
an example and its mirror image have logits κ(½ ± p_i), their common part falls out. Sizes: |v − w*| ≤ c|v₋ − w*| + (1
− c)V + |η|, for a step of length 1/L moves nothing away from w*, and w = ρp + (1 − ρ)z.

Foreign tokens have logits 0 for all examples, so they run the same iteration for ½|w|² from its minimum: what they hold
is no larger than what the solver may. The token "null" attends to itself alone and stays 0.

Failure modes: another pattern; steps that differ; L or μ that are not those of the class; logits past the circle of
`prove_sums.py`; more than 4,000 layers.
"""

import math
from fractions import Fraction

import numpy as np

from attnfun.certify.rounding import LARGEST, ROUNDOFF, gamma
from attnfun.certify.view import Undecided, provided
from attnfun.kinds.in_context.prove_class import SAFE, seen
from attnfun.kinds.in_context.prove_linear import InContextBound
from attnfun.kinds.in_context.prove_pattern import read_logistic
from attnfun.kinds.in_context.prove_sums import Sum, sigmoid_error
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.target import Array
from attnfun.network import TokenNetwork


def prove_by_in_context_logistic(network: TokenNetwork, task: InContextTask) -> InContextBound:
    """The bound for all prompts of the class, from the stored weights; Undecided where the pattern is another."""
    return _Proof(network, task).bound()


class _Proof:
    def __init__(self, network: TokenNetwork, task: InContextTask) -> None:
        self.v, self.g, self.z, self.steps = read_logistic(network, task.dim, task.examples)
        self.dtype, self.u, self.data = network.dtype, ROUNDOFF[network.dtype], seen(task, network.dtype)
        self.task = task
        self._method()
        self._deviations()
        most = Fraction(task.strength) * task.examples
        share = min(Fraction(2785, 10000), 2 * Fraction(6931472, 10**7) / (1 + self.mu))
        self.w = math.sqrt(float(most * share)) * SAFE
        self.value = float(most) * math.log(2) * SAFE
        self.logits = 0.0

    def _method(self) -> None:
        """ρ and L of the stored numbers, as fractions, and whether they fit the class."""
        step = self.g.sum.moment(1) * Fraction(self.g.logits[0]) / Fraction(self.task.strength)
        ahead = -self.z.k_u
        provided(step > 0 and 0 <= ahead < 1e12, "the steps are not those of triple momentum")
        self.step, self.rho = step, Fraction(math.sqrt(ahead / (1 + ahead)))
        self.L = (1 + self.rho) / step
        self.mu = self.L * (1 - self.rho) ** 2
        needed = 1 + Fraction(self.task.strength) * Fraction(self.data.top) / 4
        provided(needed <= self.L and 0 < self.mu <= 1 and self.mu < self.L, "step and momentum do not fit the class")

    def _deviations(self) -> None:
        """What w and u are multiplied by beside what the method has: of v, of the carry, of what is read."""
        rho, a = self.rho, self.step
        beta = rho**2 / (2 - rho)
        gamma_, delta = beta / (1 + rho), rho**2 / (1 - rho**2)
        k_w, k_u, C_w, C_u = (Fraction(x) for x in (self.v.k_w, self.v.k_u, self.g.C_w, self.g.C_u))

        def off(one: Fraction, other: Fraction) -> tuple[float, float]:
            return float(abs(one)) * SAFE, float(abs(other)) * SAFE

        self.off_v = off(k_w - 1 - gamma_, k_u + gamma_)
        self.off_C = off(C_w - 1 - beta + a * k_w, C_u + beta + a * k_u)
        self.off_z = off(Fraction(self.z.k_w) - 1 - delta, Fraction(self.z.k_u) + delta)

    def bound(self) -> InContextBound:
        d, u = self.data, self.u
        V, now, before = self._iterated()
        reading = self.off_z[0] * now[0] + self.off_z[1] * before[0]
        read, foreign = (abs(self.z.k_w) * now + abs(self.z.k_u) * before) * SAFE
        own = sigmoid_error(gamma(d.d + 6, u) * d.q * read, self.z.gap - d.q * foreign * SAFE, self.dtype)
        provided((d.q * read + self.z.gap) * 1e6 < LARGEST[self.dtype], "the stream may overflow")
        optimisation, bias, rounding = (float(part) * d.q / 4 * SAFE for part in V)
        rounding += (d.q * reading / 4 + own) * SAFE
        return InContextBound(optimisation, bias, rounding, self._input(), self.logits)

    def _iterated(self) -> tuple[Array, Array, Array]:
        """V_T as optimisation, bias and rounding; |w_T| and |w_{T−1}|, each of the solver and of a foreign token."""
        rho, mu = float(self.rho) * SAFE, float(self.mu)
        c = float(self.rho / (2 - self.rho)) * SAFE
        aside = float(2 * (1 - self.rho) / (2 - self.rho)) * SAFE  # 1 − c
        to_z, to_p = float(1 / (1 - self.rho**2)) * SAFE, float(1 / (1 + self.rho))
        rest = float(1 - self.rho) * SAFE
        first = float(2 * self.rho / (2 - self.rho) * (1 - self.mu / self.L) / self.mu) * SAFE
        start = max(rho**2 * s + first * max(self.value - (1 + mu) / 2 * s, 0.0) for s in (0.0, self.w**2))
        now, before = np.zeros(2), np.zeros(2)
        away, eps_before = np.array([self.w, 0.0]), 0.0  # |v − w*|, |ε| of the step before
        e = np.array([0.0, *self.error(now, before)])
        V = np.array([math.sqrt(start) * SAFE, 0.0, 0.0]) + to_z * e
        for k in range(1, self.steps + 1):  # the state after k steps
            far = np.array([V.sum(), V[1:].sum()])  # |z − w*|; a foreign token begins where it ends
            moved = to_p * e.sum() + eps_before
            now, before = (np.array([self.w, 0.0]) + rho * (away + moved) + rest * far) * SAFE, now
            if k == self.steps:
                break
            eps = self.off_v[0] * now[0] + self.off_v[1] * before[0]
            eta = c * to_p * e + np.array([0.0, 0.0, eps + c * eps_before])
            away = c * away + aside * far + eta.sum()
            e = np.array([0.0, *self.error(now, before)])
            V = rho * V + 2 * rho * SAFE**2 / aside * eta + to_z * e + np.array([0.0, 0.0, rest * eps])
            eps_before = eps
        return np.asarray(V * SAFE), now, before

    def error(self, now: Array, before: Array) -> tuple[float, float]:
        """(bias, rounding) of e: sizes of w and w₋, of the solver and of a foreign token."""
        d, g, u = self.data, self.g, self.u
        kappa = abs(g.logits[0])
        read, foreign = (abs(self.v.k_w) * now + abs(self.v.k_u) * before) * SAFE
        p = sigmoid_error(gamma(d.d + 6, u) * d.row * read, self.v.gap - d.row * foreign * SAFE, self.dtype)
        self.logits = max(self.logits, kappa)
        seen_by = Sum(g.sum.heads, g.sum.N, g.sum.gap - 2 * kappa)
        found = seen_by.errors(d, self.dtype, kappa * SAFE, kappa * math.sqrt(d.N) * SAFE, kappa * (p + 8 * u))
        carried = abs(g.C_w) * now[0] + abs(g.C_u) * before[0]
        other = self.off_C[0] * now[0] + self.off_C[1] * before[0]
        summed = gamma(len(g.sum.heads) + 10, u) * (carried + found.size)
        if not (d.row * read + self.v.gap + g.sum.gap + carried + found.size) * 1e6 * d.N < LARGEST[self.dtype]:
            raise Undecided("the stream may overflow")
        return found.bias, (found.rounding + other + summed) * SAFE

    def _input(self) -> float:
        """What rounding the data to float32 costs: |w' − w*| ≤ |∇f'(w*)| ≤ C(√N|ΔX| + √L'/4 |ΔX||w*|), and Δq."""
        d = self.data
        rate = math.sqrt(d.N) + math.sqrt(d.high) / 4 * self.w
        return d.lost(self.dtype, self.w, lambda move: self.task.strength * move * rate) / 4
