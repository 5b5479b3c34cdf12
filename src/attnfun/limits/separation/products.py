"""How far products of two power sums are from all other symmetric functions on the torus: exact Gram matrices.

| symbol | meaning |
| --- | --- |
| N, D | points, dimension; every coordinate x_nd independent and uniform on the unit circle |
| p_α | Σ_n x_n^α, α in N^D, α ≠ 0; p_λ = Π p_α over the parts α of a vector partition λ of δ |
| m̃_μ | Σ over distinct n_1 … n_k of Π x_{n_l}^{μ_l}: the augmented monomial of a vector partition μ with k parts |
| S_δ | the quadratic form: squared distance of Σ F_αβ p_α p_β (α + β = δ) from the span of the other p_λ, λ of δ |

Statement. For N ≥ |δ|, in the coordinates F_αα and √2 F_αβ of a symmetric F,

    S_δ^{-1} = Σ_k Aᵀ_k diag(1/mult!) A_k / (N (N−1) … (N−k+1)),   A_k[μ, {α, β}] the coefficient of p_α p_β in m̃_μ.

Proof. The m̃_μ are orthogonal with |m̃_μ|² = N(N−1)…(N−k+1) Π mult! (mult the multiplicities of the parts), and none
is 0 as k ≤ |δ| ≤ N. Write m̃ = Q p; then p = Q^{-1} m̃ has the Gram matrix Q^{-1} W Q^{-T}, W = diag |m̃|². The Schur
complement of a block of a positive definite matrix is the inverse of that block of the inverse QᵀW^{-1}Q, which is
the sum above. By Möbius inversion in the lattice of set partitions m̃_μ = Σ_π Π_{b in π} (−1)^{|b|−1} (|b|−1)! p_{sum
of b}, so A is counted from the ways to split the parts of μ in two; no matrix is inverted. Different δ are
orthogonal.

For N < |δ| the m̃_μ of |δ| unit vectors is 0, and every p_α p_β occurs in it with the same sign: some F ≠ 0 has
distance 0, and so has its part in B below.

Where only the entries of F with α, β in a set B matter, the others are free, and the form that is left has the inverse
(S_δ^{-1}) restricted to B.

Source: derived here; the orthogonality of augmented monomials and the Möbius function are classical. Size: the vector
partitions of δ: 9, 66, 712, 10,457 for (2, …, 2) of length 2 to 5. All numbers exact but the least eigenvalue, which
is enclosed: θ − S^{-1} has positive pivots in balls, a Rayleigh quotient in rationals on the other side.
"""

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from flint import arb, fmpq

from attnfun.language import precision

Vector = tuple[int, ...]
Matrix = list[list[Fraction]]
_BITS = 256


def vector_partitions(total: Vector) -> Iterator[dict[Vector, int]]:
    """All multisets of nonzero vectors with sum `total`, as part → multiplicity; parts in falling order."""

    def below(rest: Vector, most: Vector) -> Iterator[list[Vector]]:
        if not any(rest):
            yield []
            return
        for part in product(*(range(r, -1, -1) for r in rest)):
            if any(part) and part <= most:
                for tail in below(tuple(r - p for r, p in zip(rest, part, strict=True)), part):
                    yield [part, *tail]

    return map(Counter, below(total, total))


def two_blocks(parts: dict[Vector, int], total: Vector) -> dict[tuple[Vector, Vector], int]:
    """The coefficients of p_α p_β, α ≥ β, in the augmented monomial with these parts (the row of A)."""
    k = sum(parts.values())
    chosen: dict[tuple[Vector, int], int] = {(tuple(0 for _ in total), 0): 1}  # (sum, size) of one block → ways
    for part, many in parts.items():
        after: dict[tuple[Vector, int], int] = {}
        for (alpha, size), ways in chosen.items():
            for j in range(many + 1):
                key = tuple(a + j * p for a, p in zip(alpha, part, strict=True)), size + j
                after[key] = after.get(key, 0) + ways * math.comb(many, j)
        chosen = after
    row: dict[tuple[Vector, Vector], int] = {}
    for (alpha, size), ways in chosen.items():
        if 0 < size < k:
            beta = tuple(t - a for t, a in zip(total, alpha, strict=True))
            pair = (alpha, beta) if alpha >= beta else (beta, alpha)
            weight = (-1) ** k * math.factorial(size - 1) * math.factorial(k - size - 1)
            row[pair] = row.get(pair, 0) + ways * weight
    return {pair: value // 2 for pair, value in row.items() if value}  # {b, b'} was met as (b, b') and as (b', b)


@lru_cache(maxsize=64)
def forms(total: Vector) -> tuple[list[tuple[Vector, Vector]], dict[int, Matrix]]:
    """The matrices behind S_δ^{-1}, for every N at once.

    They are the pairs {α, β}, and A_kᵀ diag(1/mult!) A_k for k = 2 … |δ|, which the pairs index.
    """
    firsts = [a for a in product(*(range(t + 1) for t in total)) if any(a) and a != total]
    others = {a: tuple(t - c for t, c in zip(total, a, strict=True)) for a in firsts}
    pairs = [(a, others[a]) for a in firsts if a >= others[a]]
    place = {pair: i for i, pair in enumerate(pairs)}
    sums: dict[int, list[list[int]]] = {}
    common = math.lcm(*(math.factorial(k) for k in range(1, max(total) + 1)))  # multiplicities are at most max(total)
    scale = common ** len(total)
    for parts in vector_partitions(total):
        k = sum(parts.values())
        if k < 2:
            continue
        row = two_blocks(parts, total)
        whole, left = divmod(scale, math.prod(math.factorial(m) for m in parts.values()))
        assert left == 0
        into = sums.setdefault(k, [[0] * len(pairs) for _ in pairs])
        items = [(place[pair], value) for pair, value in row.items()]
        for i, a in items:
            line = into[i]
            for j, b in items:
                line[j] += whole * a * b
    return pairs, {k: [[Fraction(v, scale) for v in line] for line in rows] for k, rows in sums.items()}


def inverse_form(total: Vector, points: int, inside: frozenset[Vector] | None = None) -> tuple[Matrix, list[int]]:
    """Aᵀ W^{-1} A for N points (in the coordinates 2 F_αβ, F_αα), and the weights 2 or 1 that undo the √2; rows and
    columns restricted to pairs of `inside` if given.
    """
    pairs, by_parts = forms(total)
    kept = [i for i, (a, b) in enumerate(pairs) if inside is None or (a in inside and b in inside)]
    out = [[Fraction(0)] * len(kept) for _ in kept]
    falling = points
    for k in range(2, sum(total) + 1):
        falling *= points - k + 1
        for row, i in zip(out, kept, strict=True):
            line = by_parts[k][i]
            for c, j in enumerate(kept):
                row[c] += line[j] / falling
    return out, [1 if pairs[i][0] == pairs[i][1] else 2 for i in kept]


def least_eigenvalue(total: Vector, points: int, inside: frozenset[Vector] | None = None) -> tuple[Fraction, Fraction]:
    """(low, high) around the least eigenvalue of S_δ, both proved; (0, 0) for N < |δ|."""
    if points < sum(total):
        return Fraction(0), Fraction(0)
    X, weights = inverse_form(total, points, inside)
    roots = np.sqrt(np.array(weights, dtype=float))
    floats = np.array([[float(v) for v in row] for row in X]) / roots[:, None] / roots[None, :]
    values, vectors = np.linalg.eigh(floats)
    guess = Fraction(float(values[-1]))
    v = [Fraction(float(c)) for c in vectors[:, -1] / roots]  # x = E^{-1} v has xᵀ(E X E)x = vᵀXv, |x|² = Σ weight v²
    zero = Fraction(0)
    top = sum((a * sum((x * b for x, b in zip(row, v, strict=True)), zero) for a, row in zip(v, X, strict=True)), zero)
    bottom = sum((w * a * a for w, a in zip(weights, v, strict=True)), zero)
    for slack in (Fraction(1, 10**12), Fraction(1, 10**9), Fraction(1, 10**6), Fraction(1, 1000), Fraction(1)):
        theta = guess * (1 + slack)
        shifted = [[-x for x in row] for row in X]
        for i, w in enumerate(weights):
            shifted[i][i] += w * theta
        if _positive(shifted):
            return 1 / theta, bottom / top
    return Fraction(0), bottom / top


def _positive(matrix: Matrix) -> bool:
    """Whether a symmetric rational matrix is positive definite: pivots of its LDLᵀ in balls, all proved positive."""
    with precision(_BITS):
        rows = [[arb(fmpq(v.numerator, v.denominator)) for v in row] for row in matrix]
        for i in range(len(rows)):
            pivot = rows[i][i]
            if not pivot > 0:
                return False
            for j in range(i + 1, len(rows)):
                factor = rows[j][i] / pivot
                for k in range(i + 1, j + 1):
                    rows[j][k] -= factor * rows[k][i]
    return True
