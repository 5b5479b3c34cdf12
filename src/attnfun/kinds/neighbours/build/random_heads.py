"""The further of two points by random heads of low rank with the best output weights: what one layer of them reaches.

Statement. H heads look at candidates x_1, x_2 with logits −β (K_hᵀx)·(Q_hᵀy), K_h, Q_h of d × r, values a_h x, and one
head averages them; the output weights are the best in mean square. With s = x_1+x_2, w = x_1−x_2, z = w/|w|, the
target is s/2 − sign(⟨w, y⟩) w/2 and head h is s/2 − T_h w/2, T_h = tanh(β wᵀK_hQ_hᵀy/2): with the weight 1 − Σ a_h on
the average, the error is E|w|² (sign − Σ a_h T_h)²/4. For *hard* heads of rank 1 (β → ∞),
T_h = sign(k_h·z) sign(q_h·y), it is

    ½ (1 − 2 a·b + aᵀGa),   G_ij = (4/π²) asin⟨k_i, k_j⟩ asin⟨q_i, q_j⟩,   b_h = Σ_{ℓ odd} N_ℓ λ_ℓ³ P_ℓ(⟨k_h, q_h⟩),

and the best a = G⁻¹b. Directions: "same" (k = q), "independent", or "compromise" (⟨k, q⟩ uniform on [−1, 1]).
Source: Amsel, Yehudai and Bruna 2024 (arXiv 2407.16153) and its public code for the Gram matrix and the samplers;
series and floor derived here.
Derivation. E sign(k_i·z) sign(k_j·z) = (2/π) asin⟨k_i, k_j⟩; sign(⟨z, y⟩) = Σ λ_ℓ Σ_j Y_ℓj(z) Y_ℓj(y), and the addition
theorem gives b; |w| is independent of z and E|w|² = 2. For k = q and any number of heads the sum can only come near a
multiple of asin⟨z, y⟩ = (π/2) Σ N λ² P_ℓ: the error never falls below ½ (1 − (Σ Nλ³)²/Σ Nλ⁴).
Size: 1 layer, H + 1 heads of rank r + 1 (r in cross-attention: one column shuts the query out).
Bound: for hard heads the formula is exact at the stored weights, up to the tail of the series (at most |λ_L| times the
energy beyond L) and the softness at β = 1e8; soft heads: weights by least squares on 20 H + 2000 samples, the error
estimated on 20,000 others.
Failure mode: the weights of many nearly parallel heads are large; the stored ones are rounded, and the formula is
evaluated at them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attnfun.kinds.neighbours import sphere
from attnfun.kinds.neighbours.measure import Prediction
from attnfun.kinds.neighbours.pattern import HARD, looking, pointing
from attnfun.language.domain import Array
from attnfun.network import TokenNetwork
from attnfun.network.named_coordinates import Stream

SAMPLERS = ("same", "independent", "compromise")
_SOFT = (0.3, 30.0)  # log-uniform inverse temperatures of soft heads, times √d
_FRESH = 20_000


@dataclass(frozen=True, eq=False)
class Heads:
    """`keys`, `queries` (H, d, r), inverse temperatures (H,), output weights (H,), the error predicted for them."""

    keys: Array
    queries: Array
    betas: Array
    weights: Array
    error: float
    uncertainty: float


def draw(dim: int, rank: int, heads: int, sampler: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """(H, d, r) keys and queries: orthonormal columns for the samplers of any rank."""
    keys = _frames(rng, heads, dim, rank)
    if sampler == "same":
        return keys, keys
    if sampler == "independent":
        return keys, _frames(rng, heads, dim, rank)
    cosine = rng.uniform(-1.0, 1.0, (heads, 1))
    other = rng.standard_normal((heads, dim))
    k = keys[:, :, 0]
    other -= np.sum(other * k, axis=1, keepdims=True) * k
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return keys, (cosine * k + np.sqrt(1 - cosine**2) * other)[:, :, None]


def _frames(rng: np.random.Generator, heads: int, dim: int, rank: int) -> Array:
    return np.asarray(np.linalg.qr(rng.standard_normal((heads, dim, rank)))[0])


def hard_heads(dim: int, heads: int, sampler: str, seed: int) -> Heads:
    """Rank 1, hard, the weights in closed form."""
    keys, queries = draw(dim, 1, heads, sampler, np.random.default_rng([seed, 2]))
    k, q = keys[:, :, 0], queries[:, :, 0]
    gram = (4 / math.pi**2) * np.arcsin(np.clip(k @ k.T, -1, 1)) * np.arcsin(np.clip(q @ q.T, -1, 1))
    np.fill_diagonal(gram, 1.0)
    b, tail = overlap(dim, np.sum(k * q, axis=1))
    a = np.asarray(np.linalg.lstsq(gram, b, rcond=1e-12)[0], dtype=np.float64)
    error = 0.5 * float(1 - 2 * a @ b + a @ gram @ a)
    return Heads(keys, queries, np.full(heads, HARD), a, error, tail * float(np.abs(a).sum()))


def overlap(dim: int, cosine: Array) -> tuple[Array, float]:
    """b_h = Σ N λ³ P_ℓ(cos), and a bound of what is left out."""
    lam, energy = sphere.sign_coefficients(dim)
    total, before, now = np.zeros_like(cosine), np.ones_like(cosine), cosine.copy()
    terms = 0
    for i, (value, part) in enumerate(zip(lam, energy, strict=True)):
        total += part * value * now
        terms = i
        if abs(value) < 1e-16:
            break
        for k in (2 * i + 1, 2 * i + 2):  # P_{ℓ+1} from P_ℓ and P_{ℓ−1}
            before, now = now, ((2 * k + dim - 2) * cosine * now - k * before) / (k + dim - 2)
    return total, abs(float(lam[terms])) * max(0.0, 1 - float(energy[: terms + 1].sum()))


def floor(dim: int) -> float:
    """What hard heads of rank 1 with k = q never get below, however many: ½ (1 − (ΣNλ³)²/ΣNλ⁴)."""
    lam, energy = sphere.sign_coefficients(dim)
    return 0.5 * (1 - float(np.sum(energy * lam)) ** 2 / float(np.sum(energy * lam * lam)))


def soft_heads(dim: int, rank: int, heads: int, sampler: str, seed: int) -> Heads:
    """Any rank, β log-uniform, the weights by least squares on samples."""
    rng = np.random.default_rng([seed, 3])
    keys, queries = draw(dim, rank, heads, sampler, rng)
    betas = np.exp(rng.uniform(math.log(_SOFT[0]), math.log(_SOFT[1]), heads)) * math.sqrt(dim)
    gram, b = np.zeros((heads, heads)), np.zeros(heads)
    for T, sign, weight in _sampled(rng, keys, queries, betas, 20 * heads + 2000):
        gram += T.T @ (weight[:, None] * T)
        b += T.T @ (weight * sign)
    a = np.asarray(np.linalg.lstsq(gram, b, rcond=1e-12)[0], dtype=np.float64)
    fresh = [weight * (sign - T @ a) ** 2 for T, sign, weight in _sampled(rng, keys, queries, betas, _FRESH)]
    losses = np.concatenate(fresh)
    return Heads(keys, queries, betas, a, float(losses.mean()), float(losses.std(ddof=1) / math.sqrt(_FRESH)))


def _sampled(
    rng: np.random.Generator, keys: Array, queries: Array, betas: Array, count: int
) -> Iterator[tuple[Array, Array, Array]]:
    """(T, sign, |w|²/4) of random points, in blocks."""
    for start in range(0, count, 4096):
        x = sphere.uniform_points(rng, min(4096, count - start), 3, keys.shape[1])
        w, y = x[:, 0] - x[:, 1], x[:, 2]
        product = np.einsum("bhr,bhr->bh", np.tensordot(w, keys, (1, 1)), np.tensordot(y, queries, (1, 1)))
        yield np.tanh(betas * product / 2), np.sign(np.sum(w * y, axis=1)), np.sum(w * w, axis=1) / 4


def build(dim: int, found: Heads, nearest: bool) -> TokenNetwork:
    stream = Stream(dim, "xq", ("query", "one"))
    value = np.eye(stream.width, dim)
    output = value.T
    sign = 1.0 if nearest else -1.0
    heads = [
        looking(stream, f"random {h + 1}", sign * beta * q, k, value, a * output)
        for h, (k, q, beta, a) in enumerate(zip(found.keys, found.queries, found.betas, found.weights, strict=True))
    ]
    nothing = np.zeros((dim, 1))
    rest = 1.0 - float(found.weights.sum())
    heads.append(looking(stream, "average", nothing, nothing, value, rest * output))
    return pointing(stream, nearest, heads)


def predict(dim: int, found: Heads, hard: bool) -> Prediction:
    how = "the closed form at the stored weights (uncertainty: the tail of its series)"
    soft = "least squares on samples; the error on 20,000 others (uncertainty: its standard error)"
    details = {"largest_weight": float(np.abs(found.weights).max()), **({"floor_same": floor(dim)} if hard else {})}
    return Prediction(found.error, how if hard else soft, found.uncertainty, details=details)
