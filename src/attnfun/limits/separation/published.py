"""Published regimes, quoted: asymptotic statements whose constants are not known here. None of them is a bound.

Each calculator evaluates the printed expression with all hidden constants set to 1, and says so. They stand beside the
bounds of this folder for comparison only.
"""

import math
from dataclasses import dataclass

from attnfun.limits.record import Record

_ABY = "Amsel, Yehudai, Bruna 2024, arXiv 2407.16153, as stated in a lecture of Bruna"
_ZB = "Zweig, Bruna 2022, arXiv 2206.01266, as stated in a lecture of Bruna"
_SHT = "Sanford, Hsu, Telgarsky 2023, arXiv 2306.02896"


@dataclass(frozen=True)
class Quoted(Record):
    """`value` of the printed `statement` with every hidden constant 1; `log2` of it where it may be astronomical."""

    name: str
    statement: str
    value: float
    log2: float | None
    caveat: str
    source: str


def _power(log2: float) -> float:
    return 2.0**log2 if log2 < 1000 else math.inf


def low_precision_heads(dim: int, rank: int, eps: float) -> Quoted:
    """Heads below which the error exceeds eps, up to constants: (d/r)^(1/ε)."""
    log2 = math.log2(dim / rank) / eps if rank < dim else 0.0
    text = "error above eps if H is below (d/r)^(1/eps), up to constants"
    return Quoted("low precision", text, _power(log2), log2, "constants hidden; r < d; two candidates", _ABY)


def high_precision_heads(dim: int, rank: int) -> Quoted:
    """Heads for high precision, up to constants: 2^(d − r log₂(d/r))."""
    log2 = dim - rank * math.log2(dim / rank) if rank < dim else 0.0
    text = "high precision needs H above 2^(d - r log2(d/r)), up to constants"
    caveat = "constants and the accuracy that counts as high are hidden; the base of the logarithm is taken as 2"
    return Quoted("high precision", text, _power(log2), log2, caveat, _ABY)


def majority_heads(dim: int) -> Quoted:
    """Rank-1 heads of a two-layer majority vote: d²."""
    caveat = "true at a fixed margin only; over inputs and draws of the heads the vote is wrong in about sqrt(d/H)/2"
    return Quoted("majority vote", "H above d^2 rank-1 heads in two layers", float(dim) ** 2, None, caveat, _ABY)


def deep_sets_error(points: int, dim: int, features: int) -> Quoted:
    """(1/6)(1 − H/2^min(n/2, d−1))₊: DeepSets of H features on n points in dimension d."""
    value = max(0.0, 1 - features / 2.0 ** min(points // 2, dim - 1, 1000)) / 6
    text = "squared error of DeepSets at least (1/6) max(0, 1 - H/2^min(n/2, d-1)) for some target and measure"
    return Quoted("DeepSets", text, value, None, "the measure is not given in the source", _ZB)


def deep_sets_features(points: int, dim: int) -> Quoted:
    """C(d+N, N): features with which DeepSets represent every symmetric polynomial of degree N exactly."""
    count = math.comb(dim + points, points)
    value = float(count) if count.bit_length() < 1000 else math.inf
    caveat = "counts the constant; power sums up to degree N"
    return Quoted("DeepSets exact", "H* = C(d+N, N) features suffice", value, math.log2(count), caveat, _ZB)


def matching_heads(tokens: int, rank: int, bits: int) -> Quoted:
    """N/(p r): heads that one layer needs for matching triples, up to constants and log log N."""
    caveat = "the constant and a factor log log N are hidden; one layer, p-bit numbers"
    return Quoted("triples", "p r H is at least of the order of N", tokens / (bits * rank), None, caveat, _SHT)


def sparse_average_width(q: int, bits: int) -> Quoted:
    """q/p: coordinates that averages over q tokens need at p bits, up to constants."""
    caveat = "the constant is hidden; one layer, p-bit numbers, any output network"
    return Quoted("sparse averages", "m p is at least of the order of q", q / bits, None, caveat, _SHT)
