"""Pairs that sum to 0 mod M, by one softmax head of rank 2 and a null token.

Statement: N tokens in Z_M; target [∃ j: x_i + x_j ≡ 0 mod M] for every i. On tokens (cos 2πx/M, sin 2πx/M)

    out_i = Σ_j e^{a cos(2π(x_i + x_j)/M)} / (e^b + Σ_j e^{a cos(2π(x_i + x_j)/M)}),    b = a (1 − δ/2),

with δ = 1 − cos(2π/M) and a ≥ (2/δ) ln(4N) is at least 4N/(4N+1) where there is a match and at most 1/5 where not.

j = i counts by default: x_i ≡ 0 (and M/2) then match themselves. With `self_allowed=False` it does not. Only residues
with 2x ≡ 0 can tell the difference; the encoder flags them (at most two), the first head gives them to the null token,
and a second head counts twins among them: k of the same kind, itself among them, give k/(k + √2), 0.414 for k = 1 and
at least 0.586 from k = 2 on, which the read-out stretches to 0.15 and 0.85. No positions are needed.

Source: C. Sanford, D. Hsu, M. Telgarsky 2023, arXiv 2306.02896 (one head with trigonometric embeddings suffices); the
constants and the version without j = i are derived here.

Derivation: cos(α+β) = cos α cos β − sin α sin β has rank 2. A match has logit a; anything else at most a(1 − δ); the
null token, value 0, sits half-way, aδ/2 = ln(4N) from both. Hence 1/(1 + e^{−aδ/2}), and N e^{−aδ/2} = 1/4 against 1.
The stored a is the next power of two, so that scaling is exact, and doubles until the proof accepts it.

Size: 1 layer, 1 head, rank 2 between tokens (3 with the coordinate that holds b), 1 constant token; a ≈ M² ln(4N)/π²,
so logits need about 2 log2 M bits. Without j = i: 2 heads.

Bound: `prove`, from the stored weights, rounding included: out ≥ 0.8 on a match and ≤ 0.2 otherwise.

Failure mode: stored cosines are off by u, and logits by 4 u a: where 4 u reaches δ/2 ≈ π²/M² no a helps. Infeasible,
with the largest M (near 1.4e8 in float64, 6e3 in float32). The encoder is a look-up of whole numbers, and is told so.

Example: `matching(32, 101)` has a = 8192; the stored null logit is below it by 7.9.
"""

import math

from flint import arb, fmpq

from attnfun.kinds.matching.pattern import pairs
from attnfun.language import precision
from attnfun.network import TokenNetwork, rounded

TWINS, ODDS = 64.0, math.log(2) / 2
STRETCH = 0.7 / (2 / (2 + math.sqrt(2)) - 1 / (1 + math.sqrt(2)))
SHIFT = STRETCH / (1 + math.sqrt(2)) - 0.15


def gap(modulus: int) -> float:
    """δ = 1 − cos(2π/M) = 2 sin²(π/M)."""
    with precision(160):
        return float(2 * arb.sin_pi_fmpq(fmpq(1, modulus)) ** 2)


def least_scale(keys: int, modulus: int) -> float:
    """The least power of two from (2/δ) ln(4 keys) on: what the theorem asks for without rounding."""
    return float(2.0 ** math.ceil(math.log2(2 / gap(modulus) * math.log(4 * keys))))


def null_logit(scale: float, modulus: int, dtype: str) -> float:
    """a (1 − δ/2) in the dtype."""
    with precision(160):
        return float(rounded(scale * float((1 + arb.cos_pi_fmpq(fmpq(2, modulus))) / 2), dtype))


def match2(modulus: int, scale: float, *, self_allowed: bool = True, dtype: str = "float64") -> TokenNetwork:
    """The network on encoded tokens (`encode2`); `scale` is a, a power of two."""
    lift = float(2.0 ** math.ceil(math.log2(2 * scale + 64)))
    twins = () if self_allowed else (lift, TWINS, ODDS, STRETCH, SHIFT)
    return pairs(scale, null_logit(scale, modulus, dtype), dtype, twins)
