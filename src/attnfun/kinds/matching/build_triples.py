"""Triples that sum to 0 mod M, by third-order attention: a softmax over pairs of tokens.

Statement: N tokens in Z_M; target [∃ j, k: x_i + x_j + x_k ≡ 0 mod M] for every i (i, j, k need not differ). With
logits a cos(2π(x_i + x_j + x_k)/M) over all N² pairs and a null of logit b = a(1 − δ/2), value 0, a ≥ (2/δ) ln(4N²),
δ = 1 − cos(2π/M): at least 4N²/(4N²+1) where there is a match, at most 1/5 where not.

Source: C. Sanford, D. Hsu, M. Telgarsky 2023, arXiv 2306.02896 (third-order tensor attention); constants derived here.

Derivation: as `match2` with pairs for keys. With c, s the cosines and sines of the three,
cos(α+β+γ) = ccc − css − scs − ssc: a trilinear form of four terms.

Construction: two forms of the same thing. `third_order` evaluates the trilinear form on single encodings and takes the
softmax over pairs: that is third-order attention, and no plain attention layer. `match3` is plain softmax attention
that torch runs unchanged, with one key token a pair, (cos, sin) of x_j + x_k: those products of encodings are not
linear in the tokens, and no layer here computes them; the encoder looks them up. So the plain network has N + N²
tokens.

Size: 1 head, 1 constant token, rank 2 between tokens and pairs (3 with the null's coordinate); O(N³) products for
`third_order`, (N + N²)² for the plain network.

Bound: `prove`, rounding included, for either form: out ≥ 0.8 on a match and ≤ 0.2 otherwise.

Failure mode: logits are off by 4 u a (pair tokens) or 11.4 u a (trilinear): Infeasible, with the largest M, where δ/2
does not exceed that. Memory: N + N² tokens, refused past N = 64.

Example: the network of `matching(8, 17, 3)` on `encode3(x, 17)`, x of shape (8,), reads out 8 single tokens first, then
pairs (no answer).
"""

from attnfun.kinds.matching.build_pairs import null_logit
from attnfun.kinds.matching.pattern import triples
from attnfun.network import TokenNetwork

SHUT = {"float64": 1024.0, "float32": 128.0}
"""How far below 0 the logits of single tokens are: their weights underflow to exact zeros."""


def match3(modulus: int, scale: float, dtype: str = "float64") -> TokenNetwork:
    """Plain attention on single and pair tokens (`encode3`)."""
    return triples(scale, null_logit(scale, modulus, dtype), dtype, SHUT[dtype])
