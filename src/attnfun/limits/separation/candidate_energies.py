"""Energies of the furthest of n candidates by their largest degree, enclosed.

| symbol | meaning |
| --- | --- |
| y, x_1 … x_n | a query and n ≥ 2 candidates, independent and uniform on the sphere in R^d |
| t_i, u | ⟨x_i, y⟩ and its density |
| f | the candidate with the least t_i, E|f|² = 1 |
| E_ℓ | energy of f in the parts whose largest degree, over x_1, …, x_n, is ℓ; Σ E_ℓ = 1 |
| p_ℓ, λ_ℓ | orthonormal polynomials for u, √N(ℓ) P_ℓ; λ_ℓ = ℓ(ℓ+d−2) |
| c_ℓ(τ) | ∫_τ^1 p_ℓ u: the expansion of 1[t > τ] |
| k, m | Σ_{ℓ≤L} c_ℓ(τ) c_ℓ(τ') and Σ_{ℓ≤L} λ_ℓ c_ℓ(τ) c_ℓ(τ') |

Statement. E_0 = (1 − J)² with J = ∫ c_0^n dτ, and E_0 + … + E_L = 1 − 2J + I_L, I_L = ∬ (k^n + n m k^{n−1}) dτ dτ'.
Derivation. Degrees in a candidate do not depend on y: fix y, and write x_i = t_i y + √(1−t_i²) ω_i. *Along y*:
min t_i = −1 + ∫ Π_i 1[t_i > τ] dτ, whose coefficient at Π p_{ℓ_i}(t_i) is ∫ Π c_{ℓ_i} dτ, less 1 where all ℓ_i are 0.
Squares of an integral are double integrals, and summed over all ℓ_i ≤ L they are ∬ k^n − 2J + 1. *Across*: Σ_i ω_i
√(1−t_i²) Π_{j≠i} 1[t_j > t_i], n terms that are orthogonal and alike. Harmonics of degree ℓ that are linear in ω are
√(1−t²) ω q_ℓ(t), q_ℓ = p_ℓ'/√λ_ℓ orthonormal for (1−t²) u, and by Gegenbauer's equation (1−τ²) u q_ℓ = √λ_ℓ c_ℓ. So
the coefficients are ∫ √λ_{ℓ_1} c_{ℓ_1} Π_{j≥2} c_{ℓ_j} dτ, and their squares add up to ∬ m k^{n−1}. ∎
In the angle, τ = cos θ, with γ = Γ(d/2)/(√π Γ((d−1)/2)) and P of dimension d+2 (`energies`), for ℓ ≥ 1

    c_ℓ = √N(ℓ) γ/(d−1) sin^{d−1}θ P_{ℓ−1}(cos θ),    c_0 = S_d, S_2 = θ/π, S_3 = (1−cos θ)/2,
    S_d = S_{d−2} − γ_d/(d−2) cos θ sin^{d−3}θ:                     entire functions of θ.

Bound. Gauss's rule with ν nodes on [0, π] in θ and θ'. *Its error*: a function analytic and at most M in the ellipse
with foci 0, π and sum of half-axes ρπ/2 has Chebyshev coefficients of at most 2Mρ^{−k}; the rule is exact below degree
2ν, odd degrees vanish by symmetry, even ones err by at most 32/15 (ν ≥ 2), before the length π/2 of a unit: in all by e
= (π/2) (64/15) M ρ^{−2ν}/(1 − ρ^{−2}), and by 2πe in two variables, one after the other. *M*: the ellipse lies in the
strip |Im θ| ≤ η, η = (π/4)(ρ − 1/ρ). There |sin θ| ≤ cosh η, and |c_0| ≤ C = 1 + γ (η cosh^{d−2}η + a), a the ellipse's
reach beyond π: go along the real axis first. Sums of |c_ℓ|² and of λ_ℓ|c_ℓ|² over 1 ≤ ℓ ≤ L are subharmonic with the
period π, so largest at Im θ = ±η, and there trigonometric polynomials in 2 Re θ of degree at most T = d+L−2: the
largest of N > 2T equidistant values, over cos(πT/N), bounds them (M. Riesz). Call the bounds s² and D²; for real θ' the
sum of all c_ℓ² is at most 1 (Bessel). By Cauchy and Schwarz |k| ≤ B = √(C² + s²) and |m| ≤ D², so M = cosh η (B^n + n
D² B^{n−1}). *Rounding*: c_ℓ at the nodes are balls, and all that follows is float64: with |c_a| the norm at node a,
every product is off by a known multiple of the same product of norms (`_majorants`).

Source: derived here, after Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153), who have two candidates. Size: 41 degrees,
some hundred nodes. Failure mode: nodes grow with n and d, so that both have a limit.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnfun.errors import AttnfunError
from attnfun.language import Array, precision
from attnfun.language.enclosures import arb, lower, upper
from attnfun.language.numbers import whole_number
from attnfun.limits.separation.harmonics import all_harmonics

DEGREES = 40
MOST_DIM = MOST_CANDIDATES = 128
_BITS = 384  # a step of a recurrence may double a radius, and √N(ℓ) multiplies it
_AIM = 2.0**-46  # for the error of the rule; what it is then is proved
_SAMPLES = 8  # N/T
_ETAS = tuple(2.0 ** (-k / 2) for k in range(2, 13))
_U = 2.0**-53


@dataclass(frozen=True, eq=False)
class CandidateEnergies:
    """E_ℓ is between `low`[ℓ] and `high`[ℓ], ℓ = 0 … `DEGREES`; all higher degrees together in `rest`."""

    dim: int
    candidates: int
    low: Array
    high: Array
    rest: tuple[float, float]


@lru_cache(maxsize=32)
def candidate_energies(dim: int, candidates: int) -> CandidateEnergies:
    """The energies of the furthest of `candidates` points in R^dim by the largest degree."""
    d, n = whole_number("dim", dim, 2, MOST_DIM), whole_number("candidates", candidates, 2, MOST_CANDIDATES)
    with precision(_BITS):
        nodes, error = _rule(d, n)
        theta, weight = _gauss(nodes)
        balls = [_expansion(d, angle) for angle in theta]
        weights = [w * angle.sin() for w, angle in zip(weight, theta, strict=True)]  # dτ = sin θ dθ
        J = sum((w * c[0] ** n for w, c in zip(weights, balls, strict=True)), arb(0)) + arb(0, error)
        mean, twice = (1 - J) ** 2, 2 * J
        C, W = np.array([[_double(c) for c in row] for row in balls]).T, np.array([_double(w) for w in weights])
        ends = lower(mean), upper(mean), lower(twice), upper(twice)
    sums, doubt = _double_integrals(d, n, C, W)
    doubt = (2 * math.pi * error + doubt) * (1 + 1e-9)
    steps = np.diff(sums)
    slack = 2 * doubt + 32 * _U
    low, high = np.maximum(0.0, steps - slack), np.maximum(0.0, steps + slack)
    last = float(sums[-1])
    rest = max(0.0, ends[2] - last - slack), max(0.0, ends[3] - last + slack)
    return CandidateEnergies(d, n, np.append(max(0.0, ends[0]), low), np.append(ends[1], high), rest)


# --- the expansion of 1[t > cos θ] ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _peak(dim: int) -> Any:
    """γ."""
    with precision(_BITS):
        return (arb(dim) / 2).gamma() / ((arb(dim) - 1) / 2).gamma() / arb.pi().sqrt()


@lru_cache(maxsize=64)
def _scales(dim: int) -> tuple[Any, ...]:
    """√N(ℓ) γ/(d−1), ℓ = 1 … DEGREES."""
    with precision(_BITS):
        return tuple(arb(N).sqrt() * _peak(dim) / (dim - 1) for N in all_harmonics(dim, DEGREES)[1:])


def _expansion(dim: int, theta: Any) -> list[Any]:
    """c_0 … c_L at a real angle."""
    sine, x = theta.sin(), theta.cos()
    above = theta / arb.pi() if dim % 2 == 0 else (1 - x) / 2
    power = sine if dim % 2 == 0 else sine * sine
    for e in range(4 + dim % 2, dim + 1, 2):
        above = above - _peak(e) / (e - 2) * x * power
        power = power * sine * sine
    out, power, before, now = [above], sine ** (dim - 1), arb(0), arb(1)
    for k, scale in enumerate(_scales(dim)):
        out.append(scale * power * now)
        # (ℓ+D−2) P_{ℓ+1} = (2ℓ+D−2) x P_ℓ − ℓ P_{ℓ−1} with D = d+2
        before, now = now, ((2 * k + dim) * x * now - k * before) / (k + dim)
    return out


def _squares(dim: int, real: Any, imaginary: Any) -> list[Any]:
    """|c_1|² … |c_L|² at a complex angle: the same recurrence, in real and imaginary parts."""
    sine, a, b = real.sin(), real.cos() * imaginary.cosh(), -real.sin() * imaginary.sinh()  # cos θ = a + ib
    power = (sine * sine + imaginary.sinh() ** 2) ** (dim - 1)  # |sin θ|^{2(d−1)}
    out, (before, before_i), (now, now_i) = [], (arb(0), arb(0)), (arb(1), arb(0))
    for k, scale in enumerate(_scales(dim)):
        out.append(scale * scale * power * (now * now + now_i * now_i))
        after = ((2 * k + dim) * (a * now - b * now_i) - k * before) / (k + dim)
        after_i = ((2 * k + dim) * (a * now_i + b * now) - k * before_i) / (k + dim)
        (before, before_i), (now, now_i) = (now, now_i), (after, after_i)
    return out


# --- Gauss's rule and its error ---------------------------------------------------------------------------------------


def _gauss(nodes: int) -> tuple[list[Any], list[Any]]:
    """Nodes and weights on [0, π]."""
    half = arb.pi() / 2
    pairs = [arb.legendre_p_root(nodes, k, weight=True) for k in range(nodes)]
    return [half * (1 + x) for x, _ in pairs], [half * w for _, w in pairs]


def _rule(dim: int, n: int) -> tuple[int, float]:
    """(nodes, e): the fewest nodes, over the strips tried, whose e is within the aim."""
    best = _nodes(dim, n, _ETAS[0])
    for eta in _ETAS[1:]:
        found = _nodes(dim, n, eta)
        if found[0] >= best[0]:
            break
        best = found
    return best


def _nodes(dim: int, n: int, eta: float) -> tuple[int, float]:
    """(ν, e) for the strip |Im θ| ≤ η; ν even, so that no node is a ball around π/2."""
    h, pi, peak = arb(eta), arb.pi(), _peak(dim)
    half = 2 * h / pi
    rho = half + (1 + half * half).sqrt()
    reach = pi / 2 * ((rho + 1 / rho) / 2 - 1)
    first = 1 + peak * (h * h.cosh() ** (dim - 2) + reach)
    T = dim + DEGREES - 2
    N = _SAMPLES * T
    plain = heavy = arb(0)
    for j in range(N // 2 + 1):  # |c_ℓ| is even in Re θ and has the period π
        sizes = _squares(dim, pi * j / N, h)
        plain = plain.max(sum(sizes, arb(0)))
        heavy = heavy.max(sum((k * (k + dim - 2) * size for k, size in enumerate(sizes, 1)), arb(0)))
    over = (pi * T / N).cos()
    B, DD = (first * first + plain / over).sqrt(), heavy / over
    M = h.cosh() * (B**n + n * DD * B ** (n - 1))
    front = pi / 2 * 64 / 15 * M / (1 - 1 / (rho * rho))
    wanted = math.ceil(float(((front / _AIM).log() / (2 * rho.log())).mid()))
    nodes = max(16, wanted + wanted % 2)
    return nodes, upper(front / rho ** (2 * nodes))


# --- double integrals in float64 --------------------------------------------------------------------------------------


def _double(ball: Any) -> float:
    """A double within 3u|x| + 2^−100 of every x of the ball; nan where its radius is too large for that."""
    return float(ball.mid()) if ball.rad() < 2.0**-101 else math.nan


def _double_integrals(dim: int, n: int, C: Array, W: Array) -> tuple[Array, float]:
    """(I_0 … I_L as the rule gives them, a bound of what rounding and the nodes left out do to each)."""
    kept, doubt = _majorants(dim, n, C, W)
    C, W = C[:, kept], W[kept]
    k, m = np.zeros((len(W), len(W))), np.zeros((len(W), len(W)))
    sums = []
    for degree, c in enumerate(C):
        term = np.outer(c, c)
        k += term
        m += (degree * (degree + dim - 2)) * term
        power = _power(k, n - 1)
        power *= k + n * m
        sums.append(float(W @ (power @ W)))
    found = np.array(sums)
    if not (np.isfinite(found).all() and math.isfinite(doubt)):
        raise AttnfunError(f"dim={dim}, candidates={n}: the energies leave the range of float64")
    return found, doubt


def _power(x: Array, n: int) -> Array:
    """x^n, n ≥ 1, as a tree of n − 1 products: relative error at most (1+u)^{n−1} − 1."""
    out, square = None, x
    while n:
        if n % 2:
            out = square if out is None else out * square
        n //= 2
        if n:
            square = square * square
    assert out is not None
    return out.copy() if out is x else out


def _majorants(dim: int, n: int, C: Array, W: Array) -> tuple[NDArray[np.bool_], float]:
    """(the nodes that matter, a bound of what the others and rounding do to any I_ℓ).

    With s_a at least |c_a| and 2^−40, and h_a likewise with weights λ_ℓ, |k| ≤ s_a s_b and |m| ≤ h_a h_b: so all terms
    of the rule together have at most S² + n H², S = Σ W_a s_a^n, H = Σ W_a h_a s_a^{n−1}, and pairs with a node left
    out at most 2 S S' + 2 n H H', sums with a dash over nodes left out. *Rounding*: the doubles at a node are off by at
    most 4u s_a in norm (`_double`), so k by (8 + L + 4)u s_a s_b, sums of L+1 products included, and m, with one
    product more, likewise. A product of n such numbers is off by at most (1+κ)^n − 1 times the product of their bounds;
    the products themselves, the weights (4u each) and two sums of as many terms as nodes add (n + 2·nodes + 40)u.
    Underflow is off by less than 1e-200 in all.
    """
    levels = np.array([degree * (degree + dim - 2.0) for degree in range(len(C))])
    s = np.sqrt((C**2).sum(axis=0)) * (1 + 1e-10) + 2.0**-40
    h = np.sqrt((levels[:, None] * C**2).sum(axis=0)) * (1 + 1e-10) + 2.0**-40 * math.sqrt(levels[-1])
    plain, heavy = W * s**n, W * h * s ** (n - 1)
    kept = s ** (n - 1) > 2.0**-64
    S, H, out, heavy_out = (float(x.sum()) for x in (plain, heavy, plain[~kept], heavy[~kept]))
    kappa = (len(C) + 16) * _U
    relative = math.expm1(n * math.log1p(kappa) + (n + 2 * len(W) + 40) * _U)
    return kept, (relative * (S * S + n * H * H) + 2 * (S * out + n * H * heavy_out)) * (1 + 1e-9) + 1e-200
