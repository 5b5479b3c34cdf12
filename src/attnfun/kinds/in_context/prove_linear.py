"""Method *in_context*: linear and ridge regression on token matrices, for every prompt of a declared class.

| symbol | meaning |
| --- | --- |
| A = XᵀX + αI, b = Xᵀy | the system; μ eigenvalues of XᵀX, λ = μ + α, within `spectrum` |
| N, d | declared examples (pairs of mirrored tokens; missing ones are zeros), dimensions |
| q̄, ȳ | √d query_range ≥ \\|q\\|, √N y_range ≥ \\|y\\| (all norms Euclidean) |
| f | `sign` of a token: ±c in the solver tokens, else 0; a solver token has q = 0, an example q = 0 and f = 0 |

`prove_pattern.py` reads the numbers below out of the stored matrices; whatever else is in them is undecided. Then
every token runs, in real arithmetic,

    v ← C_q q + C_v v + C_u u + Σ_h a_h O_h,   u ← v,      O_h = Σ_i x_i sinh(ρ_h ẑ_i) / Σ_i cosh(ρ_h ẑ_i),

ẑ = κ X v + κ_f f y, for tokens come in pairs ±(x_i, y_i). (A foreign token has logit −gap and value 0: it adds at most
e^{−gap + 2 max|logit|} to a denominator of at least 1.)

**Linear part.** Σ_h a_h O_h = m₁ Xᵀẑ + Xᵀc with m_j = Σ_h a_h ρ_h^j/N, exact fractions. Without c and without
rounding, v_k = s_k(A) q for queries and v_k = f S_k(A) b for solvers, polynomials from the recurrences
s ← C_q + (C_v + m₁κμ) s + C_u s₋, S ← (C_v + m₁κμ) S + C_u S₋ + m₁κ_f.

**Bias.** With ζ ≥ |ẑ|: sinh(ρẑ_i)/mean cosh(ρẑ) is a power series in ρ whose j-th coefficient is at most
|ẑ_i| ζ^{j−1} φ_j, φ(x) = sinh x/(1 − (cosh x − 1)/N): put |ẑ_i|^j ≤ |ẑ_i| ζ^{j−1} into the numerator and
mean ẑ^{2k} ≤ ζ^{2k}/N into the geometric series of the denominator, all signs made positive. So
|c| ≤ Σ_{j=3,5,…} φ_j ζ^j |m_j|, and the tail from Cauchy's bound on a circle where φ is finite.

**Rounding** of a step, sums in any order, exp within 4 ulp. Weights p_i^± = e^{±ρẑ_i}/Σ 2cosh ≤ e^x/(2N), x = ρζ, of
the tokens ±x_i; Σ_i (…)² over examples is meant by |…|.
(i) *What a weight is off by*, a factor 1 + ε_i^±, is the same for all coordinates, so it adds Xᵀη with
|η| ≤ cosh(x)/N |ε|: √μ is left to weigh it, as it weighs c. |ε| ≤ (e^g − 1)/g (γ_{d+3} ρ(κ|v||X|_F + κ_f f|y|) + √N s),
g the largest exponent: γ_{d+3} of the sizes of a logit, and s for its exp. A denominator is off by a factor too, within
e^g − 1 + γ_{2N+8}: that much of Xᵀ(π + η), |π| ≤ ρζ sinh(x)/(xN), for O = Xᵀπ.
(ii) *What every coordinate is off by of its own*, δ: u of its products, in sum cosh(x)√(T_j/N) with T_j = Σ_i x_ij²,
a few u of the quotient, u of every partial sum. A partial sum of m ≤ N terms is at most its positive or its negative
part, so e^x/(2N) times the m largest |x_ij|, for each is there once with either sign; one of m > N terms is the whole
sum less the 2N − m others. A tree of 2N leaves has at most 2N − 2k + 2 nodes of k to 2N − k leaves: let b of the nodes
with k leaves or more have no such node below them. b = 1: they are a chain of distinct sizes. b ≥ 2: those with one
such child have a leaf beside it, so 2N ≥ bk + (their number − 2b + 1), and the root is too large. So the partial sums
are in sum at most e^x/N Σ_k (N − k + 1)|x_ij|_(k) + N |whole sum| ≤ e^x √((N+1)(2N+1)/6) √(T_j/N) + N |whole sum|
(Cauchy), and Σ T_j = tr XᵀX ≤ d max μ. Running sums that are rescaled are rounded so many more times. Zeros round
nothing; foreign tokens of mass `leak` cost at most three times that, for a sum is off by no more than its lesser term.
(iii) The sum of carry and heads: γ of its length, into δ.

**Propagation.** What enters v after step j, δ or Xᵀ(c + η), is multiplied by H_{jk}(A) until v_k, where H obeys the
recurrence of s without C_q. Polynomials of degree m are bounded on an interval by their values at M Chebyshev nodes
times 1/cos(πm/(2M)) (Ehlich and Zeller 1964), on pieces [λ, 1.3λ] of the spectrum; values by recurrence in float64,
whose rounding is carried on by the same H (`_responses`).
X and Xᵀ weigh √μ. So sizes of v_k and ẑ_k follow step by step, and with them c and δ of the next step.

**Reading.** Two keys ±l with values ±c give c tanh l, whose coefficients are at most 2.4675 (2/π)^{j+1}. After n steps
the last layer forms, with w and r from the solver token, m₁l = P̂(−1 + …) + (α₁⟨q, w⟩ + α₂⟨v_n, r⟩). Its linear
part is qᵀΠ(A)b, and

* optimisation: q̄ȳ sup √μ |Π(λ) − 1/λ|;
* errors Δv of the query meet the solver's residual, sup √μ |H R| with r = f R(A) b;
* errors Δw of the solver meet the query's residual, sup |H p̃| with p̃ = α₁ + α₂ s_n (K_v + m₁κμ);
* errors Δr of the last step meet s_n(A) q; and |Δv||Δr| is added.

m₁l is the difference to the first reading P̂, which is bounded likewise; tanh and its rounding are counted on that size.
What rounding the data to float32 costs: `prove_class.py`.

Failure modes: another pattern; logits beyond the circle of φ or of tanh (no finite bound); more than 600 layers;
float32, where (ii) grows like N^{3/2} u and the bound says little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnfun.certify.rounding import EXP_UNITS, LARGEST, ROUNDOFF, TINY, gamma
from attnfun.certify.view import provided
from attnfun.kinds.in_context.prove_class import SAFE, SeenClass, gain, seen
from attnfun.kinds.in_context.prove_pattern import Pattern, Reading, Step, read_pattern
from attnfun.kinds.in_context.prove_spectrum import Pieces, Poly
from attnfun.kinds.in_context.prove_sums import ORDERS, TOKENS, Sum, phi_series, sinh_ratio
from attnfun.kinds.in_context.target import InContextTask
from attnfun.language.target import Array
from attnfun.network import TokenNetwork

_U = 2.0**-53  # of the arithmetic of this file
_MOST = 600


@dataclass(frozen=True)
class InContextBound:
    """|prediction computed − prediction| ≤ optimisation + bias + rounding + input, for every prompt of the class."""

    optimisation: float
    bias: float
    rounding: float
    input: float
    logits: float

    @property
    def total(self) -> float:
        return float((self.optimisation + self.bias + self.rounding + self.input) * SAFE)


@dataclass
class _Track:
    """One kind of token: sizes of its v, and what entered after each step."""

    q: float
    f: float
    linear: list[Poly]
    v: list[float]
    entered: list[_Entered]
    into_r: _Entered  # by the last step


@dataclass(frozen=True)
class _Entered:
    """Xᵀ(c + η) + δ: sizes of the bias c, and of the rounding η that passes through Xᵀ and δ that does not."""

    c: float = 0.0
    eta: float = 0.0
    delta: float = 0.0

    @property
    def examples(self) -> float:
        """|c| + |η|."""
        return self.c + self.eta


def prove_by_in_context(network: TokenNetwork, task: InContextTask) -> InContextBound:
    """The bound for all prompts of the class, from the stored weights; Undecided where the pattern is another."""
    provided(task.task in ("linear", "ridge"), f"no bound of this kind is known for {task.task} regression")
    provided(len(network.layers) <= _MOST, f"{len(network.layers)} layers are more than the {_MOST} that are looked at")
    pattern = read_pattern(network, task.dim, task.examples)
    return _Proof(pattern, seen(task, network.dtype), network.dtype).bound()


class _Proof:
    def __init__(self, pattern: Pattern, data: SeenClass, dtype: str) -> None:
        self.p, self.data, self.u, self.dtype = pattern, data, ROUNDOFF[dtype], dtype
        self.n = len(pattern.steps)
        self.pieces = Pieces(data.low, data.high, data.alpha, 2 * self.n + 2)
        self.coarse = self.pieces.coarser(self.n + 1)
        self.logits = 0.0
        self.phi = phi_series(1 / data.N)

    # -- polynomials ---------------------------------------------------------------------------------------------------

    def _responses(self) -> list[Array]:
        """For k = 0 … n: (n, pieces) suprema of |H_{jk}|, 0 for j ≥ k.

        The computed Ĥ obeys the recurrence up to 8u B max|Ĥ| a step, B its largest coefficients summed, and what a step
        adds is carried on by H itself: |H − Ĥ| ≤ η max|H| with η = 8u n B max|Ĥ|, so max|H| ≤ max|Ĥ|/(1 − η).
        """
        grid, n = self.coarse, self.n
        H, before = np.zeros((n, len(grid.mu))), np.zeros((n, len(grid.mu)))
        raw, largest = [grid.peaks(H)], 1.0
        for k, step in enumerate(self.p.steps):
            new = grid.affine(Fraction(step.C_v), self._slope(step)).value * H + step.C_u * before
            new[k] = 1.0
            H, before = new, H
            raw.append(grid.peaks(H))
            largest = max(largest, float(raw[-1].max()))
        eta = 16 * _U * n * self._coefficients() * largest
        provided(eta < 0.1, "the iteration is not stable enough to be bounded")
        radius = eta * largest / (1 - eta)
        found = []
        for k, peaks in enumerate(raw):
            found.append((peaks + radius) * grid.factor(k))
            found[-1][k:] = 0.0
        return found

    def _slope(self, step: Step) -> Fraction:
        """m₁κ: what μ is multiplied by."""
        return step.to_v.moment(1) * Fraction(step.kappa)

    def _coefficients(self) -> float:
        top = float(np.abs(self.pieces.mu).max()) * SAFE
        steps = self.p.steps
        return max(abs(s.C_v) + abs(float(self._slope(s))) * top + abs(s.C_u) for s in steps) * SAFE

    def _polynomials(self, responses: list[Array]) -> tuple[list[Poly], list[Poly]]:
        """s_k and S_k, k = 0 … n; their rounding is carried on by the responses."""
        grid, zero = self.pieces, np.zeros(len(self.pieces.mu))
        reach = max(1.0, max(float(sup.max()) for sup in responses))
        found: list[list[Poly]] = []
        for solver in (False, True):
            values, before = [zero], zero
            added = 0.0
            for step in self.p.steps:
                plus = float(step.to_v.moment(1) * Fraction(step.kappa_f)) if solver else step.C_q
                added = max(added, abs(plus))
                factor = grid.affine(Fraction(step.C_v), self._slope(step)).value
                values.append(factor * values[-1] + step.C_u * before + plus)
                before = values[-2]
            largest = max(float(np.abs(value).max()) for value in values)
            radius = self.n * reach * 16 * _U * (self._coefficients() * largest + added) * SAFE
            found.append([Poly(value, np.broadcast_to(radius, value.shape), k) for k, value in enumerate(values)])
        return found[0], found[1]

    def bound(self) -> InContextBound:
        responses = self._responses()
        s, S = self._polynomials(responses)
        query = _Track(self.data.q, 0.0, s, [0.0], [], _Entered())
        solver = _Track(0.0, self.p.c, S, [0.0], [], _Entered())
        for k, step in enumerate(self.p.steps):
            for track in (query, solver):
                entered, track.into_r = self._step(step, track, k, responses[k], k == self.n - 1)
                track.entered.append(entered)
                track.v.append(self._size(track, k + 1, responses[k + 1]))
        self._no_overflow()
        return self._reading(query, solver, responses)

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def _error(self, track: _Track, H: Array, weight: Array | float = 1.0) -> tuple[float, float]:
        """Bounds of |Δv| and |XΔv|, H (n, pieces) the responses, times `weight`; shares are added up."""
        root, v, z = self.pieces.root, 0.0, 0.0
        for entered, response in zip(track.entered, H * weight, strict=False):
            one, two = float((response * root).max()), float((response * root**2).max())
            v += one * entered.examples + float(response.max()) * entered.delta
            z += two * entered.examples + one * entered.delta
        return v * SAFE, z * SAFE

    def _size(self, track: _Track, k: int, H: Array) -> float:
        """A bound of |v_k|: of its linear part, and of what entered."""
        sup, sizes = self.pieces.sup(track.linear[k]), (track.q, 1.0)
        if track.f != 0:
            sup, sizes = sup * self.pieces.root, (track.f, self.data.y)
        return float(sup.max()) * sizes[0] * sizes[1] * SAFE + self._error(track, H)[0]

    def _zeta(self, step: Step, track: _Track, k: int, H: Array) -> float:
        """A bound of |ẑ|."""
        grid, kappa = self.pieces, Fraction(step.kappa)
        if track.f == 0:
            linear = float((grid.sup(track.linear[k]) * grid.root).max()) * track.q * abs(step.kappa)
        else:
            poly = grid.affine(Fraction(0), kappa).times(track.linear[k]).plus(grid.constant(Fraction(step.kappa_f)))
            inside = max(float(grid.sup(poly).max()), abs(step.kappa_f))  # |κ_f|: where y is orthogonal to the examples
            linear = inside * track.f * self.data.y
        return (linear + abs(step.kappa) * self._error(track, H)[1]) * SAFE

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self, step: Step, track: _Track, k: int, H: Array, final: bool) -> tuple[_Entered, _Entered]:
        """What enters v by this step, and r."""
        d, u = self.data, self.u
        zeta = self._zeta(step, track, k, H)
        v, before = track.v[k], track.v[k - 1] if k else 0.0
        n, root, spread = 2 * d.N, math.sqrt(d.top), math.sqrt(d.d * d.top / d.N)
        blocks = 2 + n // 64
        tree = partial_sums(d.N) + blocks  # every rescaled one is counted twice
        etas, deltas, sizes = [], [], []
        for ratio_, _ in step.to_v.heads:
            ratio = float(abs(ratio_)) * SAFE
            x = ratio * zeta
            self.logits = max(self.logits, x)
            provided(x < 20, "the logits are too large")
            scaled, signed = abs(step.kappa) * v * ratio, abs(step.kappa_f) * track.f * ratio
            logits = gamma(d.d + 3, u) * (d.row * scaled + d.y_entry * signed)  # of one, and of all together:
            together = gamma(d.d + 3, u) * (math.sqrt(d.d * d.top) * scaled + d.y * signed)
            exps = EXP_UNITS[self.dtype] * u * blocks
            own = 4 * u * x + exps + (d.d + 8) * TINY[self.dtype] * (1 + d.row + d.y_entry)
            largest = (logits + own) * SAFE
            g = math.expm1(min(largest, 1.0))
            provided(g < 0.25, "the logits are too large for their rounding")
            leak = 3 * TOKENS * math.exp(min(-step.to_v.gap + 2 * x + 1, 700.0))
            more = (1 + 4 * g + 8 * n * u) * SAFE  # second order
            kept = math.cosh(x) / d.N * g / largest * (together + math.sqrt(d.N) * own) * more
            signal = zeta * ratio * sinh_ratio(x) / d.N
            etas.append((kept + (g + gamma(n + 8, u) + leak) * (signal + kept)) * more)
            whole = root * (signal + kept)
            summed = (tree * math.exp(x) + math.cosh(x)) * spread + (d.N + 4) * whole
            deltas.append(u * summed * more)
            sizes.append(root * (signal + etas[-1]) + deltas[-1])
        count = len(etas) + 10

        def entered(into: Sum, carried: float) -> _Entered:
            weights = [a for _, a in into.heads]
            eta, delta, size = (
                sum(abs(a) * e for a, e in zip(weights, errors, strict=True)) for errors in (etas, deltas, sizes)
            )
            lost = (n + 32) * d.d * TINY[self.dtype] * (1 + sum(map(abs, weights)))
            delta = (delta + gamma(count, u) * (carried + size) + lost) * SAFE
            return _Entered(self._bias(into, zeta), eta * SAFE, delta)

        carried = abs(step.C_q) * track.q + abs(step.C_v) * v + abs(step.C_u) * before
        into_v = entered(step.to_v, carried)
        if not final:
            return into_v, _Entered()
        return into_v, entered(step.to_r, abs(step.K_q) * track.q + abs(step.K_v) * v)

    def _bias(self, into: Sum, zeta: float) -> float:
        """|c|: Σ φ_j ζ^j |m_j|, the tail by Cauchy's bound on the circle cosh ϱ = 1 + N/2, where φ = 2 sinh ϱ."""
        total = 0.0
        for j in range(3, ORDERS + 1, 2):
            total += self.phi[j] * zeta**j * abs(float(into.moment(j))) * SAFE
        radius = math.acosh(1 + self.data.N / 2) / SAFE
        for ratio, a in into.heads:
            part = float(abs(ratio)) * zeta * SAFE / radius
            if not part < 1:
                return math.inf
            total += abs(a) / self.data.N * 2 * math.sinh(radius) * part ** (ORDERS + 2) / (1 - part**2)
        return total * SAFE

    def _no_overflow(self) -> None:
        """Crude growth of any token, examples included: no entry of the stream can overflow."""
        d = self.data
        v = before = 0.0
        for step in self.p.steps:
            both = zip(step.to_v.heads, step.to_r.heads, strict=True)
            heads = sum(abs(to_v) + abs(to_r) for (_, to_v), (_, to_r) in both) * d.row * 2
            new = abs(step.C_q) * d.q + abs(step.C_v) * v + abs(step.C_u) * before + heads
            r = abs(step.K_q) * d.q + abs(step.K_v) * v + heads
            logit = abs(step.kappa) * (new + v) * d.row + abs(step.kappa_f) * self.p.c * d.y_entry + step.to_v.gap
            v, before = new, v
            provided(max(v, r, logit) * 1e6 * d.N < LARGEST[self.dtype], "the stream may overflow")

    # -- reading -------------------------------------------------------------------------------------------------------

    def _reading(self, query: _Track, solver: _Track, history: list[Array]) -> InContextBound:
        d, p, grid, n = self.data, self.p, self.pieces, self.n
        s, S, root = query.linear, solver.linear, self.pieces.root
        step = p.steps[-1]
        slope = step.to_r.moment(1)
        inner = grid.affine(Fraction(step.K_v), slope * Fraction(step.kappa))  # r = inner(w) + m₁κ_f b
        R = inner.times(S[n - 1]).plus(grid.constant(slope * Fraction(step.kappa_f)))
        c = Fraction(p.c)
        m1 = p.last.sum.moment(1) * c
        a1, a2 = m1 * Fraction(p.last.kappa_q), m1 * Fraction(p.last.kappa_v)
        product = S[n - 1].scaled(a1 * c).plus(s[n].times(R).scaled(a2 * c))
        optimisation = self._missing(product, Fraction(-1)) * SAFE

        residual_w = grid.sup(R)
        residual_v = grid.sup(grid.constant(a1).plus(s[n].times(inner).scaled(a2)))
        H_n, H_w = history[n], history[n - 1]
        bias = rounding = 0.0
        A2 = abs(float(a2)) * SAFE
        shares = [(query, A2 * p.c * d.y, root * H_n * residual_w), (solver, d.q, H_w[: n - 1] * residual_v)]
        for track, scale, met in shares:
            for one, response in zip(track.entered, met, strict=False):
                through = scale * float((root * response).max())
                bias += through * one.c
                rounding += through * one.eta + scale * float(response.max()) * one.delta
        of_r = solver.into_r
        sup_s = grid.sup(s[n])
        through = A2 * d.q * float((root * sup_s).max())
        bias += through * of_r.c
        rounding += through * of_r.eta + A2 * d.q * float(sup_s.max()) * of_r.delta

        weight = grid.sup(inner)
        moved_v = self._error(query, H_n)[0]
        moved_r = self._error(solver, H_w[: n - 1], weight)[0] + math.sqrt(d.top) * of_r.examples + of_r.delta
        bias += A2 * moved_v * moved_r
        away = (optimisation + bias + rounding) * SAFE

        most = d.q * d.y * gain(d.low, d.high, d.alpha)
        guess, size_of_guess = most, 0.0
        if p.first is not None:
            guess = self._first(p.first, S[n - 1], query, solver, H_w, most)
            size_of_guess = (most + guess) * SAFE
        left = abs(1 + m1 * Fraction(p.last.kappa_p) * c)
        drift = float(left) * size_of_guess * SAFE
        away += drift
        slope1 = abs(float(m1))
        l = (away + guess) / slope1 * SAFE if slope1 > 0 else math.inf
        u_size, v_size = solver.v[n - 1], query.v[n]
        r_size = (float((residual_w * root).max()) * p.c * d.y + moved_r) * SAFE
        sizes = (
            abs(p.last.kappa_q) * d.q * u_size
            + abs(p.last.kappa_v) * v_size * r_size
            + abs(p.last.kappa_p) * size_of_guess * p.c
        )
        r_linear = grid.sup(inner.times(s[n - 1]).plus(grid.constant(Fraction(step.K_q))))
        of_r = query.into_r
        r_query = float(r_linear.max()) * d.q + self._error(query, H_w[: n - 1], weight)[0]
        r_query = (r_query + math.sqrt(d.top) * of_r.examples + of_r.delta) * SAFE
        foreign = abs(p.last.kappa_q) * d.q * query.v[n - 1] + abs(p.last.kappa_v) * v_size * r_query
        own_bias, own_rounding = self._tanh(p.last, l, sizes, foreign, size_of_guess)
        bias, rounding = (bias + own_bias + drift) * SAFE, (rounding + own_rounding) * SAFE
        return InContextBound(optimisation, bias, rounding, d.input, self.logits)

    def _missing(self, product: Poly, factor: Fraction) -> float:
        """q̄ȳ sup √μ |1/λ + factor · product|."""
        grid, d = self.pieces, self.data
        lam = grid.affine(Fraction(d.alpha), Fraction(1))
        missing = grid.constant(Fraction(1)).plus(lam.times(product).scaled(factor))
        return float((grid.sup(missing) * grid.weight).max()) * d.q * d.y

    def _first(self, reading: Reading, S: Poly, query: _Track, solver: _Track, H: Array, most: float) -> float:
        """|P̂ − prediction|: of the first reading, ⟨q, w⟩."""
        d, c = self.data, Fraction(self.p.c)
        m1 = reading.sum.moment(1) * c
        a1 = m1 * Fraction(reading.kappa_q)
        moved = self._error(solver, H[: self.n - 1])[0]
        away = self._missing(S, -a1 * c) + abs(float(a1)) * d.q * moved
        slope = abs(float(m1))
        l = (most + away) / slope * SAFE if slope > 0 else math.inf
        sizes = abs(reading.kappa_q) * d.q * solver.v[self.n - 1]
        foreign = abs(reading.kappa_q) * d.q * query.v[self.n - 1]
        bias, rounding = self._tanh(reading, l, sizes, foreign, 0.0)
        return (away + bias + rounding) * SAFE

    def _tanh(self, reading: Reading, l: float, sizes: float, foreign: float, carried: float) -> tuple[float, float]:
        """(bias, rounding) of Σ a c tanh(ρ l): |l| as given, `sizes` Σ|terms| of the logit, `foreign` other tokens'."""
        d, u, c = self.data, self.u, self.p.c
        bias, share = 0.0, 2 / math.pi * SAFE
        if not share * (SAFE * l) < 1:  # the largest ratio is 1
            return math.inf, math.inf
        for j in range(3, ORDERS + 1, 2):
            size = abs(float(reading.sum.moment(j) * Fraction(c)))
            bias += 2.4675 * share ** (j + 1) * l**j * size * SAFE
        rounding, outputs = 0.0, 0.0
        for ratio_, a in reading.sum.heads:
            ratio, amount = float(abs(ratio_)) * SAFE, abs(a) * c
            x = ratio * l
            self.logits = max(self.logits, x)
            bias += amount * 2.4675 * share * (share * x) ** (ORDERS + 2) / (1 - (share * x) ** 2)
            shift = gamma(2 * d.d + 8, u) * ratio * sizes + (2 * d.d + 8) * TINY[self.dtype] * (1 + sizes)
            g = (shift + 4 * u * x + 4 * EXP_UNITS[self.dtype] * u) * SAFE
            gap = reading.sum.gap - ratio * foreign * SAFE - 2 * x
            if not (ratio * (sizes + foreign) + reading.sum.gap) * 1e6 < LARGEST[self.dtype]:
                return math.inf, math.inf
            provided(gap > 150, "a reading head does not shut out the other tokens")
            leak = TOKENS * math.exp(-gap)
            rounding += amount * (2 * math.expm1(2 * g) + 16 * u + 2 * leak + 64 * TINY[self.dtype])
            outputs += amount * (math.tanh(x) + 4 * g)
        rounding += gamma(len(reading.sum.heads) + 12, u) * (carried + outputs) + 64 * TINY[self.dtype]
        return bias * SAFE, rounding * SAFE


def partial_sums(N: int) -> float:
    """Σ |partial sum| ≤ partial_sums(N) √(T/N) + N |whole sum|, for the 2N terms ±x_i/(2N) in any order, T = Σ x_i²."""
    return math.sqrt((N + 1) * (2 * N + 1) / 6)
